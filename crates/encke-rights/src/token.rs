//! Signed tokens: JWT in compact form (RFC 7519, RFC 7515), limited to the parts that rights need.
//!
//! ```text
//!  head . claims . signature        each part base64url without padding, nothing else in between
//!    │       │         │
//!    │       │         └─ verified over `head.claims` as received, before the claims are parsed
//!    │       └─ {"sub": USER, "exp": S, "nbf": S, "encke": {"publish": [PATTERN…], …}}
//!    └─ {"alg": …, "kid": …}: selects among our keys; keys in the head (jwk, jku, x5c) are never used
//! ```
//! The module reads no clock: `now_s` is an argument.

use std::fmt;
use std::marker::PhantomData;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::grants::Grants;
use super::keys::{Algorithm, Key, Signing};
use crate::act::Act;
use crate::error::{ChannelPatternError, SubjectError};
use crate::limits::SUBJECT_BYTES_MAX;

/// Clock skew, in seconds: a token is accepted this long before its `nbf`. Its `exp` is exact.
const EARLY_S_MAX: u64 = 60;

/// The end of the year 5000, in seconds since 1970. A later time is one in milliseconds: these pass this number in 1973.
const SECONDS_MAX: u64 = 95_649_119_999;

/// The content of a verified token.
pub(super) struct Statement<'k> {
    pub(super) subject: Option<String>,
    pub(super) expires_unix_s: Option<u64>,
    pub(super) grants: Grants,
    /// The key that verified the token.
    pub(super) key: &'k Key,
}

/// The reason for rejecting a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TokenError {
    /// Neither a static token, nor three base64url parts with a JSON object as the first.
    Form,
    /// The head requires an extension (`crit`). None is supported.
    Critical,
    /// The algorithm is not supported, or is `none`.
    Algorithm,
    /// No key of this server verifies the signature.
    Signature,
    /// The token has expired.
    Expired {
        /// Seconds since the expiry.
        ago_s: u64,
    },
    /// The token is not valid yet.
    Early {
        /// Seconds until `nbf`.
        in_s: u64,
    },
    /// The signature is valid, but the claims are not.
    Claims(ClaimsError),
}

/// Why the claims of a token are invalid.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClaimsError {
    /// Invalid JSON, or a member twice: the column, from 1.
    Json(usize),
    /// A claim of another type: its name, and the expected value.
    Type(String, &'static str),
    /// A time so late that it must be in milliseconds: the name of the claim, and the time.
    Milliseconds(&'static str, u64),
    Subject(SubjectError),
    /// An invalid pattern in the list of this act.
    Pattern(Act, ChannelPatternError),
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("expected a JWT, or a token of auth.tokens"),
            Self::Critical => f.write_str("its extensions (crit) are not supported"),
            Self::Algorithm => f.write_str("its algorithm is not HS256, ES256 or EdDSA"),
            Self::Signature => f.write_str("no key of this server verifies its signature"),
            Self::Expired { ago_s } => write!(f, "it expired {ago_s} s ago (`exp`)"),
            Self::Early { in_s } => write!(f, "it becomes valid in {in_s} s (`nbf`): check the clocks"),
            Self::Claims(error) => write!(f, "its claims are invalid: {error}"),
        }
    }
}

impl fmt::Display for ClaimsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(column) => {
                write!(f, "not a JSON object, or a member appears twice, at column {column}")
            }
            Self::Type(claim, expected) => write!(f, "`{claim}` is not {expected}"),
            Self::Milliseconds(claim, time) => {
                write!(
                    f,
                    "`{claim}` is {time}, after the year 5000: expected seconds since 1970, not milliseconds"
                )
            }
            Self::Subject(error) => error.fmt(f),
            Self::Pattern(act, error) => write!(f, "`encke.{}`: {error}", act.name()),
        }
    }
}

/// The head of a token. Other members are ignored (RFC 7515 §4).
#[derive(Deserialize)]
struct TokenHead {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    crit: Option<IgnoredAny>,
}

