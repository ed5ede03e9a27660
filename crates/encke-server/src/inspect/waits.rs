//! The cause for which a connection waits, in words, with its duration.
//!
//! A slot stores deadlines and no start times. A phase's start is its deadline less the limit that has set it, which is exact
//! unless a reload has changed the limit since.

use encke_io::{StreamFacts, Token};

use super::ConnDescription;
use crate::conn::{Conn, ConnPhase, PEER_ENDED, SENDING};
use crate::conns::is_stream;
use crate::core::Core;
use crate::record::{Intake, Record, ResponseRest};
use crate::transport::MaybeTls;

/// The kernel's facts about a connection, and the number of bytes that its client has not received.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelView {
    pub(super) unsent_bytes: u64,
    pub(super) facts: StreamFacts,
}

/// Minimum silence of a slow client, in ms: some round trips of the slowest networks.
const SLOW_MS: u64 = 1_000;

impl Core {
    /// Returns the connection's phase, as one word or two.
    pub(super) fn state_of(&self, token: Token) -> &'static str {
        let conn = &self.conns[token.index as usize];
        match conn.phase {
            ConnPhase::Proxy => "proxy header",
            ConnPhase::Handshake => "tls handshake",
            ConnPhase::Idle if conn.has(SENDING) => "response",
            ConnPhase::Idle => "idle",
            ConnPhase::Head => "request head",
            ConnPhase::Open => match self.record_of(conn) {
                Some(record) if record.answered => "response",
                Some(record) if matches!(record.intake, Intake::Wanted(_)) => "request body",
                _ => "request",
            },
            ConnPhase::Resident if self.is_tunnel(conn) => "tunnel",
            ConnPhase::Resident => "stream",
            ConnPhase::Http2 => "http2",
            ConnPhase::Upstream => "upstream",
            ConnPhase::Lingering => "end",
            ConnPhase::Vacant | ConnPhase::Closing => "closed",
        }
    }

    pub(super) fn record_of(&self, conn: &Conn) -> Option<&Record> {
        self.records.get(conn.duty.as_exchange()?)
    }

    pub(crate) fn is_tunnel(&self, conn: &Conn) -> bool {
        conn.duty.seat().is_some_and(|seat| self.residents.is_tunnel(seat))
    }

    /// Returns the time since the present phase began, in ns, if the engine has set the phase's deadline.
    pub(super) fn phase_ns(&self, token: Token) -> Option<u64> {
        self.phase_of(&self.conns[token.index as usize])
    }

    /// Returns the time since the present phase of a connection began, as [`Core::phase_ns`] does.
    pub(super) fn phase_of(&self, conn: &Conn) -> Option<u64> {
        let limits = &self.policy.limits;
        let period_ns = match conn.phase {
            _ if conn.has(SENDING) => self.policy.rate_window_ns,
            ConnPhase::Idle if conn.requests > 0 => self.rest_ns,
            ConnPhase::Idle | ConnPhase::Head | ConnPhase::Proxy => limits.head_time.nanoseconds(),
            ConnPhase::Handshake => limits.handshake_time.nanoseconds(),
            ConnPhase::Lingering => limits.linger_time.nanoseconds(),
            ConnPhase::Open => {
                return self.record_of(conn).map(|record| self.now.mono_ns.saturating_sub(record.started_ns));
            }
            ConnPhase::Http2 if self.http2.open_streams(conn) == Some(0) && conn.requests > 0 => self.rest_ns,
            ConnPhase::Http2 if self.http2.open_streams(conn) == Some(0) => limits.head_time.nanoseconds(),
            _ => return None,
        };
        let left_ns = conn.deadline_ns.saturating_sub(self.now.mono_ns);
        // `u64::MAX`: no deadline.
        (conn.deadline_ns != u64::MAX).then(|| period_ns.saturating_sub(left_ns))
    }

    /// Returns the age of a connection in ns, if it can be derived: for TLS, and until the end of the first request.
    pub(super) fn age_ns(&self, token: Token, since_ns: Option<u64>) -> Option<u64> {
        let conn = &self.conns[token.index as usize];
        let now_ns = self.now.mono_ns;
        if let MaybeTls::Tls(tls) = &conn.transport {
            let began_ns =
                tls.handshake_ends_ns.saturating_sub(self.policy.limits.handshake_time.nanoseconds());
            return Some(now_ns.saturating_sub(began_ns));
        }
        match conn.phase {
            ConnPhase::Idle | ConnPhase::Head | ConnPhase::Proxy
                if conn.requests == 0 && !conn.has(SENDING) && !is_stream(token) =>
            {
                self.phase_ns(token)
            }
            ConnPhase::Http2 => self.http2.began_ns(conn, &self.policy).map(|at| now_ns.saturating_sub(at)),
            ConnPhase::Open if conn.requests == 1 => self.phase_of_exchange_ns(conn),
            ConnPhase::Resident if conn.requests == 1 => {
                let since_ns = since_ns.or_else(|| Some(self.entries.get(&token.index)?.started_ns));
                since_ns.map(|at| now_ns.saturating_sub(at))
            }
            _ => None,
        }
    }

    fn phase_of_exchange_ns(&self, conn: &Conn) -> Option<u64> {
        self.record_of(conn).map(|record| self.now.mono_ns.saturating_sub(record.started_ns))
    }

    /// Says what a connection waits for.
    pub(super) fn waits_for(
        &self,
        token: Token,
        known: &ConnDescription,
        kernel: Option<&KernelView>,
    ) -> String {
        let conn = &self.conns[token.index as usize];
        if let Some(slow) = kernel.and_then(|kernel| self.slow_client(token, kernel)) {
            return slow;
        }
        let limits = &self.policy.limits;
        let time = self.phase_ns(token).map(span).unwrap_or_default();
        let text = match conn.phase {
            ConnPhase::Idle if conn.has(SENDING) => "the client receives the response".to_owned(),
            ConnPhase::Idle if conn.requests > 0 && self.draining() => {
                format!("no request for {time} (closes soon: the server is draining)")
            }
            ConnPhase::Idle if conn.requests > 0 => {
                format!("no request for {time} (closes after {}, limits.idle_time)", span(self.rest_ns))
            }
            ConnPhase::Idle => {
                let most = span(limits.head_time.nanoseconds());
                format!(
                    "no request since the connection began {time} ago (closes after {most}, limits.head_time)"
                )
            }
            ConnPhase::Head => {
                let bytes = conn.input.as_ref().map_or(0, |input| input.bytes.len());
                let most = span(limits.head_time.nanoseconds());
                format!(
                    "reads the request head for {time}: {bytes} bytes so far (closes after {most}, limits.head_time)"
                )
            }
            ConnPhase::Proxy => {
                format!(
                    "PROXY header for {time} (closes after {}, limits.head_time)",
                    span(limits.head_time.nanoseconds())
                )
            }
            ConnPhase::Handshake => {
                let most = span(limits.handshake_time.nanoseconds());
                format!("TLS handshake for {time} (closes after {most}, limits.handshake_time)")
            }
            ConnPhase::Lingering => {
                let most = span(limits.linger_time.nanoseconds());
                format!(
                    "the last response is sent; the client has not closed for {time} (closes after {most}, limits.linger_time)"
                )
            }
            ConnPhase::Open => match (self.record_of(conn), &known.waits) {
                (Some(record), waits) => self.exchange_waits(record, waits.as_deref(), &time),
                (None, Some(waits)) => waits.clone(),
                (None, None) => "the client receives the response".to_owned(),
            },
            ConnPhase::Resident => match &known.waits {
                Some(waits) => waits.clone(),
                None if conn.has(SENDING) => "the client receives data".to_owned(),
                None => "nothing to send".to_owned(),
            },
            ConnPhase::Http2 => match self.http2.open_streams(conn) {
                Some(0) if conn.requests == 0 => {
                    let most = span(limits.head_time.nanoseconds());
                    format!(
                        "no request since the connection began {time} ago (closes after {most}, limits.head_time)"
                    )
                }
                Some(0) => {
                    format!("no request for {time} (closes after {}, limits.idle_time)", span(self.rest_ns))
                }
                Some(1) => "1 open stream".to_owned(),
                Some(count) => format!("{count} open streams"),
                None => "the last streams end".to_owned(),
            },
            ConnPhase::Upstream | ConnPhase::Vacant | ConnPhase::Closing => String::new(),
        };
        let has_left = conn.has(PEER_ENDED) && matches!(conn.phase, ConnPhase::Open | ConnPhase::Resident);
        if has_left { format!("{text}; the client has ended its side") } else { text }
    }

    /// Says that a client does not read, if bytes wait for it and none has left for a second.
    fn slow_client(&self, token: Token, kernel: &KernelView) -> Option<String> {
        let conn = &self.conns[token.index as usize];
        let bytes = kernel.unsent_bytes;
        if bytes == 0 {
            return None;
        }
        let since_ms = match kernel.facts.tcp {
            Some(tcp) => u64::from(tcp.since_sent_ms),
            // Nothing was taken in the present rate window.
            None if conn.has(SENDING) && conn.window.taken(bytes).is_none_or(|taken| taken == 0) => {
                self.phase_ns(token)? / 1_000_000
            }
            None => return None,
        };
        let time = span(since_ms * 1_000_000);
        (since_ms >= SLOW_MS)
            .then(|| format!("slow: the client has read nothing for {time}; {bytes} bytes wait"))
    }

    /// Says what an open exchange waits for. `waits` are the handler's own words.
    fn exchange_waits(&self, record: &Record, waits: Option<&str>, time: &str) -> String {
        if record.held.is_some() {
            return format!("waits for a guard to decide, for {time}");
        }
        if record.reply.is_some() || record.takeover.is_some() {
            return "the response waits until the one before it is sent".to_owned();
        }
        if !record.answered {
            if let Some(waits) = waits {
                return format!("{waits}, for {time}");
            }
            let bytes = record.body_seen;
            return match record.intake {
                Intake::Wanted(_) => {
                    format!("the client sends the request body: {bytes} bytes so far, in {time}")
                }
                Intake::Unread(_) => {
                    format!(
                        "waits for the handler, which reads no more of the request body, for {time}: {bytes} bytes so far"
                    )
                }
                Intake::Done | Intake::Discard(_) => format!("waits for the handler for {time}"),
            };
        }
        let bytes = record.sent_bytes;
        match (&record.stream, waits) {
            (Some(_), Some(waits)) => format!("{waits}, for {time}"),
            (Some(ResponseRest::Pull(rest)), None) if rest.pending => {
                format!("the source of the response has no data: {bytes} bytes so far, in {time}")
            }
            (Some(ResponseRest::Pull(_)), None) => {
                format!("sends the response: {bytes} bytes so far, in {time}")
            }
            (Some(ResponseRest::Open(_)), None) => {
                format!("the handler writes the response: {bytes} bytes so far, in {time}")
            }
            (None, _) if record.intake.is_done() => "the client receives the response".to_owned(),
            (None, _) => "drops the rest of the request body".to_owned(),
        }
    }
}

/// Returns a time in words, in the unit that a person would use.
fn span(ns: u64) -> String {
    let ms = ns / 1_000_000;
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_unit_that_a_person_would_use() {
        for (ms, words) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (75_999, "75 s"),
            (120_000, "2 min"),
            (7_199_999, "119 min"),
            (7_200_000, "2 h"),
        ] {
            assert_eq!(span(ms * 1_000_000), words);
        }
    }
}
