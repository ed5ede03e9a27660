//! The one masking of secrets, for everything that leaves the program: settings, explanations, lists, metrics, notices.
//!
//! ```text
//!  Secret::reveal, secret parts of settings ─► remember ─► known secrets
//!                                                              │
//!  text for the console or standard error ─────────────► conceal ─► text with ••• in their place
//! ```
//! - A known secret is concealed in every text, such as an error with a URL, or the output of an application that prints its
//!   environment. Secrets below [`SECRET_BYTES_MIN`] are not, because they would also be parts of other words.
//! - User information of URLs and values with a name like `token=` are concealed even if they are not known.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Mutex;

use encke_io::lock;
use serde_json::Value;

/// What replaces a secret.
pub const MASK: &str = "•••";

/// Minimum length in bytes of a secret that is concealed in other texts.
pub const SECRET_BYTES_MIN: usize = 8;

/// Maximum number of known secrets: 1,024 static tokens, and as many keys, hashes and variables. Then the oldest is forgotten.
const SECRETS_MAX: usize = 8 * 1024;

/// Words in names whose values are secrets.
const SECRET_WORDS: &[&str] = &["auth", "cookie", "key", "password", "passwd", "secret", "token"];

/// Minimum length of a text that looks like a key, and of its digits and letters. Most words have no digits.
const KEY_BYTES_MIN: usize = 16;
const KEY_DIGITS_MIN: usize = 2;

/// The known secrets, oldest first.
static KNOWN: Mutex<Vec<Box<str>>> = Mutex::new(Vec::new());

/// Conceals a secret in all later texts.
pub fn remember(secret: &str) {
    let escaped = Value::from(secret).to_string();
    let in_json = escaped.trim_start_matches('"').trim_end_matches('"');
    let mut known = lock(&KNOWN);
    for form in [secret, in_json] {
        if form.len() >= SECRET_BYTES_MIN && known.iter().all(|other| **other != *form) {
            if known.len() >= SECRETS_MAX {
                known.remove(0);
            }
            known.push(form.into());
        }
    }
}

/// Replaces secrets in a text.
pub fn conceal(text: &str) -> Cow<'_, str> {
    let known = conceal_known(text);
    let parts = secret_parts(&known);
    if parts.is_empty() { known } else { Cow::Owned(without(&known, parts)) }
}

/// Replaces known secrets in a text.
pub fn conceal_known(text: &str) -> Cow<'_, str> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for secret in lock(&KNOWN).iter() {
        found.extend(text.match_indices(&**secret).map(|(at, _)| at..at + secret.len()));
    }
    if found.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(without(text, found)) }
}

/// Replaces secrets in the values of a JSON text. Its keys stay.
pub fn conceal_json(text: String) -> String {
    if matches!(conceal(&text), Cow::Borrowed(_)) {
        return text;
    }
    match serde_json::from_str::<Value>(&text) {
        Ok(mut value) => {
            conceal_value(&mut value);
            value.to_string()
        }
        Err(_) => conceal(&text).into_owned(),
    }
}

fn conceal_value(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(concealed) = conceal(text) {
                *text = concealed;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(conceal_value),
        Value::Object(map) => map.values_mut().for_each(conceal_value),
        _ => {}
    }
}

/// Replaces parts of a text, which may overlap.
fn without(text: &str, mut parts: Vec<Range<usize>>) -> String {
    parts.sort_by_key(|part| part.start);
    let mut concealed = String::with_capacity(text.len());
    let mut at = 0;
    for part in parts {
        if part.start >= at {
            concealed.push_str(text.get(at..part.start).unwrap_or_default());
            concealed.push_str(MASK);
        }
        at = at.max(part.end);
    }
    concealed.push_str(text.get(at..).unwrap_or_default());
    concealed
}

/// Replaces the secret parts of a value of the settings.
pub fn conceal_setting(text: &str) -> Cow<'_, str> {
    let parts = setting_parts(text);
    if parts.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(without(text, parts)) }
}

/// Whether the values of a name are secrets.
pub fn sounds_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Whether a text looks like a key: long, and digits among letters.
pub fn is_key_like(text: &str) -> bool {
    let count = |is_counted: fn(&u8) -> bool| text.bytes().filter(is_counted).count();
    let (digits, letters) = (count(u8::is_ascii_digit), count(u8::is_ascii_alphabetic));
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_~.%+".contains(&byte));
    text.len() >= KEY_BYTES_MIN
        && is_plain
        && digits >= KEY_DIGITS_MIN
        && letters >= KEY_DIGITS_MIN
        && !text.starts_with('-')
}

/// The secret parts of any text: user information of URLs, and values whose name sounds like a secret.
pub fn secret_parts(text: &str) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = urls(text).filter_map(|start| user_info(text, start)).collect();
    add_assigned(text, &mut parts);
    parts
}

/// The secret parts of a value of the settings: also user information without a scheme, and keys in the paths of URLs.
pub fn setting_parts(text: &str) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    for start in urls(text) {
        parts.extend(user_info(text, start));
        parts.extend(keys_in_path(text, start));
    }
    if urls(text).next().is_none() && !text.starts_with("unix:") {
        let end = text.rfind('@').filter(|end| text[..*end].contains(':'));
        parts.extend(end.map(|end| 0..end));
    }
    add_assigned(text, &mut parts);
    parts.sort_by_key(|part| part.start);
    parts
}

/// The starts of the authorities of all URLs.
fn urls(text: &str) -> impl Iterator<Item = usize> {
    text.match_indices("://").map(|(at, scheme)| at + scheme.len())
}

