//! A strict client: it reads one response after the other, and checks each byte by the RFCs.
//!
//! ```text
//! send ─► … ─► answer() = status line, fields, body by exactly one framing;  what follows stays for the next
//!              rest()   = every byte to the end, and which end it was
//! ```

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use encke_io::Address;
use rustix::net::{AddressFamily, SocketType, sockopt};

use super::{PATIENCE, Rig, wait_for};

/// Receive buffer of a narrow client, in bytes. The kernel doubles it and never goes below 2,304 bytes (socket(7)).
const NARROW_BYTES: usize = 4 * 1024;

/// The way in which a request is cut into pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    Whole,
    EachByte,
    /// In two, after this number of bytes.
    At(usize),
}

impl Cut {
    /// Every way to cut `bytes`.
    pub fn all(bytes: &[u8]) -> impl Iterator<Item = Self> {
        [Self::Whole, Self::EachByte].into_iter().chain((1..bytes.len()).map(Self::At))
    }

    fn pieces(self, bytes: &[u8]) -> Vec<&[u8]> {
        match self {
            Self::Whole => vec![bytes],
            Self::EachByte => bytes.chunks(1).collect(),
            Self::At(place) => vec![&bytes[..place], &bytes[place..]],
        }
    }
}

/// The end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// In order: every byte that was sent has arrived.
    Finished,
    /// By a reset.
    Reset,
}

