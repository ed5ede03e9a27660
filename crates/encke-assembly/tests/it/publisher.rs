//! Messages of the program that runs the server.

use std::sync::mpsc::{Receiver, channel};

use encke_assembly::Service;
use encke_assembly::settings::{AuthSettings, PushSettings, Settings};
use encke_push::{
    Accepted, Draft, IdempotencyKey, Name, PublishError, PublishFailure, PushPublisher, mount_with_publisher,
};

use crate::push_clients::Stream;
use crate::rig::{PATIENCE, Rig, Stand};

on_every_stand! {
    a_program_publishes_before_and_after_the_start,
    a_message_of_the_program_is_readable_once_it_has_its_result,
}

on_two_stands! {
    rejected_messages_of_the_program_are_reported,
    a_repeated_message_of_the_program_is_published_once,
    a_publisher_outlives_a_reload,
    a_publisher_outlives_the_server,
}

type Outcome = Result<Accepted, PublishFailure>;

fn serve(stand: Stand, before: impl FnOnce(&PushPublisher)) -> (Rig, PushPublisher) {
    let mut publisher = None;
    let rig = stand.serve(|server| {
        let (server, created) =
            mount_with_publisher(server, &PushSettings::default(), &AuthSettings::default())
                .expect("valid settings");
        before(&created);
        publisher = Some(created);
        server
    });
    (rig, publisher.expect("the server was assembled"))
}

fn news(data: &str) -> Draft {
    Draft::new(Name::parse(b"news").expect("a valid name"), data.as_bytes())
}

fn publish(publisher: &PushPublisher, draft: Draft) -> Receiver<Outcome> {
    let (send, result) = channel();
    // An error: the case does not need the result.
    publisher.publish(draft, move |outcome| drop(send.send(outcome)));
    result
}

fn outcome(result: &Receiver<Outcome>) -> Outcome {
    result.recv_timeout(PATIENCE).expect("a result")
}

fn a_program_publishes_before_and_after_the_start(stand: Stand) {
    let mut early = None;
    let (rig, publisher) = serve(stand, |publisher| early = Some(publish(publisher, news("early"))));
    let early = outcome(&early.expect("it was published")).expect("accepted");
    assert!(matches!(early, Accepted::Published(published) if published.subscribers == 0));
    let mut stream = Stream::open(&rig, "/push/news?since=all", "");
    for number in 0..100 {
        drop(publish(&publisher, news(&number.to_string())));
    }
    assert_eq!(stream.data(), "early");
    for number in 0..100 {
        assert_eq!(stream.data(), number.to_string());
    }
    rig.wait(|| rig.count("encke_push_messages_total") == 101, "the messages are counted");
}

fn a_message_of_the_program_is_readable_once_it_has_its_result(stand: Stand) {
    let (rig, publisher) = serve(stand, |_| {});
    for number in 0..20 {
        let data = number.to_string();
        outcome(&publish(&publisher, news(&data))).expect("accepted");
        assert_eq!(rig.client().get("/push/news?since=last:1").text(), data);
    }
}

fn rejected_messages_of_the_program_are_reported(stand: Stand) {
    let (_rig, publisher) = serve(stand, |_| {});
    let bytes = usize::try_from(PushSettings::default().message_bytes.bytes()).expect("it fits") + 1;
    let most = bytes - 1;
    let failure = PublishFailure::Rejected(PublishError::TooLarge { bytes, most });
    assert_eq!(outcome(&publish(&publisher, news(&"x".repeat(bytes)))), Err(failure));
    let reserved = Draft { event: Some("encke.join".into()), ..news("") };
    let failure = PublishFailure::Rejected(PublishError::ReservedEvent);
    assert_eq!(outcome(&publish(&publisher, reserved)), Err(failure));
}

fn a_repeated_message_of_the_program_is_published_once(stand: Stand) {
    let (rig, publisher) = serve(stand, |_| {});
    let key = || Some(IdempotencyKey { publisher: 0, key: "order 7".into() });
    let results = [(); 2].map(|()| publish(&publisher, Draft { key: key(), ..news("paid") }));
    let repeated = results.map(|result| match outcome(&result) {
        Ok(Accepted::Published(published)) => published.repeated,
        other => panic!("{other:?}"),
    });
    assert_eq!(repeated, [false, true]);
    rig.wait(|| rig.count("encke_push_messages_total") == 1, "one message is counted");
}

fn a_publisher_outlives_a_reload(stand: Stand) {
    use crate::rig::{Channels as _, Reloads as _};
    let mut publisher = None;
    let rig = stand.serve(|server| {
        let server = server.push(&PushSettings::default(), &AuthSettings::default()).expect("valid settings");
        publisher = Some(crate::rig::channels().publisher());
        server
    });
    let publisher = publisher.expect("the server was assembled");
    rig.running().reload_push(&PushSettings::default(), &AuthSettings::default()).expect("valid settings");
    outcome(&publish(&publisher, news("after the reload"))).expect("accepted");
    outcome(&publish(&crate::rig::channels().publisher(), news("by a new one"))).expect("accepted");
}

fn a_publisher_outlives_the_server(stand: Stand) {
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"off\"\nworkers = {}\nbackend = \"{}\"\n",
        stand.workers, stand.backend
    );
    let settings = Settings::parse("case", &text).unwrap_or_else(|problems| panic!("{problems}"));
    let service = Service::start(&settings).expect("free ports");
    let publisher = service.publisher().expect("channels are on");
    outcome(&publish(&publisher, news("before the end"))).expect("accepted");
    service.drain();
    service.join();
    assert_eq!(outcome(&publish(&publisher, news("too late"))), Err(PublishFailure::Stopped));
}
