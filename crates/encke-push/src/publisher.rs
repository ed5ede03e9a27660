//! Publishing by the program that runs the server, from any thread.
//!
//! ```text
//! PushPublisher::publish ─► Entrance ─► first PushWorker ─► sequencer ─► callback, once every worker has the message
//!                              └─ keeps messages until the workers have started
//! ```

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use encke_hub::{Draft, PublishError, Published};
use encke_io::lock;
use encke_server::ResidentMailbox;
use encke_stats::Ticket;

/// Bytes of messages whose result is pending: as many as `push.incoming` allows the clients of one worker.
const PENDING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Memory of a pending message besides its payload, rounded up: draft, ticket, callback, entry of the sequencer.
const PENDING_BYTES_EACH: usize = 512;

/// Publishes messages of the program. [`mount_with_publisher`](crate::mount_with_publisher) and
/// [`PushPlan::publisher`](crate::PushPlan::publisher) create it.
///
/// ```
/// use encke_push::{Draft, Name, PushSettings, mount_with_publisher};
/// use encke_rights::AuthSettings;
/// use encke_server::{Options, Server};
///
/// let server = Server::new(Options::default()).listen("127.0.0.1:0".parse()?);
/// let (server, publisher) = mount_with_publisher(server, &PushSettings::default(), &AuthSettings::default())?;
/// let running = server.start()?;
///
/// let (send, result) = std::sync::mpsc::channel();
/// let draft = Draft::new(Name::parse(b"news")?, *b"it begins");
/// publisher.publish(draft, move |result| send.send(result).expect("the test waits"));
/// assert!(result.recv()?.is_ok());
/// running.stop();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PushPublisher {
    entrance: Arc<Entrance>,
}

/// A message that the server has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Published: every worker has it.
    Published(Published),
    /// Queued for the cluster, and without an id yet.
    Queued {
        /// Number of subscribers of the channel, as counted by the workers.
        subscribers: u32,
    },
}

/// Why a message of the program was not published.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishFailure {
    /// The message was rejected.
    Rejected(PublishError),
    /// Too many messages of the program are pending: publish again when some have their result.
    Busy,
    /// The server has stopped. It may have published the message.
    Stopped,
}

/// Passes the program's messages to the first worker.
#[derive(Default)]
pub(crate) struct Entrance {
    state: Mutex<EntranceState>,
    pending_bytes: AtomicUsize,
}

enum EntranceState {
    /// The workers have not started.
    Waiting(Vec<ProgramPublish>),
    Open(ResidentMailbox),
    Closed,
}

/// A message of the program, and the ticket for its result.
pub(crate) struct ProgramPublish {
    pub(crate) draft: Draft,
    pub(crate) ticket: Ticket<Result<Accepted, PublishError>>,
}

/// A pending message's share of [`PENDING_BYTES_MAX`].
struct PublishCharge {
    entrance: Arc<Entrance>,
    bytes: usize,
}

impl PushPublisher {
    pub(crate) fn new(entrance: &Arc<Entrance>) -> Self {
        Self { entrance: Arc::clone(entrance) }
    }

    /// Publishes a message, without rights and rates: those apply to clients. Messages of one thread are published in
    /// order. Before the server has started they are kept.
    ///
    /// `done` is called once, usually on a worker, when the message has its result; so it must neither block nor panic.
    pub fn publish(
        &self,
        draft: Draft,
        done: impl FnOnce(Result<Accepted, PublishFailure>) + Send + 'static,
    ) {
        let Some(charge) = self.entrance.charge(draft.data.len() + PENDING_BYTES_EACH) else {
            return done(Err(PublishFailure::Busy));
        };
        let ticket = Ticket::new(move |result: Option<Result<Accepted, PublishError>>| {
            drop(charge);
            let result = result.map(|result| result.map_err(PublishFailure::Rejected));
            done(result.unwrap_or(Err(PublishFailure::Stopped)));
        });
        let refused = self.entrance.send(ProgramPublish { draft, ticket });
        // Calls `done`, which may publish again: not while the lock is held.
        drop(refused);
    }
}

impl Accepted {
    /// Whether the message was published earlier under the same key.
    pub(crate) fn is_repeated(self) -> bool {
        matches!(self, Self::Published(published) if published.repeated)
    }
}

impl Entrance {
    /// The workers have started: passes on what was kept.
    pub(crate) fn open(&self, first: &ResidentMailbox) {
        let mut state = lock(&self.state);
        if let EntranceState::Waiting(kept) = &mut *state {
            for publish in kept.drain(..) {
                first.send(publish);
            }
            *state = EntranceState::Open(first.clone());
        }
    }

    /// The first worker ends.
    pub(crate) fn close(&self) {
        let state = std::mem::replace(&mut *lock(&self.state), EntranceState::Closed);
        drop(state);
    }

    /// Passes a message on. Returns it if the server has stopped.
    fn send(&self, publish: ProgramPublish) -> Option<ProgramPublish> {
        match &mut *lock(&self.state) {
            EntranceState::Waiting(kept) => kept.push(publish),
            EntranceState::Open(first) => first.send(publish),
            EntranceState::Closed => return Some(publish),
        }
        None
    }

    /// Reserves memory for a message. A single message may exceed the limit, which `push.message_bytes` does not know.
    fn charge(self: &Arc<Self>, bytes: usize) -> Option<PublishCharge> {
        let before = self.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
        let charge = PublishCharge { entrance: Arc::clone(self), bytes };
        (before == 0 || before + bytes <= PENDING_BYTES_MAX).then_some(charge)
    }
}

impl Drop for PublishCharge {
    fn drop(&mut self) {
        self.entrance.pending_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Default for EntranceState {
    fn default() -> Self {
        Self::Waiting(Vec::new())
    }
}

impl fmt::Debug for PushPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushPublisher").finish_non_exhaustive()
    }
}

impl fmt::Display for PublishFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(error) => error.fmt(f),
            Self::Busy => {
                f.write_str("too many messages of this program are pending: publish it again later")
            }
            Self::Stopped => f.write_str("the server has stopped"),
        }
    }
}

impl Error for PublishFailure {}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use encke_hub::Name;

    use super::*;

    fn draft(bytes: usize) -> Draft {
        Draft::new(Name::parse(b"news").expect("a name"), vec![0; bytes])
    }

    #[test]
    fn pending_messages_take_limited_memory() {
        let publisher = PushPublisher { entrance: Arc::default() };
        let (send, results) = channel();
        // A single message may exceed the limit.
        for bytes in [PENDING_BYTES_MAX, 1] {
            let send = send.clone();
            publisher.publish(draft(bytes), move |result| send.send(result).expect("the test waits"));
        }
        assert_eq!(results.try_iter().collect::<Vec<_>>(), [Err(PublishFailure::Busy)]);
        publisher.entrance.close();
        assert_eq!(results.try_iter().collect::<Vec<_>>(), [Err(PublishFailure::Stopped)]);
        assert_eq!(publisher.entrance.pending_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_callback_may_publish_again_after_the_end() {
        let publisher = PushPublisher { entrance: Arc::default() };
        publisher.entrance.close();
        let (send, results) = channel();
        let again = publisher.clone();
        publisher.publish(draft(1), move |_stopped| {
            again.publish(draft(1), move |result| send.send(result).expect("the test waits"));
        });
        assert_eq!(results.try_iter().collect::<Vec<_>>(), [Err(PublishFailure::Stopped)]);
    }
}
