//! The idempotency keys of a while ago, so that a publish which is sent again happens once.
//!
//! ```text
//!  scope (channel, publisher) ─► key ─► (offset, fingerprint)     found in O(1)
//!                             └► keys in their order              at most `most`, the oldest goes first
//!  all scopes ─► (moment, number, scope) in their order           at most KEYS_MAX, and none older than the window
//! ```
//! A key's number tells whether the front of a scope is the one that the common list means: the limit of the scope
//! may have taken it before.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::limits::KEYS_MAX;
use crate::message::{Draft, IdempotencyKey, Message};
use crate::name::Name;

/// Keys and what came of them.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    scopes: HashMap<Arc<Scope>, Known>,
    order: VecDeque<Entry>,
    numbered: u64,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Scope {
    channel: Name,
    publisher: u64,
}

#[derive(Debug, Default)]
struct Known {
    published: HashMap<Arc<str>, Publish>,
    order: VecDeque<(u64, Arc<str>)>,
}

#[derive(Clone, Copy, Debug)]
struct Publish {
    offset: u64,
    fingerprint: u64,
}

#[derive(Debug)]
struct Entry {
    mono_ns: u64,
    number: u64,
    scope: Arc<Scope>,
}

/// What is known of a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Nothing: publish.
    No,
    /// The same was published with this offset.
    Of(u64),
    /// Something else was published under this key.
    Other,
}

impl Keys {
    /// Looks a draft's key up; one without a key is no repetition.
    pub(crate) fn look(&self, draft: &Draft) -> Repeat {
        let Some(key) = &draft.key else { return Repeat::No };
        let scope = Scope { channel: draft.channel.clone(), publisher: key.publisher };
        match self.scopes.get(&scope).and_then(|known| known.published.get(&*key.key)) {
            None => Repeat::No,
            Some(publish) if publish.fingerprint == fingerprint(draft) => Repeat::Of(publish.offset),
            Some(_) => Repeat::Other,
        }
    }

    /// Remembers that a draft was published; a key is in no scope twice. At most `most` keys are kept a scope.
    pub(crate) fn remember(&mut self, mono_ns: u64, draft: &Draft, offset: u64, most: usize) {
        let Some(key) = &draft.key else { return };
        let publish = Publish { offset, fingerprint: fingerprint(draft) };
        self.enter(mono_ns, &draft.channel, key, publish, most);
    }

    /// Remembers the key of a message that was published in an earlier life. The oldest ones come first.
    pub(crate) fn recall(&mut self, mono_ns: u64, message: &Message, key: &IdempotencyKey, most: usize) {
        let fingerprint = hash(&message.data, &message.content_type, &message.event);
        self.enter(mono_ns, &message.channel, key, Publish { offset: message.offset, fingerprint }, most);
    }

    fn enter(&mut self, mono_ns: u64, channel: &Name, key: &IdempotencyKey, publish: Publish, most: usize) {
        if most == 0 {
            return;
        }
        self.numbered += 1;
        let number = self.numbered;
        let scope = Arc::new(Scope { channel: channel.clone(), publisher: key.publisher });
        let known = self.scopes.entry(Arc::clone(&scope)).or_default();
        let name: Arc<str> = (*key.key).into();
        known.published.insert(Arc::clone(&name), publish);
        known.order.push_back((number, name));
        while known.order.len() > most {
            known.forget_oldest();
        }
        self.order.push_back(Entry { mono_ns, number, scope });
        while self.order.len() > KEYS_MAX {
            self.forget_oldest();
        }
    }

    /// Forgets a draft that was not published after all.
    pub(crate) fn forget(&mut self, channel: &Name, key: &IdempotencyKey) {
        let scope = Scope { channel: channel.clone(), publisher: key.publisher };
        if let Some(known) = self.scopes.get_mut(&scope) {
            known.published.remove(&*key.key);
            known.order.retain(|(_, name)| **name != *key.key);
        }
    }

