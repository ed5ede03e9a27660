//! The client's side of an HTTP/2 connection (RFC 9113) without a runtime: bytes in, bytes and responses out.
//!
//! ```text
//!   Multiplex::new ─► output: the preface and our SETTINGS
//!        feed(bytes) ─► is_greeted: the server's SETTINGS arrived; room: how many more streams it accepts
//!        send(key, request) ─► a stream ─► output
//!        feed(bytes) ─► tidings ─┬─► Head, Piece      the stream stays open
//!                                ├─► Whole, Failed    the stream ended: its key is returned
//!                                └─► Returned         the server left (GOAWAY) without processing it (§6.8)
//! ```
//! The `h2` crate implements the frames and their rules. It is polled with wakers that queue the stream to poll, so that an
//! idle stream costs nothing.

use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Method, Request, Uri};

use super::pipe::Pipe;
use super::waker::WokenStreams;

/// The receive window of a stream and of the connection. Bodies are read as they arrive, so this bounds no memory here. As
/// large as h2load's, so that a small window never makes a server look slow.
const WINDOW_BYTES: u32 = (1 << 30) - 1;
/// Limit of a response's header list, in bytes: the same as for HTTP/1.
const FIELDS_BYTES_MAX: u32 = 64 * 1024;

/// A client connection with its streams. `K` is the caller's key of a stream.
pub struct Multiplex<K> {
    pipe: Pipe,
    connection: Connection<Pipe, Bytes>,
    sender: SendRequest<Bytes>,
    streams: Vec<ClientStream<K>>,
    /// Unused indices of `streams`.
    free: Vec<u32>,
    woken: Arc<WokenStreams>,
    /// Indices of streams to poll.
    ripe: Vec<u32>,
    /// The server accepts no more streams.
    leaving: bool,
    /// Set once the connection has ended.
    over: Option<StreamFailure>,
}

struct ClientStream<K> {
    key: Option<K>,
    stage: StreamStage,
    bell: Waker,
}

enum StreamStage {
    Free,
    Asked(ResponseFuture),
    Answering(u16, RecvStream),
}

/// An event of a stream. A `u32` is the stream's index, for [`Multiplex::key`].
pub enum StreamEvent<K> {
    /// The head of the response arrived.
    Head(u32),
    /// A piece of the response body arrived.
    Piece(u32, Bytes),
    /// The response is complete, with this status.
    Whole(K, u16),
    /// The stream ended without a complete response.
    Failed(K, StreamFailure),
    /// The server left without processing the request, which may be sent again (RFC 9113 §6.8).
    Returned(K),
}

/// The reason why a stream or a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamFailure {
    /// The server reset the stream. Such a request may be sent again if the code is REFUSED_STREAM (RFC 9113 §8.7). That is not
    /// done here: a caller that measures a server needs to see what it refuses.
    Reset(Code),
    /// The server ended the connection with a GOAWAY.
    Leave(Code),
    /// The server violated the protocol.
    Breach(Code),
}

/// An error code (RFC 9113 §7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code(pub u32);

/// A request, prepared for HTTP/2.
#[derive(Clone, Debug)]
pub struct H2Request {
    request: Request<()>,
    body: Bytes,
}

impl<K> Default for Multiplex<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Multiplex<K> {
    /// Creates a connection whose first output is the preface and SETTINGS.
    ///
    /// ```
    /// use encke_session::http2::Multiplex;
    ///
    /// let mut client = Multiplex::<()>::new();
    /// let mut out = Vec::new();
    /// client.output(&mut out);
    /// assert!(out.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    /// assert_eq!(client.room(), 0, "the server has not sent its SETTINGS");
    /// ```
    pub fn new() -> Self {
        let pipe = Pipe::new();
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_header_list_size(FIELDS_BYTES_MAX)
            // No streams until the server's SETTINGS state its limit: the server would refuse those above it.
            .initial_max_send_streams(0);
        let handshake = std::pin::pin!(builder.handshake(pipe.clone()));
        let Poll::Ready(Ok((sender, connection))) = handshake.poll(&mut Context::from_waker(Waker::noop()))
        else {
            unreachable!("its beginning is written into memory, for which nothing is waited")
        };
        Self {
            pipe,
            connection,
            sender,
            streams: Vec::new(),
            free: Vec::new(),
            woken: Arc::default(),
            ripe: Vec::new(),
            leaving: false,
            over: None,
        }
    }

