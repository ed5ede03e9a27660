//! The client library for pages, and its handler.

use encke_server::{Body, Exchange, Outcome, Reply, Request};
use encke_wire::method::Method;

/// The client library, built from `client/` and committed as it is served.
const CLIENT: &str = include_str!("../../../client/dist/encke.js");
/// The path of the client library.
pub(crate) const CLIENT_PATH: &str = "/encke.js";

/// The library's version for its `ETag`: FNV-1a of its bytes. Caches must revalidate it before each use.
const CLIENT_TAG: u64 = {
    let (bytes, mut hash, mut at) = (CLIENT.as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    hash
};

/// Serves the client library. It hides a file of that name in a site's directory.
pub(crate) fn client(request: &Request<'_>, _: Exchange) -> Outcome {
    let tag = format!("\"{CLIENT_TAG:016x}\"");
    let known = request.known(encke_wire::field::Known::IfNoneMatch) == Some(tag.as_bytes());
    let kept = |reply: Reply| {
        reply
            .with("Cache-Control", "no-cache")
            .with("ETag", &tag)
            .with("Access-Control-Allow-Origin", "*")
            .with("X-Content-Type-Options", "nosniff")
    };
    Outcome::Now(match request.method() {
        _ if request.path() != CLIENT_PATH.as_bytes() => Reply::error(404),
        Method::Get | Method::Head if known => kept(Reply::new(304)),
        Method::Get | Method::Head => kept(Reply::new(200))
            .with("Content-Type", "text/javascript; charset=utf-8")
            .body(Body::Shared(CLIENT.as_bytes().into())),
        _ => Reply::error(405).with("Allow", "GET, HEAD"),
    })
}
