//! Backfill from the stream: messages of some channels after an offset, for subscribers that are older than a node's rings.
//!
//! ```text
//!  recall ─► cached? ── yes ───────────────────────────────────────► a run
//!               └─ no ─► one of at most READS reads ─► a chunk, cached ─┘
//! ```
//! A backfill reads one run at a time, and after a node fails many subscribers read the same range. A consumer therefore
//! fetches a chunk of several runs, which is cached. The past of a stream does not change, except by a tombstone, which removes
//! the channel's chunks from the cache.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use encke_hub::limits::{RUN_BYTES_MAX, RUN_MESSAGES_MAX};
use encke_hub::{Message, Name, Recalled};
use futures_util::StreamExt;
use tokio::sync::Semaphore;

use super::channel_history::FORGOTTEN;
use super::follow::filtered;
use super::{NatsFailure, encoding, locked, message};

/// Maximum concurrent chunk reads, so that backfills delay neither live messages nor the opening of channels.
const READS: usize = 8;
/// Limits of a chunk: the messages of eight runs, and the bytes of sixteen.
const CHUNK_MESSAGES: usize = 8 * RUN_MESSAGES_MAX;
const CHUNK_BYTES: u64 = 16 * RUN_BYTES_MAX as u64;
/// Size of the first batch in messages, while their average size is unknown: 8 MiB for the largest ones.
const FIRST: usize = 8;
/// Limits of the cache, in chunks and bytes. 32 MiB hold 32 ranges in which many subscribers read at the same time.
const CACHE_CHUNKS_MAX: usize = 256;
const CACHE_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The backfills in progress, and their cache.
pub(super) struct Histories {
    reads: Semaphore,
    cache: Mutex<ChunkCache>,
}

impl Default for Histories {
    fn default() -> Self {
        Self { reads: Semaphore::new(READS), cache: Mutex::default() }
    }
}

/// The chunk cache, least recently used first.
#[derive(Default)]
struct ChunkCache {
    chunks: VecDeque<Arc<HistoryChunk>>,
    bytes: u64,
    /// Number of invalidations. A chunk is not cached if one happened while it was read.
    invalidations: u64,
}

/// All messages of some channels between two offsets.
struct HistoryChunk {
    channels: Vec<Name>,
    after: u64,
    to: u64,
    /// The offset up to which messages are lost.
    lost_to: u64,
    messages: Vec<Arc<Message>>,
    bytes: u64,
}

impl Histories {
    /// Returns the messages of some channels after an offset and up to another one, at most one run.
    pub(super) async fn run(
        &self,
        stream: &Stream,
        prefix: &str,
        channels: &[Name],
        after: u64,
        to: u64,
    ) -> Result<Recalled, NatsFailure> {
        if let Some(chunk) = locked(&self.cache).find(channels, after) {
            return Ok(chunk.run(after, to));
        }
        let _one_of_few = self.reads.acquire().await?;
        // Another backfill may have read it meanwhile.
        let (found, invalidations) = {
            let mut cache = locked(&self.cache);
            (cache.find(channels, after), cache.invalidations)
        };
        if let Some(chunk) = found {
            return Ok(chunk.run(after, to));
        }
        let chunk = Arc::new(read(stream, prefix, channels, after, to).await?);
        let mut cache = locked(&self.cache);
        if cache.invalidations == invalidations {
            cache.put(Arc::clone(&chunk));
        }
        Ok(chunk.run(after, to))
    }

    /// Removes a channel's chunks: messages before a tombstone must not be delivered.
    pub(super) fn forget(&self, channel: &Name) {
        let mut cache = locked(&self.cache);
        cache.invalidations += 1;
        cache.chunks.retain(|chunk| !chunk.channels.contains(channel));
        cache.bytes = cache.chunks.iter().map(|chunk| chunk.bytes).sum();
    }
}

impl ChunkCache {
    fn find(&mut self, channels: &[Name], after: u64) -> Option<Arc<HistoryChunk>> {
        let fits = |chunk: &Arc<HistoryChunk>| {
            chunk.after <= after && after < chunk.to && chunk.channels == channels
        };
        let found = self.chunks.iter().position(fits).and_then(|at| self.chunks.remove(at))?;
        self.chunks.push_back(Arc::clone(&found));
        Some(found)
    }

