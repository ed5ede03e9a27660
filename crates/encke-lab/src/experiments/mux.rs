//! `mux` (report 002): poll against epoll, and the cost of finding the connection of an event.
//!
//! ```text
//!  a round:  clients: 1,024 bytes on each active connection        not measured
//!            the server: wait ─► find the record ─► recv ─► send   measured: its CPU time
//!            clients: read the responses                           not measured
//! ```
//! One thread runs both sides in turn, so the number of ready connections at each wait is known. The report's clients were
//! threads; two rows have such clients. Their own work is not counted, but the server has to wait for them. Connections are
//! pairs of Unix sockets, which need no port; on Windows they are TCP.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, Scope};

use encke_io::offload::Pool;
use encke_io::socket::Stream;
use encke_io::{
    Backend, Event, Op, Reactor, ReactorSource, ReactorTask, Segment, Send, Token, Unavailable, host, run_on,
};

use crate::error::LabError;
use crate::experiment::{
    Absent, CellIndex, CellSample, Claim, Design, Experiment, Fact, Judged, Load, LoadAxis, RowPlan, Way,
    design_rows, is_windows, loads_within, row_of, rows_here,
};
use crate::results::Results;
use crate::rounds::{OrderRandom, RoundPace};
use crate::specimens::mux::{Mux, MuxHow};
use crate::specimens::system::{PAIRS_MAX, PairEnd, pairs};
use crate::stopwatch;

/// The server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MuxServer {
    Specimen(MuxHow),
    /// A specimen whose clients are threads.
    Thronged(MuxHow),
    Encke(Backend),
}

impl MuxServer {
    /// Whether this system has it.
    fn is_here(self) -> bool {
        match self {
            Self::Specimen(how) | Self::Thronged(how) => how.system().is_here(),
            Self::Encke(backend) => backend.compiled(),
        }
    }
}

/// The rows of all systems.
const ROWS: [RowPlan<MuxServer>; 15] = [
    (MuxServer::Specimen(MuxHow::PollIndex), Way::Old, "poll, by index"),
    (MuxServer::Specimen(MuxHow::WsaPollIndex), Way::Old, "WSAPoll, by index"),
    (MuxServer::Thronged(MuxHow::WsaPollIndex), Way::Old, "WSAPoll, by index, clients as threads"),
    (MuxServer::Encke(Backend::Afd), Way::Encke, "Encke's reactor on the socket driver"),
    (MuxServer::Specimen(MuxHow::LevelScan), Way::Old, "epoll level, by search"),
    (MuxServer::Specimen(MuxHow::EdgeScan), Way::Old, "epoll edge, by search"),
    (MuxServer::Specimen(MuxHow::LevelIndex), Way::Cure, "epoll level, by index"),
    (MuxServer::Specimen(MuxHow::EdgeIndex), Way::Cure, "epoll edge, by index"),
    (MuxServer::Specimen(MuxHow::Signals), Way::Peer, "signals, by index"),
    (MuxServer::Thronged(MuxHow::PollIndex), Way::Old, "poll, by index, clients as threads"),
    (MuxServer::Thronged(MuxHow::LevelScan), Way::Old, "epoll level, by search, clients as threads"),
    (MuxServer::Encke(Backend::Poll), Way::Encke, "Encke's reactor on poll"),
    (MuxServer::Encke(Backend::EpollLevel), Way::Encke, "… on epoll, level"),
    (MuxServer::Encke(Backend::EpollEdge), Way::Encke, "… on epoll, edge"),
    (MuxServer::Encke(Backend::Uring), Way::Encke, "… on io_uring"),
];

/// The difference on Windows.
const ON_WINDOWS: &str = "Windows has no epoll, no signals and no io_uring: the rows are WSAPoll, which examines every socket at each \
                          call as poll does, and Encke's reactor on the socket driver (afd), whose events carry the index of \
                          their connection. The claims on epoll are not measured. Connections are TCP, at most 1,000.";

