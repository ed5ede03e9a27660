//! TLS for a crowd: the crowd sends and receives plaintext, the engine TLS records.
//!
//! ```text
//!   Engine ─► Connected ─► a session begins ─────────────────────► Crowd: shaking
//!             Received  ─► decrypted ─┬─► handshake complete ────► Crowd: shaken
//!                                     ├─► plaintext ─────────────► Crowd: Received
//!                                     └─► close_notify ──────────► Crowd: PeerClosed
//!                         the session fails, or is truncated ────► Crowd: untrusted
//!   Engine ◄─ one send at a time: the session's own records, then sealed records of the crowd
//! ```
//! [`Sealable`] tells the crowd about TLS. Without TLS, every event and operation passes through unchanged.

use std::mem;
use std::sync::Arc;

use encke_io::{Event, Op, OpError, Segment, Send, Token};
use encke_session::tls::{Session, Sessions};

use crate::crowd::{Crowd, Outbox, TurnTime};
use crate::tally::Cause;

/// A crowd whose connections may use TLS.
pub(crate) trait Sealable: Crowd {
    /// A connection is established and its handshake begins. The crowd gets no [`Event::Connected`] for it, and needs no
    /// [`Op::Recv`] to receive.
    fn shaking(&mut self, _token: Token, _at: TurnTime) {}

    /// The handshake of a connection is complete: the crowd can send and receive.
    fn shaken(&mut self, token: Token, shaken: HandshakeOutcome, at: TurnTime, out: &mut Outbox);

    /// Counts bytes of records received.
    fn arrived(&mut self, _bytes: u64) {}

    /// Counts bytes sent that carry no data of the crowd, such as handshakes.
    fn spoken(&mut self, bytes: u64);

    /// TLS failed on a connection. [`Cause::Cut`]: the connection ended without close_notify.
    fn untrusted(&mut self, token: Token, cause: Cause, at: TurnTime, out: &mut Outbox);
}

/// The outcome of a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeOutcome {
    pub(crate) took_ns: u64,
    pub(crate) resumed: bool,
    /// Whether the server agreed to HTTP/2 (ALPN).
    pub(crate) http2: bool,
}

/// Send buffers kept for reuse, of at most 64 KiB each.
const SPARE_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 64 * 1024;

/// A crowd, and a TLS session for each of its connections.
pub(crate) struct Sealed<C> {
    crowd: C,
    sessions: Option<Arc<dyn Sessions>>,
    /// By token index.
    links: Vec<Option<TlsConn>>,
    /// Operations of the crowd before they are sealed.
    wishes: Outbox,
    /// Buffer for decrypted bytes.
    plain: Vec<u8>,
    /// Segments of completed sends, each with one empty buffer.
    spare: Vec<Vec<Segment>>,
}

/// A connection and its TLS session.
struct TlsConn {
    token: Token,
    session: Box<dyn Session>,
    since_ns: u64,
    /// Whether the crowd knows that the handshake is complete.
    told: bool,
    /// Whether the crowd knows that the peer has ended its side.
    ended: bool,
    sending: SendOrigin,
    /// The crowd's send that waits for another send to complete.
    waiting: Option<Vec<Segment>>,
    /// Plaintext of the crowd's send in flight, returned with its completion.
    lent: Vec<Segment>,
}

/// The originator of the send in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SendOrigin {
    Nobody,
    Tls,
    Crowd,
}

impl<C: Sealable> Sealed<C> {
    /// A crowd with TLS by these sessions, or without TLS.
    pub(crate) fn new(crowd: C, sessions: Option<Arc<dyn Sessions>>) -> Self {
        Self {
            crowd,
            sessions,
            links: Vec::new(),
            wishes: Outbox::default(),
            plain: Vec::new(),
            spare: Vec::new(),
        }
    }

    pub(crate) fn into_inner(self) -> C {
        self.crowd
    }

    /// Calls the crowd, and seals the operations that it submits.
    fn with(&mut self, out: &mut Outbox, act: impl FnOnce(&mut C, &mut Outbox)) {
        if self.sessions.is_none() {
            return act(&mut self.crowd, out);
        }
        let mut wishes = mem::take(&mut self.wishes);
        act(&mut self.crowd, &mut wishes);
        for (token, op) in wishes.ops.drain(..) {
            self.submit(token, op, out);
        }
        out.dials.append(&mut wishes.dials);
        self.wishes = wishes;
    }

    fn link(&mut self, token: Token) -> Option<&mut TlsConn> {
        let link = self.links.get_mut(token.index as usize)?.as_mut()?;
        (link.token == token).then_some(link)
    }

