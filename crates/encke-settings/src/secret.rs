//! Secrets: written in place, or better in a file or an environment variable; masked wherever they are shown.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fmt, io};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor, value};
use serde::ser::{Serialize, Serializer};

use crate::conceal;

/// A secret, or the place that contains it.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The secret itself, written in the settings file.
    Text(String),
    /// A file whose first line is the secret.
    File(PathBuf),
    /// The name of an environment variable.
    Env(String),
}

/// Maximum number of bytes read from a secret's file: a token has some 30, a JWT some 1,000.
const FILE_BYTES_MAX: u64 = 64 * 1024;

impl Secret {
    /// Reads the secret. Call this when the secret is needed, and do not keep the result. From then on [`conceal`] masks it in all
    /// texts.
    ///
    /// # Errors
    /// The file cannot be read, the variable is not set or not UTF-8, or the secret is empty.
    pub fn reveal(&self) -> Result<String, SecretError> {
        let text = match self {
            Self::Text(text) => text.clone(),
            Self::File(path) => first_line(path).map_err(|error| SecretError::File(path.clone(), error))?,
            Self::Env(name) => std::env::var(name).map_err(|_| SecretError::Variable(name.clone()))?,
        };
        if text.is_empty() {
            return Err(SecretError::Empty(self.clone()));
        }
        conceal::remember(&text);
        Ok(text)
    }
}

/// Variables of the environment that settings have named, in any section, since the start.
static VARIABLES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn note_variable(name: &str) {
    let mut variables = VARIABLES.lock().unwrap_or_else(PoisonError::into_inner);
    if !variables.contains(name) {
        variables.insert(name.to_owned());
    }
}

/// The variables of the environment from which secrets of the settings are read, also of earlier settings: they are in the
/// environment until the end. Other programs must not inherit them.
pub fn secret_variables() -> Vec<String> {
    VARIABLES.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}

/// Why a secret cannot be read. The origin is always this machine: its settings, files or environment.
#[derive(Debug)]
#[non_exhaustive]
pub enum SecretError {
    /// The file cannot be read.
    File(PathBuf, io::Error),
    /// The environment variable of this name is not set or not UTF-8. The system's error is dropped because it may contain the
    /// secret.
    Variable(String),
    /// The secret at this place is empty.
    Empty(Secret),
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "secret file {}: {error}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name} is not set or not UTF-8"),
            Self::Empty(secret) => write!(f, "the secret in {secret:?} is empty"),
        }
    }
}

impl Error for SecretError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::File(_, error) => Some(error),
            Self::Variable(_) | Self::Empty(_) => None,
        }
    }
}

fn first_line(path: &Path) -> io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    encke_io::files::open_regular(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Shows the place of the secret, never its value.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str(MASK),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Env(name) => write!(f, "environment variable {name}"),
        }
    }
}

const MASK: &str = "********";

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum SecretSource {
    File(PathBuf),
    Env(String),
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, { file = \"PATH\" } or { env = \"NAME\" }")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Secret, E> {
                if text.is_empty() {
                    Err(E::custom("a secret may not be empty"))
                } else {
                    Ok(Secret::Text(text.into()))
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Secret, A::Error> {
                Ok(match SecretSource::deserialize(value::MapAccessDeserializer::new(map))? {
                    SecretSource::File(path) => Secret::File(path),
                    SecretSource::Env(name) => {
                        note_variable(&name);
                        Secret::Env(name)
                    }
                })
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(_) => serializer.serialize_str(MASK),
            Self::File(path) => SecretSource::File(path.clone()).serialize(serializer),
            Self::Env(name) => SecretSource::Env(name.clone()).serialize(serializer),
        }
    }
}

impl JsonSchema for Secret {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let place = |key: &str| {
            json_schema!({
                "type": "object",
                "properties": { key: { "type": "string" } },
                "required": [key],
                "additionalProperties": false,
            })
        };
        // `writeOnly`: viewers mask the value, forms do not show what is typed.
        json_schema!({
            "anyOf": [{ "type": "string", "minLength": 1 }, place("file"), place("env")],
            "writeOnly": true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Secret, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn a_secret_is_text_or_a_place_where_it_is_found() {
        assert_eq!(read(r#""abc""#).expect("text"), Secret::Text("abc".into()));
        assert_eq!(read(r#"{"file": "/run/token"}"#).expect("a file"), Secret::File("/run/token".into()));
        assert_eq!(read(r#"{"env": "TOKEN"}"#).expect("a variable"), Secret::Env("TOKEN".into()));
        for wrong in [r#""""#, "5", "{}", r#"{"fil": "x"}"#, r#"{"file": "x", "env": "y"}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_secret_is_never_shown() {
        let secret = Secret::Text("hunter2".into());
        assert!(!format!("{secret:?}").contains("hunter2"));
        assert!(!serde_json::to_string(&secret).expect("JSON").contains("hunter2"));
    }

    #[test]
    fn the_first_line_of_a_file_is_the_secret() {
        let path = std::env::temp_dir().join(format!("encke-secret-{}", std::process::id()));
        std::fs::write(&path, "s3cret \nsecond line\n").expect("a temporary file");
        let secret = Secret::File(path.clone());
        assert_eq!(secret.reveal().expect("a line"), "s3cret");
        std::fs::write(&path, "\n").expect("a temporary file");
        assert!(secret.reveal().expect_err("empty").to_string().contains("is empty"));
        std::fs::remove_file(&path).expect("it was there");
        assert!(secret.reveal().expect_err("gone").to_string().contains("encke-secret"));
    }

    // Windows: pipes have no names in directories.
    #[cfg(unix)]
    #[test]
    fn a_named_pipe_is_no_secret_and_does_not_hang() {
        let path = std::env::temp_dir().join(format!("encke-secret-pipe-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo(1)");
        assert!(made.success());
        let error = Secret::File(path.clone()).reveal().expect_err("a pipe").to_string();
        std::fs::remove_file(&path).expect("it was there");
        assert!(error.contains("not a regular file") && error.contains("encke-secret-pipe"), "{error}");
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        let error = Secret::Env("ENCKE_NO_SUCH_VARIABLE".into()).reveal().expect_err("not set").to_string();
        assert!(error.contains("ENCKE_NO_SUCH_VARIABLE"), "{error}");
    }
}