/// The number of connections, the active ones per round, and the rounds until the connections close. Without a number of
/// rounds, the pace decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MuxCrowd {
    connections: usize,
    active: usize,
    rounds: Option<u64>,
}

/// The report's number of connections; the descriptor limit may reduce it.
const CONNECTIONS: usize = 10_000;

/// Opening and closing 10,000 connections takes a third of a second: 12 rows of five such loads, nine times, are three minutes.
/// With all of them active, the report's numbers of rounds would take as many hours; ten rounds take two minutes.
const CROWDS: [MuxCrowd; 7] = [
    MuxCrowd::new(1_000, 10),
    MuxCrowd::new(1_000, 1_000),
    MuxCrowd::new(CONNECTIONS, 10).living(100),
    MuxCrowd::new(CONNECTIONS, 10).living(500),
    MuxCrowd::new(CONNECTIONS, 10).living(1_000),
    MuxCrowd::new(CONNECTIONS, 1_000),
    MuxCrowd::new(CONNECTIONS, CONNECTIONS),
];
/// Opening and closing 2,000 connections takes some 30 ms: 12 rows of two such loads, 15 times, are 11 s.
const CROWDS_QUICK: [MuxCrowd; 3] =
    [MuxCrowd::new(1_000, 10), MuxCrowd::new(2_000, 10), MuxCrowd::new(2_000, 2_000)];

/// Number of client threads, which take turns with the connections.
const CLIENT_THREADS: usize = 50;

/// Descriptors for everything but the connections, which take two each.
const DESCRIPTORS_ASIDE: u64 = 128;

const MESSAGE_BYTES: usize = 1_024;

/// The reason why a row has no results for this number of rounds.
const LEFT_OUT: &str = "omitted because it takes too long; the other rows have as many rounds";

/// The name of a specimen's fact.
const LOOKED: &str = "records checked";

pub(super) struct Multiplexers {
    design: Design,
    /// The rows of this system.
    rows: Vec<RowPlan<MuxServer>>,
    crowds: Vec<MuxCrowd>,
    random: OrderRandom,
}

impl Multiplexers {
    pub(super) fn new(pace: &RoundPace) -> Self {
        let most = (host::raise_descriptor_limit().saturating_sub(DESCRIPTORS_ASIDE) / 2).max(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(PAIRS_MAX);
        let crowds = loads_within(&CROWDS, &CROWDS_QUICK, pace).into_iter().map(|crowd| crowd.within(most));
        let mut different: Vec<MuxCrowd> = Vec::new();
        // Reduced loads may become equal.
        for crowd in crowds {
            if !different.contains(&crowd) {
                different.push(crowd);
            }
        }
        let crowds = different;
        let rows = rows_here(&ROWS, MuxServer::is_here);
        let design = Design {
            name: "mux",
            unit: "an exchange",
            judged: Judged::Cpu,
            rows: design_rows(&rows),
            loads: crowds.iter().map(MuxCrowd::load).collect(),
            axis: LoadAxis::Kinds,
            drawn: Vec::new(),
        };
        Self { design, rows, crowds, random: OrderRandom::new(pace.seed) }
    }

    /// The loads with the most connections: all of them with the fewest active ones, and the one with the most active ones.
    fn extremes(&self) -> (Vec<usize>, usize) {
        let most = self.crowds.iter().map(|crowd| crowd.connections).max().unwrap_or(0);
        let largest = || (0..self.crowds.len()).filter(|&load| self.crowds[load].connections == most);
        let active = |load: &usize| self.crowds[*load].active;
        let fewest = largest().map(|load| active(&load)).min().unwrap_or(0);
        let few = largest().filter(|load| active(load) == fewest).collect();
        (few, largest().max_by_key(active).unwrap_or(0))
    }
}

impl MuxCrowd {
    const fn new(connections: usize, active: usize) -> Self {
        Self { connections, active, rounds: None }
    }

    const fn living(self, rounds: u64) -> Self {
        Self { rounds: Some(rounds), ..self }
    }

