//! The terms of serde and of the TOML parser in messages, in the words of the settings file.
//!
//! ```text
//!  invalid type: string "yes", expected a boolean    ─►  expected true or false, found text "yes"
//!  invalid type: integer `5`, expected a sequence    ─►  expected a list: [ … ], found the number 5
//! ```

use std::borrow::Cow;

/// Terms for the expected type. A struct is a table, whatever its name.
const EXPECTED: &[(&str, &str)] = &[
    ("a boolean", "true or false"),
    ("a string", "text in quotes"),
    ("a character", "one character in quotes"),
    ("a sequence", "a list: [ … ]"),
    ("a map", "a table: { … }"),
    ("a nonzero u8", "a whole number from 1 to 255"),
    ("a nonzero u16", "a whole number from 1 to 65535"),
    ("a nonzero u32", "a whole number from 1 to 4294967295"),
    ("a nonzero u64", "a whole number, 1 or more"),
    ("a nonzero usize", "a whole number, 1 or more"),
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number, 0 or more"),
    ("usize", "a whole number, 0 or more"),
    ("i64", "a whole number"),
    ("f64", "a number"),
    ("path string", "a path in quotes"),
    ("string or table", "text in quotes"),
    ("enum", "text in quotes"),
];

/// Terms for the invalid value, by prefix. The value follows the prefix.
const FOUND: &[(&str, &str)] = &[
    ("string ", "text "),
    ("boolean ", ""),
    ("integer ", "the number "),
    ("floating point ", "the number "),
    ("character ", "text "),
    ("sequence", "a list"),
    ("map", "a table"),
    ("newtype struct", "a table"),
    ("unit value", "nothing"),
];

/// Rewrites a message about a value. Messages of the settings' own types stay as they are.
pub(crate) fn plain(message: &str) -> Cow<'_, str> {
    let typed = |start: &str| message.strip_prefix(start)?.split_once(", expected ");
    if let Some((found, wanted)) = typed("invalid type: ").or_else(|| typed("invalid value: ")) {
        return format!("expected {}, found {}", expected(wanted), self::found(found)).into();
    }
    // A list where a struct was expected: serde reads its items as the fields, and misses some.
    if let Some((_, wanted)) = typed("invalid length ") {
        return format!("expected {}, found a list", expected(wanted)).into();
    }
    match message {
        // An enum of words.
        "wanted string or table" => "expected text in quotes".into(),
        "wanted exactly 1 element, found 0 elements" | "wanted exactly 1 element, more than 1 element" => {
            "expected text in quotes, found a table".into()
        }
        "integer number overflowed" | "floating-point number overflowed" => "the number is too large".into(),
        _ => message.into(),
    }
}

fn expected(term: &str) -> Cow<'_, str> {
    if term.starts_with("struct ") || term.starts_with("internally tagged ") {
        return "a table: { … }".into();
    }
    EXPECTED.iter().find(|(known, _)| *known == term).map_or(term, |(_, plain)| plain).into()
}

fn found(term: &str) -> Cow<'_, str> {
    let known = FOUND.iter().find_map(|(start, plain)| Some((plain, term.strip_prefix(start)?)));
    match known {
        // Serde writes numbers and booleans between backquotes, and adds the type to a number of more than 64 bits.
        Some((plain, value)) => {
            format!("{plain}{}", value.trim_end_matches(" as i128").trim_matches('`')).into()
        }
        None => term.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_of_serde_become_words_of_the_file() {
        for (message, said) in [
            (
                "invalid type: string \"yes\", expected a boolean",
                "expected true or false, found text \"yes\"",
            ),
            ("invalid type: integer `5`, expected a sequence", "expected a list: [ … ], found the number 5"),
            ("invalid type: sequence, expected struct LogSettings", "expected a table: { … }, found a list"),
            ("invalid type: map, expected a string", "expected text in quotes, found a table"),
            (
                "invalid type: floating point `1.5`, expected u16",
                "expected a whole number from 0 to 65535, found the number 1.5",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "expected a whole number from 0 to 4294967295, found the number -1",
            ),
            ("invalid type: boolean `true`, expected 10s or off", "expected 10s or off, found true"),
            (
                "invalid type: integer `1` as i128, expected a string",
                "expected text in quotes, found the number 1",
            ),
            (
                "invalid length 0, expected struct Listen with 5 elements",
                "expected a table: { … }, found a list",
            ),
            ("wanted string or table", "expected text in quotes"),
            ("`10` has no unit; write 10s", "`10` has no unit; write 10s"),
        ] {
            assert_eq!(plain(message), said, "{message}");
        }
    }
}