/// A response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a field that occurs at most once.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} is there twice: {:?}", self.fields);
        value
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text was asked for")
    }

    /// Whether the response announces the end of the connection.
    pub fn closes(&self) -> bool {
        self.field("Connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// A connection to the server.
pub struct Client {
    /// A TCP or a Unix socket: the operations used here are the same for both.
    stream: TcpStream,
    /// Received bytes that are not yet part of a response.
    arrived: Vec<u8>,
}

impl Client {
    pub fn connect(address: &Address) -> Self {
        Self::try_connect(address).expect("somebody listens")
    }

    pub fn try_connect(address: &Address) -> io::Result<Self> {
        let stream = match address {
            Address::Inet(inet) => {
                let stream = TcpStream::connect(inet)?;
                stream.set_nodelay(true)?;
                stream
            }
            Address::Unix(path) => TcpStream::from(OwnedFd::from(UnixStream::connect(path)?)),
        };
        Self::of(stream)
    }

    /// Connects from another address of this machine.
    pub fn connect_from(source: impl Into<IpAddr>, address: &Address) -> Self {
        Self::try_connect_from(source, address).expect("somebody listens")
    }

    pub fn try_connect_from(source: impl Into<IpAddr>, address: &Address) -> io::Result<Self> {
        let Address::Inet(inet) = address else { panic!("{address} is no Internet address") };
        let socket = tcp_socket(inet);
        rustix::net::bind(&socket, &SocketAddr::new(source.into(), 0)).expect("an address of this machine");
        rustix::net::connect(&socket, inet)?;
        Self::of(TcpStream::from(socket))
    }

    /// Connects with a small receive buffer, so that the server soon has to wait.
    pub fn connect_narrow(address: &Address) -> Self {
        let Address::Inet(inet) = address else { panic!("{address} is no Internet address") };
        let socket = tcp_socket(inet);
        // Before connecting, because the handshake fixes the window scale.
        sockopt::set_socket_recv_buffer_size(&socket, NARROW_BYTES).expect("a size within the limits");
        rustix::net::connect(&socket, inet).expect("somebody listens");
        Self::of(TcpStream::from(socket)).expect("a socket takes a time limit")
    }

    fn of(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, arrived: Vec::new() })
    }

    /// The client's address, as the server sees it.
    pub fn address(&self) -> SocketAddr {
        self.stream.local_addr().expect("it is connected")
    }

    /// The socket, for cases that send and read on several threads.
    pub fn stream(&self) -> &TcpStream {
        assert!(self.arrived.is_empty(), "received, and not read");
        &self.stream
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the server reads");
    }

    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends as many bytes as fit into the buffers up to the server. Returns their number.
    pub fn send_what_fits(&mut self, bytes: &[u8]) -> usize {
        self.stream.set_nonblocking(true).expect("a socket can");
        let mut sent = 0;
        while sent < bytes.len() {
            match self.stream.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("after {sent} bytes: {error}"),
            }
        }
        self.stream.set_nonblocking(false).expect("a socket can");
        sent
    }

    /// Sends `bytes` in pieces, each only after the server has read the previous one, so that it sees them as they were cut.
    /// After a response the rest is sent without waiting.
    pub fn send_cut(&mut self, rig: &Rig, bytes: &[u8], cut: Cut) {
        let mut expected = rig.received();
        for piece in cut.pieces(bytes) {
            if self.try_send(piece).is_err() {
                return;
            }
            expected += piece.len() as u64;
            let taken = || rig.received() >= expected || self.has_news();
            wait_for(taken, "a piece of a request is taken", || format!(" {cut:?}{}", rig.told()));
        }
    }

    /// Ends the sending side. If the server has already ended the connection, nothing happens.
    pub fn finish(&mut self) {
        let ended = self.stream.shutdown(Shutdown::Write);
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotConnected;
        assert!(ended.as_ref().err().is_none_or(gone), "{ended:?}");
    }

    /// Ends the connection by a reset.
    pub fn reset(self) {
        sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).expect("a socket can");
    }

    /// Sends a GET and reads the response.
    pub fn get(&mut self, path: &str) -> Answer {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    /// Sends a GET and reads the response, unless the server has closed the connection before.
    pub fn try_get(&mut self, path: &str) -> Option<Answer> {
        self.try_send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).ok()?;
        if self.arrived.is_empty() && self.fill(usize::MAX).is_some() {
            return None;
        }
        Some(self.answer())
    }

    /// Sends a request and reads the response.
    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> Answer {
        self.send(request);
        self.answer()
    }

    /// Reads the next response.
    pub fn answer(&mut self) -> Answer {
        self.read_answer(false)
    }

    /// Reads the next response, to a HEAD request.
    pub fn answer_to_head(&mut self) -> Answer {
        self.read_answer(true)
    }

    /// Reads the next responses.
    pub fn answers(&mut self, count: usize) -> Vec<Answer> {
        (0..count).map(|_| self.answer()).collect()
    }

    /// Reads everything to the end. Returns the bytes and the kind of end.
    pub fn rest(&mut self) -> (Vec<u8>, End) {
        let end = self.read_to_end();
        (std::mem::take(&mut self.arrived), end)
    }

    /// Returns the kind of end, before which no byte may arrive.
    pub fn end(&mut self) -> End {
        let (rest, end) = self.rest();
        assert!(rest.is_empty(), "before the end came {:?}", String::from_utf8_lossy(&rest));
        end
    }

    /// Reads once and returns the bytes; none at the end.
    pub fn read_some(&mut self, most: usize) -> Vec<u8> {
        if self.arrived.is_empty() {
            self.fill(most);
        }
        self.take(most.min(self.arrived.len()))
    }

    /// Reads exactly this number of bytes.
    pub fn read_exact(&mut self, count: usize) -> Vec<u8> {
        while self.arrived.len() < count {
            assert_eq!(self.fill(count), None, "the end, {} bytes too early", count - self.arrived.len());
        }
        self.take(count)
    }

    /// Reads only a head: the status and fields, without the body.
    pub fn head(&mut self) -> Answer {
        let block = self.read_head();
        let (status, fields) = parse_head(&block);
        Answer { status, fields, body: Vec::new() }
    }

    /// Whether unread bytes or an end have arrived. Does not wait.
    pub fn has_news(&self) -> bool {
        if !self.arrived.is_empty() {
            return true;
        }
        self.stream.set_nonblocking(true).expect("a socket can");
        let looked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a socket can");
        !looked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Waits for bytes or an end. Returns whether there are bytes.
    pub fn is_answered(&mut self) -> bool {
        !self.arrived.is_empty() || self.fill(usize::MAX).is_none()
    }

    /// Waits until bytes or an end arrive, at most for `time`. Returns whether they did. For deliberately slow clients.
    pub fn idle(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).expect("a time above 0");
        let looked = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a time above 0");
        looked.is_ok()
    }

    fn read_answer(&mut self, to_head: bool) -> Answer {
        let block = self.read_head();
        let (status, fields) = parse_head(&block);
        let mut answer = Answer { status, fields, body: Vec::new() };
        let length = answer.field("Content-Length").map(|value| {
            assert!(value.bytes().all(|byte| byte.is_ascii_digit()), "Content-Length: {value}");
            value.parse::<usize>().expect("a length that fits")
        });
        let chunked = answer.field("Transfer-Encoding").map(|value| assert_eq!(value, "chunked")).is_some();
        assert!(!(chunked && length.is_some()), "two framings: {:?}", answer.fields);
        if status < 200 || status == 204 {
            assert!(!chunked && length.is_none(), "a {status} has no body: {:?}", answer.fields);
        }
        if status >= 200 {
            let date = answer.field("Date").expect("an answer has its date");
            assert!(date.len() == 29 && date.ends_with(" GMT"), "Date: {date}");
        }
        answer.body = match length {
            _ if to_head || status < 200 || status == 204 || status == 304 => Vec::new(),
            Some(length) => self.read_exact(length),
            None if chunked => self.read_chunks(),
            None => {
                assert!(answer.closes(), "a body of unknown length ends with the connection: {answer:?}");
                let (body, end) = self.rest();
                assert_eq!(end, End::Finished, "a body that may not be whole");
                body
            }
        };
        answer
    }

    fn read_head(&mut self) -> Vec<u8> {
        loop {
            if let Some(end) = self.arrived.windows(4).position(|four| four == b"\r\n\r\n") {
                return self.take(end + 4);
            }
            if let Some(end) = self.fill(usize::MAX) {
                let arrived = String::from_utf8_lossy(&self.arrived).into_owned();
                panic!("no answer: {end:?} after {arrived:?}");
            }
        }
    }

    fn read_chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.read_line();
            assert!(line.iter().all(u8::is_ascii_hexdigit) && !line.is_empty(), "a chunk's size: {line:?}");
            let digits = std::str::from_utf8(&line).expect("digits");
            let size = usize::from_str_radix(digits, 16).expect("a size that fits");
            body.extend(self.read_exact(size));
            assert_eq!(self.read_exact(2), b"\r\n", "behind a chunk of {size} bytes");
            if size == 0 {
                return body;
            }
        }
    }

    fn read_line(&mut self) -> Vec<u8> {
        loop {
            if let Some(end) = self.arrived.windows(2).position(|two| two == b"\r\n") {
                let mut line = self.take(end + 2);
                line.truncate(end);
                return line;
            }
            let ended = self.fill(usize::MAX);
            assert_eq!(ended, None, "in the middle of a line");
        }
    }

    /// Takes the first received bytes.
    fn take(&mut self, count: usize) -> Vec<u8> {
        let rest = self.arrived.split_off(count);
        std::mem::replace(&mut self.arrived, rest)
    }

    fn read_to_end(&mut self) -> End {
        loop {
            if let Some(end) = self.fill(usize::MAX) {
                return end;
            }
        }
    }

    /// Reads once. Returns the kind of end, if it was one.
    fn fill(&mut self, most: usize) -> Option<End> {
        let mut buffer = [0; 64 * 1024];
        let most = most.min(buffer.len());
        match self.stream.read(&mut buffer[..most]) {
            Ok(0) => Some(End::Finished),
            Ok(count) => {
                self.arrived.extend_from_slice(&buffer[..count]);
                None
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Some(End::Reset),
            Err(error) => {
                let arrived = String::from_utf8_lossy(&self.arrived[..self.arrived.len().min(300)]);
                panic!("waited in vain for bytes or an end: {error}; so far {arrived:?}")
            }
        }
    }
}