    /// Takes received bytes. [`Multiplex::tidings`] then returns the resulting events.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.pipe.feed(bytes);
        self.go_on();
    }

    /// Moves pending output to the end of `out`.
    pub fn output(&mut self, out: &mut Vec<u8>) {
        self.go_on();
        self.pipe.move_output(out);
    }

    /// Whether the server's SETTINGS arrived and allow at least one stream.
    pub fn is_greeted(&self) -> bool {
        self.sender.current_max_send_streams() > 0
    }

    /// Why the connection ended; `None` while it is open.
    pub fn over(&self) -> Option<StreamFailure> {
        self.over
    }

    /// Whether the server accepts no more streams.
    pub fn is_leaving(&mut self) -> bool {
        // The `h2` crate reports a GOAWAY only to a caller that wants to open a stream.
        if !self.leaving {
            let mut context = Context::from_waker(Waker::noop());
            self.leaving = matches!(self.sender.poll_ready(&mut context), Poll::Ready(Err(_)));
        }
        self.leaving || self.over.is_some()
    }

    /// The number of open streams.
    pub fn len(&self) -> usize {
        self.streams.len() - self.free.len()
    }

    /// Whether no stream is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many more streams the server accepts at present.
    pub fn room(&mut self) -> usize {
        if self.is_leaving() {
            return 0;
        }
        self.sender.current_max_send_streams().saturating_sub(self.len())
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// The key, if the server accepts no more streams at present.
    pub fn send(&mut self, key: K, letter: H2Request) -> Result<(), K> {
        let mut context = Context::from_waker(Waker::noop());
        if !matches!(self.sender.poll_ready(&mut context), Poll::Ready(Ok(()))) {
            return Err(key);
        }
        let H2Request { request, body } = letter;
        let Ok((response, mut stream)) = self.sender.send_request(request, body.is_empty()) else {
            // The stream identifiers are used up.
            self.leaving = true;
            return Err(key);
        };
        if !body.is_empty() {
            // Fails if the stream has ended, which the response then reports.
            let _over = stream.send_data(body, true);
        }
        let place = self.free.pop().unwrap_or_else(|| {
            // Cannot truncate: SETTINGS limit the number of streams to 32 bits.
            let place = self.streams.len() as u32;
            let bell = self.woken.waker(place);
            self.streams.push(ClientStream { key: None, stage: StreamStage::Free, bell });
            place
        });
        let stream = &mut self.streams[place as usize];
        (stream.key, stream.stage) = (Some(key), StreamStage::Asked(response));
        // The first poll registers the stream's waker.
        self.ripe.push(place);
        Ok(())
    }

    /// The key of the stream at an index that [`Multiplex::tidings`] has just returned.
    pub fn key(&mut self, place: u32) -> Option<&mut K> {
        self.streams.get_mut(place as usize)?.key.as_mut()
    }

    /// The keys of all open streams.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.streams.iter().filter_map(|stream| stream.key.as_ref())
    }

    /// Resets the first open stream whose key satisfies `is_meant`, and returns its key.
    pub fn cancel(&mut self, is_meant: impl Fn(&K) -> bool) -> Option<K> {
        let meant = |stream: &ClientStream<K>| stream.key.as_ref().is_some_and(&is_meant);
        // The `h2` crate resets a stream that is dropped.
        self.streams.iter().position(meant).and_then(|place| self.release(place as u32))
    }

    /// Returns the next event of a stream; `None` until more bytes arrive or a stream is opened.
    pub fn tidings(&mut self) -> Option<StreamEvent<K>> {
        loop {
            let Some(place) = self.ripe.pop() else {
                self.woken.take(&mut self.ripe);
                if self.ripe.is_empty() {
                    return None;
                }
                continue;
            };
            if let Some(told) = self.look(place) {
                return Some(told);
            }
        }
    }

    fn look(&mut self, place: u32) -> Option<StreamEvent<K>> {
        let stream = self.streams.get_mut(place as usize)?;
        let mut context = Context::from_waker(&stream.bell);
        let end = match &mut stream.stage {
            StreamStage::Free => return None,
            StreamStage::Asked(response) => match Pin::new(response).poll(&mut context) {
                Poll::Pending => return None,
                Poll::Ready(Ok(answer)) => {
                    stream.stage = StreamStage::Answering(answer.status().as_u16(), answer.into_body());
                    self.ripe.push(place);
                    return Some(StreamEvent::Head(place));
                }
                Poll::Ready(Err(error)) if error.is_go_away() && error.is_remote() => {
                    let unseen = error.reason() == Some(Reason::NO_ERROR);
                    if unseen {
                        return self.release(place).map(StreamEvent::Returned);
                    }
                    Err(error)
                }
                Poll::Ready(Err(error)) => Err(error),
            },
            StreamStage::Answering(status, body) => match body.poll_data(&mut context) {
                Poll::Pending => return None,
                Poll::Ready(Some(Ok(piece))) => {
                    // Fails if the stream has ended, which the next poll reports.
                    let _over = body.flow_control().release_capacity(piece.len());
                    self.ripe.push(place);
                    return Some(StreamEvent::Piece(place, piece));
                }
                Poll::Ready(Some(Err(error))) => Err(error),
                Poll::Ready(None) => match body.poll_trailers(&mut context) {
                    Poll::Pending => return None,
                    Poll::Ready(ended) => ended.map(|_trailers| *status),
                },
            },
        };
        let key = self.release(place)?;
        Some(match end {
            Ok(status) => StreamEvent::Whole(key, status),
            Err(error) => StreamEvent::Failed(key, StreamFailure::of(&error)),
        })
    }

    /// Frees a stream's index and returns its key.
    fn release(&mut self, place: u32) -> Option<K> {
        let stream = self.streams.get_mut(place as usize)?;
        let key = stream.key.take()?;
        stream.stage = StreamStage::Free;
        self.free.push(place);
        Some(key)
    }

    /// Drives the connection as far as input, streams and room for output allow.
    fn go_on(&mut self) {
        if self.over.is_some() {
            return;
        }
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(ended) = Pin::new(&mut self.connection).poll(&mut context) {
            self.over = Some(match ended {
                Ok(()) => StreamFailure::Leave(Code(Reason::NO_ERROR.into())),
                Err(error) => StreamFailure::of(&error),
            });
        }
    }
}

