//! A client in the simulator: pipelined requests, or a WebSocket. It may vanish at any time.

use encke_io::sim::{SimClient, SimReadState, World};

use crate::app::{Ledger, chunked_end, filler};

/// A request of a client.
pub(crate) struct ScriptedRequest {
    pub(crate) number: usize,
    /// A request with a body that no application may get twice.
    pub(crate) is_post: bool,
}

pub(crate) struct Visitor {
    client: Option<SimClient>,
    pub(crate) script: Vec<ScriptedRequest>,
    is_socket: bool,
    wire: Vec<u8>,
    sent: usize,
    pub(crate) received: Vec<u8>,
    /// The client or the world broke the connection: an incomplete result is acceptable.
    pub(crate) is_broken: bool,
    pub(crate) end: SimReadState,
}

/// The results of all clients.
#[derive(Default, Debug)]
pub(crate) struct Results {
    /// Responses of applications, by method.
    pub(crate) gets: usize,
    pub(crate) posts: usize,
    pub(crate) sockets: usize,
    /// Errors of the gateway.
    pub(crate) bad: usize,
    pub(crate) late: usize,
    pub(crate) queue: usize,
    /// Responses that were broken off by a reset.
    pub(crate) resets: usize,
    /// Good and bad checks of targets.
    pub(crate) checks: [u64; 2],
}

impl Visitor {
    pub(crate) fn new(world: &World, next_number: &mut usize, address: std::net::SocketAddr) -> Self {
        let mut number = || {
            *next_number += 1;
            *next_number
        };
        let is_socket = world.chance(8) == 0;
        let count = if is_socket { 1 } else { 1 + world.chance(4) as usize };
        let (mut script, mut wire) = (Vec::new(), Vec::new());
        for place in 0..count {
            let number = number();
            let close = if place + 1 == count { "Connection: close\r\n" } else { "" };
            let has_body = !is_socket && world.chance(3) == 0;
            // An OPTIONS with a body may be repeated.
            let is_post = has_body && world.chance(3) > 0;
            if is_socket {
                wire.extend(
                    format!(
                        "GET /{number} HTTP/1.1\r\nHost: sim\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
                    )
                    .bytes(),
                );
            } else if has_body {
                let size = [0, 5, 3_000, 30_000, 150_000][world.chance(5) as usize];
                let method = if is_post { "POST" } else { "OPTIONS" };
                wire.extend(format!("{method} /{number} HTTP/1.1\r\nHost: sim\r\n{close}").bytes());
                if world.chance(2) == 0 {
                    wire.extend(format!("Content-Length: {size}\r\n\r\n").bytes());
                    wire.extend(filler(size));
                } else {
                    wire.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                    if size > 0 {
                        wire.extend([format!("{size:x}\r\n").as_bytes(), &filler(size), b"\r\n"].concat());
                    }
                    wire.extend(b"0\r\n\r\n");
                }
            } else {
                wire.extend(format!("GET /{number} HTTP/1.1\r\nHost: sim\r\n{close}\r\n").bytes());
            }
            script.push(ScriptedRequest { number, is_post });
        }
        let client = Some(world.connect(address));
        let end = SimReadState::Open;
        Self { client, script, is_socket, wire, sent: 0, received: Vec::new(), is_broken: false, end }
    }

    /// Sends a piece and receives a piece. Returns true while there is something to wait for.
    pub(crate) fn visit(&mut self, world: &World) -> bool {
        let Some(client) = &mut self.client else { return false };
        if self.is_socket && self.received.ends_with(b"\r\n\r\nhello") && !self.wire.ends_with(b"ping") {
            self.wire.extend_from_slice(b"ping");
        }
        let wish = (1 + world.chance(9_000) as usize).min(self.wire.len() - self.sent);
        self.sent += client.send(&self.wire[self.sent..self.sent + wish]);
        self.received.extend(client.take_at_most(1 + world.chance(30_000) as usize));
        self.is_broken |= client.is_shut();
        if self.is_socket && self.received.ends_with(b"helloping") {
            client.shutdown();
        }
        self.end = client.end();
        if self.end != SimReadState::Open {
            self.client = None;
        } else if world.chance(4_000) == 0 {
            self.is_broken = true;
            let client = self.client.take().expect("looked at above");
            if world.chance(2) == 0 { client.reset() } else { drop(client) }
        }
        self.client.is_some()
    }

