//! Takeover: a handler passes its connection to a resident.

use std::any::Any;

use crate::end_token::EndToken;
use crate::reply::Fields;

/// A request of a handler to pass its connection to a resident.
pub struct Takeover {
    pub(crate) by: By,
    pub(crate) start: Box<dyn Any + Send>,
    /// Fields of guards for the resident's response.
    pub(crate) fields: Fields,
    /// A value of the handler that is dropped once the resident has ended.
    pub(crate) until_end: Option<EndToken>,
}

/// The resident that a connection is given to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// The resident of the handler's own mount.
    Mount,
    /// The engine's resident for WebSockets of any handler.
    WebSockets,
}

impl Takeover {
    /// Passes the connection to the resident that the handler's mount has opened. [`Resident::enter`](crate::Resident::enter)
    /// receives `start`.
    pub fn new(start: impl Any + Send) -> Self {
        Self { by: By::Mount, start: Box::new(start), fields: Fields::new(), until_end: None }
    }

    /// Adds a value that is dropped once the resident has ended, or at once if the connection cannot be passed to it.
    #[must_use]
    pub fn until_end(self, token: EndToken) -> Self {
        Self { until_end: Some(token), ..self }
    }
}
