//! Whole servers with channels in the simulator: each test states a request, and the bytes of its response.

mod limits;
mod manage;
mod publish;
mod read;
mod rights;
mod sockets;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use encke_hub::Epoch;
use encke_rights::{Act, AuthSettings, Openness, Shut, StaticToken};
use encke_server::testing::{SimNet, SimPeer, SimResponse};
use encke_settings::{OrOff, Period, Secret, notice};
use encke_wire::websocket::{self, Opcode};

use crate::plan::PushPlan;
use crate::settings::{ChannelSettings, PushSettings};

/// A server with channels.
struct Stage {
    net: SimNet,
    plan: Arc<PushPlan>,
}

/// The id of a message: all servers here have this epoch.
fn id(offset: u64) -> String {
    encke_hub::Position { epoch: Epoch(7), offset }.to_string()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn some(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("above 0")
}

fn open_to_all() -> AuthSettings {
    AuthSettings { anonymous: Act::ALL.to_vec(), ..AuthSettings::default() }
}

fn plan(push: &PushSettings, auth: &AuthSettings) -> Arc<PushPlan> {
    let mut plan = PushPlan::new(push, auth, Openness::Shut(Shut::Settings)).expect("valid settings");
    plan.epochs = [Epoch(7)].into();
    Arc::new(plan)
}

/// Settings with one rule for all channels.
fn channels(change: impl FnOnce(&mut ChannelSettings)) -> PushSettings {
    let mut channel = ChannelSettings::default();
    change(&mut channel);
    PushSettings { channel: vec![channel], ..PushSettings::default() }
}

/// A token with rights to these patterns: publish, subscribe, presence, manage.
fn token(token: &str, name: &str, rights: [&str; 4]) -> StaticToken {
    let [publish, subscribe, presence, manage] =
        rights.map(|text| text.split_whitespace().map(ToOwned::to_owned).collect());
    let name = Some(name.to_owned());
    StaticToken { token: Secret::Text(token.into()), name, publish, subscribe, presence, manage }
}

impl Stage {
    fn new() -> Self {
        Self::with(&PushSettings::default(), &open_to_all())
    }

    fn with(push: &PushSettings, auth: &AuthSettings) -> Self {
        Self::of(1, push, auth)
    }

    fn of(workers: usize, push: &PushSettings, auth: &AuthSettings) -> Self {
        // Notices are no results of tests.
        notice::set_level(notice::Level::Error);
        let mut net = SimNet::new(7);
        let plan = plan(push, auth);
        net.start(SocketAddr::from(([10, 0, 0, 1], 80)), workers, plan.mounts());
        Self { net, plan }
    }

    fn run(&mut self, time: Duration) {
        self.net.run(time);
    }

    fn ask(&mut self, method: &str, target: &str, fields: &str, body: &str) -> SimResponse {
        self.net.ask(0, request(method, target, fields, body))
    }

    fn get(&mut self, target: &str, fields: &str) -> SimResponse {
        self.ask("GET", target, fields, "")
    }

    /// Publishes a message, and returns the content of the 201.
    fn post(&mut self, target: &str, body: &str) -> String {
        let response = self.ask("POST", target, "", body);
        assert_eq!(response.status, 201, "{}", response.text());
        response.text()
    }

    /// Opens a stream.
    fn open(&mut self, target: &str, fields: &str) -> SimPeer {
        self.net.open(0, request("GET", target, fields, "").as_bytes())
    }

    fn head(&mut self, peer: &mut SimPeer) -> SimResponse {
        self.net.until_response(peer, |_| true)
    }

    /// Waits until the content of a stream has a text, and returns the content.
    fn wait(&mut self, peer: &mut SimPeer, text: &str) -> String {
        self.net.until_response(peer, |response| response.text().contains(text)).text()
    }

    /// Opens a WebSocket, and takes the head of its response.
    fn socket(&mut self, target: &str, fields: &str) -> Socket {
        let fields = format!(
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{fields}"
        );
        let mut peer = self.open(target, &fields);
        let head = self.head(&mut peer);
        assert_eq!(head.status, 101, "{}", head.text());
        let at = head.head.len();
        Socket { peer, at, head }
    }

    /// A WebSocket with envelopes.
    fn envelopes(&mut self, target: &str, fields: &str) -> Socket {
        self.socket(target, &format!("Sec-WebSocket-Protocol: encke.v1\r\n{fields}"))
    }

    /// Sends a text frame.
    fn say(&mut self, socket: &mut Socket, text: &str) {
        self.say_frame(socket, Opcode::Text, text.as_bytes());
    }

    fn say_frame(&mut self, socket: &mut Socket, opcode: Opcode, payload: &[u8]) {
        let mut frame = Vec::new();
        websocket::put_masked(&mut frame, opcode, payload, [1, 2, 3, 4]);
        self.net.send(&mut socket.peer, &frame);
    }

    /// Waits for the next frame: its first byte and its payload.
    fn frame(&mut self, socket: &mut Socket) -> (u8, Vec<u8>) {
        let at = socket.at;
        let (first, payload, end) = self.net.until(&mut socket.peer, |peer| frame_at(peer.received(), at));
        socket.at = end;
        (first, payload)
    }

    /// Waits for a text frame.
    fn heard(&mut self, socket: &mut Socket) -> String {
        let (first, payload) = self.frame(socket);
        assert_eq!(first, 0x81, "{}", String::from_utf8_lossy(&payload));
        String::from_utf8(payload).expect("text")
    }

    /// Waits for a Close: its code and reason.
    fn closed(&mut self, socket: &mut Socket) -> (u16, String) {
        let (first, payload) = self.frame(socket);
        assert_eq!(first, 0x88, "{}", String::from_utf8_lossy(&payload));
        let code = u16::from_be_bytes([payload[0], payload[1]]);
        (code, String::from_utf8(payload[2..].to_vec()).expect("text"))
    }
}

/// A WebSocket, and the number of bytes of the frames that were read.
struct Socket {
    peer: SimPeer,
    at: usize,
    head: SimResponse,
}

fn request(method: &str, target: &str, fields: &str, body: &str) -> String {
    let length = if matches!(method, "POST" | "PUT") {
        format!("Content-Length: {}\r\n", body.len())
    } else {
        String::new()
    };
    format!("{method} /push/{target} HTTP/1.1\r\nHost: sim\r\n{length}{fields}\r\n{body}")
}

/// Parses a frame of a server: its first byte, its payload, and where it ends.
fn frame_at(bytes: &[u8], at: usize) -> Option<(u8, Vec<u8>, usize)> {
    let [first, length] = *bytes.get(at..at + 2)? else { return None };
    let (length, start) = match length {
        126 => (usize::from(u16::from_be_bytes([*bytes.get(at + 2)?, *bytes.get(at + 3)?])), at + 4),
        short => (usize::from(short), at + 2),
    };
    Some((first, bytes.get(start..start + length)?.to_vec(), start + length))
}
