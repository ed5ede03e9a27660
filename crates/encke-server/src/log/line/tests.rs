//! Tests of lines: their form, their escapes, and the tokens that they mask.

use super::*;
use std::sync::Arc;

use crate::request::{Asker, Origin};
use encke_session::tls::{Certified, TlsKnown};
use encke_wire::http1::{Head, HeadLimits};

/// The id of the requests here: 1,795,296,363,042 ms in hexadecimal, the prefix, and the number 1.
const ID: &str = "01a2000082220123456789ab00300001";
const PREFIX: IdPrefix = *b"0123456789ab003";

const NOW: Now = Now { mono_ns: 5, unix_ns: 1_795_296_363_042_000_000 };

fn line(format: LogFormat, head: &[u8], finish: impl Fn(&mut LogEntry) -> LineEnd) -> String {
    line_by(format, head, None, finish)
}

fn line_by(
    format: LogFormat,
    head: &[u8],
    tls: Option<Arc<TlsKnown>>,
    finish: impl Fn(&mut LogEntry) -> LineEnd,
) -> String {
    line_of(format, head, tls, None, finish)
}

fn line_of(
    format: LogFormat,
    head: &[u8],
    tls: Option<Arc<TlsKnown>>,
    user: Option<&str>,
    finish: impl Fn(&mut LogEntry) -> LineEnd,
) -> String {
    let user = user.map(Arc::from);
    let mut parsed = Head::new();
    parsed.feed(head, &HeadLimits::default());
    let client = Some("203.0.113.9".parse().expect("an address"));
    let origin = Origin {
        peer: Peer::Local,
        client,
        forwards: false,
        hidden: false,
        secure: false,
        tls,
        local: false,
    };
    let request = Request {
        head: &parsed,
        bytes: head,
        asker: Asker::Known(&origin),
        now: NOW,
        user: user.as_ref(),
        passed: None,
    };
    let mut writer = Writer::new();
    let mut entry = LogEntry::default();
    let label = LogLabel { site: Some("example.org"), ..LogLabel::default() };
    let id = request_id::id(&PREFIX, NOW.unix_ns, NonZeroU32::MIN);
    writer.begin(format, (&request, label, &id), &mut entry);
    let mut texts = Texts::default();
    let mut resting = entry.at_rest(&PREFIX, &mut texts).expect("the line has the usual form");
    assert!(resting.at_rest(&PREFIX, &mut texts).is_none(), "a line comes to rest once");
    let end = finish(&mut entry);
    let mut out = Vec::new();
    entry.finish(&PREFIX, &end, &mut out);
    finish(&mut resting);
    let mut rested = Vec::new();
    resting.finish(&PREFIX, &end, &mut rested);
    assert_eq!(String::from_utf8_lossy(&rested), String::from_utf8_lossy(&out), "at rest");
    String::from_utf8(out).expect("a line is UTF-8")
}

fn ok(entry: &mut LogEntry) -> LineEnd {
    entry.set_status(200);
    LineEnd { sent_bytes: 13, duration_ns: 1_234_567, reason: None }
}

#[test]
fn a_line_names_the_reason_and_the_setting_of_a_limit() {
    let head = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    for (reason, expected) in [
        ("peer_reset", "peer_reset"),
        ("head_too_large", "head_too_large (limits.head_bytes)"),
        ("write_rate", "write_rate (limits.write_rate)"),
    ] {
        let end = |_: &mut LogEntry| LineEnd { reason: Some(reason), ..LineEnd::default() };
        let read: serde_json::Value = serde_json::from_str(&line(LogFormat::Json, head, end)).expect("JSON");
        assert_eq!(read["reason"], expected);
        assert!(line(LogFormat::Combined, head, end).ends_with("\"GET / HTTP/1.1\" 0 0 \"-\" \"-\"\n"));
    }
}

#[test]
fn a_combined_line_looks_as_it_does_everywhere() {
    let head = b"GET /a?b=c HTTP/1.1\r\nHost: h\r\nReferer: http://x/\r\nUser-Agent: curl/8.5.0\r\n\r\n";
    assert_eq!(
        line(LogFormat::Combined, head, ok),
        "203.0.113.9 - - [21/Nov/2026:21:26:03 +0000] \"GET /a?b=c HTTP/1.1\" 200 13 \"http://x/\" \"curl/8.5.0\"\n"
    );
    let bare = b"HEAD / HTTP/1.0\r\n\r\n";
    assert_eq!(
        line(LogFormat::Combined, bare, ok),
        "203.0.113.9 - - [21/Nov/2026:21:26:03 +0000] \"HEAD / HTTP/1.0\" 200 13 \"-\" \"-\"\n"
    );
}

