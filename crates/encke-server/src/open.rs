//! Open responses: a handler fills the content of a response on its own worker, piece by piece.
//!
//! ```text
//! HandlerContext::respond(Body::Open) ─► head ─┐
//! HandlerContext::write ─► one copy into the buffer of the exchange ─ the callback has returned ─► fill_open ─► one send
//!     │ bytes that wait ≥ 64 KiB: the handler pauses its source                             │
//!     └◄── Handler::writable ◄── fewer than 64 KiB wait ◄── sent ◄──────────────────────────┘
//! HandlerContext::finish ─► the last chunk and trailers, the end of the stream or of the connection
//! HandlerContext::reset  ─► a reset        client gone before the end ─► Handler::gone
//! ```
//! **Without lock or message.** A handler writes through its context into a table that it shares with its worker
//! ([`OpenTable`](crate::open_table::OpenTable)); a write before the head of its response is out waits there. Pieces of one
//! callback leave in one send, together with the head if that belongs to the same callback. While a send is in flight
//! further pieces gather in the next buffer.
//!
//! **Framing** is that of the request: chunks, the end of the connection, or a stream of HTTP/2. With a length the content
//! needs none. A handler that writes more than the length, or finishes with less, has its connection reset: the client must
//! not take the content for whole. A response without content (HEAD, 204, 304) drops what is written, and ends with
//! `finish` like any other.
//!
//! **The body of the request** may still be arriving: `read_more` continues to ask for it until the response is finished.
//! Then the rest is handled as behind any other response.

use std::panic::{AssertUnwindSafe, catch_unwind};

use encke_io::{Segment, Token};
use encke_wire::http1;

use crate::close::CloseReason;
use crate::conn::{LAST, LINGER, SENDING};
use crate::core::Core;
use crate::exchange::ExchangeKey;
use crate::framing::FramingKind;
use crate::handler::Handler;
use crate::open_table::OpenEnd;
use crate::record::{Intake, Rest};

impl Core {
    /// Serves the open responses for which handlers have put something down.
    pub(crate) fn serve_open(&mut self) {
        loop {
            let touched = self.tray.open().next_touched();
            let Some((place, generation)) = touched else { return };
            let record = self.records.get(place).filter(|record| record.generation == generation);
            let token = match record {
                Some(record) if matches!(record.stream, Some(Rest::Open(_))) => record.token,
                // There is no response yet, or it waits for a send to end.
                Some(record) if !record.answered => continue,
                _ => {
                    self.close_open(place);
                    continue;
                }
            };
            if self.tray.open().is_reset(place) {
                self.reset_open(token, place);
            } else if !self.conns[token.index as usize].has(SENDING) {
                self.fill_open(token, place);
                self.go_on(token);
            }
        }
    }

    /// Forgets the open response of an exchange that is over.
    pub(crate) fn close_open(&mut self, place: u32) {
        let buffer = self.tray.open().close(place);
        self.buffers.give(buffer);
    }

    /// The head of an open response is in the output.
    pub(crate) fn begin_open(&mut self, token: Token, place: u32) {
        let Some(record) = self.records.get(place) else { return };
        let Some(Rest::Open(open)) = &record.stream else { return };
        let mute = open.mute;
        self.tray.open().begin((place, record.generation), mute);
        self.fill_open(token, place);
    }

    /// Puts what a handler has written into the output. Nothing is in flight.
    fn fill_open(&mut self, token: Token, place: u32) {
        let due = self.tray.open().take(place);
        let Some(record) = self.records.get_mut(place) else { return };
        let Some(Rest::Open(open)) = &mut record.stream else { return };
        let framing = record.asked.framing;
        let (mute, chunked) = (open.mute, framing == FramingKind::Chunked && open.left.is_none());
        let len = due.bytes.len() as u64;
        let mut breach = false;
        if let Some(left) = &mut open.left {
            breach = len > *left && !mute;
            *left = left.saturating_sub(len);
        }
        let short = !mute && open.left.is_some_and(|left| left > 0);
        let has_length = open.left.is_some();
        if breach {
            self.buffers.give(due.bytes);
            return self.close(token, CloseReason::BodyLength, true);
        }
        if len == 0 || mute {
            self.buffers.give(due.bytes);
        } else {
            record.sent_bytes += len;
            let mut bytes = due.bytes;
            if chunked {
                // The line before a chunk is written behind the head, or in a segment of its own: the content is not moved.
                http1::put_chunk_head(self.out.tail(&mut self.buffers), len);
                bytes.extend_from_slice(b"\r\n");
            }
            self.out_segment(Segment::Bytes(bytes));
        }
        match due.end {
            None => {}
            Some(OpenEnd::Reset) => self.reset_open(token, place),
            Some(OpenEnd::Finish(_)) if short => {
                // Its handler is done with it, and needs no notice.
                self.forget_rest(place);
                self.close(token, CloseReason::BodyLength, true);
            }
            Some(OpenEnd::Finish(trailers)) => {
                self.forget_rest(place);
                if !mute && !has_length {
                    self.finish(token, framing, &trailers);
                }
                self.drop_body(token, place);
                self.end_exchange_if_over(token, place);
            }
        }
    }

    /// A send of a connection with an open response has ended.
    pub(crate) fn open_sent(&mut self, token: Token, place: u32) {
        self.tray.open().sent(place);
        self.fill_open(token, place);
        if let Some(record) = self.records.get(place)
            && matches!(record.stream, Some(Rest::Open(_)))
        {
            let (handler, key) = (record.handler, record.key(place));
            if let Intake::Wanted(_) | Intake::Discard(_) = record.intake {
                let left_ns = record.rate_left_ns;
                self.set_deadline(token, left_ns);
            }
            if self.tray.open().has_room_again(place) {
                self.call_handler(handler, key, |handler| handler.writable(key));
            }
        }
    }

    /// The content cannot be continued: only a reset tells the client.
    fn reset_open(&mut self, token: Token, place: u32) {
        self.forget_rest(place);
        self.close(token, CloseReason::StreamFailed, true);
    }

    /// The handler is done with an open response: no notice of it follows.
    fn forget_rest(&mut self, place: u32) {
        if let Some(record) = self.records.get_mut(place) {
            record.stream = None;
        }
        self.close_open(place);
    }

    /// A response is complete: what is left of the request's body is read and dropped if it is short, otherwise the
    /// connection closes.
    fn drop_body(&mut self, token: Token, place: u32) {
        let Some(record) = self.records.get_mut(place) else { return };
        let unsafe_to_go_on = record.discard_body();
        if unsafe_to_go_on {
            record.intake = Intake::Done;
            self.conns[token.index as usize].flags |= LAST | LINGER;
        } else if !record.intake.is_done() {
            self.begin_rate_window(token, place);
        }
    }

    /// Calls the handler of an exchange; a panic resets the connection.
    pub(crate) fn call_handler(
        &mut self,
        handler: u16,
        key: ExchangeKey,
        call: impl FnOnce(&mut dyn Handler),
    ) {
        let Some(Some(mounted)) = self.handlers.get_mut(usize::from(handler)) else { return };
        if catch_unwind(AssertUnwindSafe(|| call(&mut *mounted.handler))).is_ok() {
            return;
        }
        self.metrics.handler_panics.add(1);
        let record = self.records.get(key.slot).filter(|record| record.generation == key.generation);
        if let Some(token) = record.map(|record| record.token) {
            self.forget_rest(key.slot);
            self.close(token, CloseReason::HandlerPanic, true);
        }
    }
}