    /// Checks the responses of the client. In a world with `fouls` any connection may break.
    pub(crate) fn judge(&self, seed: u64, fouls: bool, ledger: &Ledger, results: &mut Results) {
        let mut rest = &self.received[..];
        // The connection may also end after a response that precedes the end of its request's body.
        let (mut answered, mut may_end) = (0, false);
        for request in &self.script {
            let Some(response) = Response::parse(rest) else { break };
            rest = &rest[response.used..];
            answered += 1;
            may_end = response.is_last || ledger.early.contains(&request.number);
            if response.status == 101 {
                assert!(self.is_socket, "seed {seed}: request {} is no WebSocket", request.number);
                assert!(b"helloping".starts_with(rest), "seed {seed}: bytes of another connection: {rest:?}");
                results.sockets += 1;
                return;
            }
            judge_response(seed, request, &response, ledger, (results, self.is_broken || fouls));
            if response.is_last {
                break;
            }
        }
        let open = &self.script[answered..];
        if self.is_broken || fouls {
            return;
        }
        let numbers: Vec<_> = open.iter().map(|request| request.number).collect();
        let text = || String::from_utf8_lossy(&rest[..rest.len().min(300)]).into_owned();
        if self.end == SimReadState::Reset {
            let broken = open.iter().any(|request| ledger.broken.contains(&request.number));
            assert!(broken, "seed {seed}: the requests {numbers:?} were reset without a reason: {}", text());
            results.resets += 1;
            return;
        }
        assert_eq!(self.end, SimReadState::Finished, "seed {seed}: {numbers:?} have no response");
        assert!(open.is_empty() || may_end, "seed {seed}: {numbers:?} have no response: {}", text());
        assert!(rest.is_empty(), "seed {seed}: bytes follow the last response: {}", text());
    }
}

/// Checks one complete response.
fn judge_response(
    seed: u64,
    request: &ScriptedRequest,
    response: &Response,
    ledger: &Ledger,
    (results, may_be_broken): (&mut Results, bool),
) {
    let number = request.number;
    let sent = ledger.responses.get(&number).map(Vec::as_slice).unwrap_or_default();
    match response.status {
        502 => results.bad += 1,
        503 => results.queue += 1,
        504 => results.late += 1,
        // The server has read an incomplete request.
        400 | 408 if may_be_broken => {}
        status => {
            let is_right = sent.iter().any(|(other, body)| *other == status && *body == response.body);
            assert!(is_right, "seed {seed}: {number} has the wrong response: {status}, {:?}", response.body);
            *(if request.is_post { &mut results.posts } else { &mut results.gets }) += 1;
        }
    }
}

/// A complete response at the start of received bytes.
struct Response {
    status: u16,
    body: Vec<u8>,
    used: usize,
    /// Whether the connection ends with the response.
    is_last: bool,
}

impl Response {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let text = std::str::from_utf8(&bytes[..head]).expect("heads are text");
        let status: u16 = text.get(9..12)?.parse().expect("a status");
        if matches!(status, 102..200) && status != 101 || status == 100 {
            let next = Self::parse(&bytes[head..])?;
            return Some(Self { used: next.used + head, ..next });
        }
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let is_last = value("Connection: ") == Some("close");
        if status == 101 {
            return Some(Self { status, body: Vec::new(), used: head, is_last });
        }
        if let Some(length) = value("Content-Length: ") {
            let length: usize = length.parse().expect("a length");
            let body = bytes.get(head..head + length)?.to_vec();
            return Some(Self { status, body, used: head + length, is_last });
        }
        assert_eq!(value("Transfer-Encoding: "), Some("chunked"), "{text}");
        let (used, body) = chunked_end(bytes, head)?;
        Some(Self { status, body, used, is_last })
    }
}
