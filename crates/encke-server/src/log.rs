//! The access log: workers format lines, and a separate thread writes them.
//!
//! ```text
//!  worker 0: Access ─ begin … finish ─► batch ─┐ flush, once a turn                 ┌► stdout or file
//!  worker 1: Access ─ begin … finish ─► batch ─┼─► bounded queue ─► writer thread ─┼► file of a site
//!  worker n: Access ─ begin … finish ─► batch ─┘                       │           └► …
//!       ▲ empty batches come back ───────────────────────────────────┘
//! ```
//! A worker never waits for the log and takes no lock. If the writer cannot keep up (a full disk, a reader that has stopped),
//! lines are dropped and counted. The writer sleeps while there is nothing to write. A reader that exits (`encke serve | head`)
//! ends the log quietly; the server continues.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use encke_io::lock;
use encke_io::{Now, Peer};

mod line;
mod notes;
mod pending;
mod reason;

pub(crate) use reason::setting_of;
mod resting;
mod runs;
mod settings;
mod tail;

pub(crate) use line::{LineEnd, LogEntry};
pub use notes::LogNotes;
pub(crate) use pending::{LogFlight, PendingEntry, WaitingEntry};
pub use tail::{LogTail, TailEntry, TailFilter};

use crate::error::ServerError;
use crate::request::Request;
use crate::request_id::{self, IdPrefix};
use runs::LineRuns;
pub use settings::{LogFormat, LogSettings};

use encke_settings::notice;
use encke_settings::{Level, LogTarget};

/// Batches that may wait for the writer. With [`BATCH_BYTES_MAX`] this is at most 16 MiB: two seconds of the busiest worker's
/// lines.
const BATCHES_MAX: usize = 256;

/// A batch larger than this waits for the writer; further lines are dropped. One turn handles at most 256 events, whose lines
/// take some 50 KiB.
const BATCH_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of outputs of sites while the process runs: an output is a byte, of which two values have another meaning.
const OTHERS_MAX: usize = 254;

/// Entries that a worker keeps for later requests: as many as one turn may begin.
const ENTRIES_KEPT: usize = 256;

/// The access log of a process. Clones share one log.
#[derive(Clone)]
pub struct AccessLog(Arc<Control>);

struct Control {
    shared: Arc<LogShared>,
    queue: SyncSender<LogMessage>,
    state: Mutex<LogState>,
}

struct LogState {
    target: LogTarget,
    /// The targets of sites, in the order of their outputs from 1. They stay open until the process ends, because requests
    /// that began before a reload end with their lines there.
    others: Vec<LogTarget>,
    /// The receiving end of the queue, while there is no writer thread.
    messages: Option<Receiver<LogMessage>>,
    writer: Option<JoinHandle<()>>,
}

/// Facts about a request for the log, in addition to its head; see [`Handler::log_label`](crate::Handler::log_label).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogLabel<'a> {
    /// The name of the site that the request is for; `None` if there is none.
    pub site: Option<&'a str>,
    /// The output of the line.
    pub output: LogOutput,
}

/// An output of the access log: that of the server, the default, or another one of [`AccessLog::output`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogOutput(u8);

impl LogOutput {
    /// No log.
    pub const OFF: Self = Self(u8::MAX);
    /// The target of `[log]`.
    const MAIN: Self = Self(0);

    /// The output of the target with this index in [`LogState::others`].
    fn other(index: usize) -> Self {
        u8::try_from(index + 1).map_or(Self::OFF, Self)
    }
}

/// State that workers and writer share.
#[derive(Default)]
struct LogShared {
    /// [`OFF`], [`COMBINED`] or [`JSON`], perhaps with the bits [`TAILED`] and [`MAIN_OFF`].
    mode: AtomicU8,
    tails: tail::Tails,
    dropped: AtomicU64,
    /// Whether a site has an output of its own.
    has_others: AtomicBool,
    /// The next outputs, if the queue had no room for [`LogMessage::Switch`].
    next: Mutex<Vec<(LogOutput, Output)>>,
}

const OFF: u8 = 0;
const COMBINED: u8 = 1;
const JSON: u8 = 2;
/// A bit of the mode: at least one tail exists.
const TAILED: u8 = 4;
/// A bit of the mode: only other outputs than that of the server have lines.
const MAIN_OFF: u8 = 8;

enum LogMessage {
    /// Complete lines, and the channel that returns the empty batch.
    Lines(LineRuns, SyncSender<LineRuns>),
    /// An output for the lines after this message.
    Switch(LogOutput, Output),
    /// The last message.
    End,
}

