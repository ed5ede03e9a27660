//! `fanout`: the cost of delivering a message to N subscribers, and how close Encke comes to the cost of the kernel alone.
//!
//! ```text
//!  the minimum: N sockets and nothing else     send(2) each │ writev(2) of 8 messages each │ one io_uring submit for all
//!  a reactor: the same sends, with tokens      epoll │ io_uring
//!  Encke:     POST ─► channel ─► hub ─► N WebSockets        a message per request │ 8 messages per request
//!        │
//!        └─► [`ByteCounter`]: N connections, whose bytes are counted on a thread of its own
//! ```
//! Every row sends the same bytes over loopback TCP to the same byte counter. The result is the sender's CPU time: that of the
//! thread under test, or of all threads of Encke's process.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use encke_io::clock::Clock;
use encke_io::offload::Pool;
use encke_io::socket::Stream;
use encke_io::{
    Backend, Event, Op, Reactor, ReactorSource, ReactorTask, Segment, Send, Token, Unavailable, host, run_on,
};

use super::byte_counter::ByteCounter;
use crate::error::LabError;
use crate::experiment::{
    Absent, CellIndex, CellSample, Claim, Design, Experiment, Judged, Load, LoadAxis, RowPlan, Way,
    design_rows, is_windows, loads_within, row_of, rows_here,
};
use crate::helper::HelperThread;
use crate::results::Results;
use crate::rounds::RoundPace;
use crate::served::RunningServer;
use crate::stopwatch;

/// How a message is delivered to all subscribers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FanoutSender {
    /// A system call per subscriber and message.
    Send,
    /// A system call per subscriber for eight messages.
    Gathered,
    /// Encke's reactor alone.
    Reactor(Backend),
    /// A complete Encke server, with this many messages per publish request.
    Encke(usize),
}

impl FanoutSender {
    /// Whether this system has it.
    fn is_here(self) -> bool {
        match self {
            Self::Reactor(backend) => backend.compiled(),
            Self::Send | Self::Gathered | Self::Encke(_) => true,
        }
    }
}

/// The rows of all systems.
const ROWS: [RowPlan<FanoutSender>; 7] = [
    (FanoutSender::Send, Way::Old, "send each"),
    (FanoutSender::Gathered, Way::Cure, "8 messages in one writev each"),
    (FanoutSender::Reactor(Backend::EpollEdge), Way::Encke, "Encke's reactor on epoll"),
    (FanoutSender::Reactor(Backend::Uring), Way::Encke, "… on io_uring, one submit for all"),
    (FanoutSender::Reactor(Backend::Afd), Way::Encke, "Encke's reactor on the socket driver"),
    (FanoutSender::Encke(1), Way::Encke, "Encke, a message a request"),
    (FanoutSender::Encke(MESSAGES), Way::Encke, "Encke, 8 messages a request"),
];

/// The difference on Windows.
const ON_WINDOWS: &str = "Windows has no epoll and no io_uring: Encke's reactor polls the socket driver (afd). The claims on them are \
                          not measured.";

const CROWDS: [usize; 4] = [10, 100, 1_000, 5_000];
const CROWDS_QUICK: [usize; 3] = [10, 100, 1_000];

/// Messages of an operation.
const MESSAGES: usize = 8;
/// As long as a short chat line. On a WebSocket two bytes precede it.
const PAYLOAD: &[u8; 64] = b"The tail of a comet points away from the sun, wherever it flies.";
const FRAME_BYTES: usize = 2 + PAYLOAD.len();

/// Descriptors for everything but the connections, which take two each here.
const DESCRIPTORS_ASIDE: u64 = 256;
/// Timeout: a longer wait is a fault of the lab.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Fanout {
    design: Design,
    /// The rows of this system.
    rows: Vec<RowPlan<FanoutSender>>,
    crowds: Vec<usize>,
    aside: HelperThread,
    program: Option<PathBuf>,
    served: Option<Arc<RunningServer>>,
}

