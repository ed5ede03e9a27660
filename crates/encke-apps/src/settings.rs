//! The settings of supervised applications: `[[app]]` tables.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use encke_io::process::StopSignal;
use encke_settings::{ByteRate, Contradiction, Period, Section, is_app_name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An application that Encke starts, supervises, and ends.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AppSettings {
    /// The name, needed. Routes and upstreams refer to the application by `app:NAME`, or by `fcgi://app:NAME` if it speaks FastCGI.
    pub name: String,
    /// The program and its arguments: `["gunicorn", "-w", "4", "shop.wsgi"]`. No shell reads them. The program gets a listening
    /// socket as descriptor 3, with the variables `LISTEN_FDS` and `LISTEN_PID` (systemd), `SERVER_STARTER_PORT` (Starman) and
    /// `FPM_SOCKETS` (php-fpm). If an argument or a variable contains `{port}`, the program listens at that port of 127.0.0.1
    /// itself. `{fd}` is 3, and `{address}` the address of the socket, which is also in `ENCKE_ADDRESS`. Needed.
    pub run: Vec<String>,
    /// The working directory; without it, the directory of the settings file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// The user of the processes. Only if Encke runs as root. Without it, Encke's own user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Variables of the environment, besides Encke's own without `ENCKE_*`.
    // Variables often hold passwords, so viewers mask them.
    #[schemars(extend("additionalProperties" = { "type": "string", "writeOnly": true }))]
    pub env: BTreeMap<String, String>,
    /// Number of processes that Encke starts, 1 to 64. Each has its own socket and is a target of its own.
    pub count: NonZeroU16,
    /// The protocol of the application: `"http"` or `"fastcgi"`.
    pub protocol: AppProtocol,
    /// Path of a page that responds with a status of 2xx or 3xx when the application is ready. Without it, any response to a
    /// request of `/` will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
    /// Time from the start of a process until it must be ready. Then it is killed, and started again.
    pub start_time: Period,
    /// Time for the requests and WebSockets of a process that was replaced. Then it is stopped.
    pub drain_time: Period,
    /// The signal that stops a process: `"TERM"`, `"INT"`, `"QUIT"`, `"HUP"`, `"USR1"` or `"USR2"`.
    pub stop_signal: StopSignalName,
    /// Time from that signal to the end of the process. Then it is killed.
    pub stop_time: Period,
    /// Rate at which the output of a process is read, with up to a second at once. A process that writes more waits.
    pub output_rate: ByteRate,
    /// When processes are replaced: at every `reload` of the settings, or only at a `change` of this table.
    pub replace: ReplaceWhen,
}

/// The protocol of a supervised application.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AppProtocol {
    /// HTTP/1.1.
    #[default]
    Http,
    /// FastCGI.
    FastCgi,
}

/// The name of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs, reason = "the names of signals, signal(7)")]
pub enum StopSignalName {
    #[default]
    Term,
    Int,
    Quit,
    Hup,
    Usr1,
    Usr2,
}

impl From<StopSignalName> for StopSignal {
    fn from(name: StopSignalName) -> Self {
        match name {
            StopSignalName::Term => Self::Terminate,
            StopSignalName::Int => Self::Interrupt,
            StopSignalName::Quit => Self::Quit,
            StopSignalName::Hup => Self::HangUp,
            StopSignalName::Usr1 => Self::User1,
            StopSignalName::Usr2 => Self::User2,
        }
    }
}

/// When the processes of an application are replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReplaceWhen {
    /// At every reload of the settings.
    #[default]
    Reload,
    /// If the application's settings have changed.
    Change,
}

impl Default for AppSettings {
    fn default() -> Self {
        Self {
            name: String::new(),
            run: Vec::new(),
            directory: None,
            user: None,
            env: BTreeMap::new(),
            count: NonZeroU16::MIN,
            protocol: AppProtocol::Http,
            check: None,
            start_time: Period::seconds(30),
            drain_time: Period::seconds(30),
            stop_signal: StopSignalName::Term,
            stop_time: Period::seconds(10),
            output_rate: ByteRate::of(1024 * 1024),
            replace: ReplaceWhen::Reload,
        }
    }
}

