//! All other parsers of peer input: conditions, codings, media types, forwarded addresses, dates and the PROXY protocol. No
//! input may panic, and the few invariants of the results are checked.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use encke_wire::coding::{AcceptEncoding, Coding};
use encke_wire::conditional::{ConditionResult, Conditions, EntityTag, Validators, evaluate, if_range_holds};
use encke_wire::forwarded::{ForwardingField, client};
use encke_wire::method::Method;
use encke_wire::proxy::{ProxyHeader, read};
use encke_wire::{accept, date, field};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    proxy_headers_end_where_they_end(input);
    // The lines of the input are the lines of one field. The head parser would reject other values.
    let lines: Vec<&[u8]> = input.split(|&byte| byte == b'\n').map(field::trimmed).collect();
    if !lines.iter().all(|line| field::is_field_value(line)) {
        return;
    }
    let lines = || lines.iter().copied();

    let accepted = AcceptEncoding::of(lines());
    if let Some(coding) = accepted.best(&Coding::ALL) {
        assert!(accepted.accepts(coding));
    }
    let offered = ["text/html", "application/json"];
    assert!(accept::preferred(lines(), &offered).is_none_or(|index| index < offered.len()));
    conditions_hold_together(input, lines());
    for dialect in [ForwardingField::Forwarded, ForwardingField::XForwardedFor] {
        let peer = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));
        assert_eq!(client(peer, dialect, lines(), |_| false).address, peer, "nobody is trusted");
        client(peer, dialect, lines(), |address| address == peer);
        client(peer, dialect, lines(), |_| true);
    }
    if let Some(unix) = date::parse_date(input) {
        assert_eq!(date::parse_date(&date::imf_fixdate(unix)), Some(unix));
    }
});

fn proxy_headers_end_where_they_end(input: &[u8]) {
    let whole = read(input);
    if let ProxyHeader::Done { bytes, .. } = whole {
        assert_eq!(read(&input[..bytes]), whole);
        assert_eq!(read(&input[..bytes - 1]), ProxyHeader::NeedMore);
    }
    let half = read(&input[..input.len() / 2]);
    assert!(half == ProxyHeader::NeedMore || half == whole || matches!(whole, ProxyHeader::Bad(_)));
}

fn conditions_hold_together<'a>(input: &'a [u8], lines: impl Iterator<Item = &'a [u8]> + Clone) {
    let nothing = lines.clone().take(0);
    let given = lines.take(usize::MAX);
    let etag = EntityTag { weak: false, opaque: b"a" };
    let validators = Validators { etag: Some(etag), last_modified: Some(784_111_777) };
    let verdict = |if_match, if_none_match, method| {
        let conditions =
            Conditions { if_match, if_none_match, if_modified_since: None, if_unmodified_since: None };
        evaluate(&conditions, method, &validators)
    };
    // With a strong tag, If-None-Match fails whenever If-Match passes; weak tags only match the former.
    let passes = verdict(given.clone(), nothing.clone(), Method::Put) == ConditionResult::Proceed;
    let stops = verdict(nothing, given, Method::Put) == ConditionResult::PreconditionFailed;
    assert!(stops || !passes);
    if let Some(tag) = EntityTag::parse(input) {
        assert_eq!(if_range_holds(input, &validators, u64::MAX), tag == etag);
        let mut out = Vec::new();
        tag.put(&mut out);
        assert_eq!(out, input);
    }
}
