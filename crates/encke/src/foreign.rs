//! Flags and commands of other programs. Each is rejected with its equivalent here, as a tip below clap's error.
//!
//! ```text
//!   encke serve --root public
//!   error: unexpected argument '--root' found
//!     tip: '--root' is the directory in caddy; here it is an argument without a flag: encke serve DIR
//! ```
//! Tables of this kind belong to the sub-command: [`crate::load::FOREIGN`] has the flags of load generators.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A flag that another program has: the flag, its meaning there, and the equivalent here.
pub(crate) type ForeignFlag = (&'static str, &'static str, &'static str);

/// Adds a tip to clap's error if a word of the command line belongs to another program. `words` is the command line, with the
/// program's name.
pub(crate) fn teach(mut error: clap::Error, words: &[String]) -> clap::Error {
    if let Some(tip) = tip(&error, words) {
        // A similar flag is less likely meant than the equivalent.
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// The tip for an error.
fn tip(error: &clap::Error, words: &[String]) -> Option<String> {
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let command = words.get(1).map(String::as_str);
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let flag = named(ContextKind::InvalidArg)?;
            let flag = flag.split_once('=').map_or(flag, |(flag, _)| flag);
            let table = match command? {
                "load" => crate::load::FOREIGN,
                _ => &[],
            };
            let (flag, theirs, ours) = table.iter().find(|(known, ..)| *known == flag)?;
            Some(format!("'{flag}' is {theirs}; here it is {ours}"))
        }
        _ => None,
    }
}
