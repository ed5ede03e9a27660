//! Command lines of Windows: one text, which the program itself takes apart, by the rules of CommandLineToArgvW.
//!
//! Backslashes are plain unless a quote follows them: before a quote each must be doubled, and `\"` is a quote. The program's
//! name has simpler rules: it ends at the next quote, whatever is before it.

use std::ffi::OsStr;
use std::io;
use std::os::windows::ffi::OsStrExt as _;

const QUOTE: u16 = b'"' as u16;
const BACKSLASH: u16 = b'\\' as u16;
const SPACE: u16 = b' ' as u16;
const TAB: u16 = b'\t' as u16;

/// The longest command line of the system, in units, with its end (CreateProcessW).
const UNITS_MAX: usize = 32_767;

/// Returns the command line of a program and its arguments, with a zero at the end.
///
/// # Errors
/// A text contains a zero, the program's name a quote, or the line is longer than the system permits.
pub(crate) fn command_line<'a>(
    program: &OsStr,
    arguments: impl IntoIterator<Item = &'a OsStr>,
) -> io::Result<Vec<u16>> {
    let mut line = vec![QUOTE];
    line.extend(program.encode_wide());
    if line[1..].contains(&QUOTE) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of a program contains a quote"));
    }
    line.push(QUOTE);
    for argument in arguments {
        line.push(SPACE);
        push_argument(&mut line, argument);
    }
    if line.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an argument contains a null character"));
    }
    line.push(0);
    if line.len() > UNITS_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the arguments are longer than 32,766 characters",
        ));
    }
    Ok(line)
}

fn push_argument(line: &mut Vec<u16>, argument: &OsStr) {
    let units: Vec<u16> = argument.encode_wide().collect();
    if !units.is_empty() && !units.iter().any(|unit| [QUOTE, SPACE, TAB].contains(unit)) {
        return line.extend(units);
    }
    line.push(QUOTE);
    let mut backslashes = 0;
    for unit in units {
        match unit {
            BACKSLASH => backslashes += 1,
            QUOTE => {
                line.extend(std::iter::repeat_n(BACKSLASH, backslashes + 1));
                backslashes = 0;
            }
            _ => backslashes = 0,
        }
        line.push(unit);
    }
    // The closing quote must not be taken for one of the argument.
    line.extend(std::iter::repeat_n(BACKSLASH, backslashes));
    line.push(QUOTE);
}

/// A text of the system, with a zero at the end.
///
/// # Errors
/// The text contains a zero.
pub(crate) fn zero_terminated(text: &OsStr) -> io::Result<Vec<u16>> {
    let mut units: Vec<u16> = text.encode_wide().collect();
    if units.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a text contains a null character"));
    }
    units.push(0);
    Ok(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(program: &str, arguments: &[&str]) -> String {
        let arguments = arguments.iter().map(|argument| OsStr::new(*argument));
        let line = command_line(OsStr::new(program), arguments).expect("a command line");
        String::from_utf16(&line[..line.len() - 1]).expect("text")
    }

    #[test]
    fn arguments_are_quoted_by_the_rules_of_the_system() {
        for (argument, expected) in [
            ("plain", "plain"),
            ("", r#""""#),
            ("one two", r#""one two""#),
            ("a\tb", "\"a\tb\""),
            (r"C:\dir\file", r"C:\dir\file"),
            (r"C:\dir\", r"C:\dir\"),
            (r"C:\a dir\", r#""C:\a dir\\""#),
            (r#"say "hi""#, r#""say \"hi\"""#),
            (r#"\"#, r"\"),
            (r#"a\"b"#, r#""a\\\"b""#),
            (r#"a\\ "#, r#""a\\ ""#),
            (r#""\"#, r#""\"\\""#),
            ("& echo %PATH% ^ |", r#""& echo %PATH% ^ |""#),
        ] {
            assert_eq!(line("p.exe", &[argument]), format!("\"p.exe\" {expected}"), "{argument:?}");
        }
        assert_eq!(line(r"C:\Program Files\p.exe", &[]), r#""C:\Program Files\p.exe""#);
    }

    #[test]
    fn texts_that_would_be_cut_or_split_are_rejected() {
        let fails = |program: &str, argument: &str| {
            command_line(OsStr::new(program), [OsStr::new(argument)]).is_err()
        };
        assert!(fails("p\"q", "a"));
        assert!(fails("p", "a\0b"));
        assert!(fails("p", &"x".repeat(UNITS_MAX)));
        assert!(!fails("p", &"x".repeat(UNITS_MAX - 5)));
        assert!(zero_terminated(OsStr::new("a\0b")).is_err());
    }
}
