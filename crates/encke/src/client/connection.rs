//! One client connection to a server: HTTP/1.1, one request at a time.
//!
//! ```text
//!            ┌────────────── next request, if `reusable` ─────────────────────┐
//!            ▼                                                                │
//!  connect ─► idle ── begin ──► head (1xx are skipped) ── piece, piece … ──► Over
//!                └─────────────── any error is a Trouble, and the connection is unusable
//! ```
//! Every wait has a deadline that the caller passes.

use std::error::Error;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::ops::Range;
use std::time::Duration;

use encke_io::socket::LocalStream;
use encke_session::tls::{Distrust, TlsError};
use encke_wire::http1::{
    self, BodyState, ChunkedDecoder, HeadLimits, Progress, Refusal, ResponseFraming, ResponseHead,
};
use encke_wire::method::Method;

use super::location::ServerLocation;
use super::secure::{Secure, TrustSettings};
use super::{MonoTime, moment_in, now};
use crate::error::CommandError;

/// Connect timeout: a lost SYN is sent again after 1 s and after 3 s.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Timeout of a TLS handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// Bytes per read from the socket.
pub(super) const READ_BYTES: usize = 16 * 1024;

/// Maximum size of a response body that is held in memory: a status has about 10 KiB, a publish response 100 B.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A request.
pub(crate) struct ClientRequest<'a> {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: &'a str,
    /// Names and values of header fields; `Host`, `User-Agent` and the body length are added.
    pub(crate) fields: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a [u8],
}

/// The head of a response.
pub(crate) struct ClientResponseHead {
    head: ResponseHead,
    bytes: Vec<u8>,
}

/// A complete response.
pub(crate) struct ClientResponse {
    pub(crate) head: ClientResponseHead,
    pub(crate) body: Vec<u8>,
}

/// A connection to a server.
pub(crate) struct Connection {
    stream: ClientSocket,
    authority: String,
    /// Received bytes; `input[used..]` is not yet parsed.
    input: Vec<u8>,
    used: usize,
    body: BodyRest,
    /// The server keeps the connection open after this response.
    keeps: bool,
}

/// The remainder of a response body.
enum BodyRest {
    /// The body is complete; the connection is idle.
    Over,
    /// This many bytes remain.
    Length(u64),
    /// The body is chunked.
    Chunks(ChunkedDecoder),
    /// The body ends when the server closes the connection.
    UntilClose,
}

/// The reason why there is no response. The origin is the server or the network, except where a variant states another.
#[derive(Debug)]
pub(crate) enum ClientError {
    /// The server's name has no address.
    Unknown(io::Error),
    /// The connection could not be established.
    Unreachable(io::Error),
    /// No CA certificates could be loaded: an error of this machine.
    NoBelief(TlsError),
    /// The TLS connection failed.
    Distrusted(Distrust),
    /// The connection ended before the response did: with an error, or by a clean close.
    Lost(Option<io::Error>),
    /// Nothing arrived before the deadline.
    Silent,
    /// The response is not valid HTTP/1.
    Malformed(Refusal),
    /// The response is longer than [`ANSWER_BYTES_MAX`].
    TooLarge,
    /// The value of this request field contains characters that cannot be sent: an error of the user.
    Field(String),
}

impl Connection {
    /// Connects to a server. `belief` has the CA certificates for TLS.
    ///
    ///  # Errors
    /// [`ClientError::Unknown`] or [`ClientError::Unreachable`]. With TLS also [`ClientError::NoBelief`] or [`ClientError::Distrusted`], or the
    /// handshake ends early or times out.
    pub(crate) fn to(server: &ServerLocation, belief: &TrustSettings) -> Result<Self, ClientError> {
        let stream = match server {
            ServerLocation::Unix(path) => {
                ClientSocket::Unix(LocalStream::connect(path).map_err(ClientError::Unreachable)?)
            }
            ServerLocation::Inet(host, port) => ClientSocket::Tcp(connected(host, *port)?),
            ServerLocation::Secure(host, port) => {
                let socket = connected(host, *port)?;
                let secure = Secure::with(host, socket, belief, moment_in(HANDSHAKE_TIME))?;
                ClientSocket::Secure(Box::new(secure))
            }
        };
        Ok(Self {
            stream,
            authority: server.authority(),
            input: Vec::new(),
            used: 0,
            body: BodyRest::Over,
            keeps: true,
        })
    }

