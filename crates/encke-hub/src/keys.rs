//! Idempotency keys of recent publishes, so that a retry is not published twice.
//!
//! ```text
//!  channel ─► key with its publisher ─► (offset, fingerprint)    found in O(1)
//!  publisher ─► its keys, oldest first ─┬─ by_age: the oldest key of all expires first
//!                                       └─ by_size: above KEYS_MAX the largest publisher loses its oldest key
//! ```
//! **A publisher never evicts a key of another publisher** that has fewer keys. So with N publishers, the last `KEYS_MAX / N`
//! keys of each are kept for the whole window, whatever the others do.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::limits::KEYS_MAX;
use crate::message::{Draft, IdempotencyKey, Message};
use crate::name::Name;

/// The keys of all publishers.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    channels: HashMap<Name, HashMap<Arc<IdempotencyKey>, KeyedPublish>>,
    /// The keys of each publisher, oldest first; never empty. The entry of a failed publish stays until it expires.
    publishers: HashMap<u64, VecDeque<KeyEntry>>,
    /// The number of each publisher's oldest entry.
    by_age: BTreeSet<(u64, u64)>,
    /// The number of entries of each publisher. Among equals, the publisher with the oldest entry is last.
    by_size: BTreeSet<(usize, Reverse<u64>, u64)>,
    entries: usize,
    numbered: u64,
}

#[derive(Clone, Copy, Debug)]
struct KeyedPublish {
    number: u64,
    offset: u64,
    fingerprint: u64,
}

#[derive(Debug)]
struct KeyEntry {
    number: u64,
    mono_ns: u64,
    channel: Name,
    key: Arc<IdempotencyKey>,
}

/// The result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The key is unknown: publish.
    No,
    /// An equal message was published with this offset.
    Of(u64),
    /// A different message was published under this key.
    Other,
}

impl Keys {
    /// Looks up the key of a draft. A draft without a key is never a repeat.
    pub(crate) fn look(&self, draft: &Draft) -> Repeat {
        let Some(key) = &draft.key else { return Repeat::No };
        match self.channels.get(&draft.channel).and_then(|known| known.get(key)) {
            None => Repeat::No,
            Some(publish) if publish.fingerprint == fingerprint(draft) => Repeat::Of(publish.offset),
            Some(_) => Repeat::Other,
        }
    }

    /// Remembers the key of a published draft, which must not be known yet.
    pub(crate) fn remember(&mut self, mono_ns: u64, draft: &Draft, offset: u64) {
        let Some(key) = &draft.key else { return };
        self.enter(mono_ns, &draft.channel, key, offset, fingerprint(draft));
    }

    /// Remembers the key of a message published before a restart. Calls must be in the order of publishing.
    pub(crate) fn recall(&mut self, mono_ns: u64, message: &Message, key: &IdempotencyKey) {
        let fingerprint = hash(&message.data, &message.content_type, &message.event);
        self.enter(mono_ns, &message.channel, key, message.offset, fingerprint);
    }

    fn enter(&mut self, mono_ns: u64, channel: &Name, key: &IdempotencyKey, offset: u64, fingerprint: u64) {
        self.numbered += 1;
        let number = self.numbered;
        let (channel, publisher, key) = (channel.clone(), key.publisher, Arc::new(key.clone()));
        let known = self.channels.entry(channel.clone()).or_default();
        known.insert(Arc::clone(&key), KeyedPublish { number, offset, fingerprint });
        self.change(publisher, |entries| entries.push_back(KeyEntry { number, mono_ns, channel, key }));
        self.entries += 1;
        while self.entries > KEYS_MAX
            && let Some(&(.., largest)) = self.by_size.last()
        {
            self.evict_oldest(largest);
        }
    }

    /// Removes the key of a draft whose publish failed.
    pub(crate) fn forget(&mut self, channel: &Name, key: &IdempotencyKey) {
        self.remove(channel, key, None);
    }

    /// Removes keys older than the window. Returns when the next key expires, on the monotonic clock.
    pub(crate) fn expire(&mut self, mono_ns: u64, window_ns: u64) -> Option<u64> {
        loop {
            let &(_, publisher) = self.by_age.first()?;
            let oldest = self.publishers.get(&publisher)?.front()?;
            let ends = oldest.mono_ns.saturating_add(window_ns);
            if ends > mono_ns {
                return Some(ends);
            }
            self.evict_oldest(publisher);
        }
    }

    /// Evicts the oldest key of a publisher.
    fn evict_oldest(&mut self, publisher: u64) {
        if let Some(KeyEntry { number, channel, key, .. }) = self.change(publisher, VecDeque::pop_front) {
            self.entries -= 1;
            self.remove(&channel, &key, Some(number));
        }
    }

    /// Removes a key. With a `number`, removes it only if the key still belongs to that publish.
    fn remove(&mut self, channel: &Name, key: &IdempotencyKey, number: Option<u64>) {
        let Some(known) = self.channels.get_mut(channel) else { return };
        if known.get(key).is_some_and(|publish| number.is_none_or(|number| publish.number == number)) {
            known.remove(key);
        }
        if known.is_empty() {
            self.channels.remove(channel);
        }
    }

