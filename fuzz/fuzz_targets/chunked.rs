//! Chunked bodies: the result does not depend on the pieces in which the input arrives, and equals that of a slow decoder of
//! the plain grammar.
#![no_main]

use encke_wire::http1::{BodyState, ChunkedDecoder, Refusal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    for decoder in [ChunkedDecoder::new(), ChunkedDecoder::with_limits(12, 24)] {
        let whole = decode(decoder, [input].into_iter());
        let cut = input.iter().fold(7_usize, |hash, &byte| hash.wrapping_mul(31) ^ usize::from(byte));
        let (one, two) = input.split_at(cut % (input.len() + 1));
        assert_eq!(decode(decoder, [one, two].into_iter()), whole, "the pieces do not matter");
        assert_eq!(decode(decoder, input.chunks(1)), whole, "nor do single bytes");
        if let Ok((body, Some(consumed))) = whole {
            assert_eq!(reference(&input[..consumed]), Some(body), "the plain grammar says the same");
            let (_, early) =
                decode(decoder, [&input[..consumed - 1]].into_iter()).expect("a prefix is no fault");
            assert_eq!(early, None, "a body ends where it ends");
        }
    }
});

/// Returns the body, and the number of consumed bytes if it ended.
fn decode<'a>(
    mut decoder: ChunkedDecoder,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<(Vec<u8>, Option<usize>), Refusal> {
    let (mut body, mut consumed) = (Vec::new(), 0);
    for mut rest in pieces {
        while !rest.is_empty() {
            let chunk = decoder.feed(rest)?;
            assert!(chunk.consumed >= chunk.data.len() && chunk.consumed <= rest.len());
            assert!(chunk.consumed > 0, "every call takes something");
            body.extend_from_slice(chunk.data);
            consumed += chunk.consumed;
            rest = &rest[chunk.consumed..];
            if chunk.state == BodyState::Done {
                return Ok((body, Some(consumed)));
            }
        }
    }
    Ok((body, None))
}

/// Decodes a complete body line by line (RFC 9112 §7.1).
fn reference(mut input: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = take_line(&mut input)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let size = u64::from_str_radix(std::str::from_utf8(&line[..digits]).ok()?, 16).ok()?;
        if !matches!(line.get(digits), None | Some(b';' | b' ' | b'\t')) {
            return None;
        }
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).ok()?;
        body.extend_from_slice(input.get(..size)?);
        input = input.get(size..)?.strip_prefix(b"\r\n")?;
    }
    loop {
        let line = take_line(&mut input)?;
        if line.is_empty() {
            return input.is_empty().then_some(body);
        }
        let colon = line.iter().position(|&byte| byte == b':')?;
        if colon == 0 || line[..colon].iter().any(|byte| byte.is_ascii_whitespace()) {
            return None;
        }
    }
}

/// Returns the bytes before the next CRLF if they contain neither CR nor LF.
fn take_line<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = input.windows(2).position(|pair| pair == b"\r\n")?;
    let line = &input[..end];
    *input = &input[end + 2..];
    (!line.contains(&b'\r') && !line.contains(&b'\n')).then_some(line)
}
