//! The operator's contracts from outside: actions of a toy feature on all workers, explanations of requests, and live views of the
//! access log.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use encke_assembly::settings::{Act, AuthSettings, ChannelSettings, PushSettings, Settings};
use encke_gateway::{Gateway, SiteRoutes};
use encke_push::PushPlan;
use encke_rights::{Openness, Shut};
use encke_server::{
    ActionError, ActionReport, ActionResult, ActionValue, Actions, ConnLimits, Explain, FieldShape,
    FieldValue, Fields, Guard, GuardCall, GuardMount, GuardOutcome, Handler, HandlerContext, Kept, LogTail,
    Mount, Outcome, Reply, Request, RuleStep, TailFilter, Ticket, Verb, VerbField, WorkerSetup,
};
use encke_site::Site;

use crate::rig::handlers::hello;
use crate::rig::{Folder, PATIENCE, Rig, Stand};

on_every_back_end! {
    verbs_are_listed_with_their_fields,
    results_of_all_workers_are_merged,
    a_result_may_come_later_from_another_thread,
    a_tail_gets_the_requests_that_its_filter_admits,
    a_slow_tail_loses_counted_entries_and_no_other_does,
    a_reader_that_has_found_nothing_is_woken,
    a_tail_that_has_ended_makes_room_for_others,
}

on_two_stands! {
    an_action_for_all_workers_runs_once,
    an_action_that_fits_no_verb_reaches_no_feature,
    an_action_that_panics_has_no_result,
    actions_follow_a_reload,
    an_explanation_names_the_mount_point_and_its_guards,
    an_explanation_names_the_lines_of_a_sites_rules,
    an_explanation_names_the_route_and_the_state_of_its_targets,
    an_explanation_names_the_limits_and_rights_of_a_channel,
}

/// A feature whose workers have three connections each to disconnect.
struct Toy;

struct ToyActions(usize);

impl Mount for Toy {
    fn open(&self, _: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        let actions = ToyActions(worker.number());
        worker.actions("toy", verbs(), actions);
        Box::new(Nothing)
    }
}

struct Nothing;

impl Handler for Nothing {
    fn call(&mut self, request: &Request<'_>, exchange: encke_server::Exchange) -> Outcome {
        hello(request, exchange)
    }
}

fn verbs() -> Vec<Verb> {
    let user = VerbField { name: "user", help: "The user's name.", shape: FieldShape::Text, optional: false };
    let verb = |name, on_each_worker| Verb {
        name,
        help: "Disconnects a user.",
        fields: vec![user.clone()],
        on_each_worker,
    };
    vec![verb("disconnect", true), verb("later", true), verb("once", false), verb("panic", true)]
}

impl Actions for ToyActions {
    fn act(&mut self, verb: &str, value: &ActionValue, ticket: Ticket<ActionResult>) {
        let Some(FieldValue::Text(user)) = value.get("user") else {
            panic!("the engine has checked the value")
        };
        let note = if user == "everybody" { "all".to_owned() } else { format!("worker {}", self.0) };
        let report = ActionReport { affected: 3, notes: vec![note] };
        match verb {
            "later" => drop(std::thread::spawn(move || ticket.resolve(Ok(report)))),
            "panic" => panic!("an action that fails"),
            _ if user == "root" && self.0 == 0 => {
                ticket.resolve(Err(ActionError::Refused("not root".into())));
            }
            _ => ticket.resolve(Ok(report)),
        }
    }
}

fn ticket<T: Send + 'static>() -> (Ticket<T>, Receiver<Option<T>>) {
    let (send, receive) = channel();
    (Ticket::new(move |result| send.send(result).expect("the case waits")), receive)
}

fn act(rig: &Rig, feature: &str, verb: &str, user: FieldValue) -> Option<ActionResult> {
    let (ticket, result) = ticket();
    rig.running().act(feature, verb, ActionValue::from([("user".to_owned(), user)]), ticket);
    result.recv_timeout(PATIENCE).expect("an end, if no result")
}

fn user(name: &str) -> FieldValue {
    FieldValue::Text(name.into())
}

fn rig(on: Stand) -> Rig {
    on.serve(|server| server.mount("/", Toy))
}

