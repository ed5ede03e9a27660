//! Commands whose terminal disappears: a window is closed, a connection drops. Reads then return end of file, and writes EIO.
//!
//! The pseudo-terminal controls no session, so that the system sends no SIGHUP.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use encke_io::host::{Signal, pseudo_terminal, send_signal};

use crate::running::{Folder, Running, encke, patiently, text};

/// A command on a terminal of its own.
struct OnTerminal {
    child: Child,
    terminal: File,
}

impl OnTerminal {
    fn start(command: &mut Command) -> Self {
        let (terminal, slave) = pseudo_terminal().expect("a pseudo-terminal");
        let [input, output] = [(); 2].map(|()| slave.try_clone().expect("a descriptor"));
        command.stdin(input).stdout(output).stderr(slave).env("TERM", "xterm");
        let child = command.spawn().expect("the program starts");
        // The slave's descriptors of this process are closed, so that the child holds the only ones.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { child, terminal }
    }

    /// Waits until the command has written `part`.
    fn wait_for(&mut self, part: &str) {
        let (mut written, mut bytes) = (String::new(), [0; 1024]);
        patiently(self.child.id(), || {
            while !written.contains(part) {
                let read = self.terminal.read(&mut bytes).expect("it has not ended");
                written += &text(&bytes[..read]);
            }
        });
    }

    /// Closes the terminal.
    fn disappear(self) -> Child {
        self.child
    }
}

fn status(mut child: Child) -> Option<i32> {
    patiently(child.id(), || child.wait()).expect("a child").code()
}

fn server(folder: &Folder) -> Running {
    folder.write("public/index.html", "hello");
    Running::start(&[&folder.path("public")])
}

/// The escape sequence that starts a live screen.
const ALTERNATE_SCREEN: &str = "\x1b[?1049h";

#[test]
fn a_load_run_outlives_its_terminal_and_saves_its_report() {
    let folder = Folder::new("terminal-load");
    let server = server(&folder);
    let (site, channel) = (format!("http://{}/", server.site), format!("http://{}/push/x", server.site));
    let saved = folder.path("saved.json");
    for arguments in [
        &["load", "-c", "2", "-r", "100", "-d", "2s", "--save", &saved, &site][..],
        &["load", "push", "-s", "2", "-r", "20", "-d", "2s", "--save", &saved, &channel],
    ] {
        let mut load = OnTerminal::start(encke().args(arguments));
        load.wait_for(ALTERNATE_SCREEN);
        let status = status(load.disappear());
        // 4: on a busy machine the generator is the bottleneck.
        assert!(matches!(status, Some(0 | 4)), "{arguments:?}: {status:?}");
        let report: serde_json::Value = serde_json::from_str(&folder.read("saved.json")).expect("JSON");
        assert_eq!(report["schema"], 1, "{arguments:?}");
        std::fs::remove_file(&saved).expect("it was saved");
    }
}

#[test]
fn a_signal_ends_a_load_run_whose_terminal_disappeared() {
    let folder = Folder::new("terminal-signal");
    let server = server(&folder);
    let (site, channel) = (format!("http://{}/", server.site), format!("http://{}/push/x", server.site));
    let saved = folder.path("saved.json");
    for arguments in [
        &["load", "-c", "2", "-r", "100", "-d", "1h", "--save", &saved, &site][..],
        &["load", "push", "-s", "2", "-r", "20", "-d", "1h", "--save", &saved, &channel],
    ] {
        for signal in [Signal::Terminate, Signal::HangUp] {
            let mut load = OnTerminal::start(encke().args(arguments));
            load.wait_for(ALTERNATE_SCREEN);
            let child = load.disappear();
            send_signal(child.id(), signal).expect("it lives");
            assert_eq!(status(child), Some(130), "{arguments:?}: {signal:?}");
            let report: serde_json::Value = serde_json::from_str(&folder.read("saved.json")).expect("JSON");
            assert_eq!(report["schema"], 1, "{arguments:?}");
            std::fs::remove_file(&saved).expect("it was saved");
        }
    }
}

#[test]
fn hang_ups_end_a_load_run_once_with_its_report() {
    let folder = Folder::new("terminal-hang-up");
    let saved = folder.path("saved.json");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("its address"));
    let mut load = encke();
    load.args(["load", "-c", "1", "-n", "2", "--json", "--save", &saved, &url]).stdout(Stdio::piped());
    let child = load.spawn().expect("the program starts");
    let (mut connection, _) = listener.accept().expect("a connection");
    let mut request = [0; 1024];
    assert!(connection.read(&mut request).expect("a request") > 0);
    // A shell and the system send one each. The run waits for its open request.
    for _sender in 0..2 {
        send_signal(child.id(), Signal::HangUp).expect("it lives");
    }
    connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("it reads");
    let output = patiently(child.id(), || child.wait_with_output()).expect("a child");
    assert_eq!(output.status.code(), Some(130));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report, serde_json::from_str::<serde_json::Value>(&folder.read("saved.json")).expect("JSON"));
}

#[test]
fn commands_that_print_end_with_their_terminal() {
    let folder = Folder::new("terminal-print");
    let server = server(&folder);
    let mut watch = OnTerminal::start(encke().args(["status", "--watch", &server.admin]));
    watch.wait_for("listening");
    assert_eq!(status(watch.disappear()), Some(0));
    let url = format!("http://{}", server.site);
    let mut sub = OnTerminal::start(encke().args(["sub", "news"]).env("ENCKE_URL", &url));
    sub.wait_for("subscribed");
    let child = sub.disappear();
    let published = encke().args(["pub", "news", "hi"]).env("ENCKE_URL", &url).output().expect("it starts");
    assert_eq!(published.status.code(), Some(0), "{}", text(&published.stderr));
    assert_eq!(status(child), Some(0));
}

#[test]
fn a_message_whose_terminal_disappears_is_not_published() {
    let folder = Folder::new("terminal-pub");
    let server = server(&folder);
    let url = format!("http://{}", server.site);
    let mut publish = OnTerminal::start(encke().args(["pub", "news"]).env("ENCKE_URL", &url));
    publish.wait_for("^D");
    publish.terminal.write_all(b"half a mess\n").expect("a terminal");
    publish.wait_for("half a mess");
    assert_eq!(status(publish.disappear()), Some(1));
    let history = server.get("/push/news?since=all&wait=0&as=poll");
    assert!(history.starts_with("HTTP/1.1 204 "), "{history}");
}