/// A prepared change of the log's target and format.
pub struct LogSwitch {
    target: LogTarget,
    format: LogFormat,
    /// `None` if the target stays the same or is [`LogTarget::Off`].
    output: Option<Output>,
    /// Whether a site has an output of its own.
    has_others: bool,
}

/// Time that the end of the process waits for the last lines: their reader may have stopped for good.
const END_PATIENCE: Duration = Duration::from_secs(1);

impl AccessLog {
    /// Opens the log and starts its writer. `others` are the targets of sites.
    ///
    /// # Errors
    /// A file cannot be opened (the error names it), or the system cannot start another thread.
    pub fn start(settings: &LogSettings, others: &[LogTarget]) -> Result<Self, ServerError> {
        let log = Self::silent();
        log.turn(log.prepare(settings, others)?);
        Ok(log)
    }

    /// Returns the output for a target that [`AccessLog::start`] or [`AccessLog::prepare`] has opened. For any other target it
    /// is the output of the server.
    pub fn output(&self, target: &LogTarget) -> LogOutput {
        if *target == LogTarget::Off {
            return LogOutput::OFF;
        }
        let number = lock(&self.0.state).others.iter().position(|other| other == target);
        number.map_or(LogOutput::MAIN, LogOutput::other)
    }

    /// Returns a log that is off until a reload turns it on. Tails work meanwhile.
    pub(crate) fn silent() -> Self {
        let (queue, messages) = sync_channel(BATCHES_MAX);
        let state =
            LogState { target: LogTarget::Off, others: Vec::new(), messages: Some(messages), writer: None };
        let control = Control { shared: Arc::default(), queue, state: Mutex::new(state) };
        Self(Arc::new(control))
    }

    /// Begins a tail; see [`LogTail`]. Returns `None` at the limit of tails.
    pub(crate) fn tail(
        &self,
        filter: TailFilter,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Option<LogTail> {
        LogTail::begin(&self.0.shared, filter, wake)
    }

    /// Returns a worker's end of the log.
    pub(crate) fn access(&self) -> Access {
        let control = &self.0;
        let (home, empty) = sync_channel(BATCHES_KEPT);
        Access(Some(Box::new(LogBatch {
            writer: line::Writer::new(),
            prefix: request_id::NO_PREFIX,
            batch: LineRuns::default(),
            entries: Vec::new(),
            texts: resting::Texts::default(),
            tails: tail::TailList::default(),
            queue: control.queue.clone(),
            home,
            empty,
            shared: Arc::clone(&control.shared),
        })))
    }

    /// Prepares a change of targets or format: opens the files, so that an error is known before anything changes. `others` are
    /// the targets of sites.
    ///
    /// # Errors
    /// As for [`AccessLog::start`]; the log then continues unchanged.
    pub fn prepare(&self, settings: &LogSettings, others: &[LogTarget]) -> Result<LogSwitch, ServerError> {
        let mut turn = LogSwitch {
            target: settings.access.clone(),
            format: settings.format,
            output: None,
            has_others: others.iter().any(|other| *other != LogTarget::Off),
        };
        let control = &self.0;
        let mut state = lock(&control.state);
        if settings.access != state.target {
            turn.output = Output::to(&settings.access)?;
        }
        let mut opened = Vec::new();
        for other in others {
            let known = state.others.contains(other) || opened.iter().any(|(known, _)| *known == other);
            if !known && let Some(output) = Output::to(other)? {
                opened.push((other, output));
            }
        }
        if state.others.len() + opened.len() > OTHERS_MAX {
            return Err(ServerError::LogCount(OTHERS_MAX));
        }
        if turn.output.is_some() || !opened.is_empty() {
            control.start_writer(&mut state)?;
        }
        // They exist from now on, even if the caller drops the change.
        for (other, output) in opened {
            let number = LogOutput::other(state.others.len());
            state.others.push(other.clone());
            control.switch(number, output);
        }
        Ok(turn)
    }

    /// Applies a prepared change.
    pub fn turn(&self, turn: LogSwitch) {
        let control = &self.0;
        let format = match turn.format {
            LogFormat::Combined => COMBINED,
            LogFormat::Json => JSON,
        };
        let mode = match (&turn.target, turn.has_others) {
            (LogTarget::Off, false) => OFF,
            (LogTarget::Off, true) => format | MAIN_OFF,
            _ => format,
        };
        lock(&control.state).target = turn.target;
        if let Some(output) = turn.output {
            control.switch(LogOutput::MAIN, output);
        }
        control.shared.has_others.store(turn.has_others, Ordering::Relaxed);
        control.shared.set_format(mode);
    }

    /// Reopens the files after they were moved away (logrotate(8)). Standard output stays as it is.
    ///
    /// # Errors
    /// A file cannot be opened (the error names it); its lines then continue in the old one.
    pub fn reopen(&self) -> Result<(), ServerError> {
        let control = &self.0;
        let state = lock(&control.state);
        let others = state.others.iter().enumerate().map(|(index, other)| (LogOutput::other(index), other));
        let mut result = Ok(());
        for (number, target) in std::iter::once((LogOutput::MAIN, &state.target)).chain(others) {
            if let LogTarget::File(path) = target {
                match Output::file(path) {
                    Ok(output) => control.switch(number, output),
                    Err(error) => result = result.and(Err(error)),
                }
            }
        }
        result
    }

    /// Number of lines that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.shared.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all lines handed over are written, but at most one second.
    pub fn finish(self) {
        self.finish_within(END_PATIENCE);
    }

    fn finish_within(self, patience: Duration) {
        let control = self.0;
        let Some(writer) = lock(&control.state).writer.take() else { return };
        let queue = control.queue.clone();
        let (ended, wait) = sync_channel::<()>(0);
        let waiter = thread::Builder::new().name("access-log-end".into()).spawn(move || {
            if queue.send(LogMessage::End).is_ok() {
                // A writer that panicked has written all it could.
                let _ended = writer.join();
            }
            drop(ended);
        });
        if waiter.is_ok() {
            // Nothing is ever sent here: this returns when the other side is dropped or the time is over.
            let _over = wait.recv_timeout(patience);
        }
    }
}

impl Control {
    fn start_writer(&self, state: &mut LogState) -> Result<(), ServerError> {
        if let Some(messages) = state.messages.take() {
            let shared = Arc::clone(&self.shared);
            let writer = thread::Builder::new().name("access-log".into()).stack_size(128 * 1024);
            let writer = writer.spawn(move || write_all(&messages, &shared));
            state.writer = Some(writer.map_err(ServerError::Thread)?);
        }
        Ok(())
    }

