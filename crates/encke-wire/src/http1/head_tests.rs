//! Cases of request heads: whole, byte by byte, and cut everywhere.

use super::*;
use crate::http1::testing::{Random, splits};
use crate::limits::FIELDS_MAX;
use crate::scan::Class;
use proptest::prelude::*;

/// Feeds `input` whole, in two pieces at every position, and byte by byte: all must give the same result.
fn feed_with(input: &[u8], limits: &HeadLimits) -> (Head, Progress) {
    let mut whole = Head::new();
    let progress = whole.feed(input, limits);
    for pieces in splits(input) {
        let mut head = Head::new();
        let (mut seen, mut split) = (0, Progress::Partial);
        for piece in &pieces {
            seen += piece.len();
            split = head.feed(&input[..seen], limits);
            if split != Progress::Partial {
                break;
            }
        }
        assert_eq!(split, progress, "{} in {} pieces", input.escape_ascii(), pieces.len());
        if let Progress::Done { .. } = progress {
            assert_eq!(facts(&head, input), facts(&whole, input), "{}", input.escape_ascii());
        }
    }
    assert_eq!(whole.feed(input, limits), progress, "the answer stays the same");
    assert_eq!(Head::new().feed_scalar(input, limits), progress, "nor does it hang on vectors");
    (whole, progress)
}

/// All properties of a head, as text.
fn facts(head: &Head, buf: &[u8]) -> String {
    let fields: Vec<_> =
        head.fields(buf).map(|(name, value)| (name.escape_ascii(), value.escape_ascii())).collect();
    format!(
        "{head:?} {} {} {} {:?} {} {} {} {} {} {fields:?}",
        head.method_text(buf).escape_ascii(),
        head.target(buf).escape_ascii(),
        head.path(buf).escape_ascii(),
        head.query(buf).map(<[u8]>::escape_ascii),
        head.host(buf).escape_ascii(),
        head.keep_alive(),
        head.expects_continue(),
        head.expects_unknown(),
        head.upgrade(),
    )
}

fn accepted(input: &[u8]) -> Head {
    let (head, progress) = feed_with(input, &HeadLimits::default());
    assert!(matches!(progress, Progress::Done { .. }), "{progress:?}: {}", input.escape_ascii());
    head
}

fn refused(input: &[u8]) -> Refusal {
    refused_with(input, &HeadLimits::default())
}

fn refused_with(input: &[u8], limits: &HeadLimits) -> Refusal {
    match feed_with(input, limits).1 {
        Progress::Refused(refusal) => refusal,
        other => panic!("{other:?}: {}", input.escape_ascii()),
    }
}

/// A GET of `/` with these lines after Host.
fn with_lines(lines: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes()
}

fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

#[test]
fn a_plain_request_is_read() {
    let input = b"GET /a/b?c=d HTTP/1.1\r\nHost: example.com:8080\r\nUser-Agent: x y\r\n\r\nbody";
    let (head, progress) = feed_with(input, &HeadLimits::default());
    assert_eq!(progress, Progress::Done { head_bytes: input.len() - 4 });
    assert_eq!((head.method(), head.method_text(input)), (Method::Get, &b"GET"[..]));
    assert_eq!(head.target(input), b"/a/b?c=d");
    assert_eq!(head.path(input), b"/a/b");
    assert_eq!(head.query(input), Some(&b"c=d"[..]));
    assert_eq!((head.version(), head.form()), (Version::Http11, TargetForm::Origin));
    assert_eq!(head.host(input), b"example.com:8080");
    assert_eq!(head.framing(), Framing::None);
    assert!(head.keep_alive() && !head.expects_continue() && !head.upgrade() && !head.is_conditional());
    assert_eq!(head.known(input, Known::UserAgent), Some(&b"x y"[..]));
    assert_eq!(head.field(input, "uSER-aGENT"), Some(&b"x y"[..]));
    assert_eq!(head.known(input, Known::Cookie), None);
    assert_eq!(head.len(), 2);
}

#[test]
fn a_head_without_any_field_is_read_in_http10() {
    let head = accepted(b"GET / HTTP/1.0\r\n\r\n");
    assert_eq!(head.version(), Version::Http10);
    assert!(head.is_empty() && !head.keep_alive());
    assert_eq!(head.host(b"GET / HTTP/1.0\r\n\r\n"), b"");
}

