//! Handlers for cases, and the means by which a case controls them.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use encke_io::files::{Links, Patience, Root};
use encke_server::{
    Body, Exchange, ExchangeKey, Handler, HandlerContext, Mount, Outcome, Piece, Pull, Pulled, Reply,
    Request, WakeStream, WorkerSetup,
};

use super::{Folder, Rig, wait_for};

/// Responds with a greeting.
pub fn hello(_: &Request<'_>, _: Exchange) -> Outcome {
    Outcome::Now(Reply::text(200, "Hello\n"))
}

/// Responds with the client's address, as far as the server knows it.
pub fn who(request: &Request<'_>, _: Exchange) -> Outcome {
    let origin = request.origin();
    let client = origin.client.map_or("nobody".to_owned(), |address| address.to_string());
    Outcome::Now(Reply::text(200, format!("{client} {}", if origin.secure { "secure" } else { "clear" })))
}

/// Responds with the request line's parts.
pub fn mirror(request: &Request<'_>, _: Exchange) -> Outcome {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said =
        format!("{} {} {}", text(request.method_text()), text(request.authority()), text(request.path()));
    Outcome::Now(Reply::text(200, said))
}

/// A reply whose content is pulled from `pull`.
pub fn streamed(pull: impl Pull + 'static) -> Reply {
    Reply::new(200).body(Body::Stream(Box::new(pull)))
}

/// Serves the files of a directory, each by its name and complete.
#[derive(Clone)]
pub struct Files(PathBuf);

impl Files {
    /// The files of `folder`.
    pub fn of(folder: &Folder) -> Self {
        Self(folder.path().to_owned())
    }
}

impl Mount for Files {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(OpenFolder(Root::new(&self.0).expect("a folder that can be read")))
    }
}

struct OpenFolder(Root);

impl Handler for OpenFolder {
    fn call(&mut self, request: &Request<'_>, _: Exchange) -> Outcome {
        let name = request.path().strip_prefix(b"/").unwrap_or_default();
        Outcome::Now(match self.0.open(name, Links::Follow, Patience::Patient) {
            Ok(file) => {
                let range = 0..file.metadata.len;
                Reply::new(200).body(Body::File(Arc::new(file), range))
            }
            Err(_absent) => Reply::text(404, "absent\n"),
        })
    }
}

/// Responds with the request's body.
#[derive(Clone, Copy)]
pub struct Echo;

/// The bodies that are being received.
#[derive(Default)]
struct Echoes(HashMap<ExchangeKey, (Exchange, Vec<u8>)>);

impl Mount for Echo {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(Echoes::default())
    }
}

impl Handler for Echoes {
    fn call(&mut self, _: &Request<'_>, exchange: Exchange) -> Outcome {
        exchange.read_more();
        self.0.insert(exchange.key(), (exchange, Vec::new()));
        Outcome::Later
    }

    fn body(&mut self, key: ExchangeKey, piece: Piece<'_>) {
        let Some((exchange, mut bytes)) = self.0.remove(&key) else { return };
        match piece {
            Piece::Data(data) => {
                bytes.extend_from_slice(data);
                exchange.read_more();
                self.0.insert(key, (exchange, bytes));
            }
            Piece::End => exchange.answer(Reply::new(200).body(Body::Bytes(bytes))),
            Piece::Broken => {}
        }
    }
}

/// Keeps exchanges for the case to respond to.
#[derive(Clone, Default)]
pub struct Held(Arc<Mutex<VecDeque<Exchange>>>);

impl Held {
    /// Returns the exchange that has been held longest. Waits until there is one.
    pub fn take(&self, rig: &Rig) -> Exchange {
        let mut taken = None;
        let look = || {
            taken = lock(&self.0).pop_front();
            taken.is_some()
        };
        wait_for(look, "a request is held", || rig.told());
        taken.expect("waited for")
    }

    /// Returns all held exchanges.
    pub fn take_all(&self) -> Vec<Exchange> {
        lock(&self.0).drain(..).collect()
    }
}

impl Mount for Held {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(self.clone())
    }
}

impl Handler for Held {
    fn call(&mut self, _: &Request<'_>, exchange: Exchange) -> Outcome {
        lock(&self.0).push_back(exchange);
        Outcome::Later
    }
}

/// Reads a body only when the case requests it, and responds with its length once it is complete.
#[derive(Clone, Default)]
pub struct Valve(Arc<Mutex<Flow>>);

/// The data that has passed a [`Valve`].
#[derive(Default)]
pub struct Flow {
    exchange: Option<Exchange>,
    pub bytes: u64,
    pub pieces: u64,
    pub whole: bool,
    pub broken: bool,
}

