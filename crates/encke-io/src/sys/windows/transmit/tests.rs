//! Calls of TransmitFile, seen from inside: their ends, their memory, and the reactor's registrations meanwhile.

use std::io::Read as _;
use std::os::windows::io::{AsSocket as _, OwnedSocket};
use std::path::PathBuf;
use std::rc::Rc;

use windows_sys::Win32::System::Threading::ResetEvent;

use super::super::afd::Afd;
use super::super::bell::Bell;
use super::*;
use crate::files::{Links, Patience, Root};
use crate::offload::Pool;
use crate::op::{Op, Segment, Send};
use crate::poller::{Interest, Poller, Ready};
use crate::reactor::{Backend, Reactor as _, ReactorSource};
use crate::readiness::Readiness;
use crate::socket::Stream;

/// More than the buffers of a connection hold.
const TOO_MUCH: u64 = 16 << 20;

/// Longer than any call takes that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time between two looks at what the system does by itself.
const POLL: Duration = Duration::from_millis(1);

/// A file of zeros, and a connection to a peer that reads nothing.
struct Runway {
    file: Arc<OpenFile>,
    folder: PathBuf,
    stream: Option<TcpStream>,
    peer: TcpStream,
    port: Arc<Port>,
}

impl Runway {
    fn new(name: &str, file_bytes: u64) -> Self {
        let folder = std::env::temp_dir().join(format!("encke-transmit-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a directory");
        let file = std::fs::File::create(folder.join("a")).expect("created");
        file.set_len(file_bytes).expect("room");
        let root = Root::new(&folder).expect("a root");
        let file = Arc::new(root.open(b"a", Links::Deny, Patience::Patient).expect("opened"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (peer, _) = listener.accept().expect("accepted");
        let port = Arc::new(Port::new().expect("a port"));
        Self { file, folder, stream: Some(stream), peer, port }
    }

    /// Starts a flight of this many bytes.
    fn start(&self, rule: TransmitRule, bytes: u64) -> FileFlight {
        let sender = FileSender::new(rule, &self.port, Token::NONE);
        let ahead = FileAhead { file: &self.file, offset: 0, left: bytes, head_bytes: 0 };
        let mut flight = FileFlight::none();
        assert!(flight.fits(sender, &ahead));
        let stream = self.stream.as_ref().expect("not taken");
        flight.start(stream.as_socket(), sender, std::iter::empty(), &ahead);
        flight
    }

    /// All bytes that the peer receives until the end.
    fn received(&mut self) -> usize {
        drop(self.stream.take());
        let mut received = Vec::new();
        let _reset = self.peer.read_to_end(&mut received);
        received.len()
    }
}

impl Drop for Runway {
    fn drop(&mut self) {
        let _may_be_open = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn progress_counts_no_byte_twice() {
    let info = |out, again, in_flight| ws::TCP_INFO_v0 {
        BytesOut: out,
        BytesRetrans: again,
        BytesInFlight: in_flight,
        ..ws::TCP_INFO_v0::default()
    };
    for (info, expected) in [(info(10, 0, 4), 6), (info(10, 3, 4), 3), (info(10, 9, 4), 0)] {
        assert_eq!(acknowledged_of(&info), expected);
    }
}

#[test]
fn a_call_starts_only_if_its_progress_is_reported() {
    let mut runway = Runway::new("rule", FILE_BYTES_MIN);
    let mut flight = runway.start(TransmitRule::Observed, FILE_BYTES_MIN);
    // Wine does not report the progress.
    assert_eq!(flight.is_grounded, !reports_progress());
    assert_eq!(flight.transmission.is_none(), flight.is_grounded);
    flight.halt();
    assert!(runway.received() == 0 || !flight.is_grounded, "nothing was sent");
}

#[test]
fn a_call_that_sends_fewer_bytes_than_wanted_fails() {
    const THERE: u64 = 2 * FILE_BYTES_MIN;
    for (wanted, is_whole) in [(THERE, true), (THERE + 1, false), (TOO_MUCH, false)] {
        let mut runway = Runway::new("short", THERE);
        let mut flight = runway.start(TransmitRule::Always, wanted);
        let begun = Instant::now();
        while flight.is_pending() {
            assert!(begun.elapsed() < PATIENCE, "the call of {wanted} bytes does not end");
            std::thread::park_timeout(POLL);
        }
        let FlightState::Ended(sent, result) = flight.state() else { panic!("the call has ended") };
        assert_eq!(sent, THERE, "{wanted} bytes");
        assert_eq!(result.is_ok(), is_whole, "{wanted} bytes");
        assert!(is_whole || matches!(result, Err(SendFault::FileShrunk)), "{wanted} bytes");
        assert!(matches!(flight.state(), FlightState::Idle), "the end is returned once");
        assert_eq!(runway.received() as u64, THERE);
    }
}

#[test]
fn a_cancelled_call_that_does_not_end_keeps_its_memory() {
    let runway = Runway::new("endless", TOO_MUCH);
    let mut flight = runway.start(TransmitRule::Always, TOO_MUCH);
    let transmission = flight.transmission.take().expect("the peer reads nothing");
    assert!(transmission.cancel().is_some());
    // As if the system never reported the end.
    // SAFETY: the event is open.
    assert_ne!(unsafe { ResetEvent(transmission.part().wait.event()) }, 0);
    assert!(transmission.cancel_within(Duration::ZERO).is_none());
    assert!(transmission.part().is_given_up.get());
    drop(transmission);
    assert_eq!(Arc::strong_count(&runway.file), 2, "the kernel may still read it");
}

/// A poller that counts the registrations for room to write.
struct CountingAfd {
    afd: Afd,
    writes: Rc<Cell<u32>>,
}

impl CountingAfd {
    fn count(&self, interest: Interest) {
        self.writes.set(self.writes.get() + u32::from(interest.write));
    }
}

impl Poller for CountingAfd {
    const BACKEND: Backend = Afd::BACKEND;
    const EDGE: bool = Afd::EDGE;
    const ONE_SHOT: bool = Afd::ONE_SHOT;

    fn new() -> Result<Self, SysError> {
        Ok(Self { afd: Afd::new()?, writes: Rc::default() })
    }

    fn bell(&mut self, token: Token) -> Result<Bell, SysError> {
        self.afd.bell(token)
    }

    fn add(&mut self, handle: HandleRef<'_>, token: Token, interest: Interest) -> Result<(), SysError> {
        self.count(interest);
        self.afd.add(handle, token, interest)
    }

    fn modify(&mut self, handle: HandleRef<'_>, token: Token, interest: Interest) -> Result<(), SysError> {
        self.count(interest);
        self.afd.modify(handle, token, interest)
    }

    fn remove(&mut self, handle: HandleRef<'_>, token: Token, closing: bool) {
        self.afd.remove(handle, token, closing);
    }

    fn file_sender(&self, token: Token) -> FileSender<'_> {
        self.afd.file_sender(token)
    }

    fn wait(&mut self, timeout: Option<Duration>, report: impl FnMut(Token, Ready)) -> Result<(), SysError> {
        self.afd.wait(timeout, report)
    }
}

/// While a file is in flight its socket may have room all the time, which would keep the worker busy.
#[test]
fn room_to_write_is_not_awaited_while_a_file_is_in_flight() {
    for (rule, awaits) in [(TransmitRule::Always, false), (TransmitRule::Never, true)] {
        let mut runway = Runway::new("interest", TOO_MUCH);
        let writes = Rc::new(Cell::new(0));
        let afd = Afd::transmitting(rule).expect("a port");
        let pool = Pool::start(1, 1).expect("a thread");
        let poller = CountingAfd { afd, writes: Rc::clone(&writes) };
        let mut reactor = Readiness::with_poller(poller, pool).expect("a reactor");
        let stream = OwnedSocket::from(runway.stream.take().expect("not taken"));
        let stream = Stream::connected(stream).expect("a stream");
        let token = reactor.adopt(ReactorSource::Stream(stream)).expect("room");
        let segments = vec![Segment::File { file: Arc::clone(&runway.file), offset: 0, len: TOO_MUCH }];
        reactor.submit(token, Op::Send(Send { segments, more: false }));
        for op in [None, Some(Op::Recv)] {
            if let Some(op) = op {
                reactor.submit(token, op);
            }
            // A read of a file takes several turns, until the connection is full.
            for _ in 0..1_000 {
                let now = reactor.now().mono_ns;
                reactor.wait(Some(now)).expect("the system waits");
                assert!(reactor.next().is_none(), "the peer reads and sends nothing");
            }
        }
        assert!(reactor.unsent(token) > 0);
        assert_eq!(writes.get() > 0, awaits, "{rule:?}: {} registrations", writes.get());
    }
}

#[test]
fn only_server_editions_that_report_progress_transmit_files() {
    for (test_edition, server, reports, expected) in [
        (None, true, true, TransmitRule::Observed),
        (None, false, true, TransmitRule::Never),
        (None, true, false, TransmitRule::Never),
        (Some("server"), false, false, TransmitRule::Always),
        (Some("client"), true, true, TransmitRule::Never),
        (Some("other"), true, true, TransmitRule::Observed),
        (Some(""), false, true, TransmitRule::Never),
    ] {
        let found = rule_on(test_edition, || server, || reports);
        assert_eq!(found, expected, "{test_edition:?}, server: {server}, reports progress: {reports}");
    }
}