fn tcp_socket(peer: &SocketAddr) -> OwnedFd {
    let family = if peer.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    rustix::net::socket(family, SocketType::STREAM, None).expect("room for a descriptor")
}

/// Parses a head, or fails the case.
fn parse_head(block: &[u8]) -> (u16, Vec<(String, String)>) {
    let text = std::str::from_utf8(block).expect("a head of ASCII");
    let mut lines = text.strip_suffix("\r\n\r\n").expect("a whole head").split("\r\n");
    let status_line = lines.next().expect("split gives at least one");
    let rest =
        status_line.strip_prefix("HTTP/1.1 ").unwrap_or_else(|| panic!("status line: {status_line:?}"));
    let (code, reason) = rest.split_at_checked(3).expect("a status of three digits");
    assert!(code.bytes().all(|byte| byte.is_ascii_digit()), "status line: {status_line:?}");
    assert!(reason.len() > 1 && reason.starts_with(' '), "status line: {status_line:?}");
    let fields = lines
        .map(|line| {
            let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("field line: {line:?}"));
            let token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            assert!(!name.is_empty() && name.bytes().all(token), "field line: {line:?}");
            assert!(value.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "field line: {line:?}");
            assert_eq!(value.trim(), value, "field line: {line:?}");
            (name.to_owned(), value.to_owned())
        })
        .collect();
    (code.parse().expect("three digits"), fields)
}
