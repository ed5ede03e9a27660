//! `encke console`: opens the console of a running server in the browser, logged in.

use std::process::{Command, ExitCode, Stdio};

use crate::admin_target::AdminTarget;
use crate::arguments::ConsoleArgs;
use crate::error::{CommandError, CommandResult};
use crate::output::print;

pub(crate) fn run(arguments: &ConsoleArgs) -> CommandResult {
    let admin = AdminTarget::of(&arguments.admin)?;
    if admin.is_unix() {
        let text =
            "a browser cannot open a Unix socket: set server.admin to an address such as 127.0.0.1:8081";
        return Err(CommandError::usage(text));
    }
    let url = admin.console_url()?;
    if arguments.print {
        print(&format!("{url}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let opened = opener().iter().any(|(program, words)| {
        let started =
            Command::new(program).args(*words).arg(&url).stdout(Stdio::null()).stderr(Stdio::null()).status();
        started.is_ok_and(|status| status.success())
    });
    print(&if opened {
        format!("opened {url}\n")
    } else {
        format!(
            "no browser can be opened from here; this address is valid once and for ten minutes:\n{url}\n"
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The programs that open a URL in the browser of the user, with their first arguments.
fn opener() -> &'static [(&'static str, &'static [&'static str])] {
    match std::env::consts::OS {
        "windows" => &[("rundll32", &["url.dll,FileProtocolHandler"])],
        "macos" => &[("open", &[])],
        _ => &[("xdg-open", &[]), ("wslview", &[])],
    }
}
