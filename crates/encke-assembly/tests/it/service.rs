//! A complete service: its admin listener, and its shutdown.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use encke_assembly::Service;
use encke_assembly::settings::{ListenAddress, OrOff, Settings};
use encke_server::{Handler, HandlerContext, Mount, WorkerSetup};
use encke_stats::{Family, Source};
use serde_json::{Value, json};

use crate::rig::handlers::hello;
use crate::rig::{Client, Folder, Stand, wait_for};

on_every_stand! {
    readiness_ends_before_the_service_does,
}

on_two_stands! {
    the_admin_listener_serves_all_paths_under_the_names_of_the_settings,
    a_used_address_of_the_admin_listener_names_its_own_remedy,
    a_feature_shows_its_figures_by_a_source_of_its_own,
    an_operator_restarts_an_application_over_the_api,
}

fn readiness_ends_before_the_service_does(stand: Stand) {
    let folder = Folder::new().with("file", "content");
    let service = Service::start(&settings(stand, &folder, "drain_delay = \"1m\"\n")).expect("free ports");
    let (site, admin) = (service.addresses()[0].clone(), service.admin_addresses()[0].clone());
    let status = |path: &str| Client::connect(&admin).get(path).status;
    assert_eq!((status("/readyz"), status("/healthz")), (200, 200));
    service.drain();
    wait_for(|| status("/readyz") == 503, "it is no longer ready", String::new);
    // The server keeps serving during the delay, so that load balancers can react first.
    assert_eq!(status("/healthz"), 200);
    let answer = Client::connect(&site).get("/file");
    assert!(answer.text() == "content" && !answer.closes(), "{answer:?}");
}

