//! The server's side of an HTTP/2 connection without a runtime: bytes in, requests and bytes out.
//!
//! ```text
//! feed(bytes) ─► poll() ─┬─► Request    a stream was opened
//!                        ├─► Quiet      nothing more to do until bytes arrive, streams act, or output has left
//!                        └─► Over       it has ended: what is still in output is its last words
//! ```
//! The frames and their rules are the `h2` crate's. This file is the only one that drives its connection; it is
//! polled with a waker that does nothing, because whoever feeds it or acts on a stream polls it afterwards.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Buf;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Reason, RecvStream};
use http::request::Parts;

use super::budget::{Account, Budgets, Charge};
use super::pipe::Pipe;
use super::watch::Watch;

/// What a client may send of one body before it is read: the protocol's own first value.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024 - 1;
/// … of all bodies of its connection: four that a handler leaves unread do not keep a fifth from arriving.
const CONNECTION_WINDOW_BYTES: u32 = 5 * STREAM_WINDOW_BYTES;
/// Output that the engine takes of one stream before the socket has taken it: two frames of the usual size.
/// `limits.unsent` bounds the total over all connections.
const SEND_BUFFER_BYTES: usize = 32 * 1024;
/// The client's dynamic table of field names: the protocol's own first value.
const HEADER_TABLE_BYTES: u32 = 4 * 1024;

/// GOAWAY with PROTOCOL_ERROR, before any stream (RFC 9113 §6.8): its header, the last stream, the code.
const GOAWAY_PROTOCOL_ERROR: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// What one client may have.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open streams.
    pub streams: u32,
    /// Bytes of a head.
    pub head_bytes: u32,
}

/// What [`ServerConnection::poll`] came to.
pub enum Polled<B: Buf> {
    /// A stream was opened: its head, its body, and what responds to it.
    Request(Box<Parts>, RecvStream, SendResponse<B>),
    /// Nothing more to do until bytes arrive, streams act, or output has left.
    Quiet,
    /// The connection has ended.
    Over,
}

/// How a connection ended that was not stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// In order: the peer sends nothing more, or the connection was to leave and has.
    Done,
    /// By a GOAWAY of the peer.
    PeerLeft,
    /// The peer was cut off.
    PeerAborted,
    /// The peer broke the protocol.
    Refused,
    /// The peer asked for too much.
    Flood,
}

enum State<B: Buf> {
    Handshake(Handshake<Pipe, B>),
    Open(Connection<Pipe, B>),
    Over,
}

/// One connection; `B` is what responses are made of.
pub struct ServerConnection<B: Buf> {
    state: State<B>,
    pipe: Pipe,
    /// What the client has the connection do for nothing.
    pub watch: Watch,
    /// How it ended, unless it was stopped.
    pub end: Option<End>,
    /// The rule that the client broke, in the protocol's words.
    pub fault: Option<&'static str>,
    /// The bytes of responses that it holds.
    pub bytes: Rc<Account>,
    /// The streams that it has open.
    pub open: Rc<Account>,
    /// Output that the socket has not taken.
    in_flight: Charge,
    /// It takes no new streams.
    leaving: bool,
    /// It was stopped.
    stopped: bool,
}

impl<B: Buf + 'static> ServerConnection<B> {
    /// A connection that begins.
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
            .enable_connect_protocol();
        Self {
            state: State::Handshake(builder.handshake(pipe.clone())),
            pipe,
            watch: Watch::new(now_ns),
            end: None,
            fault: None,
            in_flight: bytes.charge(0),
            bytes,
            open,
            leaving: false,
            stopped: false,
        }
    }

    /// Bytes arrived.
    pub fn feed(&self, bytes: &[u8]) {
        self.pipe.feed(bytes);
    }

    /// No more bytes will arrive.
    pub fn end_input(&self) {
        self.pipe.end_input();
    }

    /// Whether more bytes are wanted.
    pub fn is_hungry(&self) -> bool {
        self.pipe.is_hungry()
    }

    /// Takes what is to be sent.
    pub fn take_output(&mut self) -> Vec<u8> {
        let output = self.pipe.take_output();
        self.watch.sent(output.len() as u64);
        self.in_flight.set(output.capacity());
        output
    }

    /// The socket has taken all output.
    pub fn output_sent(&mut self) {
        self.in_flight.set(0);
    }

    /// Whether it may open another stream: it holds no more than its share of streams and of bytes.
    pub fn has_room(&self) -> bool {
        self.open.room() > 0 && self.bytes.room() > 0
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Goes on as far as it can.
    pub fn poll(&mut self) -> Polled<B> {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match &mut self.state {
                State::Handshake(handshake) => match Pin::new(handshake).poll(&mut context) {
                    Poll::Pending => return Polled::Quiet,
                    Poll::Ready(Ok(connection)) => {
                        self.state = State::Open(connection);
                        if self.leaving {
                            self.leave();
                        }
                    }
                    Poll::Ready(Err(error)) => {
                        // What began as the preface and went on as something else hears why, too.
                        self.pipe.say(GOAWAY_PROTOCOL_ERROR);
                        self.end(Some(&error));
                    }
                },
                State::Open(connection) => match connection.poll_accept(&mut context) {
                    Poll::Pending => return Polled::Quiet,
                    Poll::Ready(Some(Ok((request, respond)))) => {
                        let (parts, body) = request.into_parts();
                        return Polled::Request(Box::new(parts), body, respond);
                    }
                    Poll::Ready(Some(Err(error))) => self.end(Some(&error)),
                    Poll::Ready(None) => self.end(None),
                },
                State::Over => return Polled::Over,
            }
        }
    }

    /// Takes no new streams, and ends when the open ones have ended (RFC 9113 §6.8).
    pub fn leave(&mut self) {
        self.leaving = true;
        if let State::Open(connection) = &mut self.state {
            connection.graceful_shutdown();
        }
    }

    /// Ends now: its last words are a GOAWAY.
    pub fn stop(&mut self, goaway: Reason) {
        self.stopped = true;
        match &mut self.state {
            State::Open(connection) => connection.abrupt_shutdown(goaway),
            State::Handshake(_) | State::Over => self.state = State::Over,
        }
    }

    fn end(&mut self, error: Option<&h2::Error>) {
        self.state = State::Over;
        if self.stopped {
            return;
        }
        let ours = error.filter(|error| error.is_go_away() && error.is_library());
        self.fault = ours.map(|error| fault(error.reason()));
        self.end = Some(match error {
            None => End::Done,
            Some(error) if ours.is_some() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) => End::Flood,
            Some(_) if ours.is_some() => End::Refused,
            Some(error) if error.is_go_away() => End::PeerLeft,
            Some(_) => End::PeerAborted,
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
