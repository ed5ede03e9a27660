//! Live pages: one event stream per page, with the subjects that the page watches.
//!
//! ```text
//!  ticker (a thread) ── every 10 s ────────► History
//!        └ due pages ─┬ overview: one snapshot for all pages ─┐
//!                     ├ list: one query per watch ─► workers ─┼─► newest event of each watch ─ wake ─► LiveStream::pull
//!                     └ log, notices: what is new ────────────┘
//! ```
//! A page holds one event per watch at most: a slow reader gets the newest state, never a backlog. Without pages the thread
//! wakes every ten seconds, for the history.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;
use std::{io, thread};

use encke_io::clock::Clock;
use encke_io::{Tuning, lock};
use encke_server::{LogTail, Pull, Pulled, TailEntry, WakeStream};
use encke_settings::conceal::{conceal, conceal_json, conceal_known};
use encke_settings::notice;
use encke_stats::{ListTicket, Query, Rows};
use serde::Serialize;
use serde_json::json;

use crate::json::ListPage;
use crate::page_limit::{PageLimit, PageShare};
use crate::series::Snapshot;
use crate::session::Identity;
use crate::settings::ConsoleRole;
use crate::shared::ConsoleShared;
use crate::watch::Watch;

/// Maximum number of watches of a page.
pub(crate) const WATCHES_MAX: usize = 8;
/// Shortest and usual interval of a page's events.
pub(crate) const EVERY_MS_MIN: u64 = 250;
pub(crate) const EVERY_MS: u64 = 1000;
/// Maximum interval of a page's events.
pub(crate) const EVERY_MS_MAX: u64 = 60_000;
/// Time without an event after which a page gets a comment. The error of a send is the only sign that its client has
/// disconnected, because a client may close its direction of the connection and still read.
const SILENCE_NS_MAX: u64 = 5_000_000_000;
/// The comment, which clients ignore.
const COMMENT: &[u8; 3] = b":\n\n";
/// Maximum number of log entries in an event.
const LOG_ENTRIES_MAX: usize = 200;
/// Maximum number of unsent bytes in the kernel for a page: what waits there is no longer the newest state.
const UNSENT_BYTES: u32 = 16 * 1024;
/// Time after which a page that acknowledges nothing is dead. A closed laptop then holds none of the places of a user.
const DEAD_AFTER_MS: u32 = 30_000;
/// Bytes of a row, and of the rest of an event, for which a buffer is made: few events move while they are written.
const ROW_BYTES: usize = 320;
const EVENT_BYTES: usize = 2 * 1024;
/// The last event of a page: the server stops, or the user's rights have ended.
const END: &[u8; 21] = b"event: end\ndata: {}\n\n";

/// An event as its pages receive it. Not `Arc<[u8]>`, which copies the bytes once more when it is made.
type PageEvent = Arc<Vec<u8>>;

/// Wakes the pages, and records the history.
#[derive(Default)]
pub(crate) struct Ticker {
    state: Mutex<TickerState>,
    changed: Condvar,
}

#[derive(Default)]
struct TickerState {
    pages: Vec<Weak<LivePage>>,
    ended: bool,
}

/// An open page.
pub(crate) struct LivePage {
    watches: Vec<PageWatch>,
    every_ns: u64,
    /// Time on the monotonic clock, in nanoseconds.
    due_ns: AtomicU64,
    /// Time of the last event, on the same clock.
    offered_ns: AtomicU64,
    /// A comment is due.
    is_silent: AtomicBool,
    identity: Option<Identity>,
    stream: WakeStream,
    has_ended: Mutex<bool>,
}

/// A watch of a page.
struct PageWatch {
    watch: Watch,
    /// The watch as the page wrote it.
    text: String,
    tail: Option<Mutex<LogTail>>,
    state: Mutex<WatchState>,
}

#[derive(Default)]
struct WatchState {
    /// The newest event that the page has not received.
    event: Option<PageEvent>,
    /// A list has been requested, and has not arrived.
    waits: bool,
    /// The number of notices at the last event.
    notices: Option<u64>,
}

/// The response of a page.
pub(crate) struct LiveStream {
    page: Arc<LivePage>,
    /// The event that is being sent, and the number of its bytes sent.
    event: Option<(PageEvent, usize)>,
    /// The last event has begun.
    has_ended: bool,
}

