//! TLS on a connection: the handshake before the first request, records instead of plaintext, and the alert at the end.

use std::sync::Arc;

use encke_io::{Peer, Token};
use encke_session::tls::{HandshakeState, TlsFault, TlsKnown};
use encke_wire::proxy::{self, ProxyHeader};

use crate::close::CloseReason;
use crate::conn::{ConnPhase, LAST, LINGER, SECURE, SENDING};
use crate::conns::is_stream;
use crate::core::Core;
use crate::peer::PackedPeer;
use crate::record::Asked;
use crate::reply::Reply;
use crate::transport::MaybeTls;

impl Core {
    /// Handles received bytes: TLS records, or the PROXY header before them.
    pub(crate) fn records(&mut self, token: Token, lease: &mut [u8]) {
        let ends_ns = self.now.mono_ns.saturating_add(self.policy.limits.handshake_time.nanoseconds());
        let Some(conn) = self.conn(token) else { return };
        let proxy = conn.phase == ConnPhase::Proxy;
        let MaybeTls::Tls(tls) = &mut conn.transport else { return };
        let mut behind;
        let mut lease = lease;
        if proxy {
            behind = tls.take_partial();
            behind.extend_from_slice(lease);
            match proxy::read(&behind) {
                ProxyHeader::NeedMore => return tls.keep_partial(behind),
                ProxyHeader::Bad(_) => return self.close(token, CloseReason::ProxyHeader, false),
                ProxyHeader::Done { bytes, source, .. } => {
                    behind.drain(..bytes);
                    if let Some(source) = source {
                        conn.peer = PackedPeer::new(Peer::Inet(source));
                    }
                    conn.phase = ConnPhase::Handshake;
                    tls.handshake_ends_ns = ends_ns;
                    conn.deadline_ns = ends_ns;
                    if !self.admit_proxied(token) {
                        return;
                    }
                    lease = &mut behind;
                }
            }
        }
        let conn = &mut self.conns[token.index as usize];
        let MaybeTls::Tls(tls) = &mut conn.transport else { return };
        if tls.handshake == HandshakeState::Awaited {
            match tls.await_hello(lease) {
                Ok(None) => return self.settle(token),
                Ok(Some(rest)) => lease = rest,
                Err(fault) => return self.break_tls(token, fault, false),
            }
            if !self.begin_handshake(token) {
                return self.close(token, CloseReason::HandshakeLimit, false);
            }
        }
        let mut plain = std::mem::take(&mut self.scratch.plain);
        plain.clear();
        let conn = &mut self.conns[token.index as usize];
        let MaybeTls::Tls(tls) = &mut conn.transport else { return };
        let established = tls.is_established();
        match tls.open(lease, &mut plain) {
            Ok(opened) => {
                if opened.established {
                    self.shook_hands(token);
                }
                if plain.is_empty() {
                    self.settle(token);
                } else {
                    self.plaintext(token, &mut plain);
                }
                if opened.ended {
                    self.peer_closed(token, false);
                }
            }
            Err(fault) => {
                if !plain.is_empty() {
                    self.plaintext(token, &mut plain);
                }
                self.break_tls(token, fault, established);
            }
        }
        self.scratch.plain = plain;
    }

    /// Returns the facts that TLS has established about a client. A stream inherits them from the connection that carries it.
    pub(crate) fn tls_known(&self, token: Token) -> Option<Arc<TlsKnown>> {
        let carrier = if is_stream(token) { self.http2.carrier(token)? } else { token };
        match &self.conns[carrier.index as usize].transport {
            MaybeTls::Tls(tls) => tls.known(),
            MaybeTls::Plain => None,
        }
    }

    /// Completes a handshake: requests may follow.
    fn shook_hands(&mut self, token: Token) {
        self.end_handshake(token);
        let conn = &mut self.conns[token.index as usize];
        let mut http2 = false;
        if let MaybeTls::Tls(tls) = &conn.transport {
            if tls.is_proof() {
                // An ACME validation needs only the handshake: no request is read.
                conn.reason = CloseReason::Answered;
                conn.flags |= LAST | LINGER;
            }
            let (version, how) = tls.description();
            self.metrics.tls.complete(version, how);
            http2 = tls.speaks_http2();
        }
        if conn.phase == ConnPhase::Handshake {
            conn.phase = ConnPhase::Idle;
            if !conn.has(SENDING) {
                self.set_deadline(token, self.policy.limits.head_time.nanoseconds());
            }
            if http2 {
                self.begin_http2(token, &[]);
            }
        }
    }

    /// Ends TLS after a fault: an alert names the reason. A client that speaks plain HTTP receives a plain HTTP response.
    fn break_tls(&mut self, token: Token, fault: TlsFault, established: bool) {
        self.metrics.tls.failed(fault.name());
        let Some(conn) = self.conn(token) else { return };
        let reason = if established { CloseReason::Tls } else { CloseReason::Handshake };
        conn.reason = reason;
        if fault == TlsFault::PlainHttp && !conn.has(SENDING) {
            conn.transport = MaybeTls::Plain;
            conn.flags = conn.flags & !SECURE | LINGER;
            conn.phase = ConnPhase::Open;
            let text =
                "400 Bad Request\nThis port requires TLS, and this request is plain HTTP: use https.\n";
            let reply = Reply::text(400, text).with("X-Content-Type-Options", "nosniff").and_close();
            let (_, content) = self.put_reply(token, Asked::unread(token), true, reply);
            self.conns[token.index as usize].reason = reason;
            let entry = self.begin_refused_entry(token);
            self.end_entry(entry, 400, content, self.now.mono_ns, Some(fault.name()));
            self.next_request(token);
            return self.settle(token);
        }
        if conn.has(SENDING) {
            return self.close(token, reason, false);
        }
        conn.flags |= LAST | LINGER;
        self.settle(token);
    }
}