fn verbs_are_listed_with_their_fields(on: Stand) {
    let rig = rig(on);
    let (ticket, listed) = ticket();
    rig.running().verbs(ticket);
    let listed = listed.recv_timeout(PATIENCE).expect("an end").expect("a list");
    // The engine's own actions come first.
    let [own, toy] = &listed[..] else { panic!("two features: {listed:?}") };
    let names: Vec<&str> = own.verbs.iter().map(|verb| verb.name).collect();
    assert_eq!((own.feature, names), ("connections", vec!["close", "close_address", "block", "unblock"]));
    assert_eq!((toy.feature, &toy.verbs), ("toy", &verbs()));
    rig.end();
}

fn results_of_all_workers_are_merged(on: Stand) {
    for workers in [on.workers, 3] {
        let rig = rig(Stand { workers, ..on });
        let report = act(&rig, "toy", "disconnect", user("ann")).expect("a result").expect("a success");
        assert_eq!((report.affected, report.notes.len()), (3 * workers as u64, workers));
        let report = act(&rig, "toy", "disconnect", user("everybody")).expect("a result").expect("a success");
        assert_eq!((report.affected, report.notes), (3 * workers as u64, vec!["all".to_owned()]));
        // One of several workers refuses the action.
        let refused = Some(Err(ActionError::Refused("not root".into())));
        assert_eq!(act(&rig, "toy", "disconnect", user("root")), refused);
        rig.end();
    }
}

fn a_result_may_come_later_from_another_thread(on: Stand) {
    let rig = rig(Stand { workers: 3, ..on });
    for _ in 0..10 {
        let report = act(&rig, "toy", "later", user("ann")).expect("a result").expect("a success");
        assert_eq!(report.affected, 9);
    }
    rig.end();
}

fn an_action_for_all_workers_runs_once(on: Stand) {
    let rig = rig(on);
    let report = act(&rig, "toy", "once", user("ann")).expect("a result").expect("a success");
    assert_eq!((report.affected, report.notes), (3, vec!["worker 0".to_owned()]));
    rig.end();
}

fn an_action_that_fits_no_verb_reaches_no_feature(on: Stand) {
    let rig = rig(on);
    assert_eq!(act(&rig, "toy", "shout", user("ann")), Some(Err(ActionError::Unknown)));
    assert_eq!(act(&rig, "other", "once", user("ann")), Some(Err(ActionError::Unknown)));
    let wrong = Some(Err(ActionError::Value("user".into())));
    assert_eq!(act(&rig, "toy", "disconnect", user("")), wrong);
    assert_eq!(act(&rig, "toy", "disconnect", FieldValue::Number(7)), wrong);
    rig.end();
}

fn an_action_that_panics_has_no_result(on: Stand) {
    let rig = rig(on);
    assert_eq!(act(&rig, "toy", "panic", user("ann")), None);
    // A worker counts the panic after the ticket is dropped.
    let workers = on.workers as u64;
    rig.wait(|| rig.count("encke_handler_panics_total") == workers, "every worker has counted its panic");
    assert!(act(&rig, "toy", "disconnect", user("ann")).is_some_and(|result| result.is_ok()));
    rig.end();
}

fn actions_follow_a_reload(on: Stand) {
    let rig = rig(on);
    let reload = |mount: std::sync::Arc<dyn Mount>| {
        rig.running().reload(ConnLimits::default(), Some(vec![("/".into(), mount)]));
    };
    // In each worker's inbox the action follows the reload.
    reload(std::sync::Arc::new(hello));
    assert_eq!(act(&rig, "toy", "once", user("ann")), Some(Err(ActionError::Unknown)));
    reload(std::sync::Arc::new(Toy));
    let report = act(&rig, "toy", "disconnect", user("everybody")).expect("a result").expect("a success");
    assert_eq!(report.affected, 3 * on.workers as u64);
    rig.end();
}

/// Returns the steps for a request, one text each.
fn explained(rig: &Rig, method: &str, target: &str, host: &str) -> Vec<String> {
    let request = Kept::sample(method, target, host, &Fields::new()).expect("a valid request");
    let (ticket, steps) = ticket();
    rig.running().explain(request, ticket);
    let steps = steps.recv_timeout(PATIENCE).expect("an end").expect("steps");
    steps.iter().map(ToString::to_string).collect()
}

/// A guard that explains its decisions.
#[derive(Clone)]
struct Bouncer;

