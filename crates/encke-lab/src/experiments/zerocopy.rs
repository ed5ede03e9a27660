//! `zerocopy` (report 003): the cost of sending a file, by the path that its bytes take.
//!
//! ```text
//!  this thread ── a way to send ──► loopback TCP ──► receiver: a thread that discards its input
//!      ▲                                                 │
//!      └────────────── all bytes have arrived ───────────┘
//! ```
//! The result is the sender's CPU time. On loopback it includes the network's work in both directions.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use encke_io::files::{Links, OpenFile, Patience, Root};
use encke_io::offload::Pool;
use encke_io::socket::Stream;
use encke_io::{Event, Op, PlainReactor, Reactor as _, ReactorSource, Segment, Send, Token};

use crate::error::LabError;
use crate::experiment::{
    Absent, CellIndex, CellSample, Claim, Design, Experiment, Judged, Load, LoadAxis, RowPlan, Way,
    design_rows, is_windows, loads_within, row_of, rows_here,
};
use crate::results::Results;
use crate::rounds::RoundPace;
use crate::specimens::files::{self, FileHow};
use crate::stopwatch;

/// The size of the report's image.
const IMAGE_BYTES: u64 = 2_397_701;

const SIZES: [(u64, &str); 7] = [
    (1 << 10, "1 KiB"),
    (8 << 10, "8 KiB"),
    (64 << 10, "64 KiB"),
    (512 << 10, "512 KiB"),
    (IMAGE_BYTES, "2.4 MB"),
    (32 << 20, "32 MiB"),
    (256 << 20, "256 MiB"),
];
const SIZES_QUICK: [(u64, &str); 5] = [
    (1 << 10, "1 KiB"),
    (8 << 10, "8 KiB"),
    (64 << 10, "64 KiB"),
    (IMAGE_BYTES, "2.4 MB"),
    (16 << 20, "16 MiB"),
];

/// How a row sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Path {
    Specimen(FileHow),
    /// Encke's reactor: a head and the file, in one operation.
    Encke,
}

impl Path {
    /// Whether this system has it.
    const fn is_here(self) -> bool {
        match self {
            Self::Specimen(how) => how.system().is_here(),
            Self::Encke => true,
        }
    }
}

/// The rows of all systems.
const ROWS: [RowPlan<Path>; 9] = [
    (Path::Specimen(FileHow::ReadWrite4K), Way::Old, "read and write, 4 KiB"),
    (Path::Specimen(FileHow::ReadWrite64K), Way::Old, "read and write, 64 KiB"),
    (Path::Specimen(FileHow::MmapWrite), Way::Peer, "mmap and write"),
    (Path::Specimen(FileHow::Sendfile), Way::Cure, "sendfile"),
    (Path::Specimen(FileHow::Splice), Way::Cure, "splice"),
    (Path::Specimen(FileHow::Zerocopy), Way::Peer, "MSG_ZEROCOPY"),
    (Path::Specimen(FileHow::Uring), Way::Peer, "io_uring: read and send, 64 KiB"),
    (Path::Specimen(FileHow::TransmitFile), Way::Cure, "TransmitFile"),
    (Path::Encke, Way::Encke, "Encke: head and file"),
];

/// The difference on Windows.
const ON_WINDOWS: &str = "Windows has neither sendfile nor splice, MSG_ZEROCOPY or io_uring: TransmitFile takes their place. Client \
                          editions run two of its calls at a time and queue the others, so Encke uses it on server editions, \
                          for 64 KiB and more; otherwise it reads and sends. The claims on sendfile are not measured.";

/// As long as a typical response head.
const HEAD: &[u8] = &[b'h'; 200];

pub(super) struct Zerocopy {
    design: Design,
    /// The rows of this system.
    rows: Vec<RowPlan<Path>>,
    sizes: Vec<u64>,
    /// Created before the measuring thread is pinned, so that the receivers are not pinned.
    bench: Result<Bench, Absent>,
}

/// The file, and two connections to receivers.
struct Bench {
    file: File,
    open: Arc<OpenFile>,
    blocking: ReceiverChannels,
    socket: TcpStream,
    reactor: PlainReactor,
    token: Token,
    evented: ReceiverChannels,
    pool: Pool,
}

/// Channels to a receiver: the number of bytes to expect, and their arrival.
struct ReceiverChannels {
    expected: Sender<u64>,
    come: Receiver<io::Result<()>>,
}

