//! A source: the body of a PUT, split into units and published.
//!
//! ```text
//! bytes ─► Splitter ─► MediaGatherer ─► pieces ─► publish, with the lock of the stream ─► worker of the sequencer
//!   ▲                                                                                        │ acknowledged
//!   └───────────── reading goes on while less than PENDING_BYTES_MAX wait ◄──────────────────┘
//! ```
//! Complete units are passed on when `gather` has passed since the last ones, so a source that is slower than `gather` is not delayed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use encke_io::{Now, lock};
use encke_push::{Accepted, Draft, PublishError, PublishFailure, PushPublisher};
use encke_settings::OrAuto;
use encke_settings::notice::{self, Level};
use encke_wire::media::gather::{GatherLimits, MediaGatherer, MediaPiece, PieceKind};
use encke_wire::media::splitter::Splitter;
use encke_wire::media::{Container, MediaError, MediaInfo};

use crate::mirror::flags_of;
use crate::settings::LiveChannelSettings;
use crate::state::{
    LiveChannel, LiveChannelState, LiveState, Occupied, SourceCard, SourceKind, SourceNotice, SourcePauses,
};

/// Bytes of a source that wait for the sequencer. Above it the source is not read. 2 MiB: a second of 16 Mbit/s.
const PENDING_BYTES_MAX: usize = 2 << 20;
/// `gather` of video and of sound with `auto`, in ns.
const VIDEO_GATHER_NS: u64 = 100_000_000;
const AUDIO_GATHER_NS: u64 = 250_000_000;
/// Bytes after which a piece ends: the size of one send to a listener.
const PIECE_BYTES: usize = 64 * 1024;
/// A larger unit is spread over several messages, below the default of `push.message_bytes`.
const UNIT_BYTES: usize = 512 * 1024;

/// Characters of a program's name that are kept.
pub(crate) const PROGRAM_CHARS_MAX: usize = 100;
/// Characters of a title that are kept.
pub(crate) const TITLE_CHARS_MAX: usize = 200;

/// Returns the begin of a text from a peer, without control characters, for operators.
pub(crate) fn shown(text: &str, chars_max: usize) -> Box<str> {
    text.chars().filter(|one| !one.is_control()).take(chars_max).collect()
}

/// A request to become the source of a stream.
pub(crate) struct SourceRequest {
    pub(crate) content_type: Option<String>,
    pub(crate) title: Option<Box<str>>,
    /// The client's address, or the URL that the stream is pulled from.
    pub(crate) origin: String,
    pub(crate) takeover: bool,
    /// The nodes that the stream has passed, as a field value.
    pub(crate) path: String,
    pub(crate) kind: SourceKind,
    /// The name of the client's program, or of the server that the stream is pulled from.
    pub(crate) program: Option<Box<str>>,
    pub(crate) wake: Box<dyn Fn() + Send + Sync>,
}

/// The source of a stream.
pub(crate) struct LiveSource {
    state: Arc<LiveState>,
    stream: Arc<LiveChannel>,
    rules: LiveChannelSettings,
    lease: u64,
    publisher: PushPublisher,
    splitter: Splitter,
    gatherer: MediaGatherer,
    flow: Arc<SourceFlow>,
    pauses: SourcePauses,
    /// When pieces were passed on last.
    passed_ns: u64,
    /// When the units that wait are to be passed on, on the monotonic clock in ns.
    flush_ns: Option<u64>,
    /// Whether the keeper wakes the source then. The keeper itself has the sources that pull.
    is_woken: bool,
    /// Whether the first message of this source was published.
    has_begun: bool,
    /// Whether pieces are dropped until a start, because one was lost.
    awaits_start: bool,
    /// Whether the head is to be published again before the next start.
    is_forgotten: bool,
    /// Whether the last piece ended within a unit.
    in_unit: bool,
    has_ended: bool,
}