/// The claims of a token. Other claims are ignored.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Claims {
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(super) sub: Option<String>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(super) exp: Option<NumericDate>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub(super) nbf: Option<NumericDate>,
    #[serde(default, deserialize_with = "object")]
    pub(super) encke: ChannelClaims,
}

/// Patterns of channels, by act.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ChannelClaims {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) publish: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) subscribe: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) presence: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) manage: Vec<String>,
}

impl ChannelClaims {
    pub(super) fn patterns(&self, act: Act) -> &[String] {
        match act {
            Act::Publish => &self.publish,
            Act::Subscribe => &self.subscribe,
            Act::Presence => &self.presence,
            Act::Manage => &self.manage,
        }
    }
}

/// Verifies a token: one of `keys` has signed it, and it is valid at `now_s` (seconds since 1970).
///
/// # Errors
/// The reason for rejecting the token.
pub(super) fn verify<'k>(token: &str, keys: &'k [Key], now_s: u64) -> Result<Statement<'k>, TokenError> {
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Form)?;
    let (head, claims) = signed.split_once('.').ok_or(TokenError::Form)?;
    // A fourth part would put a dot into one of these, which base64url does not contain.
    let [head, claims, signature] = [head, claims, signature]
        .map(|part| Base64UrlUnpadded::decode_vec(part).map_err(|_| TokenError::Form));
    let (head, claims, signature) = (head?, claims?, signature?);
    let Object(head) = serde_json::from_slice::<Object<TokenHead>>(&head).map_err(|_| TokenError::Form)?;
    if head.crit.is_some() {
        return Err(TokenError::Critical);
    }
    let algorithm = Algorithm::of(&head.alg).ok_or(TokenError::Algorithm)?;
    let may_have_signed = |key: &&Key| {
        let named = head.kid.as_deref().zip(key.kid.as_deref());
        key.algorithm() == algorithm && named.is_none_or(|(wanted, kid)| wanted == kid)
    };
    let key = keys
        .iter()
        .filter(may_have_signed)
        .find(|key| key.verifies(signed.as_bytes(), &signature))
        .ok_or(TokenError::Signature)?;
    let Object(claims) = serde_json::from_slice::<Object<Claims>>(&claims)
        .map_err(|error| TokenError::Claims(ClaimsError::of(&claims, &error)))?;
    claims.state(key, now_s)
}

impl ClaimsError {
    /// Finds the claim of another type in a text that could not be parsed.
    fn of(claims: &[u8], error: &serde_json::Error) -> Self {
        use serde_json::Value;

        let json = Self::Json(error.column());
        let Ok(Value::Object(members)) = serde_json::from_slice(claims) else { return json };
        let is_wrong = |claim: &str, is_right: fn(&Value) -> bool| {
            members.get(claim).is_some_and(|value| !is_right(value))
        };
        if is_wrong("sub", Value::is_string) {
            return Self::Type("sub".into(), "a string");
        }
        if let Some(claim) = ["exp", "nbf"].into_iter().find(|claim| is_wrong(claim, Value::is_number)) {
            return Self::Type(claim.into(), "a number of seconds since 1970");
        }
        if is_wrong("encke", Value::is_object) {
            return Self::Type("encke".into(), "an object of lists");
        }
        let is_list = |value: &Value| value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
        let of_act = |act: &Act| members.get("encke").and_then(|lists| lists.get(act.name()));
        match Act::ALL.into_iter().find(|act| of_act(act).is_some_and(|value| !is_list(value))) {
            Some(act) => Self::Type(format!("encke.{}", act.name()), "a list of strings"),
            None => json,
        }
    }
}