impl StreamFailure {
    fn of(error: &h2::Error) -> Self {
        let code = Code(error.reason().unwrap_or(Reason::PROTOCOL_ERROR).into());
        match error {
            error if error.is_remote() && error.is_go_away() => Self::Leave(code),
            error if error.is_remote() => Self::Reset(code),
            _ => Self::Breach(code),
        }
    }
}

impl H2Request {
    /// Converts an HTTP/1 request, for a server reached by TLS (`secure`) or in the clear. Returns `None` if it has no valid
    /// `Host` or cannot be expressed in HTTP/2.
    pub fn of(bytes: &[u8], secure: bool) -> Option<Self> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let body = Bytes::copy_from_slice(&bytes[end + 4..]);
        let mut lines =
            bytes[..end].split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let mut words = lines.next()?.split(|byte| *byte == b' ');
        let (method, target) = (words.next()?, words.next()?);
        let mut request = Request::new(());
        *request.method_mut() = Method::from_bytes(method).ok()?;
        let mut authority = None;
        for line in lines {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if name.eq_ignore_ascii_case(b"Host") {
                authority = Some(Authority::try_from(value).ok()?);
            } else if !OF_CONNECTIONS.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes())) {
                let name = HeaderName::from_bytes(name).ok()?;
                request.headers_mut().append(name, HeaderValue::from_bytes(value).ok()?);
            }
        }
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(if secure { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = Some(authority?);
        parts.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
        *request.uri_mut() = Uri::from_parts(parts).ok()?;
        Some(Self { request, body })
    }

    #[cfg(test)]
    fn body(&self) -> &[u8] {
        &self.body
    }
}