impl GuardMount for Bouncer {
    fn open(&self, _: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Guard> {
        worker.explain(self.clone());
        Box::new(self.clone())
    }
}

impl Guard for Bouncer {
    fn check(&mut self, _: &Request<'_>, _: GuardCall<'_>) -> GuardOutcome {
        GuardOutcome::pass()
    }
}

impl Explain for Bouncer {
    fn explain(&self, request: &Request<'_>) -> Vec<RuleStep> {
        vec![RuleStep::new(format!("nobody is refused at {}", String::from_utf8_lossy(request.path())), None)]
    }
}

fn an_explanation_names_the_mount_point_and_its_guards(on: Stand) {
    let rig = on.serve(|server| server.mount("/a/", hello).mount("/a/b/", hello).guard_at("/a/b/", Bouncer));
    assert_eq!(explained(&rig, "GET", "/a/x", "h"), ["mount point /a/"]);
    assert_eq!(
        explained(&rig, "POST", "/a/b/c?d", "h"),
        ["a guard checks the request", "nobody is refused at /a/b/c", "mount point /a/b/"]
    );
    assert_eq!(explained(&rig, "GET", "/x", "h"), ["no mount point: 404"]);
    assert_eq!(explained(&rig, "TRACE", "/a/", "h"), ["the engine responds with 405"]);
    assert!(Kept::sample("GET", "/a b", "h", &Fields::new()).is_none());
    assert!(Kept::sample("GET", "/", "h\r\nX: y\r\n", &Fields::new()).is_none());
    rig.end();
}

fn an_explanation_names_the_lines_of_a_sites_rules(on: Stand) {
    let folder = Folder::new().with("file", "text").with("docs/page", "text");
    let root = folder.path().display().to_string();
    let text = format!(
        r#"[[site]]
host = ["one.example"]
root = "{root}"
redirects = [
  {{ from = "/old/*", to = "/new/$1" }},
  {{ from = "/older/*", to = "https://other.example/$1", status = 301 }},
]
[[site]]
host = ["two.example"]
root = "{root}"
aliases = [
  {{ path = "/a/", to = "{root}" }},
  {{ path = "/a/docs/", to = "{root}/docs" }},
]
headers = [{{ pattern = "/a/**", set = {{ X-A = "1" }} }}]
[[site.cache]]
pattern = "/**"
cache_control = "no-cache"
[[site.cache]]
pattern = "/a/**"
cache_control = "max-age=60"
[[site.paths]]
pattern = "/secret/**"
status = 403
"#
    );
    let settings = Settings::parse("encke.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
    let site = Site::new(&settings.site, Vec::new()).expect("a folder that can be read");
    let rig = on.serve(|server| server.mount("/", site.with_source(settings.source.section("site"))));
    let steps = |target, host| explained(&rig, "GET", target, host);
    let one = "site 1 of the settings (encke.toml:1)";
    let two = "site 2 of the settings (encke.toml:8)";
    let mount = "mount point / (encke.toml:1)";
    assert_eq!(
        steps("/older/x%20y", "one.example"),
        [mount, one, "redirect 301 to https://other.example/x%20y (encke.toml:6)"]
    );
    assert_eq!(steps("/file", "ONE.example:80"), [mount, one, &format!("/ from {root} (encke.toml:3)")]);
    assert_eq!(
        steps("/%61/docs/page", "two.example"),
        [
            mount,
            two,
            &format!("/a/docs/ from {root}/docs (encke.toml:13)"),
            "fields for /a/** (encke.toml:15)",
            "Cache-Control for /a/**: max-age=60 (encke.toml:19)",
        ]
    );
    assert_eq!(steps("/secret/x", "two.example"), [mount, two, "rule for /secret/**: 403 (encke.toml:22)"]);
    assert_eq!(steps("/", "three.example"), [mount, "no site has this host: 421"]);
    assert_eq!(rig.client().ask("GET /secret/x HTTP/1.1\r\nHost: two.example\r\n\r\n").status, 403);
    rig.end();
}

fn an_explanation_names_the_route_and_the_state_of_its_targets(on: Stand) {
    let folder = Folder::new().with("file", "text");
    let root = folder.path().display().to_string();
    let text = format!(
        r#"[[upstream]]
name = "app"
to = ["http://127.0.0.1:1", "http://127.0.0.1:2"]
[[site]]
root = "{root}"
[[site.route]]
pattern = "/api/**"
upstream = "app"
strip = "/api"
[[site.route]]
pattern = "/files/**"
upstream = "app"
files = "first"
"#
    );
    let settings = Settings::parse("encke.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
    let source = settings.source.section("site");
    let site = Site::new(&settings.site, Vec::new()).expect("a folder that can be read");
    let site = Arc::new(site.with_source(source.clone()));
    let routes = [SiteRoutes { routes: &settings.site[0].route, ..SiteRoutes::default() }];
    let gateway = Gateway::new(site, &routes, &settings.upstream, &[]).expect("valid settings");
    let rig = on.serve(|server| server.mount("/", gateway.with_source(source)));
    let api = explained(&rig, "GET", "/api/x", "h");
    assert_eq!(
        api,
        [
            "mount point / (encke.toml:4)",
            "the most specific route with this path is /api/** (encke.toml:6)",
            "the path becomes /x",
            "upstream app",
            "target http://127.0.0.1:1 is up, with 0 requests in progress",
            "target http://127.0.0.1:2 is up, with 0 requests in progress",
        ]
    );
    let files = explained(&rig, "GET", "/files/x", "h");
    let first = files.iter().position(|step| step == "the files of the site come first").expect("a step");
    assert!(files[first + 1].starts_with("site 1 of the settings"), "{files:?}");
    assert_eq!(files[first + 3], "upstream app", "{files:?}");
    assert_eq!(explained(&rig, "GET", "/%2e%2e%2f", "h")[1], "the path cannot be decoded: 400");
    assert_eq!(
        explained(&rig, "GET", "/file", "h"),
        [
            "mount point / (encke.toml:4)",
            "site 1 of the settings (encke.toml:4)",
            &format!("/ from {root} (encke.toml:5)")
        ],
        "no route: the rules of the site"
    );
    rig.end();
}

fn an_explanation_names_the_limits_and_rights_of_a_channel(on: Stand) {
    let pattern = ChannelSettings { pattern: "chat/*".into(), messages: 7, ..ChannelSettings::default() };
    let push = PushSettings { channel: vec![pattern], ..PushSettings::default() };
    let auth = AuthSettings { anonymous: vec![Act::Subscribe], ..AuthSettings::default() };
    let rig = on.serve(|server| {
        let plan = PushPlan::new(&push, &auth, Openness::Shut(Shut::Settings)).expect("valid settings");
        server.mount_all(Arc::new(plan).mounts())
    });
    let read = explained(&rig, "GET", "/push/chat/a,news", "h");
    assert_eq!(read[..2], ["mount point /push/", "push: the client is no user"]);
    assert!(read[2].starts_with("channel chat/a has the pattern chat/*: it keeps 7 messages, "), "{read:?}");
    assert_eq!(read[3], "may subscribe to chat/a");
    assert!(
        read[4].starts_with("channel news has no pattern of push.channel, so the defaults: "),
        "{read:?}"
    );
    let publish = explained(&rig, "POST", "/push/news", "h");
    assert!(publish[3].contains("token") && publish[3].ends_with(": 401"), "{publish:?}");
    assert_eq!(explained(&rig, "GET", "/push/", "h")[2], "the path names no channel");
    rig.end();
}

/// Returns the next lines of a tail, each as JSON.
fn lines(tail: &LogTail, count: usize) -> Vec<serde_json::Value> {
    let next = |_| tail.next_within(PATIENCE).expect("another line");
    (0..count).map(next).map(|entry| serde_json::from_slice(&entry.line).expect("JSON")).collect()
}

fn filter(class: Option<u8>, prefix: &str, text: &str) -> TailFilter {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    TailFilter { status_class: class, path_prefix: some(prefix), text: some(text), ..TailFilter::default() }
}

fn from(network: &str, class: Option<u8>) -> TailFilter {
    TailFilter { client: Some(network.parse().expect("a network")), ..filter(class, "", "") }
}

fn answering(request: &Request<'_>, _: encke_server::Exchange) -> Outcome {
    let status = if request.path().starts_with(b"/bad/") { 500 } else { 200 };
    Outcome::Now(Reply::text(status, "done"))
}

fn a_tail_gets_the_requests_that_its_filter_admits(on: Stand) {
    let rig = on.serve(|server| server.mount("/", answering));
    let tail = |filter| rig.running().tail(filter, || {}).expect("room for a tail");
    let tails = [
        (tail(filter(None, "", "")), vec!["/a/1", "/bad/2", "/a/3?access_token=***", "/b/needle"]),
        (tail(filter(Some(5), "", "")), vec!["/bad/2"]),
        (tail(filter(Some(2), "/a/", "")), vec!["/a/1", "/a/3?access_token=***"]),
        (tail(filter(None, "", "needle")), vec!["/b/needle"]),
        (tail(filter(None, "", "secret")), vec![]),
        (tail(from("127.0.0.0/8", Some(5))), vec!["/bad/2"]),
        (tail(from("192.0.2.0/24", None)), vec![]),
    ];
    // One worker serves one connection, so its lines are ordered.
    let mut client = rig.client();
    for path in ["/a/1", "/bad/2", "/a/3?access_token=secret", "/b/needle"] {
        client.get(path);
    }
    for (tail, targets) in &tails {
        let got: Vec<_> = lines(tail, targets.len()).iter().map(|line| line["target"].clone()).collect();
        assert_eq!(got, *targets);
        assert_eq!((tail.try_next(), tail.dropped()), (None, 0));
    }
    let (whole, _) = &tails[0];
    client.get("/bad/x");
    let line = &lines(whole, 1)[0];
    assert_eq!(
        (&line["status"], &line["method"], &line["sent_bytes"]),
        (&500.into(), &"GET".into(), &4.into())
    );
    rig.end();
}

fn a_slow_tail_loses_counted_entries_and_no_other_does(on: Stand) {
    const REQUESTS: usize = 3_000;
    let rig = on.serve(|server| server.mount("/", answering));
    let slow = rig.running().tail(TailFilter::default(), || {}).expect("room for a tail");
    let other = rig.running().tail(filter(None, "/a/", ""), || {}).expect("room for a tail");
    let mut client = rig.client();
    for round in 0..REQUESTS / 10 {
        client.send(get(&format!("/a/{round}")).repeat(10));
        client.answers(10);
        assert!(lines(&other, 10).iter().all(|line| line["target"] == format!("/a/{round}")));
    }
    assert_eq!(other.dropped(), 0);
    // The queue is bounded by count and by bytes; everything beyond is counted.
    let mut waiting = 0;
    let mut bytes = 0;
    while let Some(entry) = slow.try_next() {
        waiting += 1;
        bytes += entry.line.len();
    }
    assert_eq!(waiting as u64 + slow.dropped(), REQUESTS as u64);
    assert!(slow.dropped() > 0 && waiting > 100 && bytes <= 256 * 1024, "{waiting} entries, {bytes} bytes");
    // Once the tail is read again, it receives new entries.
    client.get("/b");
    assert_eq!(lines(&slow, 1)[0]["target"], "/b");
    rig.end();
}

fn a_reader_that_has_found_nothing_is_woken(on: Stand) {
    let rig = on.serve(|server| server.mount("/", answering));
    let (send, woken) = channel();
    let wake = move || send.send(()).expect("the case waits");
    let tail = rig.running().tail(TailFilter::default(), wake).expect("room for a tail");
    let mut client = rig.client();
    for round in 0..200 {
        assert_eq!(tail.try_next(), None);
        client.get(&format!("/{round}"));
        woken.recv_timeout(PATIENCE).expect("a wake-up");
        assert!(tail.try_next().is_some(), "round {round}");
        assert!(woken.try_recv().is_err(), "it is woken once");
    }
    rig.end();
}

fn a_tail_that_has_ended_makes_room_for_others(on: Stand) {
    let rig = on.serve(|server| server.mount("/", answering));
    let tail = || rig.running().tail(TailFilter::default(), || {});
    let mut tails: Vec<LogTail> = std::iter::from_fn(tail).collect();
    assert!(tail().is_none());
    let mut client = rig.client();
    client.get("/");
    for tail in &tails {
        lines(tail, 1);
    }
    tails.truncate(1);
    client.get("/one");
    assert_eq!(lines(&tails[0], 1)[0]["target"], "/one");
    tails.clear();
    client.get("/none");
    let tail = tail().expect("there is room again");
    client.get("/again");
    assert_eq!(lines(&tail, 1)[0]["target"], "/again");
    rig.end();
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}
