//! Sub-commands for saved runs: merge, explain, report.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use encke_load::SavedRun;

use crate::arguments::{self, ExplainArgs, Merge};
use crate::error::{CommandError, CommandResult};
use crate::output::{check_files, print, text_within};

/// Maximum size of a saved run: four hours at one stretch per second have about 10 MB.
const BYTES_MAX: u64 = 256 << 20;

pub(crate) fn merge(arguments: &Merge) -> CommandResult {
    let inputs: Vec<&Path> = arguments.runs.iter().map(PathBuf::as_path).collect();
    check_files(&[("--report", arguments.report.as_ref())], &inputs)?;
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
    check_files(&[("--report", arguments.report.as_ref())], &[&arguments.run])?;
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
    let text = text_within(source, BYTES_MAX, "a saved run").map_err(failed)?;
    SavedRun::read(&text).map_err(|error| CommandError::system(error).context(path.display()))
}

/// Writes a saved run or a page to a file.
pub(super) fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    std::fs::write(path, text).map_err(|error| CommandError::system(error).context(path.display()))
}