impl Claims {
    fn state(self, key: &Key, now_s: u64) -> Result<Statement<'_>, TokenError> {
        let claims = TokenError::Claims;
        for (claim, date) in [("exp", self.exp), ("nbf", self.nbf)] {
            if let Some(NumericDate(time)) = date.filter(|NumericDate(time)| *time > SECONDS_MAX) {
                return Err(claims(ClaimsError::Milliseconds(claim, time)));
            }
        }
        let expires_unix_s = self.exp.map(|NumericDate(at_s)| at_s);
        if let Some(ago_s) = expires_unix_s.and_then(|at_s| now_s.checked_sub(at_s)) {
            return Err(TokenError::Expired { ago_s });
        }
        if let Some(in_s) = self.nbf.and_then(|NumericDate(at_s)| at_s.checked_sub(now_s))
            && in_s > EARLY_S_MAX
        {
            return Err(TokenError::Early { in_s });
        }
        self.sub
            .as_deref()
            .map_or(Ok(()), check_subject)
            .map_err(|error| claims(ClaimsError::Subject(error)))?;
        let grants = Grants::named(|act| self.encke.patterns(act))
            .map_err(|(act, error)| claims(ClaimsError::Pattern(act, error)))?;
        Ok(Statement { subject: self.sub, expires_unix_s, grants, key })
    }
}

/// Rejects an invalid user name.
pub(super) fn check_subject(name: &str) -> Result<(), SubjectError> {
    let wrong = name.is_empty() || name.len() > SUBJECT_BYTES_MAX || name.chars().any(char::is_control);
    if wrong { Err(SubjectError) } else { Ok(()) }
}

/// Encodes and signs a token.
pub(super) fn sign(claims: &Claims, signing: &Signing, kid: Option<&str>) -> String {
    #[derive(Serialize)]
    struct Head<'a> {
        alg: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        kid: Option<&'a str>,
        typ: &'static str,
    }
    let head = Head { alg: signing.algorithm().name(), kid, typ: "JWT" };
    let part = |json: serde_json::Result<Vec<u8>>| {
        Base64UrlUnpadded::encode_string(&json.expect("text and numbers can be written as JSON"))
    };
    let signed = format!("{}.{}", part(serde_json::to_vec(&head)), part(serde_json::to_vec(claims)));
    let signature = Base64UrlUnpadded::encode_string(&signing.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// Whole seconds since 1970 (RFC 7519 §2). Fractions are cut off, and earlier times count as 1970.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct NumericDate(pub(super) u64);

impl<'de> Deserialize<'de> for NumericDate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = NumericDate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("seconds since 1970")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<NumericDate, E> {
                Ok(NumericDate(number))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<NumericDate, E> {
                Ok(NumericDate(u64::try_from(number).unwrap_or(0)))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<NumericDate, E> {
                // A cast from a float saturates.
                Ok(NumericDate(number as u64))
            }
        }

        deserializer.deserialize_any(Number)
    }
}

/// A JSON object. For a struct alone, serde also accepts a list of its values in order.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members)).map(Object)
            }
        }

        deserializer.deserialize_map(Members(PhantomData))
    }
}

fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Object::deserialize(deserializer).map(|Object(value)| value)
}

