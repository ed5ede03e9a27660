//! Tokens for servers to pull from.

use std::error::Error;
use std::fmt;

use encke_settings::{Secret, SecretError};

/// Why a token for a server to pull from cannot be used. The origin is this machine: its settings, files or environment.
#[derive(Debug)]
#[non_exhaustive]
pub enum PullTokenError {
    /// The file or variable cannot be read.
    Secret(SecretError),
    /// The token has bytes, such as spaces, that no header field can have (RFC 9110, section 11.2).
    Malformed,
}

/// Reads a token. Blocks.
///
/// # Errors
/// It cannot be read, or no header field can have it.
pub(crate) fn reveal(token: &Secret) -> Result<String, PullTokenError> {
    let token = token.reveal().map_err(PullTokenError::Secret)?;
    let is_valid = token.bytes().all(|byte| byte.is_ascii_graphic());
    if is_valid { Ok(token) } else { Err(PullTokenError::Malformed) }
}

impl fmt::Display for PullTokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(error) => error.fmt(f),
            Self::Malformed => {
                f.write_str("the token has a space or another character that no header field can have")
            }
        }
    }
}

impl Error for PullTokenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Secret(error) => Some(error),
            Self::Malformed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_cannot_end_its_header_field() {
        for (token, is_valid) in
            [("abc.DEF-1_~+/=", true), ("a b", false), ("a\r\nHost: b", false), ("ä", false)]
        {
            assert_eq!(reveal(&Secret::Text(token.into())).is_ok(), is_valid, "{token:?}");
        }
    }
}
