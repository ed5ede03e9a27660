//! Applications in Node under a supervisor, on real sockets.

mod rig;

use std::net::SocketAddr;
use std::sync::mpsc::channel;

use encke_apps::{AppSettings, ReplaceWhen, RestartFailure};
use encke_io::lock;
use encke_io::testing::{wait_for, wait_until};
use encke_settings::Period;
use encke_stats::{ListTicket, Query, Row};

use rig::{Directed, PATIENCE, SupervisedApps, get};

/// Responds with its process id. With an argument, it listens there, otherwise at its socket; after `/exit` it exits with status 3.
const SERVER: &str = "
const http = require('node:http')
const server = http.createServer((request, response) => {
  response.setHeader('Connection', 'close')
  response.end(`${process.pid} ${process.env.WORD} ${process.cwd()}`, () => {
    if (request.url === '/exit') process.exit(3)
  })
})
server.listen(process.argv[1] ? { port: Number(process.argv[1]), host: '127.0.0.1' } : { fd: 3 })
";

fn app(name: &str, script: &str) -> AppSettings {
    AppSettings {
        name: name.into(),
        run: ["node", "-e", script].map(String::from).into(),
        directory: Some("/".into()),
        env: [("WORD".to_owned(), "first".to_owned())].into(),
        ..AppSettings::default()
    }
}

fn is_alive(pid: &str) -> bool {
    std::path::Path::new("/proc").join(pid).exists()
}

fn wait_until_ended(pid: &str) {
    wait_until(&format!("process {pid} has ended"), || !is_alive(pid));
}

/// Whether a process of this group exists (proc_pid_stat(5)).
fn group_is_alive(group: &str) -> bool {
    let entries = std::fs::read_dir("/proc").expect("Linux has it");
    let stats = entries.flatten().filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    // After the name in parentheses: state, parent, group. A zombie has ended.
    let fields = |stat: String| {
        let rest = stat.rsplit_once(") ")?.1.to_owned();
        let fields: Vec<String> = rest.split(' ').map(str::to_owned).collect();
        Some((fields.first()?.clone(), fields.get(2)?.clone()))
    };
    stats.filter_map(fields).any(|(state, of)| of == group && state != "Z")
}

#[test]
fn a_request_waits_at_the_socket_for_a_process_that_starts_or_starts_again() {
    let world = SupervisedApps::new(&[app("shop", SERVER)]);
    // Named before the process responds.
    let address = world.address().expect("a socket");
    let first = get(address, "/exit").expect("a response");
    assert_eq!(first[1..], ["first", "/"]);
    let second = get(address, "/").expect("the socket has outlived the process");
    assert_ne!(first[0], second[0]);
}

#[test]
fn a_replaced_process_ends_when_no_connection_uses_it() {
    let mut settings = app("shop", SERVER);
    let world = SupervisedApps::new(std::slice::from_ref(&settings));
    let old = world.address().expect("a socket");
    let first = get(old, "/").expect("a response");
    lock(&world.used).push(old);
    settings.env.insert("WORD".into(), "second".into());
    world.run(std::slice::from_ref(&settings));
    let new = world.other(old);
    assert_eq!(get(new, "/").expect("a response")[1], "second");
    assert_eq!(get(old, "/").expect("the old process serves its connections")[0], first[0]);
    lock(&world.used).clear();
    wait_until_ended(&first[0]);
    assert!(get(old, "/").is_err(), "its socket is closed");
}

