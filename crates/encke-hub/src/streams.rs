//! The assignment of channels to streams.

use crate::limits::STREAMS_MAX;
use crate::name::Name;
use crate::pattern::Pattern;

/// Channel patterns with the stream of their channels. The first match counts. All other channels belong to stream 0.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    /// In the given order, with the stream of each.
    patterns: Vec<(Pattern, usize)>,
    others: usize,
}

impl Streams {
    /// Creates the assignment from the patterns of each stream after stream 0.
    ///
    /// # Panics
    /// There are more than [`STREAMS_MAX`] streams, stream 0 included.
    pub fn new(others: impl IntoIterator<Item = Vec<Pattern>>) -> Self {
        let mut streams = Self::default();
        for patterns in others {
            streams.others += 1;
            assert!(streams.others < STREAMS_MAX, "whoever reads settings has counted the streams");
            streams.patterns.extend(patterns.into_iter().map(|pattern| (pattern, streams.others)));
        }
        streams
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
}
