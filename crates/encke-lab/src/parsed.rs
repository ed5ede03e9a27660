//! The result of any parser in one form, so that tests can compare parsers.

/// A parsed request head, with copies of its parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parsed {
    /// Length of the head, including the empty line at its end.
    pub(crate) bytes: usize,
    pub(crate) method: Vec<u8>,
    pub(crate) target: Vec<u8>,
    /// The x of HTTP/1.x.
    pub(crate) minor: u8,
    /// Names and values, in order.
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
}