impl Valve {
    /// The data that has passed so far.
    pub fn flow(&self) -> MutexGuard<'_, Flow> {
        lock(&self.0)
    }

    /// Waits until a request has arrived.
    pub fn wait(&self, rig: &Rig) {
        rig.wait(|| self.flow().exchange.is_some(), "a request is at the valve");
    }

    /// Admits one piece, if the request is still open: its end may directly follow the last piece. Does not wait for the piece.
    pub fn open_once(&self) {
        if let Some(exchange) = &self.flow().exchange {
            exchange.read_more();
        }
    }

    /// Admits one piece or the end, and waits for it.
    pub fn pass(&self, rig: &Rig) {
        let before = self.flow().pieces;
        self.open_once();
        let passed = || {
            let flow = self.flow();
            flow.pieces > before || flow.whole
        };
        rig.wait(passed, "a piece of a body has gone through");
    }

    /// Responds without reading further.
    pub fn answer(&self, reply: Reply) {
        self.flow().exchange.take().expect("a request is there").answer(reply);
    }
}

impl Mount for Valve {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(self.clone())
    }
}

impl Handler for Valve {
    fn call(&mut self, _: &Request<'_>, exchange: Exchange) -> Outcome {
        self.flow().exchange = Some(exchange);
        Outcome::Later
    }

    fn body(&mut self, _: ExchangeKey, piece: Piece<'_>) {
        let mut flow = self.flow();
        flow.pieces += 1;
        match piece {
            Piece::Data(data) => flow.bytes += data.len() as u64,
            Piece::End => {
                flow.whole = true;
                let said = Reply::text(200, format!("{} bytes", flow.bytes));
                if let Some(exchange) = flow.exchange.take() {
                    exchange.answer(said);
                }
            }
            Piece::Broken => {
                flow.broken = true;
                flow.exchange = None;
            }
        }
    }
}

/// Streams the steps that the case provides.
#[derive(Clone, Default)]
pub struct Feed(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    steps: VecDeque<Step>,
    wake: Option<WakeStream>,
    starved: u64,
    dropped: bool,
}

/// The next step of a fed stream.
pub enum Step {
    Bytes(Vec<u8>),
    End,
    Fail,
    Panic,
}

impl Feed {
    /// Adds a step without waking the stream.
    pub fn lay(&self, step: Step) {
        lock(&self.0).steps.push_back(step);
    }

    /// Adds a step and wakes the stream, from this thread.
    pub fn push(&self, step: Step) {
        let mut script = lock(&self.0);
        script.steps.push_back(step);
        script.wake.as_ref().expect("a request is there").wake();
    }

    /// Wakes the stream although nothing has changed.
    pub fn wake(&self) {
        lock(&self.0).wake.as_ref().expect("a request is there").wake();
    }

    /// Waits until the stream was pulled `count` times without data.
    pub fn wait_until_starved(&self, rig: &Rig, count: u64) {
        rig.wait(|| lock(&self.0).starved >= count, "the stream has nothing more to say");
    }

    /// Whether the server has dropped the stream.
    pub fn dropped(&self) -> bool {
        lock(&self.0).dropped
    }
}

impl Mount for Feed {
    fn open(&self, _: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        Box::new(self.clone())
    }
}

impl Handler for Feed {
    fn call(&mut self, _: &Request<'_>, exchange: Exchange) -> Outcome {
        lock(&self.0).wake = Some(exchange.wake_handle());
        Outcome::Now(streamed(Fed(self.clone())))
    }
}

struct Fed(Feed);

impl Pull for Fed {
    fn pull(&mut self, max: usize, out: &mut Vec<u8>) -> Pulled {
        let step = {
            let mut script = lock(&self.0.0);
            let step = script.steps.pop_front();
            script.starved += u64::from(step.is_none());
            step
        };
        match step {
            Some(Step::Bytes(bytes)) => {
                assert!(bytes.len() <= max, "the case feeds too much at a time");
                out.extend_from_slice(&bytes);
                Pulled::More
            }
            Some(Step::End) => Pulled::End,
            Some(Step::Fail) => Pulled::Failed,
            Some(Step::Panic) => panic!("the case asked for it"),
            None => Pulled::Pending,
        }
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        lock(&self.0.0).dropped = true;
    }
}

/// The length of the longest [`pattern`].
pub const PATTERN_BYTES_MAX: usize = 64 << 20;

/// Content whose bytes depend on their position. All patterns are prefixes of one sequence.
pub fn pattern(len: usize) -> &'static [u8] {
    static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut bytes = Vec::with_capacity(PATTERN_BYTES_MAX);
        for word in 0..PATTERN_BYTES_MAX as u64 / 8 {
            bytes.extend_from_slice(&word.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        }
        bytes
    });
    &WHOLE[..len]
}

/// Streams a pattern, and counts the bytes that were pulled.
pub struct Pattern {
    pub bytes: &'static [u8],
    pub pulled: Arc<Mutex<usize>>,
}

impl Pull for Pattern {
    fn pull(&mut self, max: usize, out: &mut Vec<u8>) -> Pulled {
        let mut pulled = lock(&self.pulled);
        let end = self.bytes.len().min(*pulled + max);
        out.extend_from_slice(&self.bytes[*pulled..end]);
        *pulled = end;
        if end == self.bytes.len() { Pulled::End } else { Pulled::More }
    }
}

/// Locks a mutex whose value is consistent wherever a thread may panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
