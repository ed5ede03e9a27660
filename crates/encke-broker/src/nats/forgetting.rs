//! A channel is forgotten: a tombstone is published behind its newest message, and what is before it is removed.
//!
//! ```text
//!  newest message: N ─► tombstone "up to N", if N is still the newest ─► News::Placed ─► removed up to N
//!            ▲                        │ somebody was quicker
//!            └────────────────────────┘
//! ```
//! So nothing lies between a tombstone and what it forgets, and a node that is slower than the removal can tell from the
//! tombstone alone what it has missed. If the removal fails, the messages are hidden all the same.

use std::sync::Arc;

use async_nats::jetstream::context::PublishErrorKind;
use encke_hub::{Draft, Name, News, Place, Refusal, Ticket};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Failure, Note, Side, causes, history, is_passing, letter};

/// How often the removal is tried: over a minute and a half if NATS is silent, five seconds if it refuses.
const TRIES: usize = 20;

impl Side {
    /// Forgets a channel; what becomes of that is told as soon as nobody can see its messages any more.
    pub(super) async fn forget(
        self: Arc<Self>,
        ticket: Ticket,
        channel: Name,
        tell: mpsc::UnboundedSender<News>,
    ) {
        let subject = letter::subject(&self.prefix, &channel);
        let buried = timeout(self.cluster.patience, self.bury(&channel, &subject)).await;
        let (to, fate) = match buried.unwrap_or(Err(Refusal::Unanswered)) {
            Ok((to, place)) => (to, Ok(place)),
            Err(refusal) => (0, Err(refusal)),
        };
        let _gone = tell.send(News::Placed { ticket, fate });
        if to > 0
            && let Err(Failure(why)) = self.remove(&subject, to).await
        {
            let text = format!(
                "what was forgotten of channel {channel} is hidden, and could not be removed from the cluster's stream: {why}"
            );
            self.outlet.note(Note::Trouble(text));
        }
    }

    /// Publishes a tombstone; up to where it forgets, and its place. Where there is nothing, it takes none.
    async fn bury(&self, channel: &Name, subject: &str) -> Result<(u64, Place), Refusal> {
        loop {
            let Ok(newest) = history::last(&self.stream, subject).await else {
                self.pause().await;
                continue;
            };
            if newest == 0 {
                return Ok((0, Place { offset: 0, repeated: false }));
            }
            let draft = Draft::tombstone(channel.clone(), newest);
            let id = self.jetstream.client().new_inbox();
            let message = letter::written(&draft, &id).expected_last_subject_sequence(newest);
            let sent = self.jetstream.send_publish(subject.to_owned(), message).await;
            let acknowledged = match sent {
                Ok(sent) => sent.await,
                Err(error) => Err(error),
            };
            match acknowledged {
                Ok(ack) => return Ok((newest, Place { offset: ack.sequence, repeated: false })),
                Err(error) => match error.kind() {
                    // Somebody has published meanwhile.
                    PublishErrorKind::WrongLastSequence => {}
                    // It may be there: then the next one is right behind it.
                    PublishErrorKind::BrokenPipe | PublishErrorKind::StreamNotFound => self.pause().await,
                    _ if is_passing(&error) => self.pause().await,
                    _ => return Err(self.refusal(&error, &draft)),
                },
            }
        }
    }

    /// Removes the messages of a subject up to a sequence.
    async fn remove(&self, subject: &str, to: u64) -> Result<(), Failure> {
        let mut tries = 0;
        loop {
            tries += 1;
            // Up to what is given, and without it.
            match self.stream.purge().filter(subject).sequence(to + 1).await {
                Ok(_) => return Ok(()),
                Err(error) if tries == TRIES => return Err(Failure(causes(&error))),
                Err(_) => self.pause().await,
            }
        }
    }
}