impl Zerocopy {
    pub(super) fn new(pace: &RoundPace) -> Self {
        let sizes = loads_within(&SIZES, &SIZES_QUICK, pace);
        let load = |bytes: f64, name: &str| Load { units: bytes / 1024.0, ..Load::amount(name, bytes) };
        let rows = rows_here(&ROWS, Path::is_here);
        let design = Design {
            name: "zerocopy",
            unit: "a KiB of a file",
            judged: Judged::Cpu,
            rows: design_rows(&rows),
            loads: sizes.iter().map(|&(bytes, name)| load(bytes as f64, name)).collect(),
            axis: LoadAxis::Amounts("size of the file"),
            drawn: Vec::new(),
        };
        let sizes: Vec<u64> = sizes.iter().map(|(bytes, _)| *bytes).collect();
        let bench = Bench::new(sizes.iter().copied().max().unwrap_or(0))
            .map_err(|error| error.context("no file or connection to measure with").into());
        Self { design, rows, sizes, bench }
    }
}

impl Experiment for Zerocopy {
    fn design(&self) -> &Design {
        &self.design
    }

    fn measure(&mut self, cell: CellIndex, count: u64) -> Result<CellSample, Absent> {
        let bytes = self.sizes[cell.load];
        let bench = self.bench.as_mut().map_err(|absent| absent.clone())?;
        let sample = bench.measure(self.rows[cell.row].0, bytes, count);
        sample.map_err(|error| error.context("this system does not support this method").into())
    }

    fn difference(&self) -> Option<&'static str> {
        is_windows().then_some(ON_WINDOWS)
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let row = |path| row_of(&self.rows, &path);
        let image =
            self.sizes.iter().position(|bytes| *bytes == IMAGE_BYTES).expect("the image is among the sizes");
        let (small, middle) = (0, 2);
        let buffered = row(Path::Specimen(FileHow::ReadWrite64K));
        let sendfile = row(Path::Specimen(FileHow::Sendfile));
        vec![
            results.at_most(0.5, row(Path::Encke), row(Path::Specimen(FileHow::ReadWrite4K)), image),
            results.at_most(0.7, row(Path::Encke), buffered, image),
            results.at_most(0.7, sendfile, buffered, middle),
            results.at_most(1.1, buffered, sendfile, small),
            results.at_most(0.5, sendfile, row(Path::Specimen(FileHow::Zerocopy)), middle),
        ]
    }
}

impl Bench {
    fn new(bytes: u64) -> Result<Self, LabError> {
        let scratch = ScratchFile::of(bytes)?;
        let root = Root::new(&std::env::temp_dir())?;
        let open = root.open(scratch.name.as_bytes(), Links::Deny, Patience::Patient)?;
        let file = File::open(&scratch.path)?;
        let (socket, blocking) = receiver()?;
        let (evented_socket, evented) = receiver()?;
        let pool = Pool::start(1, 1)?;
        let mut reactor = PlainReactor::new(pool.clone())?;
        let stream = Stream::connected(evented_socket.into())?;
        let token = reactor.adopt(ReactorSource::Stream(stream))?;
        Ok(Self { file, open: Arc::new(open), blocking, socket, reactor, token, evented, pool })
    }

    /// Sends the first `bytes` of the file `count` times, and returns once the receiver has everything.
    fn measure(&mut self, path: Path, bytes: u64, count: u64) -> Result<CellSample, LabError> {
        let mut sent = Ok(());
        let (line, each) = match path {
            Path::Specimen(_) => (&self.blocking, bytes),
            Path::Encke => (&self.evented, bytes + HEAD.len() as u64),
        };
        line.expect(count * each)?;
        let sample = stopwatch::time(|| {
            sent = (0..count).try_for_each(|_| match path {
                Path::Specimen(how) => Ok(files::send(how, &self.socket, &self.file, bytes)?),
                Path::Encke => self.send_by_reactor(bytes),
            });
        });
        match (sent, path) {
            (Ok(()), Path::Specimen(_)) => self.blocking.wait()?,
            (Ok(()), Path::Encke) => self.evented.wait()?,
            (Err(error), _) => {
                // The receiver cannot know the end of a partial send, so the connection is replaced.
                let (socket, blocking) = receiver()?;
                (self.socket, self.blocking) = (socket, blocking);
                return Err(error);
            }
        }
        Ok(sample)
    }

