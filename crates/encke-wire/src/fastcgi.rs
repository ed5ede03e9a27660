//! FastCGI 1.0 as a client: the records of one request, and the records of its response.
//!
//! ```text
//!  request   BEGIN_REQUEST │ PARAMS … PARAMS (empty) │ STDIN … STDIN (empty)
//!  response  STDOUT … │ STDERR … │ END_REQUEST                     in any order, the end last
//!  record    version 1 │ type │ request id (2) │ content length (2) │ padding length │ 0 │ content │ padding
//! ```
//! A connection carries one request at a time, with the id 1: no server in use takes several (`FCGI_MPXS_CONNS` of php-fpm is 0).
//! The content of STDOUT is the response of a CGI program: see [`crate::cgi`].
//!
//! Source: the FastCGI Specification, version 1.0 (Brown, 1996), sections 3 to 5.

use std::fmt;

/// Appends the start of a request in the role of a responder. `keeps`: whether the application keeps the connection open.
pub fn put_begin(out: &mut Vec<u8>, keeps: bool) {
    put_record_head(out, BEGIN_REQUEST, 8);
    out.extend_from_slice(&[0, RESPONDER, u8::from(keeps), 0, 0, 0, 0, 0]);
}

/// Appends a name and its value to the content of PARAMS records (§3.4).
///
/// ```
/// let mut pairs = Vec::new();
/// encke_wire::fastcgi::put_pair(&mut pairs, b"HTTPS", b"on");
/// assert_eq!(pairs, b"\x05\x02HTTPSon");
/// ```
pub fn put_pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for length in [name.len(), value.len()] {
        match u8::try_from(length) {
            Ok(short) if short < LONG => out.push(short),
            // Names and values come from a head, which is shorter than 2 GiB.
            _ => out.extend_from_slice(&(length as u32 | u32::from(LONG) << 24).to_be_bytes()),
        }
    }
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

/// Appends all PARAMS records of a request. `pairs` was written by [`put_pair`]. A pair that fits into a record is not divided,
/// although PARAMS is a stream (§3.3): PHP reads each record on its own.
pub fn put_params(out: &mut Vec<u8>, pairs: &[u8]) {
    let mut rest = pairs;
    while let Some((record, after)) = rest.split_at_checked(whole_pairs(rest)) {
        put_stream(out, PARAMS, record);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    put_record_head(out, PARAMS, 0);
}

/// Appends a piece of a request's body. [`put_body_end`] must follow the last one.
pub fn put_body(out: &mut Vec<u8>, piece: &[u8]) {
    put_stream(out, STDIN, piece);
}

/// Appends the end of a request's body.
pub fn put_body_end(out: &mut Vec<u8>) {
    put_record_head(out, STDIN, 0);
}

/// Appends a query for the application's limits, outside of any request (§4.1). Every application responds to it.
pub fn put_query(out: &mut Vec<u8>) {
    let mut pairs = Vec::new();
    put_pair(&mut pairs, b"FCGI_MPXS_CONNS", b"");
    // No request has the id 0.
    out.extend_from_slice(&[VERSION, GET_VALUES, 0, 0, 0, pairs.len() as u8, 0, 0]);
    out.extend_from_slice(&pairs);
}

/// Whether the head of a record is that of a response to [`put_query`].
pub const fn is_result(head: &[u8; HEAD_BYTES]) -> bool {
    head[0] == VERSION && head[1] == GET_VALUES_RESULT
}

/// The length of the first pairs that fit into one record. A single one may be longer.
fn whole_pairs(pairs: &[u8]) -> usize {
    if pairs.len() <= CONTENT_BYTES_MAX {
        return pairs.len();
    }
    let mut end = 0;
    while let Some(next) = pairs.get(end..).and_then(pair_bytes).map(|bytes| end + bytes) {
        if next > CONTENT_BYTES_MAX && end > 0 {
            break;
        }
        end = next;
    }
    // The pairs are ours: each has its length.
    if end == 0 { pairs.len() } else { end }
}

/// The length of the first pair.
fn pair_bytes(pairs: &[u8]) -> Option<usize> {
    let (mut rest, mut bytes) = (pairs, 0_usize);
    for _ in 0..2 {
        let length = match *rest {
            [short, ref after @ ..] if short < LONG => {
                rest = after;
                1 + usize::from(short)
            }
            [a, b, c, d, ref after @ ..] => {
                rest = after;
                4 + u32::from_be_bytes([a & !LONG, b, c, d]) as usize
            }
            _ => return None,
        };
        bytes += length;
    }
    (bytes <= pairs.len()).then_some(bytes)
}

fn put_stream(out: &mut Vec<u8>, kind: u8, content: &[u8]) {
    for piece in content.chunks(CONTENT_BYTES_MAX) {
        put_record_head(out, kind, piece.len());
        out.extend_from_slice(piece);
    }
}

/// `length` is at most [`CONTENT_BYTES_MAX`], so the casts hold.
fn put_record_head(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.extend_from_slice(&[VERSION, kind, 0, REQUEST_ID, (length >> 8) as u8, length as u8, 0, 0]);
}

/// Reads the records of one response after the other. It is no buffer: content is lent from the input.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordReader {
    head: [u8; HEAD_BYTES],
    /// Bytes of the head so far.
    head_len: u8,
    /// Bytes of content, and then of padding, that have not arrived.
    content_left: u16,
    padding_left: u8,
    /// The content of END_REQUEST so far.
    end: [u8; END_BYTES],
    end_len: u8,
}

