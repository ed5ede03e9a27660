//! Selects a site by the host of a request.
//!
//! The host is compared without its port, in lower case, and without the final dot of an absolute name (RFC 3986 §3.2.2, RFC
//! 9110 §4.2.3). Exact names precede `*.example.org`, of which the longest counts, and these precede the site without names.
//! Without such a site a request for another host receives 421. Otherwise a foreign page whose name was pointed at this server
//! could read its files.

use std::collections::HashMap;
use std::fmt;

use crate::host::{HOST_BYTES_MAX, HostPattern, HostPatternError, bare_host};

/// Host names and the numbers of their sites.
///
/// ```
/// use encke_wire::host_map::HostMap;
///
/// let mut hosts = HostMap::default();
/// hosts.add(Some("example.org"), 1)?;
/// hosts.add(Some("*.example.org"), 2)?;
/// assert_eq!(hosts.site(b"www.example.org:8080"), Some(2));
/// assert_eq!(hosts.site(b"localhost"), None);
/// # Ok::<(), encke_wire::host_map::HostMapError>(())
/// ```
#[derive(Debug, Default)]
pub struct HostMap {
    exact: HashMap<Box<[u8]>, u16>,
    /// Suffixes with their dot, longest first.
    below: Vec<(Box<[u8]>, u16)>,
    default: Option<u16>,
}

/// Why a name cannot be added to a [`HostMap`]. The origin is the settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostMapError {
    /// The text is no pattern of host names.
    Pattern(HostPatternError),
    /// The name belongs to another site.
    Taken,
    /// Another site has no names.
    SecondDefault,
}

impl fmt::Display for HostMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pattern(error) => error.fmt(f),
            Self::Taken => f.write_str("another site has this name"),
            Self::SecondDefault => f.write_str("two sites have no host names"),
        }
    }
}

impl std::error::Error for HostMapError {}

impl HostMap {
    /// Adds a site under a name, or as the default if `host` is `None`.
    ///
    /// # Errors
    /// The name belongs to another site, or is invalid.
    pub fn add(&mut self, host: Option<&str>, site: u16) -> Result<(), HostMapError> {
        let Some(host) = host else {
            if self.default.is_some() {
                return Err(HostMapError::SecondDefault);
            }
            self.default = Some(site);
            return Ok(());
        };
        let pattern: HostPattern = host.parse().map_err(HostMapError::Pattern)?;
        let key: Box<[u8]> = pattern.name().as_bytes().into();
        let taken = if pattern.is_below() {
            let taken = self.below.iter().any(|(other, _)| *other == key);
            self.below.push((key, site));
            self.below.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
            taken
        } else {
            self.exact.insert(key, site).is_some()
        };
        if taken { Err(HostMapError::Taken) } else { Ok(()) }
    }

    /// The site of every request, if there is only one and it has no names.
    pub fn only(&self) -> Option<u16> {
        if self.exact.is_empty() && self.below.is_empty() { self.default } else { None }
    }

    /// The site for `authority`: `host[:port]`, already checked by the head parser.
    pub fn site(&self, authority: &[u8]) -> Option<u16> {
        if self.exact.is_empty() && self.below.is_empty() {
            return self.default;
        }
        let mut lower = [0; HOST_BYTES_MAX];
        let host = bare_host(authority);
        let Some(lower) = lower.get_mut(..host.len()) else { return self.default };
        lower.copy_from_slice(host);
        lower.make_ascii_lowercase();
        let lower = &*lower;
        let below = || {
            let found =
                self.below.iter().find(|(suffix, _)| lower.len() > suffix.len() && lower.ends_with(suffix));
            found.map(|(_, site)| *site)
        };
        self.exact.get(lower).copied().or_else(below).or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[(Option<&str>, u16)]) -> HostMap {
        let mut hosts = HostMap::default();
        for &(name, site) in names {
            hosts.add(name, site).expect("a free name");
        }
        hosts
    }

    #[test]
    fn the_most_exact_name_wins() {
        let hosts = hosts(&[
            (Some("example.org"), 1),
            (Some("*.example.org"), 2),
            (Some("*.a.example.org"), 3),
            (Some("[::1]"), 4),
            (None, 9),
        ]);
        for (authority, site) in [
            ("example.org", 1),
            ("EXAMPLE.org:8080", 1),
            ("example.org.", 1),
            ("example.org.:80", 1),
            ("www.example.org", 2),
            ("x.y.example.org", 2),
            ("x.a.example.org", 3),
            ("a.example.org", 2),
            ("notexample.org", 9),
            (".example.org", 9),
            ("[::1]:8080", 4),
            ("[::1]", 4),
            ("[::2]", 9),
            ("", 9),
        ] {
            assert_eq!(hosts.site(authority.as_bytes()), Some(site), "{authority}");
        }
        assert_eq!(hosts.site(&[b'a'; 300]), Some(9));
        assert_eq!(hosts.only(), None);
    }

    #[test]
    fn a_foreign_host_has_no_site_unless_there_is_a_default() {
        assert_eq!(hosts(&[(Some("a"), 1)]).site(b"b"), None);
        assert_eq!(hosts(&[(None, 0)]).only(), Some(0));
    }

    #[test]
    fn names_that_cannot_be_meant_are_refused() {
        for name in ["https://a", "a:80", "a/b", "", "*", "*a", "*.", "a b", "a:"] {
            assert!(HostMap::default().add(Some(name), 0).is_err(), "{name}");
        }
        let mut hosts = hosts(&[(Some("a"), 0), (Some("*.b"), 0), (None, 0)]);
        assert!(hosts.add(Some("A"), 1).is_err());
        assert!(hosts.add(Some("*.B"), 1).is_err());
        assert!(hosts.add(None, 1).is_err());
    }
}
