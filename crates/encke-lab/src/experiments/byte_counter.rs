//! Counts the bytes that connections receive, on a thread of its own, and notifies the sender when all have arrived.
//!
//! ```text
//!  sender:   expect(bytes) ─ sends ─ wait ◄───────── notified ─┐
//!  counter:  wait for events ─ count ─ as many as expected? ───┘   … until the sender drops it
//! ```

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use encke_io::offload::Pool;
use encke_io::socket::Stream;
use encke_io::{Backend, Event, Op, Reactor, ReactorSource, ReactorTask, Token, Unavailable, Waker, run_on};

use crate::error::LabError;

/// A byte counter, which runs until it is dropped.
pub(super) struct ByteCounter {
    shared: Arc<CounterShared>,
    told: Receiver<()>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the sender and the counter.
#[derive(Default)]
struct CounterShared {
    /// Total bytes that must arrive before the next notification.
    due: AtomicU64,
    over: AtomicBool,
}

impl ByteCounter {
    /// Starts to count the bytes of these connections.
    ///
    /// # Errors
    /// The thread or its reactor cannot be started.
    pub(super) fn open(streams: Vec<TcpStream>) -> Result<Self, LabError> {
        let (backend, _reason) = Backend::auto();
        let shared = Arc::<CounterShared>::default();
        let (tell, told) = mpsc::channel();
        let (opened, open) = mpsc::channel();
        let listening = CounterThread { streams, shared: Arc::clone(&shared), tell, opened };
        let thread = thread::Builder::new().name("ears".into()).spawn(move || {
            let Ok(pool) = Pool::start(1, 1) else { return };
            run_on(backend, pool.clone(), listening);
            pool.close();
        })?;
        let waker =
            open.recv().unwrap_or(Err(LabError::Ended("a receiver thread panicked or could not start")))?;
        Ok(Self { shared, told, waker, thread: Some(thread) })
    }

    /// Adds the bytes that are about to be sent.
    pub(super) fn expect(&self, bytes: usize) {
        self.shared.due.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    /// Waits until all expected bytes have arrived.
    ///
    /// # Errors
    /// They have not arrived after `at_most`.
    pub(super) fn wait(&self, at_most: Duration) -> Result<(), LabError> {
        let told = self.told.recv_timeout(at_most);
        told.map_err(|_| LabError::unexpected("some receivers did not get all bytes"))
    }
}

impl Drop for ByteCounter {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _is_over = thread.join();
        }
    }
}

struct CounterThread {
    streams: Vec<TcpStream>,
    shared: Arc<CounterShared>,
    tell: Sender<()>,
    opened: Sender<Result<Waker, LabError>>,
}

impl ReactorTask for CounterThread {
    fn run<R: Reactor>(self, reactor: Result<R, Unavailable>) {
        let Self { streams, shared, tell, opened } = self;
        let ready = reactor.map_err(LabError::from).and_then(|mut reactor| {
            let tokens = adopt(&mut reactor, streams)?;
            Ok((reactor, tokens))
        });
        let (reactor, tokens) = match ready {
            Ok(ready) => ready,
            Err(error) => {
                let _nobody_waits = opened.send(Err(error));
                return;
            }
        };
        let _nobody_waits = opened.send(Ok(reactor.waker()));
        listen(reactor, &tokens, &shared, &tell);
    }
}

fn adopt<R: Reactor>(reactor: &mut R, streams: Vec<TcpStream>) -> Result<Vec<Token>, LabError> {
    let mut tokens = Vec::with_capacity(streams.len());
    for stream in streams {
        let stream = Stream::connected(stream.into())?;
        let token = reactor.adopt(ReactorSource::Stream(stream))?;
        reactor.submit(token, Op::Recv);
        tokens.push(token);
    }
    Ok(tokens)
}

/// Counts until the end. A failure here is not reported: the sender's wait times out.
fn listen<R: Reactor>(mut reactor: R, tokens: &[Token], shared: &CounterShared, tell: &Sender<()>) {
    let (mut heard, mut told) = (0, 0);
    while !shared.over.load(Ordering::SeqCst) {
        if reactor.wait(None).is_err() {
            return;
        }
        while let Some(event) = reactor.next() {
            if let Event::Received { lease, .. } = event {
                heard += lease.len() as u64;
            }
        }
        // The expected total grows before the bytes are sent, so it is never less than the received total.
        if heard > told && heard == shared.due.load(Ordering::SeqCst) {
            told = heard;
            let _nobody_waits = tell.send(());
        }
    }
    // Resets the connections, so that no port stays in TIME-WAIT (RFC 9293).
    for &token in tokens {
        reactor.submit(token, Op::Abort);
    }
    // The next wait submits the operations.
    let now_ns = reactor.now().mono_ns;
    let _is_over = reactor.wait(Some(now_ns));
}
