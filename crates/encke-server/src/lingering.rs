//! The end of a connection: after the last response this side is shut down, and input is read and dropped until the client ends its
//! side.
//!
//! Closing with unread input would reset the connection, and a reset may destroy the response before the client has read it (RFC 9112
//! §9.6). A client that sends the body of a valid request may read only after that, so it gets more bytes and time than others; if the
//! body has no end, as that of a live stream, only more bytes.

use encke_io::{Op, Token};

use crate::close::CloseReason;
use crate::conn::{ConnPhase, Duty, ENDLESS_BODY, LINGER, PAUSED, PEER_ENDED, RateWindow, UPLOADING};
use crate::conns::is_stream;
use crate::core::Core;
use crate::policy::{LINGER_BYTES_MAX, LINGER_WINDOWS_MAX};

impl Core {
    /// Ends a connection whose last response is sent.
    pub(crate) fn end(&mut self, token: Token) {
        let conn = &mut self.conns[token.index as usize];
        let may_send = !conn.has(PEER_ENDED) && (!is_stream(token) || self.http2.has_body_left(token));
        // More of such bytes may be on the way.
        let has_unread = conn.input.is_some();
        if !(conn.has(LINGER) || has_unread) || !may_send {
            let reason = conn.reason;
            self.close(token, reason, false);
            return;
        }
        // Some HTTP/2 clients also discard a response when its stream is reset after it, although RFC 9113 §8.1 permits that reset.
        if conn.duty.seat().is_some() {
            let reason = self.conns[token.index as usize].reason;
            self.leave_resident(token, reason);
        }
        let conn = &mut self.conns[token.index as usize];
        conn.phase = ConnPhase::Lingering;
        conn.window = RateWindow::Unmeasured;
        // A stream costs the client nothing: it need not send its whole body before it reads.
        if is_stream(token) {
            conn.flags &= !UPLOADING;
        }
        // A client that sends without end would use all of its time.
        let may_end = conn.has(UPLOADING) && !conn.has(ENDLESS_BODY);
        conn.duty = Duty::linger(if may_end { LINGER_WINDOWS_MAX } else { 0 });
        let paused = conn.has(PAUSED);
        conn.flags &= !PAUSED;
        let input = conn.input.take();
        self.ops.push((token, Op::Shutdown));
        if paused {
            self.ops.push((token, Op::Recv));
        }
        if let Some(input) = input {
            self.recycle_input(input);
        }
        self.set_deadline(token, self.policy.limits.linger_time.nanoseconds());
    }

    /// Drops bytes that a lingering connection has received.
    pub(crate) fn lingering_received(&mut self, token: Token, bytes: usize) {
        let linger_bytes = self.policy.limits.linger_bytes.bytes();
        let Some(conn) = self.conn(token) else { return };
        let most = if conn.has(UPLOADING) { linger_bytes } else { LINGER_BYTES_MAX };
        if conn.duty.drop_bytes(bytes) > most {
            // A flood that continues while lingering keeps its reason.
            let flood = conn.reason == CloseReason::Flood;
            let reason = if flood { CloseReason::Flood } else { CloseReason::LingerTime };
            self.close(token, reason, true);
        }
    }

    /// The time of a lingering connection has passed. `unsent` is the number of bytes that the peer has not received. While these are
    /// the rest of the response, the client must receive them as fast as during a send.
    pub(crate) fn lingering_overdue(&mut self, token: Token, unsent: u64) {
        let least = self.policy.window_bytes(self.policy.limits.write_rate.bytes_per_second());
        let Some(conn) = self.conn(token) else { return };
        if conn.duty.begin_window() {
            let period_ns = self.policy.limits.linger_time.nanoseconds();
            return self.set_deadline(token, period_ns);
        }
        // Also without a write rate a client that receives nothing is not waited for.
        let is_received = conn.window.taken(unsent).is_none_or(|taken| taken >= least.max(1));
        if unsent > 0 && is_received && !is_stream(token) {
            conn.window = RateWindow::begin(unsent);
            return self.set_deadline(token, self.policy.rate_window_ns);
        }
        let reason = match conn.reason {
            CloseReason::Answered => CloseReason::LingerTime,
            other => other,
        };
        self.close(token, reason, true);
    }
}
