//! The filter of a tail.

use encke_settings::Network;

use crate::log::line::client_of;

/// A selection of log entries. Absent conditions admit everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TailFilter {
    /// The first digit of the status: 5 for 500 to 599.
    pub status_class: Option<u8>,
    /// A prefix of the path, as the client sent it.
    pub path_prefix: Option<String>,
    /// Text within the line.
    pub text: Option<String>,
    /// The network of the client's address; for one address, the network of that address alone.
    pub client: Option<Network>,
}

impl TailFilter {
    /// Whether the filter selects the entry of a request with this status, path and line.
    pub(super) fn admits(&self, status: u16, path: &[u8], line: &[u8]) -> bool {
        let contains = |text: &String| {
            text.is_empty() || line.windows(text.len()).any(|window| window == text.as_bytes())
        };
        self.status_class.is_none_or(|class| u16::from(class) == status / 100)
            && self.path_prefix.as_ref().is_none_or(|prefix| path.starts_with(prefix.as_bytes()))
            && self
                .client
                .is_none_or(|network| client_of(line).is_some_and(|client| network.contains(client)))
            && self.text.as_ref().is_none_or(contains)
    }
}