impl Fanout {
    pub(super) fn new(pace: &RoundPace) -> Self {
        let most = host::raise_descriptor_limit().saturating_sub(DESCRIPTORS_ASIDE) / 2;
        let mut crowds = loads_within(&CROWDS, &CROWDS_QUICK, pace);
        crowds.retain(|crowd| *crowd as u64 <= most.max(CROWDS[0] as u64));
        let load = |&crowd: &usize| Load {
            units: (crowd * MESSAGES) as f64,
            ..Load::amount(crowd.to_string(), crowd as f64)
        };
        let rows = rows_here(&ROWS, FanoutSender::is_here);
        let design = Design {
            name: "fanout",
            unit: "a delivery: one message to one subscriber",
            judged: Judged::Cpu,
            rows: design_rows(&rows),
            loads: crowds.iter().map(load).collect(),
            axis: LoadAxis::Amounts("subscribers"),
            drawn: Vec::new(),
        };
        let program = pace.program.clone();
        Self { design, rows, crowds, aside: HelperThread::start("fanout"), program, served: None }
    }

    /// The server under test. It is started at its first use, and serves all rounds.
    fn served(&mut self) -> Result<Arc<RunningServer>, LabError> {
        if let Some(served) = &self.served {
            return Ok(Arc::clone(served));
        }
        let program = self.program.clone();
        let started = self.aside.run(move || RunningServer::start(program.as_deref(), None));
        let served = Arc::new(started.unwrap_or(Err(BROKE_OFF))?);
        self.served = Some(Arc::clone(&served));
        Ok(served)
    }
}

/// The helper thread could not be started, or panicked.
const BROKE_OFF: LabError = LabError::Ended("its thread panicked or could not start");

impl Experiment for Fanout {
    fn design(&self) -> &Design {
        &self.design
    }

    fn measure(&mut self, cell: CellIndex, count: u64) -> Result<CellSample, Absent> {
        let (mouth, crowd) = (self.rows[cell.row].0, self.crowds[cell.load]);
        let served = match mouth {
            FanoutSender::Encke(_) => Some(self.served()?),
            _ => None,
        };
        // The byte counter must not be pinned to the sender's processor.
        let ready = self
            .aside
            .run(move || ConnectedFanout::new(crowd, served.as_deref().map(RunningServer::address)));
        let ready = ready.unwrap_or(Err(BROKE_OFF))?;
        let sample = match (mouth, &self.served) {
            (FanoutSender::Send, _) => ready.write(count, 1),
            (FanoutSender::Gathered, _) => ready.write(count, MESSAGES),
            (FanoutSender::Reactor(backend), _) => ready.react(backend, count),
            (FanoutSender::Encke(together), Some(served)) => ready.publish(served, count, together),
            (FanoutSender::Encke(_), None) => Err(LabError::Ended("there is no server")),
        };
        Ok(sample?)
    }

    /// Each measurement opens thousands of connections.
    fn count_min(&self, _cell: CellIndex) -> u64 {
        2
    }

    fn difference(&self) -> Option<&'static str> {
        is_windows().then_some(ON_WINDOWS)
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let row = |mouth| row_of(&self.rows, &mouth);
        let most = self.crowds.len() - 1;
        let crowds = || 0..self.crowds.len();
        let send = row(FanoutSender::Send);
        vec![
            Claim::all(crowds().map(|load| results.at_most(0.5, row(FanoutSender::Gathered), send, load))),
            results.at_most(1.25, row(FanoutSender::Reactor(Backend::EpollEdge)), send, most),
            results.at_most(1.0, row(FanoutSender::Reactor(Backend::Uring)), send, most),
            results.at_most(1.5, row(FanoutSender::Encke(1)), send, most),
            results.at_most(0.5, row(FanoutSender::Encke(MESSAGES)), row(FanoutSender::Encke(1)), most),
        ]
    }
}

/// All subscribers, connected.
struct ConnectedFanout {
    ears: ByteCounter,
    /// The senders' ends; empty if Encke has them.
    ends: Vec<TcpStream>,
    crowd: usize,
}

