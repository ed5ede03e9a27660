//! The two directions of a connection as the `h2` crate needs them: a reader and a writer in memory. Neither blocks. Reading
//! beyond the received bytes and writing beyond the limit of output return `Pending`; the caller polls `h2` again after a
//! change. A server's output is also charged to an account.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::budget::{Account, Charge};

/// Limit of output that waits for the socket; `h2` writes more once this was taken. As much as a batch of HTTP/1 responses.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// The least size of an output buffer in bytes: a response's head and short content fit without growth.
const OUTPUT_BYTES_LEAST: usize = 512;
/// A DATA frame of the usual size with its header, by which output may exceed [`OUTPUT_BYTES_MAX`].
const FRAME_BYTES: usize = 16 * 1024 + 9;

/// A handle to the buffers of a connection. The `h2` crate and the owner of the connection hold one each.
#[derive(Clone)]
pub(super) struct Pipe(Rc<RefCell<Sides>>);

/// Both directions: input from the peer for `h2`, and output of `h2` for the peer.
struct Sides {
    input: Vec<u8>,
    /// Bytes of `input` that were read.
    read: usize,
    /// The peer closed its side: no more input follows.
    ended: bool,
    output: Vec<u8>,
    charged: Option<Charged>,
}

/// A charge for the memory of the output, and the account that it is charged to.
struct Charged {
    account: Rc<Account>,
    charge: Charge,
}

impl Sides {
    /// Grows the output buffer by doubling, as `Vec` does, but not far beyond the largest output: allocated memory is charged.
    fn reserve(&mut self, bytes: usize) {
        let needed = self.output.len() + bytes;
        if needed > self.output.capacity() {
            let doubled =
                (2 * self.output.capacity()).clamp(OUTPUT_BYTES_LEAST, OUTPUT_BYTES_MAX + FRAME_BYTES);
            self.output.reserve_exact(doubled.max(needed) - self.output.len());
            self.charge();
        }
    }

    /// Charges the capacity of the output buffer.
    fn charge(&mut self) {
        if let Some(charged) = &mut self.charged {
            charged.charge.set(self.output.capacity());
        }
    }

    fn has_room(&self) -> bool {
        let may_hold_more = || self.charged.as_ref().is_none_or(|charged| charged.account.room() > 0);
        self.output.is_empty() || self.output.len() < OUTPUT_BYTES_MAX && may_hold_more()
    }
}

impl Pipe {
    /// A pipe whose output has a fixed limit.
    pub(super) fn new() -> Self {
        Self::with(None)
    }

    /// A pipe whose output is also limited by an account.
    pub(super) fn charged(account: &Rc<Account>) -> Self {
        Self::with(Some(Charged { account: Rc::clone(account), charge: account.charge(0) }))
    }

    fn with(charged: Option<Charged>) -> Self {
        let (input, output) = (Vec::new(), Vec::new());
        Self(Rc::new(RefCell::new(Sides { input, read: 0, ended: false, output, charged })))
    }

    /// Takes received bytes.
    pub(super) fn feed(&self, bytes: &[u8]) {
        self.0.borrow_mut().input.extend_from_slice(bytes);
    }

    /// Ends the input.
    pub(super) fn end_input(&self) {
        self.0.borrow_mut().ended = true;
    }

    /// Appends bytes to the output, in place of an `h2` connection that has ended.
    pub(super) fn say(&self, bytes: &[u8]) {
        self.0.borrow_mut().output.extend_from_slice(bytes);
    }

    /// Whether all input was read and output is below its limit.
    pub(super) fn is_hungry(&self) -> bool {
        let sides = self.0.borrow();
        sides.input.is_empty() && sides.output.len() < OUTPUT_BYTES_MAX
    }

    /// Takes the pending output.
    pub(super) fn take_output(&self) -> Vec<u8> {
        let mut sides = self.0.borrow_mut();
        let output = std::mem::take(&mut sides.output);
        sides.charge();
        output
    }

    /// Moves output to the end of `out`. If `out` is empty, the two buffers are swapped, so that the memory of `out` is reused.
    pub(super) fn move_output(&self, out: &mut Vec<u8>) {
        let mut sides = self.0.borrow_mut();
        if out.is_empty() {
            std::mem::swap(out, &mut sides.output);
        } else {
            out.append(&mut sides.output);
        }
        sides.charge();
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::super::budget::Budget;
    use super::*;

    const PIECE: [u8; 16 * 1024] = [7; 16 * 1024];

    /// Writes pieces until there is no room. Returns their number.
    fn fill(pipe: &mut Pipe) -> usize {
        let mut context = Context::from_waker(Waker::noop());
        let mut taken = 0;
        while let Poll::Ready(written) = Pin::new(&mut *pipe).poll_write(&mut context, &PIECE) {
            assert_eq!(written.expect("memory"), PIECE.len());
            taken += 1;
        }
        taken
    }

    #[test]
    fn output_has_a_fixed_limit_and_a_charged_one_its_share() {
        let mut fixed = Pipe::new();
        assert_eq!(fill(&mut fixed), OUTPUT_BYTES_MAX / PIECE.len());

        let budget = Budget::new(1, &std::sync::Arc::default());
        budget.set_max(1024 * 1024);
        let mut charged = Pipe::charged(&Account::new(&budget));
        assert!(fill(&mut charged) < OUTPUT_BYTES_MAX / PIECE.len());
        assert!(budget.used() > 0);
        assert!(!charged.take_output().is_empty());
        assert_eq!(budget.used(), 0, "whoever takes the output has it");

        budget.set_max(0);
        assert_eq!(fill(&mut charged), 1, "an empty output takes one piece however little room there is");
    }

    #[test]
    fn moved_output_follows_what_is_there_and_leaves_its_memory() {
        let mut pipe = Pipe::new();
        fill(&mut pipe);
        let mut out = b"before".to_vec();
        pipe.move_output(&mut out);
        assert_eq!(out.len(), b"before".len() + OUTPUT_BYTES_MAX);
        assert!(out.starts_with(b"before") && pipe.take_output().is_empty());

        pipe.say(b"after");
        out.clear();
        let room = out.capacity();
        pipe.move_output(&mut out);
        assert_eq!(out, b"after");
        assert_eq!(pipe.take_output().capacity(), room);
    }
}
