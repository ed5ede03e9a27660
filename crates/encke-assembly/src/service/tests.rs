//! A service across rotations of its logs and reloads.

use std::sync::mpsc::channel;
use std::time::Duration;

use encke_server::{ActionValue, FieldValue, Ticket};

use super::*;

/// A time that no step takes.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_drain_after_a_rotation_of_the_logs_survives_a_reload() {
    let folder = std::env::temp_dir().join(format!("encke-rotation-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a directory");
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nworkers = 1\nadmin = \"off\"\n[log]\naccess = '{}'\n[push]\nenabled = false\n\
         [[upstream]]\nname = \"app\"\nto = \"https://127.0.0.1:1\"\ntls = {{ insecure = true }}\n\
         [[site]]\n[[site.route]]\nupstream = \"app\"\n",
        folder.join("access.log").display()
    );
    let settings = Settings::parse("encke.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    let mut service = Service::start(&settings).unwrap_or_else(|error| panic!("{error}"));
    let drained = |service: &Service| {
        let (send, receive) = channel();
        let ticket = Ticket::new(move |result| send.send(result).expect("the test waits"));
        let url = FieldValue::Text("https://127.0.0.1:1".to_owned());
        service.running.act("upstreams", "drain", ActionValue::from([("target".to_owned(), url)]), ticket);
        let report = receive.recv_timeout(PATIENCE).expect("an end").expect("a result");
        report.expect("a success").affected
    };
    service.reopen_logs().expect("the directory exists");
    assert_eq!(drained(&service), 1);
    service.reload(&settings).expect("valid settings");
    assert_eq!(drained(&service), 0, "it is drained already");
    service.drain();
    service.join();
    std::fs::remove_dir_all(folder).expect("the directory");
}
