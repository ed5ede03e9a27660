//! What a crowd does, in phases: each submits operations, then takes turns of the reactor until all of it is done
//! or its time is over.
//!
//! A phase that is not done in time is an error where nothing could be measured without it (connecting), and a
//! figure where it is what is measured (messages that did not come).

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use encke_io::offload::Pool;
use encke_io::{EpollEdgeReactor, Op, Reactor, Source, socket};

use crate::crowd::{Crowd, State, Tally};
use crate::dialect::{self, Transport};

/// Why a run ended before its time; the text says what happened and, where it is known, what helps.
pub(crate) type Trouble = Box<dyn std::error::Error>;

/// A server that does not tell how many subscribers it has gets this long for each poll to arrive, and once more
/// the base: the slowest floor measured took 20 µs for one.
const SETTLE_EACH: Duration = Duration::from_micros(50);
const SETTLE_BASE: Duration = Duration::from_millis(20);
/// How often the others are asked.
const CENSUS_EVERY: Duration = Duration::from_millis(2);

/// A crowd on its reactor.
pub(crate) struct Engine {
    reactor: EpollEdgeReactor,
    pub(crate) crowd: Crowd,
    target: SocketAddr,
    sources: Sources,
    subscribers: usize,
    window: usize,
    timeout: Duration,
}

impl Engine {
    /// `window` is how many may be underway at a time, from dialing to the answer; `timeout` bounds each phase.
    pub(crate) fn new(
        crowd: Crowd,
        target: SocketAddr,
        window: usize,
        timeout: Duration,
    ) -> Result<Self, Trouble> {
        let reactor = EpollEdgeReactor::new(Pool::start(1, 1)?)?;
        let subscribers = crowd.count(State::Away);
        Ok(Self { reactor, crowd, target, sources: Sources::new(target), subscribers, window, timeout })
    }

    /// Connects the publishers who are not connected.
    pub(crate) fn connect_publishers(&mut self) -> Result<(), Trouble> {
        for index in self.crowd.publishers_away() {
            let stream = socket::unconnected(&self.target, None)?;
            let token = self.reactor.adopt(Source::Stream(stream))?;
            self.crowd.publisher_dialed(index, token);
            self.reactor.submit(token, Op::Connect(self.target));
        }
        let done = self.turns(self.timeout, Crowd::publishers_idle)?;
        if done { Ok(()) } else { Err("the publishers could not connect in time".into()) }
    }

    /// Connects all who are away, and returns when all are held.
    pub(crate) fn connect_all(&mut self) -> Result<(), Trouble> {
        let until = self.reactor.now().plus(self.timeout);
        let connected = |crowd: &Crowd| crowd.count(State::Held) + crowd.count(State::Answered);
        while connected(&self.crowd) < self.subscribers {
            while self.crowd.count(State::Dialing) + self.crowd.count(State::Asking) < self.window
                && let Some(index) = self.crowd.next_away()
            {
                self.dial(index)?;
            }
            if self.turn(until)? >= until {
                let Tally { turned_away, .. } = self.crowd.tally;
                return Err(format!(
                    "after {} s {} of {} subscribers were held ({turned_away} turned away)",
                    self.timeout.as_secs(),
                    connected(&self.crowd),
                    self.subscribers
                )
                .into());
            }
        }
        Ok(())
    }

    /// Cuts all.
    pub(crate) fn cut_all(&mut self) {
        self.crowd.cut_all();
        self.flush();
    }

    /// Returns when nothing is left of those who were cut.
    pub(crate) fn rest(&mut self) -> Result<(), Trouble> {
        let publishers = self.crowd.publishers();
        let until = self.reactor.now().plus(self.timeout);
        while self.reactor.occupancy().sources > publishers && self.turn(until)? < until {}
        Ok(())
    }

    /// Has those whose poll was answered poll again.
    pub(crate) fn ask_again(&mut self) -> Result<(), Trouble> {
        self.crowd.ask_again();
        self.flush();
        let subscribers = self.subscribers;
        let done = self.turns(self.timeout, |crowd| crowd.count(State::Held) == subscribers)?;
        if done { Ok(()) } else { Err("not everybody could poll again in time".into()) }
    }

    /// Returns when the server has all subscribers by its own account: a client must not trust connect(2), which
    /// succeeds for connections that the listener's queue has no place for. Where the server does not tell, after
    /// a while. Returns whether it told. Streams need none of this: their head was the answer.
    pub(crate) fn settle(&mut self) -> Result<bool, Trouble> {
        if self.crowd.transport != Transport::Poll {
            return Ok(false);
        }
        let until = self.reactor.now().plus(self.timeout);
        while self.crowd.ask_census() {
            self.flush();
            self.turns(self.timeout, Crowd::publishers_idle)?;
            let known = dialect::answer(&self.crowd.answer).and_then(|(_, body)| dialect::subscribers(body));
            if known.is_some_and(|known| known >= self.subscribers) {
                return Ok(true);
            }
            if self.reactor.now().mono_ns >= until {
                return Err(
                    format!("the server knows of {known:?} of {} subscribers", self.subscribers).into()
                );
            }
            self.pause(CENSUS_EVERY)?;
        }
        self.pause(SETTLE_BASE + SETTLE_EACH * self.subscribers as u32)?;
        Ok(false)
    }

