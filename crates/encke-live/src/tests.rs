//! Whole servers with live streams in the simulator: sources, listeners, rights, lists, fallbacks and pulls.

mod fallbacks;
mod feeds;
mod listeners;
mod pulls;
mod sources;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use encke_push::testing::{Act, AuthSettings, Openness, Shut};
use encke_push::{PushPlan, PushPublisher, PushSettings};
use encke_server::testing::{SimMounts, SimNet, SimPeer, SimResponse};
use encke_settings::{Period, notice};
use encke_stats::{Sample, Source as _};
use serde_json::Value;

use crate::figures::LiveReport;
use crate::{LiveChannelSettings, LivePoint, LiveSettings, LiveState};

/// A stream of video with sound: 64 pictures, a key frame each second.
const WEBM: &[u8] = include_bytes!("../../encke-wire/tests/media/vp8-vorbis.webm");
/// Frames of MP3, without the tag at the end.
const MP3: &[u8] = include_bytes!("../../encke-wire/tests/media/cbr.mp3").split_at(16_636 - 128).0;

/// A network of servers with live streams.
struct Stage {
    net: SimNet,
    sites: Vec<Site>,
}

/// What outlives reloads of one server.
struct Site {
    state: Arc<LiveState>,
    publisher: PushPublisher,
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Settings with one rule for all streams.
fn live(change: impl FnOnce(&mut LiveChannelSettings)) -> LiveSettings {
    let mut channel = LiveChannelSettings::default();
    change(&mut channel);
    LiveSettings { channel: vec![channel], ..LiveSettings::default() }
}

fn open_to_all() -> AuthSettings {
    AuthSettings { anonymous: Act::ALL.to_vec(), ..AuthSettings::default() }
}

fn address(server: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + server as u8], 80))
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

fn mounts(live: &LiveSettings, auth: &AuthSettings, state: &Arc<LiveState>) -> (Arc<PushPlan>, SimMounts) {
    let push = PushSettings { origins: vec!["https://page.example".into()], ..PushSettings::default() };
    let plan = PushPlan::new(&push, auth, Openness::Shut(Shut::Settings)).expect("valid settings");
    let point = LivePoint::new(live, state, plan.publisher());
    let plan = Arc::new(plan.with_point(Arc::new(point)));
    let mounts = plan.mounts();
    (plan, mounts)
}

impl Stage {
    /// One server of one worker, open to all.
    fn new() -> Self {
        Self::with(&LiveSettings::default())
    }

    fn with(live: &LiveSettings) -> Self {
        let mut stage = Self { net: SimNet::new(7), sites: Vec::new() };
        stage.add(1, live, &open_to_all());
        stage
    }

    fn add(&mut self, workers: usize, live: &LiveSettings, auth: &AuthSettings) -> usize {
        // Notices of sources are no results of tests.
        notice::set_level(notice::Level::Error);
        let state = LiveState::new(live);
        let (plan, mounts) = mounts(live, auth, &state);
        let publisher = plan.publisher();
        self.sites.push(Site { state, publisher });
        self.net.start(address(self.sites.len() - 1), workers, mounts)
    }

    fn run(&mut self, time: Duration) {
        self.net.run(time);
    }

    /// Begins a source, with these header fields.
    fn source(&mut self, target: &str, fields: &str) -> SimPeer {
        self.source_at(0, target, fields)
    }

    fn source_at(&mut self, server: usize, target: &str, fields: &str) -> SimPeer {
        let head =
            format!("PUT /live/{target} HTTP/1.1\r\nHost: sim\r\nTransfer-Encoding: chunked\r\n{fields}\r\n");
        self.net.open(server, head.as_bytes())
    }

    /// Begins a source, and sends it bytes.
    fn sending(&mut self, target: &str, bytes: &[u8]) -> SimPeer {
        let mut source = self.source(target, "");
        self.feed(&mut source, bytes);
        self.run(seconds(1));
        source
    }

    fn feed(&mut self, source: &mut SimPeer, bytes: &[u8]) {
        self.net.send(source, &chunk(bytes));
    }

    /// Ends the body of a source, and returns the response.
    fn end(&mut self, source: &mut SimPeer) -> SimResponse {
        self.net.send(source, LAST_CHUNK);
        self.net.response(source)
    }

    /// Sends a GET, with these header fields.
    fn listen(&mut self, target: &str, fields: &str) -> SimPeer {
        self.listen_at(0, target, fields)
    }

    fn listen_at(&mut self, server: usize, target: &str, fields: &str) -> SimPeer {
        let head = format!("GET /live/{target} HTTP/1.1\r\nHost: sim\r\n{fields}\r\n");
        self.net.open(server, head.as_bytes())
    }

    /// Waits for the head of a response.
    fn head(&mut self, peer: &mut SimPeer) -> SimResponse {
        self.net.until_response(peer, |_| true)
    }

    /// Waits until a listener has this many bytes of media.
    fn bytes(&mut self, listener: &mut SimPeer, count: usize) -> Vec<u8> {
        self.net.until_response(listener, |response| response.body.len() >= count).body
    }

    /// Sends a GET, and returns the complete response.
    fn get(&mut self, target: &str) -> SimResponse {
        self.ask("GET", target, "")
    }

    fn ask(&mut self, method: &str, target: &str, fields: &str) -> SimResponse {
        self.net.ask(0, format!("{method} /live/{target} HTTP/1.1\r\nHost: sim\r\n{fields}\r\n"))
    }

    /// Returns the description of a stream.
    fn info(&mut self, name: &str) -> Value {
        let response = self.get(&format!("{name}?info"));
        assert_eq!(response.status, 200, "{}", response.text());
        serde_json::from_slice(&response.body).expect("JSON")
    }

    /// Returns a metric's value.
    fn metric(&self, name: &str) -> u64 {
        let report = LiveReport { state: Arc::clone(&self.sites[0].state), names: "live/".to_owned() };
        let family = report.families().into_iter().find(|family| family.name == name).expect("a metric");
        match &family.samples[..] {
            [Sample { value: encke_stats::Value::Count(count), .. }] => *count,
            other => panic!("{name}: {other:?}"),
        }
    }
}

fn hold(time_s: u64) -> LiveSettings {
    live(|channel| channel.hold = Period::seconds(time_s))
}
