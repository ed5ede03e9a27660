//! A connection as a row of the list `connections`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use encke_io::{Address, Peer, Token};
use encke_stats::{Cell, Row};

use super::waits::KernelView;
use super::{ConnDescription, ConnId};
use crate::conn::{Conn, ConnPhase};
use crate::conns::is_stream;
use crate::core::Core;
use crate::resident::Resident;
use crate::residents::WEBSOCKETS;
use crate::transport::MaybeTls;

/// The columns of the list, in the order of display.
pub(super) const COLUMNS: &[&str] = &[
    "id",
    "address",
    "listener",
    "protocol",
    "tls",
    "state",
    "waits",
    "path",
    "user",
    "channel",
    "requests",
    "in_bytes",
    "out_bytes",
    "unsent_bytes",
    "idle_s",
    "age_s",
    "worker",
];

/// Whether a slot has a connection of a client.
pub(super) fn is_listed(conn: &Conn) -> bool {
    !matches!(conn.phase, ConnPhase::Vacant | ConnPhase::Closing | ConnPhase::Upstream)
}

/// A duration as a cell, with the resolution of a millisecond.
pub(super) fn seconds(ns: u64) -> Cell {
    Cell::Number((ns / 1_000_000) as f64 / 1e3)
}

/// Returns the client's address as a cell.
pub(super) fn address(peer: Peer) -> String {
    match peer {
        Peer::Inet(address) => address.ip().to_canonical().to_string(),
        Peer::Local => "unix".to_owned(),
    }
}

impl Core {
    /// Returns the description of a connection by its feature.
    pub(super) fn describe(&mut self, token: Token) -> ConnDescription {
        let conn = &self.conns[token.index as usize];
        match conn.phase {
            ConnPhase::Resident => self.call_for(token, Resident::describe).unwrap_or_default(),
            ConnPhase::Open => self.describe_exchange(token),
            _ => ConnDescription::default(),
        }
    }

    fn describe_exchange(&mut self, token: Token) -> ConnDescription {
        let place = self.conns[token.index as usize].duty.as_exchange();
        let Some((place, record)) = place.and_then(|place| Some((place, self.records.get(place)?))) else {
            return ConnDescription::default();
        };
        if let Some(held) = &record.held {
            // No handler was called.
            let path = String::from_utf8_lossy(held.request.view().path()).into_owned();
            return ConnDescription { path: Some(path), ..ConnDescription::default() };
        }
        let key = record.key(place);
        let Some(Some(mounted)) = self.handlers.get(usize::from(record.handler)) else {
            return ConnDescription::default();
        };
        catch_unwind(AssertUnwindSafe(|| mounted.handler.describe(key))).unwrap_or_else(|_panic| {
            self.metrics.handler_panics.add(1);
            ConnDescription::default()
        })
    }

