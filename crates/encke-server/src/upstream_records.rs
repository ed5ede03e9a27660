//! TLS records of outgoing connections: from the socket to plaintext, and back.

use encke_io::{Op, Segment, Send};

use crate::conn::{PEER_ENDED, SENDING};
use crate::core::Core;
use crate::outgoing::{UpstreamEvent, UpstreamFault, UpstreamState};

impl Core {
    /// Opens received TLS records.
    pub(crate) fn records_arrived(&mut self, place: u32, bytes: &mut [u8]) {
        let upstream = &mut self.upstreams.table[place as usize];
        let Some(session) = &mut upstream.session else { return };
        if session.ended {
            return;
        }
        let mut plain = std::mem::take(&mut self.scratch.plain);
        plain.clear();
        session.error = session.session.open(bytes, &mut plain).err();
        self.report_established(place);
        if !plain.is_empty() && self.upstreams.table[place as usize].state.receives() {
            self.metrics.upstream_received_bytes.add(plain.len() as u64);
            self.report_upstream(place, UpstreamEvent::Received(&mut plain));
        }
        self.scratch.plain = plain;
        self.records_opened(place);
    }

    /// Reports that the connection is established, once the handshake is complete.
    fn report_established(&mut self, place: u32) {
        let upstream = &mut self.upstreams.table[place as usize];
        if upstream.state == UpstreamState::Handshaking
            && upstream.session.as_ref().is_some_and(|session| session.session.is_established())
        {
            upstream.state = UpstreamState::Open;
            let token = upstream.token;
            self.receive_upstream(token);
            self.report_upstream(place, UpstreamEvent::Connected);
        }
    }

    /// Reports the results of opened records other than plaintext, and sends the session's records.
    pub(crate) fn records_opened(&mut self, place: u32) {
        self.report_established(place);
        let upstream = &mut self.upstreams.table[place as usize];
        let Some(session) = &mut upstream.session else { return };
        if let Some(error) = session.error.take() {
            return self.fail_upstream(place, UpstreamFault::Session(error));
        }
        if session.session.is_ended() && !session.ended {
            if !upstream.state.receives() {
                return self.fail_upstream(place, UpstreamFault::Truncated);
            }
            session.ended = true;
            let token = upstream.token;
            self.set_receiving(token, false);
            self.conns[token.index as usize].flags |= PEER_ENDED;
            self.report_upstream(place, UpstreamEvent::Ended);
        }
        // The close of an owner that has closed it sends the last records itself.
        if self.handler_requests.is_current(self.upstreams.id(place)) {
            self.flush_upstream(place);
        }
    }

    /// Sends records unless a send is in flight: first TLS's own, then waiting plaintext.
    pub(crate) fn flush_sealed(&mut self, place: u32) {
        let upstream = &mut self.upstreams.table[place as usize];
        let Some(session) = &mut upstream.session else { return };
        let token = upstream.token;
        if upstream.state == UpstreamState::Deaf {
            let waiting = std::mem::take(&mut upstream.waiting);
            return self.recycle_segments(waiting);
        }
        if !matches!(upstream.state, UpstreamState::Handshaking | UpstreamState::Open)
            || self.conns[token.index as usize].has(SENDING)
        {
            return;
        }
        let mut spent = Vec::new();
        if upstream.state == UpstreamState::Open && session.queue.is_empty() {
            spent = std::mem::take(&mut upstream.waiting);
            session.queue.extend(spent.drain(..).filter(|segment| !segment.is_empty()));
            upstream.in_flight = session.queue.iter().map(Segment::len).sum();
        }
        let last = upstream.ending && upstream.waiting.is_empty();
        let sealed = session.seal(last, &mut self.scratch);
        self.recycle_segments(spent);
        match sealed {
            Ok(records) if records.is_empty() => {}
            Ok(records) => {
                self.conns[token.index as usize].flags |= SENDING;
                let mut segments = self.spare_segments.pop().unwrap_or_default();
                segments.push(Segment::Bytes(records));
                self.ops.push((token, Op::Send(Send { segments, more: false })));
            }
            Err(fault) => self.fail_upstream(place, UpstreamFault::Failed(fault)),
        }
    }
}
