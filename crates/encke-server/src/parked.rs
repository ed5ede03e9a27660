//! A connection at rest as a record: what another process would need to go on with it.
//!
//! A connection that waits for a request is its descriptor and these bytes, nothing else; so it can be handed
//! over, and the simulation turns connections into records and back at random to keep it that way. The record
//! has a version: a process that does not know it closes the connection, as it may close any idle one.
//!
//! One that listens, and to which nothing is being sent, needs its place in the stream besides, its form, and the names
//! of its channels: 64 bytes and the names.
//!
//! Not here yet: WebSockets, and those who listen by a token, whose right would have to be looked at anew.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use encke_hub::{Epoch, Form, Member, Name, Once, Position, Since, Subscribe, SubscriberId};
use encke_io::{Peer, Token};

use crate::conn::{
    ADMIN, COUNTED, Conn, LAST, PAUSED, PEER_ENDED, PackedPeer, Phase, SECURE, SENDING, TO_HTTPS,
};
use crate::push::form::{self, Kind};
use crate::push::room::hub_now;
use crate::worker::Core;

/// Bytes of a record.
///
/// ```text
///  0  version        1  kept flags     2  port, big-endian     4  address, or zeros for a Unix socket
/// 20  1: a Unix socket                21  zeros               24  requests so far, little-endian
/// ```
pub(crate) const PARKED_BYTES: usize = 28;

/// A connection that listens and is at rest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ParkedSubscriber {
    /// ```text
    ///  0  as above       28  form      29  1: a poll     30  zeros      32  epoch, little-endian
    /// 40  offset         48  ms until it is answered, or hears a heartbeat             52  zeros
    /// ```
    record: [u8; SUBSCRIBER_BYTES],
    /// Its channels, and behind a line's end the name it is known by: `a,b` or `a,b\nann`.
    names: Box<str>,
}

/// Bytes of a subscriber's record.
const SUBSCRIBER_BYTES: usize = 64;

/// The present form.
const VERSION: u8 = 1;
/// What of a connection's flags lasts between requests: all of it in the lower byte.
const LASTING: u16 = ADMIN | SECURE | COUNTED | TO_HTTPS;

impl Conn {
    /// The record of a connection at rest; none if anything goes on with it.
    pub(crate) fn park(&self) -> Option<[u8; PARKED_BYTES]> {
        self.is_at_rest().then(|| self.lasting())
    }

    /// What of it lasts.
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

    /// The connection of a record, in a new slot. `None`: the record is of a version that is not known here.
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
        let mut conn = Self::new(generation, peer, Phase::Idle);
        debug_assert_eq!(size_of::<PackedPeer>(), 19);
        conn.flags = u16::from(flags) & LASTING;
        conn.requests = u32::from_le_bytes(field(24..28).try_into().expect("four bytes"));
        Some(conn)
    }
}

impl Core {
    /// The record of a connection that listens; none if something is on its way, or it is of a kind that has none. It
    /// goes on listening.
    pub(crate) fn parked_subscriber(&mut self, token: Token) -> Option<ParkedSubscriber> {
        let now_ns = self.now.mono_ns;
        let conn = self.conn(token)?;
        let listens = matches!(conn.phase, Phase::Subscribed | Phase::Polling);
        if !listens || conn.has(SENDING | PAUSED | LAST | PEER_ENDED) || conn.input.is_some() {
            return None;
        }
        let id = SubscriberId(conn.record);
        let left_ms = conn.deadline_ns.saturating_sub(now_ns).div_ceil(1_000_000);
        let mut record = [0; SUBSCRIBER_BYTES];
        record[..PARKED_BYTES].copy_from_slice(&conn.lasting());
        record[28] = conn.form;
        record[29] = u8::from(conn.phase == Phase::Polling);
        record[48..52].copy_from_slice(&u32::try_from(left_ms).unwrap_or(u32::MAX).to_le_bytes());
        let room = self.room.as_mut()?;
        if room.stash.contains_key(&token.index)
            || room.extras.contains_key(&token.index)
            || room.resumed.contains(&token.index)
        {
            return None;
        }
        let Subscribe { channels, since: Since::After(positions), member, .. } = room.hub.parked(id)? else {
            return None;
        };
        let [position] = positions.as_slice() else { return None };
        record[32..40].copy_from_slice(&position.epoch.0.to_le_bytes());
        record[40..48].copy_from_slice(&position.offset.to_le_bytes());
        let mut names = channels.iter().map(Name::as_str).collect::<Vec<_>>().join(",");
        if let Some(member) = &member {
            names.push('\n');
            names.push_str(&member.name);
        }
        Some(ParkedSubscriber { record, names: names.into() })
    }

    /// Has the connection at a place, of which nothing is known, go on as its record says. False: the record is of a
    /// version that is not known here, or there is no room for its channels.
    pub(crate) fn unpark_subscriber(&mut self, token: Token, parked: &ParkedSubscriber) -> bool {
        let record = &parked.record;
        let (start, _) = record.split_first_chunk::<PARKED_BYTES>().expect("64 bytes have 28");
        let number = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"));
        let left_ms = u32::from_le_bytes(record[48..52].try_into().expect("four bytes"));
        let (Some(mut conn), Some(room)) = (Conn::unpark(start, token.generation), &mut self.room) else {
            return false;
        };
        let (names, member) = match parked.names.split_once('\n') {
            // A member that was announced before joins without delay: no rate by address applies.
            Some((names, name)) => (names, Some(Member { name: name.into(), client: None })),
            None => (&*parked.names, None),
        };
        let names = names.split(',').filter(|name| !name.is_empty());
        let Ok(channels) = names.map(|name| Name::parse(name.as_bytes())).collect::<Result<_, _>>() else {
            return false;
        };
        let form = Form(record[28]);
        let poll = record[29] == 1;
        let once = match form::kind(form) {
            Kind::Raw => Once::Oldest,
            Kind::Json => Once::All,
            _ => Once::Never,
        };
        let since = Since::After(Position { epoch: Epoch(number(32)), offset: number(40) }.into());
        let subscribe = Subscribe { channels, since, form, once, key: token.word(), member };
        let Ok(id) = room.hub.subscribe(hub_now(self.now), subscribe) else { return false };
        if !poll {
            room.resumed.insert(token.index);
        }
        room.pending = true;
        conn.phase = if poll { Phase::Polling } else { Phase::Subscribed };
        conn.record = id.0;
        conn.form = form.0;
        self.conns[token.index as usize] = conn;
        self.set_deadline(token, u64::from(left_ms) * 1_000_000);
        true
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
            let mut conn = Conn::new(3, peer, Phase::Idle);
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
        let mut conn = Conn::new(0, Peer::Local, Phase::Idle);
        let mut record = conn.park().expect("it is at rest");
        conn.flags |= SENDING;
        assert!(conn.park().is_none());
        record[0] = 200;
        assert!(Conn::unpark(&record, 0).is_none());
    }
}
