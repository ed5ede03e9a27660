//! A channel's history, loaded from the stream: its newest messages up to an offset, and the offset up to which others are
//! lost.
//!
//! ```text
//!  stream   first ─────────────────── to ── last
//!  channel    ·  ·    · ·   ·     · ·   ·
//!                     └ `most` + 1 messages or a few more: found by bisection, with the number of messages from there on
//! ```
//! A stream reports how many messages of a subject follow a sequence, but not where the hundredth from the end is. A bisection
//! finds it in about twenty round trips. It runs only where a channel has many more messages than requested.
//!
//! **Every step has a timeout.** A fetch has none of its own: it would wait forever for messages that a killed server has not sent.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use encke_hub::{Message, Name};
use futures_util::StreamExt;
use tokio::time::timeout;

use super::{ANSWER_TIME, NatsFailure, message};

/// NATS deletes a consumer that was not read from for this time.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(5);
/// The bisection ends once at most this multiple of the requested messages follows.
const MORE: u64 = 4;

/// A channel's history.
pub(super) struct Past {
    /// The offset up to which messages are lost or omitted.
    pub(super) lost_to: u64,
    /// The messages in order.
    pub(super) messages: Vec<Arc<Message>>,
}

/// Reads the last `most` messages of a subject up to an offset.
pub(super) async fn read(
    stream: &Stream,
    channel: &Name,
    subject: &str,
    to: u64,
    most: usize,
) -> Result<Past, NatsFailure> {
    // Most newly subscribed channels are empty, which is found out without a consumer.
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
        let mut batch = timeout(ANSWER_TIME, consumer.fetch().max_messages(left).messages()).await??;
        let before = messages.len();
        while let Some(next) = timeout(ANSWER_TIME, batch.next()).await? {
            let next = next.map_err(NatsFailure::Nats)?;
            let info = next.info().map_err(NatsFailure::Nats)?;
            messages.push((info.pending, message(channel.clone(), &next, &info)));
        }
        if messages.len() == before {
            return Err(NatsFailure::ReadEnded);
        }
    }
    // The history may be incomplete where the stream dropped messages meanwhile.
    let gone_to = stream.get_info().await?.state.first_sequence.saturating_sub(1);
    // The consumer's server may lag behind the stream's leader, whose state is authoritative.
    let reached = messages.last().map_or(0, |(_, message)| message.offset);
    if reached.max(gone_to) < last {
        return Err(NatsFailure::Lag);
    }
    // A tombstone after `to` counts as well: the messages it deletes may already be purged.
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

/// The offset up to which the stream has dropped messages of any channel, at most `to`.
async fn dropped_to(stream: &Stream, to: u64) -> Result<u64, NatsFailure> {
    Ok(stream.get_info().await?.state.first_sequence.saturating_sub(1).min(to))
}

/// The number of messages that are still to be read, if any.
fn consumer_has(consumer: &Consumer<pull::Config>, read: &[(u64, Arc<Message>)]) -> Option<usize> {
    let left = read.last().map_or(consumer.cached_info().num_pending, |(pending, _)| *pending);
    usize::try_from(left).ok().filter(|left| *left > 0)
}

/// Finds a start by bisection after which at least `most` + 1 messages follow, or all of them. Returns its sequence, and a
/// consumer that begins there.
async fn beginning(
    stream: &Stream,
    subject: &str,
    first: u64,
    to: u64,
    most: u64,
) -> Result<(u64, Consumer<pull::Config>), NatsFailure> {
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

async fn consumer(stream: &Stream, subject: &str, from: u64) -> Result<Consumer<pull::Config>, NatsFailure> {
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
