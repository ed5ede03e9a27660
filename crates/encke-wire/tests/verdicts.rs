//! Responses of a server that only follows this crate, to input from smugglers, scanners and broken clients: one status per
//! request, and none after a refusal. Each input is fed whole and byte by byte.
//!
//! The cases are HTTP/1.1 probes (RFC 9112, RFC 9110, and known request smuggling attacks).

use encke_wire::http1::{BodyState, ChunkedDecoder, Framing, Head, HeadLimits, Progress, Refusal};
use encke_wire::target::decode_path;

/// The responses to a connection that sends only `input`, and whether it is still open. The statuses are 200 for each complete
/// request, and that of the first refusal.
fn answers(input: &[u8]) -> (Vec<u16>, Connection) {
    let whole = serve(input, usize::MAX);
    assert_eq!(serve(input, 1), whole, "byte by byte: {}", input.escape_ascii());
    whole
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    /// Idle between two requests.
    Idle,
    /// Within an incomplete request, which got no response.
    Waiting,
    Closed,
}

fn serve(input: &[u8], step: usize) -> (Vec<u16>, Connection) {
    let (mut statuses, mut start) = (Vec::new(), 0);
    let mut head = Head::new();
    while start < input.len() {
        let rest = &input[start..];
        let progress = arriving(rest, step, |seen| match head.feed(seen, &HeadLimits::default()) {
            Progress::Partial => None,
            other => Some(other),
        });
        let head_bytes = match progress {
            None => return (statuses, Connection::Waiting),
            Some(Progress::Refused(refusal)) => {
                statuses.push(refusal.status());
                return (statuses, Connection::Closed);
            }
            Some(Progress::Done { head_bytes }) => head_bytes,
            Some(Progress::Partial) => unreachable!("filtered above"),
        };
        let status = match decode_path(head.path(rest), &mut String::new()) {
            Err(_) if head.path(rest) != b"*" => 400,
            _ => 200,
        };
        match body_bytes(head.framing(), &rest[head_bytes..], step) {
            Ok(Some(bytes)) => start += head_bytes + bytes,
            Ok(None) => return (statuses, Connection::Waiting),
            Err(refused) => {
                statuses.push(refused);
                return (statuses, Connection::Closed);
            }
        }
        statuses.push(status);
        if !head.keep_alive() {
            return (statuses, Connection::Closed);
        }
        head.reset();
    }
    (statuses, Connection::Idle)
}

/// Feeds `input` in steps of `step` bytes until there is a result.
fn arriving<T>(input: &[u8], step: usize, mut look: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let mut seen = 0;
    while seen < input.len() {
        seen = seen.saturating_add(step).min(input.len());
        let answer = look(&input[..seen]);
        if answer.is_some() {
            return answer;
        }
    }
    None
}

/// Length of the body at the start of `rest`. `None` if it is incomplete, or the status that rejects it.
fn body_bytes(framing: Framing, rest: &[u8], step: usize) -> Result<Option<usize>, u16> {
    match framing {
        Framing::None => Ok(Some(0)),
        Framing::Length(length) => {
            let length = usize::try_from(length).map_err(|_| 413u16)?;
            Ok((length <= rest.len()).then_some(length))
        }
        Framing::Chunked => {
            let mut decoder = ChunkedDecoder::new();
            let mut consumed = 0;
            while consumed < rest.len() {
                let end = consumed.saturating_add(step).min(rest.len());
                let chunk = decoder.feed(&rest[consumed..end]).map_err(Refusal::status)?;
                consumed += chunk.consumed;
                if chunk.state == BodyState::Done {
                    return Ok(Some(consumed));
                }
            }
            Ok(None)
        }
    }
}

/// A request that must never get a response: a careless server sees it inside another request.
const CANARY: &str = "GET /canary HTTP/1.1\r\nHost: a\r\n\r\n";

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn post(lines: &str, body: &str) -> String {
    format!("POST /echo HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}")
}

fn refused(input: &str, status: u16) {
    assert_eq!(answers(input.as_bytes()), (vec![status], Connection::Closed), "{input:?}");
}

fn accepted(input: &str, requests: usize) {
    assert_eq!(answers(input.as_bytes()), (vec![200; requests], Connection::Idle), "{input:?}");
}

#[test]
fn ambiguous_lengths_are_refused_and_what_follows_them_is_never_a_request() {
    for value in ["+5", "-5", "0x5", "5a", "5 5", "", "1e1", "5, 6", "5, 5", "5.0"] {
        refused(&post(&format!("Content-Length: {value}\r\n"), &format!("hello{CANARY}")), 400);
    }
    for value in ["99999999999999999999999", "18446744073709551621"] {
        refused(&post(&format!("Content-Length: {value}\r\n"), &format!("hello{CANARY}")), 413);
    }
    refused(&post("Content-Length: 5\r\nContent-Length: 5\r\n", &format!("hello{CANARY}")), 400);
    refused(&post("Content-Length: 5\r\ncontent-length: 6\r\n", &format!("hello{CANARY}")), 400);
}

