//! `encke check`: validates a settings file as `encke serve` does, without serving. Warnings do not change the exit status.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use encke_assembly::settings::{OrOff, Settings, routes_in_order};
use encke_load::words;

use crate::arguments::Check;
use crate::error::{CommandError, CommandResult};
use crate::output::print;

pub(crate) fn run(arguments: &Check) -> CommandResult {
    let Some(file) = &arguments.file else {
        return Err(CommandError::usage(
            "a settings file is required: `encke check FILE`, or set ENCKE_CONFIG",
        ));
    };
    let settings = Settings::read(file)?;
    // The file alone does not show that other files and directories exist.
    let mut notes = Vec::new();
    if let Some(error) = files_error(&settings, &mut notes) {
        return Err(error);
    }
    let warnings: Vec<String> = settings.warnings().iter().map(ToString::to_string).chain(notes).collect();
    for warning in &warnings {
        let _nobody_listens = writeln!(io::stderr(), "warning: {warning}");
    }
    let count = match warnings.len() {
        0 => String::new(),
        1 => ", with 1 warning".into(),
        count => format!(", with {count} warnings"),
    };
    print(&format!("{} is valid{count}.\n{}", file.display(), summary(&settings)))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the errors in files and directories that the settings name; `None` if there are none. Appends warnings to `notes`.
pub(crate) fn files_error(settings: &Settings, notes: &mut Vec<String>) -> Option<CommandError> {
    let errors = settings.file_errors(notes);
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    (!lines.is_empty()).then(|| CommandError::system(lines.join("\nerror: ")))
}

/// Summarizes the settings in a few lines.
fn summary(settings: &Settings) -> String {
    let mut text = String::new();
    let listens: Vec<String> =
        settings.server.listen.iter().map(|listen| listen.address.to_string()).collect();
    let admin = match &settings.server.admin {
        OrOff::On(admin) => admin.address().to_string(),
        OrOff::Off => "off".into(),
    };
    let mut line = |name: &str, value: &str| {
        writeln!(text, "  {name:<7} {value}").expect("a String takes everything");
    };
    if !settings.included.is_empty() {
        line("include", &words::plural(settings.included.len() as u64, "file"));
    }
    line("listen", &listens.join(", "));
    line("admin", &admin);
    line("log", &settings.log.access.to_string());
    for site in &settings.site {
        let hosts = if site.host.is_empty() { "any host".into() } else { site.host.join(", ") };
        line("site", &format!("{hosts}: {}", site.root.display()));
        for route in routes_in_order(&site.route) {
            line("route", &route.summary(&settings.upstream));
        }
    }
    text
}
