//! `mux` (report 002): poll against epoll, and what it costs to come from an event to its connection.
//!
//! ```text
//!  a round:  clients: 1,024 bytes on each active connection        not measured
//!            the server: wait ─► find the record ─► recv ─► send   measured: its CPU time
//!            clients: read the answers                             not measured
//! ```
//! One thread plays both in turn. The report's clients were threads, whose switches blurred its figures; and so it is
//! certain how many connections are ready at each wait. Connections are pairs of Unix sockets: they need no port.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use encke_io::offload::Pool;
use encke_io::socket::Stream;
use encke_io::{Backend, Event, Op, Reactor, Run, Segment, Send, Source, Token, Unavailable, host, run_on};

use crate::experiment::{
    Absent, Axis, Cell, Claim, Design, Experiment, Fact, Judged, Load, Row, Sample, Way, loads_within,
};
use crate::results::Results;
use crate::rounds::{Pace, Random};
use crate::specimens::mux::{How, Mux};
use crate::stopwatch;

/// Who serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Server {
    Specimen(How),
    Encke(Backend),
}

const ROWS: [(Server, Way, &str); 9] = [
    (Server::Specimen(How::PollIndex), Way::Old, "poll, by index"),
    (Server::Specimen(How::LevelScan), Way::Old, "epoll level, by search"),
    (Server::Specimen(How::EdgeScan), Way::Old, "epoll edge, by search"),
    (Server::Specimen(How::LevelIndex), Way::Cure, "epoll level, by index"),
    (Server::Specimen(How::EdgeIndex), Way::Cure, "epoll edge, by index"),
    (Server::Encke(Backend::Poll), Way::Encke, "Encke's reactor on poll"),
    (Server::Encke(Backend::EpollLevel), Way::Encke, "… on epoll, level"),
    (Server::Encke(Backend::EpollEdge), Way::Encke, "… on epoll, edge"),
    (Server::Encke(Backend::Uring), Way::Encke, "… on io_uring"),
];

/// How many connections, and how many of them are active in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Crowd {
    connections: usize,
    active: usize,
}

/// The report's number of connections: those of more than the descriptor limit allows are cut to it.
const CONNECTIONS: usize = 10_000;

/// Opening and closing 10,000 takes a third of a second: 9 rows of three such loads, six times, are a minute.
const CROWDS: [Crowd; 5] = [
    Crowd { connections: 1_000, active: 10 },
    Crowd { connections: 1_000, active: 1_000 },
    Crowd { connections: CONNECTIONS, active: 10 },
    Crowd { connections: CONNECTIONS, active: 1_000 },
    Crowd { connections: CONNECTIONS, active: CONNECTIONS },
];
/// Opening and closing 2,000 connections takes some 30 ms: 9 rows of two such loads, 15 times, are 8 s.
const CROWDS_QUICK: [Crowd; 3] = [
    Crowd { connections: 1_000, active: 10 },
    Crowd { connections: 2_000, active: 10 },
    Crowd { connections: 2_000, active: 2_000 },
];

/// Descriptors for everything but the connections, of which each takes two.
const DESCRIPTORS_ASIDE: u64 = 128;

const MESSAGE_BYTES: usize = 1_024;

/// What is told of a specimen beside its time.
const LOOKED: &str = "records looked at";

pub(super) struct Multiplexers {
    design: Design,
    crowds: Vec<Crowd>,
    random: Random,
}

impl Multiplexers {
    pub(super) fn new(pace: &Pace) -> Self {
        let most = (host::raise_descriptor_limit().saturating_sub(DESCRIPTORS_ASIDE) / 2).max(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let crowds = loads_within(&CROWDS, &CROWDS_QUICK, pace).into_iter().map(|crowd| crowd.within(most));
        let mut different: Vec<Crowd> = Vec::new();
        // What is cut may become the same.
        for crowd in crowds {
            if !different.contains(&crowd) {
                different.push(crowd);
            }
        }
        let crowds = different;
        let design = Design {
            name: "mux",
            unit: "an exchange",
            judged: Judged::Cpu,
            rows: ROWS.iter().map(|&(_, way, name)| Row::new(way, name)).collect(),
            loads: crowds.iter().map(Crowd::load).collect(),
            axis: Axis::Kinds,
            drawn: Vec::new(),
        };
        Self { design, crowds, random: Random::new(pace.seed) }
    }

    /// The largest crowd, with the fewest and with the most of it active.
    fn extremes(&self) -> (usize, usize) {
        let by = |key: fn(&Crowd) -> (usize, isize)| {
            (0..self.crowds.len()).max_by_key(|load| key(&self.crowds[*load])).unwrap_or(0)
        };
        let few = by(|crowd| (crowd.connections, -(crowd.active as isize)));
        let all = by(|crowd| (crowd.connections, crowd.active as isize));
        (few, all)
    }
}

impl Crowd {
    /// As many of it as there is room for.
    fn within(self, most: usize) -> Self {
        let connections = self.connections.min(most);
        Self { connections, active: self.active.min(connections) }
    }

