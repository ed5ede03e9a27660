//! Settings of other programs and their equivalents, for hints in errors.
//!
//! The table belongs to the document, because a user writes such a key in any section: [`Document::FOREIGN`].
//!
//! [`Document::FOREIGN`]: crate::Document::FOREIGN

/// A key of another program and its equivalent. The key is in lower case with `_` between words. With the path of a table before it
/// (`upstream.server`), the entry is for this table only, and precedes the one without.
pub type ForeignKey = (&'static str, Equivalent);

/// What replaces a key of another program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Equivalent {
    /// A setting with another name: its path in the document, such as `limits.body_bytes`.
    Setting(&'static str),
    /// A setting that is used in another way: its path, and an example or a restriction.
    Like(&'static str, &'static str),
    /// No setting, because the behaviour is fixed: a sentence without a full stop.
    Always(&'static str),
    /// Not available: the replacement, as a sentence without a full stop.
    Missing(&'static str),
}

impl Equivalent {
    /// The path of the setting, if there is one.
    pub const fn path(self) -> Option<&'static str> {
        match self {
            Self::Setting(path) | Self::Like(path, _) => Some(path),
            Self::Always(_) | Self::Missing(_) => None,
        }
    }

    /// The hint. `place` writes the path of a setting for the user.
    pub(crate) fn hint(self, place: impl Fn(&str) -> String) -> String {
        match self {
            Self::Setting(path) => format!("in Encke it is {}", place(path)),
            Self::Like(path, remark) => format!("in Encke it is {}: {remark}", place(path)),
            Self::Always(fact) => format!("not a setting: {fact}"),
            Self::Missing(instead) => format!("not available yet: {instead}"),
        }
    }
}

/// Finds a key of another program, which a user has written in the table at `path`; without a path, anywhere. Case is ignored, and
/// `-` and a space equal `_`.
pub(crate) fn equivalent(table: &[ForeignKey], path: &[String], key: &str) -> Option<Equivalent> {
    let plain: String = key
        .chars()
        .map(|letter| if matches!(letter, '-' | ' ') { '_' } else { letter.to_ascii_lowercase() })
        .collect();
    // The tables of a list have numbers.
    let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    let names: Vec<&str> = path.iter().map(String::as_str).filter(|part| !is_number(part)).collect();
    let within = format!("{}.{plain}", names.join("."));
    let find = |key: &str| table.iter().find(|(known, _)| *known == key).map(|(_, equivalent)| *equivalent);
    find(&within).or_else(|| find(&plain))
}
