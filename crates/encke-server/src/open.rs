//! Open responses: a handler writes the content of a response on its own worker, piece by piece.
//!
//! ```text
//! HandlerContext::respond(Body::Open) ─► head ─┐
//! HandlerContext::write ─► one copy into the buffer of the exchange ─ the callback has returned ─► fill_open ─► one send
//!     │ bytes that wait ≥ 64 KiB, at first 8: the handler pauses its source                 │
//!     └◄── Handler::writable ◄── fewer wait ◄── sent ◄──────────────────────────────────────┘
//! HandlerContext::finish ─► the last chunk and trailers, the end of the stream or of the connection
//! HandlerContext::reset  ─► a reset        client gone before the end ─► Handler::gone
//! ```
//! **No lock and no message.** A handler writes through its context into a table that it shares with its worker
//! ([`OpenTable`](crate::open_table::OpenTable)). Bytes written before the response's head wait there. The pieces of one
//! callback leave in one send, together with the head if that belongs to the same callback. While a send is in flight, further
//! pieces collect in the next buffer.
//!
//! **Framing** follows the request: chunks, the end of the connection, or an HTTP/2 stream. Content with a length needs none.
//! If a handler writes more than the length, or finishes with less, its connection is reset, so that the client does not
//! mistake the content for complete. A response without content (HEAD, 204, 304) drops written bytes, and ends with `finish`
//! like any other.
//!
//! **The body of the request** may still be arriving: `read_more` continues to read it until the response is finished. The rest
//! is then handled as after any other response.

use std::panic::{AssertUnwindSafe, catch_unwind};

use encke_io::{Segment, Token};
use encke_wire::http1;

use crate::close::CloseReason;
use crate::conn::{LAST, LINGER, SENDING, UPLOADING};
use crate::conns::is_stream;
use crate::core::Core;
use crate::exchange::ExchangeKey;
use crate::framing::FramingKind;
use crate::handler::Handler;
use crate::open_table::OpenEnd;
use crate::record::{Intake, ResponseRest};

/// Content up to this size in bytes is appended to the head, because a send of one segment is cheaper than a send of two.
const COPIED_BYTES_MAX: usize = 4 * 1024;

impl Core {
    /// Serves the open responses that handlers have written to, finished or reset.
    pub(crate) fn serve_open(&mut self) {
        loop {
            let touched = self.handler_requests.open().next_touched();
            let Some((place, generation)) = touched else { return };
            let record = self.records.get(place).filter(|record| record.generation == generation);
            let token = match record {
                Some(record) if matches!(record.stream, Some(ResponseRest::Open(_))) => record.token,
                // The response has not begun, or waits for a send to end.
                Some(record) if !record.answered => continue,
                _ => {
                    self.close_open(place);
                    continue;
                }
            };
            if self.handler_requests.open().is_reset(place) {
                self.reset_open(token, place);
            } else if !self.conns[token.index as usize].has(SENDING) {
                self.fill_open(token, place);
                self.go_on(token);
            } else if is_stream(token) {
                let waiting = self.handler_requests.open().waiting_memory(place);
                self.http2.charge_waiting(token, waiting);
            }
        }
    }

    /// Releases the open response of an exchange that is over.
    pub(crate) fn close_open(&mut self, place: u32) {
        let buffer = self.handler_requests.open().close(place);
        self.buffers.give(buffer);
    }

    /// Begins to fill an open response, after its head.
    pub(crate) fn begin_open(&mut self, token: Token, place: u32) {
        let Some(record) = self.records.get(place) else { return };
        let Some(ResponseRest::Open(open)) = &record.stream else { return };
        let mute = open.mute;
        self.handler_requests.open().begin((place, record.generation), mute);
        self.fill_open(token, place);
    }

    /// Moves the bytes that a handler wrote to the output. No send is in flight.
    fn fill_open(&mut self, token: Token, place: u32) {
        let due = self.handler_requests.open().take(place);
        let Some(record) = self.records.get_mut(place) else { return };
        let Some(ResponseRest::Open(open)) = &mut record.stream else { return };
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
                // The chunk's size line follows the head, or is a separate segment, so that the content is not moved.
                http1::put_chunk_head(self.out.tail(&mut self.buffers), len);
                bytes.extend_from_slice(b"\r\n");
            }
            if bytes.len() <= COPIED_BYTES_MAX && self.out.len() > 0 {
                self.out.tail(&mut self.buffers).extend_from_slice(&bytes);
                self.buffers.give(bytes);
            } else {
                self.out_segment(Segment::Bytes(bytes));
            }
        }
        match due.end {
            None => {}
            Some(OpenEnd::Reset) => self.reset_open(token, place),
            Some(OpenEnd::Finish(_)) if short => {
                // The handler has finished, and needs no notification.
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

    /// Handles a completed send of a connection with an open response.
    pub(crate) fn open_sent(&mut self, token: Token, place: u32) {
        self.handler_requests.open().sent(place);
        self.fill_open(token, place);
        if let Some(record) = self.records.get(place)
            && matches!(record.stream, Some(ResponseRest::Open(_)))
        {
            let (handler, key) = (record.handler, record.key(place));
            if let Intake::Wanted(_) | Intake::Discard(_) = record.intake {
                let left_ns = record.rate_left_ns;
                self.set_deadline(token, left_ns);
            }
            if self.handler_requests.open().has_room_again(place) && !self.http2.is_held(token) {
                self.call_handler(handler, key, |handler| handler.writable(key));
            }
        }
    }

    /// Resets the connection: its content cannot be completed, and only a reset shows this to the client.
    fn reset_open(&mut self, token: Token, place: u32) {
        self.forget_rest(place);
        self.close(token, CloseReason::StreamFailed, true);
    }

    /// Detaches the handler from its open response: it receives no further notification of it.
    fn forget_rest(&mut self, place: u32) {
        if let Some(record) = self.records.get_mut(place) {
            record.stream = None;
        }
        self.close_open(place);
    }

    /// Handles the rest of a request's body after a complete response: a short rest is read and dropped, otherwise the
    /// connection closes.
    fn drop_body(&mut self, token: Token, place: u32) {
        let Some(record) = self.records.get_mut(place) else { return };
        let unsafe_to_go_on = record.discard_body();
        if unsafe_to_go_on {
            record.intake = Intake::Done;
            self.conns[token.index as usize].flags |= LAST | LINGER | UPLOADING;
        } else if !record.intake.is_done() {
            self.begin_rate_window(token, place);
        }
    }

    /// Calls a handler that was woken from any thread.
    pub(crate) fn wake_handler(&mut self, number: u16) {
        let Some(Some(mounted)) = self.handlers.get_mut(usize::from(number)) else { return };
        if catch_unwind(AssertUnwindSafe(|| mounted.handler.woken())).is_err() {
            self.metrics.handler_panics.add(1);
        }
    }

    /// Calls the handler of an exchange. A panic resets the connection.
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
