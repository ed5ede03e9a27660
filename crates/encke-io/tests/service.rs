//! A service of Windows and its manager. The service is this program, in another role.
#![cfg(windows)]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use encke_io::host::{self, Signal, Signals};
use encke_io::lock;
use encke_io::service::{self, ServiceControl, ServiceManagerError, ServicePhase, ServicePlan};
use encke_io::testing::wait_until;

/// Marks the arguments of the service: `--skip MARK --skip NAME --skip FILE`, which the test harness ignores.
const MARK: &str = "the-role-of-the-service";
/// Held by a test that uses the manager: in wine a process may take the place of a service that starts at the same time.
static MANAGER: Mutex<()> = Mutex::new(());
/// The test, by which the service's process runs nothing else.
const ROLE: &str = "the_process_of_the_service";

/// The process of the service: writes its signals to a file. Does nothing in a usual run of the tests.
#[test]
fn the_process_of_the_service() {
    let words: Vec<String> = std::env::args().filter(|word| word != "--skip").collect();
    let Some(place) = words.iter().position(|word| word == MARK) else { return };
    let (name, file) = (words[place + 1].clone(), PathBuf::from(&words[place + 2]));
    let fails = name.ends_with("fails");
    let panics = name.ends_with("panics");
    let main = move || {
        if fails {
            return 7;
        }
        assert!(!panics, "as a fault of the program");
        let signals = Signals::block();
        host::redirect_errors(&file).expect("a file");
        service::set_phase(ServicePhase::Running);
        loop {
            let signal = signals.wait();
            eprintln!("{signal:?}");
            match signal {
                Signal::User1 => host::reopen_errors().expect("a file"),
                Signal::Terminate => break,
                _ => {}
            }
        }
        service::set_phase(ServicePhase::Stopping);
        0
    };
    service::run(&name, main).expect("the manager has started this process");
}

/// A service that is removed at the end, whatever happens.
struct InstalledService {
    name: String,
    file: PathBuf,
}

impl InstalledService {
    /// `None` without the rights of an administrator.
    fn new(ending: &str) -> Option<Self> {
        match service::check_rights() {
            Ok(()) => {}
            Err(error @ ServiceManagerError::NotAdministrator) => {
                assert!(error.to_string().contains("Run as administrator"), "{error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        let name = format!("encke-test-{}-{ending}", std::process::id());
        let file = std::env::temp_dir().join(format!("{name}.log"));
        let installed = Self { name, file };
        installed.install().expect("installed");
        Some(installed)
    }

    fn install(&self) -> Result<(), ServiceManagerError> {
        let program = std::env::current_exe().expect("its path");
        let words = ["--exact", ROLE, "--nocapture", "--skip", MARK, "--skip", &self.name, "--skip"];
        let words: Vec<OsString> =
            words.iter().map(OsString::from).chain([self.file.clone().into_os_string()]).collect();
        service::install(&ServicePlan {
            name: &self.name,
            // Two services may not have the same title.
            title: &self.name,
            description: "Exists only during a test.",
            program: &program,
            arguments: &words,
            stop_time: Duration::from_secs(30),
        })
    }
}

impl Drop for InstalledService {
    fn drop(&mut self) {
        let _may_be_removed = service::remove(&self.name);
        let _may_be_missing = fs::remove_file(&self.file);
    }
}

/// Waits until a file has this text.
fn wait_for(file: &Path, text: &str) {
    let has_text = || fs::read_to_string(file).is_ok_and(|found| found.contains(text));
    wait_until(&format!("{} contains {text:?}", file.display()), has_text);
}

#[test]
fn a_service_is_controlled_by_its_manager() {
    let _alone = lock(&MANAGER);
    let Some(installed) = InstalledService::new("works") else { return };
    let (name, file) = (&*installed.name, &installed.file);
    assert!(service::is_installed(name).expect("known"));
    assert!(matches!(installed.install(), Err(ServiceManagerError::AlreadyInstalled(_))));
    assert!(matches!(service::stop(name), Err(ServiceManagerError::NotRunning(_))));
    assert!(matches!(
        service::control(name, ServiceControl::Reload),
        Err(ServiceManagerError::NotRunning(_))
    ));
    service::start(name).expect("started");
    assert!(matches!(service::start(name), Err(ServiceManagerError::AlreadyRunning(_))));
    service::control(name, ServiceControl::Reload).expect("running");
    wait_for(file, "HangUp\n");
    // A log that was renamed is written again.
    let old = file.with_extension("old");
    fs::rename(file, &old).expect("the log may be renamed while it is written");
    service::control(name, ServiceControl::ReopenLogs).expect("running");
    wait_for(&old, "User1\n");
    service::control(name, ServiceControl::Reload).expect("running");
    wait_for(file, "HangUp\n");
    fs::remove_file(&old).expect("it was renamed");
    service::stop(name).expect("stopped");
    wait_for(file, "Terminate\n");
    service::start(name).expect("started again");
    service::remove(name).expect("stopped and removed");
    // The manager forgets a service when its process has ended.
    wait_until("the service is removed", || !service::is_installed(name).expect("known"));
    assert!(matches!(service::start(name), Err(ServiceManagerError::NotInstalled(_))));
}

#[test]
fn a_service_that_fails_reports_its_status() {
    let _alone = lock(&MANAGER);
    let Some(installed) = InstalledService::new("fails") else { return };
    match service::start(&installed.name) {
        Err(ServiceManagerError::Ended(name, 7)) => assert_eq!(name, installed.name),
        other => panic!("{other:?}"),
    }
    service::report_error(&installed.name, "a text for the event log");
}

#[test]
fn a_service_whose_main_function_panics_ends_with_status_1() {
    let _alone = lock(&MANAGER);
    let Some(installed) = InstalledService::new("panics") else { return };
    match service::start(&installed.name) {
        Err(ServiceManagerError::Ended(name, 1)) => assert_eq!(name, installed.name),
        other => panic!("{other:?}"),
    }
    assert!(
        matches!(service::stop(&installed.name), Err(ServiceManagerError::NotRunning(_))),
        "it has ended"
    );
}

#[test]
fn a_process_that_was_not_started_by_the_manager_is_no_service() {
    let _alone = lock(&MANAGER);
    let result = service::run("encke-test", || 0);
    assert!(matches!(result, Err(ServiceManagerError::NotByManager)), "{result:?}");
    // Does nothing.
    service::set_phase(ServicePhase::Running);
}