    fn put(&mut self, chunk: Arc<HistoryChunk>) {
        self.bytes += chunk.bytes;
        self.chunks.push_back(chunk);
        while self.chunks.len() > CACHE_CHUNKS_MAX || self.bytes > CACHE_BYTES_MAX {
            let Some(oldest) = self.chunks.pop_front() else { return };
            self.bytes -= oldest.bytes;
        }
    }
}

impl HistoryChunk {
    /// Returns the messages after an offset and up to another one, at most one run.
    fn run(&self, after: u64, to: u64) -> Recalled {
        let wanted = self.messages.iter().filter(|message| message.offset > after && message.offset <= to);
        let mut messages: Vec<Arc<Message>> = Vec::new();
        let (mut bytes, mut whole) = (0, true);
        for message in wanted {
            bytes += message.data.len();
            let room = messages.len() < RUN_MESSAGES_MAX && bytes <= RUN_BYTES_MAX;
            if !room && !messages.is_empty() {
                whole = false;
                break;
            }
            messages.push(Arc::clone(message));
        }
        let last = messages.last().map(|last| last.offset).filter(|_| !whole);
        let lost_to = if self.lost_to > after { self.lost_to.min(to) } else { 0 };
        Recalled { lost_to, to: last.unwrap_or(self.to.min(to)), messages, ..Recalled::default() }
    }
}

/// Reads a chunk after an offset, up to another one or the limits of a chunk.
async fn read(
    stream: &Stream,
    prefix: &str,
    channels: &[Name],
    after: u64,
    to: u64,
) -> Result<HistoryChunk, NatsFailure> {
    let consumer = consumer(stream, prefix, channels, after + 1).await?;
    let mut messages: Vec<Arc<Message>> = Vec::new();
    let mut bytes = 0;
    let mut pending = consumer.cached_info().num_pending;
    let mut reached = after;
    while pending > 0 && reached < to && messages.len() < CHUNK_MESSAGES && bytes < CHUNK_BYTES {
        let average = bytes.checked_div(messages.len() as u64);
        let fit = average.map_or(FIRST, |average| ((CHUNK_BYTES - bytes) / average.max(1)) as usize);
        let most = fit.clamp(1, CHUNK_MESSAGES - messages.len());
        let mut batch = consumer.fetch().max_messages(most).messages().await?;
        let before = reached;
        while let Some(next) = batch.next().await {
            let next = next.map_err(NatsFailure::Nats)?;
            let info = next.info().map_err(NatsFailure::Nats)?;
            (reached, pending) = (info.stream_sequence, info.pending);
            // A server without support for several filters delivers everything.
            if let Some(channel) = encoding::channel(prefix, &next.subject)
                && channels.contains(&channel)
            {
                let message = message(channel, &next, &info);
                bytes += message.charge();
                messages.push(message);
            }
        }
        if reached == before {
            return Err(NatsFailure::ReadEnded);
        }
    }
    // NATS deletes an idle consumer soon, but under load it should be deleted earlier.
    let (name, its) = (consumer.cached_info().name.clone(), stream.clone());
    tokio::spawn(async move { its.delete_consumer(&name).await });
    // The range may be incomplete where the stream dropped messages meanwhile.
    let gone_to = stream.get_info().await?.state.first_sequence.saturating_sub(1);
    let whole = pending == 0 && reached < to;
    if whole {
        // The consumer's server may lag behind the stream's leader, whose state is authoritative.
        for channel in channels {
            if last(stream, &encoding::subject(prefix, channel)).await? > reached.max(gone_to) {
                return Err(NatsFailure::Lag);
            }
        }
    }
    let lost_to = if gone_to > after { gone_to } else { 0 };
    messages.retain(|message| message.offset > lost_to);
    let to = if whole { to } else { reached.max(lost_to) };
    let bytes = messages.iter().map(|message| message.charge()).sum();
    Ok(HistoryChunk { channels: channels.to_vec(), after, to, lost_to, messages, bytes })
}

