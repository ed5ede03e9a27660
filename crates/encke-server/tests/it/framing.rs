//! Every kind of response in HTTP/1.0, HTTP/1.1 and HTTP/2: each client decodes the same status, fields, content and trailers.
//! The HTTP/2 client is that of the `h2` crate; HTTP/1 is decoded here.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use encke_io::Segment;
use encke_io::files::{Links, OpenFile, Patience, Root};
use encke_server::{
    Asked, Body, CloseReason, ContentLength, Exchange, Fields, Handler, HandlerContext, Mount, Outcome,
    Prepared, Pull, Pulled, Reply, Request, Resident, Slot, Takeover, WorkerSetup,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::rig::{Client, Folder, Rig, Stand};

on_two_stands! {
    every_response_is_the_same_by_every_protocol,
}

/// A response as a client decodes it. Connection fields are dropped, and the date is only checked.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Decoded {
    interim: Vec<(u16, Vec<Field>)>,
    status: u16,
    fields: Vec<Field>,
    body: Vec<u8>,
    trailers: Vec<Field>,
}

/// A name in lower case, and a value.
type Field = (String, String);

/// A kind of response, and its expected decoding.
struct Case {
    path: &'static str,
    reply: fn(&Folder) -> Reply,
    expected: Decoded,
}

const SMALL: &[u8] = b"a few bytes";
/// Larger than content that is copied after a head, and than the content of a prepared block.
const LARGE_BYTES: usize = 100_000;

fn large() -> Vec<u8> {
    (0..LARGE_BYTES).map(|at| (at * 7 % 251) as u8).collect()
}

fn fields(pairs: &[(&str, &str)]) -> Vec<Field> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn own_fields() -> Fields {
    let mut own = Fields::new();
    for (name, value) in [("ETag", "\"1\""), ("Set-Cookie", "a=b"), ("Set-Cookie", "c=d")] {
        own.push(name, value.as_bytes()).expect("well-formed");
    }
    own
}

const OWN: [(&str, &str); 3] = [("etag", "\"1\""), ("set-cookie", "a=b"), ("set-cookie", "c=d")];

/// Adds the fields of [`own_fields`].
fn owned(mut reply: Reply) -> Reply {
    reply.fields.extend(&own_fields());
    reply
}

fn file(folder: &Folder) -> Arc<OpenFile> {
    let root = Root::new(folder.path()).expect("a folder");
    Arc::new(root.open(b"large", Links::Deny, Patience::Patient).expect("a file"))
}

/// Content in pieces, one of which is empty, and trailers.
struct Pieces(VecDeque<Vec<u8>>);

impl Pull for Pieces {
    fn pull(&mut self, _: usize, out: &mut Vec<u8>) -> Pulled {
        out.extend(self.0.pop_front().unwrap_or_default());
        if self.0.is_empty() { Pulled::End } else { Pulled::More }
    }

    fn trailers(&mut self) -> Fields {
        let mut trailers = Fields::new();
        trailers.push("Checksum", b"abc").expect("well-formed");
        trailers
    }
}

fn stream(pieces: &[&[u8]]) -> Body {
    Body::Stream(Box::new(Pieces(pieces.iter().map(|piece| piece.to_vec()).collect())))
}

