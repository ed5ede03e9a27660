//! How each server is spoken to: the requests, and the little of its answers that a crowd must understand.
//!
//! | | subscribe | publish | how many are there? |
//! |---|---|---|---|
//! | encke | `GET /push/CH` | `POST /push/CH` | `GET /push/CH?info` |
//! | nchan | `GET /sub/CH` | `POST /pub/CH` | `GET /pub/CH` |
//! | rawpush | `GET /` | `POST /` | it does not tell |

use crate::message::{self, Stamp};

/// Which server's paths are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Dialect {
    /// Encke's push over HTTP.
    Encke,
    /// nginx with nchan, as in bench/peers/nchan.conf.
    Nchan,
    /// The floor, bench/floor/rawpush.c.
    Rawpush,
}

/// How a subscriber receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Transport {
    /// An event stream.
    Sse,
    /// Long poll: an answer a message, on a kept connection.
    Poll,
    /// WebSocket frames of payload alone.
    Ws,
}

/// What is sent, ready-made.
pub(crate) struct Requests {
    pub(crate) subscribe: Vec<u8>,
    /// Asks for the number of subscribers, where that is told.
    pub(crate) census: Option<Vec<u8>>,
    publish: String,
}

impl Requests {
    /// The requests for a channel of a server at `host` (`HOST:PORT`); `token` is who publishes.
    pub(crate) fn new(
        dialect: Dialect,
        transport: Transport,
        host: &str,
        channel: &str,
        token: Option<&str>,
    ) -> Self {
        let (subscribe, publish, census) = match dialect {
            Dialect::Encke => (
                format!("/push/{channel}"),
                format!("/push/{channel}"),
                Some(format!("/push/{channel}?info")),
            ),
            Dialect::Nchan => {
                (format!("/sub/{channel}"), format!("/pub/{channel}"), Some(format!("/pub/{channel}")))
            }
            Dialect::Rawpush => ("/".into(), "/".into(), None),
        };
        let host = format!("Host: {host}\r\n");
        let bearer = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let wish = match transport {
            Transport::Sse => "Accept: text/event-stream\r\n",
            Transport::Poll => "Accept: */*\r\n",
            // The key is the one of RFC 6455 §1.3: nobody here is deceived by a cache.
            Transport::Ws => {
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            }
        };
        Self {
            subscribe: format!("GET {subscribe} HTTP/1.1\r\n{host}{wish}\r\n").into(),
            census: census.map(|path| format!("GET {path} HTTP/1.1\r\n{host}{bearer}\r\n").into()),
            publish: format!(
                "POST {publish} HTTP/1.1\r\n{host}{bearer}Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
                message::BYTES
            ),
        }
    }

    /// The request that publishes a message.
    pub(crate) fn publish(&self, stamp: Stamp) -> Vec<u8> {
        let mut request = self.publish.clone();
        request.push_str(&message::text(stamp));
        request.into()
    }
}

/// The status of an answer that begins here.
pub(crate) fn status(answer: &[u8]) -> Option<u16> {
    let code = answer.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    std::str::from_utf8(code).ok()?.parse().ok()
}

/// The status and the body of an answer, once it is whole; without a Content-Length it has no body.
pub(crate) fn answer(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let (head, rest) = bytes.split_at(end);
    let length = head.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    Some((status(head).unwrap_or(0), rest.get(..length.unwrap_or(0))?))
}

/// The number of subscribers in the answer to a census: the digits after that word, in JSON and in nchan's text.
pub(crate) fn subscribers(body: &[u8]) -> Option<usize> {
    let body = std::str::from_utf8(body).ok()?;
    let (_, after) = body.split_once("subscribers")?;
    let from = after.find(|letter: char| letter.is_ascii_digit())?;
    let digits = after[from..].split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// The answer to a ping that a piece of a WebSocket stream begins with (RFC 6455 §5.5.2), masked
/// with zeros.
pub(crate) fn pong(piece: &[u8]) -> Option<Vec<u8>> {
    let (&[0x89, length @ 0..=125], rest) = piece.split_first_chunk()? else { return None };
    let mut frame = vec![0x8A, 0x80 | length, 0, 0, 0, 0];
    frame.extend_from_slice(rest.get(..usize::from(length))?);
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_the_last_byte_of_its_body() {
        let whole = b"HTTP/1.1 201 Created\r\nServer: x\r\ncontent-length: 2\r\n\r\nok";
        for cut in 0..whole.len() {
            assert_eq!(answer(&whole[..cut]), None, "cut at {cut}");
        }
        assert_eq!(answer(whole), Some((201, &b"ok"[..])));
    }

    #[test]
    fn an_answer_without_a_length_has_no_body() {
        assert_eq!(answer(b"HTTP/1.1 204 No Content\r\n\r\n"), Some((204, &b""[..])));
    }

    #[test]
    fn subscribers_are_read_from_json_and_from_nchans_text() {
        assert_eq!(subscribers(br#"{"first":"a-1","subscribers": 1200,"x":3}"#), Some(1200));
        assert_eq!(
            subscribers(b"queued messages: 5\nactive subscribers: 17\nlast message id: 9\n"),
            Some(17)
        );
        assert_eq!(subscribers(b"nobody"), None);
    }

    #[test]
    fn a_ping_is_answered_with_its_payload() {
        assert_eq!(pong(&[0x89, 2, b'h', b'i']), Some(vec![0x8A, 0x82, 0, 0, 0, 0, b'h', b'i']));
        assert_eq!(pong(&[0x81, 2, b'h', b'i']), None);
        assert_eq!(pong(&[0x89]), None);
    }
}
