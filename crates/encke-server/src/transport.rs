//! Between a socket and a protocol: what arrives becomes plaintext, what is answered becomes sends.
//!
//! ```text
//!   socket bytes ──► Transport::open ──► plaintext ──► protocol
//!   socket bytes ◄── Transport::seal ◄── segments  ◄── protocol
//! ```
//! Only the transport decides whether a file's segment may go to the kernel as it is: in the clear it may; a
//! transport that encrypts reads the file as it is sent. It knows no request and no reply.

use encke_io::{Fault, Segment};
use encke_session::tls::{Scratch, Tls};

/// How bytes travel on a connection. A kind that keeps state boxes it: the word here is part of every slot.
#[derive(Default)]
pub(crate) enum Transport {
    /// As they are.
    #[default]
    Plain,
    /// By TLS.
    Tls(Box<Tls>),
}

impl Transport {
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Turns output, in place, into what is sent now. What does not fit into one send comes by [`Transport::more`], once
    /// that is out.
    ///
    /// # Errors
    /// A file that is to be sent has become shorter.
    #[inline]
    pub(crate) fn seal(
        &mut self,
        segments: &mut Vec<Segment>,
        last: bool,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
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

    /// What is left to send of what was sealed before, and what the transport itself has to say; `None`: nothing.
    #[inline]
    pub(crate) fn more(&mut self, scratch: &mut Scratch) -> Option<Result<Vec<Segment>, Fault>> {
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
fn fill(tls: &mut Tls, segments: &mut Vec<Segment>, scratch: &mut Scratch) -> Result<(), Fault> {
    let mut sealed = Vec::new();
    tls.seal(&mut sealed, scratch)?;
    segments.clear();
    segments.push(Segment::Bytes(sealed));
    Ok(())
}
