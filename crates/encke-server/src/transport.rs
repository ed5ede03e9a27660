//! The layer between a socket and a protocol: received bytes become plaintext, responses become sends.
//!
//! ```text
//!   socket bytes ──► Transport::open ──► plaintext ──► protocol
//!   socket bytes ◄── Transport::seal ◄── segments  ◄── protocol
//! ```
//! Only the transport decides whether the kernel may send a file directly. A plaintext transport lets it; an encrypting
//! transport reads the file piece by piece. The transport does not know requests and replies.

use encke_io::{OpError, Segment};
use encke_session::tls::{Scratch, Tls};

/// The encryption of a connection. A variant with state boxes it, because this word is part of every slot.
#[derive(Default)]
pub(crate) enum MaybeTls {
    /// Plaintext.
    #[default]
    Plain,
    /// TLS records.
    Tls(Box<Tls>),
}

impl MaybeTls {
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Converts output, in place, into the segments of one send. [`MaybeTls::more`] returns the rest after that send.
    ///
    /// # Errors
    /// A file to be sent has become shorter.
    #[inline]
    pub(crate) fn seal(
        &mut self,
        segments: &mut Vec<Segment>,
        last: bool,
        scratch: &mut Scratch,
    ) -> Result<(), OpError> {
        match self {
            Self::Plain => Ok(()),
            Self::Tls(tls) => {
                tls.push(segments);
                if last {
                    tls.finish();
                }
                fill(tls, segments, scratch)
            }
        }
    }

    /// Bytes of plaintext that wait for the send in flight, and are sealed after it.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        match self {
            Self::Plain => 0,
            Self::Tls(tls) => tls.waiting_bytes(),
        }
    }

    /// Returns the next send: the rest of sealed output, and the transport's own records. `None`: there is nothing to send.
    #[inline]
    pub(crate) fn more(&mut self, scratch: &mut Scratch) -> Option<Result<Vec<Segment>, OpError>> {
        match self {
            Self::Plain => None,
            Self::Tls(tls) if tls.has_output() => {
                let mut segments = Vec::new();
                Some(fill(tls, &mut segments, scratch).map(|()| segments))
            }
            Self::Tls(_) => None,
        }
    }
}

#[inline(never)]
fn fill(tls: &mut Tls, segments: &mut Vec<Segment>, scratch: &mut Scratch) -> Result<(), OpError> {
    let mut sealed = Vec::new();
    tls.seal(&mut sealed, scratch)?;
    segments.clear();
    segments.push(Segment::Bytes(sealed));
    Ok(())
}
