//! `encke serve`: builds a server from the settings file and flags, and handles signals until it ends.
//!
//! ```text
//!           ┌── HUP: reload the settings; invalid ones are rejected as a whole
//! serving ──┼── USR1: reopen the logs
//!           └── TERM, INT ──► draining ── last connection ──► exit: 0, or 130 after ^C
//!                                └─────── TERM, INT again ──► exit immediately
//! ```

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use encke_assembly::settings::{
    AppSettings, CertSettings, FilesOrder, Level, Listen, ListenAddress, OrOff, RouteSettings, RoutedSite,
    Settings, SettingsError, TlsSettings,
};
use encke_assembly::{
    ApplyError, FlagConflict, OpenWork, OverriddenSetting, Predecessor, ReloadResult, Service, SettingsAccess,
};
use encke_io::clock::Clock;
use encke_io::host::{self, Signal, Signals};
use encke_io::process;
use encke_session::tls::LocalAuthority;
use encke_settings::Section as _;
use encke_settings::notice::{self, Details};

use crate::admin_token::{self, AdminTokenFile};
use crate::arguments::Serve;
use crate::check;
use crate::command_line::CommandLine;
use crate::error::{CommandError, CommandResult, INTERRUPTED};
use crate::greeting;
use crate::notify::{Manager, ServiceState};

/// Added to the time for which a new server waits for a draining one.
const DRAIN_SPARE: Duration = Duration::from_secs(1);
/// The name of the application of `--run`.
const RUN_NAME: &str = "run";
/// Time for the workers to count their open work. A turn takes milliseconds.
const COUNT_PATIENCE: Duration = Duration::from_millis(500);

pub(crate) fn run(arguments: &Serve) -> CommandResult {
    // Signals are blocked before the first thread starts, so that only this thread receives them.
    let signals = Signals::block();
    let mut settings = settings(arguments)?;
    let authority = secure(&mut settings, arguments)?;
    admin_token::prepare(&settings);
    notice::set_level(settings.log.level);
    let access = Arc::new(access(&settings, arguments));
    let service = start(&settings, &signals, &access)?;
    let pid_file = settings.server.pid_file.as_deref().map(PidFile::write).transpose()?;
    let token_file = AdminTokenFile::write(&service, &settings, arguments);
    let greeting = greeting::text(&service, &settings, authority.as_ref(), token_file.as_ref());
    let _nobody_listens = io::stderr().write_all(greeting.as_bytes());
    attend(service, signals, ProcessFiles { pid: pid_file, token: token_file }, |service| {
        // Requests that arrive during the reload raise the signal again.
        let requests = access.begin();
        let result = reload(service, arguments);
        requests.finish(&result);
        ControlFlow::Continue(match result {
            Ok(_) => ServiceState::Ready,
            Err(_) => ServiceState::Rejected { at_s: Clock::new().now().unix_s() },
        })
    })
}

/// The console's access to the settings: a request for a reload is a SIGHUP to this process.
fn access(settings: &Settings, arguments: &Serve) -> SettingsAccess {
    let flags = {
        let arguments = arguments.clone();
        move |settings| with_flags(settings, &arguments).map_err(|error| FlagConflict(error.to_string()))
    };
    let wake = || {
        // A process may send signals to itself.
        let _own = host::send_signal(std::process::id(), Signal::HangUp);
    };
    match &arguments.config {
        Some(file) => SettingsAccess::new(settings, file, flags, overridden(arguments), wake),
        None => SettingsAccess::new(settings, Path::new(""), flags, overridden(arguments), wake),
    }
}