/// Why a source ends.
#[derive(Debug)]
pub(crate) enum SourceFault {
    /// Another source took over.
    Replaced,
    /// An operator has ended the source.
    Stopped,
    /// The bytes are not valid in their container.
    Media(MediaError),
    /// A message was rejected.
    Publish(PublishFailure),
}

/// The results of publishing, reported from any thread.
struct SourceFlow {
    pending_bytes: AtomicUsize,
    is_lost: AtomicBool,
    failure: Mutex<Option<PublishFailure>>,
    notice: Arc<SourceNotice>,
}

impl LiveSource {
    /// Takes the lease of a stream.
    ///
    /// # Errors
    /// The stream has a source, or this node has too many.
    pub(crate) fn begin(
        state: &Arc<LiveState>,
        stream: Arc<LiveChannel>,
        publisher: PushPublisher,
        request: SourceRequest,
        now: Now,
    ) -> Result<Self, Occupied> {
        let SourceRequest { content_type, title, origin, takeover, path, kind, program, wake } = request;
        let notice = Arc::new(SourceNotice { wake, is_stopped: AtomicBool::new(false) });
        let lease = state.lease(&stream, takeover, kind, now, |lease, rank| SourceCard {
            lease,
            kind,
            rank,
            in_unit: false,
            origin,
            title,
            path,
            program,
            began_ns: now.mono_ns,
            bytes: 0,
            bit_rate: None,
            key_interval_us: None,
            gaps: 0,
            pauses: SourcePauses::default(),
            notice: Arc::clone(&notice),
        })?;
        let rules = state.rules_of(&stream.name);
        // The gatherer's own time would need a timer: pieces end by `pass_on`.
        let limits = GatherLimits { bytes: PIECE_BYTES, unit_bytes: UNIT_BYTES, gather_ms: u32::MAX };
        Ok(Self {
            flow: Arc::new(SourceFlow {
                pending_bytes: AtomicUsize::new(0),
                is_lost: AtomicBool::new(false),
                failure: Mutex::default(),
                notice,
            }),
            state: Arc::clone(state),
            stream,
            rules,
            lease,
            publisher,
            splitter: content_type.map_or_else(Splitter::new, |hint| Splitter::with_hint(&hint)),
            gatherer: MediaGatherer::new(limits),
            pauses: SourcePauses::default(),
            passed_ns: 0,
            flush_ns: None,
            is_woken: kind == SourceKind::Own,
            has_begun: false,
            awaits_start: false,
            is_forgotten: false,
            in_unit: false,
            has_ended: false,
        })
    }

    /// Takes bytes of the stream.
    ///
    /// # Errors
    /// The source ends. It has given up its lease.
    pub(crate) fn data(&mut self, bytes: &[u8], now: Now) -> Result<(), SourceFault> {
        self.pauses.received(now.mono_ns);
        self.state.figures.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.gatherer.set_now(now.mono_ns);
        if let Err(error) = self.splitter.push(bytes, &mut self.gatherer) {
            self.release(now, false);
            return Err(SourceFault::Media(error));
        }
        self.flush(now)
    }

    /// Passes on the complete units, if the last ones were passed on long enough ago. Otherwise they wait.
    fn flush(&mut self, now: Now) -> Result<(), SourceFault> {
        let due_ns = self.passed_ns.saturating_add(self.gather_ns());
        if due_ns <= now.mono_ns {
            self.gatherer.flush(now.mono_ns);
        }
        self.pass_on(now)?;
        if self.flush_ns.is_none() && self.gatherer.due_ns().is_some() {
            self.flush_ns = Some(due_ns);
            if self.is_woken {
                self.state.wake_at(due_ns, &self.flow.notice);
            }
        }
        Ok(())
    }

    /// Returns when [`Self::flush_due`] is to be called.
    pub(crate) fn flush_ns(&self) -> Option<u64> {
        self.flush_ns
    }