/// The sequence of a subject's newest message; 0 if there is none.
pub(super) async fn last(stream: &Stream, subject: &str) -> Result<u64, NatsFailure> {
    match stream.get_last_raw_message_by_subject(subject).await {
        Ok(last) => Ok(last.sequence),
        Err(error) if matches!(error.kind(), LastRawMessageErrorKind::NoMessageFound) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

async fn consumer(
    stream: &Stream,
    prefix: &str,
    channels: &[Name],
    from: u64,
) -> Result<Consumer<pull::Config>, NatsFailure> {
    let config = pull::Config {
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: from },
        ack_policy: AckPolicy::None,
        inactive_threshold: FORGOTTEN,
        num_replicas: 1,
        memory_storage: true,
        ..filtered(channels.iter().map(|channel| encoding::subject(prefix, channel)).collect())
    };
    Ok(stream.create_consumer(config).await?)
}

#[cfg(test)]
mod tests {
    use encke_hub::{Draft, Flags};

    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text.as_bytes()).expect("a name")
    }

    fn chunk(channel: &str, after: u64, to: u64, offsets: impl Iterator<Item = u64>) -> Arc<HistoryChunk> {
        let draft = Draft {
            channel: name(channel),
            data: [b'x'; 1_000].into(),
            content_type: None,
            event: None,
            flags: Flags::default(),
            key: None,
        };
        let messages: Vec<Arc<Message>> =
            offsets.map(|offset| Arc::new(Message::placed(offset, 1, draft.clone(), false))).collect();
        let bytes = messages.iter().map(|message| message.charge()).sum();
        Arc::new(HistoryChunk { channels: vec![name(channel)], after, to, lost_to: 0, messages, bytes })
    }

    /// The offsets of a run, and the offset up to which it is complete.
    fn told(run: &Recalled) -> (Vec<u64>, u64) {
        (run.messages.iter().map(|message| message.offset).collect(), run.to)
    }

    #[test]
    fn a_chunk_is_told_run_by_run_and_no_farther_than_was_asked() {
        let chunk = chunk("a", 10, 300, (11..=200).step_by(2));
        let first = told(&chunk.run(10, 500));
        assert_eq!(first, ((11..=137).step_by(2).collect(), 137), "64 of them");
        assert_eq!(told(&chunk.run(137, 500)), ((139..=199).step_by(2).collect(), 300));
        assert_eq!(told(&chunk.run(12, 17)), (vec![13, 15, 17], 17));
        assert_eq!(told(&chunk.run(250, 500)), (vec![], 300));
    }

    #[test]
    fn what_was_lost_is_told_to_who_is_before_it() {
        let mut lost = Arc::into_inner(chunk("a", 10, 30, 21..=30)).expect("ours alone");
        lost.lost_to = 20;
        assert_eq!([10, 19, 20, 25].map(|after| lost.run(after, 30).lost_to), [20, 20, 0, 0]);
        assert_eq!(lost.run(10, 15).lost_to, 15, "and no farther than was asked");
    }

    #[test]
    fn a_shelf_has_what_fits_and_loses_what_was_not_used() {
        let mut cache = ChunkCache::default();
        for at in 0..CACHE_CHUNKS_MAX as u64 {
            cache.put(chunk("a", at * 10, at * 10 + 5, std::iter::empty()));
        }
        assert!(cache.find(&[name("a")], 0).is_some_and(|found| found.after == 0));
        assert!(cache.find(&[name("a")], 4).is_some(), "behind its beginning");
        assert!(cache.find(&[name("a")], 5).is_none(), "at its end");
        assert!(cache.find(&[name("b")], 0).is_none());
        assert!(cache.find(&[name("a"), name("b")], 0).is_none());
        cache.put(chunk("b", 0, 5, std::iter::empty()));
        assert!(cache.find(&[name("a")], 10).is_none(), "it was used least recently");
        assert!(cache.find(&[name("a")], 0).is_some());
        // The limit in bytes.
        for at in 0..40 {
            cache.put(chunk("c", at * 1_000, at * 1_000 + 999, at * 1_000..at * 1_000 + 999));
            assert!(cache.bytes <= CACHE_BYTES_MAX);
            assert_eq!(cache.bytes, cache.chunks.iter().map(|chunk| chunk.bytes).sum::<u64>());
        }
        assert!(cache.find(&[name("c")], 39_500).is_some());
        assert!(cache.find(&[name("c")], 500).is_none());
    }

    #[test]
    fn what_is_forgotten_is_taken_off() {
        let histories = Histories::default();
        for channel in ["a", "b"] {
            locked(&histories.cache).put(chunk(channel, 0, 5, 1..=5));
        }
        histories.forget(&name("a"));
        let mut cache = locked(&histories.cache);
        assert!(cache.find(&[name("a")], 0).is_none());
        let left = cache.find(&[name("b")], 0).expect("another channel");
        assert_eq!((cache.bytes, cache.invalidations), (left.bytes, 1));
    }
}