/// The settings that the flags override.
fn overridden(arguments: &Serve) -> Vec<OverriddenSetting> {
    let site = arguments.root.is_some();
    [
        ("server.listen", "--listen", !arguments.listen.is_empty()),
        ("server.listen", "--tls-self-signed", arguments.tls_self_signed),
        ("server.workers", "--workers", arguments.workers.is_some()),
        ("server.backend", "--backend", arguments.backend.is_some()),
        ("server.backlog", "--backlog", arguments.backlog.is_some()),
        ("server.admin", "--admin", arguments.admin.is_some()),
        ("site.root", "DIR", site),
        ("site.list", "--list", arguments.list),
        ("site.spa", "--spa", arguments.spa),
        ("site.route", "--to", arguments.to.is_some()),
        ("site.route", "--run", arguments.run.is_some()),
        ("auth.anonymous", "--open", arguments.open),
    ]
    .into_iter()
    .filter(|(_, _, is_set)| *is_set)
    .map(|(key, by, _)| OverriddenSetting { key: key.into(), by: by.into() })
    .collect()
}

/// Starts a server. If a draining process still holds an address or the state directory, waits until that process has ended: a
/// script that sends TERM and starts the next server at once needs no wait of its own.
fn start(
    settings: &Settings,
    signals: &Signals,
    access: &Arc<SettingsAccess>,
) -> Result<Service, CommandError> {
    let server = &settings.server;
    let time = server.drain_delay.duration() + server.drain_time.duration() + DRAIN_SPARE;
    let end = Clock::new().now().plus(time);
    let mut told = None;
    loop {
        let error = match Service::start_reloadable(settings, Arc::clone(access)) {
            Ok(service) => return Ok(service),
            Err(error) => error,
        };
        let Some(Predecessor { process, held }) =
            error.is_in_use().then(|| Predecessor::find(settings)).flatten()
        else {
            // The error of a file with the place of its setting, if a file is the cause.
            let found = check::files_error(settings, &mut Vec::new());
            return Err(found.unwrap_or_else(|| CommandError::system(error)));
        };
        let pid = process.pid();
        let left = Duration::from_nanos(end.saturating_sub(Clock::new().now().mono_ns));
        if told.replace(pid) != Some(pid) {
            let text = format!(
                "another encke (pid {pid}) is draining and holds {held}: waiting up to {} s for its end",
                left.as_secs_f64().round()
            );
            notice::report(Level::Info, &text);
        }
        // The signals are blocked, and ^C must end the wait.
        if left.is_zero() || !signals.unblocked(|| process.wait(left)) {
            let text = format!(
                "another encke (pid {pid}) is draining and still holds {held}: start again when it has ended"
            );
            return Err(CommandError::system(error).context(text));
        }
    }
}

/// Runs a server until a signal ends it. `hang_up` handles SIGHUP, and returns the state after it.
pub(crate) fn attend(
    mut service: Service,
    signals: Signals,
    files: ProcessFiles,
    hang_up: impl FnMut(&mut Service) -> ControlFlow<(), ServiceState>,
) -> CommandResult {
    for note in service.notes() {
        notice::report(Level::Warn, note);
    }
    for (name, error) in signals.unavailable() {
        let text = format!("cannot create {name}: {error}; other processes cannot send this signal");
        notice::report(Level::Warn, &text);
    }
    let manager = Manager::of_this_process();
    manager.tell(&ServiceState::Ready);
    let status = obey(&mut service, &signals, &manager, hang_up);
    manager.tell(&ServiceState::Stopping);
    let mut clock = Clock::new();
    let begun_ns = clock.now().mono_ns;
    // Dropped after the service: a successor waits for the mark's end.
    let _mark = service.mark();
    service.drain();
    let at_once = files.paths();
    let _impatience = thread::Builder::new().name("second-signal".into()).spawn(move || {
        let again = wait_for_end(&signals);
        for path in at_once {
            let _may_be_gone = fs::remove_file(path);
        }
        process::kill_all();
        host::exit_now(if again == Signal::Interrupt { INTERRUPTED.into() } else { 1 })
    });
    let told = tell_drain(&service);
    let drained = service.join();
    let took = Duration::from_nanos(clock.now().mono_ns.saturating_sub(begun_ns));
    if told || drained.late > 0 {
        notice::report(Level::Info, &drained_text(took, drained.late));
    }
    Ok(ExitCode::from(status))
}