    /// Publishes one message, and returns when all who are held have it and the publisher has its answer, or when
    /// the time is over.
    pub(crate) fn publish_one(&mut self) -> Result<(), Trouble> {
        self.crowd.publish(0);
        self.flush();
        self.turns(self.timeout, Crowd::all_told)?;
        Ok(())
    }

    /// Has every publisher publish as soon as it is answered, for so long; then waits for what is underway.
    /// Returns how much had been received when the publishing ended.
    pub(crate) fn publish_for(&mut self, long: Duration) -> Result<u64, Trouble> {
        self.crowd.relentless = true;
        for index in 0..self.crowd.publishers() {
            self.crowd.publish(index);
        }
        self.flush();
        self.pause(long)?;
        self.crowd.relentless = false;
        let received = self.crowd.tally.received;
        self.turns(self.timeout, Crowd::all_told)?;
        Ok(received)
    }

    /// Serves events for so long.
    pub(crate) fn pause(&mut self, long: Duration) -> Result<(), Trouble> {
        self.turns(long, |_| false)?;
        Ok(())
    }

    /// Serves events until a line comes; false at the end of the input.
    pub(crate) fn next_line(&mut self, lines: &Receiver<()>) -> Result<bool, Trouble> {
        loop {
            match lines.try_recv() {
                Ok(()) => return Ok(true),
                Err(TryRecvError::Disconnected) => return Ok(false),
                Err(TryRecvError::Empty) => {
                    self.turn(u64::MAX)?;
                }
            }
        }
    }

    /// The lines of the standard input, without their text; each wakes the reactor.
    pub(crate) fn lines(&self) -> Receiver<()> {
        let (sender, lines) = channel();
        let waker = self.reactor.waker();
        std::thread::spawn(move || {
            for _line in io::stdin().lines().map_while(Result::ok) {
                if sender.send(()).is_err() {
                    return;
                }
                waker.wake();
            }
            drop(sender);
            waker.wake();
        });
        lines
    }

    /// The present moment on the monotonic clock.
    pub(crate) fn now_ns(&mut self) -> u64 {
        self.reactor.now().mono_ns
    }

    fn dial(&mut self, index: usize) -> Result<(), Trouble> {
        let stream = self.sources.stream()?;
        let token = self.reactor.adopt(Source::Stream(stream))?;
        self.crowd.dialed(index, token);
        self.reactor.submit(token, Op::Connect(self.target));
        Ok(())
    }

    /// Takes turns until it is done, true, or the time is over, false.
    fn turns(&mut self, long: Duration, mut done: impl FnMut(&Crowd) -> bool) -> Result<bool, Trouble> {
        let until = self.reactor.now().plus(long);
        while !done(&self.crowd) {
            if self.turn(until)? >= until {
                return Ok(done(&self.crowd));
            }
        }
        Ok(true)
    }

    /// One turn of the reactor: waits, then serves what has happened. Returns the moment it began.
    fn turn(&mut self, until: u64) -> Result<u64, Trouble> {
        let now = self.reactor.wait((until < u64::MAX).then_some(until))?;
        while let Some(event) = self.reactor.next() {
            self.crowd.on_event(event);
            self.flush();
        }
        self.crowd.trouble.take().map_or(Ok(now.mono_ns), |trouble| Err(trouble.into()))
    }

    fn flush(&mut self) {
        for (token, op) in self.crowd.outbox.drain(..) {
            self.reactor.submit(token, op);
        }
    }
}

/// Where connections come from. One address has some 28,000 ports for one peer, and finding a free one takes
/// longer the fewer are left; so on the loopback device the crowd has addresses of its own (127/8 is all loopback)
/// and counts their ports itself.
struct Sources {
    target: SocketAddr,
    loopback: bool,
    /// Two bytes that no other process on this machine has at the moment.
    process: [u8; 2],
    given: usize,
}

const PORT_FIRST: usize = 1_024;
const PORTS: usize = 30_000;
/// The last byte of an address: 1 to 254.
const HOSTS: usize = 254;

impl Sources {
    fn new(target: SocketAddr) -> Self {
        let process = std::process::id();
        // The first of 127/8 are servers' addresses.
        let process = [64 + (process >> 8) as u8 % 128, process as u8];
        Self { target, loopback: target.is_ipv4() && target.ip().is_loopback(), process, given: 0 }
    }

    /// A socket bound to the next free place, to be connected.
    fn stream(&mut self) -> io::Result<encke_io::socket::Stream> {
        if !self.loopback {
            return socket::unconnected(&self.target, None);
        }
        loop {
            let [high, low] = self.process;
            let (host, port) = (1 + self.given / PORTS % HOSTS, PORT_FIRST + self.given % PORTS);
            self.given += 1;
            let source = SocketAddr::from((Ipv4Addr::new(127, high, low, host as u8), port as u16));
            match socket::unconnected(&self.target, Some(source)) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                other => return other,
            }
        }
    }
}
