//! The access log: lines are made by the workers and written by a thread of its own.
//!
//! ```text
//!  worker 0: Ring ─ begin … finish ─► batch ─┐ flush, once a turn
//!  worker 1: Ring ─ begin … finish ─► batch ─┼─► bounded queue ─► writer thread ─► stdout or file
//!  worker n: Ring ─ begin … finish ─► batch ─┘                       │
//!       ▲ empty batches come back ───────────────────────────────────┘
//! ```
//! A worker never waits for the log: it takes no lock, and where the writer cannot keep up (a full disk, a
//! reader that has stopped) lines are dropped and counted. The writer sleeps until there is something to write.
//! A reader that goes away (`encke serve | head`) ends the log quietly, and nothing else.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use encke_io::{Now, Peer};

mod civil;
mod line;

pub(crate) use civil::Civil;
pub(crate) use line::Entry;

use crate::errors;
use crate::request::Request;
use crate::settings::{Level, LogSettings, LogTarget};

/// Batches that may wait for the writer. With [`BATCH_BYTES_MAX`] that is at most 16 MiB: two seconds of the
/// busiest worker's lines.
const BATCHES_MAX: usize = 256;

/// A batch of more than this waits for the writer; lines beyond it are dropped. One turn answers at most 256
/// events, whose lines take some 50 KiB.
const BATCH_BYTES_MAX: usize = 64 * 1024;

/// Entries that a worker keeps for later requests: as many as one turn may begin.
const ENTRIES_KEPT: usize = 256;

/// The access log of a process.
pub(crate) struct AccessLog {
    settings: LogSettings,
    shared: Arc<Shared>,
    queue: SyncSender<Message>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Nobody reads it any more: lines need not be made.
    over: AtomicBool,
    reopen: AtomicBool,
    dropped: AtomicU64,
}

enum Message {
    /// Whole lines, how many, and where the empty batch goes.
    Lines(Vec<u8>, u64, SyncSender<Vec<u8>>),
    /// [`Shared`] has changed.
    Look,
    /// The last message.
    End,
}

impl AccessLog {
    /// Opens the log and starts its writer; `None` if it is off.
    ///
    /// # Errors
    /// The file cannot be opened (the error names it), or the system has no room for another thread.
    pub(crate) fn start(settings: &LogSettings) -> io::Result<Option<Self>> {
        let output = match &settings.access {
            LogTarget::Off => return Ok(None),
            LogTarget::Stdout => Output::new(None, Box::new(io::stdout())),
            LogTarget::File(path) => Output::new(Some(path.clone()), Box::new(open(path)?)),
        };
        Self::start_with(settings, output).map(Some)
    }

    fn start_with(settings: &LogSettings, output: Output) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (queue, messages) = sync_channel(BATCHES_MAX);
        let writer = thread::Builder::new().name("access-log".into()).stack_size(128 * 1024).spawn({
            let shared = Arc::clone(&shared);
            move || output.run(&messages, &shared)
        })?;
        Ok(Self { settings: settings.clone(), shared, queue, writer: Some(writer) })
    }

    /// A worker's end of it.
    pub(crate) fn ring(&self) -> Ring {
        let (home, empty) = sync_channel(BATCHES_KEPT);
        Ring(Some(Box::new(Open {
            writer: line::Writer::new(self.settings.format),
            batch: Vec::new(),
            lines: 0,
            entries: Vec::new(),
            queue: self.queue.clone(),
            home,
            empty,
            shared: Arc::clone(&self.shared),
        })))
    }

    /// Opens the file again, which somebody has moved away (logrotate(8)). Standard output stays what it is.
    pub(crate) fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
        // If the queue is full the writer is awake and will look.
        let _full = self.queue.try_send(Message::Look);
    }

    /// Lines that were lost.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Has everything written that was handed over, but waits no longer than `patience` for it: the reader may
    /// have stopped for good.
    pub(crate) fn close(mut self, patience: Duration) {
        let Some(writer) = self.writer.take() else { return };
        let (ended, wait) = sync_channel::<()>(0);
        let queue = self.queue.clone();
        let waiter = thread::Builder::new().name("access-log-end".into()).spawn(move || {
            if queue.send(Message::End).is_ok() {
                // A writer that has panicked has written all it could.
                let _ended = writer.join();
            }
            drop(ended);
        });
        if waiter.is_ok() {
            // Nothing is ever sent: it ends when the other side is dropped, or in time.
            let _over = wait.recv_timeout(patience);
        }
    }
}

/// Empty batches that wait to be used again: one is filled while another is written.
const BATCHES_KEPT: usize = 2;