/// Reports the streams and requests that a drain waits for. Returns false if there are none.
fn tell_drain(service: &Service) -> bool {
    let time = service.drain_periods();
    let open = service.open_work(COUNT_PATIENCE);
    let text = draining_text(open, time);
    if let Some(text) = &text {
        notice::report(Level::Info, text);
    }
    text.is_some()
}

/// The line at the beginning of a drain; `None` if nothing is open and nothing delays the end. `open` is `None` if a worker is
/// too busy to count.
fn draining_text(open: Option<OpenWork>, (delay, time): (Duration, Duration)) -> Option<String> {
    let parts = match open {
        Some(open) => {
            let streams = (open.streams > 0).then(|| counted(open.streams, "stream"));
            let requests = (open.requests > 0).then(|| counted(open.requests, "request"));
            let parts: Vec<String> = streams.into_iter().chain(requests).collect();
            if parts.is_empty() && delay.is_zero() {
                return None;
            }
            if parts.is_empty() { "no streams or requests".into() } else { parts.join(" and ") }
        }
        None => "streams and requests not counted yet".into(),
    };
    Some(format!("draining: {parts}, up to {} s", (delay + time).as_secs_f64()))
}

/// The line at the end of a drain.
fn drained_text(took: Duration, late: usize) -> String {
    let took = took.as_secs_f64();
    match late {
        0 => format!("drained in {took:.1} s"),
        1 => format!("drained in {took:.1} s; 1 stream or request was closed before its end"),
        late => format!("drained in {took:.1} s; {late} streams and requests were closed before their end"),
    }
}

/// A count with its noun: `1 stream`, `2 streams`.
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Handles signals until one ends the server. Returns the exit status.
fn obey(
    service: &mut Service,
    signals: &Signals,
    manager: &Manager,
    mut hang_up: impl FnMut(&mut Service) -> ControlFlow<(), ServiceState>,
) -> u8 {
    loop {
        match signals.wait() {
            Signal::Interrupt => return INTERRUPTED,
            Signal::Terminate => return 0,
            Signal::HangUp => {
                manager.tell(&ServiceState::Reloading);
                match hang_up(service) {
                    ControlFlow::Break(()) => return 0,
                    ControlFlow::Continue(state) => manager.tell(&state),
                }
            }
            Signal::User1 => {
                if let Err(error) = host::reopen_errors() {
                    notice::report(Level::Error, &format!("cannot reopen the log of messages: {error}"));
                }
                match service.reopen_logs() {
                    Ok(()) => notice::report(Level::Info, "logs reopened"),
                    Err(error) => notice::report(Level::Error, &error.to_string()),
                }
            }
            // Reserved for the hand-over to a new process.
            Signal::User2 => {}
        }
    }
}

fn wait_for_end(signals: &Signals) -> Signal {
    loop {
        let signal = signals.wait();
        if matches!(signal, Signal::Interrupt | Signal::Terminate) {
            return signal;
        }
    }
}

