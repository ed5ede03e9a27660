//! Queries to the application's authorization endpoint (`[auth] ask`).
//!
//! ```text
//!  GET /may HTTP/1.1                        2xx          allowed  ┐ cached for Cache-Control: max-age,
//!  X-Encke-Action: subscribe          ◄──   401, 403     denied   ┘ at most an hour; without it, not cached
//!  X-Encke-Channel: news/today              any other,
//!  Authorization, Cookie: as received
//!  X-Encke-Certificate: its subject         or none:     503, not cached
//! ```
//! A query blocks for up to [`PATIENCE`], or longer while the host name is resolved. So it runs on the pool's threads for remote
//! jobs. Only the response's head is read.
//!
//! Identical queries, with the same credentials, are merged: a worker sends one, and its verdict applies to all of them
//! (`Inquiry` in `encke-push`). However many tabs reconnect at once, each worker has at most one such query in progress.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::iter;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use encke_hub::Name;
use encke_io::clock::Clock;
use encke_wire::field::Known;
use encke_wire::http1::{HeadLimits, Progress, ResponseHead};

use super::keys::Digest;
use crate::act::Act;
use crate::denial::Denial;
use crate::settings::AskUrl;

/// Time limit of a query. An application on the same machine responds in milliseconds, and a query in progress occupies one of
/// the pool's threads for remote jobs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Upper limit of `max-age`, in seconds: a revoked right is denied an hour later at the latest.
const KEPT_S_MAX: u64 = 3600;

/// Limit of the response's head, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

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

/// Why the application did not respond. The next query is a retry.
#[derive(Debug)]
enum AskError {
    /// The connection failed, or the time limit was exceeded.
    Io(io::Error),
    /// The host name has no address.
    NoAddress,
    /// The response is not HTTP/1.
    NotHttp,
}

impl Question {
    /// Sends the query and blocks for the response: up to 5 seconds, or longer while the host name is resolved.
    pub fn ask(&self) -> AskVerdict {
        self.ask_within(PATIENCE)
    }

    fn ask_within(&self, patience: Duration) -> AskVerdict {
        self.exchange(patience).unwrap_or_else(|error| {
            AskVerdict::Unanswered(format!("auth.ask: no verdict from {}: {error}", self.url))
        })
    }

    fn exchange(&self, patience: Duration) -> Result<AskVerdict, AskError> {
        let mut clock = Clock::new();
        let deadline_ns = clock.now().plus(patience);
        let mut left = || match deadline_ns.saturating_sub(clock.now().mono_ns) {
            0 => Err(io::Error::from(io::ErrorKind::TimedOut)),
            left_ns => Ok(Duration::from_nanos(left_ns)),
        };
        let mut stream = Err(AskError::NoAddress);
        for address in self.url.host_and_port().to_socket_addrs()? {
            stream = TcpStream::connect_timeout(&address, left()?).map_err(AskError::Io);
            if stream.is_ok() {
                break;
            }
        }
        let mut stream = stream?;
        stream.set_write_timeout(Some(left()?))?;
        stream.write_all(&self.request())?;
        let (mut answer, mut piece) = (Vec::new(), [0; 2048]);
        let mut head = ResponseHead::new();
        loop {
            stream.set_read_timeout(Some(left()?))?;
            let count = match stream.read(&mut piece) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            answer.extend_from_slice(&piece[..count]);
            // Interim responses (1xx) precede the final one.
            loop {
                let limits = HeadLimits { head_bytes: HEAD_BYTES_MAX as u32, ..HeadLimits::default() };
                match head.feed(&answer, &limits) {
                    Progress::Partial => break,
                    Progress::Refused(_) => return Err(AskError::NotHttp),
                    Progress::Done { head_bytes } if head.status() < 200 => {
                        answer.drain(..head_bytes);
                        head.reset();
                    }
                    Progress::Done { .. } => return Ok(self.verdict(&head, &answer)),
                }
            }
        }
    }

    fn request(&self) -> Vec<u8> {
        let (target, authority) = (self.url.target(), self.url.authority());
        let (act, channel) = (self.act.name(), &self.channel);
        let mut request = format!(
            "GET {target} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\nX-Encke-Action: {act}\r\n\
             X-Encke-Channel: {channel}\r\n"
        )
        .into_bytes();
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
        request
    }

    fn verdict(&self, head: &ResponseHead, bytes: &[u8]) -> AskVerdict {
        let kept_s = kept_s(head.all(bytes, Known::CacheControl));
        let (act, channel) = (self.act.name(), &self.channel);
        match head.status() {
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

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NoAddress => f.write_str("the host name has no address"),
            Self::NotHttp => f.write_str("the response is not HTTP/1"),
        }
    }
}

