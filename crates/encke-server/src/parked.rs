//! The record of an idle connection: all that another process would need to continue it.
//!
//! A connection that waits for a request consists of its descriptor and these bytes, so it could be handed over. The simulation
//! turns connections into records and back at random, to keep this true. The record has a version: a process that does not know
//! the version closes the connection, as it may close any idle one.
//!
//! A resident adds its own state to the records of its connections ([`Resident::park`]).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use encke_io::{Peer, Token};

use crate::close::CloseReason;
use crate::conn::{
    ADMIN, COUNTED, Conn, ConnPhase, Duty, LAST, PAUSED, PEER_ENDED, SECURE, SENDING, TO_HTTPS,
};
use crate::core::Core;
use crate::peer::PackedPeer;
use crate::resident::Resident;

/// Size of a record in bytes.
///
/// ```text
///  0  version        1  kept flags     2  port, big-endian     4  address, or zeros for a Unix socket
/// 20  1: a Unix socket                21  zeros               24  requests so far, little-endian
/// ```
pub(crate) const PARKED_BYTES: usize = 28;

/// The present version.
const VERSION: u8 = 1;
/// The flags that persist between requests. All of them are in the lower byte.
const LASTING: u16 = ADMIN | SECURE | COUNTED | TO_HTTPS;

impl Conn {
    /// Returns the record of an idle connection; `None` if it is not idle.
    #[cfg(test)]
    pub(crate) fn park(&self) -> Option<[u8; PARKED_BYTES]> {
        self.is_at_rest().then(|| self.lasting())
    }

    /// Returns the state that persists between requests.
    fn lasting(&self) -> [u8; PARKED_BYTES] {
        let mut record = [0; PARKED_BYTES];
        record[0] = VERSION;
        record[1] = (self.flags & LASTING) as u8;
        match self.peer.unpack() {
            Peer::Local => record[20] = 1,
            Peer::Inet(address) => {
                let v6 = match address.ip() {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                };
                record[2..4].copy_from_slice(&address.port().to_be_bytes());
                record[4..20].copy_from_slice(&v6.octets());
            }
        }
        record[24..28].copy_from_slice(&self.requests.to_le_bytes());
        record
    }

    /// Restores the connection of a record, for a new slot. Returns `None` if the record has an unknown version.
    pub(crate) fn unpark(record: &[u8; PARKED_BYTES], generation: u32) -> Option<Self> {
        let [VERSION, flags, ..] = *record else { return None };
        let field = |range: std::ops::Range<usize>| &record[range];
        let peer = if record[20] == 1 {
            Peer::Local
        } else {
            let octets: [u8; 16] = field(4..20).try_into().expect("sixteen bytes");
            let port = u16::from_be_bytes(field(2..4).try_into().expect("two bytes"));
            Peer::Inet(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(octets)), port))
        };
        let mut conn = Self::new(generation, peer, ConnPhase::Idle);
        debug_assert_eq!(size_of::<PackedPeer>(), 19);
        conn.flags = u16::from(flags) & LASTING;
        conn.requests = u32::from_le_bytes(field(24..28).try_into().expect("four bytes"));
        Some(conn)
    }
}

/// The record of a resident's idle connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ParkedResident {
    record: [u8; PARKED_BYTES],
    seat: u8,
    /// Milliseconds until the deadline.
    left_ms: u32,
    /// State of the resident.
    own: Box<[u8]>,
}

impl Core {
    /// Turns a resident's connection into a record and back. Returns false if it is not idle, or is of a kind without records.
    pub(crate) fn park_and_unpark(&mut self, token: Token) -> bool {
        let Some(parked) = self.park_resident(token) else { return false };
        self.leave_resident(token, CloseReason::PeerDone);
        self.residents.report_gone();
        self.conns[token.index as usize] = Conn::vacant();
        assert!(self.unpark_resident(token, &parked), "our own version, and nothing else has changed");
        true
    }

    fn park_resident(&mut self, token: Token) -> Option<ParkedResident> {
        let now_ns = self.now.mono_ns;
        let conn = self.conn(token)?;
        if conn.phase != ConnPhase::Resident
            || conn.has(SENDING | PAUSED | LAST | PEER_ENDED)
            || conn.input.is_some()
        {
            return None;
        }
        let left_ms = conn.deadline_ns.saturating_sub(now_ns).div_ceil(1_000_000);
        let (record, seat) = (conn.lasting(), conn.duty.seat()?);
        let own = self.call_for(token, Resident::park).flatten()?.into();
        Some(ParkedResident { record, seat, left_ms: u32::try_from(left_ms).unwrap_or(u32::MAX), own })
    }

    fn unpark_resident(&mut self, token: Token, parked: &ParkedResident) -> bool {
        let Some(mut conn) = Conn::unpark(&parked.record, token.generation) else { return false };
        conn.phase = ConnPhase::Resident;
        conn.duty = Duty::resident(parked.seat);
        self.conns[token.index as usize] = conn;
        let own = self.call_for(token, |resident, slot| resident.unpark(slot, &parked.own));
        self.set_deadline(token, u64::from(parked.left_ms) * 1_000_000);
        own == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::SENDING;

    #[test]
    fn a_connection_at_rest_comes_back_from_its_record() {
        for peer in [
            Peer::Local,
            Peer::Inet("192.0.2.7:4711".parse().expect("an address")),
            Peer::Inet("[2001:db8::7]:80".parse().expect("an address")),
        ] {
            let mut conn = Conn::new(3, peer, ConnPhase::Idle);
            conn.flags = ADMIN | COUNTED;
            conn.requests = 70_000;
            let record = conn.park().expect("it is at rest");
            let back = Conn::unpark(&record, 9).expect("the version is known");
            assert_eq!(back.peer.unpack(), peer);
            assert_eq!((back.flags, back.requests, back.generation), (ADMIN | COUNTED, 70_000, 9));
            assert_eq!(back.park(), Some(record));
        }
    }

    #[test]
    fn one_that_is_busy_has_no_record_and_a_strange_version_is_refused() {
        let mut conn = Conn::new(0, Peer::Local, ConnPhase::Idle);
        let mut record = conn.park().expect("it is at rest");
        conn.flags |= SENDING;
        assert!(conn.park().is_none());
        record[0] = 200;
        assert!(Conn::unpark(&record, 0).is_none());
    }
}