    /// Reduces the load to at most `most` connections.
    fn within(self, most: usize) -> Self {
        let connections = self.connections.min(most);
        Self { connections, active: self.active.min(connections), ..self }
    }

    fn load(&self) -> Load {
        let Self { connections, active, rounds } = self;
        let name = match rounds {
            Some(rounds) => format!("{active} of {connections}, {rounds} rounds"),
            None if active == connections => format!("all of {connections} active"),
            None => format!("{active} of {connections} active"),
        };
        Load { units: *active as f64 * rounds.unwrap_or(1) as f64, ..Load::kind(name) }
    }
}

impl Experiment for Multiplexers {
    fn design(&self) -> &Design {
        &self.design
    }

    fn measure(&mut self, cell: CellIndex, count: u64) -> Result<CellSample, Absent> {
        let (server, crowd) = (self.rows[cell.row].0, self.crowds[cell.load]);
        let mut exchanged = |rounds| {
            let random = OrderRandom::new(self.random.next());
            exchanged(server, crowd, rounds, random)
        };
        let Some(rounds) = crowd.rounds else { return Ok(exchanged(count)?) };
        // With poll each of these takes seconds, nine times over; neither client threads nor Encke's reactor change that.
        if matches!(server, MuxServer::Thronged(_) | MuxServer::Encke(Backend::Poll)) {
            return Err(Absent(LEFT_OUT.into()));
        }
        let mut sum = exchanged(rounds)?;
        for _ in 1..count {
            let sample = exchanged(rounds)?;
            sum.wall_ns += sample.wall_ns;
            sum.cpu_ns += sample.cpu_ns;
        }
        Ok(sum)
    }

    /// Each measurement opens thousands of connections.
    fn count_min(&self, cell: CellIndex) -> u64 {
        if self.crowds[cell.load].rounds.is_some() { 1 } else { 4 }
    }

    fn difference(&self) -> Option<&'static str> {
        is_windows().then_some(ON_WINDOWS)
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let [poll, scan, index] = [MuxHow::PollIndex, MuxHow::LevelScan, MuxHow::LevelIndex]
            .map(|how| row_of(&self.rows, &MuxServer::Specimen(how)));
        let encke = row_of(&self.rows, &MuxServer::Encke(Backend::EpollEdge));
        let (few, all) = self.extremes();
        vec![
            results.at_most(0.9, poll, scan, all),
            Claim::all(few.iter().map(|&load| results.at_most(0.5, scan, poll, load))),
            Claim::all((0..self.crowds.len()).map(|load| results.at_most(1.3, index, poll, load))),
            results.at_most(0.8, index, scan, all),
            results.at_most(1.0, encke, scan, all),
            Claim::all(few.iter().map(|&load| results.at_most(0.5, encke, poll, load))),
        ]
    }
}

/// Runs `count` rounds on new connections, after an uncounted round that arms the sockets.
fn exchanged(
    server: MuxServer,
    crowd: MuxCrowd,
    count: u64,
    random: OrderRandom,
) -> Result<CellSample, LabError> {
    let (clients, sockets) = Clients::connected(crowd, random)?;
    match server {
        MuxServer::Specimen(how) | MuxServer::Thronged(how) => {
            let mut mux = Mux::new(how, &sockets)?;
            let (mut looked, mut answered) = (0, 0);
            let serve = |messages| {
                looked += mux.serve(messages)?;
                answered += messages;
                Ok(())
            };
            let mut sample = match server {
                MuxServer::Thronged(_) => clients.rounds_of_threads(&sockets, count, serve)?,
                _ => clients.rounds(count, serve)?,
            };
            sample.facts.push((LOOKED, Fact::Number(looked as f64 / answered as f64)));
            Ok(sample)
        }
        MuxServer::Encke(backend) => {
            let mut result = Ok(CellSample::default());
            let pool = Pool::start(1, 1)?;
            run_on(backend, pool.clone(), EnckeExchange { clients, sockets, count, result: &mut result });
            pool.close();
            result
        }
    }
}

/// The client ends of the server's connections.
struct Clients {
    ends: Vec<PairEnd>,
    active: usize,
    random: OrderRandom,
}

