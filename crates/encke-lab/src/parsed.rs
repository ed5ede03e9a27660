//! What any parser makes of a head, in one form: how parsers are held to the same answer.

/// A request's head as bytes of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parsed {
    /// Its length, with the empty line that ends it.
    pub(crate) bytes: usize,
    pub(crate) method: Vec<u8>,
    pub(crate) target: Vec<u8>,
    /// The x of HTTP/1.x.
    pub(crate) minor: u8,
    /// Names and values, in order.
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
}
