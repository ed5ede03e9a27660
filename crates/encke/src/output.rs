//! Standard output and notes of the sub-commands.

use std::io::{self, Write as _};

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

/// Prints a note for the user to standard error, separate from the output.
pub(crate) fn note(text: &str) {
    let _nobody_listens = writeln!(io::stderr(), "note: {text}");
}
