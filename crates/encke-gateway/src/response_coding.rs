//! Compression of an application's response, as it arrives.
//!
//! ```text
//!  head ─► may_code? ── no ──────────────────────────────► as it is
//!             │ Vary: Accept-Encoding
//!             ├─ no common coding, or too many encoders ─► as it is
//!             └─ ResponseEncoder: Content-Encoding, a weak ETag, no length
//!                   content ─► encode ─ flush when the application pauses ─► end
//! ```
//! Nothing waits for more content: the client can read everything that the application has sent. Event streams are never
//! compressed, because a comment that keeps them open would cost more than it carries.

use std::ops::RangeInclusive;

use encke_server::Fields;
use encke_wire::coding::{AcceptEncoding, Coding};
use encke_wire::content_encoder::{ContentEncoder, EncoderFault};
use encke_wire::field::{self, Known};
use encke_wire::http1::{HeadView, ResponseFraming};
use encke_wire::method::Method;
use encke_wire::type_pattern;

/// Which responses of applications are compressed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResponseCompression {
    /// Media types; `text/*` is every type with that prefix. Event streams are never compressed.
    pub types: Vec<String>,
    /// Sizes in bytes of responses with a known length. Responses of unknown length are compressed, too.
    pub bytes: RangeInclusive<u64>,
    /// Responses that a worker compresses at the same time. Further ones are sent as they are.
    pub at_once: u32,
}

/// The response whose content is compressed.
pub(crate) struct ResponseEncoder {
    encoder: ContentEncoder,
    /// Whether the encoder holds content that the client cannot read yet.
    holds: bool,
}

/// The encoders of a worker.
#[derive(Default)]
pub(crate) struct EncoderPool {
    /// Encoders of finished responses.
    spare: Vec<ContentEncoder>,
    used: u32,
    /// Output of one step.
    out: Vec<u8>,
}

impl EncoderPool {
    /// An encoder for one response; `None` if `at_once` are in use.
    pub(crate) fn take(&mut self, coding: Coding, at_once: u32) -> Option<ResponseEncoder> {
        if self.used >= at_once {
            return None;
        }
        let known = self.spare.iter().position(|encoder| encoder.coding() == coding);
        let encoder = match known {
            Some(place) => self.spare.swap_remove(place),
            None => ContentEncoder::new(coding)?,
        };
        self.used += 1;
        Some(ResponseEncoder { encoder, holds: false })
    }

    /// Takes an encoder back.
    pub(crate) fn give(&mut self, mut encoder: ResponseEncoder) {
        self.used = self.used.saturating_sub(1);
        if self.spare.len() < SPARE_MAX && encoder.encoder.reset().is_ok() {
            self.spare.push(encoder.encoder);
        }
    }

    /// Compresses a piece of content. Returns the output so far.
    ///
    /// # Errors
    /// The compressor failed.
    pub(crate) fn encode(
        &mut self,
        encoder: &mut ResponseEncoder,
        piece: &[u8],
    ) -> Result<&[u8], EncoderFault> {
        self.out.clear();
        encoder.encoder.write(piece, &mut self.out)?;
        encoder.holds = true;
        Ok(&self.out)
    }

    /// Makes everything so far readable for the client.
    ///
    /// # Errors
    /// The compressor failed.
    pub(crate) fn flush(&mut self, encoder: &mut ResponseEncoder) -> Result<&[u8], EncoderFault> {
        self.out.clear();
        if std::mem::take(&mut encoder.holds) {
            encoder.encoder.flush(&mut self.out)?;
        }
        Ok(&self.out)
    }

    /// Ends the content.
    ///
    /// # Errors
    /// The compressor failed.
    pub(crate) fn finish(&mut self, encoder: &mut ResponseEncoder) -> Result<&[u8], EncoderFault> {
        self.out.clear();
        encoder.holds = false;
        encoder.encoder.finish(&mut self.out)?;
        Ok(&self.out)
    }
}

