//! The assignment of channels to streams.

use crate::limits::{SHARED_STREAMS_MAX, STREAMS_MAX};
use crate::name::Name;
use crate::pattern::Pattern;

/// Channel patterns with the stream of their channels. The first match counts. All other channels belong to stream 0.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    /// In the given order, with the stream of each.
    patterns: Vec<(Pattern, usize)>,
    others: usize,
    /// Whether the last stream is this server's own, while the others are shared with other servers.
    has_local: bool,
}

impl Streams {
    /// Creates the assignment from the patterns of each stream after stream 0.
    ///
    /// # Panics
    /// There are more than [`SHARED_STREAMS_MAX`] streams, stream 0 included.
    pub fn new(others: impl IntoIterator<Item = Vec<Pattern>>) -> Self {
        let mut streams = Self::default();
        for patterns in others {
            streams.others += 1;
            assert!(streams.others < SHARED_STREAMS_MAX, "whoever reads settings has counted the streams");
            streams.patterns.extend(patterns.into_iter().map(|pattern| (pattern, streams.others)));
        }
        streams
    }

    /// Adds a stream that is not shared with other servers. Its patterns take precedence over all others.
    ///
    /// # Panics
    /// There is one already.
    #[must_use]
    pub fn with_local(mut self, patterns: impl IntoIterator<Item = Pattern>) -> Self {
        assert!(!self.has_local && self.count() < STREAMS_MAX, "a server has one stream of its own");
        self.others += 1;
        self.has_local = true;
        let local = patterns.into_iter().map(|pattern| (pattern, self.others));
        self.patterns.splice(..0, local.collect::<Vec<_>>());
        self
    }

    /// Returns whether a stream is this server's own, beside streams that are shared with other servers.
    pub fn is_local(&self, stream: usize) -> bool {
        self.has_local && stream == self.others
    }

    /// Returns the number of streams without the one of [`Streams::with_local`].
    pub fn shared(&self) -> usize {
        self.count() - usize::from(self.has_local)
    }

    /// Returns the stream of a channel.
    ///
    /// ```
    /// use encke_hub::{Name, Streams};
    ///
    /// let streams = Streams::new([vec!["orders/**".parse()?]]);
    /// assert_eq!(streams.of(&Name::parse(b"orders/7")?), 1);
    /// assert_eq!(streams.of(&Name::parse(b"news")?), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of(&self, name: &Name) -> usize {
        let found = self.patterns.iter().find(|(pattern, _)| pattern.matches(name));
        found.map_or(0, |(_, stream)| *stream)
    }

    /// Returns the number of streams.
    pub fn count(&self) -> usize {
        self.others + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_of_the_first_stream_whose_pattern_matches_or_else_of_stream_0() {
        let pattern = |text: &str| text.parse::<Pattern>().expect("a pattern");
        let streams =
            Streams::new([vec![pattern("ticks/fast/*"), pattern("clock")], vec![pattern("ticks/**")]]);
        let of = |name: &str| streams.of(&Name::parse(name.as_bytes()).expect("a name"));
        assert_eq!(streams.count(), 3);
        assert_eq!(["clock", "ticks/fast/a", "ticks/a", "ticks/fast/a/b"].map(of), [1, 1, 2, 2]);
        assert_eq!(["ticks", "clock/a", "chat"].map(of), [0, 0, 0]);
        assert_eq!(
            (Streams::default().count(), Streams::default().of(&Name::parse(b"a").expect("a name"))),
            (1, 0)
        );
    }

    #[test]
    fn a_local_stream_takes_its_channels_from_the_shared_ones() {
        let pattern = |text: &str| text.parse::<Pattern>().expect("a pattern");
        let streams = Streams::new([vec![pattern("**")]]).with_local([pattern("live/**")]);
        let of = |name: &str| streams.of(&Name::parse(name.as_bytes()).expect("a name"));
        assert_eq!(["live/film", "live/a/b", "live", "news"].map(of), [2, 2, 1, 1]);
        assert_eq!((streams.count(), streams.shared()), (3, 2));
        assert_eq!([0, 1, 2].map(|stream| streams.is_local(stream)), [false, false, true]);
        assert!(!Streams::default().is_local(0));
    }
}
