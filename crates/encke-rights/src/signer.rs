//! Makes tokens: what `encke token` and applications that embed the server sign with.

use std::path::Path;

use super::grants;
use super::keys::Signing;
use super::token::{self, Channels, Claims, NumericDate, TOKEN_BYTES_MAX};
use crate::act::Act;
use crate::settings::AuthSettings;

/// What signs tokens.
pub struct Signer {
    signing: Signing,
    kid: Option<String>,
}

/// What a token is to say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pass {
    /// The user's name, where members of a channel are listed.
    pub subject: Option<String>,
    /// When it ends, in seconds since 1970; `None`: never.
    pub expires_unix_s: Option<u64>,
    /// Patterns of channels that may be published to.
    pub publish: Vec<String>,
    /// … that may be read.
    pub subscribe: Vec<String>,
    /// … whose members may be seen.
    pub presence: Vec<String>,
    /// … whose messages may be forgotten.
    pub manage: Vec<String>,
}

impl Signer {
    /// The first key of the settings that can sign, or the first one of that name.
    ///
    /// # Errors
    /// There is none, or a key before it is not to be had.
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

    /// A key in a file: a private key as PEM (P-256 or Ed25519), or a secret in its first line. `kid` is the name
    /// by which tokens call it.
    ///
    /// # Errors
    /// The file cannot be read, or holds neither.
    pub fn of_file(path: &Path, kid: Option<&str>) -> Result<Self, String> {
        Ok(Self { signing: Signing::of_file(path)?, kid: kid.map(Into::into) })
    }

    /// A signed token.
    ///
    /// # Errors
    /// What it is to say cannot be meant, or is too long for a token that servers take.
    pub fn sign(&self, pass: &Pass) -> Result<String, String> {
        if let Some(error) = pass.subject.as_deref().and_then(token::wrong_subject) {
            return Err(error);
        }
        let channels = Channels {
            publish: pass.publish.clone(),
            subscribe: pass.subscribe.clone(),
            presence: pass.presence.clone(),
            manage: pass.manage.clone(),
        };
        for text in Act::ALL.iter().flat_map(|act| channels.patterns(*act)) {
            grants::pattern(text)?;
        }
        let exp = pass.expires_unix_s.map(NumericDate);
        let claims = Claims { sub: pass.subject.clone(), exp, nbf: None, encke: channels };
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
