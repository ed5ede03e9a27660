//! The last closes of a worker, with their reasons, for the list `closes`.
//!
//! Regular closes come by the thousand a second, and irregular ones are what an operator looks for. So each kind has its own
//! ring: a busy server keeps its irregular closes for as long as a quiet one.

use std::collections::VecDeque;

use encke_io::Token;
use encke_stats::{Cell, Row};

use super::row::{address, seconds};
use crate::close::{CloseOrigin, CloseReason};
use crate::core::Core;
use crate::peer::PackedPeer;

/// The columns of the list, in the order of display.
pub(super) const COLUMNS: &[&str] = &[
    "time_ms",
    "address",
    "protocol",
    "reason",
    "cause",
    "path",
    "requests",
    "age_s",
    "out_bytes",
    "worker",
];

/// Regular closes that a worker keeps. With [`IRREGULAR_MAX`] it keeps 256, in at most 24 KiB.
const REGULAR_MAX: usize = 64;
const IRREGULAR_MAX: usize = 192;

/// The last closes of a worker.
#[derive(Default)]
pub(crate) struct RecentCloses {
    regular: VecDeque<ClosedConn>,
    irregular: VecDeque<ClosedConn>,
}

/// A closed connection.
struct ClosedConn {
    unix_ns: u64,
    peer: PackedPeer,
    reason: CloseReason,
    protocol: &'static str,
    requests: u32,
    open: Option<Box<ListedRequest>>,
}

/// The request that was open when its connection closed irregularly.
struct ListedRequest {
    target: Option<String>,
    age_ns: Option<u64>,
    sent_bytes: Option<u64>,
}

impl RecentCloses {
    #[inline]
    fn push(&mut self, closed: ClosedConn) {
        let (ring, most) = match closed.reason.origin() {
            CloseOrigin::Nobody => (&mut self.regular, REGULAR_MAX),
            CloseOrigin::Peer | CloseOrigin::Us | CloseOrigin::System => (&mut self.irregular, IRREGULAR_MAX),
        };
        if ring.len() >= most {
            ring.pop_front();
        }
        ring.push_back(closed);
    }
}

impl Core {
    /// Records the close of a connection that is still open.
    pub(crate) fn note_close(&mut self, token: Token, reason: CloseReason) {
        let conn = &self.conns[token.index as usize];
        let closed = ClosedConn {
            unix_ns: self.now.unix_ns,
            peer: conn.peer,
            reason,
            protocol: self.protocol_of(token),
            requests: conn.requests,
            open: if reason.origin() == CloseOrigin::Nobody { None } else { self.open_request(token) },
        };
        self.recent_closes.push(closed);
    }

    fn open_request(&self, token: Token) -> Option<Box<ListedRequest>> {
        let open = ListedRequest {
            target: self.logged_target(token),
            age_ns: self.age_ns(token, None),
            sent_bytes: self.content_sent(token),
        };
        let is_known = open.target.is_some() || open.age_ns.is_some() || open.sent_bytes.is_some();
        is_known.then(|| Box::new(open))
    }

    /// Returns the rows of the list `closes`.
    pub(crate) fn close_rows(&self) -> Vec<Row> {
        let all = self.recent_closes.regular.iter().chain(&self.recent_closes.irregular);
        all.map(|closed| self.close_row(closed)).collect()
    }

    fn close_row(&self, closed: &ClosedConn) -> Row {
        let mut cells = vec![
            ("time_ms", Cell::Count(closed.unix_ns / 1_000_000)),
            ("address", Cell::Text(address(closed.peer.unpack()).into())),
            ("protocol", closed.protocol.into()),
            ("reason", closed.reason.sentence().trim_start().into()),
            ("cause", closed.reason.name().into()),
        ];
        if let Some(target) = closed.open.as_ref().and_then(|open| open.target.clone()) {
            cells.push(("path", Cell::Text(target.into())));
        }
        cells.push(("requests", Cell::Count(closed.requests.into())));
        if let Some(age_ns) = closed.open.as_ref().and_then(|open| open.age_ns) {
            cells.push(("age_s", seconds(age_ns)));
        }
        if let Some(bytes) = closed.open.as_ref().and_then(|open| open.sent_bytes) {
            cells.push(("out_bytes", Cell::Count(bytes)));
        }
        cells.push(("worker", Cell::Count(self.number as u64)));
        Row(cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_closes_displace_no_irregular_one() {
        let mut recent = RecentCloses::default();
        let mut push = |reason, times: usize| {
            for _ in 0..times {
                recent.push(ClosedConn {
                    unix_ns: 0,
                    peer: PackedPeer::NONE,
                    reason,
                    protocol: "http/1.1",
                    requests: 0,
                    open: None,
                });
            }
            (recent.regular.len(), recent.irregular.len())
        };
        assert_eq!(push(CloseReason::WriteRate, 3), (0, 3));
        assert_eq!(push(CloseReason::PeerDone, 10_000), (REGULAR_MAX, 3));
        assert_eq!(push(CloseReason::Operator, 10_000), (REGULAR_MAX, IRREGULAR_MAX));
    }

    #[test]
    fn the_rings_take_at_most_what_their_limit_says() {
        assert!(size_of::<ClosedConn>() * (REGULAR_MAX + IRREGULAR_MAX) <= 24 * 1024);
    }
}