/// Whether the rules permit to compress a response. It then depends on the request's Accept-Encoding.
/// `fields` are those for the client.
pub(crate) fn may_code(
    rules: &ResponseCompression,
    method: Method,
    view: &HeadView<'_>,
    fields: &Fields,
) -> bool {
    let (head, bytes) = (view.head, view.bytes);
    // A response to HEAD has the length of the content that GET would get.
    let method = if method == Method::Head { Method::Get } else { method };
    let fits = match head.framing(method) {
        ResponseFraming::None => false,
        ResponseFraming::Length(length) => rules.bytes.contains(&length),
        ResponseFraming::Chunked | ResponseFraming::Close => true,
    };
    let has = |known| head.known(bytes, known).is_some();
    // 206 and Content-Range name bytes of the plain content.
    if !fits || head.status() == 206 || has(Known::ContentEncoding) || has(Known::ContentRange) {
        return false;
    }
    let Some(media_type) = head.known(bytes, Known::ContentType) else { return false };
    rules.has_type(media_type)
        && fields.iter().all(|(name, value)| {
            let mut listed = field::list(value);
            if name.eq_ignore_ascii_case(b"cache-control") {
                !listed.any(|directive| directive.eq_ignore_ascii_case(b"no-transform"))
            } else if name.eq_ignore_ascii_case(b"trailer") {
                !listed.any(is_digest)
            } else {
                !is_digest(name)
            }
        })
        // A digest may follow the content, also for a client that gets no trailers.
        && !head.all(bytes, Known::Trailer).flat_map(field::list).any(is_digest)
}

/// Whether a field is wrong once the content is compressed.
pub(crate) fn is_digest(name: &[u8]) -> bool {
    DIGESTS.iter().any(|digest| digest.as_bytes().eq_ignore_ascii_case(name))
}

/// Fields that are wrong once the content is compressed (RFC 9530, RFC 1864).
const DIGESTS: [&str; 4] = ["Content-Digest", "Repr-Digest", "Digest", "Content-MD5"];

/// The coding for a client that accepts `accepted`; `None` for plain content.
pub(crate) fn coding_for(accepted: &AcceptEncoding) -> Option<Coding> {
    let mut offered = ContentEncoder::CODINGS.to_vec();
    offered.push(Coding::Identity);
    accepted.best(&offered).filter(|coding| *coding != Coding::Identity)
}

/// The fields of a 304 for content that the client holds in compressed form (RFC 9110 §15.4.5).
pub(crate) fn unchanged_fields(fields: &Fields) -> Fields {
    let mut unchanged = Fields::with_capacity(fields.len_bytes() + 32);
    let coded = coded_fields(fields, Some(Coding::Gzip));
    for (name, value) in coded.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(b"content-encoding")) {
        if let Ok(name) = std::str::from_utf8(name) {
            // The name and the value were a field before.
            let _ = unchanged.push(name, value);
        }
    }
    unchanged
}

/// The fields of a response that could be compressed; `coding` is that of its content.
pub(crate) fn coded_fields(fields: &Fields, coding: Option<Coding>) -> Fields {
    let mut coded = Fields::with_capacity(fields.len_bytes() + 64);
    let mut push = |name: &[u8], value: &[u8]| {
        if let Ok(name) = std::str::from_utf8(name) {
            // The name and the value were a field before.
            let _ = coded.push(name, value);
        }
    };
    let mut varies = false;
    for (name, value) in fields.iter() {
        if name.eq_ignore_ascii_case(b"vary") {
            varies |=
                field::list(value).any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding"));
        }
        if coding.is_some() && name.eq_ignore_ascii_case(b"accept-ranges") {
            continue;
        }
        if coding.is_some() && name.eq_ignore_ascii_case(b"etag") && !value.starts_with(b"W/") {
            push(name, &[b"W/", value].concat());
        } else {
            push(name, value);
        }
    }
    if !varies {
        push(b"Vary", b"Accept-Encoding");
    }
    if let Some(coding) = coding {
        push(b"Content-Encoding", coding.name().as_bytes());
    }
    coded
}

impl ResponseCompression {
    /// Whether responses with this Content-Type are compressed.
    fn has_type(&self, value: &[u8]) -> bool {
        let name = field::parameters(value).next().unwrap_or_default();
        let matches = |listed: &String| type_pattern::matches(listed, name);
        !name.eq_ignore_ascii_case(b"text/event-stream") && self.types.iter().any(matches)
    }
}

/// Encoders that are kept for further responses.
const SPARE_MAX: usize = 4;
