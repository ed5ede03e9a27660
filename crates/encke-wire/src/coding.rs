//! Content codings (RFC 9110 §8.4.1, §12.5.3): selects a coding that the client accepts.
//!
//! Each coding of a file is a separate representation with its own entity tag. This module only selects, and compresses
//! nothing.

use crate::field::{self, Folded};

/// A content coding that Encke can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// Brotli (RFC 7932)
    Brotli,
    /// Zstandard (RFC 8878)
    Zstd,
    /// gzip (RFC 1952)
    Gzip,
    /// No compression.
    Identity,
}

impl Coding {
    /// All codings, smallest results first: the order in which a server prefers precompressed files.
    pub const ALL: [Self; 4] = [Self::Brotli, Self::Zstd, Self::Gzip, Self::Identity];

    /// The name in `Content-Encoding` and `Accept-Encoding`. `identity` is never written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::Identity => "identity",
        }
    }

    /// The suffix of a file's precompressed variant, including the dot; empty for identity.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
            Self::Identity => "",
        }
    }

    /// The coding called `name` (case-insensitive). `x-gzip` is gzip (RFC 9110 §8.4.1.3).
    fn of(name: &[u8]) -> Option<Self> {
        const NAMES: [(Folded, Coding); 5] = [
            (Folded::of(Coding::Gzip.name().as_bytes()), Coding::Gzip),
            (Folded::of(Coding::Brotli.name().as_bytes()), Coding::Brotli),
            (Folded::of(Coding::Zstd.name().as_bytes()), Coding::Zstd),
            (Folded::of(Coding::Identity.name().as_bytes()), Coding::Identity),
            (Folded::of(b"x-gzip"), Coding::Gzip),
        ];
        let name = Folded::of(name);
        NAMES.iter().find(|(known, _)| known.is(&name)).map(|&(_, coding)| coding)
    }
}

/// The codings that a client accepts: a weight in thousandths for each of them.
///
/// ```text
///   (no field)             identity
///   gzip, br               gzip, br; identity if there is neither
///   gzip;q=0.5, br;q=0.9   br before gzip before identity
///   *                      anything, as the server likes
///   identity;q=0, gzip     gzip or nothing: `best` may be None
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptEncoding {
    weights: [u16; Coding::ALL.len()],
}

impl AcceptEncoding {
    /// Parses the values of all `Accept-Encoding` lines. Without any, only identity is used. The client may then accept
    /// everything, but there is no evidence for it.
    #[must_use]
    pub fn of<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut listed = [None; Coding::ALL.len()];
        let mut any_other = None;
        for (name, weight) in lines.flat_map(field::list).filter_map(field::weighted) {
            let slot = match Coding::of(name) {
                Some(coding) => &mut listed[coding as usize],
                None if name == b"*" => &mut any_other,
                None => continue,
            };
            // If a coding is repeated, the first weight counts.
            slot.get_or_insert(weight);
        }
        let mut weights = listed.map(|weight| weight.or(any_other).unwrap_or(0));
        let identity = Coding::Identity as usize;
        if listed[identity].is_none() && any_other.is_none() {
            // Acceptable unless excluded (§12.5.3), but after all requested codings.
            weights[identity] = LEAST;
        }
        Self { weights }
    }

    /// The coding in `offered` with the highest weight, and the first of equal ones. `None` if the client excludes all of them.
    ///
    /// ```
    /// use encke_wire::coding::{AcceptEncoding, Coding};
    ///
    /// let accept = AcceptEncoding::of([&b"gzip;q=0.5, zstd"[..]].into_iter());
    /// assert_eq!(accept.best(&[Coding::Gzip, Coding::Zstd]), Some(Coding::Zstd));
    /// assert_eq!(accept.best(&[Coding::Brotli, Coding::Identity]), Some(Coding::Identity));
    /// ```
    #[must_use]
    pub fn best(&self, offered: &[Coding]) -> Option<Coding> {
        let mut best = None;
        let mut most = 0;
        for &coding in offered {
            let weight = self.weights[coding as usize];
            if weight > most {
                (best, most) = (Some(coding), weight);
            }
        }
        best
    }

    /// Whether the client accepts `coding`.
    #[must_use]
    pub const fn accepts(&self, coding: Coding) -> bool {
        self.weights[coding as usize] > 0
    }
}

