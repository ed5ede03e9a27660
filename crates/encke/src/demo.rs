//! `encke demo`: serves the chat of examples/chat and the push channels it uses; with `--live` also a live stream.
//!
//! The build script (build.rs) embeds the files of the chat in the program. The demo reads nothing from the current directory.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::sync::Arc;

use encke_assembly::Service;
use encke_assembly::settings::{
    ADMIN_DEFAULT, Admin, ChannelSettings, Listen, ListenAddress, LogTarget, OrOff, Settings,
};
use encke_io::Address;
use encke_io::host::Signals;
use encke_server::{Exchange, Fields, Outcome, Prepared, Reply, Request};
use encke_wire::method::Method;

use crate::arguments::Demo;
use crate::error::{CommandError, CommandResult};
use crate::greeting;
use crate::serve::{self, ProcessFiles};

mod clip;
mod live;

use live::TestPicture;

/// Names and contents of the embedded files.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/chat.rs"));

pub(crate) fn run(arguments: &Demo) -> CommandResult {
    // Signals must be blocked before the first thread starts, as in `encke serve`.
    let signals = Signals::block();
    let settings = settings(arguments);
    let pages = Pages::new(arguments.live.then(|| player_path(&settings)));
    let service =
        Service::start_with(&settings, move |request: &Request<'_>, _: Exchange| pages.answer(request));
    let service = service.map_err(CommandError::system)?;
    let feeds = service.live_feeds().filter(|_| arguments.live);
    // Dropped after the server has stopped.
    let _picture = feeds.map(TestPicture::start).transpose().map_err(CommandError::system)?;
    let _nobody_listens = io::stderr().write_all(text(&service, &settings, arguments.live).as_bytes());
    // SIGHUP ends the demo: it lives as long as the terminal that started it.
    serve::attend(service, signals, ProcessFiles::default(), |_| ControlFlow::Break(()))
}

fn settings(arguments: &Demo) -> Settings {
    let mut settings = Settings::default();
    if !arguments.listen.is_empty() {
        settings.server.listen = arguments.listen.iter().cloned().map(Listen::at).collect();
    }
    settings.open = arguments.open;
    settings.server.admin = OrOff::On(Admin { address: Some(admin_address()), ..Admin::new() });
    settings.log.access = LogTarget::Off;
    // Presence is on, so that a chat user sees the other members of a room.
    settings.push.channel =
        vec![ChannelSettings { pattern: "chat/**".into(), presence: true, ..ChannelSettings::default() }];
    settings
}

/// The default address of the admin listener, or a free port if another server has it.
fn admin_address() -> ListenAddress {
    let is_free = TcpListener::bind(ADMIN_DEFAULT).is_ok();
    let port = if is_free { ADMIN_DEFAULT.port() } else { 0 };
    ListenAddress::Inet(SocketAddr::new(ADMIN_DEFAULT.ip(), port))
}

/// The path of the player of the test picture.
fn player_path(settings: &Settings) -> String {
    format!("{}{}", settings.live.prefix, live::STREAM)
}

fn text(service: &Service, settings: &Settings, is_live: bool) -> String {
    let what = if is_live { "a live stream" } else { "a chat; open it in two windows" };
    let mut lines = vec![format!("encke {} demo: {what}", env!("CARGO_PKG_VERSION"))];
    let addresses = service.addresses();
    let url = |address: &Address, path: &str| greeting::url(address, service.is_secure(address), path);
    lines.extend(addresses.iter().map(|address| format!("  open     {}", url(address, ""))));
    let inet = addresses.iter().find(|address| matches!(address, Address::Inet(_)));
    if let Some(address) = inet.filter(|_| is_live) {
        let stream = |name: &str| {
            let path = format!("{}{name}", settings.live.prefix.trim_start_matches('/'));
            let url = url(address, &path);
            // Without the note on other addresses.
            url.split("  ").next().unwrap_or_default().to_owned()
        };
        lines.push(format!("  player   mpv {}", stream(live::STREAM)));
        lines.push(format!(
            "  send     ffmpeg -re -i film.webm -c copy -f webm -method PUT {}",
            stream("film")
        ));
    }
    let console =
        service.console_token().map(|token| greeting::console(service, &format!("#login={token}"), ""));
    lines.extend(console.into_iter().flatten().map(|line| format!("  console  {line}")));
    lines.push("  end      ^C".into());
    lines.join("\n") + "\n"
}

/// The files of the chat as prepared responses.
#[derive(Clone)]
struct Pages {
    files: Arc<[(&'static str, Arc<Prepared>)]>,
    /// The path to which `/` redirects, if it is not the chat.
    front: Option<Arc<str>>,
}

impl Pages {
    fn new(front: Option<String>) -> Self {
        Self {
            files: FILES.iter().map(|(name, content)| (*name, Arc::new(prepared(name, content)))).collect(),
            front: front.map(Into::into),
        }
    }

    fn answer(&self, request: &Request<'_>) -> Outcome {
        if !matches!(request.method(), Method::Get | Method::Head) {
            return Outcome::Now(Reply::error(405).with("Allow", "GET, HEAD"));
        }
        if let (b"/", Some(front)) = (request.path(), &self.front) {
            return Outcome::Now(
                Reply::new(302).with("Location", front.to_string()).with("Cache-Control", "no-store"),
            );
        }
        let name = match request.path() {
            b"/" => b"index.html",
            path => path.strip_prefix(b"/").unwrap_or(path),
        };
        let page = self.files.iter().find(|(other, _)| other.as_bytes() == name);
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
