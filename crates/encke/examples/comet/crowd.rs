//! The crowd: subscribers and publishers as states, events in, operations out; what they saw is in its [`Tally`].
//!
//! ```text
//! subscriber                 ┌──────────────── asked again ─────────────────┐
//!                            ▼                                              │
//! Away ─ dialed ─► Dialing ─ connected ─► Asking ─ answer's head ────► Held ─ a poll's answer ─► Answered
//!  ▲                                             (poll: it is sent)      │
//!  └──────────────────────── cut by us, or closed by the server ◄────────┘
//!
//! publisher    Away ─ dialed, connected ─► Idle ─ message sent ─► Busy ─ answered ─► Idle, or the next message at once
//!               ▲                          │
//!               └── closed by the server ◄─┘
//! ```
//! It opens no socket and waits for nothing: that is [`crate::engine`].

use encke_io::clock::Clock;
use encke_io::{Event, Op, OpKind, Segment, Send, Token};
use encke_stats::Distribution;

use crate::dialect::{self, Requests, Transport};
use crate::message::{Finder, Stamp};

/// Of an unexpected answer, this much is told.
const QUOTED_BYTES: usize = 120;

/// Where a subscriber stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Away,
    Dialing,
    Asking,
    Held,
    Answered,
}

struct Subscriber {
    token: Token,
    state: State,
    /// Its answer has begun.
    begun: bool,
    /// How much of the empty line after the head has been seen; 4 is all of it.
    head: u8,
    finder: Finder,
}

impl Subscriber {
    fn new(token: Token) -> Self {
        Self { token, state: State::Away, begun: false, head: 0, finder: Finder::default() }
    }
}

struct Publisher {
    /// None while it is away.
    token: Option<Token>,
    /// A message is on its way and not answered, or the connection is.
    busy: bool,
    /// When each of its messages was sent, by number.
    sent_ns: Vec<u64>,
    answer: Vec<u8>,
}

/// What the subscribers saw since it was last cleared.
#[derive(Default)]
pub(crate) struct Tally {
    /// Messages received, and when the first and the last of them.
    pub(crate) received: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// From just before the publisher's send to the subscriber's receive.
    pub(crate) latency: Distribution,
    /// Numbers that were passed over, and numbers that came again or late.
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    /// Held connections that the server closed, and connections it closed before it held them.
    pub(crate) closed: u64,
    pub(crate) turned_away: u64,
    /// Messages published.
    pub(crate) sent: u64,
}

/// Whose connection a token is.
#[derive(Clone, Copy)]
enum Seat {
    Nobody,
    Subscriber(usize),
    Publisher(usize),
}

/// See the head of this file.
pub(crate) struct Crowd {
    requests: Requests,
    pub(crate) transport: Transport,
    clock: Clock,
    /// By `token.index`.
    seats: Vec<Seat>,
    subscribers: Vec<Subscriber>,
    publishers: Vec<Publisher>,
    /// The number that comes next, by subscriber and publisher.
    next: Vec<u32>,
    /// Messages that were published and have not come, of those who were held then and are still.
    pub(crate) awaited: u64,
    /// Subscribers by state.
    counts: [usize; 5],
    /// Those that are to be dialed.
    away: Vec<usize>,
    /// A publisher that is answered publishes again.
    pub(crate) relentless: bool,
    /// The first publisher waits for the answer to a census.
    counting: bool,
    pub(crate) tally: Tally,
    /// The last whole answer that a publisher had.
    pub(crate) answer: Vec<u8>,
    /// What is to be submitted.
    pub(crate) outbox: Vec<(Token, Op)>,
    /// What ends the run.
    pub(crate) trouble: Option<String>,
}

impl Crowd {
    /// Nobody is connected yet.
    pub(crate) fn new(
        requests: Requests,
        transport: Transport,
        subscribers: usize,
        publishers: usize,
    ) -> Self {
        let subscriber = || Subscriber::new(Token::NONE);
        let publisher = || Publisher { token: None, busy: false, sent_ns: Vec::new(), answer: Vec::new() };
        Self {
            requests,
            transport,
            clock: Clock::new(),
            seats: Vec::new(),
            subscribers: std::iter::repeat_with(subscriber).take(subscribers).collect(),
            publishers: std::iter::repeat_with(publisher).take(publishers).collect(),
            next: vec![0; subscribers * publishers],
            awaited: 0,
            counts: [subscribers, 0, 0, 0, 0],
            away: (0..subscribers).rev().collect(),
            relentless: false,
            counting: false,
            tally: Tally::default(),
            answer: Vec::new(),
            outbox: Vec::new(),
            trouble: None,
        }
    }

