//! Processes of a program whose parent has ignored SIGCHLD: this test starts itself again, by env(1), which does so.
#![cfg(target_os = "linux")]

use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;

use encke_io::process::{Process, ProcessEnd, ProcessPlan, StopSignal};

#[test]
fn ended_processes_stay_in_the_table_although_a_parent_ignored_them() {
    if std::env::var_os(AGAIN).is_none() {
        let this = std::env::current_exe().expect("this test");
        let mut env = std::process::Command::new("env");
        let status = env.arg("--ignore-signal=CHLD").arg(this).env(AGAIN, "1").status();
        assert!(status.expect("env(1)").success());
        return;
    }
    let plan = ProcessPlan {
        program: Path::new("/bin/sh"),
        arguments: &["sh", "-c", "exit 4"].map(OsString::from),
        environment: &[],
        directory: Path::new("/"),
        user: None,
        socket: None,
        orphan_signal: StopSignal::Terminate,
    };
    let (process, mut pipe) = Process::start(&plan).expect("started");
    pipe.read_to_end(&mut Vec::new()).expect("its end");
    assert_eq!(process.wait().expect("it is in the table"), ProcessEnd::Status(4));
}

/// The variable of the second run.
const AGAIN: &str = "ENCKE_TEST_AGAIN";
