//! HTTP/1.1 messages (RFC 9112): parsing heads and bodies, writing heads and chunks.
//!
//! ```text
//!              ┌──────────────── feed(bytes so far) ────────────────┐
//!              ▼                                                    │ Partial: come back with more
//!   Head / ResponseHead ── Done { head_bytes } ─► framing() ─┬─ None ───────► next head
//!              │                                             ├─ Length(n) ──► n bytes, then next head
//!              └── Refused(why): answer why.status(), close  └─ Chunked ────► ChunkedDecoder ─► next head
//! ```
//!
//! Both heads share one parser of field lines (`lines`), so that a client and a server built with this crate cannot disagree.

mod body;
mod framing;
mod head;
mod lines;
mod refusal;
mod response;
mod response_reader;
#[cfg(test)]
pub(crate) mod testing;
mod write;

pub use body::{BodyState, Chunk, ChunkedDecoder};
pub use head::{Framing, Head, Progress, TargetForm, Version};
pub use lines::{HeadField, Values};
pub use refusal::Refusal;
pub use response::{ResponseFraming, ResponseHead};
pub use response_reader::{AppResponseReader, HeadView, ReadStep, ResponseFault};
pub use write::{
    FieldError, LAST_CHUNK, decimal, put_chunk_head, put_field, put_field_number, put_number,
    put_status_line, status_line,
};

pub use crate::limits::HeadLimits;
