//! A stream, which takes the place of a socket for the connection above it. Response heads arrive as fields (`framing.rs`),
//! sent bytes become data, and received data becomes bytes in the form of HTTP/1.
//!
//! ```text
//! put_head ─► the engine has it
//! send(segments) ─► push_out ─┬─ Done    all of it is the engine's
//!                             ├─ Waits   for its window, or for the socket: the bell rings
//!                             ├─ Crowded for its connection to hold less: nothing is read meanwhile
//!                             ├─ File    for a piece that is not in the kernel's memory: a job of the pool
//!                             └─ Gone    the stream has ended
//! pull_in ─► a piece of the body │ its end │ nothing yet: the bell rings │ the stream has ended
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use encke_io::files::OpenFile;
use encke_io::{Segment, Token};
use encke_session::http2::{Account, BYTES_LEAST, Charge, WokenStreams};
use encke_wire::http1;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Response};

use super::head::BodyForm;
use crate::framing::ContentLength;
use crate::reply::BLOCK_CONTENT_MAX;

/// A buffer of at most this size in bytes is copied and returned to its pool. A larger one is passed to the engine.
const COPY_BYTES_MAX: usize = 4 * 1024;
/// Maximum size of one file read: the engine's buffer for one stream, in bytes.
const WINDOW_BYTES: u64 = 32 * 1024;

/// Bytes inside the engine.
pub(super) enum StreamData {
    /// Bytes of this response alone, charged to its connection.
    Own(Bytes, Charge),
    /// Bytes that several connections may send, each charged with its share.
    Shared(Arc<[u8]>, Range<usize>, Charge),
}

impl Buf for StreamData {
    fn remaining(&self) -> usize {
        match self {
            Self::Own(bytes, _) => bytes.len(),
            Self::Shared(_, range, _) => range.len(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::Own(bytes, _) => bytes,
            Self::Shared(bytes, range, _) => &bytes[range.clone()],
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Self::Own(bytes, _) => bytes.advance(count),
            Self::Shared(_, range, _) => range.start += count,
        }
    }
}

impl StreamData {
    fn split_to(&mut self, count: usize) -> Self {
        match self {
            Self::Own(bytes, charge) => {
                let front = bytes.split_to(count);
                // All parts share one buffer, which is held until the last one is sent.
                let part = if bytes.is_empty() { usize::MAX } else { 0 };
                Self::Own(front, charge.split_to(part))
            }
            Self::Shared(bytes, range, charge) => {
                let front = range.start..range.start + count;
                range.start = front.end;
                // The bytes are held until the last piece is sent, and so is the charge.
                let part = if range.start == range.end { usize::MAX } else { 0 };
                Self::Shared(Arc::clone(bytes), front, charge.split_to(part))
            }
        }
    }
}

/// Content that waits to be sent.
enum PendingSend {
    Data(StreamData),
    File { file: Arc<OpenFile>, offset: u64, len: u64 },
}

impl PendingSend {
    fn len(&self) -> u64 {
        match self {
            Self::Data(data) => data.remaining() as u64,
            Self::File { len, .. } => *len,
        }
    }
}

/// A piece of a file that the thread pool is to read.
pub(super) struct FilePiece {
    pub(super) file: Arc<OpenFile>,
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

/// The result of [`Http2Stream::push_out`]; see the head of this file.
pub(super) enum Pushed {
    Done,
    Waits,
    Crowded,
    File(FilePiece),
    /// The file is shorter than before.
    Shrunk,
    Gone,
}

/// The result of [`Http2Stream::pull_in`].
pub(super) enum PulledIn {
    Piece,
    End,
    Nothing,
    Gone,
}

/// The outcome of a read on the thread pool, for its stream.
pub(super) enum FileRead {
    Taken,
    /// The response cannot be completed.
    Failed,
    /// The stream waits for no read.
    Unexpected,
}

/// One HTTP/2 stream.
pub(super) struct Http2Stream {
    /// The connection above, for which this stream is the socket.
    pub(super) token: Token,
    /// Index of the stream's engine.
    pub(super) engine: u32,
    /// The protocol's stream id.
    pub(super) id: u32,
    /// Urgency of the response: 0 is the most urgent (RFC 9218 §4.1).
    pub(super) urgency: u8,
    /// A send of the connection above is incomplete.
    pub(super) sending: bool,
    /// Used segments, to be returned to their pool.
    pub(super) spent: Vec<Segment>,
    respond: Option<SendResponse<StreamData>>,
    answer: Option<SendStream<StreamData>>,
    /// The request's method is HEAD.
    head_only: bool,
    /// Bytes of the content that the engine has not received; `None` if the length is unknown.
    content_left: Option<u64>,
    /// Trailers after the content.
    trailers: Option<Box<HeaderMap>>,
    /// The response is complete.
    ended: bool,
    waiting: VecDeque<PendingSend>,
    /// The charge for a read in progress on the thread pool.
    reading_file: Option<Charge>,
    account: Rc<Account>,
    /// A charge for a small response, from the request until the call of its handler. The next request of a batch arrives
    /// before this response exists.
    expected: Option<Charge>,
    /// A charge for bytes that wait for the end of the present send.
    behind: Option<Charge>,
    _open: Charge,
    body: Option<RecvStream>,
    form: BodyForm,
    waker: Option<Waker>,
}

impl Http2Stream {
    pub(super) fn new(
        token: Token,
        engine: u32,
        respond: SendResponse<StreamData>,
        body: Option<RecvStream>,
        head_only: bool,
        urgency: u8,
        (account, open): (&Rc<Account>, Charge),
    ) -> Self {
        Self {
            token,
            engine,
            id: respond.stream_id().as_u32(),
            urgency,
            sending: false,
            spent: Vec::new(),
            respond: Some(respond),
            answer: None,
            head_only,
            content_left: None,
            trailers: None,
            ended: false,
            waiting: VecDeque::new(),
            reading_file: None,
            account: Rc::clone(account),
            expected: Some(account.charge(BLOCK_CONTENT_MAX)),
            behind: None,
            _open: open,
            body,
            form: BodyForm::None,
            waker: None,
        }
    }