    /// Sends the writer a new output, in the queue's order if there is room. Never waits: the reader of the log may have
    /// stopped for good.
    fn switch(&self, number: LogOutput, output: Output) {
        if let Err(TrySendError::Full(LogMessage::Switch(number, output))) =
            self.queue.try_send(LogMessage::Switch(number, output))
        {
            lock(&self.shared.next).push((number, output));
        }
    }
}

/// Empty batches kept for reuse: one is filled while another is written.
const BATCHES_KEPT: usize = 2;

/// Whether lines have notes. The default one has no log.
#[derive(Default)]
pub(crate) struct NotesMode(Option<Arc<LogShared>>);

impl NotesMode {
    /// Whether the log is in the JSON format, or has tails.
    pub(crate) fn is_on(&self) -> bool {
        let mode = self.0.as_ref().map_or(OFF, |shared| shared.mode.load(Ordering::Relaxed));
        mode & TAILED != 0 || mode & !MAIN_OFF == JSON
    }
}

/// A worker's end of the log. The default one logs nothing.
#[derive(Default)]
pub(crate) struct Access(Option<Box<LogBatch>>);

struct LogBatch {
    writer: line::Writer,
    /// The part that the worker's request ids share.
    prefix: IdPrefix,
    /// Complete lines that are not handed over yet.
    batch: LineRuns,
    #[expect(
        clippy::vec_box,
        reason = "entries wait in tables of the worker's, where each should be a word"
    )]
    entries: Vec<Box<LogEntry>>,
    /// The texts that pending lines of subscribers share.
    texts: resting::Texts,
    tails: tail::TailList,
    queue: SyncSender<LogMessage>,
    home: SyncSender<LineRuns>,
    empty: Receiver<LineRuns>,
    shared: Arc<LogShared>,
}

impl Access {
    /// Sets the part that the worker's request ids share.
    pub(crate) fn set_id_prefix(&mut self, prefix: IdPrefix) {
        if let Some(open) = &mut self.0 {
            open.prefix = prefix;
        }
    }

    /// The present format, for handlers that add notes.
    pub(crate) fn notes_mode(&self) -> NotesMode {
        NotesMode(self.0.as_ref().map(|open| Arc::clone(&open.shared)))
    }

