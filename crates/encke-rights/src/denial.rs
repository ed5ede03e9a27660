//! Reasons for rejecting a request.

/// The reason for rejecting a request. The text is sent to the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Denial {
    /// 401: the request needs a token, or a different one.
    Unauthorized(String),
    /// 403: the client is known and not allowed, or the request comes from a foreign page.
    Forbidden(String),
}

impl Denial {
    /// Returns the denial with another text, made from its own.
    #[must_use]
    pub fn map(self, text: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Unauthorized(own) => Self::Unauthorized(text(own)),
            Self::Forbidden(own) => Self::Forbidden(text(own)),
        }
    }
}
