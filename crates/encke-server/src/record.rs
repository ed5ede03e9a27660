//! An open exchange: what a worker remembers of a request that is not done yet.
//!
//! ```text
//! request's body   None ─────────────────────────────────────────────► Done
//!                  Unread ─read_more─► Wanted ─piece─► Unread … last ─► Done
//!                  Unread or Wanted ─answered─► Discard ──────────────► Done (or the connection is closed)
//! answer           unanswered ─► (reply waits for a send) ─► streaming ─► answered
//! ```
//! The exchange ends when the answer is out and the body is done.

use encke_io::Token;
use encke_wire::http1::{ChunkedDecoder, Framing};

use crate::conns::is_stream;
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
    /// The stream it came on; 0 in HTTP/1.
    pub(crate) stream_id: u32,
    /// Which of the worker's handlers was called.
    pub(crate) handler: u16,
    pub(crate) asked: Asked,
    pub(crate) intake: Intake,
    /// The handler was told of the body's end.
    pub(crate) end_told: bool,
    /// Bytes of the request's body so far.
    pub(crate) body_seen: u64,
    /// What of the present rate window is left, in ns; it passes only while the body is read.
    pub(crate) rate_left_ns: u64,
    /// `body_seen` when that window began.
    pub(crate) rate_seen: u64,
    pub(crate) answered: bool,
    /// An answer that came while a send was in flight.
    pub(crate) reply: Option<Box<Reply>>,
    /// … and a takeover that did.
    pub(crate) takeover: Option<Box<Takeover>>,
    /// The request, while it waits for a guard.
    pub(crate) held: Option<Box<HeldRequest>>,
    pub(crate) stream: Option<ResponseRest>,
    pub(crate) entry: Option<Box<LogEntry>>,
    /// Bytes of the answer's content so far.
    pub(crate) sent_bytes: u64,
    pub(crate) started_ns: u64,
}

impl Record {
    /// The rest of the body is to be read and dropped, if it is short and certain to come. True if it is not: then the
    /// connection cannot go on.
    pub(crate) fn discard_body(&mut self) -> bool {
        let (Intake::Unread(decoder) | Intake::Wanted(decoder) | Intake::Discard(decoder)) = self.intake
        else {
            return false;
        };
        self.intake = Intake::Discard(decoder);
        // From here on it counts what is dropped.
        self.body_seen = 0;
        let short = match decoder {
            BodyDecoder::Length(left) => left <= DISCARD_BYTES_MAX,
            BodyDecoder::Chunked(_) => true,
        };
        // A stream has no next request, so that nothing of it needs to be read to go on.
        !short || self.asked.awaits_continue || self.asked.framing == FramingKind::Http2
    }

    /// Whether its handler still reads the body.
    pub(crate) fn is_read(&self) -> bool {
        let reads = matches!(self.intake, Intake::Unread(_) | Intake::Wanted(_));
        reads && (!self.answered || matches!(self.stream, Some(ResponseRest::Open(_))))
    }

    /// Whether its handler has not responded, or still writes the response.
    pub(crate) fn is_unfinished(&self) -> bool {
        match &self.reply {
            Some(reply) => matches!(reply.body, Body::Open(_)),
            None if self.answered => matches!(self.stream, Some(ResponseRest::Open(_))),
            None => self.takeover.is_none(),
        }
    }

    /// Its name, if it is at `slot`.
    pub(crate) fn key(&self, slot: u32) -> ExchangeKey {
        ExchangeKey { slot, generation: self.generation, stream: self.stream_id }
    }
}

/// What of a request decides how its answer is framed.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// How content of the response is framed.
    pub framing: FramingKind,
    /// HEAD: no content.
    pub head_only: bool,
    /// The connection may go on afterwards.
    pub keep: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub(crate) awaits_continue: bool,
}

impl Asked {
    /// For a request that was not read: its response is the last of the connection.
    pub fn unread(token: Token) -> Self {
        let framing = if is_stream(token) { FramingKind::Http2 } else { FramingKind::Chunked };
        Self { framing, head_only: false, keep: false, awaits_continue: false }
    }
}

/// Where the request's body stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Intake {
    /// There is none, or it is whole.
    Done,
    /// The handler has not asked for more.
    Unread(BodyDecoder),
    /// The handler has asked.
    Wanted(BodyDecoder),
    /// Nobody wants it.
    Discard(BodyDecoder),
}

/// How the body's end is found.
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

/// What is left of a response whose head is out.
pub(crate) enum ResponseRest {
    Pull(PulledRest),
    Open(WrittenRest),
}

/// The rest of a response that its handler writes.
pub(crate) struct WrittenRest {
    /// Of its length, if it has one.
    pub(crate) left: Option<u64>,
    /// It has no content: a response to HEAD, 204, 304.
    pub(crate) mute: bool,
}

/// The rest of an answer that is pulled.
pub(crate) struct PulledRest {
    pub(crate) pull: Box<dyn Pull>,
    /// It had nothing when last asked.
    pub(crate) pending: bool,
}