    /// Adds the notes of a handler to a line.
    pub(crate) fn note(&mut self, entry: &mut LogEntry, notes: &LogNotes) {
        if let Some(open) = &mut self.0 {
            entry.note(&open.prefix, &mut open.texts, &notes.members);
        }
    }

    /// Whether requests are logged.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.as_ref().is_some_and(|open| open.shared.mode.load(Ordering::Relaxed) != OFF)
    }

    /// Begins the line of a request. Returns `None` if nothing is logged.
    #[inline(never)]
    pub(crate) fn begin(
        &mut self,
        request: &Request<'_>,
        label: LogLabel<'_>,
        id: Option<&[u8]>,
        next_number: impl FnOnce() -> NonZeroU32,
    ) -> Option<Box<LogEntry>> {
        let (format, tailed, open) = self.open(label.output)?;
        let own;
        let id = match id {
            Some(id) => id,
            // Combined lines have no id.
            None if format == Some(LogFormat::Combined) && !tailed => b"",
            None => {
                own = request_id::id(&open.prefix, request.now().unix_ns, next_number());
                &own
            }
        };
        let mut entry = open.begin(format, tailed, request.path(), |writer, format, entry| {
            writer.begin(format, (request, label, id), entry);
        })?;
        entry.set_output(label.output);
        Some(entry)
    }

    /// Begins the line of a request that could not be parsed.
    pub(crate) fn begin_refused(&mut self, peer: Peer, now: Now) -> Option<Box<LogEntry>> {
        let (format, tailed, open) = self.open(LogOutput::MAIN)?;
        open.begin(format, tailed, b"", |writer, format, entry| {
            writer.begin_refused(format, peer, now, entry);
        })
    }

    /// Completes a line when its response is sent or has failed.
    pub(crate) fn finish(&mut self, entry: Box<LogEntry>, end: &LineEnd) {
        let Some(open) = &mut self.0 else { return };
        if let Some((status, path, line)) = entry.tail() {
            let put = |out: &mut Vec<u8>| line.finish(&open.prefix, end, out);
            open.tails.offer(&open.shared.tails, status, path, put);
        }
        if !entry.is_logged() {
            // Only tails show this line.
        } else if open.batch.bytes().len() < BATCH_BYTES_MAX {
            open.batch.add(entry.output(), |out| entry.finish(&open.prefix, end, out));
        } else {
            open.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
        open.recycle(entry);
    }

    /// Returns the line in at most 64 bytes, for a connection that stays subscribed. Lines share equal texts.
    pub(crate) fn at_rest(&mut self, entry: Box<LogEntry>) -> Box<LogEntry> {
        let Some(open) = &mut self.0 else { return entry };
        let Some(resting) = entry.at_rest(&open.prefix, &mut open.texts) else { return entry };
        open.recycle(entry);
        Box::new(resting)
    }

    /// Hands the lines of a turn to the writer. If the queue is full, they stay for the next turn.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if let Some(open) = &mut self.0
            && !open.batch.bytes().is_empty()
        {
            open.hand_over();
        }
    }

    /// Returns the format of a line for `output`, if that has a log, and whether tails show the line.
    #[inline]
    fn open(&mut self, output: LogOutput) -> Option<(Option<LogFormat>, bool, &mut LogBatch)> {
        let open = self.0.as_deref_mut()?;
        let mode = open.shared.mode.load(Ordering::Relaxed);
        let is_off = output == LogOutput::OFF || output == LogOutput::MAIN && mode & MAIN_OFF != 0;
        let format = match mode & !(TAILED | MAIN_OFF) {
            _ if is_off => None,
            COMBINED => Some(LogFormat::Combined),
            JSON => Some(LogFormat::Json),
            _ => None,
        };
        Some((format, mode & TAILED != 0, open))
    }
}

impl LogBatch {
    /// Begins the lines of a request. `format` is the log's format, if the log is on.
    fn begin(
        &mut self,
        format: Option<LogFormat>,
        tailed: bool,
        path: &[u8],
        put: impl Fn(&mut line::Writer, LogFormat, &mut LogEntry),
    ) -> Option<Box<LogEntry>> {
        if tailed {
            let mut json = LogEntry::default();
            put(&mut self.writer, LogFormat::Json, &mut json);
            let own = format.filter(|format| *format == LogFormat::Combined).map(|format| {
                let mut own = LogEntry::default();
                put(&mut self.writer, format, &mut own);
                own
            });
            return Some(Box::new(LogEntry::tailed(own, json, format.is_some(), path)));
        }
        let format = format?;
        let mut entry = self.entries.pop().unwrap_or_default();
        put(&mut self.writer, format, &mut entry);
        Some(entry)
    }

