//! The token of the admin listener, which a running server leaves for the commands of the same user.

use std::path::Path;

use encke_io::files;
use encke_io::host::Signal;
use encke_io::testing::own_host;

use crate::running::{Folder, Running, encke, text};

/// Runs a command of the user with this state directory. Returns its output and its errors.
fn run(state: &str, arguments: &[&str]) -> (String, String) {
    let output = encke().env("XDG_STATE_HOME", state).args(arguments).output().expect("it runs");
    (text(&output.stdout), text(&output.stderr))
}

/// The part of `SERVER ?token=TOKEN` with the token.
fn token_of(server: &Running) -> String {
    let (_, token) = server.admin.split_once("token=").expect("a printed token");
    token.trim_end_matches('\'').to_owned()
}

fn serve(state: &str, folder: &Folder, arguments: &[&str]) -> Running {
    let root = folder.path("");
    let mut command = encke();
    Running::start_command(
        command
            .env("XDG_STATE_HOME", state)
            .args(["serve", &root, "-l", "127.0.0.1:0", "-w", "1"])
            .args(arguments),
    )
}

/// A port of an own address, at which no other test listens.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind(format!("{}:0", own_host())).expect("a free port");
    listener.local_addr().expect("bound").to_string()
}

#[test]
fn commands_with_the_settings_file_find_the_token_in_the_state_directory() {
    let folder = Folder::new("left-state");
    let state = folder.path("user");
    let socket = folder.path("admin.sock");
    let text = format!("[server]\nstate_dir = \"state\"\nadmin = {{ address = \"unix:{socket}\" }}\n");
    let file = folder.write("encke.toml", &text);
    let server = serve(&state, &folder, &["-c", &file]);
    let left = folder.path("state/admin.token");
    assert_eq!(folder.read("state/admin.token").trim(), token_of(&server));
    assert!(files::is_private(Path::new(&left)).expect("it is there"), "other users can read {left}");
    let (status, errors) = run(&state, &["status", "-c", &file]);
    assert!(status.contains("listening"), "{errors}");
    server.signal(Signal::Terminate);
    assert_eq!(server.end().0, Some(0));
    assert!(!Path::new(&left).exists(), "the file outlives its process");
}

#[test]
fn commands_without_a_settings_file_find_the_token_of_the_same_user() {
    let folder = Folder::new("left-user");
    let (state, address) = (folder.path("user"), free_address());
    let server = serve(&state, &folder, &["--admin", &address]);
    let command = format!("later: encke console {address})");
    assert!(server.greeting.contains(&command), "{}", server.greeting);
    let (status, errors) = run(&state, &["status", &address]);
    assert!(status.contains("listening"), "{errors}");
    let (url, errors) = run(&state, &["console", "--print", &address]);
    assert!(url.contains("/#login="), "{errors}");
    let (status, errors) = run(&folder.path("other"), &["status", &address]);
    assert!(status.is_empty() && errors.contains("a token is required"), "{status}{errors}");
}

#[test]
fn a_token_that_another_process_has_left_is_kept_and_never_served() {
    let folder = Folder::new("left-other");
    let (state, address) = (folder.path("user"), free_address());
    let server = serve(&state, &folder, &["--admin", &address]);
    let (_, port) = address.rsplit_once(':').expect("a port");
    let left = folder.path(&format!("user/encke/admin/{port}.token"));
    let path = format!("/user/encke/admin/{port}.token");
    assert!(server.get(&path).starts_with("HTTP/1.1 404"), "the token is served");
    std::fs::write(&left, "another").expect("a successor's");
    server.signal(Signal::Terminate);
    assert_eq!(server.end().0, Some(0));
    assert_eq!(std::fs::read_to_string(&left).expect("kept"), "another");
}

#[test]
fn a_token_of_the_settings_is_not_copied() {
    let folder = Folder::new("left-configured");
    let state = folder.path("user");
    let text = "[server]\nstate_dir = \"state\"\nadmin = { address = \"127.0.0.1:0\", token = \"0123456789abcdef\" }\n";
    let file = folder.write("encke.toml", text);
    let server = serve(&state, &folder, &["-c", &file]);
    assert!(server.greeting.contains("`encke console -c "), "{}", server.greeting);
    assert!(!Path::new(&folder.path("state/admin.token")).exists());
    assert!(!Path::new(&state).exists());
}
