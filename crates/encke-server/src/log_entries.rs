//! The log entries of a worker's requests, from the request to the last byte of its response.
//!
//! ```text
//! begin_entry ─► Record, or WaitingEntry of a resident ─► end_entry: its response is in the output
//!                                                            │ flush: begin_flight
//!     write_entries, at the end of the turn ◄─ finish_entry ◄┴─ end_flight, cut_flight
//! ```
//! The end of the turn ends the duration: within a turn the worker reads no clock, and most responses leave in the turn that
//! received their requests. Without a log no entry exists, and no request has work here.

use encke_io::{Segment, Token};

use crate::close::CloseReason;
use crate::conn::{ADMIN, NONE};
use crate::core::Core;
use crate::exchange::ExchangeKey;
use crate::log::{LineEnd, LogEntry, LogFlight, LogLabel, LogNotes, PendingEntry, WaitingEntry};
use crate::record::{Asked, Record};
use crate::reply::{Fields, Reply};
use crate::request::Request;
use crate::request_id;

impl Core {
    #[inline]
    pub(crate) fn begin_entry(&mut self, token: Token, request: &Request<'_>) -> Option<Box<LogEntry>> {
        if self.log.is_on() { self.begin_labelled(token, request) } else { None }
    }

    #[inline(never)]
    fn begin_labelled(&mut self, token: Token, request: &Request<'_>) -> Option<Box<LogEntry>> {
        let admin = self.conns[token.index as usize].has(ADMIN);
        let handler = self.route(admin, request.path());
        let mounted = handler.and_then(|handler| self.handlers.get(usize::from(handler))?.as_ref());
        let label = mounted.map_or(LogLabel::default(), |mounted| mounted.handler.log_label(request));
        let open = self.open_ids.get(&token.index).map(|id| &**id);
        let ids = &mut self.request_ids;
        self.log.begin(request, label, open.or_else(|| request.given_id()), || ids.next())
    }

    /// Writes the response to a request while a log is on. A separate function keeps the path without a log short.
    #[inline(never)]
    pub(crate) fn put_logged(&mut self, token: Token, request: &Request<'_>, asked: Asked, reply: Reply) {
        let (status, reason) = (reply.status, reply.reason.copied());
        let entry = self.begin_entry(token, request);
        let (_, content) = self.put_reply(token, asked, true, reply);
        let reason = reason.or_else(|| self.cause(token));
        self.end_entry(entry, status, content, self.now.mono_ns, reason);
    }

    /// Stores the id of a request for its response: the id of a trusted proxy, or a new one.
    pub(crate) fn open_id(&mut self, token: Token, request: &Request<'_>) {
        let id = match request.given_id() {
            Some(given) => given.into(),
            None => {
                let number = self.request_ids.next();
                Box::from(request_id::id(&self.request_ids.prefix(), self.now.unix_ns, number))
            }
        };
        self.open_ids.insert(token.index, id);
    }

    /// Adds the id of a request to its response, if responses have ids.
    #[cold]
    pub(crate) fn put_id(&mut self, token: Token, fields: &mut Fields) {
        if let Some(id) = self.open_ids.remove(&token.index)
            && self.policy.request_id_header
        {
            fields.push("X-Request-Id", &id).expect("an id has only characters of a field value");
        }
    }

    /// Begins the log entry of a request that could not be parsed: only the peer is known.
    pub(crate) fn begin_refused_entry(&mut self, token: Token) -> Option<Box<LogEntry>> {
        let peer = self.conns[token.index as usize].peer.unpack();
        self.log.begin_refused(peer, self.now)
    }

    /// Records that the response of an entry is in the output.
    #[inline]
    pub(crate) fn end_entry(
        &mut self,
        entry: Option<Box<LogEntry>>,
        status: u16,
        content: u64,
        started_ns: u64,
        reason: Option<&'static str>,
    ) {
        if let Some(mut entry) = entry {
            entry.set_status(status);
            self.out_entries.push(PendingEntry { entry, content, started_ns, reason });
        }
    }

    /// Records that the response of an exchange is in the output.
    pub(crate) fn end_record_entry(&mut self, record: Record) {
        let Record { entry, sent_bytes: content, started_ns, reason, .. } = record;
        if let Some(entry) = entry {
            self.out_entries.push(PendingEntry { entry, content, started_ns, reason });
        }
    }