    /// Sends a request and receives the complete response within `patience`.
    ///
    ///  # Errors
    /// There is no complete response. The connection is then unusable.
    pub(crate) fn ask(
        &mut self,
        request: &ClientRequest<'_>,
        patience: Duration,
    ) -> Result<ClientResponse, ClientError> {
        let until = super::moment_in(patience);
        let head = self.begin(request, until)?;
        let body = self.rest(until)?;
        Ok(ClientResponse { head, body })
    }

    /// Receives the remaining body of a response that [`Connection::begin`] started.
    ///
    ///  # Errors
    /// As for [`Connection::piece`], or [`ClientError::TooLarge`].
    pub(crate) fn rest(&mut self, until: MonoTime) -> Result<Vec<u8>, ClientError> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece(until)? {
            if body.len() + piece.len() > ANSWER_BYTES_MAX {
                return Err(ClientError::TooLarge);
            }
            body.extend_from_slice(piece);
        }
        Ok(body)
    }

    /// Whether the connection can carry another request.
    pub(crate) fn reusable(&self) -> bool {
        self.keeps && matches!(self.body, BodyRest::Over)
    }

    /// Sends a request and receives the head of the response. [`Connection::piece`] returns the body.
    ///
    ///  # Errors
    /// The request could not be sent, or no valid head arrived before `until`.
    pub(crate) fn begin(
        &mut self,
        request: &ClientRequest<'_>,
        until: MonoTime,
    ) -> Result<ClientResponseHead, ClientError> {
        let bytes = self.written(request)?;
        let time = left(until)?;
        let sent = self.stream.wait_at_most(time).and_then(|()| self.stream.send(&bytes));
        // A server that rejects the body may respond and close before it has read the whole body. That response counts.
        match (self.head(request.method, until), sent) {
            (Err(ClientError::Lost(_)), Err(error)) => Err(error),
            (head, _) => head,
        }
    }

    /// Returns the next piece of the response body, at least one byte, or `None` at its end.
    ///
    ///  # Errors
    /// The connection ended before the body did, nothing arrived before `until`, or the framing is invalid.
    pub(crate) fn piece(&mut self, until: MonoTime) -> Result<Option<&[u8]>, ClientError> {
        loop {
            let piece = self.next_piece()?;
            if !piece.is_empty() {
                return Ok(Some(&self.input[piece]));
            }
            let until_close = match self.body {
                BodyRest::Over => return Ok(None),
                BodyRest::UntilClose => true,
                BodyRest::Length(_) | BodyRest::Chunks(_) => false,
            };
            if !self.receive(until)? {
                if !until_close {
                    return Err(ClientError::Lost(None));
                }
                self.body = BodyRest::Over;
            }
        }
    }

    /// Returns the range of the next body bytes in `input`, and marks them as used.
    fn next_piece(&mut self) -> Result<Range<usize>, ClientError> {
        let start = self.used;
        let input = &self.input[start..];
        let mut over = false;
        let piece = match &mut self.body {
            BodyRest::Over => start..start,
            BodyRest::UntilClose => start..self.input.len(),
            BodyRest::Length(left) => {
                // `taken` is at most the length of `input`, so the cast is lossless.
                let taken = (*left).min(input.len() as u64) as usize;
                *left -= taken as u64;
                over = *left == 0;
                start..start + taken
            }
            BodyRest::Chunks(decoder) => {
                let chunk = decoder.feed(input).map_err(ClientError::Malformed)?;
                over = chunk.state == BodyState::Done;
                let end = start + chunk.consumed;
                end - chunk.data.len()..end
            }
        };
        self.used = piece.end;
        if over {
            self.body = BodyRest::Over;
        }
        Ok(piece)
    }

    fn written(&self, request: &ClientRequest<'_>) -> Result<Vec<u8>, ClientError> {
        let mut out = Vec::with_capacity(512 + request.body.len());
        for part in [request.method.name(), " ", request.target, " HTTP/1.1\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        let own = [("Host", self.authority.as_str()), ("User-Agent", USER_AGENT)];
        for (name, value) in own.iter().chain(request.fields) {
            http1::put_field(&mut out, name, value.as_bytes())
                .map_err(|_| ClientError::Field((*name).to_owned()))?;
        }
        if !request.method.reads() {
            http1::put_field_number(&mut out, "Content-Length", request.body.len() as u64);
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(request.body);
        Ok(out)
    }

    fn head(&mut self, method: Method, until: MonoTime) -> Result<ClientResponseHead, ClientError> {
        let mut head = ResponseHead::new();
        loop {
            match head.feed(&self.input[self.used..], &HeadLimits::default()) {
                Progress::Refused(refusal) => return Err(ClientError::Malformed(refusal)),
                Progress::Partial => {
                    if !self.receive(until)? {
                        return Err(ClientError::Lost(None));
                    }
                }
                Progress::Done { head_bytes } => {
                    let end = self.used + head_bytes;
                    let bytes = self.input[self.used..end].to_vec();
                    self.used = end;
                    if head.status() < 200 {
                        head.reset();
                        continue;
                    }
                    self.body = match head.framing(method) {
                        ResponseFraming::None | ResponseFraming::Length(0) => BodyRest::Over,
                        ResponseFraming::Length(bytes) => BodyRest::Length(bytes),
                        ResponseFraming::Chunked => BodyRest::Chunks(ChunkedDecoder::new()),
                        ResponseFraming::Close => BodyRest::UntilClose,
                    };
                    self.keeps = head.keep_alive() && !matches!(self.body, BodyRest::UntilClose);
                    return Ok(ClientResponseHead { head, bytes });
                }
            }
        }
    }

    /// Waits for more input. Returns false if the server has closed the connection.
    fn receive(&mut self, until: MonoTime) -> Result<bool, ClientError> {
        self.input.drain(..self.used);
        self.used = 0;
        let before = self.input.len();
        self.input.resize(before + READ_BYTES, 0);
        let read = loop {
            let waited = left(until).and_then(|left| {
                self.stream.wait_at_most(left)?;
                self.stream.receive(&mut self.input[before..])
            });
            match waited {
                Err(ClientError::Lost(Some(error))) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.input.truncate(before + *read.as_ref().unwrap_or(&0));
        Ok(read? > 0)
    }
}

const USER_AGENT: &str = concat!("encke/", env!("CARGO_PKG_VERSION"));

impl ClientResponseHead {
    pub(crate) fn status(&self) -> u16 {
        self.head.status()
    }

    /// Returns the first value of a field if it is UTF-8.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.field(&self.bytes, name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Whether the media type of `Content-Type` is `name`, regardless of parameters.
    pub(crate) fn is_type(&self, name: &str) -> bool {
        let essence = self.field("Content-Type").and_then(|value| value.split(';').next());
        essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case(name))
    }

    /// Returns the value of `Retry-After` if it is a number of seconds.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.field("Retry-After")?.trim().parse().ok().map(Duration::from_secs)
    }
}

/// Connects to the first address of a name that accepts.
fn connected(host: &str, port: u16) -> Result<TcpStream, ClientError> {
    let addresses = (host, port).to_socket_addrs().map_err(ClientError::Unknown)?;
    let mut stream = Err(ClientError::Unknown(io::ErrorKind::NotFound.into()));
    for address in addresses {
        stream = TcpStream::connect_timeout(&address, CONNECT_TIME).map_err(ClientError::Unreachable);
        if stream.is_ok() {
            break;
        }
    }
    let stream = stream?;
    // Head and body leave in one write, so Nagle's algorithm has no benefit.
    let _only_slower = stream.set_nodelay(true);
    Ok(stream)
}

impl ClientError {
    /// Converts an error of a connected socket.
    pub(super) fn of(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            io::ErrorKind::UnexpectedEof => Self::Lost(None),
            _ => Self::Lost(Some(error)),
        }
    }

    /// Whether the same request may succeed later. Only a request that cannot be sent always fails: networks, servers and
    /// certificates change.
    pub(crate) const fn is_transient(&self) -> bool {
        !matches!(self, Self::Field(_))
    }

    /// Converts the error to that of a command that used `server`.
    pub(crate) fn of_server(self, server: &ServerLocation) -> CommandError {
        match self {
            Self::NoBelief(_) => CommandError::system(self),
            _ => CommandError::server(self),
        }
        .context(server)
    }

    /// Whether the connection ended before the response. On an idle connection the server may have closed it, and the request
    /// can be sent again.
    pub(crate) const fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(error) => write!(f, "unknown host name ({error}); is it spelled correctly?"),
            Self::Unreachable(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => f.write_str(
                    "no server listens at this address; is the server running? `encke serve` starts one",
                ),
                io::ErrorKind::TimedOut => {
                    write!(f, "no connection within {} s; is the address correct?", CONNECT_TIME.as_secs())
                }
                _ => write!(f, "cannot connect: {error}"),
            },
            Self::NoBelief(error) => {
                write!(f, "{error}; set --cacert FILE or $SSL_CERT_FILE to CA certificates")
            }
            Self::Distrusted(distrust @ Distrust::Authority) => {
                write!(
                    f,
                    "{distrust}; set --cacert FILE to its CA certificate, or skip verification with --insecure"
                )
            }
            Self::Distrusted(distrust @ Distrust::NotTls) => {
                write!(f, "{distrust}; does the server use http://?")
            }
            Self::Distrusted(distrust) => distrust.fmt(f),
            Self::Lost(Some(error)) => write!(f, "the connection broke: {error}"),
            Self::Lost(None) => f.write_str("the server closed the connection without a response"),
            Self::Silent => f.write_str("timeout: no response from the server"),
            Self::Malformed(refusal) => {
                write!(f, "invalid HTTP/1 response: {}; is it a web server?", refusal.reason())
            }
            Self::TooLarge => write!(f, "the response is larger than {} MiB", ANSWER_BYTES_MAX >> 20),
            Self::Field(name) => {
                write!(f, "invalid characters in the value of {name}, such as a line end")
            }
        }
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unknown(error) | Self::Unreachable(error) => Some(error),
            Self::NoBelief(error) => Some(error),
            Self::Lost(Some(error)) => Some(error),
            Self::Distrusted(distrust) => Some(distrust),
            Self::Lost(None) | Self::Silent | Self::Malformed(_) | Self::TooLarge | Self::Field(_) => None,
        }
    }
}