    fn send_by_reactor(&mut self, bytes: u64) -> Result<(), LabError> {
        let segments = vec![
            Segment::Bytes(HEAD.to_vec()),
            Segment::File { file: Arc::clone(&self.open), offset: 0, len: bytes },
        ];
        self.reactor.submit(self.token, Op::Send(Send { segments, more: false }));
        loop {
            while let Some(event) = self.reactor.next() {
                match event {
                    Event::Sent { .. } => return Ok(()),
                    Event::Failed { fault, .. } => return Err(fault.into()),
                    _ => {}
                }
            }
            self.reactor.wait(None)?;
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.pool.close();
    }
}

impl ReceiverChannels {
    fn expect(&self, bytes: u64) -> Result<(), LabError> {
        self.expected.send(bytes).map_err(|_| LabError::Ended("the receiver has ended"))
    }

    fn wait(&self) -> Result<(), LabError> {
        Ok(self.come.recv().map_err(|_| LabError::Ended("the receiver has ended"))??)
    }
}

/// A connection to a receiver on a thread of its own, which ends with the connection or with the channels.
fn receiver() -> io::Result<(TcpStream, ReceiverChannels)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let sender = TcpStream::connect(listener.local_addr()?)?;
    let (end, _) = listener.accept()?;
    sender.set_nodelay(true)?;
    let (expected, told) = mpsc::channel::<u64>();
    let (tell, come) = mpsc::channel();
    thread::Builder::new().name("receiver".into()).spawn(move || {
        for bytes in told {
            let result = files::discard(&end, bytes);
            let failed = result.is_err();
            if tell.send(result).is_err() || failed {
                break;
            }
        }
    })?;
    Ok((sender, ReceiverChannels { expected, come }))
}

/// A file in the temporary directory, deleted on drop. Open handles of the file stay valid.
struct ScratchFile {
    path: PathBuf,
    name: String,
}

impl ScratchFile {
    fn of(bytes: u64) -> io::Result<Self> {
        let mut suffix = [0; 8];
        encke_io::host::random(&mut suffix)?;
        let name = format!("encke-lab-{:016x}", u64::from_le_bytes(suffix));
        let scratch = Self { path: std::env::temp_dir().join(&name), name };
        let mut file = File::options().write(true).create_new(true).open(&scratch.path)?;
        let block = vec![0x5a; 1 << 20];
        let mut left = bytes;
        while left > 0 {
            let some = left.min(block.len() as u64);
            file.write_all(&block[..some as usize])?;
            left -= some;
        }
        Ok(scratch)
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    /// Sends a file of known bytes each way, and compares the received bytes.
    #[test]
    fn every_way_sends_the_file_whole() {
        let text: Vec<u8> =
            (0..200_003_u32).map(|number| (number.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
        let scratch = ScratchFile::of(0).expect("a folder for scratch files");
        std::fs::write(&scratch.path, &text).expect("room for 200 kB");
        let file = File::open(&scratch.path).expect("it was just written");
        for how in rows_here(&ROWS, Path::is_here).into_iter().filter_map(|(path, ..)| match path {
            Path::Specimen(how) => Some(how),
            Path::Encke => None,
        }) {
            for bytes in [1, 4_095, 4_096, 65_537, text.len()] {
                let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
                let sender = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
                let (mut receiver, _) = listener.accept().expect("it has connected");
                let received = thread::spawn(move || {
                    let mut all = Vec::new();
                    receiver.read_to_end(&mut all).map(|_| all)
                });
                let sent = files::send(how, &sender, &file, bytes as u64);
                drop(sender);
                let received = received.join().expect("it does not panic").expect("no fault on loopback");
                assert!(sent.is_ok(), "{how:?}: {sent:?}");
                assert!(received == text[..bytes], "{how:?}: {} of {bytes} bytes", received.len());
            }
        }
    }

    #[test]
    fn each_cell_is_measured_and_nothing_is_left_behind() {
        let mut zerocopy = Zerocopy::new(&RoundPace::quick(1));
        for row in 0..zerocopy.rows.len() {
            for load in 0..2 {
                let sample =
                    zerocopy.measure(CellIndex { row, load }, 2).expect("this system has all of these rows");
                assert!(sample.wall_ns > 0);
            }
        }
    }
}
