//! Reasons for rejecting a request.

/// The reason for rejecting a request. The text is sent to the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Denial {
    /// 401: the request needs a token, or a valid certificate.
    Unauthorized(String),
    /// 401: the token of the request is invalid, or there are several.
    InvalidToken(String),
    /// 403: the client is known and not allowed.
    Forbidden(String),
    /// 403: the request comes from a page of a foreign origin.
    ForeignOrigin(String),
}

impl Denial {
    /// Returns the denial with another text, made from its own.
    #[must_use]
    pub fn map(self, text: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Unauthorized(own) => Self::Unauthorized(text(own)),
            Self::InvalidToken(own) => Self::InvalidToken(text(own)),
            Self::Forbidden(own) => Self::Forbidden(text(own)),
            Self::ForeignOrigin(own) => Self::ForeignOrigin(text(own)),
        }
    }

    /// Returns the status of the response.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Unauthorized(_) | Self::InvalidToken(_) => 401,
            Self::Forbidden(_) | Self::ForeignOrigin(_) => 403,
        }
    }

    /// Returns the reason in the access log.
    pub const fn reason(&self) -> &'static &'static str {
        match self {
            Self::Unauthorized(_) => &"token_required",
            Self::InvalidToken(_) => &"token_invalid",
            Self::Forbidden(_) => &"no_right",
            Self::ForeignOrigin(_) => &"origin",
        }
    }

    /// Returns the text for the client.
    pub fn text(&self) -> &str {
        match self {
            Self::Unauthorized(text)
            | Self::InvalidToken(text)
            | Self::Forbidden(text)
            | Self::ForeignOrigin(text) => text,
        }
    }
}