    /// Returns why a connection is about to end, unless its end is regular.
    pub(crate) fn cause(&self, token: Token) -> Option<&'static str> {
        self.conns[token.index as usize].reason.cause()
    }

    /// Removes and returns the log entry of a resident's connection. Without a log there is none, and no index is hashed.
    #[inline]
    pub(crate) fn take_waiting_entry(&mut self, token: Token) -> Option<WaitingEntry> {
        if self.entries.is_empty() { None } else { self.take_noted_entry(token) }
    }

    fn take_noted_entry(&mut self, token: Token) -> Option<WaitingEntry> {
        let mut waiting = self.entries.remove(&token.index)?;
        if let Some(notes) = waiting.notes.take() {
            self.log.note(&mut waiting.entry, &notes);
        }
        Some(waiting)
    }

    /// Adds the notes of a handler to the line of an exchange, and their reason.
    pub(crate) fn note(&mut self, key: ExchangeKey, notes: &LogNotes) {
        let Some(record) = self.records.get_mut(key.slot) else { return };
        if record.generation != key.generation {
            return;
        }
        record.reason = record.reason.or(notes.reason);
        if let Some(entry) = &mut record.entry {
            self.log.note(entry, notes);
        }
    }

    /// Logs the request of a resident's connection, once the output is sent.
    pub(crate) fn end_waiting_entry(
        &mut self,
        token: Token,
        status: u16,
        content: u64,
        reason: Option<&'static str>,
    ) {
        if let Some(waiting) = self.take_waiting_entry(token) {
            let reason = reason.or_else(|| self.cause(token));
            self.end_entry(Some(waiting.entry), status, content, waiting.started_ns, reason);
        }
    }

    /// Records that the head of a resident's response is in the output.
    pub(crate) fn begin_waiting_response(&mut self, token: Token, status: u16, head_bytes: usize) {
        if let Some(waiting) = self.entries.get_mut(&token.index) {
            waiting.entry.set_status(status);
            waiting.uncounted_bytes += head_bytes as u64;
        }
    }

    /// Counts bytes of a resident's connection that are about to be sent.
    pub(crate) fn count_waiting(&mut self, token: Token, bytes: u64) {
        if let Some(waiting) = self.entries.get_mut(&token.index) {
            let uncounted = std::mem::take(&mut waiting.uncounted_bytes);
            waiting.sent_bytes += bytes.saturating_sub(uncounted);
        }
    }

    /// Bytes of the output.
    pub(crate) fn output_bytes(&self) -> u64 {
        self.out.len() as u64 + self.segments.iter().map(Segment::len).sum::<u64>()
    }

    /// Moves the entries of the output to a flight, which ends with the send.
    pub(crate) fn begin_flight(&mut self) -> u32 {
        if self.out_entries.is_empty() {
            return NONE;
        }
        self.flights.insert(LogFlight { entries: std::mem::take(&mut self.out_entries) })
    }

    /// Finishes the entries of a send in flight whose connection closes because of `cause`. `unsent`: bytes that the client has
    /// not received, if they are known.
    pub(crate) fn cut_flight(&mut self, flight: u32, unsent: Option<u64>, cause: Option<&'static str>) {
        let Some(flight) = self.flights.remove(flight) else { return };
        let mut unsent = unsent.unwrap_or(u64::MAX);
        let first = self.ended_entries.len();
        // The last responses of a send are the unsent ones.
        for mut pending in flight.entries.into_iter().rev() {
            let cut = pending.content.min(unsent);
            pending.content -= cut;
            unsent -= cut;
            pending.reason = pending.reason.or(cause);
            self.ended_entries.push(pending);
        }
        self.ended_entries[first..].reverse();
    }

    /// Finishes the entries of a send that ended: completely (`sent: None`) or after `sent` bytes, because of `cause`.
    #[inline]
    pub(crate) fn end_flight(&mut self, flight: u32, sent: Option<u64>, cause: Option<&'static str>) {
        if flight != NONE {
            self.end_logged_flight(flight, sent, cause);
        }
    }

    #[inline(never)]
    fn end_logged_flight(&mut self, flight: u32, sent: Option<u64>, cause: Option<&'static str>) {
        let Some(flight) = self.flights.remove(flight) else { return };
        let mut left = sent.unwrap_or(u64::MAX);
        for mut pending in flight.entries {
            let whole = pending.content;
            pending.content = whole.min(left);
            left -= pending.content;
            if sent.is_some() {
                pending.reason = pending.reason.or(cause);
            }
            self.ended_entries.push(pending);
        }
    }

    /// Finishes entries whose responses were sent before.
    #[inline]
    pub(crate) fn finish_sent_entries(&mut self) {
        if !self.out_entries.is_empty() {
            self.ended_entries.append(&mut self.out_entries);
        }
    }

    /// Finishes the entries of responses that never leave the output.
    pub(crate) fn drop_out_entries(&mut self, cause: Option<&'static str>) {
        if self.out_entries.is_empty() {
            return;
        }
        for mut pending in self.out_entries.drain(..) {
            pending.content = 0;
            pending.reason = pending.reason.or(cause);
            self.ended_entries.push(pending);
        }
    }

    /// Finishes an entry, if there is one.
    pub(crate) fn finish_entry(
        &mut self,
        entry: Option<Box<LogEntry>>,
        content: u64,
        started_ns: u64,
        reason: Option<&'static str>,
    ) {
        if let Some(entry) = entry {
            self.ended_entries.push(PendingEntry { entry, content, started_ns, reason });
        }
    }

    /// Writes the lines of the responses that ended in this turn. `now_ns` is the present time on the monotonic clock.
    #[inline]
    pub(crate) fn write_entries(&mut self, now_ns: u64) {
        if !self.ended_entries.is_empty() {
            self.write_ended_entries(now_ns);
        }
    }

    #[inline(never)]
    fn write_ended_entries(&mut self, now_ns: u64) {
        for pending in self.ended_entries.drain(..) {
            let PendingEntry { entry, content, started_ns, reason } = pending;
            let duration_ns = now_ns.saturating_sub(started_ns);
            self.log.finish(entry, &LineEnd { sent_bytes: content, duration_ns, reason });
        }
    }
}

impl CloseReason {
    /// Returns the name of an irregular end, for the log.
    pub(crate) fn cause(self) -> Option<&'static str> {
        let regular = self.origin() == crate::close::CloseOrigin::Nobody;
        (!regular).then(|| self.name())
    }
}
