//! `encke load --as TOOL`: translates the flags of another tool, and selects its output format.
//!
//! ```text
//!   --as ab -n 1000 -c 10 -k URL  ──►  --layout ab -n 1000 -c 10 --http10 URL
//! ```
//! The translation happens before clap parses the command line, because those flags have other meanings here.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;

/// A flag of another tool: its letter, whether it takes a value, and its translation.
type Flag = (char, bool, FlagMeaning);

#[derive(Clone, Copy)]
enum FlagMeaning {
    /// These words, followed by the value if there is one.
    Is(&'static [&'static str]),
    /// A header field of this name, with the value.
    Field(&'static str),
    /// This flag, with the value in seconds.
    Seconds(&'static str),
    /// These words, followed by the value as `@FILE`.
    File(&'static [&'static str]),
    /// Ignored.
    Nothing,
    /// Keep-alive is on.
    Keeps,
}

use FlagMeaning::{Field, File, Is, Keeps, Nothing, Seconds};

const AB: &[Flag] = &[
    ('n', true, Is(&["-n"])),
    ('c', true, Is(&["-c"])),
    ('t', true, Seconds("-d")),
    ('s', true, Seconds("--timeout")),
    ('k', false, Keeps),
    ('p', true, File(&["--body"])),
    ('u', true, File(&["-X", "PUT", "--body"])),
    ('T', true, Field("Content-Type")),
    ('C', true, Field("Cookie")),
    ('H', true, Is(&["-H"])),
    ('m', true, Is(&["-X"])),
    ('i', false, Is(&["-X", "HEAD"])),
    ('l', false, Nothing),
    ('q', false, Nothing),
    ('r', false, Nothing),
    ('d', false, Nothing),
    ('S', false, Nothing),
];

const HTSTRESS: &[Flag] = &[('n', true, Is(&["-n"])), ('c', true, Is(&["-c"])), ('t', true, Is(&["-t"]))];

/// Why the flags of another tool cannot be translated. The origin is the user.
#[derive(Debug)]
pub(crate) enum ImitationError {
    /// An unknown tool: its name.
    Tool(String),
    /// The flags are not UTF-8.
    Text,
    /// The tool's flags for a number of requests and for a duration are both given.
    Combined(&'static str),
    /// A flag of the tool that has no translation.
    Flag(char, &'static str),
    /// A flag of the tool without its value.
    Value(char, &'static str),
}

/// Translates the command line if it begins with `load --as TOOL`; otherwise returns it unchanged.
///
///  # Errors
/// An unknown tool or flag.
pub(crate) fn undress(words: impl Iterator<Item = OsString>) -> Result<Vec<OsString>, ImitationError> {
    let words: Vec<OsString> = words.collect();
    let told = |place: usize| words.get(place).and_then(|word| word.to_str());
    let (Some("load"), Some("--as")) = (told(1), told(2)) else { return Ok(words) };
    let (tool, flags) = match told(3) {
        Some("ab") => ("ab", AB),
        Some("htstress") => ("htstress", HTSTRESS),
        other => return Err(ImitationError::Tool(other.unwrap_or("").to_owned())),
    };
    let rest = words[4..].iter().map(|word| word.to_str().map(str::to_owned).ok_or(ImitationError::Text));
    let rest: Vec<String> = rest.collect::<Result<_, _>>()?;
    let mut ours = vec!["--layout".to_owned(), tool.to_owned()];
    let kept = put(&mut ours, tool, flags, &rest)?;
    // Both tools use HTTP/1.0 and close after each response unless a flag says otherwise. Without a count they send one
    // request.
    ours.push("--http10".into());
    if !kept {
        ours.push("--no-keepalive".into());
    }
    let given = |flag: &str| ours.iter().any(|word| word == flag);
    let (timed, counted, wide) = (given("-d"), given("-n"), given("-c"));
    if timed && counted {
        return Err(ImitationError::Combined(tool));
    }
    if !timed && !counted {
        ours.extend(["-n".into(), "1".into()]);
    }
    if !wide {
        ours.extend(["-c".into(), "1".into()]);
    }
    Ok(words[..2].iter().cloned().chain(ours.into_iter().map(OsString::from)).collect())
}

/// The kind of a flag's value that may be a secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ValueKind {
    /// A header field: `Name: value`.
    Field,
    /// A secret.
    Secret,
}

/// Rewrites the values of another tool's flags that may be secrets, in the words after the program's name. Words that do not
/// begin with `load --as TOOL` stay unchanged.
pub(super) fn redact(words: &mut [String], redacted: impl Fn(ValueKind, &str) -> String) {
    let flags = match words {
        [load, dress, tool, ..] if load == "load" && dress == "--as" && tool == "ab" => AB,
        _ => return,
    };
    let mut expected = None;
    for word in words.iter_mut().skip(3) {
        if let Some(meaning) = expected.take() {
            *word = value(meaning, word, &redacted);
            continue;
        }
        let Some(letters) = word.strip_prefix('-') else { continue };
        let valued = |letter: char| flags.iter().find(|(flag, valued, _)| *valued && *flag == letter);
        let found = letters.char_indices().find_map(|(at, letter)| Some((at, valued(letter)?.2)));
        let Some((at, meaning)) = found else { continue };
        // One byte for the dash, and one for the flag.
        match word.split_at(at + 2) {
            (_, "") => expected = Some(meaning),
            (start, behind) => *word = format!("{start}{}", value(meaning, behind, &redacted)),
        }
    }
}

/// Returns the value of a flag without its secrets.
fn value(meaning: FlagMeaning, value: &str, redacted: &impl Fn(ValueKind, &str) -> String) -> String {
    match meaning {
        Field("Cookie") => redacted(ValueKind::Secret, value),
        Is(["-H"]) => redacted(ValueKind::Field, value),
        _ => value.to_owned(),
    }
}

/// Appends the translation of a tool's flags to `ours`. Returns whether connections are kept alive.
fn put(
    ours: &mut Vec<String>,
    tool: &'static str,
    flags: &[Flag],
    rest: &[String],
) -> Result<bool, ImitationError> {
    let mut kept = false;
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            ours.push(word.clone());
            continue;
        };
        // `-kc5` means `-k -c 5`.
        for (at, letter) in letters.char_indices() {
            let Some((_, valued, meaning)) = flags.iter().find(|(flag, ..)| *flag == letter) else {
                return Err(ImitationError::Flag(letter, tool));
            };
            let behind = &letters[at + letter.len_utf8()..];
            let value = match (valued, behind) {
                (false, _) => String::new(),
                (true, "") => words.next().cloned().ok_or(ImitationError::Value(letter, tool))?,
                (true, behind) => behind.to_owned(),
            };
            let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
            match *meaning {
                Is(flags) => ours.extend(text(flags).into_iter().chain(valued.then_some(value))),
                Field(name) => ours.extend(["-H".into(), format!("{name}: {value}")]),
                Seconds(flag) => ours.extend([flag.into(), format!("{value}s")]),
                File(flags) => ours.extend(text(flags).into_iter().chain([format!("@{value}")])),
                Nothing => {}
                Keeps => kept = true,
            }
            if *valued {
                break;
            }
        }
    }
    Ok(kept)
}