    /// Keeps an entry for a later request.
    fn recycle(&mut self, entry: Box<LogEntry>) {
        if let Some(entry) = entry.recycle(&mut self.texts)
            && self.entries.len() < ENTRIES_KEPT
        {
            self.entries.push(entry);
        }
    }

    fn hand_over(&mut self) {
        let next = self.empty.try_recv().unwrap_or_default();
        let full = std::mem::replace(&mut self.batch, next);
        match self.queue.try_send(LogMessage::Lines(full, self.home.clone())) {
            Ok(()) => {}
            Err(TrySendError::Full(LogMessage::Lines(full, _))) => self.batch = full,
            // The writer ended with the process.
            Err(_ended) => {}
        }
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Runs the writer thread.
fn write_all(messages: &Receiver<LogMessage>, shared: &LogShared) {
    // By the number of the output.
    let mut outputs: Vec<Option<Output>> = Vec::new();
    loop {
        // All queued messages are written before a flush.
        let message = match messages.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {
                for output in outputs.iter_mut().flatten() {
                    let _told_at_the_next_write = output.to.flush();
                }
                match messages.recv() {
                    Ok(message) => message,
                    Err(_all_gone) => return,
                }
            }
        };
        match message {
            LogMessage::Lines(mut batch, home) => {
                for (number, bytes, lines) in batch.iter() {
                    if let Some(Some(output)) = outputs.get_mut(usize::from(number.0)) {
                        output.write(bytes, lines, shared);
                    }
                }
                batch.clear(BATCH_BYTES_MAX);
                // Two batches wait there already, or the worker has exited: this one is not needed.
                let _unneeded = home.try_send(batch);
            }
            LogMessage::Switch(number, next) => put_output(&mut outputs, number, next),
            LogMessage::End => {
                for output in outputs.iter_mut().flatten() {
                    let _nothing_left_to_do = output.to.flush();
                }
                return;
            }
        }
        for (number, next) in std::mem::take(&mut *lock(&shared.next)) {
            put_output(&mut outputs, number, next);
        }
    }
}

fn put_output(outputs: &mut Vec<Option<Output>>, number: LogOutput, output: Output) {
    let index = usize::from(number.0);
    if outputs.len() <= index {
        outputs.resize_with(index + 1, || None);
    }
    outputs[index] = Some(output);
}

/// An output of the log and the result of its last write.
struct Output {
    /// `None` for standard output.
    path: Option<PathBuf>,
    to: Box<dyn Write + Send>,
    /// The lines lost since a write failed; logged when a write succeeds again.
    failing: Option<u64>,
    /// A write ended within a line. The next line must not continue it.
    torn: bool,
}

impl Output {
    fn new(path: Option<PathBuf>, to: Box<dyn Write + Send>) -> Self {
        Self { path, to, failing: None, torn: false }
    }

    fn stdout() -> Self {
        Self::new(None, Box::new(io::stdout()))
    }

    /// Opens the output for a target; `None` for [`LogTarget::Off`].
    fn to(target: &LogTarget) -> Result<Option<Self>, ServerError> {
        Ok(match target {
            LogTarget::Off => None,
            LogTarget::Stdout => Some(Self::stdout()),
            LogTarget::File(path) => Some(Self::file(path)?),
        })
    }

    /// Opens a log file for appending. Creates it if it does not exist.
    fn file(path: &Path) -> Result<Self, ServerError> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.map_err(|error| ServerError::Log(path.to_owned(), error))?;
        Ok(Self::new(Some(path.to_owned()), Box::new(file)))
    }

    fn write(&mut self, batch: &[u8], lines: u64, shared: &LogShared) {
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
                    notice::report(
                        Level::Warn,
                        &format!("writing {name} works again; {lost} lines were lost"),
                    );
                }
            }
            Err(error) if self.path.is_none() && error.kind() == io::ErrorKind::BrokenPipe => {
                shared.end_main();
            }
            Err(error) => {
                shared.dropped.fetch_add(lines, Ordering::Relaxed);
                if self.failing.is_none() {
                    let name = self.name();
                    notice::report(
                        Level::Error,
                        &format!("cannot write {name}: {error}; dropping its lines until writing works"),
                    );
                }
                self.failing = Some(self.failing.unwrap_or(0) + lines);
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

#[cfg(test)]
mod tests;
