//! A whole service: its admin listener, and how it stops.

use encke_assembly::Service;
use encke_assembly::settings::Settings;

use crate::rig::{Client, Folder, Stand, wait_for};

on_every_stand! {
    readiness_ends_before_the_service_does,
}

fn readiness_ends_before_the_service_does(stand: Stand) {
    let folder = Folder::new().with("file", "content");
    let service = Service::start(&settings(stand, &folder, "drain_delay = \"1m\"\n")).expect("free ports");
    let (site, admin) = (service.addresses()[0].clone(), service.admin_addresses()[0].clone());
    let status = |path: &str| Client::connect(&admin).get(path).status;
    assert_eq!((status("/readyz"), status("/healthz")), (200, 200));
    service.drain();
    wait_for(|| status("/readyz") == 503, "it is no longer ready", String::new);
    // But it serves, as long as the delay lasts: whoever has not looked yet is not let down.
    assert_eq!(status("/healthz"), 200);
    let answer = Client::connect(&site).get("/file");
    assert!(answer.text() == "content" && !answer.closes(), "{answer:?}");
}

/// Settings of a service for a folder.
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