impl fmt::Display for ImitationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool(name) => write!(f, "--as {name}: expected ab or htstress"),
            Self::Text => f.write_str("the flags are not valid UTF-8"),
            Self::Combined(tool) => write!(f, "{tool}: -n and -t cannot be combined"),
            Self::Flag(letter, tool) => write!(f, "-{letter} of {tool} is not supported"),
            Self::Value(letter, tool) => write!(f, "-{letter} of {tool} needs a value"),
        }
    }
}

impl Error for ImitationError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn undressed(line: &str) -> Result<String, ImitationError> {
        let words = undress(line.split(' ').map(OsString::from))?;
        Ok(words.iter().map(|word| word.to_str().expect("text")).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn flags_of_other_tools_are_put_into_ours() {
        for (theirs, ours) in [
            ("encke load -n 5 http://h/", "encke load -n 5 http://h/"),
            ("encke serve --as ab", "encke serve --as ab"),
            (
                "encke load --as ab -n 100 -c 10 -k http://h/",
                "encke load --layout ab -n 100 -c 10 http://h/ --http10",
            ),
            (
                "encke load --as ab -kc5 -t 3 -T text/plain -p f http://h/",
                "encke load --layout ab -c 5 -d 3s -H Content-Type: text/plain --body @f http://h/ --http10",
            ),
            (
                "encke load --as ab http://h/",
                "encke load --layout ab http://h/ --http10 --no-keepalive -n 1 -c 1",
            ),
            (
                "encke load --as htstress -n 9 -c 3 -t 2 h:1",
                "encke load --layout htstress -n 9 -c 3 -t 2 h:1 --http10 --no-keepalive",
            ),
        ] {
            assert_eq!(undressed(theirs).ok().as_deref(), Some(ours), "{theirs}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for (line, said) in [
            ("encke load --as siege -c 5 h:1", "expected ab or htstress"),
            ("encke load --as ab -Z h:1", "-Z of ab is not supported"),
            ("encke load --as ab -n", "needs a value"),
            ("encke load --as ab -n 5 -t 5 h:1", "cannot be combined"),
        ] {
            let error = undressed(line).expect_err(line);
            assert!(error.to_string().contains(said), "{line}: {error}");
        }
    }
}
