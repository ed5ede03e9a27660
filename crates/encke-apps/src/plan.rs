//! What is needed to start a process of an application: its program, user and variables, found before the start.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use encke_io::process::{
    PASSED_DESCRIPTOR, PASSES_SOCKETS, SystemUser, is_batch_file, is_same_variable, may_execute,
    program_names,
};
use encke_settings::secret_variables;

use crate::settings::AppSettings;
use crate::slot::SlotTimes;

/// An application whose settings fit this machine.
#[derive(Clone, Debug)]
pub(crate) struct AppPlan {
    pub(crate) settings: AppSettings,
    pub(crate) program: PathBuf,
    pub(crate) directory: PathBuf,
    pub(crate) user: Option<SystemUser>,
}

/// Why an application cannot be started on this machine.
#[derive(Debug)]
pub enum AppError {
    /// The program is in no directory of `PATH`, or is no file.
    NoProgram {
        /// The application.
        app: String,
        /// The program, as the settings name it.
        program: String,
        /// The directories that were searched.
        searched: String,
    },
    /// The file may not be executed.
    NotExecutable {
        /// The application.
        app: String,
        /// The file.
        file: PathBuf,
    },
    /// The working directory cannot be used.
    Directory {
        /// The application.
        app: String,
        /// The directory.
        directory: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The user does not exist.
    User {
        /// The application.
        app: String,
        /// The user.
        user: String,
    },
    /// Only root can start a process of another user.
    NotRoot {
        /// The application.
        app: String,
        /// The user.
        user: String,
    },
    /// No process of another user can be started on this system.
    NoUsers {
        /// The application.
        app: String,
        /// The user.
        user: String,
    },
    /// No socket can be passed to a program on this system, and the settings do not contain `{port}`.
    NoSockets {
        /// The application.
        app: String,
    },
    /// The file is a batch file.
    BatchFile {
        /// The application.
        app: String,
        /// The file.
        file: PathBuf,
    },
    /// The system has no descriptor, thread or random number left.
    System(String, io::Error),
}

impl AppError {
    /// The name of the application.
    pub fn app(&self) -> &str {
        match self {
            Self::NoProgram { app, .. }
            | Self::NotExecutable { app, .. }
            | Self::Directory { app, .. }
            | Self::User { app, .. }
            | Self::NotRoot { app, .. }
            | Self::NoUsers { app, .. }
            | Self::NoSockets { app }
            | Self::BatchFile { app, .. }
            | Self::System(app, _) => app,
        }
    }