fn the_admin_listener_serves_all_paths_under_the_names_of_the_settings(stand: Stand) {
    let folder = Folder::new();
    let mut settings = settings(stand, &folder, "");
    let OrOff::On(admin) = &mut settings.server.admin else { panic!("it is on") };
    admin.hosts = ["encke-1", "*.Internal"].map(|host| host.parse().expect("a name")).into();
    let service = Service::start(&settings).expect("free ports");
    let admin = service.admin_addresses()[0].clone();
    let ask = |path: &str, host: &str| {
        Client::connect(&admin).ask(format!("GET {path}?token=t HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    };
    for host in ["encke-1:8081", "ENCKE-1.", "a.internal", "localhost", "127.0.0.1", "[2001:db8::1]:80"] {
        for path in ["/metrics", "/api/v1/status", "/healthz"] {
            assert_eq!(ask(path, host).status, 200, "{path} {host}");
        }
    }
    for host in ["encke-2", "internal", "encke-1.example.org", "example.org"] {
        for path in ["/metrics", "/api/v1/status", "/api/v1/live", "/", "/healthz/"] {
            let answer = ask(path, host);
            assert!(answer.status == 421 && answer.text().contains("server.admin.hosts"), "{path} {host}");
        }
        // Load balancers check these under any name, and they contain nothing else.
        assert_eq!((ask("/healthz", host).text(), ask("/readyz", host).text()), ("ok\n", "ready\n"));
    }
    service.drain();
    service.join();
}

fn a_used_address_of_the_admin_listener_names_its_own_remedy(stand: Stand) {
    let folder = Folder::new();
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = other.local_addr().expect("bound");
    let mut settings = settings(stand, &folder, "");
    let OrOff::On(admin) = &mut settings.server.admin else { panic!("it is on") };
    admin.address = Some(ListenAddress::Inet(address));
    let Err(error) = Service::start(&settings) else { panic!("the address is in use") };
    let text = error.to_string();
    assert!(error.is_in_use() && text.contains(&address.to_string()), "{text}");
    assert!(text.contains("--admin or server.admin") && !text.contains("-l"), "{text}");
}

/// A feature with metrics.
struct Toy;

/// A source with this name.
struct Figures(&'static str);

impl Mount for Toy {
    fn open(&self, context: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        hello.open(context, worker)
    }

    fn sources(&self) -> Vec<Arc<dyn Source>> {
        vec![Arc::new(Figures("toy")), Arc::new(Figures("pid"))]
    }
}

impl Source for Figures {
    fn name(&self) -> &'static str {
        self.0
    }

    fn families(&self) -> Vec<Family> {
        let shown = self.0 == "toy";
        shown.then(|| Family::gauge("toy_figures", "Figures of a toy.").value(3_u64)).into_iter().collect()
    }

    fn status(&self) -> Option<Value> {
        Some(json!({ "figures": 3 }))
    }
}

fn a_feature_shows_its_figures_by_a_source_of_its_own(stand: Stand) {
    let folder = Folder::new();
    let service = Service::start_with(&settings(stand, &folder, ""), Toy).expect("free ports");
    let admin = service.admin_addresses()[0].clone();
    let get = |path: &str| Client::connect(&admin).get(&format!("{path}?token=t"));
    let metrics = get("/metrics");
    assert!(metrics.text().contains("\ntoy_figures 3\n"), "{}", metrics.text());
    let status: Value = serde_json::from_str(get("/api/v1/status").text()).expect("JSON");
    assert_eq!(status["toy"], json!({ "figures": 3 }));
    let family = |family: &Value| family["name"] == "toy_figures";
    assert!(status["families"].as_array().is_some_and(|families| families.iter().any(family)));
    assert_eq!(status["pid"], std::process::id(), "no source replaces a key of the engine");
    for part in ["push", "cluster"] {
        assert!(status.get(part).is_some(), "{part} is missing");
    }
    assert_eq!(get("/api/v1/cluster").status, 404);
    service.drain();
    service.join();
}

/// Responds with its process id, and exits with status 7 at its start if there is a file `stop`.
const APPLICATION: &str = "
if (require('node:fs').existsSync('stop')) process.exit(7)
const http = require('node:http')
const respond = (_, response) => response.end(String(process.pid))
http.createServer(respond).listen({ fd: 3 })
";

fn an_operator_restarts_an_application_over_the_api(stand: Stand) {
    let folder = Folder::new().with("application.js", APPLICATION);
    let mut settings = settings(stand, &folder, "");
    let app = format!(
        "[[app]]\nname = \"shop\"\nrun = [\"node\", \"application.js\"]\ndirectory = \"{0}\"\n\
         [[site]]\nroot = \"{0}\"\n[[site.route]]\npattern = \"/**\"\nupstream = \"app:shop\"\n",
        folder.path().display()
    );
    let with_app = Settings::parse("case", &app).unwrap_or_else(|problems| panic!("{problems}"));
    (settings.app, settings.site) = (with_app.app, with_app.site);
    let service = Service::start(&settings).expect("free ports");
    let (site, admin) = (service.addresses()[0].clone(), service.admin_addresses()[0].clone());
    let pid = || Client::connect(&site).get("/").text().to_owned();
    let restart = |app: &str| {
        let body = format!("{{\"app\":\"{app}\"}}");
        Client::connect(&admin).ask(format!(
            "POST /api/v1/actions/apps/restart HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    };
    let first = pid();
    let answer = restart("shop");
    let report: Value = serde_json::from_str(answer.text()).expect("JSON");
    assert_eq!((answer.status, &report["affected"]), (200, &json!(1)), "{answer:?}");
    let second = pid();
    assert_ne!(first, second, "requests go to the new process");
    folder.write("stop", "");
    let failed = restart("shop");
    let text = "the new process exited with status 7; the old one stays";
    assert!(failed.status == 409 && failed.text().contains(text), "{failed:?}");
    assert_eq!(pid(), second);
    assert_eq!(restart("absent").status, 422, "no choice of the verb");
    service.drain();
    service.join();
}

/// Returns settings of a service for a directory.
fn settings(stand: Stand, folder: &Folder, server: &str) -> Settings {
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = {{ address = \"127.0.0.1:0\", token = \"t\" }}\n\
         workers = {}\nbackend = \"{}\"\n{server}\n[log]\naccess = \"off\"\n[[site]]\nroot = \"{}\"\n",
        stand.workers,
        stand.backend,
        folder.path().display(),
    );
    Settings::parse("case", &text).unwrap_or_else(|problems| panic!("{problems}"))
}
