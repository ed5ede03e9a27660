//! The record of an open exchange: a request that outlives the call of its handler.
//!
//! ```text
//! request's body   None ─────────────────────────────────────────────► Done
//!                  Unread ─read_more─► Wanted ─piece─► Unread … last ─► Done
//!                  Unread or Wanted ─response─► Discard ──────────────► Done (or the connection is closed)
//! response         open ─► (reply waits for a send) ─► streaming ─► sent
//! ```
//! The exchange ends when the response is sent and the body is done.

use encke_io::Token;
use encke_wire::http1::{ChunkedDecoder, Framing};

use crate::conns::is_stream;
use crate::end_token::EndToken;
use crate::exchange::ExchangeKey;
use crate::framing::FramingKind;
use crate::held::HeldRequest;
use crate::log::LogEntry;
use crate::policy::DISCARD_BYTES_MAX;
use crate::reply::{Body, Pull, Reply};
use crate::takeover::Takeover;

/// An exchange that outlives the call of its handler.
pub(crate) struct Record {
    pub(crate) token: Token,
    pub(crate) generation: u32,
    /// The request's HTTP/2 stream; 0 in HTTP/1.
    pub(crate) stream_id: u32,
    /// Number of the handler that was called.
    pub(crate) handler: u16,
    pub(crate) asked: Asked,
    pub(crate) intake: Intake,
    /// Whether the handler was notified of the body's end.
    pub(crate) end_told: bool,
    /// Whether the body may be of any length.
    pub(crate) is_endless: bool,
    /// Bytes of the request's body so far.
    pub(crate) body_seen: u64,
    /// Remaining time of the current rate window, in ns; it elapses only while the body is read.
    pub(crate) rate_left_ns: u64,
    /// `body_seen` at the start of that window.
    pub(crate) rate_seen: u64,
    pub(crate) answered: bool,
    /// Whether the handler knows that the client has ended its side.
    pub(crate) half_closed: bool,
    /// A response given while a send was in flight.
    pub(crate) reply: Option<Box<Reply>>,
    /// A takeover requested while a send was in flight.
    pub(crate) takeover: Option<Box<Takeover>>,
    /// Values of guards that are dropped at the end of the request.
    pub(crate) until_end: Option<Box<[EndToken]>>,
    /// The request, while a guard holds it.
    pub(crate) held: Option<Box<HeldRequest>>,
    pub(crate) stream: Option<ResponseRest>,
    pub(crate) entry: Option<Box<LogEntry>>,
    /// The reason of a refusal, for the log.
    pub(crate) reason: Option<&'static str>,
    /// Bytes of the response's content sent so far.
    pub(crate) sent_bytes: u64,
    pub(crate) started_ns: u64,
}

impl Record {
    /// Starts to read and drop the rest of the body. Returns true if it is too long or may never arrive; the connection must
    /// then close.
    pub(crate) fn discard_body(&mut self) -> bool {
        let (Intake::Unread(decoder) | Intake::Wanted(decoder) | Intake::Discard(decoder)) = self.intake
        else {
            return false;
        };
        self.intake = Intake::Discard(decoder);
        // From now on it counts dropped bytes.
        self.body_seen = 0;
        let short = match decoder {
            BodyDecoder::Length(left) => left <= DISCARD_BYTES_MAX,
            BodyDecoder::Chunked(_) => true,
        };
        // An HTTP/2 stream carries no further request, so the rest need not be read.
        !short || self.asked.awaits_continue || self.asked.framing == FramingKind::Http2
    }

    /// Whether the handler still reads the body.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.intake, Intake::Unread(_) | Intake::Wanted(_)) && self.is_unfinished()
    }

    /// Whether the handler has not responded, or still writes the response.
    pub(crate) fn is_unfinished(&self) -> bool {
        match &self.reply {
            Some(reply) => matches!(reply.body, Body::Open(_)),
            None if self.answered => matches!(self.stream, Some(ResponseRest::Open(_))),
            None => self.takeover.is_none(),
        }
    }

    /// Whether the response has no length, for a request that is complete. It may rest for any time; a pulled one rests now.
    pub(crate) fn is_endless(&self) -> bool {
        let is_open = match &self.stream {
            Some(ResponseRest::Open(WrittenRest { left, .. })) => left.is_none(),
            Some(ResponseRest::Pull(PulledRest { pending, .. })) => *pending,
            _ => false,
        };
        is_open && self.intake.is_done()
    }

    /// Whether the handler has not responded to a complete request, and does not know that the client has ended its side.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_unfinished()
            && !self.answered
            && self.reply.is_none()
            && self.intake.is_done()
            && self.held.is_none()
            && !self.half_closed
    }

    /// Returns the exchange's key; `slot` is the record's index.
    pub(crate) fn key(&self, slot: u32) -> ExchangeKey {
        ExchangeKey { slot, generation: self.generation, stream: self.stream_id }
    }
}

/// The properties of a request that decide how the response is framed.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// How content of the response is framed.
    pub framing: FramingKind,
    /// The method is HEAD: the response has no content.
    pub head_only: bool,
    /// The connection stays open after the response.
    pub keep: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub(crate) awaits_continue: bool,
}

impl Asked {
    /// Returns the properties of a request that was not read: its response is the last of the connection.
    pub fn unread(token: Token) -> Self {
        let framing = if is_stream(token) { FramingKind::Http2 } else { FramingKind::Chunked };
        Self { framing, head_only: false, keep: false, awaits_continue: false }
    }
}

/// State of the request's body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Intake {
    /// The request has no body, or it is complete.
    Done,
    /// The handler has not requested the next piece.
    Unread(BodyDecoder),
    /// The handler has requested the next piece.
    Wanted(BodyDecoder),
    /// The rest of the body is read and dropped.
    Discard(BodyDecoder),
}

/// The framing of the body, which determines its end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BodyDecoder {
    Length(u64),
    Chunked(ChunkedDecoder),
}

impl Intake {
    pub(crate) fn new(framing: Framing) -> Self {
        match framing {
            Framing::None | Framing::Length(0) => Self::Done,
            Framing::Length(length) => Self::Unread(BodyDecoder::Length(length)),
            Framing::Chunked => Self::Unread(BodyDecoder::Chunked(ChunkedDecoder::new())),
        }
    }

    pub(crate) fn is_done(self) -> bool {
        matches!(self, Self::Done)
    }
}

/// The rest of a response whose head is sent.
pub(crate) enum ResponseRest {
    Pull(PulledRest),
    Open(WrittenRest),
}

/// The rest of a response that its handler writes.
pub(crate) struct WrittenRest {
    /// Remaining bytes of the declared length, if there is one.
    pub(crate) left: Option<u64>,
    /// The response has no content: to HEAD, or with status 204 or 304.
    pub(crate) mute: bool,
}

/// The rest of a response that the worker pulls.
pub(crate) struct PulledRest {
    pub(crate) pull: Box<dyn Pull>,
    /// The last pull returned no data.
    pub(crate) pending: bool,
}