    /// The key of `[[app]]` that has the wrong value.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::NoProgram { .. }
            | Self::NotExecutable { .. }
            | Self::NoSockets { .. }
            | Self::BatchFile { .. } => "run",
            Self::Directory { .. } => "directory",
            Self::User { .. } | Self::NotRoot { .. } | Self::NoUsers { .. } => "user",
            Self::System(..) => "name",
        }
    }
}

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "application {:?}: ", self.app())?;
        match self {
            Self::NoProgram { program, searched, .. } => {
                write!(
                    f,
                    "there is no program {program:?} in {searched}: install it, or write its whole path in run"
                )
            }
            Self::NotExecutable { file, .. } => {
                write!(
                    f,
                    "{} cannot be executed: change its permissions, or name its interpreter first in run",
                    file.display()
                )
            }
            Self::Directory { directory, error, .. } => {
                write!(f, "cannot use the directory {}: {error}", directory.display())
            }
            Self::User { user, .. } => {
                write!(f, "there is no user {user:?}: create it, or name another one")
            }
            Self::NotRoot { user, .. } => {
                write!(f, "only root can start a process of user {user:?}: start Encke as root, or omit user")
            }
            Self::NoUsers { user, .. } => {
                write!(f, "this system cannot start a process of user {user:?}: omit user, and start Encke as this user")
            }
            Self::NoSockets { .. } => f.write_str(
                "this system cannot pass a socket to a program: write {port} in run or env, where the program expects its port",
            ),
            Self::BatchFile { file, .. } => write!(
                f,
                "{} is a batch file, whose interpreter reads arguments by other rules than programs: name the program and its \
                 script instead, run = [\"node\", \"server.js\"]",
                file.display()
            ),
            Self::System(_, error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AppError {}

/// The directories of programs if there is no variable `PATH`.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// Whether an empty entry of `PATH` is the working directory.
const EMPTY_IS_HERE: bool = std::path::MAIN_SEPARATOR == '/';

impl AppPlan {
    /// Finds the program, the directory and the user of an application.
    ///
    /// # Errors
    /// One of them does not exist on this machine.
    pub(crate) fn find(settings: &AppSettings) -> Result<Self, AppError> {
        let app = settings.name.clone();
        if !PASSES_SOCKETS && !settings.listens_itself() {
            return Err(AppError::NoSockets { app });
        }
        let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let directory = settings.directory.clone().unwrap_or_else(here);
        if let Err(error) = std::fs::read_dir(&directory) {
            // A directory without permission to read may be one to work in.
            if error.kind() != io::ErrorKind::PermissionDenied {
                return Err(AppError::Directory { app, directory, error });
            }
        }
        let user = settings.user.as_ref().map(|name| find_user(&app, name)).transpose()?;
        let own_path = std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
        let set_path =
            settings.env.iter().find(|(name, _)| is_same_variable(OsStr::new(name), OsStr::new("PATH")));
        let path = set_path.map_or(own_path, |(_, path)| OsString::from(path));
        let name = settings.run.first().map_or("", String::as_str);
        let program = find_program(&app, name, &path, &directory)?;
        Ok(Self { settings: settings.clone(), program, directory, user })
    }

    pub(crate) const fn times(&self) -> SlotTimes {
        SlotTimes {
            start_ns: self.settings.start_time.nanoseconds(),
            drain_ns: self.settings.drain_time.nanoseconds(),
            stop_ns: self.settings.stop_time.nanoseconds(),
        }
    }

    /// The arguments, with the values of their placeholders.
    pub(crate) fn arguments(&self, address: SocketAddr) -> Vec<OsString> {
        self.settings.run.iter().map(|text| filled(text, address).into()).collect()
    }

    /// The environment: that of this process, without variables that concern only itself or contain its secrets, then the socket's,
    /// then the settings'.
    pub(crate) fn environment(&self, address: SocketAddr) -> Vec<(OsString, OsString)> {
        let secret = secret_variables();
        let is_secret = |name: &OsStr| secret.iter().any(|other| is_same_variable(name, OsStr::new(other)));
        let own = std::env::vars_os().filter(|(name, _)| !is_own(name) && !is_secret(name));
        let mut variables: BTreeMap<OsString, OsString> = own.collect();
        let mut set = |name: &str, value: String| {
            variables.retain(|other, _| !is_same_variable(other, OsStr::new(name)));
            variables.insert(name.into(), value.into());
        };
        if let Some(user) = self.user.as_ref().filter(|user| !user.is_current()) {
            set("HOME", user.home.display().to_string());
            set("USER", user.name.clone());
            set("LOGNAME", user.name.clone());
        }
        set("ENCKE_ADDRESS", address.to_string());
        if !self.settings.listens_itself() {
            set("LISTEN_FDS", "1".into());
            for name in ["SERVER_STARTER_PORT", "FPM_SOCKETS"] {
                set(name, format!("{address}={PASSED_DESCRIPTOR}"));
            }
        }
        for (name, value) in &self.settings.env {
            set(name, filled(value, address));
        }
        variables.into_iter().collect()
    }
}

/// Whether a variable of the environment concerns only Encke: its own settings, which may be secrets, and what the service manager
/// has passed to it (sd_listen_fds(3), sd_notify(3)).
fn is_own(name: &OsStr) -> bool {
    const PREFIX: &str = "ENCKE_";
    const OTHERS: [&str; 6] =
        ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];
    let text = name.to_string_lossy();
    let start = text.get(..PREFIX.len()).unwrap_or_default();
    is_same_variable(OsStr::new(start), OsStr::new(PREFIX))
        || OTHERS.iter().any(|other| is_same_variable(name, OsStr::new(other)))
}

/// A text with the values of its placeholders.
fn filled(text: &str, address: SocketAddr) -> String {
    text.replace("{port}", &address.port().to_string())
        .replace("{fd}", &PASSED_DESCRIPTOR.to_string())
        .replace("{address}", &address.to_string())
}

fn find_user(app: &str, name: &str) -> Result<SystemUser, AppError> {
    let (app, user) = (app.to_owned(), name.to_owned());
    match SystemUser::find(name) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Err(AppError::NoUsers { app, user }),
        Err(error) => Err(AppError::System(app, error)),
        Ok(None) => Err(AppError::User { app, user }),
        Ok(Some(found)) if found.is_current() || SystemUser::is_root() => Ok(found),
        Ok(Some(_)) => Err(AppError::NotRoot { app, user }),
    }
}