    /// Subscribers in a state.
    pub(crate) fn count(&self, state: State) -> usize {
        self.counts[state as usize]
    }

    /// How many publishers there are.
    pub(crate) fn publishers(&self) -> usize {
        self.publishers.len()
    }

    /// The publishers to be dialed: at first all, later those whom the server closed while they were idle.
    pub(crate) fn publishers_away(&self) -> Vec<usize> {
        (0..self.publishers.len()).filter(|index| self.publishers[*index].token.is_none()).collect()
    }

    /// Whether every publisher is connected and has its answer.
    pub(crate) fn publishers_idle(&self) -> bool {
        self.publishers.iter().all(|publisher| !publisher.busy)
    }

    /// The next subscriber to be dialed.
    pub(crate) fn next_away(&mut self) -> Option<usize> {
        self.away.pop()
    }

    /// A subscriber is being connected.
    pub(crate) fn dialed(&mut self, index: usize, token: Token) {
        self.subscribers[index] = Subscriber::new(token);
        self.seat(token, Seat::Subscriber(index));
        self.change(index, State::Dialing);
    }

    /// A publisher is being connected.
    pub(crate) fn publisher_dialed(&mut self, index: usize, token: Token) {
        let publisher = &mut self.publishers[index];
        (publisher.token, publisher.busy) = (Some(token), true);
        self.seat(token, Seat::Publisher(index));
    }

    /// Begins a new account: what has not come until now is not waited for any more.
    pub(crate) fn begin(&mut self) {
        self.tally = Tally::default();
        self.awaited = 0;
        for index in 0..self.subscribers.len() {
            self.expect_next(index);
        }
    }

    /// Has a publisher send its next message.
    pub(crate) fn publish(&mut self, index: usize) {
        let number = self.publishers[index].sent_ns.len() as u32;
        let request = self.requests.publish(Stamp { publisher: index, number });
        self.awaited += self.counts[State::Held as usize] as u64;
        self.tally.sent += 1;
        self.post(index, request);
        self.publishers[index].sent_ns.push(self.clock.now().mono_ns);
    }

    /// Has the first publisher ask how many subscribers there are; false if this server does not tell.
    pub(crate) fn ask_census(&mut self) -> bool {
        let Some(request) = self.requests.census.clone() else { return false };
        self.counting = true;
        self.post(0, request);
        true
    }

    /// Has those whose poll was answered poll again.
    pub(crate) fn ask_again(&mut self) {
        for index in 0..self.subscribers.len() {
            if self.subscribers[index].state == State::Answered {
                self.ask(index);
            }
        }
    }

    /// Cuts every connection with a reset: nothing of it lingers, here or there.
    pub(crate) fn cut_all(&mut self) {
        for index in 0..self.subscribers.len() {
            if self.subscribers[index].state != State::Away {
                self.leave(index);
            }
        }
        // The first leaves first and comes back first.
        self.away.sort_unstable_by(|one, other| other.cmp(one));
    }

    /// Whether everybody who is held has every message, and every publisher its answer.
    pub(crate) fn all_told(&self) -> bool {
        self.awaited == 0 && self.publishers_idle()
    }

    /// When a publisher's latest message was sent.
    pub(crate) fn last_sent_ns(&self, publisher: usize) -> u64 {
        self.publishers[publisher].sent_ns.last().copied().unwrap_or(0)
    }