    /// Sends the crowd's waiting data, or the session's own records, unless a send is in flight.
    fn speak(&mut self, token: Token, out: &mut Outbox) {
        let link = self.links.get_mut(token.index as usize).and_then(Option::as_mut);
        if let Some(link) = link.filter(|link| link.token == token && link.sending == SendOrigin::Nobody) {
            let mut segments = self.spare.pop().unwrap_or_default();
            if segments.is_empty() {
                segments.push(Segment::Bytes(Vec::new()));
            }
            link.speak(segments, &mut self.spare, out);
        }
    }

    /// Keeps the buffer of a completed send.
    fn take_back(&mut self, mut segments: Vec<Segment>) {
        if let [Segment::Bytes(buffer)] = &mut segments[..]
            && buffer.capacity() <= SPARE_BYTES_MAX
            && self.spare.len() < SPARE_MAX
        {
            buffer.clear();
            self.spare.push(segments);
        }
    }

    /// Applies an operation of the crowd.
    fn submit(&mut self, token: Token, op: Op, out: &mut Outbox) {
        let Some(link) = self.link(token) else { return out.put(token, op) };
        match op {
            Op::Send(Send { segments, .. }) => {
                debug_assert!(link.waiting.is_none(), "a crowd has one send at a time");
                link.waiting = Some(segments);
                self.speak(token, out);
            }
            // A TLS connection receives from the start of its handshake.
            Op::Recv => {}
            Op::Close | Op::Recycle | Op::Abort => {
                let silent = link.sending == SendOrigin::Nobody && !link.session.is_ended();
                if silent && !matches!(op, Op::Abort) {
                    // A close_notify or an alert. Its arrival is not waited for.
                    let mut bytes = Vec::new();
                    link.session.finish(&mut bytes);
                    if !bytes.is_empty() {
                        let segments = vec![Segment::Bytes(bytes)];
                        out.put(token, Op::Send(Send { segments, more: false }));
                    }
                }
                self.links[token.index as usize] = None;
                out.put(token, op);
            }
            other => out.put(token, other),
        }
    }

    /// Reports failed TLS to the crowd, which closes the connection. The close sends the session's alert.
    fn give_up(&mut self, token: Token, cause: Cause, at: TurnTime, out: &mut Outbox) {
        self.with(out, |crowd, out| crowd.untrusted(token, cause, at, out));
    }

    fn connected(&mut self, token: Token, at: TurnTime, out: &mut Outbox) {
        let Some(sessions) = &self.sessions else {
            return self.crowd.on_event(Event::Connected { token }, at, out);
        };
        let sessions = Arc::clone(sessions);
        self.crowd.shaking(token, at);
        let session = match sessions.begin() {
            Ok(session) => session,
            Err(reason) => return self.give_up(token, Cause::Tls(reason.to_string()), at, out),
        };
        let place = token.index as usize;
        if self.links.len() <= place {
            self.links.resize_with(place + 1, || None);
        }
        self.links[place] = Some(TlsConn {
            token,
            session,
            since_ns: at.now_ns,
            told: false,
            ended: false,
            sending: SendOrigin::Nobody,
            waiting: None,
            lent: Vec::new(),
        });
        out.put(token, Op::Recv);
        self.speak(token, out);
    }

    fn received(&mut self, token: Token, lease: &mut [u8], at: TurnTime, out: &mut Outbox) {
        self.crowd.arrived(lease.len() as u64);
        let mut plain = mem::take(&mut self.plain);
        let Some(link) = self.link(token) else { return self.plain = plain };
        let opened = link.session.open(lease, &mut plain);
        let established = !link.told && link.session.is_established();
        link.told |= established;
        if established {
            let shaken = HandshakeOutcome {
                took_ns: at.woken_ns.saturating_sub(link.since_ns),
                resumed: link.session.is_resumed(),
                http2: link.session.speaks_http2(),
            };
            self.with(out, |crowd, out| crowd.shaken(token, shaken, at, out));
        }
        if !plain.is_empty() {
            let lease = &mut plain[..];
            self.with(out, |crowd, out| crowd.on_event(Event::Received { token, lease }, at, out));
        }
        plain.clear();
        self.plain = plain;
        // The crowd may have closed the connection meanwhile.
        let Some(link) = self.link(token) else { return };
        let ended = link.session.is_ended() && !mem::replace(&mut link.ended, true);
        match opened {
            Err(reason) => self.give_up(token, Cause::Tls(reason.to_string()), at, out),
            Ok(()) if ended => {
                let event = Event::PeerClosed { token, behind_data: false };
                self.with(out, |crowd, out| crowd.on_event(event, at, out));
            }
            Ok(()) => self.speak(token, out),
        }
    }