#[test]
fn a_replacement_that_fails_leaves_the_old_process_in_place() {
    let mut settings = app("shop", SERVER);
    let world = SupervisedApps::new(std::slice::from_ref(&settings));
    let old = world.address().expect("a socket");
    let first = get(old, "/").expect("a response");
    // One that ends, and one that never responds. The second must have the time to write its number first.
    for (rest, start_s) in [("process.exit(1)", 60), ("setInterval(() => {}, 1000)", 6)] {
        settings.start_time = Period::seconds(start_s);
        let file = std::env::temp_dir().join(format!("encke-apps-{}", std::process::id()));
        let write = format!("require('node:fs').writeFileSync('{}', `${{process.pid}} `)\n", file.display());
        settings.run[2] = write + rest;
        world.run(std::slice::from_ref(&settings));
        let pid = wait_for("the replacement has written its process id", || {
            let text = std::fs::read_to_string(&file).ok()?;
            text.ends_with(' ').then(|| text.trim().to_owned())
        });
        wait_until_ended(&pid);
        std::fs::remove_file(file).expect("the process has written it");
    }
    settings.run[2] = SERVER.into();
    settings.env.insert("WORD".into(), "third".into());
    settings.start_time = Period::seconds(60);
    assert_eq!(get(old, "/").expect("a response")[0], first[0]);
    world.run(&[settings]);
    let new = world.other(old);
    assert_eq!(get(new, "/").expect("a response")[1], "third");
}

#[test]
fn an_unchanged_application_is_replaced_at_a_reload_only_if_it_says_so() {
    let kept = AppSettings { replace: ReplaceWhen::Change, ..app("kept", SERVER) };
    let replaced = app("replaced", SERVER);
    let world = SupervisedApps::new(&[kept.clone(), replaced.clone()]);
    let mut addresses = std::collections::BTreeMap::new();
    while addresses.len() < 2 {
        let Directed { app, address, .. } = world.told.recv_timeout(PATIENCE).expect("an address");
        addresses.insert(app, address.expect("an address"));
    }
    for address in addresses.values() {
        get(*address, "/").expect("a response");
    }
    world.run(&[kept, replaced]);
    let changed = std::iter::from_fn(|| world.told.recv_timeout(PATIENCE).ok())
        .find(|told| told.address != addresses.get(&told.app).copied());
    assert_eq!(changed.expect("another address").app, "replaced");
}

#[test]
fn an_application_that_listens_at_a_port_itself_is_named_when_it_responds() {
    let mut settings = app("shop", SERVER);
    settings.run.push("{port}".into());
    let world = SupervisedApps::new(&[settings]);
    let address = world.address().expect("an address");
    let first = get(address, "/exit").expect("it responds");
    assert_eq!(world.address(), None, "another program may get the port");
    let again = world.address().expect("an address");
    assert_ne!(get(again, "/").expect("it responds")[0], first[0]);
}

#[test]
fn each_process_of_several_has_an_address_of_its_own() {
    let settings = AppSettings { count: 3.try_into().expect("not 0"), ..app("shop", SERVER) };
    let world = SupervisedApps::new(&[settings]);
    let mut found = std::collections::BTreeMap::new();
    while found.len() < 3 {
        let Directed { number, address, .. } = world.told.recv_timeout(PATIENCE).expect("an address");
        found.insert(number, address.expect("an address"));
    }
    let pids: std::collections::BTreeSet<_> =
        found.values().map(|address| get(*address, "/").expect("a response").remove(0)).collect();
    assert_eq!(pids.len(), 3);
}

#[test]
fn an_application_that_ends_again_and_again_gets_no_requests() {
    let world = SupervisedApps::new(&[app("shop", "process.exit(1)")]);
    let mut told = std::iter::from_fn(|| world.told.recv_timeout(PATIENCE).ok());
    assert!(told.next().is_some_and(|told| told.address.is_some()), "requests wait at first");
    assert!(told.any(|told| told.address.is_none()), "requests still wait");
}

#[test]
fn all_processes_end_with_the_supervisor_and_those_that_do_not_are_killed() {
    let stubborn = "process.on('SIGTERM', () => {})\n".to_owned() + SERVER;
    let child = "require('node:child_process').spawn('sleep', ['1000'])\n".to_owned() + SERVER;
    let apps = [app("stubborn", &stubborn), app("parent", &child)]
        .map(|app| AppSettings { stop_time: Period::milliseconds(200), ..app });
    let world = SupervisedApps::new(&apps);
    let mut pids = std::collections::BTreeSet::new();
    while pids.len() < 2 {
        let address = world.address().expect("a socket");
        pids.insert(get(address, "/").expect("a response").remove(0));
    }
    drop(world);
    for pid in pids {
        assert!(!is_alive(&pid), "process {pid} has outlived its supervisor");
        // A killed process is still listed until the system has ended it.
        wait_until(&format!("the process group of {pid} has ended"), || !group_is_alive(&pid));
    }
}

