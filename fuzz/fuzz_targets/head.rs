//! Heads of requests and responses: the result does not depend on the pieces in which the input arrives, and `httparse` accepts
//! every accepted head with the same fields.
//!
//! The input is a peer's data. Its own bytes decide where it is split, so that every finding is reproducible.
#![no_main]

use encke_wire::field::Known;
use encke_wire::http1::{Framing, Head, HeadLimits, Progress, ResponseHead, Version};
use encke_wire::method::Method;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // Small limits, so that short inputs reach them.
    let tight = HeadLimits { head_bytes: 256, uri_bytes: 40, fields: 6 };
    for limits in [HeadLimits::default(), tight] {
        request(input, &limits);
        response(input, &limits);
    }
});

fn request(input: &[u8], limits: &HeadLimits) {
    let mut whole = Head::new();
    let progress = whole.feed(input, limits);
    for ends in cuts(input) {
        let mut head = Head::new();
        let mut split = Progress::Partial;
        for end in ends {
            split = head.feed(&input[..end], limits);
            if split != Progress::Partial {
                break;
            }
        }
        assert_eq!(split, progress, "the pieces in which a request arrives do not matter");
        if let Progress::Done { .. } = progress {
            assert!(head.fields(input).eq(whole.fields(input)));
            assert_eq!(head.framing(), whole.framing());
            assert_eq!(head.host(input), whole.host(input));
            assert_eq!((head.path(input), head.query(input)), (whole.path(input), whole.query(input)));
            assert_eq!(head.keep_alive(), whole.keep_alive());
        }
    }
    let Progress::Done { head_bytes } = progress else { return };

    let mut alone = Head::new();
    assert_eq!(alone.feed(&input[..head_bytes], limits), progress, "what follows a head does not matter");
    alone.reset();
    assert_eq!(alone.feed(&input[..head_bytes - 1], limits), Progress::Partial, "a head ends where it ends");

    framing_follows_from_the_fields(&whole, input);
    agrees_with_httparse(&whole, input, head_bytes);
}

/// Derives the framing again, from the fields and the rules of RFC 9112 §6 without any tolerance.
fn framing_follows_from_the_fields(head: &Head, input: &[u8]) {
    let named = |name: &str| -> Vec<&[u8]> {
        let fields = head.fields(input);
        fields
            .filter(|(field, _)| field.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
            .collect()
    };
    let (lengths, codings) = (named("content-length"), named("transfer-encoding"));
    match head.framing() {
        Framing::None => assert!(lengths.is_empty() && codings.is_empty()),
        Framing::Length(length) => {
            assert!(codings.is_empty() && lengths.len() == 1);
            let digits = std::str::from_utf8(lengths[0]).expect("a length is digits");
            assert!(digits.bytes().all(|byte| byte.is_ascii_digit()));
            assert_eq!(digits.parse(), Ok(length));
        }
        Framing::Chunked => {
            assert!(lengths.is_empty() && codings.len() == 1 && head.version() == Version::Http11);
            assert!(codings[0].eq_ignore_ascii_case(b"chunked"));
        }
    }
    let hosts = named("host");
    assert!(hosts.len() == 1 || (hosts.is_empty() && head.version() == Version::Http10));
    assert_eq!(head.known(input, Known::Host), hosts.first().copied());
}

fn agrees_with_httparse(head: &Head, input: &[u8], head_bytes: usize) {
    // httparse rejects HTTP/1.2, which RFC 9110 §2.5 treats as 1.1.
    let empty_lines = input.iter().take_while(|byte| b"\r\n".contains(byte)).count();
    let minor =
        empty_lines + head.method_text(input).len() + head.target(input).len() + " ".len() + " HTTP/1.".len();
    let input = &with_minor_below_two(input, minor);
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut theirs = httparse::Request::new(&mut fields);
    assert_eq!(theirs.parse(input), Ok(httparse::Status::Complete(head_bytes)));
    assert_eq!(theirs.method.map(str::as_bytes), Some(head.method_text(input)));
    assert_eq!(theirs.path.map(str::as_bytes), Some(head.target(input)));
    assert_eq!(theirs.version, Some(u8::from(head.version() == Version::Http11)));
    assert!(theirs.headers.iter().map(|field| (field.name.as_bytes(), field.value)).eq(head.fields(input)));
}

fn response(input: &[u8], limits: &HeadLimits) {
    let mut whole = ResponseHead::new();
    let progress = whole.feed(input, limits);
    for ends in cuts(input) {
        let mut head = ResponseHead::new();
        let mut split = Progress::Partial;
        for end in ends {
            split = head.feed(&input[..end], limits);
            if split != Progress::Partial {
                break;
            }
        }
        assert_eq!(split, progress, "the pieces in which a response arrives do not matter");
        if let Progress::Done { .. } = progress {
            assert!(head.fields(input).eq(whole.fields(input)));
            assert_eq!(head.framing(Method::Get), whole.framing(Method::Get));
        }
    }
    if let Progress::Done { head_bytes } = progress {
        let input = &with_minor_below_two(input, "HTTP/1.".len());
        let mut fields = [httparse::EMPTY_HEADER; 128];
        let mut theirs = httparse::Response::new(&mut fields);
        assert_eq!(theirs.parse(input), Ok(httparse::Status::Complete(head_bytes)));
        assert_eq!(theirs.code, Some(whole.status()));
        assert!(
            theirs.headers.iter().map(|field| (field.name.as_bytes(), field.value)).eq(whole.fields(input))
        );
    }
}

/// Returns `input` with the version's minor digit at `minor` reduced to `1` if it is greater.
fn with_minor_below_two(input: &[u8], minor: usize) -> Vec<u8> {
    let mut input = input.to_vec();
    assert!(input[minor].is_ascii_digit());
    input[minor] = input[minor].min(b'1');
    input
}

/// Returns ways to split the input, as the ends of the pieces: in two and in three at positions derived from its bytes, and
/// byte by byte for short inputs.
fn cuts(input: &[u8]) -> Vec<Vec<usize>> {
    let length = input.len();
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let place = |shift: u32| (hash >> shift) as usize % (length + 1);
    let (one, two) = (place(0).min(place(20)), place(0).max(place(20)));
    let mut cuts = vec![vec![one, length], vec![one, two, length]];
    if length <= 300 {
        cuts.push((0..=length).collect());
    }
    cuts
}