/// Maximum number of processes of an application: an upstream has at most 64 targets.
const COUNT_MAX: u16 = 64;

impl AppSettings {
    /// Whether the program listens at a port itself, rather than at a socket that it gets.
    pub(crate) fn listens_itself(&self) -> bool {
        self.texts().any(|text| text.contains("{port}"))
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        self.run.iter().chain(self.env.values())
    }
}

impl Section for AppSettings {
    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let mut wrong = |key: &str, message: String| found.push(Contradiction::at(&[key], message));
        if !is_app_name(&self.name) {
            wrong(
                "name",
                format!(
                    "{:?} is no name: begin with a letter, and use letters, digits, -, _ and ., as in name = \"shop\"",
                    self.name
                ),
            );
        }
        match self.run.first() {
            None => wrong("run", "an application needs a program: run = [\"node\", \"server.js\"]".into()),
            Some(program) if program.is_empty() => wrong("run", "the program has no name".into()),
            Some(program) if program.contains(' ') && self.run.len() == 1 => {
                let parts: Vec<String> = program.split_whitespace().map(|part| format!("{part:?}")).collect();
                let text =
                    format!("no shell reads `run`: write each argument apart, run = [{}]", parts.join(", "));
                wrong("run", text);
            }
            Some(_) => {}
        }
        if self.texts().any(|text| text.contains('\0')) {
            wrong("run", "arguments and variables must not contain null characters".into());
        }
        for name in self.env.keys().filter(|name| name.is_empty() || name.contains(['=', '\0'])) {
            wrong("env", format!("{name:?} is no name of a variable"));
        }
        if self.listens_itself() && self.texts().any(|text| text.contains("{fd}")) {
            let text = "a program listens at {port} itself or at the socket {fd}, not both";
            wrong("run", text.into());
        }
        if self.count.get() > COUNT_MAX {
            wrong("count", format!("at most {COUNT_MAX} processes, and this are {}", self.count));
        }
        if self.check.as_ref().is_some_and(|path| !path.starts_with('/') || path.contains([' ', '\r', '\n']))
        {
            wrong("check", "a page is named by its path: check = \"/health\"".into());
        }
        if self.check.is_some() && self.protocol == AppProtocol::FastCgi {
            let text =
                "check has no effect on FastCGI: its own protocol tells whether an application is ready";
            wrong("check", text.into());
        }
        found
    }

    fn anchor(&mut self, folder: &Path) {
        self.directory =
            Some(self.directory.as_ref().map_or_else(|| folder.to_owned(), |own| folder.join(own)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(change: impl FnOnce(&mut AppSettings)) -> Vec<String> {
        let mut settings =
            AppSettings { name: "shop".into(), run: vec!["true".into()], ..AppSettings::default() };
        change(&mut settings);
        settings.check().iter().map(|one| one.path.join(".")).collect()
    }

    #[test]
    fn each_error_names_its_key() {
        assert!(errors(|_| {}).is_empty());
        assert_eq!(errors(|app| app.name = "a/b".into()), ["name"]);
        assert_eq!(errors(|app| app.run = Vec::new()), ["run"]);
        assert_eq!(errors(|app| app.run = vec!["node server.js".into()]), ["run"]);
        assert_eq!(errors(|app| app.run = ["x", "{port}", "{fd}"].map(String::from).into()), ["run"]);
        assert_eq!(errors(|app| app.check = Some("health".into())), ["check"]);
        assert_eq!(errors(|app| app.count = NonZeroU16::new(65).expect("not 0")), ["count"]);
        assert_eq!(errors(|app| drop(app.env.insert("A=B".into(), String::new()))), ["env"]);
        let fastcgi = |app: &mut AppSettings| {
            app.protocol = AppProtocol::FastCgi;
            app.check = Some("/".into());
        };
        assert_eq!(errors(fastcgi), ["check"]);
    }
}