    /// Passes on the units whose time has come.
    ///
    /// # Errors
    /// The source ends. It has given up its lease.
    pub(crate) fn flush_due(&mut self, now: Now) -> Result<(), SourceFault> {
        if self.flush_ns.is_none_or(|flush_ns| now.mono_ns < flush_ns) {
            return Ok(());
        }
        self.flush_ns = None;
        self.flush(now)
    }

    /// Returns whether further bytes are wanted now.
    ///
    /// # Errors
    /// The source ends. It has given up its lease.
    pub(crate) fn wants_more(&mut self, now: Now) -> Result<bool, SourceFault> {
        let failure = lock(&self.flow.failure).take();
        if let Some(failure) = failure {
            self.release(now, false);
            return Err(SourceFault::Publish(failure));
        }
        if !lock(&self.stream.inner).is_held_by(self.lease) {
            self.has_ended = true;
            return Err(SourceFault::Replaced);
        }
        if self.flow.notice.is_stopped.load(Ordering::Acquire) {
            self.release(now, false);
            return Err(SourceFault::Stopped);
        }
        self.flush_due(now)?;
        Ok(self.flow.pending_bytes.load(Ordering::Acquire) < PENDING_BYTES_MAX)
    }

    /// The source has ended: its last units are published if `is_complete`.
    pub(crate) fn release(&mut self, now: Now, is_complete: bool) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        if is_complete {
            self.splitter.finish(&mut self.gatherer);
            self.gatherer.finish(now.mono_ns);
        } else {
            self.gatherer.flush(now.mono_ns);
        }
        // A former source has no say.
        let _replaced = self.pass_on(now);
        let stream = Arc::clone(&self.stream);
        let mut inner = lock(&stream.inner);
        if !inner.is_held_by(self.lease) {
            return;
        }
        self.state.vacate(&stream, &mut inner, now.mono_ns);
        let title = self.stream.name.as_str().to_owned();
        drop(inner);
        self.state.look_later();
        notice::report(Level::Info, &format!("live stream {title}: the source has ended"));
    }

    /// Publishes the pieces that are ready.
    fn pass_on(&mut self, now: Now) -> Result<(), SourceFault> {
        let pieces: Vec<MediaPiece> = self.gatherer.drain().collect();
        let stream = Arc::clone(&self.stream);
        let mut inner = lock(&stream.inner);
        if !inner.is_held_by(self.lease) {
            self.has_ended = true;
            return Err(SourceFault::Replaced);
        }
        if !pieces.is_empty() {
            let silence_ns = now.mono_ns.saturating_sub(std::mem::replace(&mut self.passed_ns, now.mono_ns));
            if self.has_begun && silence_ns > self.rules.time.nanoseconds() {
                // The channel has lost all messages, and with them its head.
                (self.awaits_start, self.is_forgotten) = (true, true);
            }
        }
        if let Some(info) = self.splitter.info()
            && inner.info.as_ref() != Some(&info)
        {
            inner.info = Some(info);
            inner.wake();
        }
        for piece in pieces {
            self.publish(&mut inner, piece);
        }
        let gauge = self.gatherer.gauge();
        let bit_rate = gauge.bit_rate(now.mono_ns);
        if let Some(card) = &mut inner.source {
            card.in_unit = self.in_unit;
            card.bytes = gauge.bytes;
            card.bit_rate = bit_rate;
            card.key_interval_us = gauge.start_interval_us;
            card.gaps = gauge.gaps;
            card.pauses = self.pauses;
        }
        Ok(())
    }

    fn publish(&mut self, inner: &mut MutexGuard<'_, LiveChannelState>, piece: MediaPiece) {
        self.state.mirror(&self.stream.name, inner, &piece, &self.publisher);
        let stated = self.splitter.info().map(|info| info.container);
        let container = stated.or(self.splitter.container()).unwrap_or(Container::Unknown);
        if !std::mem::replace(&mut self.has_begun, true) {
            let title = self.stream.name.as_str();
            if container == Container::Unknown {
                let text = format!(
                    "live stream {title}: the container is not known, so the bytes are relayed as they are, and listeners start \
                     anywhere in them"
                );
                notice::report(Level::Warn, &text);
            } else {
                notice::report(Level::Info, &format!("live stream {title}: {}", described(&self.splitter)));
            }
            if piece.kind != PieceKind::Head {
                self.send(self.head_draft(inner, container, Vec::new()));
            }
        }
        if piece.kind == PieceKind::Head {
            self.awaits_start = false;
            return self.send(self.head_draft(inner, container, piece.data));
        }
        if self.flow.is_lost.swap(false, Ordering::AcqRel) {
            self.awaits_start = true;
            inner.torn |= self.in_unit;
        }
        if self.awaits_start && !piece.start {
            self.state.figures.pieces_dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if std::mem::take(&mut self.awaits_start) && (inner.torn || std::mem::take(&mut self.is_forgotten)) {
            // A part of a unit would be followed by something else.
            let head = inner.head.to_vec();
            self.send(self.head_draft(inner, container, head));
        }
        self.in_unit = piece.continues;
        self.send(Draft { flags: flags_of(&piece), ..Draft::new(self.stream.name.clone(), piece.data) });
    }

    /// Returns the message with a new head, possibly an empty one.
    fn head_draft(&self, inner: &mut LiveChannelState, container: Container, head: Vec<u8>) -> Draft {
        let flags = inner.take_head(container, &head);
        Draft { flags, ..Draft::new(self.stream.name.clone(), head) }
    }

    fn send(&self, draft: Draft) {
        let bytes = draft.data.len();
        self.flow.pending_bytes.fetch_add(bytes, Ordering::AcqRel);
        let flow = Arc::clone(&self.flow);
        self.publisher.publish(draft, move |result| flow.acknowledge(bytes, result));
    }

    fn gather_ns(&self) -> u64 {
        match self.rules.gather {
            OrAuto::Set(time) => time.nanoseconds(),
            OrAuto::Auto if self.splitter.info().is_some_and(|info| !info.video) => AUDIO_GATHER_NS,
            OrAuto::Auto => VIDEO_GATHER_NS,
        }
    }
}