    /// Changes the entries of a publisher, and updates its ranks by age and size.
    fn change<T>(&mut self, publisher: u64, change: impl FnOnce(&mut VecDeque<KeyEntry>) -> T) -> T {
        let entries = self.publishers.entry(publisher).or_default();
        let places = |entries: &VecDeque<KeyEntry>| {
            let oldest = entries.front()?.number;
            Some(((oldest, publisher), (entries.len(), Reverse(oldest), publisher)))
        };
        if let Some((age, size)) = places(entries) {
            self.by_age.remove(&age);
            self.by_size.remove(&size);
        }
        let result = change(entries);
        match places(entries) {
            Some((age, size)) => {
                self.by_age.insert(age);
                self.by_size.insert(size);
            }
            None => drop(self.publishers.remove(&publisher)),
        }
        result
    }
}

/// Returns 64 bits of a hash of the content. A publisher that constructs a collision harms only itself: the key is its own.
fn fingerprint(draft: &Draft) -> u64 {
    hash(&draft.data, &draft.content_type, &draft.event)
}

fn hash(data: &[u8], content_type: &Option<Box<str>>, event: &Option<Box<str>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (data, content_type, event).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Flags, IdempotencyKey};

    fn draft(channel: &str, publisher: u64, key: &str, data: &[u8]) -> Draft {
        Draft {
            channel: Name::parse(channel.as_bytes()).expect("a name"),
            data: data.into(),
            content_type: None,
            event: None,
            flags: Flags::default(),
            key: Some(IdempotencyKey { publisher, key: key.into() }),
        }
    }

    #[test]
    fn a_key_is_known_to_its_publisher_and_channel_for_its_window() {
        let mut keys = Keys::default();
        keys.remember(10, &draft("a", 1, "k", b"x"), 7);
        assert_eq!(keys.look(&draft("a", 1, "k", b"x")), Repeat::Of(7));
        assert_eq!(keys.look(&draft("a", 1, "k", b"y")), Repeat::Other);
        assert_eq!(keys.look(&draft("a", 2, "k", b"x")), Repeat::No);
        assert_eq!(keys.look(&draft("b", 1, "k", b"x")), Repeat::No);
        assert_eq!(keys.look(&Draft { key: None, ..draft("a", 1, "k", b"x") }), Repeat::No);
        assert_eq!(keys.expire(109, 100), Some(110));
        assert_eq!(keys.look(&draft("a", 1, "k", b"x")), Repeat::Of(7));
        assert_eq!(keys.expire(110, 100), None);
        assert_eq!(keys.look(&draft("a", 1, "k", b"x")), Repeat::No);
        assert!(keys.is_empty());
    }

    #[test]
    fn the_largest_publisher_loses_its_oldest_key_first() {
        let mut keys = Keys::default();
        keys.remember(0, &draft("x", 1, "k", b""), 1);
        keys.remember(1, &draft("x", 2, "k", b""), 2);
        for number in 0..2 * KEYS_MAX as u64 {
            let (publisher, channel) = (3 + number % 2, format!("c/{}", number % 130));
            keys.remember(2, &draft(&channel, publisher, &number.to_string(), b""), number + 3);
        }
        assert_eq!(keys.look(&draft("x", 1, "k", b"")), Repeat::Of(1));
        assert_eq!(keys.look(&draft("x", 2, "k", b"")), Repeat::Of(2));
        let kept = |number: u64| {
            let (publisher, channel) = (3 + number % 2, format!("c/{}", number % 130));
            keys.look(&draft(&channel, publisher, &number.to_string(), b"")) == Repeat::Of(number + 3)
        };
        // The two large publishers share the rest of the limit equally.
        assert!((0..KEYS_MAX as u64 + 2).all(|number| !kept(number)));
        assert!((KEYS_MAX as u64 + 2..2 * KEYS_MAX as u64).all(kept));
        assert_eq!(keys.entries, KEYS_MAX);
    }

    #[test]
    fn keys_of_failed_publishes_may_be_published_anew() {
        let mut keys = Keys::default();
        let one = draft("a", 1, "k", b"x");
        keys.remember(0, &one, 7);
        keys.forget(&one.channel, one.key.as_ref().expect("it has one"));
        assert_eq!(keys.look(&one), Repeat::No);
        keys.remember(50, &one, 9);
        assert_eq!(keys.expire(100, 100), Some(150), "the first entry has expired");
        assert_eq!(keys.look(&one), Repeat::Of(9));
        assert_eq!(keys.expire(150, 100), None);
        assert!(keys.is_empty());
    }

    #[test]
    fn publishers_with_one_key_each_lose_the_oldest_first() {
        let mut keys = Keys::default();
        for number in 0..KEYS_MAX as u64 + 10 {
            keys.remember(0, &draft("x", number, "k", b""), number);
        }
        assert_eq!((keys.entries, keys.publishers.len()), (KEYS_MAX, KEYS_MAX));
        assert_eq!(keys.look(&draft("x", 9, "k", b"")), Repeat::No);
        assert_eq!(keys.look(&draft("x", 10, "k", b"")), Repeat::Of(10));
        assert_eq!(keys.expire(1, 1), None);
        assert!(keys.is_empty());
    }

    impl Keys {
        fn is_empty(&self) -> bool {
            let maps = self.channels.is_empty() && self.publishers.is_empty();
            maps && self.by_age.is_empty() && self.by_size.is_empty() && self.entries == 0
        }
    }
}
