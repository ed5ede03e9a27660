//! A cache of parsed Accept-Encoding values: browsers of one kind all send the same.

use encke_server::Request;
use encke_wire::field::Known;

use super::page::Taste;

/// The values parsed last, with the codings that they prefer.
#[derive(Default)]
pub(super) struct Tastes {
    known: Vec<(Box<[u8]>, Taste)>,
    /// The index of the value used last.
    last: usize,
    /// The index of the value to replace next.
    next: usize,
}

impl Tastes {
    #[inline]
    pub(super) fn of(&mut self, request: &Request<'_>) -> Taste {
        let mut lines = request.all(Known::AcceptEncoding);
        let Some(line) = lines.next() else { return Taste::PLAIN };
        if let Some((known, taste)) = self.known.get(self.last)
            && **known == *line
            && lines.next().is_none()
        {
            return *taste;
        }
        self.search(request, line)
    }

    #[cold]
    fn search(&mut self, request: &Request<'_>, line: &[u8]) -> Taste {
        let is_single = request.all(Known::AcceptEncoding).nth(1).is_none();
        if is_single && let Some(at) = self.known.iter().position(|(known, _)| **known == *line) {
            self.last = at;
            return self.known[at].1;
        }
        let taste = Taste::of(request.all(Known::AcceptEncoding));
        if is_single && line.len() <= TASTE_BYTES_MAX {
            let entry = (line.into(), taste);
            if self.known.len() < TASTES_MAX {
                self.known.push(entry);
            } else {
                self.known[self.next] = entry;
                self.next = (self.next + 1) % TASTES_MAX;
            }
        }
        taste
    }
}

/// Accept-Encoding values in the cache. There are about ten kinds of clients.
const TASTES_MAX: usize = 8;

/// Longer values are parsed each time: no browser sends them.
const TASTE_BYTES_MAX: usize = 128;