impl Ticker {
    /// Starts the thread. It ends with the console.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(self: &Arc<Self>, console: Weak<ConsoleShared>) -> io::Result<()> {
        let ticker = Arc::clone(self);
        thread::Builder::new().name("console-ticker".into()).spawn(move || ticker.run(&console))?;
        Ok(())
    }

    /// Adds a page.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn add(&self, page: &Arc<LivePage>) -> Result<(), PageLimit> {
        let mut state = lock(&self.state);
        state.pages.retain(|known| known.strong_count() > 0);
        let open = state.pages.iter().filter_map(|known| Some(known.upgrade()?.share()));
        page.share().check(&open.collect::<Vec<_>>())?;
        state.pages.push(Arc::downgrade(page));
        self.changed.notify_all();
        Ok(())
    }

    /// Makes all pages due at once, because the status has changed.
    pub(crate) fn quicken(&self) {
        let state = lock(&self.state);
        for page in state.pages.iter().filter_map(Weak::upgrade) {
            page.due_ns.store(0, Ordering::Relaxed);
        }
        self.changed.notify_all();
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        lock(&self.state).ended = true;
        self.changed.notify_all();
    }

    fn run(&self, console: &Weak<ConsoleShared>) {
        let mut clock = Clock::new();
        // The beginning of the interval of the pages' figures.
        let mut before: Option<Arc<Snapshot>> = None;
        loop {
            let Some(console) = console.upgrade() else { return };
            let now = clock.now();
            let mut snapshot = None;
            if console.history().due_ns(now.mono_ns) <= now.mono_ns {
                let taken = snapshot.insert(Arc::new(console.snapshot()));
                console.history().record(taken, now.unix_ns / 1_000_000);
            }
            let pages: Vec<Arc<LivePage>> =
                lock(&self.state).pages.iter().filter_map(Weak::upgrade).collect();
            let due: Vec<&Arc<LivePage>> = pages.iter().filter(|page| page.is_due(now.mono_ns)).collect();
            // Before the events are made: a page that becomes due meanwhile stays due.
            due.iter().for_each(|page| page.postpone(now.mono_ns));
            if due.is_empty() {
                before = before.filter(|_| !pages.is_empty());
            } else {
                refresh(&console, &due, &mut before, snapshot);
            }
            for page in &due {
                page.break_silence(now.mono_ns);
            }
            let next = pages.iter().map(|page| page.due_ns.load(Ordering::Relaxed)).min();
            let next = next.unwrap_or(u64::MAX).min(console.history().due_ns(now.mono_ns));
            drop(due);
            drop((pages, console));
            if !self.wait_until(next, &mut clock) {
                return;
            }
        }
    }

    /// Waits until a time on the monotonic clock, or a change. Returns false at the end.
    fn wait_until(&self, next_ns: u64, clock: &mut Clock) -> bool {
        let state = lock(&self.state);
        let is_due = |page: Arc<LivePage>| page.due_ns.load(Ordering::Relaxed) < next_ns;
        if state.ended {
            return false;
        }
        // A page may have been added or quickened after the list was read.
        let changed = state.pages.iter().filter_map(Weak::upgrade).any(is_due);
        let wait = Duration::from_nanos(next_ns.saturating_sub(clock.now().mono_ns));
        if changed || wait.is_zero() {
            return true;
        }
        let (state, _) = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner);
        !state.ended
    }
}

/// A list that pages wait for.
struct WantedList<'a> {
    name: &'a str,
    query: &'a Query,
    /// The pages, each with the place of its watch.
    pages: Vec<(Weak<LivePage>, usize)>,
}