impl Drop for LiveSource {
    /// A handler that goes away without an end, such as at the stop of the server, gives up the lease.
    fn drop(&mut self) {
        if !self.has_ended {
            let mut inner = lock(&self.stream.inner);
            if inner.is_held_by(self.lease) {
                self.state.remove_source(&self.stream, &mut inner);
            }
        }
    }
}

impl SourceFlow {
    fn acknowledge(&self, bytes: usize, result: Result<Accepted, PublishFailure>) {
        let before = self.pending_bytes.fetch_sub(bytes, Ordering::AcqRel);
        let mut wakes = before >= PENDING_BYTES_MAX && before - bytes < PENDING_BYTES_MAX;
        match result {
            Ok(_) => {}
            // The stream continues with the next start.
            Err(PublishFailure::Busy) => self.is_lost.store(true, Ordering::Release),
            Err(failure) => {
                *lock(&self.failure) = Some(failure);
                wakes = true;
            }
        }
        if wakes {
            (self.notice.wake)();
        }
    }
}

/// Returns a stream's container and codecs, for people.
fn described(splitter: &Splitter) -> String {
    let Some(MediaInfo { container, codecs, .. }) = splitter.info() else {
        return "a source has begun".into();
    };
    let container = crate::figures::container_name(container);
    format!("a source has begun: {container}, {}", codecs.join(", "))
}

impl std::fmt::Display for SourceFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Replaced => f.write_str("another source has taken over the stream"),
            Self::Stopped => f.write_str("an operator has ended the source"),
            Self::Media(error) => error.fmt(f),
            Self::Publish(PublishFailure::Rejected(error @ PublishError::TooLarge { .. })) => {
                write!(f, "{error}: raise push.message_bytes, or lower the bit rate")
            }
            Self::Publish(failure) => failure.fmt(f),
        }
    }
}
