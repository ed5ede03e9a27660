//! The server's side of an HTTP/2 connection (RFC 9113) without a runtime: bytes in, requests and bytes out.
//!
//! ```text
//! feed(bytes) ─► poll() ─┬─► Request    a stream was opened
//!                        ├─► Quiet      nothing more to do until bytes arrive, streams act, or output has left
//!                        └─► Over       the connection has ended; its last output is a GOAWAY
//! ```
//! The `h2` crate implements the frames and their rules. Only this file polls its server connection, with a waker that does
//! nothing. The caller polls after each input and after each operation on a stream.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Buf;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Reason, RecvStream};
use http::request::Parts;

use super::abuse_guard::AbuseGuard;
use super::budget::{Account, Budgets, Charge};
use super::pipe::Pipe;

/// The receive window of a stream: the protocol's default.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024 - 1;
/// The receive window of a connection: four bodies that a handler leaves unread do not block a fifth.
const CONNECTION_WINDOW_BYTES: u32 = 5 * STREAM_WINDOW_BYTES;
/// Output that a stream may have buffered in `h2`: two frames of the usual size. `limits.unsent` bounds the total over all
/// connections.
const SEND_BUFFER_BYTES: usize = 32 * 1024;
/// The size of the client's dynamic table: the protocol's default.
const HEADER_TABLE_BYTES: u32 = 4 * 1024;

/// GOAWAY with PROTOCOL_ERROR, before any stream (RFC 9113 §6.8): its header, the last stream, the code.
const GOAWAY_PROTOCOL_ERROR: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Limits of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of open streams.
    pub streams: u32,
    /// Maximum size of a request head, in bytes.
    pub head_bytes: u32,
    /// Streams that the client may reset in a burst. Each second permits a tenth of them again.
    pub resets: u32,
}

/// The outcome of [`ServerConnection::poll`].
pub enum Polled<B: Buf> {
    /// A new stream: its head, its body, and the handle to respond.
    Request(Box<Parts>, RecvStream, SendResponse<B>),
    /// The connection waits until bytes arrive, streams act, or output was sent.
    Quiet,
    /// The connection has ended.
    Over,
}

/// How a connection ended without [`ServerConnection::stop`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Http2ConnEnd {
    /// In order: the peer closed its side, or the connection ended after [`ServerConnection::leave`].
    Done,
    /// The peer sent GOAWAY.
    PeerLeft,
    /// The peer closed its side in the middle of the protocol.
    PeerAborted,
    /// The peer violated the protocol.
    Refused,
    /// The peer exceeded a limit of `h2`.
    Flood,
}

enum Http2ConnState<B: Buf> {
    Handshake(Handshake<Pipe, B>),
    Open(Connection<Pipe, B>),
    Over,
}

/// A server connection. Responses are sent as `B`.
pub struct ServerConnection<B: Buf> {
    state: Http2ConnState<B>,
    pipe: Pipe,
    /// Limits frames that cost work.
    pub watch: AbuseGuard,
    /// How the connection ended, unless it was stopped.
    pub end: Option<Http2ConnEnd>,
    /// The violated rule, as a label of metrics.
    pub fault: Option<&'static str>,
    /// Response bytes that the connection holds.
    pub bytes: Rc<Account>,
    /// Number of open streams, as charged to the shared budget.
    pub open: Rc<Account>,
    /// Charge for output that was taken but not yet sent.
    in_flight: Charge,
    /// The connection accepts no new streams.
    leaving: bool,
    /// [`Self::stop`] was called.
    stopped: bool,
}

