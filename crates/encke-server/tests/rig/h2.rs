//! A strict HTTP/2 client: frames as bytes, and the data received on each stream.

use std::collections::BTreeMap;

use super::{Client, Rig};

/// The data received on a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Got {
    /// The first byte of the response's field block: for common statuses an index of the static table (RFC 7541, appendix A).
    pub status: Option<u8>,
    /// The statuses of interim responses.
    pub interim: Vec<u16>,
    pub body: Vec<u8>,
    /// The field block after the body.
    pub trailers: Vec<u8>,
    pub ended: bool,
    pub reset: Option<u32>,
    /// Sum of the server's window updates for this stream.
    pub window: u64,
}

impl Got {
    pub fn with(&self, body: &[u8]) -> Self {
        Self { body: body.to_vec(), ..self.clone() }
    }
}

pub const OK_STATUS: u8 = 0x88;
pub const OK: Got = Got {
    status: Some(OK_STATUS),
    interim: Vec::new(),
    body: Vec::new(),
    trailers: Vec::new(),
    ended: true,
    reset: None,
    window: 0,
};

/// The status of an interim response. Those used here are not in the static table, so they arrive as text.
pub fn interim(block: &[u8]) -> Option<u16> {
    match block {
        [0x48, 0x82, 0x08, 0x01, ..] => Some(100),
        [0x48, 0x82, 0x08, 0x19, ..] => Some(103),
        _ => None,
    }
}

/// A client that sends and receives frames.
pub struct H2 {
    pub client: Client,
    pub got: BTreeMap<u32, Got>,
    pub goaway: Option<u32>,
    /// The server has sent a PING.
    pub pinged: bool,
}

impl H2 {
    pub fn connect(rig: &Rig) -> Self {
        let mut client = rig.client();
        client.send(begin());
        Self::speak(client)
    }

    /// A client that has sent nothing yet.
    pub fn speak(client: Client) -> Self {
        Self { client, got: BTreeMap::new(), goaway: None, pinged: false }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.client.send(bytes);
    }

    /// Sends a GET on the first stream, and returns the response.
    pub fn get(&mut self, path: &str) -> Got {
        self.send(&request(1, GET, path, END_STREAM));
        self.answer(1)
    }

    pub fn got(&mut self, stream: u32) -> &mut Got {
        self.got.entry(stream).or_default()
    }

    /// Reads until a stream has ended.
    pub fn answer(&mut self, stream: u32) -> Got {
        while !self.got(stream).ended && self.got(stream).reset.is_none() {
            self.read_one();
        }
        let got = self.got(stream).clone();
        Got { window: 0, ..got }
    }

    /// Reads until the body of a stream contains `text`. Returns false if the stream ends without it.
    pub fn body_with(&mut self, stream: u32, text: &[u8]) -> bool {
        loop {
            let got = self.got(stream);
            if got.body.windows(text.len()).any(|part| part == text) {
                return true;
            }
            if got.ended || got.reset.is_some() {
                return false;
            }
            self.read_one();
        }
    }

    /// Sends a body as fast as windows allow, until its end or until the server resets the stream. The initial windows of the
    /// stream and of the connection are 65,535 bytes.
    pub fn send_body(&mut self, stream: u32, body: &[u8]) {
        let mut sent = 0;
        while self.got(stream).reset.is_none() {
            let stream_room = 65_535 + self.got(stream).window - sent as u64;
            let all_room = 65_535 + self.got(0).window - sent as u64;
            let room = stream_room.min(all_room).min(FRAME_BYTES as u64) as usize;
            let piece = &body[sent..body.len().min(sent + room)];
            if piece.is_empty() {
                self.read_one();
                continue;
            }
            sent += piece.len();
            let last = sent == body.len();
            self.send(&frame(DATA, if last { END_STREAM } else { 0 }, stream, piece));
            if last {
                return;
            }
        }
    }

    /// Sends a PING and waits for its acknowledgement: by then the server has processed everything before it.
    pub fn ping(&mut self) {
        self.send(&frame(PING, 0, 0, b"are you?"));
        while self.read_one() != (PING, ACK) {}
    }

    pub fn until_goaway(&mut self) -> u32 {
        while self.goaway.is_none() {
            self.read_one();
        }
        self.goaway.expect("waited for")
    }

    /// Reads a frame, and reopens the windows by the size of its data. Returns its type and flags.
    pub fn read_one(&mut self) -> (u8, u8) {
        let header = self.client.read_exact(9);
        let len = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let (kind, flags) = (header[3], header[4]);
        let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        let payload = self.client.read_exact(len);
        let code = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().expect("four bytes"));
        let got = self.got.entry(stream).or_default();
        match kind {
            HEADERS => {
                match interim(&payload) {
                    Some(status) => got.interim.push(status),
                    None if got.status.is_some() => got.trailers = payload,
                    None => got.status = payload.first().copied(),
                }
                got.ended |= flags & END_STREAM != 0;
            }
            DATA => {
                got.body.extend_from_slice(&payload);
                got.ended |= flags & END_STREAM != 0;
                if len > 0 {
                    let more = (len as u32).to_be_bytes();
                    let ended = got.ended;
                    let mut updates = frame(WINDOW_UPDATE, 0, 0, &more);
                    if !ended {
                        updates.extend(frame(WINDOW_UPDATE, 0, stream, &more));
                    }
                    self.send(&updates);
                }
            }
            RST_STREAM => got.reset = Some(code(0)),
            WINDOW_UPDATE => got.window += u64::from(code(0)),
            GOAWAY => self.goaway = Some(code(4)),
            SETTINGS if flags & ACK == 0 => self.send(&frame(SETTINGS, ACK, 0, &[])),
            PING if flags & ACK == 0 => {
                self.pinged = true;
                self.send(&frame(PING, ACK, 0, &payload));
            }
            _ => {}
        }
        (kind, flags)
    }
}

pub fn begin() -> Vec<u8> {
    [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[])].concat()
}

/// The HEADERS frame of a request. Its fields are literals that enter no table (RFC 7541 §6.2.2).
pub fn request(stream: u32, method: &[u8], path: &str, flags: u8) -> Vec<u8> {
    let block = [method, &[0x86], &target(path)].concat();
    frame(HEADERS, END_HEADERS | flags, stream, &block)
}

/// `:path` and `:authority`.
pub fn target(path: &str) -> Vec<u8> {
    let mut block = vec![0x04, path.len() as u8];
    block.extend_from_slice(path.as_bytes());
    block.extend_from_slice(b"\x01\x09localhost");
    block
}

pub fn put_literal(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    for text in [name, value] {
        block.push(text.len() as u8);
        block.extend_from_slice(text);
    }
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const FRAME_BYTES: usize = 16_384;
/// Indices of the static table, and a literal with the name of entry 2.
pub const GET: &[u8] = &[0x82];
pub const POST: &[u8] = &[0x83];
pub const HEAD: &[u8] = b"\x02\x04HEAD";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

pub const NO_ERROR: u32 = 0;
pub const PROTOCOL_ERROR: u32 = 1;
pub const INTERNAL_ERROR: u32 = 2;
pub const STREAM_CLOSED: u32 = 5;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;
pub const ENHANCE_YOUR_CALM: u32 = 11;
