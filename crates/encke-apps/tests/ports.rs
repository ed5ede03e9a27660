//! Applications that listen at `{port}` themselves, on every system: the application is this program.

mod rig;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use encke_apps::{AppSettings, RestartFailure};
use encke_io::lock;
use encke_io::testing::wait_until;
use encke_settings::Period;

use rig::{SupervisedApps, get};

/// The application: responds with its process id and a variable. After `/exit` it exits with status 3. Does nothing in a usual run of
/// the tests.
#[test]
fn an_application_serves() {
    let Ok(port) = std::env::var("APP_PORT") else { return };
    if std::env::var("APP_WORD").is_ok_and(|word| word == "fails") {
        std::process::exit(7);
    }
    let port: u16 = port.parse().expect("a port");
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    println!("listening");
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
        let first = lines.next().and_then(Result::ok).unwrap_or_default();
        let _rest = lines.take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty())).count();
        let body = format!("{} {}", std::process::id(), std::env::var("APP_WORD").unwrap_or_default());
        let response =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        let _client_is_gone = stream.write_all(response.as_bytes());
        if first.starts_with("GET /exit ") {
            std::process::exit(3);
        }
    }
}

fn app(word: &str) -> AppSettings {
    let program = std::env::current_exe().expect("its path").display().to_string();
    let words = ["--exact", "an_application_serves", "--nocapture"].map(String::from);
    AppSettings {
        name: "shop".into(),
        run: std::iter::once(program).chain(words).collect(),
        directory: Some(std::env::temp_dir()),
        env: [("APP_PORT", "{port}"), ("APP_WORD", word)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        start_time: Period::seconds(60),
        ..AppSettings::default()
    }
}

#[test]
fn a_process_that_ends_is_started_again_at_another_port() {
    let world = SupervisedApps::new(&[app("first")]);
    let address = world.address().expect("it responds");
    let first = get(address, "/exit").expect("a response");
    assert_eq!(first[1], "first");
    assert_eq!(world.address(), None, "another program may get the port");
    let again = world.address().expect("it responds again");
    assert_ne!(get(again, "/").expect("a response")[0], first[0]);
}

#[test]
fn a_replaced_process_serves_its_connections_and_then_ends() {
    let world = SupervisedApps::new(&[app("first")]);
    let old = world.address().expect("it responds");
    let first = get(old, "/").expect("a response");
    lock(&world.used).push(old);
    world.run(&[app("second")]);
    let new = world.other(old);
    assert_eq!(get(new, "/").expect("a response")[1], "second");
    assert_eq!(get(old, "/").expect("the old process serves its connections")[0], first[0]);
    lock(&world.used).clear();
    wait_until("the old process has ended", || get(old, "/").is_err());
}

#[test]
fn a_replacement_that_fails_leaves_the_old_process_in_place() {
    let world = SupervisedApps::new(&[app("first")]);
    let old = world.address().expect("it responds");
    let first = get(old, "/").expect("a response");
    world.run(&[app("fails")]);
    let result = world.restart("shop");
    let Err(RestartFailure::Failed(reasons)) = result else { panic!("{result:?}") };
    assert!(reasons[0].contains("the old one stays"), "{reasons:?}");
    assert_eq!(get(old, "/").expect("the old one stays")[0], first[0]);
}

#[test]
fn all_processes_end_with_the_supervisor() {
    let world = SupervisedApps::new(&[AppSettings { count: 2.try_into().expect("not 0"), ..app("first") }]);
    let one = world.address().expect("it responds");
    let addresses = [one, world.other(one)];
    for address in addresses {
        get(address, "/").expect("a response");
    }
    drop(world.apps);
    for address in addresses {
        assert!(get(address, "/").is_err(), "a process has outlived its supervisor");
    }
}
