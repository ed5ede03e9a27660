//! Grants: acts on every channel, and acts on the channels that patterns match.

use std::sync::Arc;

use encke_hub::{Name, Pattern};

use crate::act::Act;
use crate::error::ChannelPatternError;

/// A set of acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Acts(u8);

impl Acts {
    pub(super) const NONE: Self = Self(0);
    pub(super) const ALL: Self = Self((1 << Act::ALL.len()) - 1);

    pub(super) const fn has(self, act: Act) -> bool {
        self.0 & 1 << act as u8 != 0
    }
}

impl FromIterator<Act> for Acts {
    fn from_iter<I: IntoIterator<Item = Act>>(acts: I) -> Self {
        Self(acts.into_iter().fold(0, |bits, act| bits | 1 << act as u8))
    }
}

/// The acts that a client may do, and on which channels. A clone shares the patterns.
#[derive(Clone, Debug)]
pub struct Grants {
    /// Acts on every channel: the setting `anonymous`, or all acts in open mode.
    everywhere: Acts,
    /// Indexed by [`Act`]: patterns of the channels on which the act is allowed.
    named: Option<Arc<PatternsByAct>>,
}

type PatternsByAct = [Box<[Pattern]>; Act::ALL.len()];

impl Grants {
    /// Grants these acts on every channel, and no others.
    pub(super) const fn everywhere(acts: Acts) -> Self {
        Self { everywhere: acts, named: None }
    }

    /// Grants each act on the channels that its patterns match.
    ///
    /// # Errors
    /// A text is not a valid pattern: its act, and the cause.
    pub(super) fn named<'a>(
        patterns: impl Fn(Act) -> &'a [String],
    ) -> Result<Self, (Act, ChannelPatternError)> {
        let mut named = PatternsByAct::default();
        for (act, list) in Act::ALL.into_iter().zip(&mut named) {
            let parsed: Result<_, _> = patterns(act).iter().map(|text| pattern(text)).collect();
            *list = parsed.map_err(|error| (act, error))?;
        }
        Ok(Self { everywhere: Acts::NONE, named: Some(Arc::new(named)) })
    }

    /// Returns these grants with `acts` in place of the acts on every channel.
    #[must_use]
    pub(super) fn with_everywhere(&self, acts: Acts) -> Self {
        Self { everywhere: acts, named: self.named.clone() }
    }

    /// Returns whether an act is allowed on every channel.
    pub(super) const fn is_everywhere(&self, act: Act) -> bool {
        self.everywhere.has(act)
    }

    /// Returns whether an act is allowed on any channel.
    pub(super) fn is_anywhere(&self, act: Act) -> bool {
        self.everywhere.has(act) || self.named.as_ref().is_some_and(|named| !named[act as usize].is_empty())
    }

    /// Returns whether an act is allowed on a channel.
    pub fn allow(&self, act: Act, channel: &Name) -> bool {
        let named = || self.named.as_ref().map_or(&[][..], |named| &named[act as usize]);
        self.everywhere.has(act) || named().iter().any(|pattern| pattern.matches(channel))
    }
}

/// Parses a pattern of channels, as settings and tokens contain it.
///
/// ```
/// let news = encke_rights::pattern("news/*")?;
/// assert!(news.matches(&encke_hub::Name::parse(b"news/today").expect("a valid name")));
/// assert!(encke_rights::pattern("news/**/x").is_err());
/// # Ok::<(), encke_rights::ChannelPatternError>(())
/// ```
///
/// # Errors
/// The text is not a valid pattern. The message names the problem and shows a valid one.
pub fn pattern(text: &str) -> Result<Pattern, ChannelPatternError> {
    text.parse().map_err(|cause| ChannelPatternError::new(text, cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn an_act_is_allowed_on_the_channels_that_its_own_patterns_match() {
        let publish = ["news/*".to_owned(), "shop/**".to_owned()];
        let grants = Grants::named(|act| if act == Act::Publish { &publish } else { &[] }).expect("patterns");
        for (channel, allowed) in
            [("news/a", true), ("news/a/b", false), ("news", false), ("shop/a/b", true), ("newsy/a", false)]
        {
            for act in Act::ALL {
                assert_eq!(
                    grants.allow(act, &name(channel)),
                    allowed && act == Act::Publish,
                    "{act:?} {channel}"
                );
            }
        }
    }

    #[test]
    fn an_act_with_a_pattern_is_allowed_somewhere() {
        let publish = ["news/*".to_owned()];
        let grants = Grants::named(|act| if act == Act::Publish { &publish } else { &[] }).expect("patterns");
        for act in Act::ALL {
            assert_eq!(grants.is_anywhere(act), act == Act::Publish, "{act:?}");
        }
    }

    #[test]
    fn what_is_allowed_everywhere_needs_no_pattern() {
        for act in Act::ALL {
            let grants = Grants::everywhere([act].into_iter().collect());
            for other in Act::ALL {
                assert_eq!(grants.allow(other, &name("any/channel")), act == other);
                assert_eq!(grants.is_anywhere(other), act == other);
            }
            assert!(Grants::everywhere(Acts::ALL).allow(act, &name("a")));
            assert!(!Grants::everywhere(Acts::NONE).allow(act, &name("a")));
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["", "/", "a//b", "a b", "**/a"] {
            let wrong = [text.to_owned()];
            let (_, error) = Grants::named(|_| &wrong).expect_err(text);
            assert!(error.to_string().contains("invalid channel pattern"), "{error}");
        }
    }
}