    /// What happened becomes states, counts, and operations in the outbox.
    pub(crate) fn on_event(&mut self, event: Event<'_>) {
        match event {
            Event::Connected { token } => match self.seated(token) {
                Seat::Subscriber(index) => {
                    self.outbox.push((token, Op::Recv));
                    self.ask(index);
                }
                Seat::Publisher(index) => {
                    self.outbox.push((token, Op::Recv));
                    self.publishers[index].busy = false;
                }
                Seat::Nobody => {}
            },
            Event::Sent { token, .. } => {
                // A poll is answered when there is something to say: that it was sent must do.
                if let Seat::Subscriber(index) = self.seated(token)
                    && self.transport == Transport::Poll
                    && self.subscribers[index].state == State::Asking
                {
                    self.hold(index);
                }
            }
            Event::Received { token, lease } => match self.seated(token) {
                Seat::Subscriber(index) => self.subscriber_received(index, lease),
                Seat::Publisher(index) => self.publisher_received(index, lease),
                Seat::Nobody => {}
            },
            Event::PeerClosed { token, .. } => self.ended(token, "the server closed the connection"),
            Event::Failed { token, op: OpKind::Connect, fault, .. } => {
                // Silence may be a full queue; a refusal is nobody there.
                self.trouble = Some(format!("cannot connect: {fault}"));
                self.ended(token, "it could not be connected");
            }
            Event::Failed { token, fault, .. } => self.ended(token, &fault.to_string()),
            Event::Accepted { .. }
            | Event::Watched { .. }
            | Event::Offloaded { .. }
            | Event::Woken
            | Event::Closed { .. } => {}
        }
    }

    fn subscriber_received(&mut self, index: usize, piece: &[u8]) {
        let subscriber = &mut self.subscribers[index];
        if subscriber.finder.between() {
            let at_head = !std::mem::replace(&mut subscriber.begun, true);
            if at_head || self.transport == Transport::Poll {
                match dialect::status(piece) {
                    Some(200 | 101) => {}
                    // Nothing was said for as long as a poll waits.
                    Some(204) if self.transport == Transport::Poll => return self.ask(index),
                    // The rest of an answer whose head came alone.
                    None if !at_head => {}
                    _ => return self.misunderstood(piece),
                }
            }
            if self.transport == Transport::Ws
                && subscriber.state == State::Held
                && let Some(pong) = dialect::pong(piece)
            {
                self.outbox.push((subscriber.token, send(pong)));
            }
        }
        if subscriber.state == State::Asking {
            subscriber.head = piece.iter().fold(subscriber.head, |seen, byte| match (seen, byte) {
                (4, _) => 4,
                (0 | 2, b'\r') | (1 | 3, b'\n') => seen + 1,
                (_, b'\r') => 1,
                _ => 0,
            });
            if subscriber.head == 4 {
                self.hold(index);
            }
        }
        self.find_messages(index, piece);
    }

    fn find_messages(&mut self, index: usize, piece: &[u8]) {
        let now_ns = self.clock.now().mono_ns;
        let mut finder = self.subscribers[index].finder;
        let mut found = false;
        finder.feed(piece, |stamp| {
            found = true;
            let publisher = self.publishers.get(stamp.publisher);
            // A message of another run on this channel has a number that was not given out yet.
            let Some(&sent_ns) = publisher.and_then(|one| one.sent_ns.get(stamp.number as usize)) else {
                return;
            };
            self.tally.received(now_ns, now_ns.saturating_sub(sent_ns));
            let next = &mut self.next[index * self.publishers.len() + stamp.publisher];
            match stamp.number.checked_sub(*next) {
                Some(passed) => {
                    self.awaited -= u64::from(passed) + 1;
                    self.tally.lost += u64::from(passed);
                    *next = stamp.number + 1;
                }
                None => self.tally.repeated += 1,
            }
        });
        self.subscribers[index].finder = finder;
        if found && self.transport == Transport::Poll {
            self.change(index, State::Answered);
        }
    }

    fn publisher_received(&mut self, index: usize, piece: &[u8]) {
        let publisher = &mut self.publishers[index];
        publisher.answer.extend_from_slice(piece);
        let Some((status, _)) = dialect::answer(&publisher.answer) else { return };
        // A channel that is not there has nobody yet.
        let nobody = std::mem::take(&mut self.counting) && status == 404;
        if !(200..300).contains(&status) && !nobody {
            let answer = std::mem::take(&mut publisher.answer);
            return self.misunderstood(&answer);
        }
        publisher.busy = false;
        std::mem::swap(&mut publisher.answer, &mut self.answer);
        publisher.answer.clear();
        if self.relentless {
            self.publish(index);
        }
    }

    /// The connection is of no more use.
    fn ended(&mut self, token: Token, why: &str) {
        match self.seated(token) {
            Seat::Subscriber(index) => {
                match self.subscribers[index].state {
                    State::Held | State::Answered => self.tally.closed += 1,
                    _ => self.tally.turned_away += 1,
                }
                self.leave(index);
            }
            Seat::Publisher(index) if !self.publishers[index].busy => {
                // A server may close who is silent for long.
                self.publishers[index].token = None;
                self.outbox.push((token, Op::Abort));
                self.seat(token, Seat::Nobody);
            }
            Seat::Publisher(_) => self.trouble = Some(format!("a publisher was not answered: {why}")),
            Seat::Nobody => {}
        }
    }

