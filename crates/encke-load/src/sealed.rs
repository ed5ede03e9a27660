//! TLS around a crowd that knows nothing of it: the crowd sees plaintext, the engine sees records.
//!
//! ```text
//!   Engine ─► Connected ─► a session begins: its hello goes out        (the crowd still dials)
//!             Received  ─► opened ──┬─► the handshake is over ─► Crowd: Connected
//!                                   ├─► plaintext ─────────────► Crowd: Received
//!                                   └─► farewell ──────────────► Crowd: PeerClosed
//!   Engine ◄─ one send at a time: what TLS has to say, then what the crowd sends, sealed
//! ```
//! Whoever dials, dials by it: a crowd is told that it is connected when the handshake is over, so what it times from its
//! dial has the handshake in it. Without sessions everything passes through as it is. [`crate::requests`] does the same by
//! itself, since it counts bytes and handshakes by its users' states.

use std::mem;
use std::sync::Arc;

use encke_io::{Event, Fault, Op, Segment, Send, Token};

use crate::crowd::{Crowd, Moment, Outbox};
use crate::tally::Cause;
use crate::tls::{Session, Sessions};

/// A crowd that can be told what becomes of TLS.
pub(crate) trait Sealable: Crowd {
    /// A handshake is over; it took so long, ns.
    fn shaken(&mut self, handshake_ns: u64, resumed: bool);

    /// TLS cannot begin on a connection, or cannot go on.
    fn untrusted(&mut self, token: Token, cause: Cause, at: Moment, out: &mut Outbox);
}

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
    /// Bytes of TLS' own that the crowd has not heard of.
    own_bytes: u64,
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
        Self { crowd, sessions, links: Vec::new(), wishes: Outbox::default(), plain: Vec::new() }
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

    /// The crowd wants something done with a connection.
    fn submit(&mut self, token: Token, op: Op, out: &mut Outbox) {
        let Some(link) = self.link(token) else { return out.put(token, op) };
        match op {
            Op::Send(Send { segments, .. }) => {
                debug_assert!(link.waiting.is_none(), "a crowd has one send at a time");
                link.waiting = Some(segments);
                link.speak(out);
            }
            // It receives since its handshake began.
            Op::Recv => {}
            Op::Close | Op::Recycle | Op::Abort => {
                let silent = link.sending == Sending::Nobody && !link.session.is_ended();
                if silent && !matches!(op, Op::Abort) {
                    // The farewell, or an alert. Whether it arrives is the server's affair.
                    let mut bytes = Vec::new();
                    link.session.finish(&mut bytes);
                    link.put(bytes, Sending::Tls, out);
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
        let session = match sessions.begin() {
            Ok(session) => session,
            Err(reason) => return self.give_up(token, Cause::Tls(reason), at, out),
        };
        let place = token.index as usize;
        if self.links.len() <= place {
            self.links.resize_with(place + 1, || None);
        }
        let link = self.links[place].insert(Link {
            token,
            session,
            since_ns: at.now_ns,
            told: false,
            ended: false,
            sending: Sending::Nobody,
            waiting: None,
            own_bytes: 0,
        });
        out.put(token, Op::Recv);
        link.speak(out);
    }

    fn received(&mut self, token: Token, lease: &mut [u8], at: Moment, out: &mut Outbox) {
        let mut plain = mem::take(&mut self.plain);
        let Some(link) = self.link(token) else { return };
        let opened = link.session.open(lease, &mut plain);
        let established = !link.told && link.session.is_established();
        link.told |= established;
        if established {
            let (took_ns, resumed) = (at.woken_ns.saturating_sub(link.since_ns), link.session.is_resumed());
            self.crowd.shaken(took_ns, resumed);
            self.with(out, |crowd, out| crowd.on_event(Event::Connected { token }, at, out));
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
            Err(reason) => self.give_up(token, Cause::Tls(reason), at, out),
            Ok(()) if ended => {
                let event = Event::PeerClosed { token, behind_data: false };
                self.with(out, |crowd, out| crowd.on_event(event, at, out));
            }
            Ok(()) => link.speak(out),
        }
    }

    /// What is sent of a link has left.
    fn sent(&mut self, token: Token, bytes: u64, segments: Vec<Segment>, at: Moment, out: &mut Outbox) {
        let Some(link) = self.link(token) else {
            return self.crowd.on_event(Event::Sent { token, bytes, segments }, at, out);
        };
        match mem::replace(&mut link.sending, Sending::Nobody) {
            Sending::Crowd => {
                let bytes = bytes + mem::take(&mut link.own_bytes);
                let event = Event::Sent { token, bytes, segments: Vec::new() };
                self.with(out, |crowd, out| crowd.on_event(event, at, out));
            }
            Sending::Nobody | Sending::Tls => link.own_bytes += bytes,
        }
        if let Some(link) = self.link(token) {
            link.speak(out);
        }
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
        let Event::Failed { token, fault, .. } = event else { return };
        match self.link(token).map(|link| link.told) {
            Some(false) => self.give_up(token, fault.into(), at, out),
            _ => self.with(out, |crowd, out| crowd.on_event(event, at, out)),
        }
    }
}

impl Link {
    /// Sends what TLS has to say, or what the crowd sends, if nothing is on its way.
    fn speak(&mut self, out: &mut Outbox) {
        if self.sending != Sending::Nobody {
            return;
        }
        let mut bytes = Vec::new();
        let whose = match self.waiting.take() {
            None => {
                self.session.output(&mut bytes);
                Sending::Tls
            }
            Some(segments) => {
                for segment in &segments {
                    let plain = segment.memory().expect("what crowds send is in memory");
                    // A session that is broken has said so when it was read, and the crowd is about to hang up.
                    let _broken = self.session.seal(plain, &mut bytes);
                }
                Sending::Crowd
            }
        };
        self.put(bytes, whose, out);
    }

    fn put(&mut self, bytes: Vec<u8>, whose: Sending, out: &mut Outbox) {
        if !bytes.is_empty() {
            self.sending = whose;
            let segments = vec![Segment::Bytes(bytes)];
            out.put(self.token, Op::Send(Send { segments, more: false }));
        }
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