    fn load(&self) -> Load {
        let Self { connections, active } = self;
        let name = if active == connections {
            format!("all of {connections} active")
        } else {
            format!("{active} of {connections} active")
        };
        Load { units: *active as f64, ..Load::kind(name) }
    }
}

impl Experiment for Multiplexers {
    fn design(&self) -> &Design {
        &self.design
    }

    fn measure(&mut self, cell: Cell, count: u64) -> Result<Sample, Absent> {
        let (server, crowd) = (ROWS[cell.row].0, self.crowds[cell.load]);
        let random = Random::new(self.random.next());
        exchanged(server, crowd, count, random).map_err(|error| Absent(error.to_string()))
    }

    /// Thousands of connections are made for each.
    fn count_min(&self, _cell: Cell) -> u64 {
        4
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let row =
            |server| ROWS.iter().position(|(known, ..)| *known == server).expect("every server has a row");
        let [poll, scan, index] =
            [How::PollIndex, How::LevelScan, How::LevelIndex].map(|how| row(Server::Specimen(how)));
        let encke = row(Server::Encke(Backend::EpollEdge));
        let (few, all) = self.extremes();
        vec![
            results.at_most(0.9, poll, scan, all),
            results.at_most(0.5, scan, poll, few),
            Claim::all((0..self.crowds.len()).map(|load| results.at_most(1.3, index, poll, load))),
            results.at_most(0.8, index, scan, all),
            results.at_most(1.0, encke, scan, all),
            results.at_most(0.5, encke, poll, few),
        ]
    }
}

/// Runs `count` rounds on connections of their own, after one that does not count: it arms what is armed once.
fn exchanged(server: Server, crowd: Crowd, count: u64, random: Random) -> io::Result<Sample> {
    let (clients, sockets) = Clients::connected(crowd, random)?;
    match server {
        Server::Specimen(how) => {
            let mut mux = Mux::new(how, &sockets)?;
            let (mut looked, mut answered) = (0, 0);
            let mut sample = clients.rounds(count, |messages| {
                looked += mux.serve(messages)?;
                answered += messages;
                Ok(())
            })?;
            sample.facts.push((LOOKED, Fact::Number(looked as f64 / answered as f64)));
            Ok(sample)
        }
        Server::Encke(backend) => {
            let mut result = Ok(Sample::default());
            let pool = Pool::start(1, 1)?;
            run_on(backend, pool.clone(), Exchange { clients, sockets, count, result: &mut result });
            pool.close();
            result
        }
    }
}

/// The other ends of the server's connections.
struct Clients {
    ends: Vec<UnixStream>,
    active: usize,
    random: Random,
}

impl Clients {
    /// A crowd, and the server's ends, which do not block.
    fn connected(crowd: Crowd, random: Random) -> io::Result<(Self, Vec<UnixStream>)> {
        let mut ends = Vec::with_capacity(crowd.connections);
        let mut sockets = Vec::with_capacity(crowd.connections);
        for _ in 0..crowd.connections {
            let (end, socket) = UnixStream::pair()?;
            socket.set_nonblocking(true)?;
            ends.push(end);
            sockets.push(socket);
        }
        Ok((Self { ends, active: crowd.active, random }, sockets))
    }

    /// What `serve` takes for so many rounds: it is told how many messages to answer in each.
    fn rounds(mut self, count: u64, mut serve: impl FnMut(u64) -> io::Result<()>) -> io::Result<Sample> {
        let mut sample = Sample::default();
        for round in 0..=count {
            let speakers = self.speakers();
            let message = [round as u8; MESSAGE_BYTES];
            for &speaker in &speakers {
                self.ends[speaker].write_all(&message)?;
            }
            let mut served = Ok(());
            let took = stopwatch::time(|| served = serve(self.active as u64));
            served?;
            if round > 0 {
                sample.wall_ns += took.wall_ns;
                sample.cpu_ns += took.cpu_ns;
            }
            let mut answer = [0; MESSAGE_BYTES];
            for &speaker in &speakers {
                self.ends[speaker].read_exact(&mut answer)?;
                if answer != message {
                    return Err(io::Error::other("an answer is not what was asked"));
                }
            }
        }
        Ok(sample)
    }