    /// A send of a connection has completed.
    fn sent(&mut self, token: Token, bytes: u64, segments: Vec<Segment>, at: TurnTime, out: &mut Outbox) {
        let Some(link) = self.link(token) else {
            return self.crowd.on_event(Event::Sent { token, bytes, segments }, at, out);
        };
        let (whose, lent) = (mem::replace(&mut link.sending, SendOrigin::Nobody), mem::take(&mut link.lent));
        self.take_back(segments);
        match whose {
            SendOrigin::Crowd => {
                let event = Event::Sent { token, bytes, segments: lent };
                self.with(out, |crowd, out| crowd.on_event(event, at, out));
            }
            SendOrigin::Nobody | SendOrigin::Tls => self.crowd.spoken(bytes),
        }
        self.speak(token, out);
    }

    fn closed(&mut self, token: Token, behind_data: bool, at: TurnTime, out: &mut Outbox) {
        let Some(link) = self.link(token).map(|link| (link.told, link.ended)) else {
            return self.with(out, |crowd, out| {
                crowd.on_event(Event::PeerClosed { token, behind_data }, at, out);
            });
        };
        match link {
            // The crowd already knows, and reacts by itself.
            (_, true) => {}
            _ if behind_data => {}
            (false, _) => self.give_up(token, Cause::Ended, at, out),
            (true, _) => self.give_up(token, Cause::Cut, at, out),
        }
    }

    fn failed(&mut self, event: Event<'_>, at: TurnTime, out: &mut Outbox) {
        let Event::Failed { token, fault, sent, .. } = event else { return };
        match self.link(token).map(|link| link.told) {
            Some(false) => {
                self.crowd.spoken(sent);
                self.give_up(token, fault.into(), at, out);
            }
            _ => self.with(out, |crowd, out| crowd.on_event(event, at, out)),
        }
    }
}

impl TlsConn {
    /// Fills the single buffer of `segments`, and sends it unless it stays empty.
    fn speak(&mut self, mut segments: Vec<Segment>, spare: &mut Vec<Vec<Segment>>, out: &mut Outbox) {
        let [Segment::Bytes(bytes)] = &mut segments[..] else { return };
        let whose = match self.waiting.take() {
            None => {
                self.session.output(bytes);
                SendOrigin::Tls
            }
            Some(plain) => {
                for segment in &plain {
                    let plain = segment.memory().expect("what crowds send is in memory");
                    // A broken session reports its error on reading, and the crowd then closes the connection.
                    let _broken = self.session.seal(plain, bytes);
                }
                self.lent = plain;
                SendOrigin::Crowd
            }
        };
        if bytes.is_empty() {
            return spare.push(segments);
        }
        self.sending = whose;
        out.put(self.token, Op::Send(Send { segments, more: false }));
    }
}

impl<C: Sealable> Crowd for Sealed<C> {
    const DIALS_AT_ONCE: usize = C::DIALS_AT_ONCE;

    fn open(&mut self, at: TurnTime, out: &mut Outbox) {
        self.with(out, |crowd, out| crowd.open(at, out));
    }

    fn is_open(&self) -> bool {
        self.crowd.is_open()
    }

    fn begin(&mut self, at: TurnTime, out: &mut Outbox) {
        self.with(out, |crowd, out| crowd.begin(at, out));
    }

    fn is_queued(&self, user: u32) -> bool {
        self.crowd.is_queued(user)
    }

    fn dialed(&mut self, user: u32, token: Result<Token, OpError>, at: TurnTime, out: &mut Outbox) {
        self.with(out, |crowd, out| crowd.dialed(user, token, at, out));
    }

    fn on_event(&mut self, event: Event<'_>, at: TurnTime, out: &mut Outbox) {
        if self.sessions.is_none() {
            return self.crowd.on_event(event, at, out);
        }
        match event {
            Event::Connected { token } => self.connected(token, at, out),
            Event::Received { token, lease } => self.received(token, lease, at, out),
            Event::Sent { token, bytes, segments } => self.sent(token, bytes, segments, at, out),
            Event::PeerClosed { token, behind_data } => self.closed(token, behind_data, at, out),
            Event::Failed { .. } => self.failed(event, at, out),
            other => self.with(out, |crowd, out| crowd.on_event(other, at, out)),
        }
    }

    fn on_time(&mut self, at: TurnTime, out: &mut Outbox) {
        self.with(out, |crowd, out| crowd.on_time(at, out));
    }

    fn gather_ns(&self) -> u64 {
        self.crowd.gather_ns()
    }

    fn next_ns(&self) -> Option<u64> {
        self.crowd.next_ns()
    }

    fn stop(&mut self, at: TurnTime) {
        self.crowd.stop(at);
    }

    fn is_over(&self) -> bool {
        self.crowd.is_over()
    }

    fn close(&mut self, out: &mut Outbox) {
        self.with(out, Crowd::close);
    }
}
