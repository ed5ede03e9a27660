//! Between a socket and a protocol: what arrives becomes plaintext, what is answered becomes sends.
//!
//! ```text
//!   socket bytes ──► Transport::receive ──► plaintext slices, in place ──► protocol
//!   socket bytes ◄── Transport::seal   ◄── output segments            ◄── protocol
//! ```
//! Only the transport decides whether a file's segment may go to the kernel as it is: in the clear it may; a
//! transport that encrypts reads the file through the offload pool instead. It knows no request and no reply.

use encke_io::Segment;

/// How bytes travel on a connection. A kind that keeps state boxes it: the word here is part of every slot.
#[derive(Default)]
pub(crate) enum Transport {
    /// As they are.
    #[default]
    Plain,
}

impl Transport {
    /// Hands the plaintext of a lease to `each`, in order and in place.
    pub(crate) fn receive(&mut self, lease: &mut [u8], mut each: impl FnMut(&mut [u8])) {
        match self {
            Self::Plain => each(lease),
        }
    }

    /// Turns output into what is sent.
    pub(crate) fn seal(&mut self, segments: Vec<Segment>) -> Vec<Segment> {
        match self {
            Self::Plain => segments,
        }
    }
}
