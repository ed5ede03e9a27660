//! The channels that a node consumes from the stream, and the filters that cover them.
//!
//! ```text
//!                ┌──────────────────────── wanted again ─────────────────────┐
//!                ▼                                                           │
//!  want ─► wanted, not covered ─► wanted, covered ── release ─► released, covered ── after `linger`, at a change ─► removed
//!                        a change: at most one per `PACE`, or per a few times the duration of the previous one
//! ```
//! **Filters get coarser as channels increase**, because a server compares each pair of filters whenever a consumer is created.
//! At first each channel has a filter. Then the first segments with the most channels get one filter for all their channels,
//! and in the end one filter covers everything. No two filters overlap, which NATS would reject.
//!
//! This module has no connection and no clock: channels in, filters out, with the time as an argument.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

/// Minimum time between two changes of the filters.
const PACE: Duration = Duration::from_millis(50);
/// Changes take at most a fifth of the time: after one, the node waits four times its duration.
const SHARE: u32 = 4;

/// The channels that a node consumes.
#[derive(Debug)]
pub(super) struct ChannelInterest {
    prefix: String,
    /// Maximum number of filters.
    most: usize,
    /// How long a released channel may still be delivered.
    linger: Duration,
    /// Subjects of channels; for a released one, the time of its release.
    wants: HashMap<String, Option<Duration>>,
    /// Releases in order. A channel may have been wanted again since.
    released: VecDeque<(Duration, String)>,
    /// Wanted channels that no filter covers.
    uncovered: HashSet<String>,
    filters: Filters,
    /// When the filters may change again.
    next: Duration,
}

/// The filters of the current consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Filters {
    /// Everything is delivered.
    All,
    /// All channels of these first segments, and these subjects.
    Some { groups: BTreeSet<String>, subjects: BTreeSet<String> },
}

impl ChannelInterest {
    /// Creates an interest in no channel, with at most `most` filters. With one filter everything is delivered.
    pub(super) fn new(prefix: &str, most: usize, linger: Duration) -> Self {
        let mut new = Self {
            prefix: prefix.into(),
            most,
            linger,
            wants: HashMap::new(),
            released: VecDeque::new(),
            uncovered: HashSet::new(),
            filters: Filters::All,
            next: Duration::ZERO,
        };
        new.filters = new.planned();
        new
    }

    /// Adds the channel with this subject.
    pub(super) fn want(&mut self, subject: &str) {
        self.wants.insert(subject.into(), None);
        if !self.covers(subject) {
            self.uncovered.insert(subject.into());
        }
    }

    /// Releases the channel with this subject. A covered channel is removed later, after `linger`.
    pub(super) fn release(&mut self, now: Duration, subject: &str) {
        if self.uncovered.remove(subject) {
            self.wants.remove(subject);
        } else if let Some(released) = self.wants.get_mut(subject) {
            *released = Some(now);
            self.released.push_back((now, subject.into()));
        }
    }

    /// Returns whether the current filters cover a channel.
    pub(super) fn covers(&self, subject: &str) -> bool {
        match &self.filters {
            Filters::All => true,
            Filters::Some { groups, subjects } => {
                subjects.contains(subject) || groups.contains(group(&self.prefix, subject))
            }
        }
    }

    /// Sets the maximum number of filters, and applies it.
    pub(super) fn limit(&mut self, now: Duration, most: usize) {
        self.most = most;
        self.change(now);
    }

    /// When the filters should change: soon for uncovered channels, after `linger` for released ones.
    pub(super) fn due(&self) -> Option<Duration> {
        if !self.uncovered.is_empty() {
            return Some(self.next);
        }
        let (released, _) = self.released.front()?;
        Some(self.next.max(*released + self.linger))
    }

    /// Recomputes the filters, without channels released at least `linger` ago. Returns whether they changed.
    pub(super) fn change(&mut self, now: Duration) -> bool {
        while let Some((at, subject)) = self.released.front()
            && *at + self.linger <= now
        {
            // The channel may have been wanted, and released, again.
            if self.wants.get(subject) == Some(&Some(*at)) {
                self.wants.remove(subject);
            }
            self.released.pop_front();
        }
        self.uncovered.clear();
        let before = std::mem::replace(&mut self.filters, Filters::All);
        self.filters = self.planned();
        self.next = now + PACE;
        self.filters != before
    }

