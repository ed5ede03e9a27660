//! `encke service`: installs and controls Encke as a service of Windows, and is its process.
//!
//! ```text
//!  %ProgramData%\Encke\encke.toml          settings, relative paths start here
//!                     \state               server.state_dir
//!                     \logs\encke.log      messages: what `encke serve` writes to standard error
//!                     \logs\access.log     access log of the created settings
//!                     \www                 site of the created settings
//! ```
//! Only administrators, the system and NetworkService may read the directory; NetworkService may write `state` and `logs`. Errors
//! that end the service are also in the event log, under Application, source Encke.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use encke_assembly::settings::{Level, Settings};
use encke_io::host;
use encke_io::service::{self, ServiceAccess, ServiceControl, ServiceManagerError, ServicePlan};
use encke_settings::notice::{self, Details};

use crate::arguments::Command;
use crate::check;
use crate::error::{CommandError, CommandResult};
use crate::output::print;
use crate::serve;
use crate::service_arguments::{ServiceArgs, ServiceCommand, ServiceInstall, ServiceRun};

/// The name of the service, of its directory, and of its source in the event log.
const NAME: &str = "Encke";
const TITLE: &str = "Encke web server";
const DESCRIPTION: &str = "Serves files, applications, and connections that stay open.";
/// The settings file, if no other one is named.
const SETTINGS: &str = "encke.toml";
/// The file for messages, below the directory of the service.
const LOG: &str = r"logs\encke.log";
/// Time for a drain when the system shuts down: 30 s, as in the unit of systemd.
const STOP_TIME: Duration = Duration::from_secs(30);

/// The settings file of a first installation.
const FIRST_SETTINGS: &str = "\
# Settings of the service Encke. `encke service reload` applies changes, `encke check FILE` checks them before.
# `encke schema --toml` prints every key with its meaning. Relative paths start at the directory of this file.

[server]
# 8080: this machine only. \":8080\", in quotes: all addresses of this machine; then the firewall must permit the program.
listen = 8080
state_dir = \"state\"

[log]
access = \"logs/access.log\"

[[site]]
root = \"www\"
";

