//! Sub-commands for saved runs: merge, explain, report.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use encke_load::SavedRun;

use crate::arguments::{self, ExplainArgs, Merge};
use crate::error::{CommandError, CommandResult};
use crate::output::print;

/// Maximum size of a saved run: four hours at one stretch per second have about 10 MB.
const BYTES_MAX: u64 = 256 << 20;

pub(crate) fn merge(arguments: &Merge) -> CommandResult {
    let runs: Vec<SavedRun> = arguments.runs.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let merged = SavedRun::merged(runs).map_err(CommandError::usage)?;
    told(&merged, arguments.json, arguments.report.as_deref())
}

pub(crate) fn explain(arguments: &ExplainArgs) -> CommandResult {
    let explained = read(&arguments.run)?.explained();
    print(&if arguments.json { format!("{:#}\n", explained.json()) } else { explained.text() })?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn report(arguments: &arguments::SavedRunArgs) -> CommandResult {
    told(&read(&arguments.run)?, arguments.json, arguments.report.as_deref())
}

fn told(run: &SavedRun, json: bool, page: Option<&Path>) -> CommandResult {
    if let Some(path) = page {
        write(path, &run.page())?;
    }
    print(&if json { format!("{:#}\n", run.json()) } else { run.summary() })?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a saved run; `-` is standard input.
pub(super) fn read(path: &Path) -> Result<SavedRun, CommandError> {
    let failed = |error: io::Error| CommandError::system(error).context(path.display());
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(failed)?)
    };
    let text = text_within(source, BYTES_MAX).map_err(failed)?;
    SavedRun::read(&text).map_err(|error| CommandError::system(error).context(path.display()))
}

/// Reads a text of at most `bytes_max`.
///
/// # Errors
/// The text is longer, not UTF-8, or cannot be read.
fn text_within(source: impl Read, bytes_max: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    source.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let text = format!("larger than {} MiB, the maximum of a saved run", BYTES_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Writes a saved run or a page to a file.
pub(super) fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    std::fs::write(path, text).map_err(|error| CommandError::system(error).context(path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_above_the_maximum_is_an_error_and_is_not_cut() {
        assert_eq!(text_within(&b"{}\n"[..], 3).ok().as_deref(), Some("{}\n"));
        let error = text_within(&b"{}\n "[..], 3).expect_err("one byte too many");
        assert!(error.to_string().contains("larger than 256 MiB"), "{error}");
        assert!(text_within(&b"\xff"[..], 3).is_err());
    }
}