    /// Forgets what is older than the window, and says when the next one will be, on the monotonic clock.
    pub(crate) fn expire(&mut self, mono_ns: u64, window_ns: u64) -> Option<u64> {
        loop {
            let ends = self.order.front()?.mono_ns.saturating_add(window_ns);
            if ends > mono_ns {
                return Some(ends);
            }
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(Entry { number, scope, .. }) = self.order.pop_front() else { return };
        let Some(known) = self.scopes.get_mut(&scope) else { return };
        if known.order.front().is_some_and(|(first, _)| *first == number) {
            known.forget_oldest();
        }
        if known.order.is_empty() {
            self.scopes.remove(&scope);
        }
    }
}

impl Known {
    fn forget_oldest(&mut self) {
        if let Some((_, key)) = self.order.pop_front() {
            self.published.remove(&key);
        }
    }
}

/// 64 bits of what a draft says. Whoever finds two drafts with the same ones deceives only itself: the key is its own.
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
    fn a_key_is_known_in_its_scope_for_its_window() {
        let mut keys = Keys::default();
        keys.remember(10, &draft("a", 1, "k", b"x"), 7, 2);
        assert_eq!(keys.look(&draft("a", 1, "k", b"x")), Repeat::Of(7));
        assert_eq!(keys.look(&draft("a", 1, "k", b"y")), Repeat::Other);
        assert_eq!(keys.look(&draft("a", 2, "k", b"x")), Repeat::No);
        assert_eq!(keys.look(&draft("b", 1, "k", b"x")), Repeat::No);
        assert_eq!(keys.look(&Draft { key: None, ..draft("a", 1, "k", b"x") }), Repeat::No);
        assert_eq!(keys.expire(109, 100), Some(110));
        assert_eq!(keys.look(&draft("a", 1, "k", b"x")), Repeat::Of(7));
        assert_eq!(keys.expire(110, 100), None);
        assert_eq!(keys.look(&draft("a", 1, "k", b"x")), Repeat::No);
        assert!(keys.scopes.is_empty());
    }

    #[test]
    fn a_scope_forgets_its_oldest_key_first_and_disturbs_no_other() {
        let mut keys = Keys::default();
        for (moment, (publisher, key)) in [(1, "a"), (2, "a"), (1, "b"), (1, "c")].into_iter().enumerate() {
            keys.remember(moment as u64, &draft("x", publisher, key, b""), moment as u64 + 1, 2);
        }
        assert_eq!(keys.look(&draft("x", 1, "a", b"")), Repeat::No);
        assert_eq!(keys.look(&draft("x", 2, "a", b"")), Repeat::Of(2));
        // The first one's time is up; what its scope has now is younger and stays.
        assert_eq!(keys.expire(100, 100), Some(101));
        assert_eq!(keys.look(&draft("x", 1, "b", b"")), Repeat::Of(3));
        assert_eq!(keys.expire(102, 100), Some(103));
        assert_eq!(keys.look(&draft("x", 1, "b", b"")), Repeat::No);
        assert_eq!(keys.look(&draft("x", 1, "c", b"")), Repeat::Of(4));
    }

    #[test]
    fn what_was_not_published_after_all_may_be_published_and_is_known_for_its_whole_window() {
        let mut keys = Keys::default();
        let one = draft("a", 1, "k", b"x");
        keys.remember(0, &one, 7, 2);
        keys.forget(&one.channel, one.key.as_ref().expect("it has one"));
        assert_eq!(keys.look(&one), Repeat::No);
        keys.remember(50, &one, 9, 2);
        assert_eq!(keys.expire(100, 100), Some(150), "the first time is over");
        assert_eq!(keys.look(&one), Repeat::Of(9));
        assert_eq!(keys.expire(150, 100), None);
        assert!(keys.scopes.is_empty());
    }

    #[test]
    fn all_scopes_together_hold_no_more_than_the_limit() {
        let mut keys = Keys::default();
        for number in 0..KEYS_MAX as u64 + 10 {
            keys.remember(0, &draft("x", number, "k", b""), number, 1024);
        }
        assert_eq!((keys.order.len(), keys.scopes.len()), (KEYS_MAX, KEYS_MAX));
        assert_eq!(keys.look(&draft("x", 9, "k", b"")), Repeat::No);
        assert_eq!(keys.look(&draft("x", 10, "k", b"")), Repeat::Of(10));
    }
}