/// A worker's end of the access log; the default one logs nothing.
#[derive(Default)]
pub(crate) struct Ring(Option<Box<Open>>);

struct Open {
    writer: line::Writer,
    /// Whole lines that were not handed over yet.
    batch: Vec<u8>,
    lines: u64,
    entries: Vec<Box<Entry>>,
    queue: SyncSender<Message>,
    home: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    shared: Arc<Shared>,
}

impl Ring {
    /// Begins the line of a request; `None` if nothing is logged.
    #[inline]
    pub(crate) fn begin(&mut self, request: &Request<'_>) -> Option<Box<Entry>> {
        let open = self.open()?;
        let mut entry = open.entries.pop().unwrap_or_default();
        open.writer.begin(request, &mut entry);
        Some(entry)
    }

    /// Begins the line of a request that could not be understood.
    pub(crate) fn begin_refused(&mut self, peer: Peer, now: Now) -> Option<Box<Entry>> {
        let open = self.open()?;
        let mut entry = open.entries.pop().unwrap_or_default();
        open.writer.begin_refused(peer, now, &mut entry);
        Some(entry)
    }

    /// Finishes a line: its answer is out, or as much of it as will ever be.
    pub(crate) fn finish(&mut self, mut entry: Box<Entry>, sent_bytes: u64, duration_ns: u64) {
        let Some(open) = &mut self.0 else { return };
        if open.batch.len() < BATCH_BYTES_MAX {
            open.writer.finish(&entry, sent_bytes, duration_ns, &mut open.batch);
            open.lines += 1;
        } else {
            open.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
        if open.entries.len() < ENTRIES_KEPT {
            entry.reset();
            open.entries.push(entry);
        }
    }

    /// Hands the lines of a turn over. If the writer is behind they stay for the next turn.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if let Some(open) = &mut self.0
            && !open.batch.is_empty()
        {
            open.hand_over();
        }
    }

    fn open(&mut self) -> Option<&mut Open> {
        self.0.as_deref_mut().filter(|open| !open.shared.over.load(Ordering::Relaxed))
    }
}