/// Makes the events of all due pages.
fn refresh(
    console: &Arc<ConsoleShared>,
    due: &[&Arc<LivePage>],
    before: &mut Option<Arc<Snapshot>>,
    snapshot: Option<Arc<Snapshot>>,
) {
    let unix_ms = ConsoleShared::unix_ms();
    let mut overview = None;
    let mut status = None;
    let mut lists: Vec<WantedList<'_>> = Vec::new();
    let wants_overview =
        due.iter().any(|page| page.watches.iter().any(|watch| matches!(watch.watch, Watch::Overview)));
    if wants_overview {
        let now = snapshot.unwrap_or_else(|| Arc::new(console.snapshot()));
        let from = before.clone().or_else(|| console.history().last(now.mono_ns).cloned());
        let json = console.overview(from.as_deref().unwrap_or(&now), &now);
        overview = Some(event(Some("overview"), 0, &json));
        *before = Some(now);
    }
    for page in due {
        let may_read = page.identity.as_ref().is_none_or(|identity| console.still_knows(identity, unix_ms));
        if !may_read || console.stops() {
            page.end();
            continue;
        }
        for (place, watch) in page.watches.iter().enumerate() {
            let made = match &watch.watch {
                Watch::Overview => overview.clone(),
                Watch::Status => {
                    Some(Arc::clone(status.get_or_insert_with(|| event(None, 0, &console.status()))))
                }
                Watch::Notices => watch.notices(page.role()),
                Watch::Log(_) => watch.log(),
                Watch::List(name, query) => {
                    let mut state = lock(&watch.state);
                    if !std::mem::replace(&mut state.waits, true) {
                        let waiting = (Arc::downgrade(page), place);
                        match lists.iter_mut().find(|list| list.name == name && list.query == query) {
                            Some(list) => list.pages.push(waiting),
                            None => lists.push(WantedList { name, query, pages: vec![waiting] }),
                        }
                    }
                    None
                }
            };
            page.offer(place, made);
        }
    }
    for WantedList { name, query, pages } in lists {
        let list_name = name.to_owned();
        let ticket = ListTicket::new(query, move |rows| deliver(&list_name, &rows, &pages));
        console.board.list(name, query, ticket);
    }
}

/// Gives the rows of a list to the pages that wait for them. Pages that wrote the watch in the same way share one event.
fn deliver(name: &str, rows: &Rows, wanted: &[(Weak<LivePage>, usize)]) {
    let mut made: Vec<(Box<str>, PageEvent)> = Vec::new();
    for (page, place) in wanted {
        let Some(page) = page.upgrade() else { continue };
        let Some(watch) = page.watches.get(*place) else { continue };
        let known = made.iter().find(|(text, _)| **text == *watch.text);
        let list = known.map(|(_, list)| Arc::clone(list)).unwrap_or_else(|| {
            let list = event(Some("list"), rows.rows.len(), &ListPage::new(name, rows, Some(&watch.text)));
            made.push((watch.text.as_str().into(), Arc::clone(&list)));
            list
        });
        lock(&watch.state).waits = false;
        page.offer(*place, Some(list));
    }
}

/// Creates an event, written into one buffer. `rows` is the number of rows in `data`.
fn event(name: Option<&str>, rows: usize, data: &impl Serialize) -> PageEvent {
    let mut text = Vec::with_capacity(EVENT_BYTES + rows * ROW_BYTES);
    for part in name.iter().flat_map(|name| ["event: ", name, "\n"]) {
        text.extend_from_slice(part.as_bytes());
    }
    text.extend_from_slice(b"data: ");
    let start = text.len();
    serde_json::to_writer(&mut text, data).expect("every key is a string, and memory takes every byte");
    // Almost no event has a secret, and is copied.
    if let Ok(json) = std::str::from_utf8(text.get(start..).unwrap_or_default())
        && matches!(conceal(json), Cow::Owned(_))
    {
        let concealed = conceal_json(json.to_owned());
        text.truncate(start);
        text.extend_from_slice(concealed.as_bytes());
    }
    text.extend_from_slice(b"\n\n");
    Arc::new(text)
}

impl LivePage {
    /// Creates a page that is due at once. `tail` begins a view of the log.
    pub(crate) fn new(
        watches: Vec<(String, Watch, Option<LogTail>)>,
        every_ms: u64,
        identity: Option<Identity>,
        stream: WakeStream,
    ) -> Arc<Self> {
        let watches = watches.into_iter().map(|(text, watch, tail)| PageWatch {
            watch,
            text,
            tail: tail.map(Mutex::new),
            state: Mutex::default(),
        });
        Arc::new(Self {
            watches: watches.collect(),
            every_ns: every_ms * 1_000_000,
            due_ns: AtomicU64::new(0),
            offered_ns: AtomicU64::new(0),
            is_silent: AtomicBool::new(false),
            identity,
            stream,
            has_ended: Mutex::new(false),
        })
    }

    /// Returns the response of the page.
    pub(crate) fn stream(self: &Arc<Self>) -> LiveStream {
        LiveStream { page: Arc::clone(self), event: None, has_ended: false }
    }