/// A piece of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordPiece<'a> {
    /// All input is used; more is needed.
    More,
    /// Output of the application: a part of the response.
    Output(&'a [u8]),
    /// Messages of the application, for its operator.
    Messages(&'a [u8]),
    /// The response is complete.
    End(EndStatus),
}

/// The end of a request, as the application reports it (§5.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndStatus {
    /// The request is complete. The exit status of the program.
    Complete(u32),
    /// The application does not take several requests on a connection.
    NoMultiplexing,
    /// The application is out of resources.
    Overloaded,
    /// The application does not know the role of a responder.
    UnknownRole,
}

/// Why input is no sequence of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordFault {
    /// Another version than 1.
    Version(u8),
    /// A record that no application sends, or of another request.
    Unexpected(u8),
    /// An END_REQUEST record of another length, or with an unknown status.
    End,
}

impl fmt::Display for RecordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "the application does not speak FastCGI 1 (version {version})")
            }
            Self::Unexpected(kind) => write!(f, "unexpected FastCGI record of type {kind}"),
            Self::End => f.write_str("malformed FastCGI record END_REQUEST"),
        }
    }
}

impl std::error::Error for RecordFault {}

impl RecordReader {
    /// Reads up to the end of the next piece. Returns it, and the number of bytes that it used. The caller advances by that, and
    /// calls again until the piece is `More`.
    ///
    /// # Errors
    /// The input breaks a rule. The reader must not be used again.
    pub fn step<'a>(&mut self, input: &'a [u8]) -> Result<(RecordPiece<'a>, usize), RecordFault> {
        let mut at = 0;
        loop {
            if usize::from(self.head_len) < HEAD_BYTES {
                let Some(&byte) = input.get(at) else { return Ok((RecordPiece::More, at)) };
                if let Some(place) = self.head.get_mut(usize::from(self.head_len)) {
                    *place = byte;
                }
                self.head_len += 1;
                at += 1;
                if usize::from(self.head_len) == HEAD_BYTES {
                    self.begin()?;
                }
                continue;
            }
            if self.content_left > 0 {
                let rest = input.get(at..).unwrap_or_default();
                if rest.is_empty() {
                    return Ok((RecordPiece::More, at));
                }
                let taken = rest.len().min(usize::from(self.content_left));
                let content = &rest[..taken];
                // At most `content_left`, so the cast holds.
                self.content_left -= taken as u16;
                at += taken;
                match self.kind() {
                    STDOUT => return Ok((RecordPiece::Output(content), at)),
                    STDERR => return Ok((RecordPiece::Messages(content), at)),
                    END_REQUEST => self.take_end(content),
                    _ => {}
                }
                continue;
            }
            if self.padding_left > 0 {
                let taken = input.len().saturating_sub(at).min(usize::from(self.padding_left));
                if taken == 0 {
                    return Ok((RecordPiece::More, at));
                }
                // At most `padding_left`, so the cast holds.
                self.padding_left -= taken as u8;
                at += taken;
                continue;
            }
            let kind = self.kind();
            self.head_len = 0;
            if kind == END_REQUEST {
                self.end_len = 0;
                return Ok((RecordPiece::End(end_status(self.end)?), at));
            }
        }
    }

    /// Takes back the last `bytes` of the output that was returned last: the next step must begin with them.
    pub const fn give_back(&mut self, bytes: usize) {
        // Output is part of one record, so the cast holds.
        self.content_left = self.content_left.saturating_add(bytes as u16);
    }

    /// Whether the input so far ends between two records.
    pub const fn is_between(&self) -> bool {
        self.head_len == 0
    }

    fn kind(&self) -> u8 {
        let [_, kind, ..] = self.head;
        kind
    }

    /// Checks a complete head.
    fn begin(&mut self) -> Result<(), RecordFault> {
        let [version, kind, id_high, id_low, length_high, length_low, padding, _] = self.head;
        if version != VERSION {
            return Err(RecordFault::Version(version));
        }
        let id = u16::from_be_bytes([id_high, id_low]);
        let length = u16::from_be_bytes([length_high, length_low]);
        match kind {
            STDOUT | STDERR if id == u16::from(REQUEST_ID) => {}
            END_REQUEST if id == u16::from(REQUEST_ID) => {
                if usize::from(length) != END_BYTES {
                    return Err(RecordFault::End);
                }
            }
            _ => return Err(RecordFault::Unexpected(kind)),
        }
        (self.content_left, self.padding_left) = (length, padding);
        Ok(())
    }

    fn take_end(&mut self, content: &[u8]) {
        for byte in content {
            if let Some(place) = self.end.get_mut(usize::from(self.end_len)) {
                *place = *byte;
                self.end_len += 1;
            }
        }
    }
}

