//! An HTTP/2 connection without a runtime: bytes in, requests and bytes out.
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
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Waker};

use encke_io::Token;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Reason, RecvStream};
use http::request::Parts;

use super::budget::{Account, Budget, Charge};
use super::pipe::Pipe;
use super::stream::Data;
use super::watch::Watch;
use crate::close::CloseReason;
use crate::policy::Policy;

/// What a client may send of one body before it is read: the protocol's own first value.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024 - 1;
/// … of all bodies of its connection: four that a handler leaves unread do not keep a fifth from arriving.
const CONNECTION_WINDOW_BYTES: u32 = 5 * STREAM_WINDOW_BYTES;
/// Output that the engine takes of one stream before the socket has taken it: two frames of the usual size.
/// `limits.unsent` bounds the total over all connections.
const SEND_BUFFER_BYTES: usize = 32 * 1024;
/// Bytes that a connection may read if it holds none, even when the budget is exhausted.
pub(super) const BYTES_LEAST: usize = 1024;
/// The client's dynamic table of field names: the protocol's own first value.
const HEADER_TABLE_BYTES: u32 = 4 * 1024;

/// GOAWAY with PROTOCOL_ERROR, before any stream (RFC 9113 §6.8): its header, the last stream, the code.
const GOAWAY_PROTOCOL_ERROR: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// What [`Engine::poll`] came to.
pub(super) enum Polled {
    Request(Box<Parts>, RecvStream, SendResponse<Data>),
    Quiet,
    Over,
}

/// A worker's view of the limits that the connections of all workers share.
pub(super) struct Budgets {
    /// Bytes of responses that were read but not sent.
    pub(super) bytes: Rc<Budget>,
    /// Open streams.
    pub(super) streams: Rc<Budget>,
}

/// The charges of all workers to the limits that their connections share.
#[derive(Default)]
pub(crate) struct Totals {
    bytes: Arc<AtomicUsize>,
    streams: Arc<AtomicUsize>,
}

impl Budgets {
    pub(super) fn new(totals: &Totals) -> Self {
        Self { bytes: Budget::new(BYTES_LEAST, &totals.bytes), streams: Budget::new(1, &totals.streams) }
    }

    /// Obeys the limits of a policy.
    pub(super) fn limit(&self, policy: &Policy) {
        self.bytes.set_max(policy.unsent_bytes);
        self.streams.set_max(policy.open_streams as usize);
    }
}

enum State {
    Handshake(Handshake<Pipe, Data>),
    Open(Connection<Pipe, Data>),
    Over,
}

/// One connection.
pub(super) struct Engine {
    state: State,
    pipe: Pipe,
    pub(super) watch: Watch,
    /// The connection that carries it.
    pub(super) token: Token,
    /// Its open streams, by place.
    pub(super) streams: Vec<u32>,
    /// By when its first request is to come, on the monotonic clock.
    pub(super) first_by_ns: u64,
    /// Since when a field block has not been whole, on the monotonic clock.
    pub(super) block_since: Option<u64>,
    /// Why it will end, once that is known.
    pub(super) reason: Option<CloseReason>,
    /// The rule that the client broke, in the protocol's words.
    pub(super) fault: Option<&'static str>,
    /// It is among those that want to be polled.
    pub(super) stirred: bool,
    /// The bytes of responses that it holds.
    pub(super) bytes: Rc<Account>,
    /// The streams that it has open.
    pub(super) open: Rc<Account>,
    /// Output that the socket has not taken.
    in_flight: Charge,
    /// Streams that wait for it to hold less, by place.
    crowded: Vec<u32>,
    /// It takes no new streams, for this reason.
    leaving: Option<CloseReason>,
}