    /// Sets the form in which the body is delivered.
    pub(super) fn set_form(&mut self, form: BodyForm) {
        self.form = form;
    }

    /// Passes an interim response to the engine. One that comes too late is dropped: it is a hint.
    pub(super) fn put_interim(&mut self, response: Response<()>) {
        if let Some(respond) = &mut self.respond {
            let _late = respond.send_informational(response);
        }
    }

    /// Passes the head of the response to the engine.
    pub(super) fn put_head(&mut self, response: Response<()>, content: ContentLength) {
        let Some(mut respond) = self.respond.take() else {
            debug_assert!(false, "a stream has one response");
            return;
        };
        self.content_left = match content {
            ContentLength::Known(len) => Some(len),
            ContentLength::Absent | ContentLength::Open | ContentLength::Upgrade => None,
        };
        self.ended = self.head_only || matches!(content, ContentLength::Absent | ContentLength::Known(0));
        // A stream that was reset meanwhile takes no response; the next poll of the stream reports this.
        self.answer = respond.send_response(response, self.ended).ok();
    }

    /// Sets the trailers of the response.
    pub(super) fn put_trailers(&mut self, trailers: HeaderMap) {
        self.trailers = Some(Box::new(trailers));
    }

    /// Whether the stream carries a WebSocket.
    pub(super) fn is_tunnel(&self) -> bool {
        self.form == BodyForm::Tunnel
    }

    /// Returns the stream's waker.
    pub(super) fn waker(&mut self, place: u32, rung: &Arc<WokenStreams>) -> Waker {
        waker(&mut self.waker, place, rung).clone()
    }

    /// Ends the charge for an expected response: from now on its actual bytes are charged.
    pub(super) fn expect_no_more(&mut self) {
        self.expected = None;
    }

    /// Charges the bytes that wait for the end of the present send.
    pub(super) fn waits(&mut self, bytes: usize) {
        match &mut self.behind {
            Some(charge) => charge.set(bytes),
            None => self.behind = Some(self.account.charge(bytes)),
        }
    }