    fn share(&self) -> PageShare {
        PageShare {
            user: self.identity.as_ref().map_or_else(|| "-".into(), |identity| Arc::clone(&identity.user)),
            role: self.role(),
            logs: self.watches.iter().filter(|watch| watch.tail.is_some()).count(),
        }
    }

    /// The role of the page's user.
    fn role(&self) -> ConsoleRole {
        self.identity.as_ref().map_or(ConsoleRole::View, |identity| identity.role)
    }

    fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns.load(Ordering::Relaxed) <= now_ns
    }

    fn postpone(&self, now_ns: u64) {
        self.due_ns.store(now_ns + self.every_ns, Ordering::Relaxed);
    }

    /// Sets the newest event of a watch.
    fn offer(&self, place: usize, event: Option<PageEvent>) {
        if let (Some(event), Some(watch)) = (event, self.watches.get(place)) {
            lock(&watch.state).event = Some(event);
            // The next tick sets the time.
            self.offered_ns.store(0, Ordering::Relaxed);
            self.stream.wake();
        }
    }

    fn end(&self) {
        *lock(&self.has_ended) = true;
        self.stream.wake();
    }

    /// Sends a comment if there was no event for a while.
    fn break_silence(&self, now_ns: u64) {
        let offered_ns = self.offered_ns.load(Ordering::Relaxed);
        if offered_ns == 0 {
            // The first tick of the page.
            self.offered_ns.store(now_ns, Ordering::Relaxed);
        } else if now_ns.saturating_sub(offered_ns) >= SILENCE_NS_MAX {
            self.offered_ns.store(now_ns, Ordering::Relaxed);
            self.is_silent.store(true, Ordering::Relaxed);
            self.stream.wake();
        }
    }

    fn next_event(&self) -> Option<PageEvent> {
        let event = self.watches.iter().find_map(|watch| lock(&watch.state).event.take());
        let is_silent = self.is_silent.swap(false, Ordering::Relaxed);
        event.or_else(|| is_silent.then(|| Arc::new(COMMENT.to_vec())))
    }
}

impl PageWatch {
    /// The last notices, if there are new ones.
    fn notices(&self, role: ConsoleRole) -> Option<PageEvent> {
        let written = notice::written_lines();
        let mut state = lock(&self.state);
        (state.notices.replace(written) != Some(written))
            .then(|| event(Some("notices"), 0, &crate::json::notices_json(role)))
    }

    /// The new entries of the log. Those of an event that the page has not received yet stay in the queue.
    fn log(&self) -> Option<PageEvent> {
        let tail = lock(self.tail.as_ref()?);
        if lock(&self.state).event.is_some() {
            return None;
        }
        let entries: Vec<TailEntry> = std::iter::from_fn(|| tail.try_next()).take(LOG_ENTRIES_MAX).collect();
        if entries.is_empty() {
            return None;
        }
        let watch = json!(self.text);
        let mut text =
            format!("event: log\ndata: {{\"watch\":{watch},\"dropped\":{},\"entries\":[", tail.dropped());
        for (number, entry) in entries.iter().enumerate() {
            // Each line of the log is a JSON object.
            text.push_str(if number > 0 { "," } else { "" });
            text.push_str(&conceal_known(&String::from_utf8_lossy(&entry.line)));
        }
        text.push_str("]}\n\n");
        Some(Arc::new(text.into_bytes()))
    }
}

impl Pull for LiveStream {
    fn tuning(&self) -> Option<Tuning> {
        Some(Tuning { unsent_bytes: UNSENT_BYTES, dead_after_ms: DEAD_AFTER_MS })
    }

    fn pull(&mut self, max: usize, out: &mut Vec<u8>) -> Pulled {
        if self.event.is_none() && self.has_ended {
            return Pulled::End;
        }
        let next = self.event.take().or_else(|| self.page.next_event().map(|event| (event, 0)));
        let (event, sent) = match next {
            Some(next) => next,
            None if *lock(&self.page.has_ended) => {
                self.has_ended = true;
                (Arc::new(END.to_vec()), 0)
            }
            None => return Pulled::Pending,
        };
        let end = event.len().min(sent.saturating_add(max));
        out.extend_from_slice(event.get(sent..end).unwrap_or_default());
        self.event = (end < event.len()).then_some((event, end));
        Pulled::More
    }
}