#[test]
fn a_request_split_anywhere_is_the_same_request() {
    // `accepted` feeds the input in every possible split, and this input uses most features.
    let input = b"\r\n\r\nPOST http://u.example:81/p?q HTTP/1.1\r\nhost:\t a \t\r\nConnection: close, x\r\n\
        Content-Length: 10\r\nExpect: 100-Continue\r\nX-Empty:\r\nCookie: a=b\r\ncookie: c=d\r\n\r\n";
    let head = accepted(input);
    assert_eq!(head.framing(), Framing::Length(10));
    assert_eq!(head.host(input), b"u.example:81");
    assert!(!head.keep_alive() && head.expects_continue());
    let cookies: Vec<_> = head.all(input, Known::Cookie).collect();
    assert_eq!(cookies, [b"a=b", b"c=d"]);
    assert_eq!(head.known(input, Known::Cookie), Some(&b"a=b"[..]));
    assert_eq!(head.single(input, Known::Cookie), None);
    assert_eq!(head.single(input, Known::Expect), Some(&b"100-Continue"[..]));
    assert_eq!(head.field(input, "x-empty"), Some(&b""[..]));
}

#[test]
fn pipelined_heads_are_read_one_after_the_other_with_one_head() {
    let one =
        b"GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\nRange: bytes=0-\r\n\r\n";
    let two = b"HEAD /2?x HTTP/1.1\r\nHost: b\r\n\r\n";
    let both = [&one[..], two].concat();
    let mut head = Head::new();
    assert_eq!(head.feed(&both, &HeadLimits::default()), Progress::Done { head_bytes: one.len() });
    head.reset();
    let rest = &both[one.len()..];
    assert_eq!(head.feed(rest, &HeadLimits::default()), Progress::Done { head_bytes: two.len() });
    assert_eq!(head.path(rest), b"/2");
    assert_eq!(head.host(rest), b"b");
    assert_eq!(head.framing(), Framing::None);
    assert!(head.keep_alive() && !head.is_conditional());
    assert_eq!(head.len(), 1);
}

#[test]
fn up_to_two_empty_lines_come_before_a_request() {
    accepted(b"\r\nGET / HTTP/1.0\r\n\r\n");
    accepted(b"\r\n\r\nGET / HTTP/1.0\r\n\r\n");
    assert_eq!(refused(b"\r\n\r\n\r\nGET / HTTP/1.0\r\n\r\n"), Refusal::EmptyLines);
    assert_eq!(refused(b"\nGET / HTTP/1.0\r\n\r\n"), Refusal::BareLf);
    assert_eq!(refused(b"\r\rGET / HTTP/1.0\r\n\r\n"), Refusal::BareCr);
}

