//! `encke demo`: serves the chat of examples/chat and the push channels it uses.
//!
//! The build script (build.rs) embeds the files of the chat in the program. The demo reads nothing from the current directory.

use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::sync::Arc;

use encke_assembly::Service;
use encke_assembly::settings::{ChannelSettings, Listen, LogTarget, OrOff, Settings};
use encke_io::host::Signals;
use encke_server::{Exchange, Fields, Outcome, Prepared, Reply, Request};
use encke_wire::method::Method;

use crate::arguments::Demo;
use crate::error::{CommandError, CommandResult};
use crate::{greeting, serve};

/// Names and contents of the embedded files.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/chat.rs"));

pub(crate) fn run(arguments: &Demo) -> CommandResult {
    // Signals must be blocked before the first thread starts, as in `encke serve`.
    let signals = Signals::block();
    let settings = settings(arguments);
    let pages = Pages::new();
    let service =
        Service::start_with(&settings, move |request: &Request<'_>, _: Exchange| pages.answer(request));
    let service = service.map_err(CommandError::system)?;
    let _nobody_listens = io::stderr().write_all(text(&service).as_bytes());
    // SIGHUP ends the demo: it lives as long as the terminal that started it.
    serve::attend(service, signals, None, |_| ControlFlow::Break(()))
}

fn settings(arguments: &Demo) -> Settings {
    let mut settings = Settings::default();
    if !arguments.listen.is_empty() {
        settings.server.listen = arguments.listen.iter().cloned().map(Listen::at).collect();
    }
    settings.open = arguments.open;
    settings.server.admin = OrOff::Off;
    settings.log.access = LogTarget::Off;
    // Presence is on, so that a chat user sees the other members of a room.
    settings.push.channel =
        vec![ChannelSettings { pattern: "chat/**".into(), presence: true, ..ChannelSettings::default() }];
    settings
}

fn text(service: &Service) -> String {
    let mut lines = vec![format!("encke {} demo: a chat; open it in two windows", env!("CARGO_PKG_VERSION"))];
    lines.extend(
        service
            .addresses()
            .iter()
            .map(|address| format!("  open     {}", greeting::url(address, service.is_secure(address), ""))),
    );
    lines.push("  end      ^C".into());
    lines.join("\n") + "\n"
}

/// The files of the chat as prepared responses.
#[derive(Clone)]
struct Pages(Arc<[(&'static str, Arc<Prepared>)]>);

impl Pages {
    fn new() -> Self {
        Self(FILES.iter().map(|(name, content)| (*name, Arc::new(prepared(name, content)))).collect())
    }

    fn answer(&self, request: &Request<'_>) -> Outcome {
        if !matches!(request.method(), Method::Get | Method::Head) {
            return Outcome::Now(Reply::error(405).with("Allow", "GET, HEAD"));
        }
        let name = match request.path() {
            b"/" => b"index.html",
            path => path.strip_prefix(b"/").unwrap_or(path),
        };
        let page = self.0.iter().find(|(other, _)| other.as_bytes() == name);
        Outcome::Now(page.map_or_else(|| Reply::error(404), |(_, page)| Reply::prepared(Arc::clone(page))))
    }
}

fn prepared(name: &str, content: &[u8]) -> Prepared {
    let kind = match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "webmanifest" => "application/manifest+json",
        _ => "application/octet-stream",
    };
    let mut fields = Fields::new();
    for (name, value) in [
        ("Content-Type", kind),
        // Another version of the program serves another chat at the same address.
        ("Cache-Control", "no-cache"),
        ("X-Content-Type-Options", "nosniff"),
        ("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'"),
    ] {
        fields.push(name, value.as_bytes()).expect("values of our own are well formed");
    }
    Prepared::memory(200, fields, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chat_is_whole_and_each_file_has_a_type() {
        for name in ["index.html", "chat.css", "chat.js"] {
            assert!(FILES.iter().any(|(other, content)| *other == name && !content.is_empty()), "{name}");
        }
        let (_, page) = FILES.iter().find(|(name, _)| *name == "index.html").expect("there");
        let page = std::str::from_utf8(page).expect("text");
        for (name, _) in FILES.iter().filter(|(name, _)| *name != "index.html") {
            assert!(page.contains(name), "{name} is carried for nothing");
        }
        for (name, content) in FILES {
            prepared(name, content);
            let known = ["html", "css", "js", "svg", "png", "webmanifest"];
            assert!(known.iter().any(|end| name.ends_with(&format!(".{end}"))), "{name} has no type");
        }
    }
}
