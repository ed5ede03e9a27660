//! The two directions of a connection as the `h2` crate wants them: something to read from and to write to. Nothing
//! here waits: reading what has not arrived, and writing what there is no room for, is `Pending`, and the engine is
//! polled again when that has changed.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::budget::{Account, Charge};

/// Output that waits for the socket; more is taken once this has left. As much as a batch of HTTP/1 answers.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// A DATA frame of the usual size with its header, by which output may exceed [`OUTPUT_BYTES_MAX`].
const FRAME_BYTES: usize = 16 * 1024 + 9;

/// One end of a pipe. The engine and the protocol have one each.
#[derive(Clone)]
pub(super) struct Pipe(Rc<RefCell<Sides>>);

struct Sides {
    input: Vec<u8>,
    /// What of `input` was read.
    read: usize,
    /// No more input comes.
    ended: bool,
    output: Vec<u8>,
    account: Rc<Account>,
    /// … for the memory of `output`.
    charge: Charge,
}

impl Sides {
    /// Allocates as `Vec` does, by doubling, but not far beyond the largest output: what is allocated is held.
    fn reserve(&mut self, bytes: usize) {
        let needed = self.output.len() + bytes;
        if needed > self.output.capacity() {
            let doubled = (2 * self.output.capacity()).min(OUTPUT_BYTES_MAX + FRAME_BYTES);
            self.output.reserve_exact(doubled.max(needed) - self.output.len());
            self.charge.set(self.output.capacity());
        }
    }

    fn has_room(&self) -> bool {
        self.output.is_empty() || self.output.len() < OUTPUT_BYTES_MAX && self.account.room() > 0
    }
}

impl Pipe {
    pub(super) fn new(account: &Rc<Account>) -> Self {
        Self(Rc::new(RefCell::new(Sides {
            input: Vec::new(),
            read: 0,
            ended: false,
            output: Vec::new(),
            account: Rc::clone(account),
            charge: account.charge(0),
        })))
    }

    /// Bytes arrived.
    pub(super) fn feed(&self, bytes: &[u8]) {
        self.0.borrow_mut().input.extend_from_slice(bytes);
    }

    /// No more bytes will arrive.
    pub(super) fn end_input(&self) {
        self.0.borrow_mut().ended = true;
    }

    /// Puts something behind what is to be sent, in place of an engine that has ended.
    pub(super) fn say(&self, bytes: &[u8]) {
        self.0.borrow_mut().output.extend_from_slice(bytes);
    }

    /// Whether everything that arrived was read, and there is room for what comes of more.
    pub(super) fn is_hungry(&self) -> bool {
        let sides = self.0.borrow();
        sides.input.is_empty() && sides.output.len() < OUTPUT_BYTES_MAX
    }

    /// Takes what is to be sent.
    pub(super) fn take_output(&self) -> Vec<u8> {
        let mut sides = self.0.borrow_mut();
        sides.charge.set(0);
        std::mem::take(&mut sides.output)
    }
}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut sides = self.0.borrow_mut();
        let sides = &mut *sides;
        let rest = &sides.input[sides.read..];
        if rest.is_empty() {
            return if sides.ended { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let count = rest.len().min(into.remaining());
        into.put_slice(&rest[..count]);
        sides.read += count;
        if sides.read == sides.input.len() {
            // An idle connection keeps no buffer.
            sides.input = Vec::new();
            sides.read = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut sides = self.0.borrow_mut();
        if !sides.has_room() {
            return Poll::Pending;
        }
        sides.reserve(bytes.len());
        sides.output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut sides = self.0.borrow_mut();
        if !sides.has_room() {
            return Poll::Pending;
        }
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        sides.reserve(bytes);
        for piece in pieces {
            sides.output.extend_from_slice(piece);
        }
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