impl<B: Buf + 'static> ServerConnection<B> {
    /// Creates a connection at `now_ns`, on the monotonic clock.
    pub fn new(limits: Limits, now_ns: u64, budgets: &Budgets) -> Self {
        let (bytes, open) = (Account::new(&budgets.bytes), Account::new(&budgets.streams));
        let pipe = Pipe::charged(&bytes);
        let mut builder = Builder::new();
        builder
            .max_concurrent_streams(limits.streams)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(limits.head_bytes)
            .header_table_size(HEADER_TABLE_BYTES)
            .max_send_buffer_size(SEND_BUFFER_BYTES)
            // `AbuseGuard` counts them; a page may cancel many requests before the first one is accepted.
            .max_pending_accept_reset_streams(usize::MAX)
            .enable_connect_protocol();
        Self {
            state: Http2ConnState::Handshake(builder.handshake(pipe.clone())),
            pipe,
            watch: AbuseGuard::new(now_ns, limits.resets),
            end: None,
            fault: None,
            in_flight: bytes.charge(0),
            bytes,
            open,
            leaving: false,
            stopped: false,
        }
    }

    /// Takes received bytes.
    pub fn feed(&self, bytes: &[u8]) {
        self.pipe.feed(bytes);
    }

    /// Ends the input: the peer closed its side.
    pub fn end_input(&self) {
        self.pipe.end_input();
    }

    /// Whether the connection can take more bytes.
    pub fn is_hungry(&self) -> bool {
        self.pipe.is_hungry()
    }

    /// Takes the pending output.
    pub fn take_output(&mut self) -> Vec<u8> {
        let output = self.pipe.take_output();
        self.watch.sent(output.len() as u64);
        self.in_flight.set(output.capacity());
        output
    }

    /// Returns the charge for the output taken last, which the socket has accepted.
    pub fn output_sent(&mut self) {
        self.in_flight.set(0);
    }

    /// Whether the connection may open another stream, by its shares of streams and of bytes.
    pub fn has_room(&self) -> bool {
        self.open.room() > 0 && self.bytes.room() > 0
    }

    /// Whether the connection has ended.
    pub fn is_over(&self) -> bool {
        matches!(self.state, Http2ConnState::Over)
    }

    /// Processes input and output. Returns at a new request, at the end, or when the connection must wait.
    pub fn poll(&mut self) -> Polled<B> {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match &mut self.state {
                Http2ConnState::Handshake(handshake) => match Pin::new(handshake).poll(&mut context) {
                    Poll::Pending => return Polled::Quiet,
                    Poll::Ready(Ok(connection)) => {
                        self.state = Http2ConnState::Open(connection);
                        if self.leaving {
                            self.leave();
                        }
                    }
                    Poll::Ready(Err(error)) => {
                        // A client that breaks off its preface receives the reason as well.
                        self.pipe.say(GOAWAY_PROTOCOL_ERROR);
                        self.end(Some(&error));
                    }
                },
                Http2ConnState::Open(connection) => match connection.poll_accept(&mut context) {
                    Poll::Pending => return Polled::Quiet,
                    Poll::Ready(Some(Ok((request, respond)))) => {
                        let (parts, body) = request.into_parts();
                        return Polled::Request(Box::new(parts), body, respond);
                    }
                    Poll::Ready(Some(Err(error))) => self.end(Some(&error)),
                    Poll::Ready(None) => self.end(None),
                },
                Http2ConnState::Over => return Polled::Over,
            }
        }
    }

    /// Accepts no new streams, and ends the connection after the open ones (RFC 9113 §6.8).
    pub fn leave(&mut self) {
        self.leaving = true;
        if let Http2ConnState::Open(connection) = &mut self.state {
            connection.graceful_shutdown();
        }
    }

    /// Ends the connection at once, with a GOAWAY.
    pub fn stop(&mut self, goaway: Reason) {
        self.stopped = true;
        match &mut self.state {
            Http2ConnState::Open(connection) => connection.abrupt_shutdown(goaway),
            Http2ConnState::Handshake(_) | Http2ConnState::Over => self.state = Http2ConnState::Over,
        }
    }

    fn end(&mut self, error: Option<&h2::Error>) {
        self.state = Http2ConnState::Over;
        if self.stopped {
            return;
        }
        let ours = error.filter(|error| error.is_go_away() && error.is_library());
        self.fault = ours.map(|error| fault(error.reason()));
        self.end = Some(match error {
            None => Http2ConnEnd::Done,
            Some(error) if ours.is_some() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) => {
                Http2ConnEnd::Flood
            }
            Some(_) if ours.is_some() => Http2ConnEnd::Refused,
            Some(error) if error.is_go_away() => Http2ConnEnd::PeerLeft,
            Some(_) => Http2ConnEnd::PeerAborted,
        });
    }
}

/// The name of an error code in metrics (RFC 9113 §7).
fn fault(reason: Option<Reason>) -> &'static str {
    match reason {
        Some(Reason::FLOW_CONTROL_ERROR) => "h2_flow_control",
        Some(Reason::FRAME_SIZE_ERROR) => "h2_frame_size",
        Some(Reason::COMPRESSION_ERROR) => "h2_compression",
        Some(Reason::ENHANCE_YOUR_CALM) => "h2_calm",
        Some(Reason::STREAM_CLOSED) => "h2_stream_closed",
        Some(Reason::SETTINGS_TIMEOUT) => "h2_settings_timeout",
        _ => "h2_protocol",
    }
}
