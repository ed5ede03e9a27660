//! `encke token` against a real server: a signed token permits exactly the named channels.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

use crate::running::{Folder, Running, encke, text};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

// Made with `openssl genpkey`, for this test.
const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIIC0h7iwWTgUmjLqbQ2C/j2JK8m9gbsv0np0QbvURoVb\n\
    -----END PRIVATE KEY-----\n";
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
    MCowBQYDK2VwAyEAiYW91Y4pKuXYI6Uneutst+OhJuYAWOiiq6ugBTIuenI=\n\
    -----END PUBLIC KEY-----\n";

/// Writes settings with a secret and a public key, and the private key as a file.
fn settings(name: &str) -> (Folder, String) {
    let folder = Folder::new(name);
    folder.write("public/index.html", "hello");
    folder.write("secret", SECRET);
    folder.write("private.pem", PRIVATE);
    folder.write("public.pem", PUBLIC);
    let file = folder.write(
        "encke.toml",
        "[[site]]\nroot = \"public\"\n[[auth.keys]]\nkid = \"pair\"\npem = \"public.pem\"\n\
         [[auth.keys]]\nkid = \"shared\"\nsecret = { file = \"secret\" }\n",
    );
    (folder, file)
}

fn run(arguments: &[&str]) -> Output {
    encke().arg("token").args(arguments).output().expect("the program starts")
}

/// Returns the printed token.
fn token(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert_eq!(printed.matches('.').count(), 2, "{printed}");
    printed.strip_suffix('\n').expect("a line").to_owned()
}

/// Publishes to a channel, and returns the status of the response.
fn publish(server: &Running, channel: &str, token: Option<&str>) -> String {
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let mut stream = TcpStream::connect(&server.site).expect("it listens");
    let request = format!(
        "POST /push/{channel} HTTP/1.1\r\nHost: localhost\r\n{authorization}Content-Length: 2\r\n\
         Connection: close\r\n\r\nhi"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn what_is_signed_with_a_key_of_the_settings_opens_what_it_names() {
    let (folder, file) = settings("token-opens");
    let mut command: Command = encke();
    command.args(["serve", "-c", &file, "-l", "127.0.0.1:0", "--admin", "127.0.0.1:0", "-w", "1"]);
    let server = Running::start_command(command.stdout(Stdio::piped()));
    let key = folder.path("private.pem");
    for arguments in [
        // Only the secret of the settings can sign; then the private key from its own file.
        &["-c", &file, "--publish", "news/*,shop"][..],
        &["-c", &file, "--kid", "shared", "--publish", "news/*", "--publish", "shop", "--ttl", "off"],
        &["--key", &key, "--publish", "news/*,shop", "--sub", "ann", "--ttl", "5m"],
        &["--key", &key, "--kid", "pair", "--publish", "news/*,shop"],
    ] {
        let token = token(arguments);
        for (channel, status) in [("news/a", "201"), ("shop", "201"), ("news", "403"), ("other", "403")] {
            assert_eq!(publish(&server, channel, Some(&token)), status, "{arguments:?}: {channel}");
        }
    }
    let foreign = token(&["--key", &key, "--kid", "shared", "--publish", "news/*"]);
    assert_eq!(publish(&server, "news/a", Some(&foreign)), "401");
    assert_eq!(publish(&server, "news/a", None), "401");
    let reader = token(&["-c", &file, "--subscribe", "**"]);
    assert_eq!(publish(&server, "news/a", Some(&reader)), "403");
}

#[test]
fn what_cannot_be_signed_is_told_with_what_to_do() {
    let (folder, file) = settings("token-wrong");
    let short = folder.write("short", "too short");
    let public = folder.path("public.pem");
    let bare = folder.write("bare.toml", "[auth]\n");
    let long = "x".repeat(300);
    for (arguments, status, said) in [
        (&["--publish", "news"][..], 2, "a key is required"),
        (&["-c", &file], 2, "neither a user nor a right"),
        (&["-c", &file, "--publish", "a//b"], 2, "invalid channel pattern `a//b`: empty segment at byte 2"),
        (&["-c", &file, "--publish", "news", "--sub", &long], 2, "1 to 256 bytes"),
        (&["-c", &file, "--publish", "news", "--ttl", "5"], 2, "has no unit"),
        (&["-c", &bare, "--publish", "news"], 1, "no key in [[auth.keys]] can sign"),
        (&["-c", &file, "--kid", "pair", "--publish", "news"], 1, "no key named `pair`"),
        (&["--key", &short, "--publish", "news"], 1, "9 bytes can be guessed"),
        (&["--key", &public, "--publish", "news"], 1, "only the private one signs"),
        (&["--key", "/nonexistent/key", "--publish", "news"], 1, "key file /nonexistent/key"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(said), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
}

#[test]
fn a_settings_file_whose_keys_are_not_there_is_told_before_it_is_served() {
    let (folder, file) = settings("token-check");
    let check = |file: &str| encke().args(["check", file]).output().expect("the program starts");
    assert_eq!(check(&file).status.code(), Some(0));
    for (key, said) in [
        ("pem = \"absent.pem\"", "auth.keys, number 1: key file"),
        ("pem = \"secret\"", "not a PEM file"),
        ("secret = { file = \"public.pem\" }", "the secret is a PEM text: set `pem` to its file instead"),
        ("secret = \"too short\"", "9 bytes can be guessed"),
    ] {
        let wrong = folder.write("wrong.toml", &format!("[[auth.keys]]\n{key}\n"));
        let output = check(&wrong);
        assert_eq!(output.status.code(), Some(1), "{key}");
        let error = text(&output.stderr);
        assert!(error.contains(said), "{key}: {error}");
    }
}