    /// Charges a buffer with its memory, not its length: one that grew holds up to twice as much.
    fn own(&self, bytes: Vec<u8>) -> PendingSend {
        let charge = self.account.charge(bytes.capacity());
        PendingSend::Data(StreamData::Own(bytes.into(), charge))
    }

    /// Takes the segments of a send.
    pub(super) fn send(&mut self, mut segments: Vec<Segment>) {
        self.sending = true;
        self.behind = None;
        for segment in segments.drain(..) {
            match segment {
                Segment::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => {
                    if !bytes.is_empty() {
                        let copy = self.own(bytes.clone());
                        self.waiting.push_back(copy);
                    }
                    self.spent.push(Segment::Bytes(bytes));
                }
                Segment::Bytes(bytes) => {
                    let bytes = self.own(bytes);
                    self.waiting.push_back(bytes);
                }
                Segment::Shared(bytes, start) => {
                    let range = start..bytes.len();
                    if !range.is_empty() {
                        // A poll response may belong to this stream alone; a delivery is shared by many streams.
                        let charge = self.account.charge(range.len() / Arc::strong_count(&bytes));
                        self.waiting.push_back(PendingSend::Data(StreamData::Shared(bytes, range, charge)));
                    }
                }
                Segment::File { file, offset, len } => {
                    self.waiting.push_back(PendingSend::File { file, offset, len });
                }
            }
        }
        if self.ended {
            // HEAD, 204, 304: no content follows.
            self.waiting.clear();
        }
    }

    /// Passes waiting content to the engine, as much as the engine takes.
    pub(super) fn push_out(&mut self, place: u32, rung: &Arc<WokenStreams>) -> Pushed {
        while let Some(front) = self.waiting.front_mut() {
            let Some(answer) = &mut self.answer else { return Pushed::Gone };
            let wanted = match front {
                PendingSend::Data(data) => data.remaining(),
                PendingSend::File { .. } if self.reading_file.is_some() => return Pushed::Waits,
                // At most as many bytes are read as the connection may hold. Without room no capacity is reserved: the
                // reservation would wake other streams of the connection, and their reservations would wake this one,
                // endlessly.
                PendingSend::File { len, .. } => {
                    let wanted = WINDOW_BYTES.min(*len) as usize;
                    match self.account.room() {
                        room if room < BYTES_LEAST.min(wanted) => return Pushed::Crowded,
                        room => room.min(wanted),
                    }
                }
            };
            answer.reserve_capacity(wanted);
            let capacity = answer.capacity().min(wanted);
            if capacity == 0 {
                let bell = waker(&mut self.waker, place, rung);
                match answer.poll_capacity(&mut Context::from_waker(bell)) {
                    Poll::Ready(Some(Ok(_))) => continue,
                    Poll::Ready(Some(Err(_)) | None) => return Pushed::Gone,
                    Poll::Pending => return Pushed::Waits,
                }
            }
            let data = match front {
                PendingSend::Data(data) => data,
                PendingSend::File { file, offset, .. } => {
                    let bytes = capacity;
                    let mut piece = vec![0; bytes];
                    match file.read_cached_at(*offset, &mut piece) {
                        Some(read) if read == bytes => {
                            self.put_piece(piece);
                            continue;
                        }
                        Some(_) => return Pushed::Shrunk,
                        None => {
                            self.reading_file = Some(self.account.charge(bytes));
                            let (file, offset) = (Arc::clone(file), *offset);
                            return Pushed::File(FilePiece { file, offset, bytes });
                        }
                    }
                }
            };
            let piece = data.split_to(capacity);
            if capacity == wanted {
                self.waiting.pop_front();
            }
            if let Some(left) = &mut self.content_left {
                *left = left.saturating_sub(capacity as u64);
                self.ended = *left == 0;
            }
            if answer.send_data(piece, self.ended).is_err() {
                return Pushed::Gone;
            }
        }
        self.sending = false;
        Pushed::Done
    }

    /// Adds a piece of the file that is to be sent next.
    fn put_piece(&mut self, piece: Vec<u8>) {
        let Some(PendingSend::File { offset, len, .. }) = self.waiting.front_mut() else { return };
        *offset += piece.len() as u64;
        *len -= piece.len() as u64;
        if *len == 0 {
            self.waiting.pop_front();
        }
        let piece = self.own(piece);
        self.waiting.push_front(piece);
    }