fn cases() -> Vec<Case> {
    let case = |path, status, body: &[u8], reply: fn(&Folder) -> Reply| {
        let length = body.len().to_string();
        let mut expected = Decoded { status, body: body.to_vec(), ..Decoded::default() };
        expected.fields = fields(&[("content-length", length.as_str())]);
        expected.fields.extend(fields(&OWN));
        Case { path, reply, expected }
    };
    let without_length = |mut case: Case| {
        case.expected.fields.retain(|(name, _)| name != "content-length");
        case
    };
    let streamed = |case: Case| {
        let mut case = without_length(case);
        case.expected.trailers = fields(&[("checksum", "abc")]);
        case
    };
    let large = large();
    let part = &large[10..90_000];
    vec![
        case("/empty", 200, b"", |_| owned(Reply::new(200))),
        case("/bytes", 200, SMALL, |_| owned(Reply::new(200).body(Body::Bytes(SMALL.to_vec())))),
        case("/bytes-large", 203, &large, |_| owned(Reply::new(203).body(Body::Bytes(self::large())))),
        case("/shared", 404, SMALL, |_| owned(Reply::new(404).body(Body::Shared(SMALL.into())))),
        case("/shared-large", 200, &large, |_| {
            owned(Reply::new(200).body(Body::Shared(self::large().into())))
        }),
        case("/file", 206, part, |folder| owned(Reply::new(206).body(Body::File(file(folder), 10..90_000)))),
        case("/segments", 200, b"onetwo", |_| {
            let two = Segment::Shared(Arc::from(&b"..two"[..]), 2);
            let empty = Segment::Bytes(Vec::new());
            owned(Reply::new(200).body(Body::Segments(vec![Segment::Bytes(b"one".to_vec()), empty, two])))
        }),
        case("/prepared", 200, SMALL, |_| {
            Reply::prepared(Arc::new(Prepared::memory(200, own_fields(), SMALL)))
        }),
        case("/prepared-large", 410, &large, |_| {
            Reply::prepared(Arc::new(Prepared::memory(410, own_fields(), &self::large())))
        }),
        case("/prepared-file", 200, part, |folder| {
            Reply::prepared(Arc::new(Prepared::file(200, own_fields(), file(folder), 10..90_000)))
        }),
        case("/prepared-more", 200, SMALL, |_| {
            owned(Reply::prepared(Arc::new(Prepared::memory(200, Fields::new(), SMALL))))
        }),
        without_length(case("/prepared-304", 304, b"", |_| {
            Reply::prepared(Arc::new(Prepared::memory(304, own_fields(), b"")))
        })),
        without_length(case("/no-content", 204, b"", |_| owned(Reply::new(204)))),
        without_length(case("/not-modified", 304, b"", |_| {
            owned(Reply::new(304).body(Body::Bytes(b"is not sent".to_vec())))
        })),
        case("/upgrade-required", 426, SMALL, |_| {
            owned(Reply::new(426).with("Upgrade", "h3").body(Body::Bytes(SMALL.to_vec())))
        }),
        case("/interim", 200, SMALL, |_| owned(Reply::new(200).body(Body::Bytes(SMALL.to_vec())))),
        streamed(case("/stream", 200, b"first, second", |_| {
            owned(Reply::new(200).body(stream(&[b"first, ", b"", b"second"])))
        })),
        streamed(case("/stream-empty", 200, b"", |_| owned(Reply::new(200).body(stream(&[]))))),
        streamed(case("/resident", 200, b"by a resident", |_| Reply::new(500))),
        case("/resident-length", 200, SMALL, |_| Reply::new(500)),
    ]
}

/// Responds with the case of the path.
struct Table(Arc<Folder>);

impl Mount for Table {
    fn open(&self, _: HandlerContext, worker: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        worker.resident(|_| Responder);
        Box::new(Self(Arc::clone(&self.0)))
    }
}

impl Handler for Table {
    fn call(&mut self, request: &Request<'_>, exchange: Exchange) -> Outcome {
        let cases = cases();
        let found = cases.iter().find(|case| case.path.as_bytes() == request.path());
        let Some(case) = found else { return Outcome::Now(Reply::error(404)) };
        if case.path.starts_with("/resident") {
            return Outcome::Takeover(Takeover::new(case.path == "/resident"));
        }
        let reply = (case.reply)(&self.0);
        if case.path != "/interim" {
            return Outcome::Now(reply);
        }
        let mut hint = Fields::new();
        hint.push("Link", b"</a.css>").expect("well-formed");
        exchange.interim(103, hint);
        exchange.answer(reply);
        Outcome::Later
    }
}

/// A resident that responds in pieces, or with a length.
struct Responder;

impl Resident for Responder {
    fn enter(&mut self, slot: &mut Slot<'_>, asked: Asked, start: Box<dyn Any + Send>) {
        let open = *start.downcast::<bool>().expect("what the handler has put there");
        slot.count_response(200);
        if open && !asked.head_only {
            slot.put_head(asked.framing, 200, &own_fields(), ContentLength::Open);
            for piece in [&b"by a "[..], b"", b"resident"] {
                asked.framing.put_data(piece, slot.out());
            }
            slot.finish(asked.framing, &Pieces(VecDeque::new()).trailers());
        } else if open {
            slot.put_head(asked.framing, 200, &own_fields(), ContentLength::Open);
        } else {
            slot.put_head(asked.framing, 200, &own_fields(), ContentLength::Known(SMALL.len() as u64));
            if !asked.head_only {
                slot.push_shared(SMALL.into(), 0);
            }
        }
        slot.end_after(CloseReason::Answered);
    }