/// Reads the settings again and applies them. Reports the result to the operator, too.
fn reload(service: &mut Service, arguments: &Serve) -> ReloadResult {
    let new = settings(arguments).and_then(|mut new| {
        secure(&mut new, arguments)?;
        Ok(new)
    });
    let new = match new {
        Ok(new) => new,
        Err(failure) => {
            let file =
                arguments.config.as_ref().map_or_else(String::new, |file| format!(" in {}", file.display()));
            let text = format!("invalid settings{file}; keeping the old ones:");
            // Each line of a message already has its level.
            let message = failure.message();
            let lines: Vec<&str> =
                message.lines().map(|line| line.strip_prefix("error: ").unwrap_or(line)).collect();
            // The console shows recent lines to users that may not see the secrets of the file.
            let recent = match &failure {
                CommandError::Settings(SettingsError::Wrong(problems)) => problems.without_values(),
                _ => String::new(),
            };
            let details = Details { on_stderr: &lines.join("\n"), recent: &recent };
            notice::report_with(Level::Error, &text, &details);
            return Err(ApplyError::Rejected(lines.join("\n")));
        }
    };
    match service.reload(&new) {
        Ok(notes) => {
            notice::set_level(new.log.level);
            notice::report(Level::Info, "settings reloaded");
            for note in &notes {
                notice::report(Level::Warn, note);
            }
            Ok(notes)
        }
        Err(error) => {
            let found = check::files_error(&new, &mut Vec::new());
            let text = found.map_or_else(|| error.to_string(), |found| found.to_string());
            // A message of the log is one line.
            let text = text.replace("\nerror: ", "; ");
            notice::report(Level::Error, &format!("cannot apply the settings, keeping the old ones: {text}"));
            Err(ApplyError::Rejected(text))
        }
    }
}

/// Returns the settings of the file, overridden by the flags.
fn settings(arguments: &Serve) -> Result<Settings, CommandError> {
    let settings = match &arguments.config {
        Some(file) => Settings::read(file)?,
        None => Settings::default(),
    };
    with_flags(settings, arguments)
}

/// Overrides settings by the flags.
fn with_flags(mut settings: Settings, arguments: &Serve) -> Result<Settings, CommandError> {
    let server = &mut settings.server;
    if !arguments.listen.is_empty() {
        server.listen = arguments.listen.iter().cloned().map(Listen::at).collect();
    }
    if let Some(workers) = arguments.workers {
        server.workers = workers;
    }
    if let Some(backend) = arguments.backend {
        server.backend = backend;
    }
    if let Some(backlog) = arguments.backlog {
        server.backlog = backlog;
    }
    match &arguments.admin {
        Some(OrOff::Off) => server.admin = OrOff::Off,
        Some(OrOff::On(address)) => {
            let mut admin = std::mem::take(&mut server.admin).on().unwrap_or_default();
            admin.address = Some(address.clone());
            server.admin = OrOff::On(admin);
        }
        None => {}
    }
    settings.open = arguments.open;
    add_directory(arguments, &mut settings.site)?;
    if let Some(CommandLine(run)) = &arguments.run {
        settings.app.retain(|other| other.name != RUN_NAME);
        let app = AppSettings { name: RUN_NAME.into(), run: run.clone(), ..AppSettings::default() };
        if let Some(error) = app.check().first() {
            return Err(CommandError::usage(format!("--run: {}", error.message)));
        }
        settings.app.push(app);
    }
    if let Some(to) = &arguments.to
        && to.is_one_of(&settings.listener_addresses())
    {
        let text = format!(
            "--to {to} is the address at which this server listens, so requests would return here: name the \
             application's address, or listen elsewhere with --listen"
        );
        return Err(CommandError::usage(text));
    }
    Ok(settings)
}

/// With `--tls-self-signed`, gives every TCP listener without a certificate one from this machine's local authority.
fn secure(settings: &mut Settings, arguments: &Serve) -> Result<Option<LocalAuthority>, CommandError> {
    settings.keys.extend(admin_token::folder());
    if !arguments.tls_self_signed {
        return Ok(None);
    }
    let folder = state_folder(settings.server.state_dir.as_deref(), |name| std::env::var_os(name))?;
    let authority = LocalAuthority::open(&folder)
        .map_err(|error| CommandError::system(error).context("--tls-self-signed"))?;
    settings.keys.extend(authority.certificate.parent().map(Path::to_owned));
    for listen in &mut settings.server.listen {
        // A listener that redirects to https stays plain.
        let is_plain = listen.tls.is_none() && listen.redirect.is_none();
        if is_plain && !matches!(listen.address, ListenAddress::Unix(_)) {
            let CertSettings { cert, key, .. } = authority.leaf.clone();
            listen.tls = Some(TlsSettings { cert: Some(cert), key: Some(key), ..TlsSettings::default() });
        }
    }
    Ok(Some(authority))
}