#[test]
fn methods_are_tokens_and_unknown_ones_are_left_to_the_server() {
    for (text, method) in [("get", Method::Other), ("FOOBAR", Method::Other), ("DELETE", Method::Delete)] {
        let input = format!("{text} / HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
        let head = accepted(&input);
        assert_eq!((head.method(), head.method_text(&input)), (method, text.as_bytes()));
    }
    assert_eq!(refused(b"G@T / HTTP/1.1\r\n"), Refusal::InvalidMethod);
    assert_eq!(refused(b" GET / HTTP/1.1\r\n"), Refusal::InvalidMethod);
    assert_eq!(refused(b"GET\t/ HTTP/1.1\r\n"), Refusal::InvalidMethod);
    assert_eq!(refused(b"GET\r\n\r\n"), Refusal::InvalidMethod);
    assert_eq!(refused(&[b'A'; 33]), Refusal::MethodTooLong);
    accepted(&[&[b'A'; 32][..], b" / HTTP/1.0\r\n\r\n"].concat());
}

#[test]
fn garbage_is_refused_at_its_first_byte_and_not_at_the_end_of_a_line() {
    assert_eq!(refused(b"\x16\x03\x01\x02\x00\x01"), Refusal::InvalidMethod);
    assert_eq!(refused(b"\0"), Refusal::InvalidMethod);
    assert_eq!(refused(b"GE\xff"), Refusal::InvalidMethod);
    assert_eq!(refused(b"GET /\xff"), Refusal::InvalidTarget);
    assert_eq!(refused(b"GET / HTX"), Refusal::InvalidVersion);
    assert_eq!(refused(b"GET / HTTP/1.1\r\nA\0"), Refusal::InvalidFieldName);
    assert_eq!(refused(b"GET / HTTP/1.1\r\nA: b\0"), Refusal::ControlByte);
    assert_eq!(refused(b"PRI * HTTP/2.0\r\n"), Refusal::UnsupportedVersion);
}

#[test]
fn a_line_whose_target_and_version_are_both_strange_is_no_http() {
    for line in ["INVALID CONNECTION PREFACE", "SSH 2 0", "GET index.html 1.1", "A B \t"] {
        assert_eq!(refused(format!("{line}\r\n\r\n").as_bytes()), Refusal::NotHttp, "{line}");
    }
    for line in ["GET index.html", "GET / PREFACE", "GET http://a b", "GET a HTTQ/1.1"] {
        assert_eq!(refused(format!("{line}\r\n\r\n").as_bytes()), Refusal::InvalidVersion, "{line}");
    }
    assert_eq!(refused(b"GET index.html HTTP/1.1\r\n\r\n"), Refusal::TargetForm);
}

#[test]
fn versions_are_exactly_two_digits_with_major_one() {
    assert_eq!(accepted(b"GET / HTTP/1.2\r\nHost: a\r\n\r\n").version(), Version::Http11);
    assert_eq!(accepted(b"GET / HTTP/1.9\r\nHost: a\r\n\r\n").version(), Version::Http11);
    for version in [
        "HTTP/1.1x",
        "HTTP/1,1",
        "HTTP/11",
        "HTTP/1.",
        "HTTQ/1.1",
        "HTTP/1.10",
        "http/1.1",
        "HTTP /1.1",
        "HTTP/0.9",
        "HTTP/1.1 ",
        "",
        "\t",
        "HTTP/1.1\t",
        "HTTP/a.1",
        "HTTP/1.a",
    ] {
        let refusal = refused(format!("GET / {version}\r\nHost: a\r\n\r\n").as_bytes());
        assert_eq!(refusal, Refusal::InvalidVersion, "{version}");
    }
    for version in ["HTTP/2.0", "HTTP/9.9", "HTTP/3.0"] {
        let refusal = refused(format!("GET / {version}\r\nHost: a\r\n\r\n").as_bytes());
        assert_eq!((refusal, refusal.status()), (Refusal::UnsupportedVersion, 505), "{version}");
    }
    assert_eq!(refused(b"GET /file.txt\r\n"), Refusal::InvalidVersion, "HTTP/0.9");
    assert_eq!(refused(b"GET / HTTP/1.1\nHost: a\n\n"), Refusal::BareLf);
    assert_eq!(refused(b"GET / HTTP/1.1\rHost: a\r\n\r\n"), Refusal::BareCr);
    assert_eq!(refused(b"GET / HTTP/1.1\r\r\n\r\n"), Refusal::BareCr);
    assert_eq!(refused(b"GET / HTTP/0.1\r\x0c"), Refusal::InvalidVersion, "the first fault counts");
    assert_eq!(refused(b"GET / HTTP/2.0\r\x0c"), Refusal::BareCr);
}

#[test]
fn targets_hold_uri_characters_only() {
    assert_eq!(refused(b"GET  HTTP/1.1\r\n"), Refusal::TargetMissing);
    assert_eq!(refused(b"GET /fi le.txt HTTP/1.1\r\nHost: a\r\n\r\n"), Refusal::InvalidVersion);
    for target in ["/a\0", "/a\u{7f}", "/a\t", "/é", "/a\\b", "/a#b", "/a?b#c", "/a?\\", "/a\u{1}"] {
        assert_eq!(refused(&get(target)), Refusal::InvalidTarget, "{target:?}");
    }
    for target in ["/a|b", "/^{}<>\"`", "/a?b?c", "/;,=&$!*'()+@:[]", "/%zz", "//x"] {
        let input = get(target);
        assert_eq!(accepted(&input).target(&input), target.as_bytes());
    }
}

#[test]
fn the_form_of_a_target_must_go_with_the_method() {
    let form = |start: &str| {
        let input = format!("{start} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes();
        match feed_with(&input, &HeadLimits::default()) {
            (head, Progress::Done { .. }) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                Ok((head.form(), text(head.host(&input)), text(head.path(&input))))
            }
            (_, Progress::Refused(refusal)) => Err(refusal),
            (_, Progress::Partial) => panic!("a whole head is not partial"),
        }
    };
    let is = |form, host: &str, path: &str| Ok((form, host.to_owned(), path.to_owned()));
    assert_eq!(form("OPTIONS *"), is(TargetForm::Asterisk, "h", "*"));
    assert_eq!(form("GET *"), Err(Refusal::TargetForm));
    assert_eq!(form("OPTIONS *a"), Err(Refusal::TargetForm));
    assert_eq!(form("GET ../secret.txt"), Err(Refusal::TargetForm));
    assert_eq!(form("GET ?a"), Err(Refusal::TargetForm));
    assert_eq!(form("GET example.com:80"), Err(Refusal::TargetForm));
    assert_eq!(form("CONNECT example.com:80"), is(TargetForm::Authority, "example.com:80", ""));
    assert_eq!(form("CONNECT [::1]:80"), is(TargetForm::Authority, "[::1]:80", ""));
    for target in ["example.com", "/", "*", "http://a:1", "example.com:", ":80", "a:1?b", "u@a:1", "a:99999"]
    {
        assert_eq!(form(&format!("CONNECT {target}")), Err(Refusal::TargetForm), "{target}");
    }
    assert_eq!(form("GET http://e.example/p?q"), is(TargetForm::Absolute, "e.example", "/p"));
    assert_eq!(form("GET HTTPS://e.example:1"), is(TargetForm::Absolute, "e.example:1", "/"));
    assert_eq!(form("GET http://e.example?q"), is(TargetForm::Absolute, "e.example", "/"));
    assert_eq!(form("OPTIONS http://e.example"), is(TargetForm::Absolute, "e.example", "*"));
    assert_eq!(form("GET http://x/../s"), is(TargetForm::Absolute, "x", "/../s"));
    assert_eq!(form("GET ftp://e.example/"), Err(Refusal::TargetForm));
    for target in ["http:///p", "http://", "http://?q", "http://u@h/", "http://a:b/", "http://[::1/"] {
        assert_eq!(form(&format!("GET {target}")), Err(Refusal::InvalidHost), "{target}");
    }
}

#[test]
fn an_absolute_target_wins_over_the_host_field_but_does_not_replace_it() {
    let input = b"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n";
    assert_eq!(accepted(input).host(input), b"a");
    assert_eq!(refused(b"GET http://a/ HTTP/1.1\r\n\r\n"), Refusal::HostMissing);
}

#[test]
fn http11_needs_exactly_one_valid_host() {
    assert_eq!(refused(b"GET / HTTP/1.1\r\n\r\n"), Refusal::HostMissing);
    assert_eq!(refused(&with_lines("Host: b\r\n")), Refusal::HostRepeated);
    assert_eq!(refused(&with_lines("host: a\r\n")), Refusal::HostRepeated);
    assert_eq!(refused(b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), Refusal::HostRepeated);
    assert_eq!(refused(b"GET / HTTP/1.1\r\nHost:\r\nHost:\r\n\r\n"), Refusal::HostRepeated);
    for host in
        ["a b", "a/b", "u@a", "a:b", "a,b:1:2", "[::1", "a:70000", ":80", "é", "a\"b", "http://a", "a%zz"]
    {
        let input = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(refused(input.as_bytes()), Refusal::InvalidHost, "{host}");
    }
    for host in ["", "a", "a.b:80", "[::1]", "[2001:db8::1]:8080", "127.0.0.1:8080", "a_b", "a:", "a%20b"] {
        let input = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
        assert_eq!(accepted(&input).host(&input), host.as_bytes());
    }
}

#[test]
fn field_names_match_exactly_and_in_any_case() {
    let input = with_lines("Conn: close\r\nH: b\r\nCONTENT-LENGTH: 4\r\nConnectionX: close\r\n");
    let head = accepted(&input);
    assert!(head.keep_alive(), "Conn is not Connection");
    assert_eq!(head.host(&input), b"a", "H is not Host");
    assert_eq!(head.framing(), Framing::Length(4));
    assert!(!accepted(&with_lines("cOnNeCtIoN: ClOsE\r\n")).keep_alive());
    assert_eq!(head.field(&input, "conn"), Some(&b"close"[..]));
    assert_eq!(head.field(&input, "con"), None);
}

#[test]
fn persistence_follows_the_version_and_the_connection_tokens() {
    let keeps = |version: &str, lines: &str| {
        accepted(format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n").as_bytes()).keep_alive()
    };
    assert!(keeps("1.1", ""));
    assert!(keeps("1.1", "Connection: keep-alive\r\n"));
    assert!(!keeps("1.1", "Connection: close\r\n"));
    assert!(!keeps("1.1", "Connection: keep-alive, close\r\n"));
    assert!(!keeps("1.1", "Connection: x,CLOSE ,\ty\r\n"));
    assert!(!keeps("1.1", "Connection: keep-alive\r\nConnection: close\r\n"));
    assert!(keeps("1.1", "Connection: closed\r\n"));
    assert!(keeps("1.1", "Connection: \"close\"\r\n"));
    assert!(!keeps("1.0", ""));
    assert!(keeps("1.0", "connection: Keep-Alive\r\n"));
    assert!(!keeps("1.0", "Connection: keep-alive, close\r\n"));
    assert!(!keeps("1.0", "Proxy-Connection: keep-alive\r\n"));
}

#[test]
fn upgrade_needs_the_field_and_the_token_and_http11() {
    assert!(accepted(&with_lines("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n")).upgrade());
    assert!(!accepted(&with_lines("Upgrade: websocket\r\n")).upgrade());
    assert!(!accepted(&with_lines("Connection: Upgrade\r\n")).upgrade());
    let old = b"GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    assert!(!accepted(old).upgrade());
}

#[test]
fn expectations_are_100_continue_or_unknown() {
    assert!(accepted(&with_lines("Expect: 100-continue\r\n")).expects_continue());
    let unknown = accepted(&with_lines("Expect: bananas\r\n"));
    assert!(!unknown.expects_continue() && unknown.expects_unknown());
    let old = accepted(b"POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n");
    assert!(!old.expects_continue());
}

#[test]
fn field_lines_that_two_parsers_could_read_differently_are_refused() {
    for (lines, refusal) in [
        ("X-A : b\r\n", Refusal::SpaceBeforeColon),
        ("X-A\t: b\r\n", Refusal::SpaceBeforeColon),
        ("Transfer-Encoding : chunked\r\nContent-Length: 5\r\n", Refusal::SpaceBeforeColon),
        ("X\u{1}A: b\r\n", Refusal::InvalidFieldName),
        ("X(A): b\r\n", Refusal::InvalidFieldName),
        ("é: b\r\n", Refusal::InvalidFieldName),
        (": b\r\n", Refusal::EmptyFieldName),
        ("garbage\r\n", Refusal::MissingColon),
        ("X-A: b\n", Refusal::BareLf),
        ("X-A\n", Refusal::BareLf),
        ("\nX: a\r\n", Refusal::BareLf),
        ("X-A: b\rX-B: c\r\n", Refusal::BareCr),
        ("\rX: a\r\n", Refusal::BareCr),
        ("X-A: b\0\r\n", Refusal::ControlByte),
        ("X-A: b\u{7f}\r\n", Refusal::ControlByte),
        ("X-A: b\u{b}c\r\n", Refusal::ControlByte),
        ("X-A: b\r\n c\r\n", Refusal::ObsoleteFold),
        ("X-A: b\r\n\tc\r\n", Refusal::ObsoleteFold),
    ] {
        assert_eq!(refused(&with_lines(lines)), refusal, "{lines:?}");
    }
    assert_eq!(refused(b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"), Refusal::LeadingSpace);
    assert_eq!(refused(b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n"), Refusal::ControlByte);
}

#[test]
fn values_are_trimmed_and_otherwise_opaque() {
    let input = b"GET / HTTP/1.1\r\nHost:\t a \t\r\nX-A:  \xe9\xff \t b \r\nX-B:\r\nX-C: \t \r\n\r\n";
    let head = accepted(input);
    let fields: Vec<_> = head.fields(input).collect();
    let expected: [(&[u8], &[u8]); 4] =
        [(b"Host", b"a"), (b"X-A", b"\xe9\xff \t b"), (b"X-B", b""), (b"X-C", b"")];
    assert_eq!(fields, expected);
}

#[test]
fn a_content_length_is_one_decimal_number() {
    let length = |value: &str| {
        let input = with_lines(&format!("Content-Length: {value}\r\n"));
        match feed_with(&input, &HeadLimits::default()) {
            (head, Progress::Done { .. }) => Ok(head.framing()),
            (_, Progress::Refused(refusal)) => Err(refusal),
            (_, Progress::Partial) => panic!("a whole head is not partial"),
        }
    };
    assert_eq!(length("0"), Ok(Framing::Length(0)));
    assert_eq!(length("0005"), Ok(Framing::Length(5)));
    assert_eq!(length("18446744073709551615"), Ok(Framing::Length(u64::MAX)));
    for value in ["+5", "-5", "0x5", "5a", "5 5", "", "1e1", "5, 6", "5, 5", "5,5", "5.0", "\"5\"", "٥", "5;"]
    {
        assert_eq!(length(value), Err(Refusal::InvalidLength), "{value}");
    }
    for value in ["99999999999999999999999", "18446744073709551616", "18446744073709551621"] {
        assert_eq!(length(value), Err(Refusal::LengthOverflow), "{value}");
    }
    let repeated = with_lines("Content-Length: 5\r\nContent-Length: 5\r\n");
    assert_eq!(refused(&repeated), Refusal::LengthRepeated);
}

#[test]
fn a_transfer_coding_is_exactly_chunked_and_stands_alone() {
    assert_eq!(accepted(&with_lines("Transfer-Encoding: chunked\r\n")).framing(), Framing::Chunked);
    assert_eq!(accepted(&with_lines("transfer-encoding: \t ChunKed \r\n")).framing(), Framing::Chunked);
    for (value, refusal) in [
        ("chunked, chunked", Refusal::InvalidCoding),
        ("gzip", Refusal::InvalidCoding),
        ("identity", Refusal::InvalidCoding),
        ("chunked, gzip", Refusal::InvalidCoding),
        ("\u{a0}chunked", Refusal::InvalidCoding),
        ("\"chunked\"", Refusal::InvalidCoding),
        ("chunked;a=b", Refusal::InvalidCoding),
        ("xchunked", Refusal::InvalidCoding),
        ("chunked chunked", Refusal::InvalidCoding),
        (",", Refusal::InvalidCoding),
        ("", Refusal::InvalidCoding),
        ("chunked,", Refusal::InvalidCoding),
        ("gzip, chunked", Refusal::UnsupportedCoding),
        ("foo;bar=\"a,b\", chunked", Refusal::UnsupportedCoding),
    ] {
        let input = with_lines(&format!("Transfer-Encoding: {value}\r\n"));
        assert_eq!(refused(&input), refusal, "{value:?}");
    }
    let chunked = "Transfer-Encoding: chunked\r\n";
    assert_eq!(refused(&with_lines(&format!("{chunked}{chunked}"))), Refusal::CodingRepeated);
    let length = "Content-Length: 5\r\n";
    assert_eq!(refused(&with_lines(&format!("{length}{chunked}"))), Refusal::LengthWithCoding);
    assert_eq!(refused(&with_lines(&format!("{chunked}{length}"))), Refusal::LengthWithCoding);
    let old = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refused(old), Refusal::CodingInHttp10);
}

#[test]
fn a_target_over_the_limit_is_414_and_one_at_the_limit_is_not() {
    let limits = HeadLimits { uri_bytes: 10, ..HeadLimits::default() };
    let target = |bytes: usize| get(&format!("/{}", "a".repeat(bytes - 1)));
    assert!(matches!(feed_with(&target(10), &limits).1, Progress::Done { .. }));
    assert_eq!(refused_with(&target(11), &limits), Refusal::UriTooLong);
    assert_eq!(refused_with(b"GET /aaaaaaaaaaaaaaaaaaaa", &limits), Refusal::UriTooLong, "before its end");
    assert_eq!(refused_with(&get("/?aaaaaaaaa"), &limits), Refusal::UriTooLong);
    let beyond_head = HeadLimits { uri_bytes: u32::MAX, ..HeadLimits::default() };
    let mut head = Head::new();
    let endless = [&b"GET /"[..], &[b'a'; 100_000]].concat();
    assert_eq!(head.feed(&endless, &beyond_head), Progress::Refused(Refusal::UriTooLong));
}

#[test]
fn a_head_over_the_limit_is_431_and_one_at_the_limit_is_not() {
    let input = with_lines("X-A: 1234567890\r\n");
    let bytes = input.len() as u32;
    let exact = HeadLimits { head_bytes: bytes, ..HeadLimits::default() };
    assert!(matches!(feed_with(&input, &exact).1, Progress::Done { .. }));
    let less = HeadLimits { head_bytes: bytes - 1, ..HeadLimits::default() };
    assert_eq!(refused_with(&input, &less), Refusal::HeadTooLarge);
    let mut followed = input.clone();
    followed.extend_from_slice(&[0; 100]);
    assert!(matches!(feed_with(&followed, &exact).1, Progress::Done { .. }), "the body is not counted");
    let mut head = Head::new();
    let endless = [&b"GET / HTTP/1.1\r\nX: "[..], &[b'a'; 1_000_000]].concat();
    assert_eq!(head.feed(&endless, &HeadLimits::default()), Progress::Refused(Refusal::HeadTooLarge));
    let largest = HeadLimits { head_bytes: u32::MAX, uri_bytes: u32::MAX, fields: u16::MAX };
    let mut head = Head::new();
    assert_eq!(head.feed(&endless, &largest), Progress::Refused(Refusal::HeadTooLarge));
    let widest = [&b"GET / HTTP/1.1\r\nHost:a\r\nX:"[..], &[b'a'; 65_535 - 30], b"\r\n\r\n"].concat();
    let mut head = Head::new();
    assert_eq!(head.feed(&widest, &largest), Progress::Done { head_bytes: 65_535 });
    assert_eq!(head.field(&widest, "x").map(<[u8]>::len), Some(65_535 - 30));
}

#[test]
fn the_number_of_fields_and_the_length_of_a_name_are_limited() {
    let lines = |count: usize| with_lines(&"X-A: b\r\n".repeat(count - 1));
    let limits = HeadLimits { fields: 5, ..HeadLimits::default() };
    assert_eq!(feed_with(&lines(5), &limits).0.len(), 5);
    assert_eq!(refused_with(&lines(6), &limits), Refusal::TooManyFields);
    let most = HeadLimits { fields: u16::MAX, ..HeadLimits::default() };
    let mut head = Head::new();
    let input = lines(usize::from(FIELDS_MAX));
    assert_eq!(head.feed(&input, &most), Progress::Done { head_bytes: input.len() });
    assert_eq!(head.fields(&input).count(), usize::from(FIELDS_MAX));
    head.reset();
    let input = lines(usize::from(FIELDS_MAX) + 1);
    assert_eq!(head.feed(&input, &most), Progress::Refused(Refusal::TooManyFields));
    accepted(&with_lines(&format!("{}: b\r\n", "n".repeat(255))));
    assert_eq!(refused(&with_lines(&format!("{}: b\r\n", "n".repeat(256)))), Refusal::FieldNameTooLong);
}

#[test]
fn the_first_of_the_last_fields_is_found() {
    // The tables hold indices as u8, so the last line must be reachable.
    let lines = "X-A: b\r\n".repeat(usize::from(FIELDS_MAX) - 2) + "Cookie: c\r\n";
    let input = with_lines(&lines);
    let mut head = Head::new();
    let limits = HeadLimits { fields: FIELDS_MAX, ..HeadLimits::default() };
    assert_eq!(head.feed(&input, &limits), Progress::Done { head_bytes: input.len() });
    assert_eq!(head.known(&input, Known::Cookie), Some(&b"c"[..]));
    assert_eq!(head.all(&input, Known::Cookie).count(), 1);
}

#[test]
fn what_is_left_of_a_refused_head_does_not_survive_a_reset() {
    let mut head = Head::new();
    let limits = HeadLimits::default();
    let bad = b"POST / HTTP/1.0\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\nX : b\r\n\r\n";
    assert_eq!(head.feed(bad, &limits), Progress::Refused(Refusal::SpaceBeforeColon));
    head.reset();
    let good = b"GET / HTTP/1.1\r\nHost: b\r\n\r\n";
    assert_eq!(head.feed(good, &limits), Progress::Done { head_bytes: good.len() });
    let mut fresh = Head::new();
    fresh.feed(good, &limits);
    assert_eq!(facts(&head, good), facts(&fresh, good));
}

#[test]
fn a_head_is_about_a_kilobyte() {
    assert!(size_of::<Head>() <= 1_280, "{}", size_of::<Head>());
}

/// `httparse` accepts every head that this parser accepts, with the same contents. (It accepts more, because it is
/// lenient.)
fn agrees_with_httparse(input: &[u8]) -> bool {
    let mut head = Head::new();
    let Progress::Done { head_bytes } = head.feed(input, &HeadLimits::default()) else { return false };
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut request = httparse::Request::new(&mut fields);
    let status = request.parse(input).unwrap_or_else(|error| panic!("{error}: {}", input.escape_ascii()));
    assert_eq!(status, httparse::Status::Complete(head_bytes));
    assert_eq!(request.method.map(str::as_bytes), Some(head.method_text(input)));
    assert_eq!(request.path.map(str::as_bytes), Some(head.target(input)));
    assert_eq!(request.version, Some(u8::from(head.version() == Version::Http11)));
    let theirs = request.headers.iter().map(|field| (field.name.as_bytes(), field.value));
    assert!(theirs.eq(head.fields(input)), "{}", input.escape_ascii());
    true
}

/// A request with up to three bytes changed, inserted or removed.
fn mutation(random: &mut Random) -> Vec<u8> {
    let seeds: [&[u8]; 4] = [
        b"GET /a?b HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n",
        b"\r\nPOST /x HTTP/1.0\r\nContent-Length: 3\r\nX-Y:\r\n\r\nabc",
        b"OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\nTransfer-Encoding: chunked\r\nCookie: a=b; c=\"d\"\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost:a\r\nAccess-Control-Request-Headers-And-More: x-a, x-b, x-c, x-d\r\n\r\n",
    ];
    let interesting = b"\r\n\0\t :;,?#/\\%*a1\x7f\x80\xff";
    let mut input = seeds[random.below(seeds.len())].to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(input.len());
        let byte = interesting[random.below(interesting.len())];
        match random.below(3) {
            0 => input[at] = byte,
            1 => input.insert(at, byte),
            _ => drop(input.remove(at)),
        }
    }
    input
}

#[test]
fn what_mutations_of_real_requests_we_accept_httparse_accepts_alike() {
    let seed = 0x5eed_0003;
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    let accepted = (0..200_000).filter(|_| agrees_with_httparse(&mutation(&mut random))).count();
    println!("{accepted} of 200000 accepted");
    assert!(accepted > 10_000, "the comparison must not be empty: {accepted}");
}

/// All results of one scanner for a whole buffer.
struct HeadJob<'a>(&'a [u8]);

impl ScanJob for HeadJob<'_> {
    type Output = (Progress, usize, String);

    fn run<S: Scanner>(self, scanner: S) -> Self::Output {
        let mut head = Head::new();
        let progress = head.feed_by(self.0, &HeadLimits::default(), |feed| feed.run(scanner));
        let facts = match progress {
            Progress::Done { .. } => facts(&head, self.0),
            _ => String::new(),
        };
        (progress, head.line_start(), facts)
    }
}

#[test]
fn every_scanner_finds_the_same_in_mutations_of_real_requests() {
    let seed = 0x5eed_0004;
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    for _ in 0..10_000 {
        let input = mutation(&mut random);
        let found = scan::by_each(|| HeadJob(&input));
        for (name, other) in &found[1..] {
            assert_eq!(*other, found[0].1, "{name}: {}", input.escape_ascii());
        }
    }
}

#[test]
fn a_scanner_that_takes_one_byte_for_another_is_found_out() {
    /// Treats DEL as text in lines.
    #[derive(Clone, Copy)]
    struct Careless;

    impl Scanner for Careless {
        fn skip(self, class: Class, bytes: &[u8], from: usize) -> usize {
            Scalar.skip(class, bytes, from)
        }

        fn line(self, bytes: &[u8], from: usize) -> (usize, usize) {
            let text = bytes[from..].iter().take_while(|&&byte| byte == 0x7f || Class::Text.has(byte));
            (Scalar.line(bytes, from).0, text.count())
        }
    }

    let seed = 0x5eed_0005;
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    let differs = |input: Vec<u8>| HeadJob(&input).run(Careless) != HeadJob(&input).run(Scalar);
    let count = (0..10_000).filter(|_| differs(mutation(&mut random))).count();
    assert!(count > 20, "what the comparison finds of a planted fault: {count} of 10000");
}

proptest! {
    #[test]
    fn requests_made_by_the_grammar_are_accepted_and_read_back(
        method in "[A-Z]{1,12}",
        target in "/[!$-.0-;=@-\\[\\]_a-z~]{0,40}",
        fields in proptest::collection::vec(("[!#-'*+.^_`|~0-9A-Za-z-]{1,30}", "([!-~é]([ -~é]{0,60}[!-~é])?)?"), 0..12),
        spaces in "[ \t]{0,3}",
    ) {
        let deciding = |name: &str| {
            Known::of(name.as_bytes()).is_some_and(|known| known.bit() & DECIDING != 0)
        };
        let fields: Vec<_> = fields.into_iter().filter(|(name, _)| !deciding(name)).collect();
        prop_assume!(method != "CONNECT");
        let mut input = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n");
        for (name, value) in &fields {
            input += &format!("{name}:{spaces}{value}{spaces}\r\n");
        }
        input += "\r\n";
        let head = accepted(input.as_bytes());
        prop_assert_eq!(head.method_text(input.as_bytes()), method.as_bytes());
        prop_assert_eq!(head.target(input.as_bytes()), target.as_bytes());
        let read: Vec<_> = head.fields(input.as_bytes()).skip(1).collect();
        let made: Vec<_> = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        prop_assert_eq!(read, made);
        prop_assert!(agrees_with_httparse(input.as_bytes()));
    }
}