    /// Records how long a change took.
    pub(super) fn changed(&mut self, now: Duration, took: Duration) {
        self.next = now + PACE.max(took.saturating_mul(SHARE));
    }

    /// The filters as subjects for NATS; they always cover `beacon`.
    pub(super) fn filters(&self, beacon: &str) -> Vec<String> {
        let prefix = &self.prefix;
        match &self.filters {
            Filters::All => vec![format!("{prefix}.>")],
            Filters::Some { groups, subjects } => {
                let groups = groups
                    .iter()
                    .flat_map(|group| [format!("{prefix}.{group}"), format!("{prefix}.{group}.>")]);
                groups.chain(subjects.iter().cloned()).chain([beacon.into()]).collect()
            }
        }
    }

    /// The finest filters that fit.
    fn planned(&self) -> Filters {
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        for subject in self.wants.keys() {
            *sizes.entry(group(&self.prefix, subject)).or_default() += 1;
        }
        // The beacon needs one filter.
        let mut count = self.wants.len() + 1;
        let mut groups = BTreeSet::new();
        let mut by_size: Vec<_> = sizes.into_iter().collect();
        by_size.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
        for (group, size) in by_size {
            // A group needs two filters: its bare name, and all names below it.
            if count <= self.most || size <= 2 {
                break;
            }
            count -= size - 2;
            groups.insert(group.to_owned());
        }
        if count > self.most || self.most == 1 {
            return Filters::All;
        }
        let fine = |subject: &&String| !groups.contains(group(&self.prefix, subject));
        let subjects = self.wants.keys().filter(fine).cloned().collect();
        Filters::Some { groups, subjects }
    }
}