#[test]
fn a_json_line_is_one_object() {
    let head = b"GET /a?b=c HTTP/1.1\r\nHost: h:80\r\nUser-Agent: \xc3\xa9 \xff\"\\x\r\n\r\n";
    let line = line(LogFormat::Json, head, ok);
    assert!(line.ends_with("}\n") && line.matches('\n').count() == 1, "{line}");
    let read: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(
        read,
        serde_json::json!({
            "time": "2026-11-21T21:26:03.042Z", "client": "203.0.113.9", "method": "GET", "target": "/a?b=c",
            "version": "HTTP/1.1", "host": "h:80", "site": "example.org", "referer": null, "user_agent": "é \u{fffd}\"\\x",
            "tls": null, "cipher": null, "server_name": null, "certificate": null, "request_id": ID,
            "status": 200, "sent_bytes": 13, "duration_us": 1234, "reason": null,
        })
    );
}

#[test]
fn the_user_that_a_guard_names_stands_before_that_of_the_certificate() {
    let client = Certified { name: "certificate".into(), expires_unix_s: 0, fingerprint: Box::default() };
    let known = TlsKnown::new("1.3", "", None, Some(client));
    let (head, known) = (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", Some(Arc::new(known)));
    let told = |format, user| line_of(format, head, known.clone(), user, ok);
    for (user, shown) in [(Some("A n\"n"), "A\\x20n\\x22n"), (Some(""), "certificate"), (None, "certificate")]
    {
        let combined = told(LogFormat::Combined, user);
        assert!(combined.starts_with(&format!("203.0.113.9 - {shown} [21/Nov")), "{combined}");
    }
    let json =
        |user| -> serde_json::Value { serde_json::from_str(&told(LogFormat::Json, user)).expect("JSON") };
    assert_eq!(
        (&json(Some("ann"))["user"], &json(Some("ann"))["certificate"]),
        (&"ann".into(), &"certificate".into())
    );
    assert_eq!(json(None).get("user"), None, "lines without guards stay as they were");
}

#[test]
fn what_tls_knows_is_told() {
    let client = Certified { name: "Ann \"M\" é".into(), expires_unix_s: 0, fingerprint: Box::default() };
    let known = TlsKnown::new("1.3", "TLS_AES_256_GCM_SHA384", Some("example.org".into()), Some(client));
    let head = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let known = Some(Arc::new(known));
    let combined = line_by(LogFormat::Combined, head, known.clone(), ok);
    assert!(combined.starts_with("203.0.113.9 - Ann\\x20\\x22M\\x22\\x20\\xC3\\xA9 [21/Nov"), "{combined}");
    let json: serde_json::Value =
        serde_json::from_str(&line_by(LogFormat::Json, head, known, ok)).expect("JSON");
    for (key, value) in [
        ("tls", "1.3"),
        ("cipher", "TLS_AES_256_GCM_SHA384"),
        ("server_name", "example.org"),
        ("certificate", "Ann \"M\" é"),
    ] {
        assert_eq!(json[key], value, "{key}");
    }
}

#[test]
fn a_refused_request_is_logged_by_its_peer() {
    let peer = Peer::Inet("[2001:db8::1]:4711".parse().expect("an address"));
    for (format, expected) in [
        (LogFormat::Combined, "2001:db8::1 - - [21/Nov/2026:21:26:03 +0000] \"-\" 400 0 \"-\" \"-\"\n"),
        (
            LogFormat::Json,
            "{\"time\":\"2026-11-21T21:26:03.042Z\",\"client\":\"2001:db8::1\",\"method\":null,\"target\":null,\
             \"version\":null,\"host\":null,\"site\":null,\"referer\":null,\"user_agent\":null,\"tls\":null,\"cipher\":null,\
             \"server_name\":null,\"certificate\":null,\"request_id\":null,\"status\":400,\"sent_bytes\":0,\"duration_us\":0,\
             \"reason\":\"bare_lf\"}\n",
        ),
    ] {
        let (mut writer, mut entry) = (Writer::new(), LogEntry::default());
        writer.begin_refused(format, peer, NOW, &mut entry);
        let resting = entry.at_rest(&PREFIX, &mut Texts::default()).expect("the line has the usual form");
        for mut entry in [entry, resting] {
            let mut out = Vec::new();
            entry.set_status(400);
            entry.finish(&PREFIX, &LineEnd { reason: Some("bare_lf"), ..LineEnd::default() }, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}

#[test]
fn no_byte_that_a_client_sends_breaks_a_line() {
    for byte in 0..=255u8 {
        let value = [b'a', byte, b'z'];
        let (mut combined, mut json) = (Vec::new(), Vec::new());
        put_value(&mut combined, &value, put_escaped);
        assert!(combined.iter().all(|byte| (b' '..=b'~').contains(byte) && *byte != b'"'), "{byte}");
        json.push(b'"');
        put_value(&mut json, &value, put_json_escaped);
        json.push(b'"');
        let read: String = serde_json::from_slice(&json).unwrap_or_else(|error| panic!("{byte}: {error}"));
        assert_eq!(read, String::from_utf8_lossy(&value), "{byte}");
    }
    let mut escaped = Vec::new();
    put_escaped(&mut escaped, b"a\"b\\c\r\nd\x7f\xe9");
    assert_eq!(escaped, br"a\x22b\x5Cc\x0D\x0Ad\x7F\xE9");
}

#[test]
fn tokens_are_masked_however_they_are_spelled() {
    for (value, logged) in [
        ("/push/a?access_token=s3cret", "/push/a?access_token=***"),
        ("/push/a?x=1&access_token=s3cret&y=2", "/push/a?x=1&access_token=***&y=2"),
        ("/push/a?Access_Token=s3cret", "/push/a?Access_Token=***"),
        ("/push/a?access%5Ftoken=s3cret", "/push/a?access%5Ftoken=***"),
        ("/push/a?%61ccess_token=a&access_token=b", "/push/a?%61ccess_token=***&access_token=***"),
        ("/push/a?access_token=", "/push/a?access_token=***"),
        ("http://h/?access_token=s3cret", "http://h/?access_token=***"),
        ("/api/v1/status?token=s3cret", "/api/v1/status?token=***"),
        ("/push/a?a;access_token=s3cret", "/push/a?a;access_token=***"),
        ("/push/a?access_token=s3;s3cret#s3cret", "/push/a?access_token=***"),
        ("/push/a%3Faccess_token=s3cret", "/push/a%3Faccess_token=***"),
        ("/go?to=%2fa%2f%3faccess_token%3ds3cret", "/go?to=%2fa%2f%3faccess_token%3d***"),
        ("/go?to=%2fa%3faccess_token%3ds3cret%26b%3ds3cret&c=d", "/go?to=%2fa%3faccess_token%3d***&c=d"),
        ("/go?to=%252Fa%253Faccess%255Ftoken%253Ds3cret", "/go?to=%252Fa%253Faccess%255Ftoken%253D***"),
        ("http://h/#access_token=s3cret&x=1", "http://h/#access_token=***&x=1"),
        ("http://h/#%41CCESS_TOKE%4e=s3cret", "http://h/#%41CCESS_TOKE%4e=***"),
        ("/push/a?access_token[]=s3cret", "/push/a?access_token***"),
        ("/push/a?access_token%00=s3cret", "/push/a?access_token***"),
        ("/push/a?access_tokens=s3cret", "/push/a?access_token***"),
        ("/push/a?my_access_token=s3cret", "/push/a?my_access_token=***"),
        ("/access_token=s3cret", "/access_token=***"),
        ("/access_token/s3cret/x", "/access_token***"),
        ("/push/a?access_token&x=1", "/push/a?access_token&x=1"),
        ("/push/a?access_token", "/push/a?access_token"),
        ("/a?id_token=s3cret", "/a?id_token=***"),
        ("/a?to%6ben%3as3cret", "/a?to%6ben%3a***"),
        ("/tokens/1?token&tokens=1", "/tokens/1?token&tokens=1"),
        ("/a?b=%zz&toke%=n", "/a?b=%zz&toke%=n"),
        ("/a?%2525252525zz=%25", "/a?%2525252525zz=%25"),
        ("curl (access_token: s3cret) x", "curl (access_token: *** x"),
        ("curl Access-Token:\"s3cret\"", "curl Access-Token:\"***"),
    ] {
        let mut text = Vec::new();
        put_value(&mut text, value.as_bytes(), Vec::extend_from_slice);
        assert_eq!(String::from_utf8_lossy(&text), logged);
        let target = if value.starts_with('/') { value } else { "/" };
        let fields = format!("Referer: {value}\r\nUser-Agent: {value}");
        let head = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n");
        for format in [LogFormat::Combined, LogFormat::Json] {
            let line = line(format, head.as_bytes(), ok);
            assert!(!line.contains("s3cret"), "{line}");
        }
    }
}

#[test]
fn a_long_value_is_cut_and_says_so() {
    let head = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(6_000));
    for format in [LogFormat::Combined, LogFormat::Json] {
        let line = line(format, head.as_bytes(), ok);
        assert!(line.len() < 4_500 && line.contains("xxx..."), "{}", line.len());
    }
}