impl Open {
    fn hand_over(&mut self) {
        let next = self.empty.try_recv().unwrap_or_default();
        let full = std::mem::replace(&mut self.batch, next);
        let lines = std::mem::take(&mut self.lines);
        match self.queue.try_send(Message::Lines(full, lines, self.home.clone())) {
            Ok(()) => {}
            Err(TrySendError::Full(Message::Lines(full, lines, _))) => {
                self.batch = full;
                self.lines = lines;
            }
            Err(_ended) => {
                self.shared.over.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Where lines go, and how that went.
struct Output {
    /// `None` for standard output.
    path: Option<PathBuf>,
    to: Box<dyn Write + Send>,
    /// The last write failed: lines are lost until one succeeds.
    failing: Option<u64>,
    /// A write ended within a line, which the next one must not continue.
    torn: bool,
}

impl Output {
    fn new(path: Option<PathBuf>, to: Box<dyn Write + Send>) -> Self {
        Self { path, to, failing: None, torn: false }
    }

    fn run(mut self, messages: &Receiver<Message>, shared: &Shared) {
        loop {
            // What is there already is written before anything is flushed.
            let message = match messages.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    let _told_at_the_next_write = self.to.flush();
                    match messages.recv() {
                        Ok(message) => message,
                        Err(_all_gone) => return,
                    }
                }
            };
            if shared.reopen.swap(false, Ordering::Acquire) {
                self.reopen();
            }
            match message {
                Message::Lines(mut batch, lines, home) => {
                    if !shared.over.load(Ordering::Relaxed) {
                        self.write(&batch, lines, shared);
                    }
                    batch.clear();
                    batch.shrink_to(BATCH_BYTES_MAX);
                    // Two wait there already, or the worker has gone: this one is not needed.
                    let _unneeded = home.try_send(batch);
                }
                Message::Look => {}
                Message::End => {
                    let _nothing_left_to_do = self.to.flush();
                    return;
                }
            }
        }
    }

    fn write(&mut self, batch: &[u8], lines: u64, shared: &Shared) {
        let written = if self.torn { self.to.write_all(b"\n") } else { Ok(()) };
        let written = written.and_then(|()| {
            self.torn = true;
            self.to.write_all(batch)
        });
        match written {
            Ok(()) => {
                self.torn = false;
                if let Some(lost) = self.failing.take() {
                    let name = self.name();
                    errors::report(Level::Warn, &format!("{name} is written again; {lost} lines were lost"));
                }
            }
            Err(error) if self.path.is_none() && error.kind() == io::ErrorKind::BrokenPipe => {
                shared.over.store(true, Ordering::Relaxed);
            }
            Err(error) => {
                shared.dropped.fetch_add(lines, Ordering::Relaxed);
                if self.failing.is_none() {
                    let name = self.name();
                    errors::report(
                        Level::Error,
                        &format!("{name} cannot be written: {error}; lines are lost until it can"),
                    );
                }
                self.failing = Some(self.failing.unwrap_or(0) + lines);
            }
        }
    }

    /// Goes on with a new file of the same name. Where that cannot be opened the old one goes on.
    fn reopen(&mut self) {
        let Some(path) = &self.path else { return };
        match open(path) {
            Ok(file) => {
                self.to = Box::new(file);
                self.torn = false;
            }
            Err(error) => {
                errors::report(Level::Error, &format!("{error}; the one that was open stays in use"))
            }
        }
    }

    fn name(&self) -> String {
        match &self.path {
            Some(path) => format!("access log {}", path.display()),
            None => "the access log on standard output".into(),
        }
    }
}

/// Opens a log at its end, made if it is not there.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path).map_err(|error| {
        io::Error::new(error.kind(), format!("access log {} cannot be opened: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::LogFormat;
    use std::sync::Mutex;
    use std::sync::mpsc;

    const NOW: Now = Now { mono_ns: 0, unix_ns: 1_795_296_363_000_000_000 };

    fn settings(access: LogTarget) -> LogSettings {
        LogSettings { access, format: LogFormat::Combined, level: Level::Error }
    }

    fn log_line(ring: &mut Ring, status: u16) {
        if let Some(mut entry) = ring.begin_refused(Peer::Local, NOW) {
            entry.set_status(status);
            ring.finish(entry, 0, 0);
        }
    }

    fn expected(status: u16) -> String {
        format!("- - - [21/Nov/2026:21:26:03 +0000] \"-\" {status} 0 \"-\" \"-\"\n")
    }

    /// What a writer is told to do with each write; what it wrote is told back.
    struct Script {
        answers: mpsc::Receiver<io::Result<usize>>,
        wrote: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.answers.recv() {
                Ok(Ok(most)) => {
                    let taken = most.min(bytes.len());
                    self.wrote.send(bytes[..taken].to_vec()).expect("the test listens");
                    Ok(taken)
                }
                Ok(Err(error)) => Err(error),
                Err(_test_over) => Ok(bytes.len()),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    type Answers = mpsc::Sender<io::Result<usize>>;

    fn scripted(path: Option<PathBuf>) -> (AccessLog, Answers, mpsc::Receiver<Vec<u8>>) {
        let (answer, answers) = mpsc::channel();
        let (wrote, written) = mpsc::channel();
        let output = Output::new(path, Box::new(Script { answers, wrote }));
        let log = AccessLog::start_with(&settings(LogTarget::Stdout), output).expect("a thread");
        (log, answer, written)
    }

    fn text(written: &mpsc::Receiver<Vec<u8>>) -> String {
        String::from_utf8(written.recv().expect("something is written")).expect("UTF-8")
    }

    const ALL: io::Result<usize> = Ok(usize::MAX);

    #[test]
    fn lines_of_several_workers_reach_the_file_whole() {
        let path = std::env::temp_dir().join(format!("encke-access-{}.log", std::process::id()));
        let log = AccessLog::start(&settings(LogTarget::File(path.clone()))).expect("opened").expect("on");
        thread::scope(|scope| {
            for worker in 0..3u16 {
                let mut ring = log.ring();
                scope.spawn(move || {
                    for turn in 0..100 {
                        log_line(&mut ring, 200 + worker);
                        if turn % 7 == 0 {
                            ring.flush();
                        }
                    }
                });
            }
        });
        let dropped = log.dropped();
        log.close(Duration::from_secs(60));
        let text = std::fs::read_to_string(&path).expect("written");
        std::fs::remove_file(&path).expect("it was made here");
        assert_eq!(dropped, 0);
        for worker in 0..3 {
            assert_eq!(
                text.lines().filter(|line| format!("{line}\n") == expected(200 + worker)).count(),
                100
            );
        }
        assert_eq!(text.lines().count(), 300);
    }

    #[test]
    fn a_log_that_is_off_makes_no_lines() {
        assert!(AccessLog::start(&settings(LogTarget::Off)).expect("nothing to open").is_none());
        let mut ring = Ring::default();
        assert!(ring.begin_refused(Peer::Local, NOW).is_none());
        ring.flush();
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let path = PathBuf::from("/nonexistent-folder/access.log");
        let error = AccessLog::start(&settings(LogTarget::File(path))).err().expect("no such folder");
        assert!(error.to_string().contains("/nonexistent-folder/access.log cannot be opened"), "{error}");
    }

    #[test]
    fn a_moved_file_is_left_alone_after_reopening() {
        let folder = std::env::temp_dir().join(format!("encke-reopen-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let (path, moved) = (folder.join("access.log"), folder.join("access.log.1"));
        let log = AccessLog::start(&settings(LogTarget::File(path.clone()))).expect("opened").expect("on");
        let mut ring = log.ring();
        log_line(&mut ring, 200);
        ring.flush();
        // The first line is in the file before it is moved: a queue has an order, and its end is awaited below.
        while std::fs::read_to_string(&path).expect("there").is_empty() {
            thread::yield_now();
        }
        std::fs::rename(&path, &moved).expect("moved");
        log.reopen();
        log_line(&mut ring, 201);
        drop(ring);
        log.close(Duration::from_secs(60));
        assert_eq!(std::fs::read_to_string(&moved).expect("there"), expected(200));
        assert_eq!(std::fs::read_to_string(&path).expect("made again"), expected(201));
        std::fs::remove_dir_all(&folder).expect("it was made here");
    }

    #[test]
    fn a_reader_that_goes_away_ends_the_log_quietly() {
        let (log, answer, written) = scripted(None);
        let mut ring = log.ring();
        answer.send(ALL).expect("the writer lives");
        answer.send(Err(io::ErrorKind::BrokenPipe.into())).expect("the writer lives");
        log_line(&mut ring, 200);
        ring.flush();
        assert_eq!(text(&written), expected(200));
        log_line(&mut ring, 201);
        ring.flush();
        while ring.begin_refused(Peer::Local, NOW).is_some() {
            thread::yield_now();
        }
        assert_eq!(log.dropped(), 0);
        log.close(Duration::from_secs(60));
        assert!(written.try_recv().is_err());
    }

    #[test]
    fn a_full_disk_loses_counted_lines_and_recovers_on_a_line_of_its_own() {
        let (log, answer, written) = scripted(Some("test.log".into()));
        let mut ring = log.ring();
        // The first write is cut short within the line, then the disk is full; then there is room again.
        for result in
            [Ok(10), Err(io::ErrorKind::StorageFull.into()), Err(io::ErrorKind::StorageFull.into()), ALL, ALL]
        {
            answer.send(result).expect("the writer lives");
        }
        log_line(&mut ring, 200);
        ring.flush();
        assert_eq!(text(&written), expected(200)[..10]);
        log_line(&mut ring, 201);
        log_line(&mut ring, 202);
        ring.flush();
        log_line(&mut ring, 203);
        ring.flush();
        assert_eq!(text(&written), "\n");
        assert_eq!(text(&written), expected(203));
        assert_eq!(log.dropped(), 3);
        log.close(Duration::from_secs(60));
    }

    #[test]
    fn a_writer_that_stands_still_stops_no_worker() {
        let (log, answer, written) = scripted(None);
        let mut ring = log.ring();
        let line_bytes = expected(200).len();
        let turns = BATCHES_MAX + 2 * BATCH_BYTES_MAX / line_bytes;
        for _ in 0..turns {
            log_line(&mut ring, 200);
            ring.flush();
        }
        // One batch is in the writer's hands or in the queue, the queue is full, and one batch is at the worker.
        let dropped = log.dropped();
        let kept = turns as u64 - dropped;
        assert!(dropped > 0 && kept >= BATCHES_MAX as u64, "{dropped} of {turns}");
        drop(answer);
        drop(ring);
        drop(written);
        log.close(Duration::from_secs(60));
    }

    #[test]
    fn closing_waits_no_longer_than_it_is_told() {
        let (log, answer, _written) = scripted(None);
        let mut ring = log.ring();
        log_line(&mut ring, 200);
        ring.flush();
        log.close(Duration::from_millis(1));
        // The writer stands still to the end: only now may it go on.
        drop(answer);
    }

    #[test]
    fn batches_and_entries_are_used_again() {
        let (log, answer, written) = scripted(None);
        let mut ring = log.ring();
        let seen = Mutex::new(std::collections::HashSet::new());
        for status in 200..210 {
            answer.send(ALL).expect("the writer lives");
            log_line(&mut ring, status);
            let open = ring.0.as_ref().expect("on");
            seen.lock().expect("one thread").insert(open.batch.as_ptr() as usize);
            assert_eq!(open.entries.len(), 1);
            ring.flush();
            assert_eq!(text(&written), expected(status));
        }
        assert!(seen.lock().expect("one thread").len() <= 4, "ten turns took more than four batches");
        drop(answer);
        log.close(Duration::from_secs(60));
    }
}