/// Characters that end a URL within a text.
const URL_ENDS: [char; 6] = [' ', ',', '"', '\'', '\n', '\t'];

/// Limit of a URL, so that the time of a search grows with the length of the text only.
const URL_BYTES_MAX: usize = 2048;

fn url_from(text: &str, start: usize) -> &str {
    let url = text.get(start..).unwrap_or_default();
    let url = &url[..url.floor_char_boundary(URL_BYTES_MAX)];
    &url[..url.find(URL_ENDS).unwrap_or(url.len())]
}

/// The user information of the URL whose authority begins at `start`.
fn user_info(text: &str, start: usize) -> Option<Range<usize>> {
    let url = url_from(text, start);
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    // A password with a slash that is not encoded ends the authority too early, and its first part is no port.
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    let is_whole = authority.contains('@') || port.bytes().all(|byte| byte.is_ascii_digit());
    let end = if is_whole { authority.rfind('@') } else { url.rfind('@') }?;
    let is_masked = url.get(..end) == Some(MASK);
    (end > 0 && !is_masked).then_some(start..start + end)
}

/// The segments of a URL's path that look like keys.
fn keys_in_path(text: &str, start: usize) -> Vec<Range<usize>> {
    let url = url_from(text, start);
    let path = &url[..url.find(['?', '#']).unwrap_or(url.len())];
    let segments = path.match_indices('/').map(|(slash, _)| slash + 1);
    let ranges = segments.map(|from| from..path[from..].find('/').map_or(path.len(), |end| from + end));
    ranges
        .filter(|range| is_key_like(&path[range.clone()]))
        .map(|range| start + range.start..start + range.end)
        .collect()
}

/// Adds the values of `NAME=VALUE` whose name sounds like a secret, in queries, arguments and commands.
fn add_assigned(text: &str, parts: &mut Vec<Range<usize>>) {
    let mut searched = 0;
    for (equals, _) in text.match_indices('=') {
        let before = &text[..equals];
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
        let name = &before[before.trim_end_matches(is_name).len()..];
        if equals < searched || !sounds_secret(name) {
            continue;
        }
        let start = equals + 1;
        let value = text[start..].split(ends_value).next().unwrap_or_default();
        searched = start + value.len();
        let is_masked = value.is_empty() || value == MASK || value.starts_with("***");
        if !is_masked && parts.iter().all(|part| part.end <= start || part.start >= searched) {
            parts.push(start..searched);
        }
    }
}

fn ends_value(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '&' | '#' | ';' | ',' | '"' | '\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_secrets_are_concealed_in_every_text() {
        remember("conceal-test-one");
        remember("conceal-\"test\"-two");
        remember("short");
        assert_eq!(conceal("a conceal-test-one, a short b"), format!("a {MASK}, a short b"));
        let json = r#"{"conceal-test-one":["conceal-\"test\"-two",1],"b":{"c":"x conceal-test-one"}}"#;
        let expected = format!(r#"{{"conceal-test-one":["{MASK}",1],"b":{{"c":"x {MASK}"}}}}"#);
        let values = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        assert_eq!(values(&conceal_json(json.to_owned())), values(&expected));
        assert_eq!(conceal_json(r#"{"a":1}"#.to_owned()), r#"{"a":1}"#);
        assert_eq!(conceal_json("no JSON, conceal-test-one".to_owned()), format!("no JSON, {MASK}"));
    }

    #[test]
    fn the_secrets_of_texts_are_found_by_their_form() {
        for (text, expected) in [
            ("cannot reach nats://a:s3cret@h:4222, again", "cannot reach nats://•••@h:4222, again"),
            (
                "ann@example.org: asked http://h/x?token=s3cret&b=1",
                "ann@example.org: asked http://h/x?token=•••&b=1",
            ),
            ("run --password=s3cret --port=80", "run --password=••• --port=80"),
            ("sh -c 'API_KEY=s3cret exec app'", "sh -c 'API_KEY=••• exec app'"),
            ("GET /x?access_token=***", "GET /x?access_token=***"),
            ("/hooks/T01234567/abcdef0123456789", "/hooks/T01234567/abcdef0123456789"),
            ("edit = true, key = x", "edit = true, key = x"),
        ] {
            assert_eq!(conceal(text), expected);
            assert_eq!(conceal(expected), expected, "a second time");
        }
    }

    #[test]
    fn the_secrets_of_settings_are_found_by_their_form() {
        for (text, expected) in [
            ("nats://s3cret@h:4222", "nats://•••@h:4222"),
            ("nats://a:s3@cret@h:4222/x", "nats://•••@h:4222/x"),
            ("nats://a:s3/cret@h", "nats://•••@h"),
            ("nats://a@h,nats://s3cret@i", "nats://•••@h,nats://•••@i"),
            ("a:s3cret@h:1", "•••@h:1"),
            ("http://h/?token=s3cret&x=1&api_key=s3cret#f", "http://h/?token=•••&x=1&api_key=•••#f"),
            ("/path?Key=s3cret", "/path?Key=•••"),
            ("https://h:443/@scope", "https://h:443/@scope"),
            ("https://h/hooks/abcdef0123456789/x", "https://h/hooks/•••/x"),
            ("https://h/some/ordinary-long-words/v2", "https://h/some/ordinary-long-words/v2"),
            ("unix:@name", "unix:@name"),
            ("ann@example.org", "ann@example.org"),
            ("http://h/?x=1", "http://h/?x=1"),
            ("://", "://"),
            ("é=é&tokén=x", "é=é&tokén=x"),
        ] {
            assert_eq!(conceal_setting(text), expected);
        }
    }
}