/// Connection-specific header fields, which HTTP/2 forbids (RFC 9113 §8.2.2).
const OF_CONNECTIONS: [&str; 5] =
    ["Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade"];

impl fmt::Display for StreamFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset(code) => write!(f, "the server reset the stream: {code}"),
            Self::Leave(code) => write!(f, "the server ended the connection by GOAWAY: {code}"),
            Self::Breach(code) => write!(f, "no valid HTTP/2: {code}"),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CODES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "error {:#x}", self.0),
        }
    }
}

/// Names of error codes, from 0 (RFC 9113 §7).
const CODES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    const SETTINGS: u8 = 4;
    const HEADERS: u8 = 1;
    const DATA: u8 = 0;
    const RST_STREAM: u8 = 3;
    const GOAWAY: u8 = 7;
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;
    /// `:status: 200` and `:status: 404` of HPACK's static table (RFC 7541, appendix A).
    const STATUS_200: &[u8] = &[0x88];
    const STATUS_404: &[u8] = &[0x8D];

    /// A SETTINGS frame that allows `streams` concurrent streams.
    fn greeting(streams: u32) -> Vec<u8> {
        frame(SETTINGS, 0, 0, &[&[0, 3][..], &streams.to_be_bytes()].concat())
    }

    /// The events of each stream as text: `head, abc, 200`.
    type Tales = BTreeMap<u32, String>;

    fn listen(wire: &mut Multiplex<u32>, tales: &mut Tales) {
        while let Some(told) = wire.tidings() {
            let (key, what) = match told {
                StreamEvent::Head(place) => (*wire.key(place).expect("a stream"), "head, ".to_owned()),
                StreamEvent::Piece(place, piece) => {
                    (*wire.key(place).expect("a stream"), String::from_utf8_lossy(&piece).into_owned())
                }
                StreamEvent::Whole(key, status) => (key, format!(", {status}")),
                StreamEvent::Failed(key, cause) => (key, cause.to_string()),
                StreamEvent::Returned(key) => (key, "returned".to_owned()),
            };
            tales.entry(key).or_default().push_str(&what);
        }
    }

    fn letter() -> H2Request {
        H2Request::of(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", false).expect("a letter")
    }

    /// Sends three numbered requests to a server that allows `streams`, and collects the events of `pieces`.
    fn asked(streams: u32, pieces: &[&[u8]]) -> (Tales, Multiplex<u32>) {
        let (mut wire, mut tales) = (Multiplex::new(), Tales::new());
        assert!(!wire.is_greeted() && wire.room() == 0);
        wire.feed(&greeting(streams));
        assert!(wire.is_greeted() && wire.room() == streams as usize);
        for key in 1..=3 {
            assert!(wire.send(key, letter()).is_ok());
        }
        listen(&mut wire, &mut tales);
        wire.output(&mut Vec::new());
        for piece in pieces {
            wire.feed(piece);
            listen(&mut wire, &mut tales);
        }
        (tales, wire)
    }

    fn tales<const N: usize>(tales: [(u32, &str); N]) -> Tales {
        tales.into_iter().map(|(key, tale)| (key, tale.to_owned())).collect()
    }

    #[test]
    fn streams_end_in_any_order_and_each_in_its_own_way() {
        let answers = [
            frame(HEADERS, END_HEADERS, 3, STATUS_200),
            frame(HEADERS, END_HEADERS | END_STREAM, 5, STATUS_404),
            frame(DATA, 0, 3, b"ab"),
            frame(RST_STREAM, 0, 1, &7u32.to_be_bytes()),
            frame(DATA, END_STREAM, 3, b"c"),
        ]
        .concat();
        let reset = "the server reset the stream: REFUSED_STREAM";
        let expected = tales([(1, reset), (2, "head, abc, 200"), (3, "head, , 404")]);
        assert_eq!(asked(9, &[&answers]).0, expected);
        let single: Vec<&[u8]> = answers.chunks(1).collect();
        assert_eq!(asked(9, &single).0, expected, "byte by byte");
        for at in 0..=answers.len() {
            let (first, second) = answers.split_at(at);
            assert_eq!(asked(9, &[first, second]).0, expected, "split at {at}");
        }
    }

    #[test]
    fn what_a_leaving_server_has_not_looked_at_comes_back() {
        let goaway = frame(GOAWAY, 0, 0, &[3u32.to_be_bytes(), 0u32.to_be_bytes()].concat());
        let last = frame(HEADERS, END_HEADERS | END_STREAM, 1, STATUS_200);
        let (told, mut wire) = asked(9, &[&goaway, &last]);
        assert_eq!(told, tales([(1, "head, , 200"), (3, "returned")]));
        assert!(wire.is_leaving() && wire.room() == 0 && wire.len() == 1);
        assert_eq!(wire.send(4, letter()), Err(4));

        let calm = frame(GOAWAY, 0, 0, &[1u32.to_be_bytes(), 11u32.to_be_bytes()].concat());
        let refused = "the server ended the connection by GOAWAY: ENHANCE_YOUR_CALM";
        assert_eq!(asked(9, &[&calm]).0, tales([(2, refused), (3, refused)]));
    }

    #[test]
    fn what_is_no_http2_ends_the_connection() {
        let mut wire = Multiplex::<u32>::new();
        wire.feed(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        assert!(!wire.is_greeted() && wire.over().is_some());

        let (told, wire) = asked(9, &[&frame(DATA, 0, 2, b"unasked")]);
        assert_eq!(wire.over(), Some(StreamFailure::Breach(Code(1))));
        assert_eq!(told.len(), 3, "{told:?}");
    }

    #[test]
    fn who_is_let_go_of_is_reset_and_leaves_room() {
        let (_, mut wire) = asked(3, &[]);
        assert_eq!((wire.room(), wire.len()), (0, 3));
        assert_eq!(wire.cancel(|key| *key == 2), Some(2));
        let mut out = Vec::new();
        wire.output(&mut out);
        assert_eq!(out, frame(RST_STREAM, 0, 3, &8u32.to_be_bytes()), "CANCEL");
        assert_eq!((wire.room(), wire.len(), wire.cancel(|key| *key == 2)), (1, 2, None));
    }

    #[test]
    fn a_letter_is_what_the_bytes_of_http1_say() {
        let bytes = b"POST /a?b=c HTTP/1.1\r\nHost: h:81\r\nX-A: b \r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi";
        let letter = H2Request::of(bytes, true).expect("a letter");
        assert_eq!(letter.request.uri(), "https://h:81/a?b=c");
        assert_eq!((letter.request.method().as_str(), letter.body()), ("POST", &b"hi"[..]));
        let fields = letter.request.headers();
        assert_eq!(fields.len(), 2);
        assert!(fields["x-a"] == "b" && fields["content-length"] == "2");
        for bytes in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            "GET /< HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\n",
            "",
        ] {
            assert!(H2Request::of(bytes.as_bytes(), false).is_none(), "{bytes:?}");
        }
    }
}
