//! The pages: files of the console's bundle, inside the program.
//!
//! `console/` builds them; `pages/pages.in` lists them. They are compressed with gzip, which every browser accepts over http, too.

use std::sync::{Arc, OnceLock};

use encke_server::{Body, Reply, Request};
use encke_wire::field::Known;
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
    #[cfg_attr(not(test), expect(dead_code, reason = "tests compare it with the content"))]
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
    let is_current = request.known(Known::IfNoneMatch).is_some_and(|given| {
        given.split(|byte| *byte == b',').any(|tag| tag.trim_ascii() == page.etag.as_bytes())
    });
    let caching = if page.immutable { "max-age=31536000, immutable" } else { "no-cache" };
    let reply = Reply::new(if is_current { 304 } else { 200 })
        .with("ETag", page.etag)
        .with("Cache-Control", caching)
        .with("Content-Security-Policy", POLICY)
        .with("X-Content-Type-Options", "nosniff")
        .with("Referrer-Policy", "no-referrer")
        .with("Cross-Origin-Opener-Policy", "same-origin")
        .with("Cross-Origin-Resource-Policy", "same-origin");
    if is_current {
        return Some(reply);
    }
    let reply = reply.with("Content-Type", page.content_type).with("Content-Encoding", "gzip");
    Some(reply.body(Body::Shared(Arc::clone(page.shared()))))
}

/// Whether a method is for pages.
pub(crate) fn is_read(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head)
}

/// The content of each file of the bundle.
static BODIES: [OnceLock<Arc<[u8]>>; PAGES.len()] = [const { OnceLock::new() }; PAGES.len()];

impl PageFile {
    /// Returns the compressed content, of which all responses share one copy.
    fn shared(&self) -> &'static Arc<[u8]> {
        let place = PAGES.iter().position(|page| page.path == self.path).unwrap_or_default();
        BODIES[place].get_or_init(|| self.gzip.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn every_file_of_the_bundle_has_the_size_of_its_content() {
        assert!(PAGES.iter().any(|page| page.path == "/"));
        for page in PAGES {
            let mut content = Vec::new();
            flate2::read::GzDecoder::new(page.gzip).read_to_end(&mut content).expect("it is complete");
            assert_eq!(content.len(), page.size, "{}", page.path);
        }
    }

    #[test]
    fn the_pages_fit_into_120_kilobytes() {
        let total: usize = PAGES.iter().map(|page| page.gzip.len()).sum();
        assert!(total <= 120 * 1024, "{total} bytes");
    }
}