pub(crate) fn run(arguments: &ServiceArgs) -> CommandResult {
    if !service::IS_AVAILABLE {
        return Err(CommandError::usage(elsewhere(&arguments.command)));
    }
    let text = match &arguments.command {
        ServiceCommand::Install(install) => self::install(install)?,
        ServiceCommand::Start => {
            service::start(NAME).map_err(start_error)?;
            format!("the service {NAME} is running\n")
        }
        ServiceCommand::Stop => {
            service::stop(NAME).map_err(CommandError::system)?;
            format!("the service {NAME} has stopped\n")
        }
        ServiceCommand::Reload => {
            service::control(NAME, ServiceControl::Reload).map_err(CommandError::system)?;
            format!("the service {NAME} reloads its settings; {} has the result\n", log()?.display())
        }
        ServiceCommand::Reopen => {
            service::control(NAME, ServiceControl::ReopenLogs).map_err(CommandError::system)?;
            format!("the service {NAME} reopens its logs\n")
        }
        ServiceCommand::Remove => {
            service::remove(NAME).map_err(CommandError::system)?;
            format!(
                "removed the service {NAME}; its settings, state and logs are still in {}\n",
                folder()?.display()
            )
        }
        ServiceCommand::Run(run) => return be_service(run),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// What to use on systems without services of Windows.
fn elsewhere(command: &ServiceCommand) -> String {
    let instead = match command {
        ServiceCommand::Install(_) => {
            "install dist/systemd/encke.service, then: systemctl enable --now encke"
        }
        ServiceCommand::Start => "systemctl start encke",
        ServiceCommand::Stop => "systemctl stop encke",
        ServiceCommand::Reload => "systemctl reload encke",
        ServiceCommand::Reopen => "systemctl kill -s USR1 encke",
        ServiceCommand::Remove => "systemctl disable --now encke",
        ServiceCommand::Run(_) => "encke serve",
    };
    format!("`encke service` is for services of Windows; here use systemd: {instead}")
}

/// The directory of the service.
fn folder() -> Result<PathBuf, CommandError> {
    Ok(service::data_directory().map_err(CommandError::system)?.join(NAME))
}

/// The file for messages.
fn log() -> Result<PathBuf, CommandError> {
    Ok(folder()?.join(LOG))
}

/// An error of a start, with the place of its reason.
fn start_error(error: ServiceManagerError) -> CommandError {
    let has_log = matches!(error, ServiceManagerError::Ended(..) | ServiceManagerError::Late(_));
    match log() {
        Ok(log) if has_log => {
            let text = format!("{error}; the reason is in {}, and in the event log", log.display());
            CommandError::system(text)
        }
        _ => CommandError::system(error),
    }
}

/// Installs the service. Returns a text for the user.
fn install(arguments: &ServiceInstall) -> Result<String, CommandError> {
    // Before anything is created: other users must not leave a directory behind.
    service::check_rights().map_err(CommandError::system)?;
    if service::is_installed(NAME).map_err(CommandError::system)? {
        return Err(CommandError::system(ServiceManagerError::AlreadyInstalled(NAME.into())));
    }
    let folder = folder()?;
    let config = match &arguments.config {
        Some(file) => {
            std::path::absolute(file).map_err(|error| CommandError::system(error).context(file.display()))?
        }
        None => folder.join(SETTINGS),
    };
    let make = |path: &Path, access| service::make_directory(path, access).map_err(CommandError::system);
    make(&folder, ServiceAccess::Read)?;
    for name in ["state", "logs"] {
        make(&folder.join(name), ServiceAccess::Write)?;
    }
    let is_new = arguments.config.is_none() && write_first_settings(&folder, &config)?;
    if !is_new {
        service::check_settings(&config).map_err(CommandError::system)?;
    }
    let settings = Settings::read(&config)?;
    if let Some(error) = check::files_error(&settings, &mut Vec::new()) {
        return Err(error.context(config.display()));
    }
    let program = std::env::current_exe()
        .map_err(|error| CommandError::system(error).context("cannot find the path of this program"))?;
    let words = ["service", "run", "--config"].map(OsString::from);
    // The service's environment may name another directory for data.
    let files = [config.clone().into_os_string(), "--log".into(), folder.join(LOG).into_os_string()];
    let words: Vec<OsString> = words.into_iter().chain(files).collect();
    let plan = ServicePlan {
        name: NAME,
        title: TITLE,
        description: DESCRIPTION,
        program: &program,
        arguments: &words,
        stop_time: STOP_TIME,
    };
    service::install(&plan).map_err(CommandError::system)?;
    Ok(format!(
        "installed the service {NAME}: it starts with Windows, as NT AUTHORITY\\NetworkService\n\
         \x20 program   {}\n\
         \x20 settings  {}{}\n\
         \x20 messages  {}, and errors in the event log\n\
         \x20 start     encke service start\n",
        program.display(),
        config.display(),
        if is_new { ", created now" } else { "" },
        folder.join(LOG).display()
    ))
}

/// Creates the first settings file and the directory of its site, unless the file exists. Returns whether it was created.
fn write_first_settings(folder: &Path, config: &Path) -> Result<bool, CommandError> {
    let failed = |error: io::Error| {
        CommandError::system(error).context(format_args!("cannot create {}", config.display()))
    };
    match fs::OpenOptions::new().write(true).create_new(true).open(config) {
        Ok(mut file) => {
            file.write_all(FIRST_SETTINGS.as_bytes()).map_err(failed)?;
            service::make_directory(&folder.join("www"), ServiceAccess::Read)
                .map_err(CommandError::system)?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// Runs the process of the service until it ends.
fn be_service(arguments: &ServiceRun) -> CommandResult {
    let (config, log) = (arguments.config.clone(), arguments.log.clone());
    let main = move || {
        if let Err(error) = host::redirect_errors(&log) {
            service::report_error(NAME, &format!("cannot write messages to {}: {error}", log.display()));
        }
        match serve_file(config) {
            Ok(_drained) => 0,
            Err(error) => {
                let text = error.message();
                let details = Details { on_stderr: &text, recent: "" };
                notice::report_with(Level::Error, "the service ends:", &details);
                service::report_error(NAME, &text);
                error.status().into()
            }
        }
    };
    service::run(NAME, main).map_err(|error| match error {
        ServiceManagerError::NotByManager => CommandError::usage(
            "`encke service run` is for the service manager only: use `encke service start`, or `encke serve -c FILE` in a \
             console",
        ),
        error => CommandError::system(error),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `encke serve -c FILE`.
fn serve_file(config: PathBuf) -> CommandResult {
    let words = ["encke", "serve", "--config"].map(OsString::from);
    let words = words.into_iter().chain([config.into_os_string()]).collect();
    let parsed = crate::parse(words).map_err(|error| CommandError::usage(error.to_string()))?;
    match &parsed.command {
        Command::Serve(arguments) => serve::run(arguments),
        _ => unreachable!("the words are those of serve"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_settings_are_valid_and_serve_this_machine_only() {
        let folder = std::env::temp_dir().join(format!("encke-service-{}", std::process::id()));
        fs::create_dir_all(folder.join("www")).expect("a temporary directory");
        for name in ["state", "logs"] {
            fs::create_dir_all(folder.join(name)).expect("a temporary directory");
        }
        let file = folder.join(SETTINGS);
        fs::write(&file, FIRST_SETTINGS).expect("written");
        let settings = Settings::read(&file).unwrap_or_else(|error| panic!("{error}"));
        let wrong = check::files_error(&settings, &mut Vec::new());
        assert!(wrong.is_none(), "{wrong:?}");
        assert_eq!(settings.server.listen[0].address.to_string(), "8080");
        assert_eq!(settings.server.state_dir, Some(folder.join("state")));
        assert_eq!(settings.site[0].root, folder.join("www"));
        fs::remove_dir_all(&folder).expect("it was made here");
    }

    #[test]
    fn other_systems_name_what_to_use_there() {
        let text = elsewhere(&ServiceCommand::Reload);
        assert!(text.contains("services of Windows") && text.ends_with("systemctl reload encke"), "{text}");
    }
}