impl Clients {
    /// Returns the clients, and the server's ends, which are non-blocking.
    fn connected(crowd: MuxCrowd, random: OrderRandom) -> io::Result<(Self, Vec<PairEnd>)> {
        let (ends, sockets): (Vec<PairEnd>, Vec<PairEnd>) = pairs(crowd.connections)?.into_iter().unzip();
        sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
        Ok((Self { ends, active: crowd.active, random }, sockets))
    }

    /// Measures `serve` for `count` rounds; its argument is the number of messages of a round.
    fn rounds(
        self,
        count: u64,
        serve: impl FnMut(u64) -> Result<(), LabError>,
    ) -> Result<CellSample, LabError> {
        let Self { ends, active, random } = self;
        rounds(&mut OneThread(&ends), ActiveChoice { all: ends.len(), active, random }, count, serve)
    }

    /// Measures the same with client threads, for a server of these sockets. They share the server's processor, because they
    /// start on it.
    fn rounds_of_threads(
        self,
        sockets: &[PairEnd],
        count: u64,
        serve: impl FnMut(u64) -> Result<(), LabError>,
    ) -> Result<CellSample, LabError> {
        let Self { ends, active, random } = self;
        thread::scope(|scope| {
            let mut threads = ClientThreads::start(scope, &ends)?;
            let sample = rounds(&mut threads, ActiveChoice { all: ends.len(), active, random }, count, serve);
            if sample.is_err() {
                // A client that waits for a missing response would block the scope for ever. The end of the server's side wakes
                // it on every system; on Windows that of its own side does not.
                sockets.iter().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
            }
            sample
        })
    }
}

fn rounds(
    voices: &mut impl ClientSender,
    mut speakers: ActiveChoice,
    count: u64,
    mut serve: impl FnMut(u64) -> Result<(), LabError>,
) -> Result<CellSample, LabError> {
    let mut sample = CellSample::default();
    for round in 0..=count {
        let speakers_now = speakers.next();
        let message = [round as u8; MESSAGE_BYTES];
        voices.say(&speakers_now, message)?;
        let mut served = Ok(());
        let took = stopwatch::time(|| served = serve(speakers.active as u64));
        served?;
        if round > 0 {
            sample.wall_ns += took.wall_ns;
            sample.cpu_ns += took.cpu_ns;
        }
        voices.hear(&speakers_now, message)?;
    }
    Ok(sample)
}

type MuxMessage = [u8; MESSAGE_BYTES];

/// Sends for the clients: each speaker sends a message, and must receive it back.
trait ClientSender {
    /// Sends all messages; they may leave shortly after this returns.
    fn say(&mut self, speakers: &[usize], message: MuxMessage) -> Result<(), LabError>;

    /// Waits for all responses.
    fn hear(&mut self, speakers: &[usize], message: MuxMessage) -> Result<(), LabError>;
}

/// The serving thread sends before, and receives after it serves.
struct OneThread<'a>(&'a [PairEnd]);

impl ClientSender for OneThread<'_> {
    fn say(&mut self, speakers: &[usize], message: MuxMessage) -> Result<(), LabError> {
        Ok(speakers.iter().try_for_each(|&speaker| (&self.0[speaker]).write_all(&message))?)
    }

    fn hear(&mut self, speakers: &[usize], message: MuxMessage) -> Result<(), LabError> {
        let mut answer = [0; MESSAGE_BYTES];
        for &speaker in speakers {
            (&self.0[speaker]).read_exact(&mut answer)?;
            if answer != message {
                return Err(LabError::unexpected("a response differs from its request"));
            }
        }
        Ok(())
    }
}

/// Client threads, each for some of the active connections of a round. They end when this is dropped.
struct ClientThreads {
    orders: Vec<Sender<(Vec<usize>, MuxMessage)>>,
    heard: Receiver<Result<(), LabError>>,
}