impl ConnectedFanout {
    /// Connects `crowd` subscribers: to WebSockets of a server, or to sockets of this process.
    fn new(crowd: usize, server: Option<SocketAddr>) -> Result<Self, LabError> {
        let (mut streams, mut ends) = (Vec::with_capacity(crowd), Vec::new());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let own = listener.local_addr()?;
        for _ in 0..crowd {
            let stream = TcpStream::connect(server.unwrap_or(own))?;
            match server {
                Some(server) => shake_hands(&stream, server)?,
                None => {
                    let (end, _) = listener.accept()?;
                    end.set_nodelay(true)?;
                    ends.push(end);
                }
            }
            streams.push(stream);
        }
        Ok(Self { ears: ByteCounter::open(streams)?, ends, crowd })
    }

    /// Sends `count` times eight messages, `together` of them in each system call.
    fn write(self, count: u64, together: usize) -> Result<CellSample, LabError> {
        let frame = [b'x'; FRAME_BYTES];
        let gathered = [IoSlice::new(&frame); MESSAGES];
        let mut result = Ok(());
        let sample = stopwatch::time(|| {
            result = (0..count as usize * MESSAGES / together).try_for_each(|_| {
                self.ears.expect(self.crowd * together * FRAME_BYTES);
                for mut end in &self.ends {
                    // A socket's buffer is empty, and holds many times as much.
                    if end.write_vectored(&gathered[..together])? != together * FRAME_BYTES {
                        return Err(LabError::unexpected("a message was not sent completely"));
                    }
                }
                self.ears.wait(PATIENCE)
            });
        });
        result.map(|()| sample)
    }

    /// Sends the same messages one at a time, by a reactor.
    fn react(self, backend: Backend, count: u64) -> Result<CellSample, LabError> {
        let mut result = Ok(CellSample::default());
        let pool = Pool::start(1, 1)?;
        run_on(backend, pool.clone(), Reacting { ready: self, count, result: &mut result });
        pool.close();
        result
    }

    /// Sends the same messages by Encke, with `together` of them in each publish request.
    fn publish(self, served: &RunningServer, count: u64, together: usize) -> Result<CellSample, LabError> {
        let mut publisher = TcpStream::connect(served.address())?;
        publisher.set_nodelay(true)?;
        publisher.set_read_timeout(Some(PATIENCE))?;
        let request = publishing(served.address(), together);
        let mut round = || {
            self.ears.expect(self.crowd * together * FRAME_BYTES);
            publisher.write_all(&request)?;
            published(&mut publisher)?;
            self.ears.wait(PATIENCE)
        };
        // The first message creates the channel.
        round()?;
        let mut clock = Clock::new();
        let (before_ns, begun_ns) = (served.cpu_ns(), clock.now().mono_ns);
        (0..count as usize * MESSAGES / together).try_for_each(|_| round())?;
        let wall_ns = clock.now().mono_ns - begun_ns;
        let used = served.cpu_ns().zip(before_ns).map(|(after_ns, before_ns)| after_ns - before_ns);
        let cpu_ns = used.ok_or_else(|| LabError::unexpected("the server is not a separate process"))?;
        Ok(CellSample { wall_ns, cpu_ns, ..CellSample::default() })
    }
}

/// Sends by a reactor: submits all sends of one message, then waits for them.
struct Reacting<'a> {
    ready: ConnectedFanout,
    count: u64,
    result: &'a mut Result<CellSample, LabError>,
}

impl ReactorTask for Reacting<'_> {
    fn run<R: Reactor>(self, reactor: Result<R, Unavailable>) {
        let Self { ready, count, result } = self;
        *result = reactor.map_err(LabError::from).and_then(|reactor| sent(reactor, ready, count));
    }
}