/// Less than or equal to the smallest weight above 0 that can be written. A client that sends `br;q=0.001` gets br or, at equal
/// weight, the server's preference.
const LEAST: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn best_of(lines: &[&str], offered: &[Coding]) -> Option<Coding> {
        AcceptEncoding::of(lines.iter().map(|line| line.as_bytes())).best(offered)
    }

    fn best(value: &str) -> Option<Coding> {
        best_of(&[value], &Coding::ALL)
    }

    #[test]
    fn the_server_prefers_among_what_is_equally_welcome() {
        assert_eq!(best("gzip, deflate, br, zstd"), Some(Coding::Brotli));
        assert_eq!(best("gzip, zstd"), Some(Coding::Zstd));
        assert_eq!(best("gzip"), Some(Coding::Gzip));
        assert_eq!(best("GZIP"), Some(Coding::Gzip));
        assert_eq!(best("x-gzip"), Some(Coding::Gzip));
        assert_eq!(best("*"), Some(Coding::Brotli));
        let reversed = [Coding::Gzip, Coding::Brotli, Coding::Identity];
        assert_eq!(best_of(&["br, gzip"], &reversed), Some(Coding::Gzip));
        assert_eq!(best_of(&["br", "gzip"], &reversed), Some(Coding::Gzip), "two lines are one list");
    }

    #[test]
    fn weights_come_before_the_servers_preference() {
        assert_eq!(best("gzip, br;q=0.9"), Some(Coding::Gzip));
        assert_eq!(best("br;q=0.5, zstd;q=0.8, gzip;q=0.7"), Some(Coding::Zstd));
        assert_eq!(best("identity, gzip;q=0.5"), Some(Coding::Identity));
        assert_eq!(best("gzip;q=0.001"), Some(Coding::Gzip));
        assert_eq!(best("br;q=0, *"), Some(Coding::Zstd));
        assert_eq!(best("gzip;q=0, gzip"), Some(Coding::Identity), "what is said first counts");
    }

    #[test]
    fn identity_is_what_is_left_unless_it_is_excluded() {
        assert_eq!(best_of(&[], &Coding::ALL), Some(Coding::Identity));
        assert_eq!(best(""), Some(Coding::Identity));
        assert_eq!(best("deflate"), Some(Coding::Identity));
        assert_eq!(best("gzip;q=0"), Some(Coding::Identity));
        assert_eq!(best("brotli, gzipped, *x"), Some(Coding::Identity));
        assert_eq!(best("gzip;q=high"), Some(Coding::Identity), "a malformed weight counts for nothing");
        assert_eq!(best_of(&["br"], &[Coding::Gzip, Coding::Identity]), Some(Coding::Identity));
        assert_eq!(best("identity;q=0"), None);
        assert_eq!(best("*;q=0"), None);
        assert_eq!(best("*;q=0, identity"), Some(Coding::Identity));
        assert_eq!(best("identity;q=0, gzip"), Some(Coding::Gzip));
        assert_eq!(best_of(&["identity;q=0, br"], &[Coding::Gzip, Coding::Identity]), None);
        assert!(!AcceptEncoding::of([&b"identity;q=0"[..]].into_iter()).accepts(Coding::Identity));
    }

    #[test]
    fn every_coding_is_known_by_its_name() {
        for coding in Coding::ALL {
            assert_eq!(Coding::of(coding.name().as_bytes()), Some(coding));
        }
        assert_eq!(Coding::Gzip.extension(), ".gz");
        assert_eq!(Coding::Identity.extension(), "");
    }
}