/// The first segment of a channel's name, from its subject.
fn group<'a>(prefix: &str, subject: &'a str) -> &'a str {
    let channel = subject.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.')).unwrap_or(subject);
    channel.split_once('.').map_or(channel, |(first, _)| first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGER: Duration = Duration::from_secs(30);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn interest(most: usize) -> ChannelInterest {
        ChannelInterest::new("s.m", most, LINGER)
    }

    fn filters(interest: &ChannelInterest) -> Vec<String> {
        let mut filters = interest.filters("s.m.$b");
        filters.sort();
        filters
    }

    #[test]
    fn wishes_that_come_together_are_one_change_and_the_next_one_waits() {
        let mut interest = interest(8);
        assert_eq!((interest.due(), filters(&interest)), (None, vec!["s.m.$b".to_owned()]));
        interest.want("s.m.a");
        interest.want("s.m.b.c");
        assert_eq!(interest.due(), Some(at(0)), "at once");
        assert!(interest.change(at(100)));
        assert_eq!(filters(&interest), ["s.m.$b", "s.m.a", "s.m.b.c"]);
        assert!(interest.covers("s.m.a") && !interest.covers("s.m.b"));
        interest.changed(at(105), at(5));
        interest.want("s.m.d");
        assert_eq!(interest.due(), Some(at(155)));
        interest.changed(at(105), at(200));
        assert_eq!(interest.due(), Some(at(905)), "a server that takes long is asked less often");
        interest.want("s.m.a");
        assert!(interest.change(at(905)));
        interest.want("s.m.a");
        assert_eq!(interest.due(), None, "it comes already");
    }

    #[test]
    fn what_is_let_go_of_lingers_and_goes_with_the_next_change_after_that() {
        let mut interest = interest(8);
        interest.want("s.m.a");
        interest.want("s.m.b");
        interest.change(at(0));
        interest.release(at(1_000), "s.m.a");
        interest.release(at(2_000), "s.m.b");
        assert_eq!(interest.due(), Some(at(31_000)));
        interest.want("s.m.b");
        interest.want("s.m.c");
        assert!(interest.change(at(30_000)));
        assert_eq!(filters(&interest), ["s.m.$b", "s.m.a", "s.m.b", "s.m.c"]);
        assert!(interest.change(at(31_000)));
        assert_eq!(filters(&interest), ["s.m.$b", "s.m.b", "s.m.c"]);
        assert_eq!(interest.due(), Some(at(32_000)), "which is when it turns out to be wanted");
        assert!(!interest.change(at(32_000)));
        assert_eq!(interest.due(), None);
        // Wanted and released before any filter covered it.
        interest.want("s.m.d");
        interest.release(at(33_000), "s.m.d");
        interest.release(at(33_000), "s.m.none");
        assert_eq!(interest.due(), None);
    }

    #[test]
    fn filters_get_coarser_as_channels_get_more_and_finer_again() {
        let mut interest = interest(6);
        let all = ["s.m.a.1", "s.m.a.2", "s.m.a", "s.m.b.1", "s.m.c", "s.m.d", "s.m.e", "s.m.f"];
        for (count, expected) in [
            (5, "s.m.$b s.m.a s.m.a.1 s.m.a.2 s.m.b.1 s.m.c"),
            (6, "s.m.$b s.m.a s.m.a.> s.m.b.1 s.m.c s.m.d"),
            (7, "s.m.>"),
        ] {
            all[..count].iter().for_each(|subject| interest.want(subject));
            assert!(interest.change(at(0)));
            assert_eq!(filters(&interest).join(" "), expected);
        }
        interest.want("s.m.g");
        assert_eq!(interest.due(), None, "everything comes");
        interest.release(at(0), "s.m.g");
        all[3..].iter().for_each(|subject| interest.release(at(0), subject));
        assert!(interest.change(LINGER));
        assert_eq!(filters(&interest).join(" "), "s.m.$b s.m.a s.m.a.1 s.m.a.2");
    }

    #[test]
    fn with_one_filter_everything_comes() {
        let mut interest = interest(1);
        assert_eq!(filters(&interest), ["s.m.>"]);
        interest.want("s.m.a");
        assert_eq!(interest.due(), None);
        interest.release(at(0), "s.m.a");
        assert!(!interest.change(LINGER));
        assert_eq!(filters(&interest), ["s.m.>"]);
    }

    /// Returns whether NATS would match a subject to a filter.
    fn matches(filter: &str, subject: &str) -> bool {
        match filter.strip_suffix(".>") {
            Some(begin) => subject.strip_prefix(begin).is_some_and(|rest| rest.starts_with('.')),
            None => filter == subject,
        }
    }

    #[test]
    fn whatever_is_wanted_comes_once_and_filters_are_few() {
        let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
        println!("seed {seed}");
        let mut below = |end: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % end
        };
        let (mut coarse, mut fine, mut whole) = (0, 0, 0);
        for _ in 0..200 {
            let most = 1 + below(12) as usize;
            let mut interest = interest(most);
            let mut wanted = BTreeSet::new();
            let mut now = Duration::ZERO;
            for _ in 0..100 {
                let first = ["a", "b", "c", "d=e"][below(4) as usize];
                let subject = match below(5) {
                    0 => format!("s.m.{first}"),
                    number => format!("s.m.{first}.{number}"),
                };
                match below(4) {
                    0 | 1 => {
                        interest.want(&subject);
                        wanted.insert(subject);
                    }
                    2 if wanted.remove(&subject) => interest.release(now, &subject),
                    _ => now += Duration::from_secs(below(10)),
                }
                if below(3) > 0 || interest.due().is_none_or(|due| due > now) {
                    continue;
                }
                interest.change(now);
                let filters = interest.filters("s.m.$b");
                assert!(filters.len() <= most, "{filters:?} are more than {most}");
                for subject in wanted.iter().map(String::as_str).chain(["s.m.$b"]) {
                    let count = filters.iter().filter(|filter| matches(filter, subject)).count();
                    assert_eq!(count, 1, "{subject} of {filters:?}");
                    assert!(subject.ends_with('b') && subject.contains('$') || interest.covers(subject));
                }
                match filters.iter().filter(|filter| filter.ends_with(".>")).count() {
                    _ if filters[0] == "s.m.>" => whole += 1,
                    0 => fine += 1,
                    _ => coarse += 1,
                }
                assert!(interest.due().is_none_or(|due| due > now), "{interest:?} at {now:?}");
            }
        }
        assert!(coarse > 100 && fine > 100 && whole > 100, "{coarse} {fine} {whole}");
    }
}