fn sent<R: Reactor>(mut reactor: R, ready: ConnectedFanout, count: u64) -> Result<CellSample, LabError> {
    let mut tokens: Vec<Token> = Vec::with_capacity(ready.crowd);
    for end in ready.ends {
        let stream = Stream::connected(end.into())?;
        tokens.push(reactor.adopt(ReactorSource::Stream(stream))?);
    }
    let frame: Arc<[u8]> = [b'x'; FRAME_BYTES].as_slice().into();
    let mut result = Ok(());
    let sample = stopwatch::time(|| {
        result = (0..count as usize * MESSAGES).try_for_each(|_| {
            ready.ears.expect(ready.crowd * FRAME_BYTES);
            for &token in &tokens {
                let segments = vec![Segment::Shared(Arc::clone(&frame), 0)];
                reactor.submit(token, Op::Send(Send { segments, more: false }));
            }
            let mut left = tokens.len();
            while left > 0 {
                reactor.wait(None)?;
                while let Some(event) = reactor.next() {
                    match event {
                        Event::Sent { .. } => left -= 1,
                        Event::Failed { fault, .. } => return Err(fault.into()),
                        _ => {}
                    }
                }
            }
            ready.ears.wait(PATIENCE)
        });
    });
    result.map(|()| sample)
}

/// Opens a WebSocket subscription, which receives only the frames of payloads.
fn shake_hands(mut stream: &TcpStream, server: SocketAddr) -> Result<(), LabError> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!(
        "GET /push/{CHANNEL} HTTP/1.1\r\nHost: {server}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let head = head(&mut stream)?;
    match head.starts_with(b"HTTP/1.1 101 ") {
        true => Ok(()),
        false => Err(LabError::unexpected(format!("no WebSocket: {}", first_line(&head)))),
    }
}

const CHANNEL: &str = "fanout";

/// A request that publishes `together` messages.
fn publishing(server: SocketAddr, together: usize) -> Vec<u8> {
    let payload = String::from_utf8_lossy(PAYLOAD);
    let (path, kind, body) = if together == 1 {
        (CHANNEL, "text/plain", payload.into_owned())
    } else {
        let line = format!("{{\"channel\":\"{CHANNEL}\",\"data\":\"{payload}\"}}\n");
        ("", "application/x-ndjson", line.repeat(together))
    };
    let bytes = body.len();
    format!(
        "POST /push/{path} HTTP/1.1\r\nHost: {server}\r\nContent-Type: {kind}\r\nContent-Length: {bytes}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Reads the response to a publish request.
fn published(stream: &mut TcpStream) -> Result<(), LabError> {
    let head = head(stream)?;
    let line = first_line(&head);
    if !line.starts_with("HTTP/1.1 201 ") {
        return Err(LabError::unexpected(format!("not published: {line}")));
    }
    let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let length: usize = length.ok_or_else(|| LabError::unexpected("a response without a length"))?;
    Ok(stream.read_exact(&mut vec![0; length])?)
}

/// Reads a head up to its empty line, and not beyond, because other data may follow. Reading single bytes is slow, but only the
/// server is timed.
fn head(stream: &mut impl io::Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_MAX {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok(head)
}

const HEAD_MAX: usize = 4_096;

fn first_line(head: &[u8]) -> String {
    String::from_utf8_lossy(head).lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_sends_everybody_hears_all_of_it() {
        let ready = || ConnectedFanout::new(7, None).expect("loopback works");
        ready().write(2, 1).expect("one at a time");
        ready().write(2, MESSAGES).expect("eight at a time");
        for (mouth, ..) in rows_here(&ROWS, FanoutSender::is_here) {
            if let FanoutSender::Reactor(backend) = mouth {
                ready().react(backend, 2).expect("this system has it");
            }
        }
    }

    /// The server has no process of its own here, hence no CPU time. It sends the same bytes.
    #[test]
    fn encke_brings_each_payload_in_a_frame_of_two_bytes_more() {
        let served = RunningServer::start(None, None).expect("loopback works");
        for together in [1, MESSAGES] {
            let ready = ConnectedFanout::new(7, Some(served.address())).expect("it takes them");
            let told = ready.publish(&served, 1, together).map_err(|error| error.to_string());
            assert!(
                told.is_err_and(|error| error.contains("not a separate process")),
                "all was heard before that"
            );
        }
    }
}
