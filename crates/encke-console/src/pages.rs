//! The pages: files of the console's bundle, inside the program.
//!
//! `console/` builds them; `pages/pages.in` lists them. The program has them compressed with gzip, which every browser accepts over
//! http, too. For other clients they are decompressed once.

use std::sync::{Arc, OnceLock};

use encke_server::{Body, Reply, Request};
use encke_wire::coding::{AcceptEncoding, Coding};
use encke_wire::field::Known;
use encke_wire::gunzip::gunzip;
use encke_wire::method::Method;

/// The files of the bundle.
const PAGES: &[PageFile] = &include!("../pages/pages.in");

/// A file of the bundle.
struct PageFile {
    /// The path of its URL.
    path: &'static str,
    content_type: &'static str,
    /// The entity tag, in quotation marks: a digest of the content.
    etag: &'static str,
    /// Whether the name changes with the content.
    immutable: bool,
    /// Size of the content in bytes.
    size: usize,
    /// The content, compressed with gzip.
    gzip: &'static [u8],
}

/// The pages load nothing from elsewhere, and run no code but their own (CSP level 3).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Returns the response with a page; `None` if no page has this path.
pub(crate) fn reply(request: &Request<'_>) -> Option<Reply> {
    let path = std::str::from_utf8(request.path()).ok()?;
    let page = PAGES.iter().find(|page| page.path == path)?;
    let accepted = AcceptEncoding::of(request.all(Known::AcceptEncoding));
    let is_gzip = accepted.best(&[Coding::Gzip, Coding::Identity]) == Some(Coding::Gzip);
    let content = if is_gzip { page.shared() } else { page.plain() };
    let etag = if is_gzip { page.etag.to_owned() } else { page.plain_etag() };
    let is_current = request.known(Known::IfNoneMatch).is_some_and(|given| {
        let tags = given.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        tags.map(|tag| tag.strip_prefix(b"W/").unwrap_or(tag))
            .any(|tag| tag == etag.as_bytes() || tag == b"*")
    });
    let caching = if page.immutable { "max-age=31536000, immutable" } else { "no-cache" };
    let reply = Reply::new(if is_current { 304 } else { 200 })
        .with("ETag", etag)
        .with("Vary", "Accept-Encoding")
        .with("Cache-Control", caching)
        .with("Content-Security-Policy", POLICY)
        .with("X-Content-Type-Options", "nosniff")
        .with("Referrer-Policy", "no-referrer")
        .with("Cross-Origin-Opener-Policy", "same-origin")
        .with("Cross-Origin-Resource-Policy", "same-origin");
    if is_current {
        return Some(reply);
    }
    let reply = reply.with("Content-Type", page.content_type).body(Body::Shared(Arc::clone(content)));
    Some(if is_gzip { reply.with("Content-Encoding", "gzip") } else { reply })
}

/// Whether a method is for pages.
pub(crate) fn is_read(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head)
}

/// The content of each file of the bundle, compressed and plain.
static BODIES: [OnceLock<Arc<[u8]>>; PAGES.len()] = [const { OnceLock::new() }; PAGES.len()];
static PLAIN_BODIES: [OnceLock<Arc<[u8]>>; PAGES.len()] = [const { OnceLock::new() }; PAGES.len()];

impl PageFile {
    /// Returns the compressed content, of which all responses share one copy.
    fn shared(&self) -> &'static Arc<[u8]> {
        BODIES[self.place()].get_or_init(|| self.gzip.into())
    }

    /// Returns the plain content, of which all responses share one copy.
    fn plain(&self) -> &'static Arc<[u8]> {
        let content = || {
            gunzip(self.gzip, self.size as u64).expect("the build has compressed it, and a test checks it")
        };
        PLAIN_BODIES[self.place()].get_or_init(|| content().into())
    }

    /// The entity tag of the plain content: each coding is a representation with its own tag (RFC 9110 §8.8.3.3).
    fn plain_etag(&self) -> String {
        format!("{}-plain\"", self.etag.trim_end_matches('"'))
    }

    fn place(&self) -> usize {
        PAGES.iter().position(|page| page.path == self.path).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use encke_server::{Fields, Kept};

    use super::*;

    #[test]
    fn every_file_of_the_bundle_has_the_size_of_its_content() {
        assert!(PAGES.iter().any(|page| page.path == "/"));
        for page in PAGES {
            let mut content = Vec::new();
            flate2::read::GzDecoder::new(page.gzip).read_to_end(&mut content).expect("it is complete");
            assert_eq!(content.len(), page.size, "{}", page.path);
            assert_eq!(page.plain().as_ref(), content, "{}", page.path);
        }
    }

    /// The response to a request for the first page with these fields: its coding, entity tag, status and size of the body.
    fn answered(fields: &[(&str, &str)]) -> (Option<String>, String, u16, usize) {
        let mut sent = Fields::new();
        for (name, value) in fields {
            sent.push(name, value.as_bytes()).expect("a valid field");
        }
        let kept = Kept::sample("GET", "/", "127.0.0.1:8081", &sent).expect("a valid request");
        let reply = reply(&kept.view()).expect("a page");
        let field = |name: &str| {
            let mut all = reply.fields.iter();
            all.find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
                .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        assert_eq!(field("Vary").as_deref(), Some("Accept-Encoding"));
        let size = match &reply.body {
            Body::Shared(bytes) => bytes.len(),
            _ => 0,
        };
        (field("Content-Encoding"), field("ETag").expect("a tag"), reply.status, size)
    }

    #[test]
    fn a_client_gets_a_page_in_a_coding_that_it_accepts() {
        let page = PAGES.iter().find(|page| page.path == "/").expect("the first page");
        for accepted in ["gzip", "gzip, deflate, br, zstd", "*", "x-gzip", "identity;q=0.5, gzip"] {
            let (coding, etag, status, size) = answered(&[("Accept-Encoding", accepted)]);
            assert_eq!((coding.as_deref(), status, size), (Some("gzip"), 200, page.gzip.len()), "{accepted}");
            assert_eq!(etag, page.etag);
        }
        let plain: [&[(&str, &str)]; 5] = [
            &[],
            &[("Accept-Encoding", "")],
            &[("Accept-Encoding", "br")],
            &[("Accept-Encoding", "gzip;q=0")],
            &[("Accept-Encoding", "gzip;q=0.5, identity")],
        ];
        for fields in plain {
            let (coding, etag, status, size) = answered(fields);
            assert_eq!((coding, status, size), (None, 200, page.size), "{fields:?}");
            assert_ne!(etag, page.etag, "both representations have one tag");
            let again = [fields, &[("If-None-Match", &etag)]].concat();
            assert_eq!(answered(&again).2, 304);
            let weak = format!("\"other\", W/{etag}");
            assert_eq!(answered(&[fields, &[("If-None-Match", &weak)]].concat()).2, 304);
            assert_eq!(answered(&[fields, &[("If-None-Match", page.etag)]].concat()).2, 200);
        }
    }

    #[test]
    fn the_pages_fit_into_120_kilobytes() {
        let total: usize = PAGES.iter().map(|page| page.gzip.len()).sum();
        assert!(total <= 120 * 1024, "{total} bytes");
    }
}
