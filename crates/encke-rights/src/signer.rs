//! Signing of tokens, for `encke token` and for applications that embed the server.

use std::path::Path;

use super::grants;
use super::keys::Signing;
use super::token::{self, ChannelClaims, Claims, NumericDate};
use crate::act::Act;
use crate::error::SigningError;
use crate::limits::TOKEN_BYTES_MAX;
use crate::settings::AuthSettings;

/// A key that signs tokens.
pub struct Signer {
    signing: Signing,
    kid: Option<String>,
}

/// The content of a token to sign.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TokenContents {
    /// The user's name, as lists of members show it.
    pub subject: Option<String>,
    /// Expiry in seconds since 1970; `None`: never.
    pub expires_unix_s: Option<u64>,
    /// Patterns of the channels that the token may publish to.
    pub publish: Vec<String>,
    /// Patterns of the channels that it may read.
    pub subscribe: Vec<String>,
    /// Patterns of the channels whose members it may list.
    pub presence: Vec<String>,
    /// Patterns of the channels that it may manage.
    pub manage: Vec<String>,
}

impl Signer {
    /// Loads the first key of the settings that can sign, or the first such key named `kid`.
    ///
    /// # Errors
    /// No key can sign, or a key before it cannot be loaded.
    pub fn of_settings(auth: &AuthSettings, kid: Option<&str>) -> Result<Self, SigningError> {
        for key in auth.keys.iter().filter(|key| kid.is_none() || key.kid.as_deref() == kid) {
            if let Some(signing) = Signing::of_settings(key)? {
                return Ok(Self { signing, kid: key.kid.clone() });
            }
        }
        Err(SigningError::NoKey(kid.map(Into::into)))
    }

    /// Loads a key from a file: a private key as PEM (P-256 or Ed25519), or a secret in the first line. Tokens name it by
    /// `kid`.
    ///
    /// # Errors
    /// The file cannot be read, or contains neither.
    pub fn of_file(path: &Path, kid: Option<&str>) -> Result<Self, SigningError> {
        Ok(Self { signing: Signing::of_file(path)?, kid: kid.map(Into::into) })
    }

    /// Returns a signed token.
    ///
    /// ```
    /// use encke_rights::{AuthSettings, KeySettings, Signer, TokenContents};
    /// use encke_settings::Secret;
    ///
    /// let secret = Secret::Text("0123456789abcdef0123456789abcdef".into());
    /// let keys = vec![KeySettings { secret: Some(secret), ..KeySettings::default() }];
    /// let signer = Signer::of_settings(&AuthSettings { keys, ..AuthSettings::default() }, None)?;
    /// let token = signer.sign(&TokenContents { subscribe: vec!["news/*".into()], ..TokenContents::default() })?;
    /// assert_eq!(token.split('.').count(), 3, "a JWT");
    /// # Ok::<(), encke_rights::SigningError>(())
    /// ```
    ///
    /// # Errors
    /// A pattern or the subject is invalid, or the token is longer than a server accepts (8 KiB).
    pub fn sign(&self, contents: &TokenContents) -> Result<String, SigningError> {
        contents.subject.as_deref().map_or(Ok(()), token::check_subject)?;
        let channels = ChannelClaims {
            publish: contents.publish.clone(),
            subscribe: contents.subscribe.clone(),
            presence: contents.presence.clone(),
            manage: contents.manage.clone(),
        };
        for text in Act::ALL.iter().flat_map(|act| channels.patterns(*act)) {
            grants::pattern(text)?;
        }
        let exp = contents.expires_unix_s.map(NumericDate);
        let claims = Claims { sub: contents.subject.clone(), exp, nbf: None, encke: channels };
        let token = token::sign(&claims, &self.signing, self.kid.as_deref());
        if token.len() > TOKEN_BYTES_MAX {
            return Err(SigningError::Long(token.len()));
        }
        Ok(token)
    }
}