impl From<io::Error> for AskError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Returns for how many seconds a response may be cached (RFC 9111 §5.2.2). Anything unclear counts as 0.
fn kept_s<'a>(fields: impl Iterator<Item = &'a [u8]>) -> u64 {
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
    use std::net::TcpListener;
    use std::thread;

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

    /// Asks an application that sends these pieces; returns its verdict and the request that it received.
    fn asked(pieces: &[&[u8]]) -> (AskVerdict, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/may?x=1", listener.local_addr().expect("bound"));
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let application = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = Vec::new();
            let mut piece = [0; 512];
            while !request.ends_with(b"\r\n\r\n") {
                let count = stream.read(&mut piece).expect("a request");
                request.extend_from_slice(&piece[..count]);
            }
            stream.set_nodelay(true).expect("TCP");
            for piece in pieces {
                // The client may have closed the connection after the head.
                let _gone = stream.write_all(&piece);
            }
            String::from_utf8(request).expect("text")
        });
        let verdict = question(&url).ask();
        (verdict, application.join().expect("no panic"))
    }

    fn verdict(answer: &str) -> AskVerdict {
        asked(&[answer.as_bytes()]).0
    }

    #[test]
    fn the_application_sees_what_is_asked_and_who_asks() {
        let (verdict, request) = asked(&[b"HTTP/1.1 204 No Content\r\n\r\n"]);
        assert_eq!(verdict, AskVerdict::Allowed { kept_s: 0 });
        assert!(request.starts_with("GET /may?x=1 HTTP/1.1\r\nHost: 127.0.0.1:"), "{request}");
        for line in [
            "Connection: close",
            "X-Encke-Action: subscribe",
            "X-Encke-Channel: news/today",
            "Authorization: Bearer abc",
            "Cookie: session=1; other=2",
            "X-Encke-Certificate: Ann é",
        ] {
            assert!(request.contains(&format!("\r\n{line}\r\n")), "{line} is missing in {request}");
        }
    }

    #[test]
    fn yes_no_and_neither() {
        for (status, allowed) in [(200, true), (204, true), (299, true), (401, false), (403, false)] {
            let verdict = verdict(&format!("HTTP/1.1 {status} X\r\nCache-Control: max-age=60\r\n\r\n"));
            match verdict {
                AskVerdict::Allowed { kept_s: 60 } => assert!(allowed, "{status}"),
                AskVerdict::Denied { denial: Denial::Unauthorized(_), kept_s: 60 } => assert_eq!(status, 401),
                AskVerdict::Denied { denial: Denial::Forbidden(_), kept_s: 60 } => assert_eq!(status, 403),
                other => panic!("{status}: {other:?}"),
            }
        }
        for answer in [
            "HTTP/1.1 302 X\r\nLocation: /login\r\n\r\n",
            "HTTP/1.1 404 X\r\n\r\n",
            "HTTP/1.1 500 X\r\nCache-Control: max-age=60\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n",
            "HTTP/1.1 200 X\r\n",
            "",
        ] {
            assert!(matches!(verdict(answer), AskVerdict::Unanswered(_)), "{answer}");
        }
    }

    #[test]
    fn an_answer_in_pieces_and_behind_an_interim_one_is_the_same() {
        let answer =
            b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nCache-Control: max-age=5\r\n\r\nyes";
        for split in 0..answer.len() {
            let (one, other) = answer.split_at(split);
            assert_eq!(asked(&[one, other]).0, AskVerdict::Allowed { kept_s: 5 }, "split at {split}");
        }
    }

    #[test]
    fn an_endless_head_is_no_answer() {
        let line = format!("X: {}\r\n", "x".repeat(1000));
        let answer = format!("HTTP/1.1 200 OK\r\n{}\r\n", line.repeat(20));
        assert!(matches!(verdict(&answer), AskVerdict::Unanswered(_)));
    }

    #[test]
    fn an_application_that_is_silent_drips_or_is_not_there_does_not_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let question = question(&format!("http://{}", listener.local_addr().expect("bound")));
        // Accepted by the kernel; no program responds.
        let AskVerdict::Unanswered(why) = question.ask_within(Duration::from_millis(20)) else {
            panic!("silence")
        };
        assert!(why.contains("no verdict from"), "{why}");
        let dripping = thread::spawn(move || {
            let (_silent, _) = listener.accept().expect("the first one");
            let (mut stream, _) = listener.accept().expect("the second one");
            while stream.write_all(b"H").is_ok() {}
        });
        assert!(matches!(question.ask_within(Duration::from_millis(20)), AskVerdict::Unanswered(_)), "drops");
        dripping.join().expect("no panic");
        assert!(matches!(question.ask(), AskVerdict::Unanswered(_)), "nobody listens");
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
