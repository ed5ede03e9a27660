//! The command line and the URLs in reports, without their secrets: reports are printed, saved and passed on.
//!
//! ```text
//!   -H 'Authorization: Bearer abc'  ──►  -H 'Authorization: …'      --token abc  ──►  --token '…'
//!   http://h/?token=abc&x=1         ──►  http://h/?token=…&x=1      http://ann:abc@h/  ──►  http://…@h/
//! ```
//! A secret is recognised by the name of its field, parameter or flag. Secrets in bodies and files stay unrecognised: a report
//! contains a body only as written after `--body`, and of files only the names.

use super::imitate::{self, ValueKind};
use crate::shell;

/// Replaces a secret. Not valid in a URL, so that a command repeated without its secret fails at once.
const REDACTED: &str = "…";
/// Words that mark a name as that of a secret, as a part of it: `X-Auth-Token` has the parts `x`, `auth` and `token`.
const SECRET_PARTS: [&str; 15] = [
    "apikey",
    "auth",
    "authentication",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "jwt",
    "passwd",
    "password",
    "secret",
    "session",
    "sessionid",
    "sid",
    "signature",
];
/// Flags whose value is a body: not a URL, even if it contains one.
const BODIES: [&str; 2] = ["--body", "--expect-body"];

/// Returns the command line, quoted for a shell and without secrets.
pub(super) fn command() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    repeatable(words.collect())
}

/// Returns these words after the program's name, quoted for a shell and without secrets.
fn repeatable(mut words: Vec<String>) -> String {
    imitate::redact(&mut words, redacted);
    let mut value_of = String::new();
    for word in &mut words {
        let flag = std::mem::take(&mut value_of);
        if let Some(kind) = value_kind(&flag) {
            *word = redacted(kind, word);
        } else if BODIES.contains(&flag.as_str()) {
            continue;
        } else if let Some((flag, value)) = word.split_once('=').filter(|(flag, _)| flag.starts_with("--")) {
            *word = match value_kind(flag) {
                Some(kind) => format!("{flag}={}", redacted(kind, value)),
                None if BODIES.contains(&flag) => continue,
                None => format!("{flag}={}", url(value)),
            };
        } else if let Some(field) = word.strip_prefix("-H").filter(|field| !field.is_empty()) {
            *word = format!("-H{}", redacted(ValueKind::Field, field));
        } else if word.starts_with('-') {
            value_of.clone_from(word);
        } else {
            *word = url(word);
        }
    }
    let plain = |char: char| char.is_ascii_alphanumeric() || "-_./:=@%+,".contains(char);
    let words = words
        .into_iter()
        .map(|word| if !word.is_empty() && word.chars().all(plain) { word } else { shell::word(&word) });
    std::iter::once("encke".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// The kind of value that a flag takes, if the value may be a secret.
fn value_kind(flag: &str) -> Option<ValueKind> {
    match flag {
        "-H" | "--header" => Some(ValueKind::Field),
        "--token" => Some(ValueKind::Secret),
        _ => None,
    }
}

/// Returns a value without its secrets.
fn redacted(kind: ValueKind, value: &str) -> String {
    match (kind, value.split_once(':')) {
        (ValueKind::Secret, _) => REDACTED.to_owned(),
        (ValueKind::Field, Some((name, _))) if is_secret(name) => format!("{name}: {REDACTED}"),
        (ValueKind::Field, _) => value.to_owned(),
    }
}

/// Returns a URL without its user name and password, and without the secrets in its query. Other texts stay unchanged.
pub(crate) fn url(text: &str) -> String {
    let (start, rest) = match text.find("://") {
        Some(at) => text.split_at(at + 3),
        None => ("", text),
    };
    let (authority, behind) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let authority = match authority.rsplit_once('@') {
        // A text without a scheme may be the weight of one with it: `3@http://h/`.
        Some((_, server)) if !start.is_empty() => format!("{REDACTED}@{server}"),
        _ => authority.to_owned(),
    };
    let Some((path, query)) = behind.split_once('?') else { return format!("{start}{authority}{behind}") };
    let parameters = query.split('&').map(|parameter| match parameter.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}={REDACTED}"),
        _ => parameter.to_owned(),
    });
    format!("{start}{authority}{path}?{}", parameters.collect::<Vec<_>>().join("&"))
}

/// Whether a field or parameter of this name contains a secret.
fn is_secret(name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase();
    let joined: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    joined.contains("token")
        || joined.contains("apikey")
        || name.split(['-', '_', '.']).any(|part| SECRET_PARTS.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_command_has_no_secrets() {
        for (given, told) in [
            (&["-H", "Authorization: Bearer abc", "http://h/"][..], "-H 'Authorization: …' http://h/"),
            (&["-Hcookie:a=b"], "'-Hcookie: …'"),
            (&["--header=Proxy-Authorization: Basic abc"], "'--header=Proxy-Authorization: …'"),
            (&["--header", "X-Api-Key: abc"], "--header 'X-Api-Key: …'"),
            (&["-H", "X-Auth-Token: abc", "-H", "Accept: a/b"], "-H 'X-Auth-Token: …' -H 'Accept: a/b'"),
            (&["push", "--token", "abc", "8080"], "push --token '…' 8080"),
            (&["--token=abc"], "'--token=…'"),
            (&["--watch", "http://h:8081/metrics?token=abc"], "--watch 'http://h:8081/metrics?token=…'"),
            (&["--watch=http://ann:abc@h/"], "'--watch=http://…@h/'"),
            (&["3@http://h/?a=1&access_token=abc&b=2"], "'3@http://h/?a=1&access_token=…&b=2'"),
            (&["--subscribe-url", "/sub?authorization=abc"], "--subscribe-url '/sub?authorization=…'"),
            (&["--as", "ab", "-C", "a=abc", "http://h/"], "--as ab -C '…' http://h/"),
            (&["--as", "ab", "-kCa=abc", "-HCookie: abc"], "--as ab '-kC…' '-HCookie: …'"),
            // Other values stay as they were.
            (&["-n", "5", "-H", "Idempotency-Key: a"], "-n 5 -H 'Idempotency-Key: a'"),
            (&["--body", "x?token=abc", "8080/?author=a"], "--body 'x?token=abc' '8080/?author=a'"),
            (&["http://h/a@b", "it's"], r"http://h/a@b 'it'\''s'"),
        ] {
            let words = std::iter::once(&"load").chain(given).map(|word| (*word).to_owned());
            let told = shell::quoted_here(&format!("encke load {told}"));
            assert_eq!(repeatable(words.collect()), told, "{given:?}");
        }
    }
}
