//! Signing of tokens, for `encke token` and for applications that embed the server.

use std::path::Path;

use super::grants;
use super::keys::Signing;
use super::token::{self, ChannelClaims, Claims, NumericDate, TOKEN_BYTES_MAX};
use crate::act::Act;
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
    /// Patterns of the channels whose messages it may delete.
    pub manage: Vec<String>,
}

impl Signer {
    /// Loads the first key of the settings that can sign, or the first such key named `kid`.
    ///
    /// # Errors
    /// No key can sign, or a key before it cannot be loaded.
    pub fn of_settings(auth: &AuthSettings, kid: Option<&str>) -> Result<Self, String> {
        for key in auth.keys.iter().filter(|key| kid.is_none() || key.kid.as_deref() == kid) {
            if let Some(signing) = Signing::of_settings(key)? {
                return Ok(Self { signing, kid: key.kid.clone() });
            }
        }
        let named = kid.map_or_else(String::new, |kid| format!(" named `{kid}`"));
        Err(format!(
            "there is no key{named} in [[auth.keys]] that can sign: one with a `secret`, or whose `pem` is a private \
             key"
        ))
    }

    /// Loads a key from a file: a private key as PEM (P-256 or Ed25519), or a secret in the first line. Tokens name it by
    /// `kid`.
    ///
    /// # Errors
    /// The file cannot be read, or contains neither.
    pub fn of_file(path: &Path, kid: Option<&str>) -> Result<Self, String> {
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
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    /// A pattern or the subject is invalid, or the token is longer than a server accepts (8 KiB).
    pub fn sign(&self, contents: &TokenContents) -> Result<String, String> {
        if let Some(error) = contents.subject.as_deref().and_then(token::wrong_subject) {
            return Err(error);
        }
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
            let bytes = token.len();
            return Err(format!(
                "the token would have {bytes} bytes, and a server takes {TOKEN_BYTES_MAX}: use patterns"
            ));
        }
        Ok(token)
    }
}
