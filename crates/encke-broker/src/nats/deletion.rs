//! Deleting a channel: publishes a tombstone after its newest message, and purges the messages before it.
//!
//! ```text
//!  newest message: N ─► tombstone "up to N", if N is still the newest ─► ClusterEvent::Placed ─► purged up to N
//!            ▲                        │ another message was published first
//!            └────────────────────────┘
//! ```
//! No message can be between a tombstone and the messages it deletes. A node that reads more slowly than the purge runs
//! therefore learns from the tombstone alone which messages it missed. If the purge fails, the tombstone still hides the
//! messages.

use std::sync::Arc;

use async_nats::jetstream::context::PublishErrorKind;
use encke_hub::{ClusterEvent, Draft, Name, PublishAck, PublishError, PublishTicket};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{NatsFailure, Note, Side, encoding, history, is_passing};

/// Attempts to purge: over a minute and a half if NATS is silent, five seconds if it rejects them.
const TRIES: usize = 20;

impl Side {
    /// Deletes a channel. The outcome is sent once the tombstone hides its messages; the purge follows.
    pub(super) async fn forget(
        self: Arc<Self>,
        ticket: PublishTicket,
        channel: Name,
        tell: mpsc::UnboundedSender<ClusterEvent>,
    ) {
        let subject = encoding::subject(&self.prefix, &channel);
        let buried = timeout(self.cluster.patience, self.bury(&channel, &subject)).await;
        let (to, fate) = match buried.unwrap_or(Err(PublishError::Unanswered)) {
            Ok((to, place)) => (to, Ok(place)),
            Err(refusal) => (0, Err(refusal)),
        };
        let _gone = tell.send(ClusterEvent::Placed { ticket, fate });
        if to > 0
            && let Err(failure) = self.remove(&subject, to).await
        {
            let text = format!(
                "the deleted messages of channel {channel} are hidden, but could not be purged from the cluster's stream: {failure}"
            );
            self.outlet.note(Note::Trouble(text));
        }
    }

    /// Publishes a tombstone. Returns the offset up to which it deletes, and its own place. A channel without messages gets
    /// none, and both offsets are 0.
    async fn bury(&self, channel: &Name, subject: &str) -> Result<(u64, PublishAck), PublishError> {
        loop {
            let Ok(newest) = history::last(&self.stream, subject).await else {
                self.pause().await;
                continue;
            };
            if newest == 0 {
                return Ok((0, PublishAck { offset: 0, repeated: false }));
            }
            let draft = Draft::tombstone(channel.clone(), newest);
            let id = self.jetstream.client().new_inbox();
            let message = encoding::written(&draft, &id).expected_last_subject_sequence(newest);
            let sent = self.jetstream.send_publish(subject.to_owned(), message).await;
            let acknowledged = match sent {
                Ok(sent) => sent.await,
                Err(error) => Err(error),
            };
            match acknowledged {
                Ok(ack) => return Ok((newest, PublishAck { offset: ack.sequence, repeated: false })),
                Err(error) => match error.kind() {
                    // Another message was published meanwhile.
                    PublishErrorKind::WrongLastSequence => {}
                    // The tombstone may have been stored. Then the next one directly follows it.
                    PublishErrorKind::BrokenPipe | PublishErrorKind::StreamNotFound => self.pause().await,
                    _ if is_passing(&error) => self.pause().await,
                    _ => return Err(self.refusal(&error, &draft)),
                },
            }
        }
    }

    /// Purges the messages of a subject up to and including a sequence.
    async fn remove(&self, subject: &str, to: u64) -> Result<(), NatsFailure> {
        let mut tries = 0;
        loop {
            tries += 1;
            // The purge excludes the sequence that it is given.
            match self.stream.purge().filter(subject).sequence(to + 1).await {
                Ok(_) => return Ok(()),
                Err(error) if tries == TRIES => return Err(error.into()),
                Err(_) => self.pause().await,
            }
        }
    }
}
