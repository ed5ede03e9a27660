//! The pages of channels and of features on them.

use encke_server::{Body, Reply};

use crate::negotiate::refusal;

/// Returns a page. Only elements with the nonce run, so that messages inject no scripts: `{{nonce}}` in `text` is replaced by
/// it. `directives` are further directives of its Content-Security-Policy: at least which pages may frame it.
pub fn page(text: &str, directives: &str) -> Reply {
    let mut bytes = [0; 16];
    if let Err(error) = encke_io::host::random(&mut bytes) {
        return refusal(500, format!("cannot get random bytes from the system: {error}"));
    }
    let nonce: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let policy = format!(
        "default-src 'none'; connect-src 'self'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         img-src data:; form-action 'none'; base-uri 'none'; {directives}"
    );
    Reply::new(200)
        .with("Content-Type", "text/html; charset=utf-8")
        .with("Content-Security-Policy", policy)
        .with("X-Content-Type-Options", "nosniff")
        .with("Referrer-Policy", "no-referrer")
        .with("Vary", "Accept")
        .with("Cache-Control", "no-store")
        .body(Body::Bytes(text.replace("{{nonce}}", &nonce).into_bytes()))
}
