//! Publishing from the program: each line of standard input becomes a message of the channel `news`.
//!
//! `cargo run -p encke-assembly --example publish`, then `curl -N -H 'Accept: text/event-stream' http://127.0.0.1:8080/push/news`

use std::io::{self, BufRead};

use encke_push::{Draft, Name, PushError, PushPublisher, PushSettings, mount_with_publisher};
use encke_rights::AuthSettings;
use encke_server::{Options, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::new(Options::default()).listen("127.0.0.1:8080".parse()?);
    let (server, publisher) = app(server)?;
    let running = server.start()?;
    println!("http://{}/push/news", running.addresses()[0]);
    publish_lines(&publisher, io::stdin().lock())?;
    running.stop();
    Ok(())
}

/// Without further settings, channels are open to this machine alone.
pub(crate) fn app(server: Server) -> Result<(Server, PushPublisher), PushError> {
    mount_with_publisher(server, &PushSettings::default(), &AuthSettings::default())
}

pub(crate) fn publish_lines(publisher: &PushPublisher, lines: impl BufRead) -> io::Result<()> {
    let news = Name::parse(b"news").map_err(io::Error::other)?;
    for line in lines.lines() {
        let draft = Draft::new(news.clone(), line?.into_bytes());
        // The callback runs on a worker, so it must not block.
        publisher.publish(draft, |result| {
            if let Err(failure) = result {
                eprintln!("not published: {failure}");
            }
        });
    }
    Ok(())
}
