//! `encke schema`: the JSON Schema of the settings file, or its reference page.

use std::process::ExitCode;

use encke_assembly::settings;

use crate::arguments::Schema;
use crate::error::CommandResult;
use crate::output::print;

pub(crate) fn run(arguments: &Schema) -> CommandResult {
    if arguments.markdown {
        print(&settings::markdown())?;
    } else {
        print(&format!("{:#}\n", settings::schema()))?;
    }
    Ok(ExitCode::SUCCESS)
}