/// The directory for the local authority: the server's state directory, or the user's.
fn state_folder(
    named: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, CommandError> {
    named.map(Path::to_owned).or_else(|| admin_token::user_folder(variable)).ok_or_else(|| {
        let text = "--tls-self-signed needs a directory for its authority: set server.state_dir in a settings \
                    file, or the variable HOME (on Windows LOCALAPPDATA)";
        CommandError::usage(text)
    })
}

/// Applies the directory and flags of the command line to the site without host names, which it adds if there is none. The
/// working directory is served only without a settings file: a file that has lost its sites must not publish other files.
fn add_directory(arguments: &Serve, sites: &mut Vec<RoutedSite>) -> Result<(), CommandError> {
    let flag = [(arguments.list, "--list"), (arguments.spa, "--spa")].into_iter().find(|(is_set, _)| *is_set);
    let target = arguments.to.as_ref().map(ToString::to_string);
    let target = target.or_else(|| arguments.run.as_ref().map(|_| format!("app:{RUN_NAME}")));
    let names_none = arguments.root.is_none() && target.is_none();
    if arguments.config.is_some() && names_none && flag.is_none() {
        return Ok(());
    }
    let place = match sites.iter().position(|site| site.host.is_empty()) {
        Some(place) => place,
        None => {
            if let (Some(file), true, Some((_, flag))) = (&arguments.config, names_none, flag) {
                let text = format!(
                    "{flag} applies to the site without host names, and {} has none: specify a directory, or add a \
                     [[site]] with a root",
                    file.display()
                );
                return Err(CommandError::usage(text));
            }
            let here = std::env::current_dir().unwrap_or_default();
            // A root directory: `/`, or that of a drive.
            if names_none && here.has_root() && here.parent().is_none() {
                let text = format!(
                    "nothing to serve: specify a directory, or add a [[site]] with a root to the settings (the current \
                     directory is {}, which must be specified explicitly)",
                    here.display()
                );
                return Err(CommandError::usage(text));
            }
            sites.push(RoutedSite::default());
            sites.len() - 1
        }
    };
    let site = &mut sites[place];
    if let Some(root) = &arguments.root {
        // Python's http.server takes a port there.
        if let Some(port) = root.to_str().filter(|word| word.parse::<u16>().is_ok())
            && !root.exists()
        {
            return Err(CommandError::usage(format!(
                "no directory `{port}`; to listen on this port: encke serve -l {port}"
            )));
        }
        site.root.clone_from(root);
    }
    site.list |= arguments.list;
    site.spa |= arguments.spa;
    if target.is_some() {
        let route = RouteSettings {
            upstream: target,
            files: arguments.root.as_ref().map(|_| FilesOrder::First),
            ..RouteSettings::default()
        };
        // The flag precedes a route of the file with the same pattern.
        site.route.retain(|other| other.pattern != route.pattern || other.internal);
        site.route.push(route);
    }
    Ok(())
}

/// The files that a process removes at its end.
#[derive(Default)]
pub(crate) struct ProcessFiles {
    pid: Option<PidFile>,
    token: Option<AdminTokenFile>,
}

impl ProcessFiles {
    fn paths(&self) -> Vec<PathBuf> {
        let token = self.token.as_ref().map(AdminTokenFile::path);
        self.pid.as_ref().map(|file| &*file.0).into_iter().chain(token).map(Path::to_owned).collect()
    }
}

/// A file with the id of this process. Dropping it removes the file.
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    fn write(path: &Path) -> Result<Self, CommandError> {
        fs::write(path, format!("{}\n", std::process::id())).map_err(|error| {
            CommandError::system(error).context(format_args!("pid file {}", path.display()))
        })?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // A successor may already have written its own process id.
        let ours =
            fs::read_to_string(&self.0).is_ok_and(|text| text.trim() == std::process::id().to_string());
        if ours {
            let _may_be_gone = fs::remove_file(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use encke_assembly::settings::OrAuto;

    fn serve(line: &str) -> Serve {
        let words = std::iter::once("encke serve").chain(line.split_whitespace());
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            serve: Serve,
        }
        Only::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).serve
    }

    #[test]
    fn without_flags_the_defaults_and_the_present_folder_are_served() {
        let settings = settings(&Serve { config: None, ..serve("") }).expect("nothing is wrong");
        assert_eq!(settings.server, Settings::default().server);
        assert_eq!(settings.site, [RoutedSite::default()]);
    }

    #[test]
    fn a_port_in_place_of_a_directory_names_the_flag_of_ports() {
        let failure = settings(&Serve { config: None, ..serve("8000") }).expect_err("no such directory");
        assert!(failure.to_string().contains("encke serve -l 8000"), "{failure}");
    }

    #[test]
    fn an_application_at_the_own_address_is_rejected() {
        for line in
            ["--to 8080", "--listen :3000 --to http://127.0.0.1:3000", "--listen unix:/a --to unix:/a"]
        {
            let failure = settings(&Serve { config: None, ..serve(line) }).expect_err(line);
            assert!(failure.to_string().contains("at which this server listens"), "{line}: {failure}");
        }
        for line in ["--to 3000", "--listen 192.0.2.1:3000 --to http://127.0.0.1:3000"] {
            assert!(settings(&Serve { config: None, ..serve(line) }).is_ok(), "{line}");
        }
    }

    #[test]
    fn flags_win_over_the_file() {
        let file = std::env::temp_dir().join(format!("encke-flags-{}.toml", std::process::id()));
        fs::write(
            &file,
            "[server]\nlisten = 9000\nworkers = 3\nbackend = \"poll\"\nbacklog = 10\nadmin = { metrics = \"open\" }\n\
             [[site]]\nhost = [\"x\"]\n",
        )
        .expect("a temporary file");
        let with = |line: &str| {
            let arguments = Serve { config: Some(file.clone()), ..serve(line) };
            settings(&arguments).unwrap_or_else(|failure| panic!("{failure}"))
        };
        let from_file = with("");
        assert_eq!(from_file.server.listen, [Listen::at(ListenAddress::Loopback(9000))]);
        assert_eq!(from_file.site.len(), 1, "no site is added to those of the file");
        let flagged =
            with("/srv --list -l 1 -l :2 -w auto --backend epoll-level --backlog 11 --admin 127.0.0.1:3");
        let server = &flagged.server;
        assert_eq!(
            server.listen,
            [Listen::at(ListenAddress::Loopback(1)), Listen::at(ListenAddress::Everywhere(2))]
        );
        assert_eq!((server.workers, server.backlog), (OrAuto::Auto, 11));
        assert_eq!(server.backend, OrAuto::Set(encke_io::Backend::EpollLevel));
        let admin = server.admin.clone().on().expect("on");
        assert_eq!(admin.address().to_string(), "127.0.0.1:3");
        assert_eq!(admin.metrics, encke_assembly::settings::MetricsAccess::Open, "what no flag says stays");
        assert_eq!(flagged.site.len(), 2, "the folder is the site for all other hosts");
        assert_eq!((flagged.site[1].root.as_path(), flagged.site[1].list), (Path::new("/srv"), true));
        assert_eq!(with("--admin off").server.admin, OrOff::Off);
        fs::remove_file(&file).expect("it was made here");
    }

    #[test]
    fn a_settings_file_without_sites_serves_only_a_named_directory() {
        let file = std::env::temp_dir().join(format!("encke-no-site-{}.toml", std::process::id()));
        let read = |text: &str, line: &str| {
            fs::write(&file, text).expect("a temporary file");
            settings(&Serve { config: Some(file.clone()), ..serve(line) })
        };
        let sites = |line: &str| read("", line).unwrap_or_else(|failure| panic!("{failure}")).site;
        assert_eq!(sites(""), []);
        assert_eq!(
            sites("/srv").iter().map(|site| site.root.as_path()).collect::<Vec<_>>(),
            [Path::new("/srv")]
        );
        for (text, flag) in [("", "--list"), ("", "--spa"), ("[[site]]\nhost = [\"a\"]\n", "--list")] {
            let failure = read(text, flag).expect_err("there is no site for the flag").to_string();
            assert!(failure.contains(flag) && failure.contains("specify a directory"), "{failure}");
            assert!(failure.contains(&file.display().to_string()), "{failure}");
        }
        fs::remove_file(&file).expect("it was made here");
    }

    #[test]
    fn a_drain_reports_what_it_waits_for_and_what_it_cut_off() {
        let open = |streams, requests| {
            let mut open = OpenWork::default();
            (open.streams, open.requests) = (streams, requests);
            Some(open)
        };
        let text =
            |open, delay_s| draining_text(open, (Duration::from_secs(delay_s), Duration::from_secs(8)));
        for (open, delay_s, expected) in [
            (open(0, 0), 0, None),
            (open(5, 0), 0, Some("draining: 5 streams, up to 8 s")),
            (open(1, 1), 0, Some("draining: 1 stream and 1 request, up to 8 s")),
            (open(0, 2), 5, Some("draining: 2 requests, up to 13 s")),
            (open(0, 0), 5, Some("draining: no streams or requests, up to 13 s")),
            (None, 0, Some("draining: streams and requests not counted yet, up to 8 s")),
        ] {
            assert_eq!(text(open, delay_s).as_deref(), expected);
        }
        let took = Duration::from_millis(8_040);
        assert_eq!(drained_text(took, 0), "drained in 8.0 s");
        assert_eq!(drained_text(took, 1), "drained in 8.0 s; 1 stream or request was closed before its end");
        assert_eq!(
            drained_text(took, 3),
            "drained in 8.0 s; 3 streams and requests were closed before their end"
        );
    }

    #[test]
    fn an_authority_lies_in_the_folder_of_state_or_in_the_users() {
        let at = |named: Option<&str>, variables: &[(&str, PathBuf)]| {
            let variable = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
            };
            state_folder(named.map(Path::new), variable)
        };
        // On Windows an absolute path has a drive.
        let ann = std::path::absolute("/users/ann").expect("a path");
        let both = [("XDG_STATE_HOME", ann.join("state")), ("HOME", ann.clone())];
        assert_eq!(at(Some("/var/lib/encke"), &both).ok(), Some("/var/lib/encke".into()));
        assert_eq!(at(None, &both).ok(), Some(ann.join("state/encke")));
        assert_eq!(at(None, &both[1..]).ok(), Some(ann.join(".local/state/encke")));
        assert_eq!(at(None, &[("LOCALAPPDATA", ann.join("local"))]).ok(), Some(ann.join("local/encke")));
        let relative = [("XDG_STATE_HOME", "state".into()), ("HOME", "".into())];
        let failure = at(None, &relative).expect_err("nowhere").to_string();
        assert!(failure.contains("server.state_dir"), "{failure}");
    }

    #[test]
    fn a_pid_file_is_removed_only_by_its_own_process() {
        let path = std::env::temp_dir().join(format!("encke-pid-{}", std::process::id()));
        drop(PidFile::write(&path).expect("written"));
        assert!(!path.exists());
        let file = PidFile::write(&path).expect("written");
        fs::write(&path, "1\n").expect("written");
        drop(file);
        assert!(path.exists(), "another process's number was removed");
        fs::remove_file(&path).expect("it was made here");
        let failure = PidFile::write(Path::new("/nonexistent-folder/pid")).err().expect("no such folder");
        assert!(failure.to_string().contains("pid file /nonexistent-folder/pid"), "{failure}");
    }
}
