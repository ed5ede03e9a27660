//! `encke check`: validates a settings file as `encke serve` does, without serving. Warnings do not change the exit status.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use encke_assembly::settings::{OrOff, Settings};
use encke_load::words;
use encke_site::Site;

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
    if !settings.site.is_empty() {
        // Opens the root directories: the file alone does not show that they exist.
        Site::new(&settings.site, Vec::new()).map_err(CommandError::system)?;
    }
    settings.auth.try_keys().map_err(CommandError::system)?;
    if let OrOff::On(admin) = &settings.server.admin
        && let Some(token) = &admin.token
    {
        token.reveal().map_err(|error| CommandError::system(error).context("server.admin.token"))?;
    }
    let warnings = settings.warnings();
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
    }
    text
}