    /// Returns the protocol on a connection, without asking its feature.
    pub(super) fn protocol_of(&self, token: Token) -> &'static str {
        let conn = &self.conns[token.index as usize];
        match conn.phase {
            ConnPhase::Handshake => "tls handshake",
            ConnPhase::Http2 => "h2",
            ConnPhase::Resident if conn.duty.seat() == Some(WEBSOCKETS) => "websocket",
            ConnPhase::Resident if self.is_tunnel(conn) => "tunnel",
            ConnPhase::Resident => "stream",
            _ if is_stream(token) => "h2 stream",
            _ => "http/1.1",
        }
    }

    /// Returns the version of TLS on a connection; empty without TLS, and during the handshake.
    fn tls_version(&self, token: Token) -> &'static str {
        let carrier = if is_stream(token) { self.http2.carrier(token) } else { Some(token) };
        let transport = carrier.map(|carrier| &self.conns[carrier.index as usize].transport);
        match transport {
            Some(MaybeTls::Tls(tls)) if tls.is_established() => tls.description().0,
            _ => "",
        }
    }

    /// Returns the listener of a connection that was accepted at `local`.
    fn listener_at(&self, local: &Address) -> String {
        let is_own = |bound: &Address| match (bound, local) {
            (Address::Inet(bound), Address::Inet(local)) => {
                let unspecified = bound.ip().is_unspecified() && bound.is_ipv4() == local.is_ipv4();
                bound.port() == local.port() && (unspecified || bound.ip() == local.ip())
            }
            _ => bound == local,
        };
        let found = self.listeners.iter().find(|door| is_own(&door.address));
        found.map_or_else(|| local.to_string(), |door| door.address.to_string())
    }

    /// Returns the bytes of content that were sent in response to the open request, while that is known.
    pub(super) fn content_sent(&self, token: Token) -> Option<u64> {
        let conn = &self.conns[token.index as usize];
        let of_record = self.record_of(conn).map(|record| record.sent_bytes);
        of_record.or_else(|| self.entries.get(&token.index).map(|entry| entry.sent_bytes))
    }

    /// Returns the target of the open request, if a log is on.
    pub(super) fn logged_target(&self, token: Token) -> Option<String> {
        let conn = &self.conns[token.index as usize];
        let of_record = self.record_of(conn).and_then(|record| record.entry.as_ref());
        let entry = of_record.or_else(|| self.entries.get(&token.index).map(|waiting| &waiting.entry))?;
        entry.target()
    }

    /// Returns the row of a connection. Without the kernel's view the cells are left out that need it.
    pub(super) fn conn_row(&mut self, token: Token, kernel: Option<&KernelView>) -> Row {
        let known = self.describe(token);
        let conn = &self.conns[token.index as usize];
        let text = |text: String| Cell::Text(text.into());
        let id = ConnId { server: self.census.server_id(), worker: self.number, token };
        let mut cells = Vec::with_capacity(COLUMNS.len());
        cells.extend([("id", text(id.to_string())), ("address", text(address(conn.peer.unpack())))]);
        if let Some(local) = kernel.and_then(|kernel| kernel.facts.local.as_ref()) {
            cells.push(("listener", text(self.listener_at(local))));
        }
        cells.push(("protocol", known.protocol.unwrap_or_else(|| self.protocol_of(token)).into()));
        cells.push(("tls", self.tls_version(token).into()));
        cells.push(("state", self.state_of(token).into()));
        cells.push(("waits", text(self.waits_for(token, &known, kernel))));
        let certificate = || Some(self.tls_known(token)?.client.as_ref()?.name.to_string());
        let user = known.user.clone().or_else(certificate);
        let path = known.path.clone().or_else(|| self.logged_target(token));
        for (column, value) in [("path", path), ("user", user), ("channel", known.channel.clone())] {
            cells.extend(value.map(|value| (column, text(value))));
        }
        cells.push(("requests", Cell::Count(conn.requests.into())));
        let tcp = kernel.and_then(|kernel| kernel.facts.tcp);
        if let Some(tcp) = tcp {
            cells.push(("in_bytes", Cell::Count(tcp.received_bytes)));
            cells.push(("out_bytes", Cell::Count(tcp.acknowledged_bytes)));
        } else if let Some(bytes) = self.content_sent(token) {
            cells.push(("out_bytes", Cell::Count(bytes)));
        }
        if let Some(kernel) = kernel {
            cells.push(("unsent_bytes", Cell::Count(kernel.unsent_bytes + known.unsent_bytes)));
        }
        if let Some(idle) = self.idle_ns(token, kernel) {
            cells.push(("idle_s", seconds(idle)));
        }
        if let Some(age) = self.age_ns(token, known.since_ns) {
            cells.push(("age_s", seconds(age)));
        }
        cells.push(("worker", Cell::Count(self.number as u64)));
        Row(cells)
    }

    /// Returns the time since the last byte in either direction, in ns: from the deadline of an idle connection, otherwise from
    /// the kernel.
    pub(super) fn idle_ns(&self, token: Token, kernel: Option<&KernelView>) -> Option<u64> {
        let conn = &self.conns[token.index as usize];
        if conn.is_at_rest() {
            return self.phase_ns(token);
        }
        let tcp = kernel?.facts.tcp?;
        // A connection that was sent nothing has sent for as long as the machine is up.
        let last_ms = if tcp.acknowledged_bytes == 0 {
            tcp.since_received_ms
        } else {
            tcp.since_sent_ms.min(tcp.since_received_ms)
        };
        Some(u64::from(last_ms) * 1_000_000)
    }
}
