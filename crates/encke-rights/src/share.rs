//! CORS: which pages of other origins may read a response (Fetch standard, "CORS protocol").
//!
//! ```text
//! Origin of the request      fields added to the response
//! none, or our own           none: no foreign page is involved
//! named in push.origins      that origin, and that cookies may be sent; Vary, because responses differ
//! any, by "*"                *: every page, none with cookies
//! of this machine, open      *
//! any other                  none: the browser hides the response from the page
//! ```
//! A browser sends our cookies with a page's request only if the response names the page's origin; `*` is not enough.

use std::sync::Arc;

use encke_server::{Fields, Reply};

/// The pages of other origins that may read a response.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Share {
    /// None.
    #[default]
    Nobody,
    /// All pages, but without cookies.
    Anybody,
    /// Pages of this origin, with cookies.
    Page(Arc<str>),
}

/// Our own fields that a page may read; the safelisted ones it may read in any case.
const EXPOSED: &[u8] = b"ETag, Encke-Channel, Encke-Event, Encke-Gap, Encke-Id, Encke-More, Retry-After";

impl Share {
    /// Returns the CORS fields of a response.
    pub fn fields(&self) -> Fields {
        let mut fields = self.origin_fields();
        if !fields.is_empty() {
            add(&mut fields, "Access-Control-Expose-Headers", EXPOSED);
        }
        fields
    }

    /// Returns the CORS fields of a preflight response. `methods` and `names` are the allowed methods and field names.
    pub fn preflight_fields(&self, methods: &str, names: &str) -> Fields {
        let mut fields = self.origin_fields();
        if !fields.is_empty() {
            add(&mut fields, "Access-Control-Allow-Methods", methods.as_bytes());
            add(&mut fields, "Access-Control-Allow-Headers", names.as_bytes());
            add(&mut fields, "Access-Control-Max-Age", b"600");
        }
        fields
    }

    /// Adds the CORS fields to a response.
    pub fn onto(&self, mut reply: Reply) -> Reply {
        reply.fields.extend(&self.fields());
        reply
    }

    fn origin_fields(&self) -> Fields {
        let mut fields = Fields::new();
        match self {
            Self::Nobody => {}
            Self::Anybody => add(&mut fields, "Access-Control-Allow-Origin", b"*"),
            Self::Page(origin) => {
                add(&mut fields, "Access-Control-Allow-Origin", origin.as_bytes());
                add(&mut fields, "Access-Control-Allow-Credentials", b"true");
                add(&mut fields, "Vary", b"Origin");
            }
        }
        fields
    }
}

fn add(fields: &mut Fields, name: &str, value: &[u8]) {
    fields
        .push(name, value)
        .expect("words of ours, and an origin that was parsed when the settings were read");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(fields: &Fields) -> &str {
        std::str::from_utf8(fields.lines()).expect("ASCII")
    }

    #[test]
    fn a_page_with_a_name_may_bring_its_cookies_and_a_star_may_not() {
        let page = Share::Page("https://shop.example".into());
        let fields = page.fields();
        assert!(
            text(&fields).starts_with(
                "Access-Control-Allow-Origin: https://shop.example\r\nAccess-Control-Allow-Credentials: true\r\n\
                 Vary: Origin\r\nAccess-Control-Expose-Headers: ETag, "
            ),
            "{fields:?}"
        );
        let fields = Share::Anybody.fields();
        assert!(text(&fields).starts_with("Access-Control-Allow-Origin: *\r\nAccess-Control-Expose"));
        assert!(fields.value("Access-Control-Allow-Credentials").is_none());
        assert!(Share::Nobody.fields().is_empty());
    }

    #[test]
    fn a_page_that_may_not_read_is_told_nothing_of_what_there_is() {
        assert!(Share::Nobody.preflight_fields("GET", "authorization").is_empty());
        for share in [Share::Anybody, Share::Page("https://shop.example".into())] {
            let fields = share.preflight_fields("GET, POST", "authorization");
            assert_eq!(fields.value("Access-Control-Allow-Methods"), Some(b"GET, POST".as_slice()));
            assert_eq!(fields.value("Access-Control-Allow-Headers"), Some(b"authorization".as_slice()));
        }
    }
}
