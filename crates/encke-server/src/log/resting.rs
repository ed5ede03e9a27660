//! Compact pending lines: a subscriber's line is pending as long as its connection, so it is kept small.
//!
//! ```text
//! 203.0.113.9 - ann [21/Nov/2026:21:26:03 +0000] "GET /push/a HTTP/1.1" │ 200 13 │ "-" "Mozilla/5.0 …"
//! ╰ address ╯   ╰─╯  ╰────────── time ────────╯  ╰──── request ───────╯            ╰──── client ────╯
//!                └──────── one shared text with the request ┘                       a shared text
//! ```
//! A resting line stores its address and time as numbers. It shares its texts with other lines of the worker that have the same
//! texts: subscribers of one page send the same request and the same fields. A text that no other line has, such as a path with
//! the subscriber's name, costs its length and some 80 bytes. Tokens were masked when the line began, so they make no text
//! unique.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::line::{COMBINED_GAPS, JSON_START};
use crate::log::LogFormat;

/// An unfinished line with shared texts.
pub(super) struct Resting {
    /// The client's address.
    pub(super) client: Option<IpAddr>,
    /// Length of the user's name at the start of `request`, in bytes.
    pub(super) user_len: u16,
    /// The number of an own request id, as the last member of a JSON line.
    pub(super) id_number: Option<NonZeroU32>,
    /// In the combined format the user's name, then the request. In JSON the members up to the host.
    pub(super) request: SharedText,
    /// The rest of the line.
    pub(super) behind: SharedText,
}

impl Resting {
    /// Splits an unfinished line. `start` is the end of the time in `text`, `middle` the end of the request. Returns `None` if
    /// the line does not begin in the usual form.
    pub(super) fn of(
        format: LogFormat,
        text: &[u8],
        start: usize,
        middle: usize,
        texts: &mut Texts,
    ) -> Option<Self> {
        let (front, request, behind) = (text.get(..start)?, text.get(start..middle)?, text.get(middle..)?);
        let (address, user) = match format {
            LogFormat::Combined => {
                let address_len = front.iter().position(|&byte| byte == b' ')?;
                let user_len = front.len().checked_sub(address_len + COMBINED_GAPS)?;
                let user_start = address_len + " - ".len();
                (&front[..address_len], front.get(user_start..user_start + user_len)?)
            }
            LogFormat::Json => (front.get(JSON_START..front.len() - 1)?, &b""[..]),
        };
        let client = match address {
            b"-" => None,
            address => Some(std::str::from_utf8(address).ok()?.parse().ok()?),
        };
        let user_len = u16::try_from(user.len()).ok()?;
        let (request, behind) = (texts.share(&[user, request].concat()), texts.share(behind));
        Some(Self { client, user_len, id_number: None, request, behind })
    }
}

/// A text that lines share.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SharedText(Arc<Box<[u8]>>);

impl SharedText {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Number of lines that hold this text, plus one for the table.
    fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl Hash for SharedText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
    }
}

impl Borrow<[u8]> for SharedText {
    fn borrow(&self) -> &[u8] {
        self.bytes()
    }
}

/// The texts of a worker's resting lines. A text leaves the table with the last line that holds it.
#[derive(Default)]
pub(super) struct Texts(HashSet<SharedText>);

impl Texts {
    fn share(&mut self, bytes: &[u8]) -> SharedText {
        if let Some(text) = self.0.get(bytes) {
            return text.clone();
        }
        let text = SharedText(Arc::new(bytes.into()));
        self.0.insert(text.clone());
        text
    }

    /// Releases the texts of a finished line.
    pub(super) fn release(&mut self, line: Resting) {
        for text in [line.request, line.behind] {
            if text.holders() == 2 {
                self.0.remove(&text);
            }
        }
        if self.0.capacity() > 4 * self.0.len() + 64 {
            self.0.shrink_to(2 * self.0.len());
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Holders of all texts, including the table.
    #[cfg(test)]
    pub(super) fn holders(&self) -> usize {
        self.0.iter().map(SharedText::holders).sum()
    }

    /// Memory of the texts and of the table in bytes, without headers of allocations.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        const SHARED: usize = 2 * size_of::<usize>() + size_of::<Box<[u8]>>();
        let texts: usize = self.0.iter().map(|text| text.bytes().len() + SHARED).sum();
        texts + self.0.capacity() * (size_of::<SharedText>() + 1)
    }
}