    /// Has a publisher send a request.
    fn post(&mut self, index: usize, request: Vec<u8>) {
        let publisher = &mut self.publishers[index];
        match publisher.token {
            Some(token) => {
                publisher.busy = true;
                self.outbox.push((token, send(request)));
            }
            None => self.trouble = Some("a publisher's connection was closed before it published".into()),
        }
    }

    fn leave(&mut self, index: usize) {
        let Subscriber { token, state, .. } = self.subscribers[index];
        if state == State::Held {
            let next = self.next.chunks(self.publishers.len()).nth(index).unwrap_or_default();
            let sent = self.publishers.iter().map(|publisher| publisher.sent_ns.len() as u64);
            self.awaited -= sent.zip(next).map(|(sent, next)| sent - u64::from(*next)).sum::<u64>();
        }
        self.outbox.push((token, Op::Abort));
        self.seat(token, Seat::Nobody);
        self.change(index, State::Away);
        self.away.push(index);
    }

    fn ask(&mut self, index: usize) {
        self.subscribers[index].begun = false;
        self.change(index, State::Asking);
        self.outbox.push((self.subscribers[index].token, send(self.requests.subscribe.clone())));
    }

    /// From here on every message must come. What is said between two polls is not looked for.
    fn hold(&mut self, index: usize) {
        self.expect_next(index);
        self.change(index, State::Held);
    }

    /// Of each publisher the next message is the one after those that were sent.
    fn expect_next(&mut self, index: usize) {
        let count = self.publishers.len();
        let next = &mut self.next[index * count..(index + 1) * count];
        for (next, publisher) in next.iter_mut().zip(&self.publishers) {
            *next = publisher.sent_ns.len() as u32;
        }
    }

    fn misunderstood(&mut self, answer: &[u8]) {
        let quoted = String::from_utf8_lossy(&answer[..answer.len().min(QUOTED_BYTES)]);
        self.trouble = Some(format!("an answer that was not expected: {quoted:?}"));
    }

    fn change(&mut self, index: usize, state: State) {
        let before = std::mem::replace(&mut self.subscribers[index].state, state);
        self.counts[before as usize] -= 1;
        self.counts[state as usize] += 1;
    }

    fn seat(&mut self, token: Token, seat: Seat) {
        let place = token.index as usize;
        if place >= self.seats.len() {
            self.seats.resize(place + 1, Seat::Nobody);
        }
        self.seats[place] = seat;
    }

    fn seated(&self, token: Token) -> Seat {
        self.seats.get(token.index as usize).copied().unwrap_or(Seat::Nobody)
    }
}

impl Tally {
    fn received(&mut self, now_ns: u64, latency_ns: u64) {
        if self.received == 0 {
            self.first_ns = now_ns;
        }
        self.last_ns = now_ns;
        self.received += 1;
        self.latency.record(latency_ns);
    }
}

