//! The reader of a connection's responses, by the protocol of its target.

use encke_wire::http1::{AppResponseReader, ReadStep, ResponseFault, ResponseHead};
use encke_wire::method::Method;

use crate::fastcgi_reader::FastCgiReader;

/// Reads the responses of one connection.
pub(crate) enum ConnReader {
    Http(AppResponseReader),
    FastCgi(Box<FastCgiReader>),
}

impl ConnReader {
    /// Expects the response to a request with `method`. `keeps`: whether the request asks the application to keep the connection.
    pub(crate) fn begin(&mut self, method: Method, keeps: bool) {
        match self {
            Self::Http(reader) => reader.begin(method),
            Self::FastCgi(reader) => reader.begin(method, keeps),
        }
    }

    /// Whether no byte of the expected response has arrived.
    pub(crate) const fn is_untouched(&self) -> bool {
        match self {
            Self::Http(reader) => reader.is_untouched(),
            Self::FastCgi(reader) => reader.is_untouched(),
        }
    }

    /// Reads up to the end of the next part of a response: see [`AppResponseReader::step`].
    ///
    /// # Errors
    /// The bytes are no response, or an unexpected one.
    pub(crate) fn step<'a>(
        &'a mut self,
        scratch: &'a mut ResponseHead,
        bytes: &'a [u8],
        keeps: &mut bool,
    ) -> Result<ReadStep<'a>, ResponseFault> {
        match self {
            Self::Http(reader) => reader.step(scratch, bytes, keeps),
            Self::FastCgi(reader) => reader.step(scratch, bytes),
        }
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// A response is missing, or incomplete.
    pub(crate) fn end(&mut self) -> Result<(), ResponseFault> {
        match self {
            Self::Http(reader) => reader.end(),
            Self::FastCgi(reader) => reader.end(),
        }
    }

    /// The trailers of a complete response. FastCGI has none.
    pub(crate) const fn http(&self) -> Option<&AppResponseReader> {
        match self {
            Self::Http(reader) => Some(reader),
            Self::FastCgi(_) => None,
        }
    }

    /// Messages of a FastCGI application for its operator.
    pub(crate) fn take_messages(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Http(_) => None,
            Self::FastCgi(reader) => reader.take_messages(),
        }
    }
}