impl ClientThreads {
    fn start<'scope>(scope: &'scope Scope<'scope, '_>, ends: &'scope [PairEnd]) -> io::Result<Self> {
        let (tell, heard) = mpsc::channel();
        let mut orders = Vec::new();
        for _ in 0..CLIENT_THREADS {
            let (order, ordered) = mpsc::channel::<(Vec<usize>, MuxMessage)>();
            let tell = tell.clone();
            thread::Builder::new().name("clients".into()).spawn_scoped(scope, move || {
                let mut voice = OneThread(ends);
                for (speakers, message) in ordered {
                    let said = voice.say(&speakers, message);
                    // The receiver has ended if the server failed.
                    let _gone = tell.send(said.and_then(|()| voice.hear(&speakers, message)));
                }
            })?;
            orders.push(order);
        }
        Ok(Self { orders, heard })
    }
}

impl ClientSender for ClientThreads {
    fn say(&mut self, speakers: &[usize], message: MuxMessage) -> Result<(), LabError> {
        for (thread, order) in self.orders.iter().enumerate() {
            let its = speakers.iter().copied().skip(thread).step_by(CLIENT_THREADS).collect();
            order.send((its, message)).map_err(|_| LabError::Ended("a client thread ended"))?;
        }
        Ok(())
    }

    fn hear(&mut self, _: &[usize], _: MuxMessage) -> Result<(), LabError> {
        self.heard.iter().take(CLIENT_THREADS).collect()
    }
}

/// Chooses the active connections of each round.
struct ActiveChoice {
    all: usize,
    active: usize,
    random: OrderRandom,
}

impl ActiveChoice {
    /// Evenly spread, starting at a random connection.
    fn next(&mut self) -> Vec<usize> {
        let Self { all, active, random } = self;
        let first = random.below(*all as u64) as usize;
        (0..*active).map(|turn| (first + turn * *all / *active) % *all).collect()
    }
}

/// Encke's way: an event contains the index of its connection.
struct EnckeExchange<'a> {
    clients: Clients,
    sockets: Vec<PairEnd>,
    count: u64,
    result: &'a mut Result<CellSample, LabError>,
}

impl ReactorTask for EnckeExchange<'_> {
    fn run<R: Reactor>(self, reactor: Result<R, Unavailable>) {
        let Self { clients, sockets, count, result } = self;
        *result = reactor.map_err(LabError::from).and_then(|reactor| {
            let mut echo = Echo::new(reactor, sockets)?;
            clients.rounds(count, |messages| echo.serve(messages))
        });
    }
}

/// An echo server on a reactor.
struct Echo<R> {
    reactor: R,
    /// By connection index: bytes of an incomplete message.
    partial: Vec<Vec<u8>>,
    /// Segments returned by completed sends.
    spare: Vec<Vec<Segment>>,
}

impl<R: Reactor> Echo<R> {
    fn new(mut reactor: R, sockets: Vec<PairEnd>) -> Result<Self, LabError> {
        let mut partial = Vec::new();
        for socket in sockets {
            let stream = Stream::connected(socket.into())?;
            let token = reactor.adopt(ReactorSource::Stream(stream))?;
            reactor.submit(token, Op::Recv);
            partial.resize_with(partial.len().max(token.index as usize + 1), Vec::new);
        }
        // Edge-triggered back ends report each connection as writable once, some dozens per wait. These events are consumed
        // here.
        for _ in 0..=partial.len() / 32 {
            let now = reactor.now().mono_ns;
            reactor.wait(Some(now))?;
            while reactor.next().is_some() {}
        }
        Ok(Self { reactor, partial, spare: Vec::new() })
    }

