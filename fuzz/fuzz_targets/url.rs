//! Paths, queries and authorities: a decoded path never leaves the root, is unambiguous, and equals the result of a slow
//! implementation of the rules.
#![no_main]

use encke_wire::target;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (path, query) = target::split_target(input);
    decoded_paths_stay_below_the_root(path);
    if let Some(query) = query {
        let pairs = query.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()).count();
        assert_eq!(target::query_pairs(query).count(), pairs);
    }
    authorities_are_what_they_say(input);
});

fn decoded_paths_stay_below_the_root(raw: &[u8]) {
    let mut path = String::from("left from before");
    let result = target::decode_path(raw, &mut path);
    assert_eq!(result.is_ok().then_some(&path), reference(raw).as_ref(), "{result:?}");
    if result.is_err() {
        assert!(path.is_empty());
        return;
    }
    assert!(path.starts_with('/') && path.len() <= raw.len());
    let names = path[1..].strip_suffix('/').unwrap_or(&path[1..]);
    assert!(names.is_empty() || names.split('/').all(|name| !matches!(name, "" | "." | "..")), "{path:?}");
    assert!(!path.bytes().any(|byte| byte.is_ascii_control() || byte == b'\\'), "{path:?}");

    let mut encoded = String::new();
    target::encode_path(&path, &mut encoded);
    assert!(!encoded.starts_with("//"), "such a Location would be another site");
    let mut again = String::new();
    assert_eq!(target::decode_path(encoded.as_bytes(), &mut again), Ok(()));
    assert_eq!(again, path);
}

/// Splits at slashes, decodes each segment once, and resolves dot segments.
fn reference(raw: &[u8]) -> Option<String> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut is_folder = true;
    for segment in raw.strip_prefix(b"/")?.split(|&byte| byte == b'/') {
        let mut name = Vec::new();
        let mut rest = segment;
        while let Some((&byte, tail)) = rest.split_first() {
            rest = tail;
            if byte != b'%' {
                name.push(byte);
                continue;
            }
            let digits = tail.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
            name.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = &tail[2..];
        }
        if name.iter().any(|byte| byte.is_ascii_control() || b"/\\".contains(byte)) {
            return None;
        }
        is_folder = matches!(&name[..], b"" | b"." | b"..");
        match &name[..] {
            b"" | b"." => {}
            b".." => drop(names.pop()?),
            _ => names.push(name),
        }
    }
    let mut path = names.iter().flat_map(|name| [b"/", &name[..]].concat()).collect::<Vec<u8>>();
    if is_folder {
        path.push(b'/');
    }
    String::from_utf8(path).ok()
}

fn authorities_are_what_they_say(text: &[u8]) {
    let Ok(authority) = target::parse_authority(text) else { return };
    let rest = text.strip_prefix(authority.host).expect("an authority begins with its host");
    assert!(!authority.host.is_empty());
    match authority.port {
        None => assert!(matches!(rest, b"" | b":")),
        Some(port) => {
            let digits = std::str::from_utf8(&rest[1..]).expect("a port is digits");
            assert!(rest[0] == b':' && digits.bytes().all(|byte| byte.is_ascii_digit()));
            assert_eq!(digits.parse(), Ok(port));
        }
    }
    assert!(
        !authority.host.iter().any(|&byte| byte <= b' ' || b"/@?#\\\"<>".contains(&byte) || byte >= 0x7f)
    );
    // The head parser must accept the authority, too.
    let head = [b"GET / HTTP/1.1\r\nHost: ", text, b"\r\n\r\n"].concat();
    let mut parser = encke_wire::http1::Head::new();
    let progress = parser.feed(&head, &encke_wire::limits::HeadLimits::default());
    if text.len() < 1_000 {
        assert!(matches!(progress, encke_wire::http1::Progress::Done { .. }), "{progress:?}");
    }
}
