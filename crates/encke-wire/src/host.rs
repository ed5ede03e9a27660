//! Patterns of host names: `example.org`, or `*.example.org` for every name below it.
//!
//! A host is compared without its port, in lower case, and without the final dot of an absolute name (RFC 3986 §3.2.2, RFC 9110
//! §4.2.3).

use std::error::Error;
use std::fmt;

use crate::target::parse_authority;

/// Maximum length of a host name, in bytes (RFC 1035 §2.3.4: 253 characters).
pub const HOST_BYTES_MAX: usize = 255;

/// A host name, or all names below one.
///
/// ```
/// use encke_wire::host::HostPattern;
///
/// let below: HostPattern = "*.example.org".parse()?;
/// assert!(below.matches(b"www.Example.org:8080"));
/// assert!(!below.matches(b"example.org"));
/// # Ok::<(), encke_wire::host::HostPatternError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostPattern {
    /// The name in lower case; for names below it with the dot before it.
    name: Box<str>,
}

/// Why a text is not a pattern of host names. The origin is the settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostPatternError {
    /// The star does not replace the first label.
    Star,
    /// The text is not a host name: it has a scheme, a port, a path or a space, for example.
    Name,
}

impl HostPattern {
    /// The name in lower case. For names below it the dot before it is included: `.example.org`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the pattern stands for all names below its own.
    pub fn is_below(&self) -> bool {
        self.name.starts_with('.')
    }

    /// Whether the host of `authority` (`host[:port]`) fits the pattern.
    pub fn matches(&self, authority: &[u8]) -> bool {
        let host = bare_host(authority);
        let name = self.name.as_bytes();
        if self.is_below() {
            let start = host.len().checked_sub(name.len()).filter(|start| *start > 0);
            start.is_some_and(|start| host[start..].eq_ignore_ascii_case(name))
        } else {
            host.eq_ignore_ascii_case(name)
        }
    }
}

impl std::str::FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<Self, HostPatternError> {
        let lower = text.trim_end_matches('.').to_ascii_lowercase();
        let name = match lower.strip_prefix('*') {
            Some(suffix) if suffix.starts_with('.') && suffix.len() > 1 => suffix,
            Some(_) => return Err(HostPatternError::Star),
            None if lower.starts_with('.') => return Err(HostPatternError::Name),
            None => lower.as_str(),
        };
        let bare = name.strip_prefix('.').unwrap_or(name);
        match parse_authority(bare.as_bytes()) {
            Ok(authority)
                if authority.port.is_none() && !bare.ends_with(':') && bare.len() <= HOST_BYTES_MAX =>
            {
                Ok(Self { name: name.into() })
            }
            _ => Err(HostPatternError::Name),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_below() { "*" } else { "" };
        write!(f, "{star}{}", self.name)
    }
}

impl fmt::Display for HostPatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Star => "a star replaces the first label only: *.example.org",
            Self::Name => "not a host name: write it without a scheme, a port or a path, and other letters than ASCII in Punycode (xn--…)",
        })
    }
}

impl Error for HostPatternError {}

/// The host of an authority (`host[:port]`), without the final dot of an absolute name.
#[inline]
pub fn bare_host(authority: &[u8]) -> &[u8] {
    let after_address = authority.iter().rposition(|&byte| byte == b']').unwrap_or(0);
    let host = match authority[after_address..].iter().position(|&byte| byte == b':') {
        Some(colon) => &authority[..after_address + colon],
        None => authority,
    };
    host.strip_suffix(b".").unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_pattern_fits_its_name_or_the_names_below() {
        for (text, authority, fits) in [
            ("example.org", "example.org", true),
            ("Example.org.", "EXAMPLE.ORG.:80", true),
            ("example.org", "www.example.org", false),
            ("*.example.org", "www.example.org:1", true),
            ("*.Example.org", "a.b.EXAMPLE.org.", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", ".example.org", false),
            ("*.example.org", "notexample.org", false),
            ("*.example.org", "", false),
            ("encke-1", "encke-1:8081", true),
            ("[::1]", "[::1]:80", true),
            ("[::1]", "[::2]", false),
        ] {
            assert_eq!(pattern(text).matches(authority.as_bytes()), fits, "{text} {authority}");
        }
    }

    #[test]
    fn a_pattern_is_shown_as_it_was_written() {
        for text in ["example.org", "*.example.org", "[::1]"] {
            assert_eq!(pattern(text).to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in ["*", "*a", "*.", "*example.org"] {
            assert_eq!(text.parse::<HostPattern>(), Err(HostPatternError::Star), "{text}");
        }
        let long = "a".repeat(256);
        for text in ["", "https://a", "a:80", "a:", "a/b", "a b", ".a", &long] {
            assert_eq!(text.parse::<HostPattern>(), Err(HostPatternError::Name), "{text}");
        }
    }
}