fn end_status([a, b, c, d, status, ..]: [u8; END_BYTES]) -> Result<EndStatus, RecordFault> {
    match status {
        0 => Ok(EndStatus::Complete(u32::from_be_bytes([a, b, c, d]))),
        1 => Ok(EndStatus::NoMultiplexing),
        2 => Ok(EndStatus::Overloaded),
        3 => Ok(EndStatus::UnknownRole),
        _ => Err(RecordFault::End),
    }
}

const VERSION: u8 = 1;
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const GET_VALUES: u8 = 9;
const GET_VALUES_RESULT: u8 = 10;
/// The role of an application that responds to a request.
const RESPONDER: u8 = 1;
/// The id of the only request of a connection.
const REQUEST_ID: u8 = 1;
/// The bit of a length of four bytes.
const LONG: u8 = 0x80;
/// Bytes of the head of a record.
pub const HEAD_BYTES: usize = 8;
const END_BYTES: usize = 8;
/// Content of a record that needs no padding to a multiple of eight bytes.
const CONTENT_BYTES_MAX: usize = 65_528;

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of the application.
    fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
        let length = u16::try_from(content.len()).expect("short").to_be_bytes();
        let head = [VERSION, kind, 0, 1, length[0], length[1], padding, 0];
        [&head[..], content, &vec![0xaa; usize::from(padding)]].concat()
    }

    /// Output, messages, and the end.
    type Parts = (Vec<u8>, Vec<u8>, Option<EndStatus>);

    fn read(pieces: &[&[u8]]) -> Result<Parts, RecordFault> {
        let (mut reader, mut parts) = (RecordReader::default(), Parts::default());
        for piece in pieces {
            let mut rest = *piece;
            loop {
                let (found, used) = reader.step(rest)?;
                rest = &rest[used..];
                match found {
                    RecordPiece::More => break,
                    RecordPiece::Output(bytes) => parts.0.extend_from_slice(bytes),
                    RecordPiece::Messages(bytes) => parts.1.extend_from_slice(bytes),
                    RecordPiece::End(status) => parts.2 = Some(status),
                }
            }
            assert!(rest.is_empty(), "all input is used");
        }
        Ok(parts)
    }

    /// Reads input whole, byte by byte, and cut in two at every place. All results are the same.
    fn every_way(input: &[u8]) -> Result<Parts, RecordFault> {
        let whole = read(&[input]);
        assert_eq!(read(&input.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
        for cut in 0..=input.len() {
            assert_eq!(read(&[&input[..cut], &input[cut..]]), whole, "cut at {cut}");
        }
        whole
    }

    #[test]
    fn a_response_is_read_whatever_its_records() {
        let input = [
            record(STDOUT, b"Content-Type: text/plain\n\nhel", 3),
            record(STDERR, b"a warning", 0),
            record(STDOUT, b"lo", 255),
            record(STDERR, b"", 0),
            record(STDOUT, b"", 0),
            record(END_REQUEST, &[0, 0, 1, 2, 0, 9, 9, 9], 1),
        ]
        .concat();
        let (output, messages, end) = every_way(&input).expect("a response");
        assert_eq!(output, b"Content-Type: text/plain\n\nhello");
        assert_eq!(messages, b"a warning");
        assert_eq!(end, Some(EndStatus::Complete(258)));
    }

    #[test]
    fn output_that_is_given_back_is_returned_again() {
        let input = [record(STDOUT, b"head|body", 1), record(END_REQUEST, &[0; 8], 0)].concat();
        let mut reader = RecordReader::default();
        let (piece, used) = reader.step(&input).expect("output");
        assert_eq!(piece, RecordPiece::Output(b"head|body"));
        reader.give_back(4);
        let (piece, more) = reader.step(&input[used - 4..]).expect("output");
        assert_eq!(piece, RecordPiece::Output(b"body"));
        assert_eq!(
            reader.step(&input[used - 4 + more..]).expect("the end").0,
            RecordPiece::End(EndStatus::Complete(0))
        );
    }

    #[test]
    fn one_connection_carries_one_response_after_the_other() {
        let one = [record(STDOUT, b"a", 7), record(END_REQUEST, &[0; 8], 0)].concat();
        let (output, _, end) = every_way(&[one.clone(), one].concat()).expect("two responses");
        assert_eq!((output, end), (b"aa".to_vec(), Some(EndStatus::Complete(0))));
    }

    #[test]
    fn a_truncated_response_has_no_end() {
        let input = [record(STDOUT, b"abc", 2), record(END_REQUEST, &[0; 8], 4)].concat();
        for end in 0..input.len() {
            assert_eq!(read(&[&input[..end]]).expect("no fault").2, None, "{end}");
        }
    }

    #[test]
    fn the_application_may_refuse() {
        for (status, end) in
            [(1, EndStatus::NoMultiplexing), (2, EndStatus::Overloaded), (3, EndStatus::UnknownRole)]
        {
            let input = record(END_REQUEST, &[0, 0, 0, 0, status, 0, 0, 0], 0);
            assert_eq!(every_way(&input).expect("an end").2, Some(end));
        }
    }

    #[test]
    fn other_records_are_refused() {
        let mut other_id = record(STDOUT, b"a", 0);
        other_id[3] = 2;
        for (input, fault) in [
            (b"HTTP/1.1 200 OK\r\n".to_vec(), RecordFault::Version(b'H')),
            (record(PARAMS, b"", 0), RecordFault::Unexpected(PARAMS)),
            (record(11, &[0; 8], 0), RecordFault::Unexpected(11)),
            (record(0, b"", 0), RecordFault::Unexpected(0)),
            (other_id, RecordFault::Unexpected(STDOUT)),
            (record(END_REQUEST, &[0; 7], 0), RecordFault::End),
            (record(END_REQUEST, &[0, 0, 0, 0, 4, 0, 0, 0], 0), RecordFault::End),
        ] {
            assert_eq!(every_way(&input), Err(fault));
        }
    }

    #[test]
    fn a_request_is_written_in_records_that_fit() {
        let mut pairs = Vec::new();
        put_pair(&mut pairs, b"SHORT", b"");
        put_pair(&mut pairs, b"LONG", &vec![b'x'; 70_000]);
        assert_eq!(&pairs[..7], b"\x05\x00SHORT");
        assert_eq!(&pairs[7..16], &[4, 0x80, 1, 0x11, 0x70, b'L', b'O', b'N', b'G']);
        put_pair(&mut pairs, b"LIMIT", &[b'y'; 127]);
        let mut out = Vec::new();
        put_begin(&mut out, true);
        assert_eq!(out, [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
        out.clear();
        put_params(&mut out, &pairs);
        put_body(&mut out, &[b'z'; 65_529]);
        put_body_end(&mut out);
        let mut contents = Vec::new();
        let mut rest = &out[..];
        while let [1, kind, 0, 1, high, low, 0, 0, after @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            contents.push((*kind, after[..length].to_vec()));
            rest = &after[length..];
        }
        assert!(rest.is_empty());
        let kinds: Vec<(u8, usize)> = contents.iter().map(|(kind, content)| (*kind, content.len())).collect();
        // A pair that fits into no record is divided, and begins one.
        let long = 9 + 70_000;
        assert_eq!(
            kinds,
            [
                (PARAMS, 7),
                (PARAMS, CONTENT_BYTES_MAX),
                (PARAMS, long - CONTENT_BYTES_MAX),
                (PARAMS, pairs.len() - 7 - long),
                (PARAMS, 0),
                (STDIN, CONTENT_BYTES_MAX),
                (STDIN, 1),
                (STDIN, 0)
            ]
        );
        let written: Vec<&[u8]> = contents.iter().take(5).map(|(_, content)| &content[..]).collect();
        assert_eq!(written.concat(), pairs);
    }

    #[test]
    fn records_contain_whole_pairs() {
        let mut pairs = Vec::new();
        for number in 0..9 {
            put_pair(&mut pairs, format!("HTTP_X_{number}").as_bytes(), &[b'v'; 10_000]);
        }
        let pair = pairs.len() / 9;
        let mut out = Vec::new();
        put_params(&mut out, &pairs);
        let (first, second) = (6 * pair, 3 * pair);
        assert_eq!(out.len(), pairs.len() + 3 * HEAD_BYTES);
        for (at, length) in [(0, first), (HEAD_BYTES + first, second), (2 * HEAD_BYTES + first + second, 0)] {
            assert_eq!(u16::from_be_bytes([out[at + 4], out[at + 5]]) as usize, length, "at {at}");
        }
    }
}
