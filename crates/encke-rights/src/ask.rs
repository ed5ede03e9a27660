//! Queries to the application's authorization endpoint (`[auth] ask`).
//!
//! ```text
//!  GET /may HTTP/1.1                        2xx          allowed  ┐ cached for Cache-Control: max-age,
//!  X-Encke-Action: subscribe          ◄──   401, 403     denied   ┘ at most an hour; without it, not cached
//!  X-Encke-Channel: news/today              any other,
//!  Authorization, Cookie: as received
//!  X-Encke-Certificate: its subject         or none:     503, not cached
//! ```
//! [`AskClient`](crate::AskClient) sends the questions of a worker. Only the response's head counts; a body is dropped.
//!
//! Identical queries, with the same credentials, are merged: a worker sends one, and its verdict applies to all of them
//! (`Inquiry` in `encke-push`). However many tabs reconnect at once, each worker has at most one such query in progress.

use std::iter;

use encke_hub::Name;
use encke_wire::field::Known;
use encke_wire::http1::HeadView;

use super::keys::Digest;
use crate::act::Act;
use crate::ask_client::AskForm;
use crate::denial::Denial;
use crate::settings::AskUrl;

/// Upper limit of `max-age`, in seconds: a revoked right is denied an hour later at the latest.
const KEPT_S_MAX: u64 = 3600;

/// A query to the application: may this client do `act` on `channel`?
#[derive(Clone, Debug)]
pub struct Question {
    /// The [`Rights::serial`](crate::Rights::serial) that was current when the question was built.
    pub(super) serial: u64,
    pub(super) url: AskUrl,
    pub(super) act: Act,
    pub(super) channel: Name,
    /// As received. A token in the query string is sent as `Authorization` (RFC 6750 §2).
    pub(super) authorization: Option<Box<[u8]>>,
    pub(super) cookie: Option<Box<[u8]>>,
    /// The subject of the client certificate: printable text.
    pub(super) certificate: Option<Box<[u8]>>,
}

/// The application's response to a [`Question`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AskVerdict {
    /// The act is allowed.
    Allowed {
        /// Seconds for which the verdict may be cached; 0: valid for this request only.
        kept_s: u64,
    },
    /// The act is denied.
    Denied {
        /// The denial to respond with.
        denial: Denial,
        /// As in [`AskVerdict::Allowed`].
        kept_s: u64,
    },
    /// The application gave no verdict: respond with 503 and log this reason.
    Unanswered(String),
}

impl AskForm for Question {
    type Verdict = AskVerdict;

    const SETTING: &'static str = "auth.ask";

    fn write(&self, request: &mut Vec<u8>) {
        let (target, authority) = (self.url.target(), self.url.authority());
        let (act, channel) = (self.act.name(), &self.channel);
        let head = format!(
            "GET {target} HTTP/1.1\r\nHost: {authority}\r\nX-Encke-Action: {act}\r\nX-Encke-Channel: {channel}\r\n"
        );
        request.extend_from_slice(head.as_bytes());
        // Parsed field values contain no line ends, so they cannot inject fields.
        for (name, value) in [
            ("Authorization", &self.authorization),
            ("Cookie", &self.cookie),
            ("X-Encke-Certificate", &self.certificate),
        ] {
            if let Some(value) = value {
                request.extend_from_slice(format!("{name}: ").as_bytes());
                request.extend_from_slice(value);
                request.extend_from_slice(b"\r\n");
            }
        }
        request.extend_from_slice(b"\r\n");
    }

    fn verdict(&self, response: &HeadView<'_>) -> AskVerdict {
        let kept_s = kept_s(response.head.all(response.bytes, Known::CacheControl));
        let (act, channel) = (self.act.name(), &self.channel);
        match response.head.status() {
            200..300 => AskVerdict::Allowed { kept_s },
            401 => {
                let text = format!("the application (auth.ask) requires a log-in for {act} on {channel}");
                AskVerdict::Denied { denial: Denial::Unauthorized(text), kept_s }
            }
            403 => {
                let text = format!("the application (auth.ask) denies {act} on {channel}");
                AskVerdict::Denied { denial: Denial::Forbidden(text), kept_s }
            }
            status => AskVerdict::Unanswered(format!(
                "auth.ask: {} responded with {status}: expected 2xx to allow, 401 or 403 to deny",
                self.url
            )),
        }
    }

    fn unanswered(&self, reason: String) -> AskVerdict {
        AskVerdict::Unanswered(reason)
    }
}

impl Question {
    /// Returns a digest that identifies the question and reveals none of its secrets.
    pub fn digest(&self) -> Digest {
        let channel = self.channel.as_str().as_bytes();
        let mut text = vec![self.act as u8];
        let credentials = [&self.authorization, &self.cookie, &self.certificate].map(Option::as_deref);
        for part in iter::once(Some(channel)).chain(credentials) {
            // Length prefixes keep the parts apart; an absent part differs from an empty one.
            text.extend_from_slice(&part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
            text.extend_from_slice(part.unwrap_or_default());
        }
        Digest::of(&text)
    }
}

/// Returns for how many seconds a response may be cached (RFC 9111 §5.2.2). Anything unclear counts as 0.
pub(crate) fn kept_s<'a>(fields: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut kept_s = None;
    for directive in fields.flat_map(|field| field.split(|&byte| byte == b',')) {
        let directive = String::from_utf8_lossy(directive).trim().to_ascii_lowercase();
        if directive.starts_with("no-store") || directive.starts_with("no-cache") {
            return 0;
        }
        if let Some(seconds) = directive.strip_prefix("max-age=") {
            let seconds = seconds.trim_matches('"').parse().unwrap_or(0).min(KEPT_S_MAX);
            kept_s = Some(kept_s.map_or(seconds, |kept_s: u64| kept_s.min(seconds)));
        }
    }
    kept_s.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(url: &str) -> Question {
        Question {
            serial: 0,
            url: url.parse().expect("a URL"),
            act: Act::Subscribe,
            channel: Name::parse(b"news/today").expect("a name"),
            authorization: Some(b"Bearer abc".as_slice().into()),
            cookie: Some(b"session=1; other=2".as_slice().into()),
            certificate: Some("Ann é".as_bytes().into()),
        }
    }

    #[test]
    fn an_answer_is_kept_as_long_as_it_says_clearly() {
        for (fields, seconds) in [
            (&["max-age=60"][..], 60),
            (&["private, Max-Age=\"60\""], 60),
            (&["max-age=60", "max-age=5"], 5),
            (&["max-age=999999999"], KEPT_S_MAX),
            (&["max-age=60, no-store"], 0),
            (&["no-cache", "max-age=60"], 0),
            (&["max-age=-1"], 0),
            (&["max-age="], 0),
            (&["s-maxage=60"], 0),
            (&["public"], 0),
            (&[], 0),
        ] {
            assert_eq!(kept_s(fields.iter().map(|field| field.as_bytes())), seconds, "{fields:?}");
        }
    }

    #[test]
    fn questions_that_differ_in_anything_are_different() {
        let one = question("http://h");
        let with = |change: fn(&mut Question)| {
            let mut other = one.clone();
            change(&mut other);
            other.digest()
        };
        assert_eq!(one.digest(), with(|_| {}));
        for other in [
            with(|other| other.act = Act::Publish),
            with(|other| other.channel = Name::parse(b"news").expect("a name")),
            with(|other| other.authorization = None),
            with(|other| other.authorization = Some([].into())),
            with(|other| other.cookie = None),
            with(|other| std::mem::swap(&mut other.authorization, &mut other.cookie)),
        ] {
            assert_ne!(one.digest(), other);
        }
    }
}
