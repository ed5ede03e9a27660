//! What a channel keeps in a stream: its newest messages up to an offset, and up to where others were lost.
//!
//! ```text
//!  stream   first ─────────────────── to ── last
//!  channel    ·  ·    · ·   ·     · ·   ·
//!                     └ most + 1 or some more: found by halves, by how many messages come from there on
//! ```
//! A stream tells how many messages of a subject lie behind a place, not where the hundredth from the end is. It is
//! looked for by halves, in some twenty round trips, and only where a channel has many more messages than are wanted.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use encke_hub::{Message, Name};
use futures_util::StreamExt;

use super::{Failure, message};

/// A consumer that has been read from is forgotten by NATS after so long.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(5);
/// Up to so many times what is wanted is read rather than looked for more closely.
const MORE: u64 = 4;

/// What a channel keeps.
pub(super) struct Past {
    /// Up to where messages were lost, or are not among these.
    pub(super) lost_to: u64,
    /// In their order.
    pub(super) messages: Vec<Arc<Message>>,
}

/// Reads the last `most` messages of a subject up to an offset.
pub(super) async fn read(
    stream: &Stream,
    channel: &Name,
    subject: &str,
    to: u64,
    most: usize,
) -> Result<Past, Failure> {
    // Most channels that somebody begins to listen to have nothing yet: that takes no consumer.
    let last = match stream.get_last_raw_message_by_subject(subject).await {
        Ok(last) => last.sequence,
        Err(error) => {
            return match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => {
                    Ok(Past { lost_to: dropped_to(stream, to).await?, messages: Vec::new() })
                }
                _ => Err(error.into()),
            };
        }
    };
    let first = stream.get_info().await?.state.first_sequence;
    let (from, consumer) = beginning(stream, subject, first, to, most as u64).await?;
    let mut messages = Vec::new();
    while let Some(left) = consumer_has(&consumer, &messages) {
        let mut batch = consumer.fetch().max_messages(left).messages().await?;
        let before = messages.len();
        while let Some(next) = batch.next().await {
            let next = next.map_err(Failure::of)?;
            let info = next.info().map_err(Failure::of)?;
            messages.push((info.pending, message(channel.clone(), &next, &info)));
        }
        if messages.len() == before {
            return Err(Failure("a read has ended early".into()));
        }
    }
    // What the stream has dropped meanwhile is not known to be whole.
    let gone_to = stream.get_info().await?.state.first_sequence.saturating_sub(1);
    // A consumer may live on a server that is behind the one whose word counts.
    let reached = messages.last().map_or(0, |(_, message)| message.offset);
    if reached.max(gone_to) < last {
        return Err(Failure("a server is behind the others".into()));
    }
    // A tombstone tells also where it has yet to come: what it forgets may be gone already.
    let forgotten_to = messages.iter().filter_map(|(_, message)| message.forgets_to()).max().unwrap_or(0);
    let mut messages: Vec<Arc<Message>> =
        messages.into_iter().map(|(_, message)| message).filter(|message| message.offset <= to).collect();
    let mut lost_to = if from > first { from - 1 } else { 0 };
    if let Some(more) = messages.len().checked_sub(most)
        && more > 0
    {
        lost_to = messages[more - 1].offset;
        messages.drain(..more);
    }
    lost_to = lost_to.max(gone_to.max(forgotten_to).min(to));
    messages.retain(|message| message.offset > lost_to);
    Ok(Past { lost_to, messages })
}

/// Up to where the stream has dropped messages, whose ever they were.
async fn dropped_to(stream: &Stream, to: u64) -> Result<u64, Failure> {
    Ok(stream.get_info().await?.state.first_sequence.saturating_sub(1).min(to))
}

/// How many messages are still to be read.
fn consumer_has(consumer: &Consumer<pull::Config>, read: &[(u64, Arc<Message>)]) -> Option<usize> {
    let left = read.last().map_or(consumer.cached_info().num_pending, |(pending, _)| *pending);
    usize::try_from(left).ok().filter(|left| *left > 0)
}

/// A consumer that begins where at least `most` messages and one come, or all of them.
async fn beginning(
    stream: &Stream,
    subject: &str,
    first: u64,
    to: u64,
    most: u64,
) -> Result<(u64, Consumer<pull::Config>), Failure> {
    let (mut low, mut high) = (first, to.saturating_add(1));
    let mut found = consumer(stream, subject, low).await?;
    while found.cached_info().num_pending > most.saturating_mul(MORE) && low + 1 < high {
        let middle = low + (high - low) / 2;
        let tried = consumer(stream, subject, middle).await?;
        if tried.cached_info().num_pending > most {
            (low, found) = (middle, tried);
        } else {
            high = middle;
        }
    }
    Ok((low, found))
}

async fn consumer(stream: &Stream, subject: &str, from: u64) -> Result<Consumer<pull::Config>, Failure> {
    let config = pull::Config {
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: from.max(1) },
        ack_policy: AckPolicy::None,
        filter_subject: subject.into(),
        inactive_threshold: FORGOTTEN,
        num_replicas: 1,
        memory_storage: true,
        ..pull::Config::default()
    };
    Ok(stream.create_consumer(config).await?)
}