/// Finds a program as execvp(3) does, in the directories of `path`. A relative path begins at `directory`.
fn find_program(app: &str, name: &str, path: &OsStr, directory: &Path) -> Result<PathBuf, AppError> {
    let has_folder = name.contains(std::path::is_separator);
    let folders: Vec<PathBuf> = if has_folder {
        vec![directory.to_owned()]
    } else {
        let folders = std::env::split_paths(path);
        // An empty entry is the working directory on Unix, and nothing on Windows.
        let used = folders.filter(|folder| EMPTY_IS_HERE || !folder.as_os_str().is_empty());
        used.map(|folder| directory.join(folder)).collect()
    };
    let names = program_names(name);
    let candidates = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    let mut denied = None;
    for file in candidates.filter(|file| file.is_file()) {
        if may_execute(&file) {
            return Ok(file);
        }
        denied.get_or_insert(file);
    }
    let app = app.to_owned();
    match denied {
        Some(file) if is_batch_file(&file) => Err(AppError::BatchFile { app, file }),
        Some(file) => Err(AppError::NotExecutable { app, file }),
        None => {
            let searched =
                if has_folder { directory.display().to_string() } else { path.to_string_lossy().into() };
            Err(AppError::NoProgram { app, program: name.to_owned(), searched })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(run: &[&str]) -> AppSettings {
        AppSettings {
            name: "shop".into(),
            run: run.iter().map(ToString::to_string).collect(),
            directory: Some("/".into()),
            ..AppSettings::default()
        }
    }

    fn value(variables: &[(OsString, OsString)], name: &str) -> Option<String> {
        let found = variables.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.to_string_lossy().into_owned())
    }

    #[cfg(unix)]
    #[test]
    fn a_program_gets_the_socket_in_the_variables_of_three_protocols() {
        let address: SocketAddr = "127.0.0.1:4711".parse().expect("an address");
        let mut settings = settings(&["sh", "-c", "{fd} {address}"]);
        settings.env.insert("POOL".into(), "{address}={fd}".into());
        let plan = AppPlan::find(&settings).expect("every system has a shell");
        assert!(plan.program.is_absolute() && plan.program.ends_with("sh"), "{}", plan.program.display());
        assert_eq!(plan.arguments(address)[2], "3 127.0.0.1:4711");
        let variables = plan.environment(address);
        for (name, expected) in [
            ("LISTEN_FDS", "1"),
            ("SERVER_STARTER_PORT", "127.0.0.1:4711=3"),
            ("FPM_SOCKETS", "127.0.0.1:4711=3"),
            ("ENCKE_ADDRESS", "127.0.0.1:4711"),
            ("POOL", "127.0.0.1:4711=3"),
        ] {
            assert_eq!(value(&variables, name).as_deref(), Some(expected), "{name}");
        }
        settings.env.insert("PORT".into(), "{port}".into());
        let plan = AppPlan::find(&settings).expect("every system has a shell");
        let variables = plan.environment(address);
        assert_eq!(value(&variables, "PORT").as_deref(), Some("4711"));
        assert_eq!(value(&variables, "LISTEN_FDS"), None, "the program listens itself");
    }

    #[cfg(unix)]
    #[test]
    fn variables_with_secrets_of_the_settings_are_not_inherited() {
        // Variables that every session has. Settings of any section may name one.
        let (name, other) = ("HOME", "PATH");
        let address: SocketAddr = "127.0.0.1:4711".parse().expect("an address");
        let mut settings = settings(&["sh"]);
        let plan = AppPlan::find(&settings).expect("every system has a shell");
        assert!(value(&plan.environment(address), name).is_some());
        let text = format!("{{\"env\": {name:?}}}");
        let _named: encke_settings::Secret = serde_json::from_str(&text).expect("a secret");
        assert_eq!(value(&plan.environment(address), name), None);
        assert!(value(&plan.environment(address), other).is_some());
        settings.env.insert(name.into(), "own".into());
        let plan = AppPlan::find(&settings).expect("every system has a shell");
        assert_eq!(value(&plan.environment(address), name).as_deref(), Some("own"));
    }

    #[test]
    fn own_variables_are_found_as_the_system_compares_names() {
        for name in ["ENCKE_TOKEN", "ENCKE_", "NOTIFY_SOCKET", "LISTEN_FDS"] {
            assert!(is_own(OsStr::new(name)), "{name}");
        }
        for name in ["ENCKE", "XENCKE_TOKEN", "LISTEN_FDS_", "PATH", "ÉÉÉÉÉ"] {
            assert!(!is_own(OsStr::new(name)), "{name}");
        }
        let ignores_case = is_same_variable(OsStr::new("a"), OsStr::new("A"));
        for name in ["Encke_Token", "notify_socket"] {
            assert_eq!(is_own(OsStr::new(name)), ignores_case, "{name}");
        }
    }

    #[test]
    fn an_empty_entry_of_the_path_is_the_working_directory_on_unix_only() {
        let this = std::env::current_exe().expect("this program");
        let (name, folder) = (this.file_name().expect("a name"), this.parent().expect("a directory"));
        let name = name.to_str().expect("Unicode");
        let path = std::env::join_paths(["", ""]).expect("two entries");
        assert_eq!(find_program("a", name, &path, folder).is_ok(), EMPTY_IS_HERE);
        assert!(find_program("a", name, folder.as_os_str(), Path::new("/")).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn what_a_machine_lacks_is_named_with_its_key() {
        let error = |change: &dyn Fn(&mut AppSettings)| {
            let mut settings = settings(&["sh"]);
            change(&mut settings);
            let error = AppPlan::find(&settings).expect_err("it cannot start");
            (error.key(), error.to_string())
        };
        let (key, text) = error(&|app| app.run = vec!["no-such-program".into()]);
        assert_eq!(key, "run");
        assert!(text.contains("\"shop\"") && text.contains("no-such-program"), "{text}");
        let (key, text) = error(&|app| app.run = vec!["./etc/passwd".into()]);
        assert_eq!(key, "run");
        assert!(text.contains("cannot be executed"), "{text}");
        assert_eq!(error(&|app| app.directory = Some("/nonexistent".into())).0, "directory");
        assert_eq!(error(&|app| app.user = Some("no such user".into())).0, "user");
    }

    #[cfg(windows)]
    #[test]
    fn what_this_system_cannot_do_is_named_with_its_key_and_a_remedy() {
        let folder = std::env::temp_dir().join(format!("encke-plan-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary directory");
        std::fs::write(folder.join("npx.cmd"), "exit").expect("written");
        std::fs::write(folder.join("node.exe"), "").expect("written");
        let find = |run: &[&str], change: &dyn Fn(&mut AppSettings)| {
            let mut settings = AppSettings { directory: Some(folder.clone()), ..settings(run) };
            settings.env.insert("path".into(), folder.display().to_string());
            change(&mut settings);
            AppPlan::find(&settings)
        };
        let error = |run: &[&str], change: &dyn Fn(&mut AppSettings)| {
            let error = find(run, change).expect_err("it cannot start");
            assert!(error.to_string().contains("\"shop\""), "{error}");
            (error.key(), error.to_string())
        };
        let (key, text) = error(&["node", "server.js"], &|_| {});
        assert!(key == "run" && text.contains("write {port} in run or env"), "{text}");
        let (key, text) = error(&["node", "{fd}"], &|_| {});
        assert!(key == "run" && text.contains("{port}"), "{text}");
        let (key, text) = error(&["node", "{port}"], &|app| app.user = Some("ann".into()));
        assert!(key == "user" && text.contains("\"ann\"") && text.contains("omit user"), "{text}");
        let (key, text) = error(&["npx", "{port}"], &|_| {});
        assert!(key == "run" && text.contains("npx.cmd") && text.contains("batch file"), "{text}");
        let (key, text) = error(&["absent", "{port}"], &|_| {});
        assert!(key == "run" && text.contains("there is no program"), "{text}");
        let plan = find(&["node", "{port}"], &|_| {}).expect("a program");
        assert_eq!(plan.program, folder.join("node.exe"));
        let variables = plan.environment(([127, 0, 0, 1], 4711).into());
        let paths = variables.iter().filter(|(name, _)| name.eq_ignore_ascii_case("PATH")).count();
        assert_eq!(paths, 1, "the variable of the settings replaces the one of another case");
        assert_eq!(value(&variables, "LISTEN_FDS"), None);
        std::fs::remove_dir_all(&folder).expect("it was made here");
    }
}
