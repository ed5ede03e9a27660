//! Standard output, output files and notes of the sub-commands.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use encke_io::host;

use crate::error::CommandError;

/// Writes a text to standard output. Errors as for [`put`].
pub(crate) fn print(text: &str) -> Result<(), CommandError> {
    put(text.as_bytes())
}

/// Prints the result of a run. Without a reader, the run still ends with its own exit status.
pub(crate) fn print_result(text: &str) -> Result<(), CommandError> {
    match print(text) {
        Err(CommandError::ReaderGone) => Ok(()),
        printed => printed,
    }
}

/// Writes to standard output and flushes it.
///
///  # Errors
/// [`CommandError::ReaderGone`] if the reading process has ended or the terminal has disappeared; otherwise
/// [`CommandError::System`].
pub(crate) fn put(bytes: &[u8]) -> Result<(), CommandError> {
    let mut output = io::stdout().lock();
    output.write_all(bytes).and_then(|()| output.flush()).map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe || host::is_lost_terminal(&error, &io::stdout()) {
            CommandError::ReaderGone
        } else {
            CommandError::system(error).context("standard output")
        }
    })
}

/// Checks output files, by flag, before a run: that they can be written, and overwrite neither an input nor each other.
///
///  # Errors
/// One cannot be written, or is named twice.
pub(crate) fn check_files(
    outputs: &[(&str, Option<&PathBuf>)],
    inputs: &[&Path],
) -> Result<(), CommandError> {
    let real = |path: &Path| fs::canonicalize(path).or_else(|_| std::path::absolute(path)).ok();
    let mut taken: Vec<(PathBuf, String)> =
        inputs.iter().filter_map(|path| Some((real(path)?, "an input".to_owned()))).collect();
    for (flag, path) in outputs.iter().filter_map(|(flag, path)| Some((flag, (*path)?))) {
        let context = format!("{flag} {}", path.display());
        // Pipes and devices are not overwritten, and to open one may affect its reader.
        if path.exists() && !path.is_file() && !path.is_dir() {
            continue;
        }
        let Some(place) = real(path) else { continue };
        if let Some((_, what)) = taken.iter().find(|(other, _)| *other == place) {
            let text = format!("the file is also {what}, which would be overwritten: name another one");
            return Err(CommandError::usage(text).context(context));
        }
        let is_new = !path.exists();
        let opened = OpenOptions::new().append(true).create(true).open(path);
        let opened = opened.and_then(|_file| if is_new { fs::remove_file(path) } else { Ok(()) });
        opened
            .map_err(|error| CommandError::system(error).context(format_args!("cannot write {context}")))?;
        taken.push((place, format!("that of {flag}")));
    }
    Ok(())
}

/// Reads a text of at most `bytes_max`, the maximum of `what`.
///
///  # Errors
/// The text is longer, not UTF-8, or cannot be read.
pub(crate) fn text_within(source: impl Read, bytes_max: u64, what: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    source.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let size = if bytes_max < 1 << 20 {
            format!("{bytes_max} bytes")
        } else {
            format!("{} MiB", bytes_max >> 20)
        };
        let text = format!("larger than {size}, the maximum of {what}");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Prints a note for the user to standard error, separate from the output.
pub(crate) fn note(text: &str) {
    let _nobody_listens = writeln!(io::stderr(), "note: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_above_the_maximum_is_an_error_and_is_not_cut() {
        assert_eq!(text_within(&b"{}\n"[..], 3, "a run").ok().as_deref(), Some("{}\n"));
        let error = text_within(&b"{}\n "[..], 3, "a run").expect_err("one byte too many");
        assert_eq!(error.to_string(), "larger than 3 bytes, the maximum of a run");
        assert!(text_within(&b"\xff"[..], 3, "a run").is_err());
    }

    #[test]
    fn an_output_file_overwrites_no_input_and_no_other_output() {
        let folder = std::env::temp_dir().join(format!("encke-output-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let [run, new, none] = ["run.json", "new.json", "none/new.json"].map(|name| folder.join(name));
        fs::write(&run, "{}").expect("a file");
        let dotted = folder.join("./run.json");
        let said = |outputs: &[(&str, Option<&PathBuf>)], inputs: &[&Path]| {
            check_files(outputs, inputs).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(said(&[("--save", Some(&new)), ("--report", None)], &[&run, Path::new("-")]), "");
        assert!(!new.exists(), "the check leaves no file");
        let input = said(&[("--report", Some(&dotted))], &[&run]);
        assert!(input.contains("run.json: the file is also an input"), "{input}");
        let twice = said(&[("--save", Some(&new)), ("--report", Some(&new))], &[]);
        assert!(twice.contains("--report") && twice.contains("also that of --save"), "{twice}");
        let unwritable = said(&[("--save", Some(&none))], &[]);
        assert!(unwritable.starts_with("cannot write --save"), "{unwritable}");
        assert_eq!(fs::read_to_string(&run).ok().as_deref(), Some("{}"), "unchanged");
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
