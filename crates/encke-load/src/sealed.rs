//! TLS of all connections: the crowd sends and receives plaintext, the engine records.
//!
//! ```text
//!   Engine ─► Connected ─► a session begins ────────────────────► Crowd: shaking
//!             Received  ─► opened ──┬─► the handshake is over ──► Crowd: shaken
//!                                   ├─► plaintext ──────────────► Crowd: Received
//!                                   └─► close_notify ───────────► Crowd: PeerClosed
//!                          the session fails, or is cut short ──► Crowd: untrusted
//!   Engine ◄─ one send at a time: the session's own records, then sealed records of the crowd
//! ```
//! [`Sealable`] has what a crowd must know of TLS. Without sessions every event and operation passes through unchanged.

use std::mem;
use std::sync::Arc;

use encke_io::{Event, Fault, Op, Segment, Send, Token};
use encke_session::tls::{Session, Sessions};

use crate::crowd::{Crowd, Moment, Outbox};
use crate::tally::Cause;

/// A crowd whose connections may speak TLS.
pub(crate) trait Sealable: Crowd {
    /// A connection is there, and its handshake begins. The crowd is sent no [`Event::Connected`] then, and need not ask
    /// for [`Op::Recv`].
    fn shaking(&mut self, _token: Token, _at: Moment) {}

    /// The handshake of a connection is over: it can send and receive.
    fn shaken(&mut self, token: Token, shaken: Shaken, at: Moment, out: &mut Outbox);

    /// Bytes of records that have arrived.
    fn arrived(&mut self, _bytes: u64) {}

    /// Bytes of the session's own records that were sent.
    fn spoken(&mut self, bytes: u64);

    /// TLS cannot begin on a connection, or cannot go on. [`Cause::Cut`]: the connection ended without close_notify.
    fn untrusted(&mut self, token: Token, cause: Cause, at: Moment, out: &mut Outbox);
}

/// The outcome of a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shaken {
    pub(crate) took_ns: u64,
    pub(crate) resumed: bool,
    /// The server has agreed to HTTP/2.
    pub(crate) http2: bool,
}

/// Sends kept for reuse, each of at most 64 KiB.
const SPARE_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 64 * 1024;

/// A crowd, and a session for each of its connections.
pub(crate) struct Sealed<C> {
    crowd: C,
    sessions: Option<Arc<dyn Sessions>>,
    /// By the token's index.
    links: Vec<Option<Link>>,
    /// What the crowd wants done.
    wishes: Outbox,
    /// Room for what a session has opened.
    plain: Vec<u8>,
    /// Sends that have ended, each of one empty buffer.
    spare: Vec<Vec<Segment>>,
}

/// A connection with its session.
struct Link {
    token: Token,
    session: Box<dyn Session>,
    since_ns: u64,
    /// The crowd knows that it is connected.
    told: bool,
    /// The crowd knows that nothing more comes.
    ended: bool,
    sending: Sending,
    /// What the crowd sends, while something else is on its way.
    waiting: Option<Vec<Segment>>,
    /// The plaintext of the crowd's send in flight, returned with its completion.
    lent: Vec<Segment>,
}

/// Whose words are on their way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sending {
    Nobody,
    Tls,
    Crowd,
}

impl<C: Sealable> Sealed<C> {
    /// Sealed by these sessions, or by none.
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

    /// Lets the crowd do something, and does what it wants.
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

    fn link(&mut self, token: Token) -> Option<&mut Link> {
        let link = self.links.get_mut(token.index as usize)?.as_mut()?;
        (link.token == token).then_some(link)
    }

    /// Sends what waits on a connection, or what its session has to say, if nothing is on its way.
    fn speak(&mut self, token: Token, out: &mut Outbox) {
        let link = self.links.get_mut(token.index as usize).and_then(Option::as_mut);
        if let Some(link) = link.filter(|link| link.token == token && link.sending == Sending::Nobody) {
            let mut segments = self.spare.pop().unwrap_or_default();
            if segments.is_empty() {
                segments.push(Segment::Bytes(Vec::new()));
            }
            link.speak(segments, &mut self.spare, out);
        }
    }

    /// Keeps the buffer of a send that has ended.
    fn take_back(&mut self, mut segments: Vec<Segment>) {
        if let [Segment::Bytes(buffer)] = &mut segments[..]
            && buffer.capacity() <= SPARE_BYTES_MAX
            && self.spare.len() < SPARE_MAX
        {
            buffer.clear();
            self.spare.push(segments);
        }
    }