impl Engine {
    pub(super) fn new(token: Token, policy: &Policy, now_ns: u64, budgets: &Budgets) -> Self {
        let (bytes, open) = (Account::new(&budgets.bytes), Account::new(&budgets.streams));
        let pipe = Pipe::new(&bytes);
        let mut builder = Builder::new();
        builder
            .max_concurrent_streams(policy.streams)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(policy.head.head_bytes)
            .header_table_size(HEADER_TABLE_BYTES)
            .max_send_buffer_size(SEND_BUFFER_BYTES)
            .enable_connect_protocol();
        Self {
            state: State::Handshake(builder.handshake(pipe.clone())),
            pipe,
            watch: Watch::new(now_ns),
            token,
            streams: Vec::new(),
            first_by_ns: now_ns.saturating_add(policy.head_time_ns),
            block_since: None,
            reason: None,
            fault: None,
            stirred: false,
            in_flight: bytes.charge(0),
            bytes,
            open,
            crowded: Vec::new(),
            leaving: None,
        }
    }

    /// Bytes arrived.
    pub(super) fn feed(&self, bytes: &[u8]) {
        self.pipe.feed(bytes);
    }

    /// No more bytes will arrive.
    pub(super) fn end_input(&self) {
        self.pipe.end_input();
    }

    /// Whether more bytes are wanted.
    pub(super) fn is_hungry(&self) -> bool {
        self.pipe.is_hungry()
    }

    /// Takes what is to be sent.
    pub(super) fn take_output(&mut self) -> Vec<u8> {
        let output = self.pipe.take_output();
        self.watch.sent(output.len() as u64);
        self.in_flight.set(output.capacity());
        output
    }

    /// The socket has taken all output.
    pub(super) fn output_sent(&mut self) {
        self.in_flight.set(0);
    }

    /// Whether it may open another stream: it holds no more than its share of streams and of bytes.
    pub(super) fn has_room(&self) -> bool {
        self.open.room() > 0 && self.bytes.room() > 0
    }

    /// Has a stream wait until the connection may hold more.
    pub(super) fn wait_for_room(&mut self, place: u32) {
        if !self.crowded.contains(&place) {
            self.crowded.push(place);
        }
    }

    /// Streams that waited for room, if there is some again.
    pub(super) fn take_crowded(&mut self) -> Vec<u32> {
        if self.crowded.is_empty() || self.bytes.room() < BYTES_LEAST {
            Vec::new()
        } else {
            std::mem::take(&mut self.crowded)
        }
    }

    /// Whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Goes on as far as it can.
    pub(super) fn poll(&mut self) -> Polled {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match &mut self.state {
                State::Handshake(handshake) => match Pin::new(handshake).poll(&mut context) {
                    Poll::Pending => return Polled::Quiet,
                    Poll::Ready(Ok(connection)) => {
                        self.state = State::Open(connection);
                        if let Some(reason) = self.leaving {
                            self.leave(reason);
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
    pub(super) fn leave(&mut self, reason: CloseReason) {
        self.leaving = Some(reason);
        if let State::Open(connection) = &mut self.state {
            connection.graceful_shutdown();
        }
    }

    /// Ends now: its last words are a GOAWAY.
    pub(super) fn stop(&mut self, goaway: Reason, reason: CloseReason) {
        self.reason.get_or_insert(reason);
        match &mut self.state {
            State::Open(connection) => connection.abrupt_shutdown(goaway),
            State::Handshake(_) | State::Over => self.state = State::Over,
        }
    }

    fn end(&mut self, error: Option<&h2::Error>) {
        self.state = State::Over;
        let Some(error) = error else {
            self.reason.get_or_insert(self.leaving.unwrap_or(CloseReason::PeerDone));
            return;
        };
        let ours = error.is_go_away() && error.is_library();
        if ours && self.reason.is_none() {
            self.fault = Some(fault(error.reason()));
        }
        self.reason.get_or_insert(match () {
            () if ours && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) => CloseReason::Flood,
            () if ours => CloseReason::Refused,
            () if error.is_go_away() => CloseReason::PeerDone,
            () => CloseReason::PeerAborted,
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