/// Returns the time until a deadline.
pub(super) fn left(until: MonoTime) -> Result<Duration, ClientError> {
    match until.saturating_sub(now()) {
        0 => Err(ClientError::Silent),
        // Socket timeouts have a resolution of one microsecond, and 0 would disable the timeout.
        ns => Ok(Duration::from_nanos(ns.max(1_000))),
    }
}

/// A socket of any kind.
enum ClientSocket {
    Tcp(TcpStream),
    Unix(LocalStream),
    Secure(Box<Secure>),
}

impl ClientSocket {
    /// Sets the timeout of each following read and write.
    fn wait_at_most(&self, time: Duration) -> Result<(), ClientError> {
        let tcp = |stream: &TcpStream| {
            stream.set_read_timeout(Some(time)).and_then(|()| stream.set_write_timeout(Some(time)))
        };
        let set = match self {
            Self::Tcp(stream) => tcp(stream),
            Self::Secure(stream) => tcp(stream.socket()),
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(time)).and_then(|()| stream.set_write_timeout(Some(time)))
            }
        };
        set.map_err(ClientError::of)
    }

    /// Reads at least one byte, or returns 0 at the end of the stream. After [`io::ErrorKind::Interrupted`] the caller repeats the
    /// call.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, ClientError> {
        match self {
            Self::Tcp(stream) => stream.read(buffer).map_err(ClientError::of),
            Self::Unix(stream) => stream.read(buffer).map_err(ClientError::of),
            Self::Secure(stream) => stream.receive(buffer),
        }
    }

    /// Writes all bytes.
    fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes).map_err(ClientError::of),
            Self::Unix(stream) => stream.write_all(bytes).map_err(ClientError::of),
            Self::Secure(stream) => stream.send(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// Starts a server that answers each request of one connection with the next list of pieces, one write per piece, and then
    /// closes. The thread returns the requests.
    fn server(answers: Vec<Vec<Vec<u8>>>) -> (ServerLocation, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let asked = thread::spawn(move || {
            let (mut peer, _) = listener.accept().expect("a client");
            peer.set_nodelay(true).expect("a socket");
            let mut requests = Vec::new();
            for answer in answers {
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") {
                    peer.read_exact(&mut byte).expect("a request");
                    request.push(byte[0]);
                }
                requests.push(String::from_utf8(request).expect("text"));
                for piece in answer {
                    peer.write_all(&piece).expect("it reads");
                }
            }
            requests
        });
        (ServerLocation::Inet("127.0.0.1".into(), address.port()), asked)
    }

    fn belief() -> TrustSettings {
        TrustSettings::new(None, false)
    }

    const PATIENCE: Duration = Duration::from_secs(30);
    const GET: ClientRequest<'_> =
        ClientRequest { method: Method::Get, target: "/x?y", fields: &[("A", "b")], body: b"" };

    #[test]
    fn an_answer_is_the_same_however_it_is_cut() {
        for (answer, body) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Y: z\r\n\r\nhello"[..], "hello"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nx-y: z\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\n\r\n", "hello"),
            (b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 200 OK\r\nX-Y: z\r\n\r\nhello", "hello"),
            (b"HTTP/1.1 204 No Content\r\nX-Y: z\r\n\r\n", ""),
        ] {
            let mut cuts: Vec<Vec<Vec<u8>>> =
                (0..answer.len()).map(|at| vec![answer[..at].to_vec(), answer[at..].to_vec()]).collect();
            cuts.push(answer.iter().map(|byte| vec![*byte]).collect());
            for pieces in cuts {
                let (server, asked) = server(vec![pieces]);
                let mut connection = Connection::to(&server, &belief()).expect("it listens");
                let got = connection.ask(&GET, PATIENCE).unwrap_or_else(|trouble| panic!("{trouble}"));
                assert_eq!(String::from_utf8_lossy(&got.body), body);
                assert_eq!(got.head.field("x-y"), Some("z"));
                let asked = asked.join().expect("no panic");
                assert_eq!(
                    asked,
                    [format!("GET /x?y HTTP/1.1\r\nHost: {server}\r\nUser-Agent: {USER_AGENT}\r\nA: b\r\n\r\n")]
                );
            }
        }
    }

    #[test]
    fn several_requests_share_a_connection_until_an_answer_ends_it() {
        let short = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1".to_vec();
        let last = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n2".to_vec();
        let (server, asked) = server(vec![vec![short.clone()], vec![short], vec![last]]);
        let mut connection = Connection::to(&server, &belief()).expect("it listens");
        for (body, reusable) in [(b"1", true), (b"1", true), (b"2", false)] {
            let answer = connection.ask(&GET, PATIENCE).unwrap_or_else(|trouble| panic!("{trouble}"));
            assert_eq!((&answer.body[..], connection.reusable()), (&body[..], reusable));
        }
        assert_eq!(asked.join().expect("no panic").len(), 3);
    }

    #[test]
    fn what_is_cut_short_or_broken_is_a_trouble() {
        for (answer, said) in [
            (&b""[..], "closed the connection"),
            (b"HTTP/1.1 200 OK\r\nContent-Le", "closed the connection"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n1", "closed the connection"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n", "closed the connection"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello", "invalid HTTP/1 response"),
            (b"SSH-2.0-OpenSSH_9.2\r\n", "is it a web server?"),
        ] {
            let (server, _asked) = server(vec![vec![answer.to_vec()]]);
            let mut connection = Connection::to(&server, &belief()).expect("it listens");
            let trouble = connection.ask(&GET, PATIENCE).err().expect("no answer").to_string();
            assert!(trouble.contains(said), "{}: {trouble}", String::from_utf8_lossy(answer));
        }
    }

    #[test]
    fn what_nobody_answers_and_what_cannot_be_sent_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = ServerLocation::Inet("127.0.0.1".into(), listener.local_addr().expect("bound").port());
        let mut connection = Connection::to(&server, &belief()).expect("it listens");
        let silent = connection.ask(&GET, Duration::from_millis(1)).err().expect("nobody answers");
        assert!(matches!(silent, ClientError::Silent), "{silent}");
        let fields = &[("Encke-Event", "a\r\nb")];
        let field = connection.ask(&ClientRequest { fields, ..GET }, PATIENCE).err().expect("not sent");
        assert!(field.to_string().contains("Encke-Event"), "{field}");
        // A service of 1988 (RFC 1078), on a port that no test gets from the system.
        let closed = ServerLocation::Inet("127.0.0.1".into(), 1);
        let refused = Connection::to(&closed, &belief()).err().expect("nobody listens");
        assert!(refused.to_string().contains("is the server running?"), "{refused}");
        let missing = Connection::to(&ServerLocation::Unix("/nonexistent/socket".into()), &belief())
            .err()
            .expect("no such file");
        let expected =
            if cfg!(unix) { "is the server running?" } else { "Unix sockets are not available on Windows" };
        assert!(missing.to_string().contains(expected), "{missing}");
    }
}