    fn sent(&mut self, slot: &mut Slot<'_>) {
        slot.end();
    }

    fn overdue(&mut self, slot: &mut Slot<'_>) {
        slot.close(CloseReason::IdleTime);
    }
}

fn every_response_is_the_same_by_every_protocol(stand: Stand) {
    let folder = Arc::new(Folder::new().with("large", large()));
    let rig = stand.serve(|server| server.mount("/", Table(Arc::clone(&folder))));
    for Case { path, mut expected, .. } in cases() {
        expected.fields.push(("date".into(), "a date".into()));
        expected.fields.sort();
        let mut interim = expected.clone();
        if path == "/interim" {
            interim.interim.push((103, fields(&[("link", "</a.css>")])));
        }
        let plain = Decoded { trailers: Vec::new(), ..expected.clone() };
        let bare = Decoded { body: Vec::new(), ..plain.clone() };
        let bare_interim = Decoded { interim: interim.interim.clone(), ..bare.clone() };

        assert_eq!(by_http2(&rig, "GET", path), interim, "GET {path} by HTTP/2");
        assert_eq!(by_http1(&rig, "GET", path, "HTTP/1.1"), interim, "GET {path} by HTTP/1.1");
        assert_eq!(by_http1(&rig, "GET", path, "HTTP/1.0"), plain, "GET {path} by HTTP/1.0");
        assert_eq!(by_http2(&rig, "HEAD", path), bare_interim, "HEAD {path} by HTTP/2");
        assert_eq!(by_http1(&rig, "HEAD", path, "HTTP/1.1"), bare_interim, "HEAD {path} by HTTP/1.1");
        assert_eq!(by_http1(&rig, "HEAD", path, "HTTP/1.0"), bare, "HEAD {path} by HTTP/1.0");
    }
    rig.end();
}

/// Normalizes a field for comparison. Returns `None` for a connection field.
fn compared(name: &str, value: &str) -> Option<Field> {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "connection" | "transfer-encoding" | "upgrade" => None,
        "date" => {
            assert!(value.len() == 29 && value.ends_with(" GMT"), "{value}");
            Some((name, "a date".into()))
        }
        _ => Some((name, value.to_owned())),
    }
}

// ---- HTTP/1 ----

/// Sends a request that closes its connection, and decodes everything up to the close.
fn by_http1(rig: &Rig, method: &str, path: &str, version: &str) -> Decoded {
    let mut client = rig.client();
    client.send(format!("{method} {path} {version}\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    let (bytes, _) = client.rest();
    let mut rest = bytes.as_slice();
    let mut decoded = Decoded::default();
    let framing = loop {
        let (status, fields, framing) = take_head(&mut rest);
        if status >= 200 {
            (decoded.status, decoded.fields) = (status, fields);
            decoded.fields.sort();
            break framing;
        }
        decoded.interim.push((status, fields));
    };
    let bodiless = method == "HEAD" || [204, 304].contains(&decoded.status);
    match framing {
        _ if bodiless => {}
        Framing::Length(len) => decoded.body = take(&mut rest, len).to_vec(),
        Framing::Chunked => (decoded.body, decoded.trailers) = take_chunks(&mut rest),
        Framing::Close => decoded.body = std::mem::take(&mut rest).to_vec(),
    }
    assert_eq!(rest, b"", "{method} {path}: bytes behind the response");
    decoded
}

enum Framing {
    Length(usize),
    Chunked,
    Close,
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (front, behind) = rest.split_at_checked(count).expect("as many bytes as announced");
    *rest = behind;
    front
}

fn take_line<'a>(rest: &mut &'a [u8]) -> &'a str {
    let end = rest.windows(2).position(|pair| pair == b"\r\n").expect("a line");
    let line = take(rest, end + 2);
    std::str::from_utf8(&line[..end]).expect("ASCII")
}

fn take_fields<'a>(rest: &mut &'a [u8]) -> Vec<(&'a str, &'a str)> {
    let mut pairs = Vec::new();
    loop {
        match take_line(rest) {
            "" => return pairs,
            line => pairs.push(line.split_once(": ").expect("a field")),
        }
    }
}