    /// The crowd wants something done with a connection.
    fn submit(&mut self, token: Token, op: Op, out: &mut Outbox) {
        let Some(link) = self.link(token) else { return out.put(token, op) };
        match op {
            Op::Send(Send { segments, .. }) => {
                debug_assert!(link.waiting.is_none(), "a crowd has one send at a time");
                link.waiting = Some(segments);
                self.speak(token, out);
            }
            // It receives since its handshake began.
            Op::Recv => {}
            Op::Close | Op::Recycle | Op::Abort => {
                let silent = link.sending == Sending::Nobody && !link.session.is_ended();
                if silent && !matches!(op, Op::Abort) {
                    // The farewell, or an alert. Whether it arrives is the server's affair.
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

    /// TLS cannot begin on a connection, or cannot go on: what it has to say to that is said, and the crowd hangs up.
    fn give_up(&mut self, token: Token, cause: Cause, at: Moment, out: &mut Outbox) {
        self.with(out, |crowd, out| crowd.untrusted(token, cause, at, out));
    }

    fn connected(&mut self, token: Token, at: Moment, out: &mut Outbox) {
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
        self.links[place] = Some(Link {
            token,
            session,
            since_ns: at.now_ns,
            told: false,
            ended: false,
            sending: Sending::Nobody,
            waiting: None,
            lent: Vec::new(),
        });
        out.put(token, Op::Recv);
        self.speak(token, out);
    }

    fn received(&mut self, token: Token, lease: &mut [u8], at: Moment, out: &mut Outbox) {
        self.crowd.arrived(lease.len() as u64);
        let mut plain = mem::take(&mut self.plain);
        let Some(link) = self.link(token) else { return self.plain = plain };
        let opened = link.session.open(lease, &mut plain);
        let established = !link.told && link.session.is_established();
        link.told |= established;
        if established {
            let shaken = Shaken {
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
        // The crowd may have hung up meanwhile.
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

    /// What is sent of a link has left.
    fn sent(&mut self, token: Token, bytes: u64, segments: Vec<Segment>, at: Moment, out: &mut Outbox) {
        let Some(link) = self.link(token) else {
            return self.crowd.on_event(Event::Sent { token, bytes, segments }, at, out);
        };
        let (whose, lent) = (mem::replace(&mut link.sending, Sending::Nobody), mem::take(&mut link.lent));
        self.take_back(segments);
        match whose {
            Sending::Crowd => {
                let event = Event::Sent { token, bytes, segments: lent };
                self.with(out, |crowd, out| crowd.on_event(event, at, out));
            }
            Sending::Nobody | Sending::Tls => self.crowd.spoken(bytes),
        }
        self.speak(token, out);
    }

    fn closed(&mut self, token: Token, behind_data: bool, at: Moment, out: &mut Outbox) {
        let Some(link) = self.link(token).map(|link| (link.told, link.ended)) else {
            return self.with(out, |crowd, out| {
                crowd.on_event(Event::PeerClosed { token, behind_data }, at, out);
            });
        };
        match link {
            // The crowd knows, and does what it does.
            (_, true) => {}
            _ if behind_data => {}
            (false, _) => self.give_up(token, Cause::Ended, at, out),
            (true, _) => self.give_up(token, Cause::Cut, at, out),
        }
    }

    fn failed(&mut self, event: Event<'_>, at: Moment, out: &mut Outbox) {
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

impl Link {
    /// Fills the one buffer of `segments`, and sends it unless there is nothing to send.
    fn speak(&mut self, mut segments: Vec<Segment>, spare: &mut Vec<Vec<Segment>>, out: &mut Outbox) {
        let [Segment::Bytes(bytes)] = &mut segments[..] else { return };
        let whose = match self.waiting.take() {
            None => {
                self.session.output(bytes);
                Sending::Tls
            }
            Some(plain) => {
                for segment in &plain {
                    let plain = segment.memory().expect("what crowds send is in memory");
                    // A session that is broken has said so when it was read, and the crowd is about to hang up.
                    let _broken = self.session.seal(plain, bytes);
                }
                self.lent = plain;
                Sending::Crowd
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

    fn open(&mut self, at: Moment, out: &mut Outbox) {
        self.with(out, |crowd, out| crowd.open(at, out));
    }

    fn is_open(&self) -> bool {
        self.crowd.is_open()
    }

    fn begin(&mut self, at: Moment, out: &mut Outbox) {
        self.with(out, |crowd, out| crowd.begin(at, out));
    }

    fn is_in_line(&self, user: u32) -> bool {
        self.crowd.is_in_line(user)
    }

    fn dialed(&mut self, user: u32, token: Result<Token, Fault>, at: Moment, out: &mut Outbox) {
        self.with(out, |crowd, out| crowd.dialed(user, token, at, out));
    }

    fn on_event(&mut self, event: Event<'_>, at: Moment, out: &mut Outbox) {
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

    fn on_time(&mut self, at: Moment, out: &mut Outbox) {
        self.with(out, |crowd, out| crowd.on_time(at, out));
    }

    fn gather_ns(&self) -> u64 {
        self.crowd.gather_ns()
    }

    fn next_ns(&self) -> Option<u64> {
        self.crowd.next_ns()
    }

    fn stop(&mut self, at: Moment) {
        self.crowd.stop(at);
    }

    fn is_over(&self) -> bool {
        self.crowd.is_over()
    }

    fn close(&mut self, out: &mut Outbox) {
        self.with(out, Crowd::close);
    }
}