/// A present member must have a value: `"exp": null` is an error of the signer, not a token without expiry.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use hmac::KeyInit;
    use p256::pkcs8::LineEnding;

    use super::super::keys::tests::{SECRET, signings, verifying};
    use super::*;

    const NOW_S: u64 = 1_795_300_000;

    /// A token with any head and claims, signed over its text.
    fn token(head: &str, claims: &str, signing: &Signing) -> String {
        let part = |text: &str| Base64UrlUnpadded::encode_string(text.as_bytes());
        let signed = format!("{}.{}", part(head), part(claims));
        format!("{signed}.{}", Base64UrlUnpadded::encode_string(&signing.sign(signed.as_bytes())))
    }

    /// Verifies claims in a correctly signed token.
    fn verified(claims: &str) -> Result<Option<u64>, TokenError> {
        let [hs256, ..] = signings();
        let keys = [verifying(&hs256, None)];
        verify(&token(r#"{"alg":"HS256"}"#, claims, &hs256), &keys, NOW_S)
            .map(|statement| statement.expires_unix_s)
    }

    fn fault(result: Result<Statement<'_>, TokenError>) -> TokenError {
        result.err().expect("it was taken")
    }

    #[test]
    fn what_is_signed_here_is_taken_here() {
        let claims = Claims {
            sub: Some("ann".into()),
            exp: Some(NumericDate(NOW_S + 60)),
            nbf: Some(NumericDate(NOW_S)),
            encke: ChannelClaims { publish: vec!["news/*".into()], ..ChannelClaims::default() },
        };
        for signing in signings() {
            let keys = [verifying(&signing, Some("a"))];
            for kid in [None, Some("a")] {
                let token = sign(&claims, &signing, kid);
                let statement = verify(&token, &keys, NOW_S).unwrap_or_else(|fault| panic!("{fault}"));
                assert_eq!(statement.subject.as_deref(), Some("ann"));
                assert_eq!(statement.expires_unix_s, Some(NOW_S + 60));
            }
            assert_eq!(
                fault(verify(&sign(&claims, &signing, Some("b")), &keys, NOW_S)),
                TokenError::Signature
            );
            let unnamed = [verifying(&signing, None)];
            assert!(verify(&sign(&claims, &signing, Some("b")), &unnamed, NOW_S).is_ok());
        }
    }

    #[test]
    fn the_example_of_rfc_7515_is_taken_until_it_ends() {
        // Appendix A.1, with its key. The claims are `iss`, `exp` and a private one.
        let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0\
                     dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let set = r#"{"keys": [{"kty": "oct", "alg": "HS256", "k":
            "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}]}"#;
        let keys = super::super::keys::of_jwks_text(set).expect("a key");
        assert_eq!(
            verify(token, &keys, 1_300_819_379).map(|told| told.expires_unix_s),
            Ok(Some(1_300_819_380))
        );
        assert_eq!(fault(verify(token, &keys, 1_300_819_380)), TokenError::Expired { ago_s: 0 });
    }

    #[test]
    fn a_token_says_nothing_of_how_it_is_verified() {
        let [hs256, es256, eddsa] = signings();
        let keys = [verifying(&es256, None), verifying(&eddsa, None)];
        let claims = "{}";
        for name in ["none", "None", "NONE", "nOnE", "", "HS384", "HS512", "RS256", "PS256", "ES384", "hs256"]
        {
            let head = format!(r#"{{"alg":"{name}"}}"#);
            assert_eq!(
                fault(verify(&token(&head, claims, &es256), &keys, NOW_S)),
                TokenError::Algorithm,
                "{name}"
            );
            let unsigned =
                format!("{}.", token(&head, claims, &es256).rsplit_once('.').expect("three parts").0);
            assert_eq!(fault(verify(&unsigned, &keys, NOW_S)), TokenError::Algorithm, "{name}");
        }
        // A signature of one algorithm under the name of another.
        for (name, signing) in [("ES256", &eddsa), ("EdDSA", &es256), ("ES256", &hs256), ("HS256", &es256)] {
            let head = format!(r#"{{"alg":"{name}"}}"#);
            assert_eq!(
                fault(verify(&token(&head, claims, signing), &keys, NOW_S)),
                TokenError::Signature,
                "{name}"
            );
        }
        // Keys in the token's own head.
        for member in [r#""jwk":{"kty":"oct","alg":"HS256","k":"AAAA"}"#, r#""jku":"http://evil.example/""#] {
            let head = format!(r#"{{"alg":"HS256",{member}}}"#);
            assert_eq!(
                fault(verify(&token(&head, claims, &hs256), &keys, NOW_S)),
                TokenError::Signature,
                "{member}"
            );
        }
    }

    /// CVE-2015-9235 and many similar ones: a token "signed" by HS256 with the text of the public key as the secret.
    #[test]
    fn a_public_key_is_no_secret() {
        let [_, es256, eddsa] = signings();
        for pair in [&es256, &eddsa] {
            let keys = [verifying(pair, Some("a"))];
            for secret in public_forms(pair) {
                let forger = Signing::Hs256(KeyInit::new_from_slice(&secret).expect("any length"));
                for head in [r#"{"alg":"HS256"}"#, r#"{"alg":"HS256","kid":"a"}"#, r#"{"alg":"ES256"}"#] {
                    assert_eq!(
                        fault(verify(&token(head, "{}", &forger), &keys, NOW_S)),
                        TokenError::Signature
                    );
                }
            }
        }
    }

    /// A public key in the forms an attacker could use: PEM with and without its last line end, DER, raw.
    fn public_forms(pair: &Signing) -> Vec<Vec<u8>> {
        use ed25519_dalek::pkcs8::spki::EncodePublicKey as _;
        let (der, pem, raw) = match pair {
            Signing::Es256(key) => {
                let key = key.verifying_key();
                (
                    key.to_public_key_der(),
                    key.to_public_key_pem(LineEnding::LF),
                    key.to_sec1_bytes().into_vec(),
                )
            }
            Signing::EdDsa(key) => {
                let key = key.verifying_key();
                (key.to_public_key_der(), key.to_public_key_pem(LineEnding::LF), key.to_bytes().to_vec())
            }
            Signing::Hs256(_) => panic!("a secret has no public half"),
        };
        let (der, pem) = (der.expect("it can be written"), pem.expect("it can be written"));
        vec![pem.trim_end().as_bytes().to_vec(), pem.into_bytes(), der.as_bytes().to_vec(), raw]
    }

    #[test]
    fn critical_extensions_are_refused() {
        let [hs256, ..] = signings();
        let keys = [verifying(&hs256, None)];
        for crit in [r#"["b64"]"#, r#"["exp"]"#, "[]"] {
            let head = format!(r#"{{"alg":"HS256","crit":{crit},"b64":false}}"#);
            assert_eq!(
                fault(verify(&token(&head, "{}", &hs256), &keys, NOW_S)),
                TokenError::Critical,
                "{crit}"
            );
        }
    }

    #[test]
    fn a_token_begins_and_ends_when_it_says() {
        let late = NOW_S + 1;
        for (claims, expected) in [
            ("{}".into(), Ok(None)),
            (format!(r#"{{"exp":{late}}}"#), Ok(Some(late))),
            (format!(r#"{{"exp":{late}.5}}"#), Ok(Some(late))),
            (format!(r#"{{"exp":{NOW_S}}}"#), Err(TokenError::Expired { ago_s: 0 })),
            (r#"{"exp":0}"#.into(), Err(TokenError::Expired { ago_s: NOW_S })),
            (r#"{"exp":-5}"#.into(), Err(TokenError::Expired { ago_s: NOW_S })),
            (format!(r#"{{"exp":{SECONDS_MAX}}}"#), Ok(Some(SECONDS_MAX))),
            (format!(r#"{{"nbf":{}}}"#, NOW_S + EARLY_S_MAX), Ok(None)),
            (
                format!(r#"{{"nbf":{}}}"#, late + EARLY_S_MAX),
                Err(TokenError::Early { in_s: EARLY_S_MAX + 1 }),
            ),
        ] {
            assert_eq!(verified(&claims), expected, "{claims}");
        }
    }

    #[test]
    fn an_invalid_claim_is_named_with_the_expected_value() {
        let ms = NOW_S * 1_000;
        for (claims, expected) in [
            (format!(r#"{{"exp":{ms}}}"#), "`exp` is 1795300000000, after the year 5000: expected seconds"),
            (
                r#"{"exp":1e300}"#.into(),
                "`exp` is 18446744073709551615, after the year 5000: expected seconds",
            ),
            (format!(r#"{{"exp":{},"nbf":{ms}}}"#, NOW_S + 1), "`nbf` is 1795300000000, after the year 5000"),
            (r#"{"exp":"1795300001"}"#.into(), "`exp` is not a number of seconds since 1970"),
            (r#"{"nbf":null}"#.into(), "`nbf` is not a number"),
            (r#"{"sub":5}"#.into(), "`sub` is not a string"),
            (r#"{"sub":""}"#.into(), "(`sub`)"),
            (r#"{"encke":[]}"#.into(), "`encke` is not an object of lists"),
            (r#"{"encke":{"publish":"**"}}"#.into(), "`encke.publish` is not a list of strings"),
            (r#"{"encke":{"manage":[5]}}"#.into(), "`encke.manage` is not a list of strings"),
            (
                r#"{"encke":{"publish":["a"],"presence":["a//b"]}}"#.into(),
                "`encke.presence`: invalid channel pattern",
            ),
            (r#"{"exp":1,"exp":2}"#.into(), "a member appears twice, at column 14"),
            (format!(r#"{{"exp":{NOW_S}}}"#), "expired 0 s ago (`exp`)"),
            (format!(r#"{{"nbf":{}}}"#, NOW_S + 99), "valid in 99 s (`nbf`)"),
        ] {
            let text = verified(&claims).expect_err(&claims).to_string();
            assert!(text.contains(expected), "{claims}: {text}");
        }
    }

    #[test]
    fn claims_that_cannot_be_meant_are_refused() {
        let long = format!(r#"{{"sub":"{}"}}"#, "x".repeat(SUBJECT_BYTES_MAX + 1));
        for claims in [
            "",
            "[]",
            r#"["ann", 9795300000]"#,
            "null",
            "5",
            "{",
            "{}{}",
            r#"{"exp":null}"#,
            r#"{"exp":"1795300001"}"#,
            r#"{"exp":[1]}"#,
            r#"{"exp":1795300001,"exp":9795300001}"#,
            r#"{"nbf":null}"#,
            r#"{"sub":null}"#,
            r#"{"sub":5}"#,
            r#"{"sub":""}"#,
            r#"{"sub":"a\nb"}"#,
            &long,
            r#"{"encke":null}"#,
            r#"{"encke":[]}"#,
            r#"{"encke":{"publish":"**"}}"#,
            r#"{"encke":{"publish":[5]}}"#,
            r#"{"encke":{"publish":["a//b"]}}"#,
            r#"{"encke":{"publish":null}}"#,
            r#"{"encke":{},"encke":{}}"#,
        ] {
            assert!(
                matches!(verified(claims), Err(TokenError::Claims(_))),
                "{claims}: {:?}",
                verified(claims)
            );
        }
        assert_eq!(verified(r#"{"iss":"x","aud":["y"],"encke":{"later":["**"],"publish":[]}}"#), Ok(None));
    }

    #[test]
    fn every_other_form_is_refused() {
        let [hs256, ..] = signings();
        let keys = [verifying(&hs256, None)];
        let good = token(r#"{"alg":"HS256"}"#, r#"{"exp":9795300000}"#, &hs256);
        assert!(verify(&good, &keys, NOW_S).is_ok());
        for end in 0..good.len() {
            assert!(verify(&good[..end], &keys, NOW_S).is_err(), "cut at {end}");
        }
        for at in 0..good.len() {
            let mut changed = good.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert!(verify(&changed, &keys, NOW_S).is_err(), "changed at {at}");
        }
        let [head, claims, signature] = &good.split('.').collect::<Vec<_>>()[..] else {
            panic!("three parts")
        };
        for other in [
            String::new(),
            "..".into(),
            format!("{good}."),
            format!(".{good}"),
            format!("{head}..{claims}.{signature}"),
            format!("{head}.{claims}.{signature}.{signature}.{signature}"),
            format!("{head}.{claims}.{signature}="),
            format!("{head}=.{claims}.{signature}"),
            format!("{head}.{claims}.{signature} "),
            good.replace('.', ","),
            SECRET.into(),
        ] {
            assert_eq!(fault(verify(&other, &keys, NOW_S)), TokenError::Form, "{other}");
        }
        // The head as a list of its values.
        assert_eq!(fault(verify(&token(r#"["HS256"]"#, "{}", &hs256), &keys, NOW_S)), TokenError::Form);
        // Duplicate `alg`: neither counts.
        let twice = token(r#"{"alg":"HS256","alg":"none"}"#, "{}", &hs256);
        assert_eq!(fault(verify(&twice, &keys, NOW_S)), TokenError::Form);
    }
}