    fn serve(&mut self, messages: u64) -> Result<(), LabError> {
        let mut answered = 0;
        while answered < messages {
            self.reactor.wait(None)?;
            while let Some(event) = self.reactor.next() {
                let answer: (Token, Vec<Segment>) = match event {
                    Event::Received { token, lease } => {
                        let partial = &mut self.partial[token.index as usize];
                        if partial.is_empty() && lease.len() == MESSAGE_BYTES {
                            (token, filled(self.spare.pop(), lease))
                        } else {
                            partial.extend_from_slice(lease);
                            if partial.len() < MESSAGE_BYTES {
                                continue;
                            }
                            let segments = filled(self.spare.pop(), partial);
                            partial.clear();
                            (token, segments)
                        }
                    }
                    Event::Sent { segments, .. } => {
                        answered += 1;
                        self.spare.push(segments);
                        continue;
                    }
                    Event::Failed { fault, .. } => return Err(fault.into()),
                    Event::PeerClosed { .. } => return Err(LabError::unexpected("a client has closed")),
                    _ => continue,
                };
                let (token, segments) = answer;
                self.reactor.submit(token, Op::Send(Send { segments, more: false }));
            }
        }
        Ok(())
    }
}

/// A message to be sent, in the buffer of an earlier one.
fn filled(spare: Option<Vec<Segment>>, message: &[u8]) -> Vec<Segment> {
    let mut segments = spare.unwrap_or_else(|| vec![Segment::Bytes(Vec::with_capacity(MESSAGE_BYTES))]);
    if let [Segment::Bytes(bytes)] = &mut segments[..] {
        bytes.clear();
        bytes.extend_from_slice(message);
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    const CROWD: MuxCrowd = MuxCrowd::new(64, 8);

    fn looked(how: MuxHow, crowd: MuxCrowd) -> f64 {
        let sample =
            exchanged(MuxServer::Specimen(how), crowd, 20, OrderRandom::new(1)).expect("64 pairs of sockets");
        match sample.facts[..] {
            [(LOOKED, Fact::Number(looked))] => looked,
            ref other => panic!("{other:?}"),
        }
    }

    /// The slow specimens are recognized by their steps, which do not depend on the machine's load.
    #[test]
    fn a_search_looks_at_half_of_all_records_and_an_index_at_one() {
        let here =
            |hows: &[MuxHow]| hows.iter().copied().filter(|how| how.system().is_here()).collect::<Vec<_>>();
        for how in here(&[MuxHow::LevelScan, MuxHow::EdgeScan]) {
            let looked = looked(how, CROWD);
            assert!((24.0..=41.0).contains(&looked), "{how:?}: {looked} of 64");
        }
        let indexed =
            [MuxHow::PollIndex, MuxHow::WsaPollIndex, MuxHow::LevelIndex, MuxHow::EdgeIndex, MuxHow::Signals];
        for how in here(&indexed) {
            assert_eq!(looked(how, CROWD), 1.0, "{how:?}");
        }
        let all = MuxCrowd { active: 64, ..CROWD };
        for how in here(&[MuxHow::LevelScan]) {
            assert_eq!(looked(how, all), 32.5);
        }
    }

    #[test]
    fn every_server_answers_every_message_with_itself() {
        for (server, ..) in rows_here(&ROWS, MuxServer::is_here) {
            for crowd in [CROWD, MuxCrowd::new(1, 1), MuxCrowd::new(64, 64)] {
                let sample = exchanged(server, crowd, 3, OrderRandom::new(2));
                assert!(sample.is_ok(), "{server:?}, {crowd:?}: {sample:?}");
            }
        }
    }

    #[test]
    fn clients_that_are_threads_end_with_a_server_that_breaks_off() {
        let (clients, sockets) = Clients::connected(CROWD, OrderRandom::new(3)).expect("64 pairs of sockets");
        let broken = clients.rounds_of_threads(&sockets, 3, |_| Err(LabError::Ended("broken off")));
        assert_eq!(broken.expect_err("the server's fault").to_string(), "broken off");
    }

    #[test]
    fn a_crowd_is_cut_to_what_there_is_room_for_and_its_name_says_so() {
        let cut = CROWDS[6].within(400);
        assert_eq!(cut, MuxCrowd::new(400, 400));
        assert_eq!(cut.load().name, "all of 400 active");
        assert_eq!(CROWDS[0].within(400).load().name, "10 of 400 active");
        assert_eq!(CROWDS[2].within(400).load().name, "10 of 400, 100 rounds");
    }
}