    /// Who is active in a round: evenly spread from a random one on.
    fn speakers(&mut self) -> Vec<usize> {
        let all = self.ends.len();
        let first = self.random.below(all as u64) as usize;
        (0..self.active).map(|turn| (first + turn * all / self.active) % all).collect()
    }
}

/// Encke's way: the connection's place comes with its event.
struct Exchange<'a> {
    clients: Clients,
    sockets: Vec<UnixStream>,
    count: u64,
    result: &'a mut io::Result<Sample>,
}

impl Run for Exchange<'_> {
    fn run<R: Reactor>(self, reactor: Result<R, Unavailable>) {
        let Self { clients, sockets, count, result } = self;
        *result = reactor.map_err(io::Error::from).and_then(|reactor| {
            let mut echo = Echo::new(reactor, sockets)?;
            clients.rounds(count, |messages| echo.serve(messages))
        });
    }
}

/// An echo server on a reactor.
struct Echo<R> {
    reactor: R,
    /// By the place of a connection: bytes of a message that has not come whole.
    partial: Vec<Vec<u8>>,
    /// What completed sends have given back.
    spare: Vec<Vec<Segment>>,
}

impl<R: Reactor> Echo<R> {
    fn new(mut reactor: R, sockets: Vec<UnixStream>) -> io::Result<Self> {
        let mut partial = Vec::new();
        for socket in sockets {
            let stream = Stream::connected(OwnedFd::from(socket))?;
            let token = reactor.adopt(Source::Stream(stream)).map_err(io_error)?;
            reactor.submit(token, Op::Recv);
            partial.resize_with(partial.len().max(token.index as usize + 1), Vec::new);
        }
        // Edges tell of each connection that it can be written to, once, and some dozens in a wait: that is heard now.
        for _ in 0..=partial.len() / 32 {
            let now = reactor.now().mono_ns;
            reactor.wait(Some(now)).map_err(io_error)?;
            while reactor.next().is_some() {}
        }
        Ok(Self { reactor, partial, spare: Vec::new() })
    }

    fn serve(&mut self, messages: u64) -> io::Result<()> {
        let mut answered = 0;
        while answered < messages {
            self.reactor.wait(None).map_err(io_error)?;
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
                    Event::Failed { fault, .. } => return Err(io_error(fault)),
                    Event::PeerClosed { .. } => return Err(io::Error::other("a client has closed")),
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

fn io_error(fault: encke_io::Fault) -> io::Error {
    io::Error::other(fault.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CROWD: Crowd = Crowd { connections: 64, active: 8 };

    fn looked(how: How, crowd: Crowd) -> f64 {
        let sample =
            exchanged(Server::Specimen(how), crowd, 20, Random::new(1)).expect("64 pairs of sockets");
        match sample.facts[..] {
            [(LOOKED, Fact::Number(looked))] => looked,
            ref other => panic!("{other:?}"),
        }
    }

    /// The slow twins are seen by their steps, which no other load on the machine changes.
    #[test]
    fn a_search_looks_at_half_of_all_records_and_an_index_at_one() {
        for how in [How::LevelScan, How::EdgeScan] {
            let looked = looked(how, CROWD);
            assert!((24.0..=41.0).contains(&looked), "{how:?}: {looked} of 64");
        }
        for how in [How::PollIndex, How::LevelIndex, How::EdgeIndex] {
            assert_eq!(looked(how, CROWD), 1.0, "{how:?}");
        }
        let all = Crowd { active: 64, ..CROWD };
        assert_eq!(looked(How::LevelScan, all), 32.5);
    }

    #[test]
    fn every_server_answers_every_message_with_itself() {
        for (server, ..) in ROWS {
            for crowd in [CROWD, Crowd { connections: 1, active: 1 }, Crowd { active: 64, ..CROWD }] {
                let sample = exchanged(server, crowd, 3, Random::new(2));
                assert!(sample.is_ok(), "{server:?}, {crowd:?}: {sample:?}");
            }
        }
    }

    #[test]
    fn a_crowd_is_cut_to_what_there_is_room_for_and_its_name_says_so() {
        let cut = CROWDS[4].within(400);
        assert_eq!(cut, Crowd { connections: 400, active: 400 });
        assert_eq!(cut.load().name, "all of 400 active");
        assert_eq!(CROWDS[2].within(400).load().name, "10 of 400 active");
    }
}
