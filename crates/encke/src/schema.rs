//! `encke schema`: the JSON Schema of the settings file, its reference page, or a commented settings file.

use std::process::ExitCode;

use encke_assembly::settings;

use crate::arguments::Schema;
use crate::error::CommandResult;
use crate::output::print;

pub(crate) fn run(arguments: &Schema) -> CommandResult {
    if arguments.markdown {
        print(&settings::markdown())?;
    } else if arguments.toml {
        print(&settings::template())?;
    } else {
        print(&format!("{:#}\n", settings::schema()))?;
    }
    Ok(ExitCode::SUCCESS)
}