/// The rows of the list `apps`, as cells by column.
fn rows(world: &SupervisedApps) -> Vec<Row> {
    let query = Query { limit: 100, ..Query::default() };
    let (send, receive) = channel();
    let ticket = ListTicket::new(&query, move |rows| send.send(rows).expect("the test waits"));
    world.apps.source().list(&query, ticket);
    receive.recv_timeout(PATIENCE).expect("the list is complete").rows
}

#[test]
fn an_operator_restarts_every_process_of_an_application() {
    let settings = AppSettings {
        count: 2.try_into().expect("not 0"),
        replace: ReplaceWhen::Change,
        ..app("shop", SERVER)
    };
    let world = SupervisedApps::new(&[settings, app("other", SERVER)]);
    let mut old = std::collections::BTreeMap::new();
    while old.len() < 3 {
        let Directed { app, number, address } = world.told.recv_timeout(PATIENCE).expect("an address");
        old.insert((app, number), address.expect("an address"));
    }
    let pids = |addresses: &[SocketAddr]| -> Vec<String> {
        addresses.iter().map(|address| get(*address, "/").expect("a response").remove(0)).collect()
    };
    let shop: Vec<SocketAddr> = old.iter().filter(|((app, _), _)| app == "shop").map(|(_, at)| *at).collect();
    let first = pids(&shop);
    let replaced = world.restart("shop").expect("both respond");
    assert_eq!(replaced.len(), 2, "{replaced:?}");
    let mut new = Vec::new();
    while new.len() < 2 {
        let told = world.told.recv_timeout(PATIENCE).expect("an address");
        if told.address.is_some_and(|address| !old.values().any(|old| *old == address)) {
            assert_eq!(told.app, "shop", "no other application is replaced");
            new.extend(told.address);
        }
    }
    let second = pids(&new);
    assert!(second.iter().all(|pid| !first.contains(pid)), "{first:?}, {second:?}");
    for pid in &first {
        wait_until_ended(pid);
    }
    assert_eq!(world.restart("absent"), Err(RestartFailure::NotRunning));
}

#[test]
fn a_restart_that_fails_names_the_end_of_the_new_process() {
    let file = std::env::temp_dir().join(format!("encke-apps-fails-{}", std::process::id()));
    let script =
        format!("if (require('node:fs').existsSync('{}')) process.exit(7)\n{SERVER}", file.display());
    let world = SupervisedApps::new(&[app("shop", &script)]);
    let old = world.address().expect("a socket");
    let first = get(old, "/").expect("a response");
    std::fs::write(&file, "").expect("a temporary file");
    let failure = world.restart("shop").expect_err("the new process ends");
    std::fs::remove_file(&file).expect("it was written");
    assert_eq!(failure.to_string(), "the new process exited with status 7; the old one stays");
    assert_eq!(get(old, "/").expect("the old one stays")[0], first[0]);
    let rows = rows(&world);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(row.cell("last_end"), Some(&"exited with status 7".into()), "{row:?}");
    assert!(row.cell("last_end_ms").is_some() && row.cell("since_s").is_some(), "{row:?}");
    assert_eq!(row.cell("restarts"), Some(&0_u64.into()), "no process has ended unasked");
}

#[test]
fn the_list_of_processes_shows_their_restarts_and_last_ends() {
    let world = SupervisedApps::new(&[app("shop", SERVER)]);
    let address = world.address().expect("a socket");
    get(address, "/exit").expect("a response");
    get(address, "/").expect("the next process responds");
    let row = wait_for("the application is ready again", || {
        let rows = rows(&world);
        let [row] = &rows[..] else { return None };
        (row.cell("state") == Some(&"ready".into()) && row.cell("last_end").is_some()).then(|| row.clone())
    });
    assert_eq!(row.cell("restarts"), Some(&1_u64.into()));
    assert_eq!(row.cell("last_end"), Some(&"exited with status 3".into()));
}