fn send(bytes: Vec<u8>) -> Op {
    Op::Send(Send { segments: vec![Segment::Bytes(bytes)], more: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use crate::message;

    const SUBSCRIBER: Token = Token { index: 1, generation: 0 };
    const PUBLISHER: Token = Token { index: 2, generation: 0 };

    /// One subscriber and one publisher, both connected.
    fn connected(transport: Transport) -> Crowd {
        let requests = Requests::new(Dialect::Encke, transport, "localhost", "news", None);
        let mut crowd = Crowd::new(requests, transport, 1, 1);
        crowd.publisher_dialed(0, PUBLISHER);
        crowd.on_event(Event::Connected { token: PUBLISHER });
        let index = crowd.next_away().expect("the only subscriber is away");
        crowd.dialed(index, SUBSCRIBER);
        crowd.on_event(Event::Connected { token: SUBSCRIBER });
        crowd.on_event(Event::Sent { token: SUBSCRIBER, bytes: 1, segments: Vec::new() });
        crowd
    }

    fn held(transport: Transport) -> Crowd {
        let mut crowd = connected(transport);
        if transport != Transport::Poll {
            receive(&mut crowd, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
        }
        assert_eq!(crowd.count(State::Held), 1);
        crowd
    }

    fn receive(crowd: &mut Crowd, text: &str) {
        crowd.on_event(Event::Received { token: SUBSCRIBER, lease: &mut text.as_bytes().to_vec() });
    }

    fn message(number: u32) -> String {
        format!("data: {}\n\n", message::text(Stamp { publisher: 0, number }))
    }

    #[test]
    fn a_subscriber_of_a_stream_is_held_once_the_head_is_whole() {
        let mut crowd = connected(Transport::Sse);
        for piece in ["HTTP/1.1 200 OK\r\nContent-Type: te", "xt/event-stream\r", "\n\r"] {
            receive(&mut crowd, piece);
            assert_eq!(crowd.count(State::Held), 0, "after {piece:?}");
        }
        receive(&mut crowd, "\n");
        assert_eq!(crowd.count(State::Held), 1);
    }

    #[test]
    fn a_gap_is_lost_and_what_comes_again_is_repeated() {
        let mut crowd = held(Transport::Sse);
        (0..4).for_each(|_| crowd.publish(0));
        for number in [0, 2, 2, 1, 3] {
            receive(&mut crowd, &message(number));
        }
        let Tally { received, lost, repeated, .. } = crowd.tally;
        assert_eq!((received, lost, repeated), (5, 1, 2));
        assert_eq!(crowd.awaited, 0);
    }

    #[test]
    fn several_messages_in_one_piece_are_several() {
        let mut crowd = held(Transport::Sse);
        (0..3).for_each(|_| crowd.publish(0));
        receive(&mut crowd, &(message(0) + &message(1)));
        assert_eq!((crowd.tally.received, crowd.awaited), (2, 1));
    }

    #[test]
    fn nothing_is_awaited_of_a_subscriber_whom_the_server_closed() {
        let mut crowd = held(Transport::Sse);
        (0..2).for_each(|_| crowd.publish(0));
        receive(&mut crowd, &message(0));
        crowd.on_event(Event::PeerClosed { token: SUBSCRIBER, behind_data: false });
        assert_eq!((crowd.tally.closed, crowd.awaited, crowd.count(State::Away)), (1, 0, 1));
    }

    #[test]
    fn an_answered_poll_waits_until_it_is_asked_again() {
        let mut crowd = held(Transport::Poll);
        crowd.publish(0);
        receive(&mut crowd, &format!("HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n{}", &message(0)[6..70]));
        assert_eq!((crowd.count(State::Answered), crowd.awaited), (1, 0));
        crowd.ask_again();
        crowd.on_event(Event::Sent { token: SUBSCRIBER, bytes: 1, segments: Vec::new() });
        assert_eq!(crowd.count(State::Held), 1);
    }

    #[test]
    fn a_publisher_whom_the_server_closes_is_dialed_again_unless_it_waits_for_an_answer() {
        let mut crowd = held(Transport::Sse);
        assert!(crowd.publishers_away().is_empty());
        crowd.on_event(Event::PeerClosed { token: PUBLISHER, behind_data: false });
        assert_eq!(crowd.publishers_away(), [0]);
        crowd.publisher_dialed(0, PUBLISHER);
        crowd.on_event(Event::Connected { token: PUBLISHER });
        crowd.publish(0);
        assert!(crowd.trouble.is_none());
        crowd.on_event(Event::PeerClosed { token: PUBLISHER, behind_data: false });
        assert!(crowd.trouble.is_some());
    }

    #[test]
    fn a_channel_that_is_not_there_has_nobody_but_nobody_publishes_to_it() {
        let missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        let mut crowd = held(Transport::Poll);
        assert!(crowd.ask_census());
        crowd.on_event(Event::Received { token: PUBLISHER, lease: &mut missing.clone() });
        assert!(crowd.publishers_idle() && crowd.trouble.is_none());
        crowd.publish(0);
        crowd.on_event(Event::Received { token: PUBLISHER, lease: &mut missing.clone() });
        assert!(crowd.trouble.is_some());
    }

    #[test]
    fn an_answer_that_was_not_expected_is_trouble() {
        let mut crowd = connected(Transport::Sse);
        receive(&mut crowd, "HTTP/1.1 404 Not Found\r\n\r\n");
        assert!(crowd.trouble.is_some_and(|trouble| trouble.contains("404")));
    }
}