#[test]
fn ambiguous_codings_are_refused_and_what_follows_them_is_never_a_request() {
    let body = format!("0\r\n\r\n{CANARY}");
    for (lines, status) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 40\r\n", 400),
        ("Transfer-Encoding: chunked, chunked\r\n", 400),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", 400),
        ("Transfer-Encoding: gzip\r\n", 400),
        ("Transfer-Encoding: gzip, chunked\r\n", 501),
        ("Transfer-Encoding: \u{a0}chunked\r\n", 400),
        ("Transfer-Encoding: \u{b}chunked\r\n", 400),
        ("Transfer-Encoding : chunked\r\nContent-Length: 40\r\n", 400),
        ("Transfer-Encoding:\r\n chunked\r\nContent-Length: 40\r\n", 400),
        ("X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 40\r\n", 400),
        ("X: y\rTransfer-Encoding: chunked\r\nContent-Length: 40\r\n", 400),
        ("X: y\nTransfer-Encoding: chunked\r\nContent-Length: 40\r\n", 400),
        ("Transfer-Encoding:\r\nContent-Length: 40\r\n", 400),
        ("Transfer-Encoding: \"chunked\"\r\n", 400),
    ] {
        refused(&post(lines, &body), status);
    }
    refused(&format!("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n{body}"), 400);
    // Another name is another field. Here the length determines the body, and the canary is a request.
    accepted(&post("Transfer_Encoding: chunked\r\nContent-Length: 5\r\n", &body), 2);
}

#[test]
fn malformed_chunks_are_refused_and_what_follows_them_is_never_a_request() {
    for body in [
        "-3\r\nabc\r\n0\r\n\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "\r\nabc\r\n0\r\n\r\n",
        "0_3\r\nabc\r\n0\r\n\r\n",
        "10000000000000003\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcdef\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\rabc\r\n0\r\n\r\n",
        "3;a\nabc\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\nbad line\r\n\r\n",
        "3\r\nabc\r\n0\r\nX : y\r\n\r\n",
        "3\r\nabc\r\n0\r\n folded: y\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\n\n",
        "3\r\nabc\n0\r\n\r\n",
    ] {
        refused(&post("Transfer-Encoding: chunked\r\n", &format!("{body}{CANARY}")), 400);
    }
    let trailers = "X-T: 1234567890\r\n".repeat(1_000);
    refused(&post("Transfer-Encoding: chunked\r\n", &format!("3\r\nabc\r\n0\r\n{trailers}\r\n")), 431);
}

#[test]
fn bodies_of_any_method_belong_to_their_request() {
    let chunk = format!("{:x}\r\n{CANARY}\r\n0\r\n\r\n", CANARY.len());
    let length = CANARY.len();
    accepted(
        &format!("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{CANARY}{}", get("/")),
        2,
    );
    accepted(
        &format!("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{}", get("/")),
        2,
    );
    accepted(&post("Content-Length: 0\r\n", &get("/")), 2);
    accepted(&post("Content-Length: 0005\r\n", "hello"), 1);
    accepted(
        &post("Transfer-Encoding: chunked\r\n", "3;x=y\r\nabc\r\n0\r\nContent-Length: 50\r\n\r\n").repeat(3),
        3,
    );
}

#[test]
fn what_is_truncated_is_not_answered() {
    for input in [
        post("Content-Length: 50\r\n", "hello"),
        post("Transfer-Encoding: chunked\r\n", "10\r\nhello"),
        post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n"),
        get("/").trim_end().to_owned(),
        "GET / HT".to_owned(),
    ] {
        assert_eq!(answers(input.as_bytes()), (vec![], Connection::Waiting), "{input:?}");
    }
}

#[test]
fn malformed_request_lines_and_hosts_are_refused() {
    for version in
        ["HTTP/1.1x", "HTTP/1,1", "HTTP/11", "HTTP/1.", "HTTQ/1.1", "HTTP/1.10", "http/1.1", "HTTP /1.1"]
    {
        refused(&format!("GET / {version}\r\nHost: a\r\n\r\n"), 400);
    }
    refused("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505);
    refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
    refused("GET /file.txt\r\n", 400);
    refused("GET  HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    refused("GET /fi le.txt HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    refused("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    refused(&"A".repeat(8_192), 501);
    refused(&get(&format!("/?{}", "a".repeat(16 * 1024))), 414);
    refused(&format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X-A: b\r\n".repeat(200)), 431);
    for host in ["a b", "a/b", "u@a", "a:b", "a\0b"] {
        refused(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), 400);
    }
    refused("GET / HTTP/1.1\r\n\r\n", 400);
    refused("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400);
    accepted("GET / HTTP/1.2\r\nHost: \r\n\r\n", 1);
    accepted(&format!("\r\n{}", get(&format!("/?{}", "a".repeat(7_900)))), 1);
    accepted("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 1);
}

#[test]
fn paths_that_try_to_leave_the_root_are_answered_400_and_the_connection_lives() {
    for target in [
        "/../s",
        "/dir/../../s",
        "/..%2fs",
        "/%2e%2e/s",
        "/.%2e/s",
        "//../s",
        "/dir/..%5c..%5cs",
        "/%c0%ae%c0%ae/s",
        "http://x/../s",
        "/f/../../s",
        "/%zz",
        "/f%",
        "/f%00",
        "/f%00.html",
        "/dir%0d%0aX-Inj:%201",
    ] {
        let input = get(target) + &get("/");
        assert_eq!(answers(input.as_bytes()), (vec![400, 200], Connection::Idle), "{target}");
    }
    for target in ["/..\\s", "../s", "/f\0", "/f#x"] {
        refused(&get(target), 400);
    }
    accepted(&get("/%252e%252e/s"), 1);
    accepted(&get("//etc/passwd"), 1);
    accepted(&get("/..;/s"), 1);
}

#[test]
fn a_connection_ends_when_either_side_says_so() {
    let closing = "GET / HTTP/1.1\r\nHost: a\r\nConnection: x, close\r\n\r\n".to_owned() + CANARY;
    assert_eq!(answers(closing.as_bytes()), (vec![200], Connection::Closed));
    let old = format!("GET / HTTP/1.0\r\n\r\n{CANARY}");
    assert_eq!(answers(old.as_bytes()), (vec![200], Connection::Closed));
    accepted(&"GET / HTTP/1.0\r\nconnection: Keep-Alive\r\n\r\n".repeat(2), 2);
    accepted(&get("/").repeat(20), 20);
}