fn take_head(rest: &mut &[u8]) -> (u16, Vec<Field>, Framing) {
    let line = take_line(rest);
    let status = line.strip_prefix("HTTP/1.1 ").and_then(|line| line.get(..3)).expect("a status line");
    let mut framing = Framing::Close;
    let pairs = take_fields(rest);
    for (name, value) in &pairs {
        match name.to_ascii_lowercase().as_str() {
            "content-length" => framing = Framing::Length(value.parse().expect("a number")),
            "transfer-encoding" => {
                assert_eq!(*value, "chunked");
                framing = Framing::Chunked;
            }
            _ => {}
        }
    }
    let fields = pairs.iter().filter_map(|(name, value)| compared(name, value)).collect();
    (status.parse().expect("a number"), fields, framing)
}

fn take_chunks(rest: &mut &[u8]) -> (Vec<u8>, Vec<Field>) {
    let mut body = Vec::new();
    loop {
        let size = usize::from_str_radix(take_line(rest), 16).expect("a size");
        if size == 0 {
            let pairs = take_fields(rest);
            return (body, pairs.iter().filter_map(|(name, value)| compared(name, value)).collect());
        }
        body.extend_from_slice(take(rest, size));
        assert_eq!(take_line(rest), "", "behind a chunk");
    }
}

// ---- HTTP/2 ----

/// The bytes between the `h2` crate's client and a socket.
#[derive(Clone, Default)]
struct Wire(Rc<RefCell<Ends>>);

#[derive(Default)]
struct Ends {
    arrived: Vec<u8>,
    leaving: Vec<u8>,
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let arrived = &mut self.0.borrow_mut().arrived;
        if arrived.is_empty() {
            return Poll::Pending;
        }
        let count = arrived.len().min(into.remaining());
        into.put_slice(&arrived[..count]);
        arrived.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.0.borrow_mut().leaving.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Polls until there is a result. Between polls bytes are exchanged with the socket.
fn drive<T>(client: &mut Client, wire: &Wire, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = poll(&mut context) {
            return value;
        }
        let leaving = std::mem::take(&mut wire.0.borrow_mut().leaving);
        if leaving.is_empty() {
            let bytes = client.read_some(64 * 1024);
            assert!(!bytes.is_empty(), "the connection has ended before the response");
            wire.0.borrow_mut().arrived.extend(bytes);
        } else {
            client.send(leaving);
        }
    }
}

fn by_http2(rig: &Rig, method: &str, path: &str) -> Decoded {
    let (mut client, wire) = (rig.client(), Wire::default());
    let mut handshake = Box::pin(h2::client::handshake(wire.clone()));
    let (mut requests, mut connection) =
        drive(&mut client, &wire, |context| handshake.as_mut().poll(context)).expect("a handshake");
    let request = http::Request::builder().method(method).uri(format!("http://localhost{path}"));
    let request = request.body(()).expect("a request");
    let (mut response, _) = requests.send_request(request, true).expect("a stream");
    let mut decoded = Decoded::default();
    let mut body = None;
    drive(&mut client, &wire, |context| {
        let _runs = Pin::new(&mut connection).poll(context);
        while let Poll::Ready(Some(interim)) = response.poll_informational(context) {
            let interim = interim.expect("an interim response");
            decoded.interim.push((interim.status().as_u16(), of_map(interim.headers())));
        }
        if body.is_none() {
            let Poll::Ready(whole) = Pin::new(&mut response).poll(context) else { return Poll::Pending };
            let (parts, content) = whole.expect("a response").into_parts();
            decoded.status = parts.status.as_u16();
            decoded.fields = of_map(&parts.headers);
            decoded.fields.sort();
            body = Some(content);
        }
        let content = body.as_mut().expect("set above");
        while let Poll::Ready(piece) = content.poll_data(context) {
            let Some(piece) = piece.transpose().expect("data") else {
                return content.poll_trailers(context).map(|trailers| {
                    decoded.trailers = trailers.expect("an end").as_ref().map(of_map).unwrap_or_default();
                });
            };
            decoded.body.extend_from_slice(&piece);
            content.flow_control().release_capacity(piece.len()).expect("as much as came");
        }
        Poll::Pending
    });
    decoded
}

/// Panics if a field of an HTTP/1 connection is among them.
fn of_map(map: &http::HeaderMap) -> Vec<Field> {
    let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        compared(name.as_str(), value.to_str().expect("ASCII")).expect("no field of a connection")
    };
    map.iter().map(field).collect()
}
