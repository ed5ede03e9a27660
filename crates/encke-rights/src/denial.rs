//! Why somebody may not.

/// Why somebody may not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Denial {
    /// 401: a token could help.
    Unauthorized(String),
    /// 403: whoever asks is known, and may not; or comes from a page that may not.
    Forbidden(String),
}