    /// Takes the result of a read on the thread pool. `None`: the read failed, or the file is shorter.
    pub(super) fn file_read(&mut self, piece: Option<Vec<u8>>) -> FileRead {
        if self.reading_file.take().is_none() {
            return FileRead::Unexpected;
        }
        let Some(piece) = piece else { return FileRead::Failed };
        self.put_piece(piece);
        FileRead::Taken
    }

    /// Bytes that the engine has not taken.
    pub(super) fn unsent(&self) -> u64 {
        self.waiting.iter().map(PendingSend::len).sum()
    }

    /// Whether the peer reset the stream, or the stream's connection has ended.
    pub(super) fn is_reset(&mut self, bell: &Waker) -> bool {
        let mut context = Context::from_waker(bell);
        let polled = match (&mut self.respond, &mut self.answer) {
            (Some(respond), _) => respond.poll_reset(&mut context),
            (None, Some(answer)) => answer.poll_reset(&mut context),
            (None, None) => return true,
        };
        // A complete response ends the stream without a reset.
        polled.is_ready() && !self.ended
    }

    /// Appends the next piece of the request's body to `into`, in the form of HTTP/1.
    pub(super) fn pull_in(&mut self, bell: &Waker, into: &mut Vec<u8>) -> PulledIn {
        let Some(body) = &mut self.body else { return PulledIn::Nothing };
        let mut context = Context::from_waker(bell);
        loop {
            match body.poll_data(&mut context) {
                Poll::Pending => return PulledIn::Nothing,
                Poll::Ready(None) => {
                    self.body = None;
                    if self.form == BodyForm::Chunked {
                        into.extend_from_slice(http1::LAST_CHUNK);
                    }
                    return PulledIn::End;
                }
                Poll::Ready(Some(Err(_))) => {
                    self.body = None;
                    return PulledIn::Gone;
                }
                Poll::Ready(Some(Ok(data))) => {
                    // Released capacity reopens the window, which thus opens only as the handler reads.
                    let _ended = body.flow_control().release_capacity(data.len());
                    if data.is_empty() {
                        continue;
                    }
                    if self.form == BodyForm::Chunked {
                        http1::put_chunk_head(into, data.len() as u64);
                        into.extend_from_slice(&data);
                        into.extend_from_slice(b"\r\n");
                    } else {
                        into.extend_from_slice(&data);
                    }
                    return PulledIn::Piece;
                }
            }
        }
    }

    /// Whether the request's body is incomplete.
    pub(super) const fn has_body_left(&self) -> bool {
        self.body.is_some()
    }

    /// Ends the response unless its length did so. Returns false if content is missing.
    pub(super) fn finish(&mut self) -> bool {
        if self.ended {
            return true;
        }
        let Some(answer) = &mut self.answer else { return false };
        if !self.waiting.is_empty() || self.content_left.is_some() {
            return false;
        }
        self.ended = match self.trailers.take() {
            Some(trailers) => answer.send_trailers(*trailers).is_ok(),
            None => answer.send_data(StreamData::Own(Bytes::new(), self.account.charge(0)), true).is_ok(),
        };
        self.ended
    }

    /// Closes the stream after the connection above it. `whole`: end the response with the bytes sent so far. Returns true if
    /// the stream was reset because its response is incomplete.
    pub(super) fn close(mut self, whole: bool, reason: Reason) -> bool {
        if self.ended || whole && self.finish() {
            return false;
        }
        match (&mut self.answer, &mut self.respond) {
            (Some(answer), _) => answer.send_reset(reason),
            (None, Some(respond)) => respond.send_reset(reason),
            (None, None) => {}
        }
        true
    }
}

/// Returns a stream's waker. It is created at the first wait: most streams have their response before.
fn waker<'a>(made: &'a mut Option<Waker>, place: u32, rung: &Arc<WokenStreams>) -> &'a Waker {
    made.get_or_insert_with(|| rung.waker(place))
}
