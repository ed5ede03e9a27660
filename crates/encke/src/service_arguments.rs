//! Flags and help of `encke service`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Install and control the service of Windows.
#[derive(Args, Debug)]
#[command(
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  encke service install      with the settings %ProgramData%\\Encke\\encke.toml, which it creates
  encke service start
  encke service reload       apply changed settings"
)]
pub(crate) struct ServiceArgs {
    #[command(subcommand)]
    pub(crate) command: ServiceCommand,
}

/// Sub-commands of service.
#[derive(Subcommand, Debug)]
pub(crate) enum ServiceCommand {
    Install(ServiceInstall),
    /// Start the service, and wait until it serves
    Start,
    /// Drain and stop the service, and wait for its end
    Stop,
    /// Reload the settings
    Reload,
    /// Reopen the logs, after they were renamed
    Reopen,
    /// Stop and remove the service; its settings, state and logs stay
    Remove,
    // The service manager runs it.
    #[command(hide = true)]
    Run(ServiceRun),
}

/// Install the service: it starts with Windows, as NetworkService.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  encke service install
  encke service start
  encke service install -c C:\\ProgramData\\Encke\\shop.toml")]
pub(crate) struct ServiceInstall {
    /// Settings file [default: %ProgramData%\Encke\encke.toml; created if missing]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// The process of the service.
#[derive(Args, Debug)]
pub(crate) struct ServiceRun {
    /// Settings file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// File for messages
    #[arg(long, value_name = "FILE")]
    pub(crate) log: PathBuf,
}
