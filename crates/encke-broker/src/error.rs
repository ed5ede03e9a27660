//! Properties that the errors of this crate share: the origin, and the text of all causes.

#[cfg(any(feature = "acme", feature = "nats"))]
use std::error::Error;

/// Where an error comes from, and so what has to change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorOrigin {
    /// This server's settings.
    Settings,
    /// The remote service: NATS, or the ACME directory.
    Upstream,
    /// This machine: its operating system or its disk.
    System,
    /// A file that is damaged, or was written by another version.
    File,
}

/// The text of an error and its causes. Network errors are wrapped several times, and the innermost cause is the most useful.
#[cfg(any(feature = "acme", feature = "nats"))]
pub(crate) fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
