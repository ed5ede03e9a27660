//! The errors of sites: of their settings, and of compression on the fly.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use encke_io::files::OpenError;
use encke_wire::content_encoder::EncoderFault;

use encke_wire::host::HostPatternError;
use encke_wire::host_map::HostMapError;
use encke_wire::path_pattern::PathPatternError;
use encke_wire::punycode;

/// An error in the settings of a site.
#[derive(Debug)]
#[non_exhaustive]
pub struct SiteError {
    /// The first host name of the site, or its number from 1.
    pub site: String,
    /// The index of the site, from 0.
    pub number: usize,
    /// The key below `[[site]]`.
    pub key: &'static str,
    /// The error in the key's value.
    pub error: RuleError,
}

impl fmt::Display for SiteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "site {}: {}: {}", self.site, self.key, self.error)
    }
}

impl Error for SiteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// A key of a site's settings, and the error in its value.
pub(super) type SiteKeyError = (&'static str, RuleError);

/// Why a value in the settings of a site is rejected. The origin is the settings, except for [`RuleError::Unreadable`],
/// [`RuleError::Root`] and [`RuleError::RootFolder`], which the system reported about a path in the settings.
#[derive(Debug)]
#[non_exhaustive]
pub enum RuleError {
    /// More sites than the server supports.
    TooManySites,
    /// Another site has no host names either.
    SecondDefault,
    /// The star of a host name does not replace its first label.
    HostStar(String),
    /// The text is not a host name.
    HostName(String),
    /// Another site has this host name.
    HostTaken(String),
    /// A root or an aliased directory cannot be opened.
    Root(PathBuf, io::Error),
    /// The lookup of a root or of an aliased directory failed.
    RootFolder(PathBuf, OpenError),
    /// The target of an alias cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The path of an alias is not absolute, or has an empty segment.
    AliasPath(String),
    /// The path of an alias for this file ends in a slash.
    AliasSlash(PathBuf),
    /// The name of this aliased file is not UTF-8.
    NotUtf8(PathBuf),
    /// The text is not the name of a file.
    FileName(String),
    /// The text is not a pattern of paths.
    Pattern(String, PathPatternError),
    /// The status is not that of a redirect.
    RedirectStatus(u16),
    /// The target of a redirect is neither a path nor a URL.
    Target(String),
    /// The target of a redirect has this character, which must be escaped.
    TargetByte(String, u8),
    /// The target of a redirect has a dollar sign without a number.
    TargetDollar(String),
    /// The target of a redirect has a capture that the pattern lacks.
    TargetCapture {
        /// The target.
        text: String,
        /// The number of the capture.
        capture: usize,
        /// Number of stars in the pattern.
        stars: usize,
    },
    /// A request could choose the host of the redirect.
    TargetHost {
        /// The target.
        text: String,
        /// The number of the capture.
        capture: usize,
    },
    /// The text is not the name of a header field.
    FieldName(String),
    /// The header field cannot be set by a rule.
    ReservedField {
        /// The name of the field.
        name: String,
        /// The alternative, or the reason.
        instead: &'static str,
    },
    /// The value of this header field or key has a control character.
    ControlCharacter(String),
    /// A path cannot be refused with this status.
    RefusalStatus(u16),
    /// The text is not the status of an error.
    ErrorStatus(String),
    /// The text is not the path of a page.
    ErrorPage(String),
    /// Browsers do not know this directive of Strict-Transport-Security.
    HstsDirective(String),
    /// This directive of Strict-Transport-Security is repeated.
    HstsRepeated(String),
    /// Strict-Transport-Security lacks its duration.
    HstsMaxAge,
}

/// The syntax of `hsts`.
const HSTS_EXPECTED: &str = "expected max-age=SECONDS, and maybe ; includeSubDomains ; preload";

impl RuleError {
    /// The error of a host name.
    pub(super) fn host(name: Option<&str>, error: HostMapError) -> Self {
        let name = || name.unwrap_or_default().to_owned();
        match error {
            HostMapError::SecondDefault => Self::SecondDefault,
            HostMapError::Taken => Self::HostTaken(name()),
            HostMapError::Pattern(HostPatternError::Star) => Self::HostStar(name()),
            HostMapError::Pattern(HostPatternError::Name) => Self::HostName(name()),
        }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManySites => f.write_str("there are too many sites"),
            Self::SecondDefault => {
                f.write_str("there is another site without host names; give this one a name")
            }
            Self::HostStar(host) => {
                write!(f, "`{host}`: a star stands for all names below one: *.example.org")
            }
            Self::HostName(host) => {
                let remark = punycode::remark(host);
                write!(f, "`{host}` is not a host name; write it without scheme, port and path{remark}")
            }
            Self::HostTaken(host) => write!(f, "`{host}` belongs to another site already"),
            Self::Root(path, error) => write!(f, "{} cannot be served: {error}", path.display()),
            Self::RootFolder(path, error) => write!(f, "{} cannot be served: {error}", path.display()),
            Self::Unreadable(path, error) => write!(f, "{} cannot be read: {error}", path.display()),
            Self::AliasPath(path) => write!(f, "`{path}` is no path; write it like /docs/"),
            Self::AliasSlash(file) => {
                write!(f, "{} is a file, so its path cannot end in a slash", file.display())
            }
            Self::NotUtf8(file) => write!(f, "{} has no name in UTF-8", file.display()),
            Self::FileName(name) => write!(f, "`{name}` is not the name of a file"),
            Self::Pattern(text, error) => write!(f, "`{text}`: {error}"),
            Self::RedirectStatus(status) => {
                write!(f, "{status} is no redirect; use 301, 302, 303, 307 or 308")
            }
            Self::Target(text) => {
                write!(f, "`{text}` is neither a path (/new/$1) nor a URL (https://example.org/$1)")
            }
            Self::TargetByte(text, byte) => {
                write!(f, "`{text}` has `{}`; write it as %{byte:02X}", byte.escape_ascii())
            }
            Self::TargetDollar(text) => {
                write!(f, "`{text}` has a $ without a number after it; write %24 for a dollar sign")
            }
            Self::TargetCapture { text, capture, stars } => {
                write!(f, "`{text}` has ${capture}, but `from` has {stars} stars")
            }
            Self::TargetHost { text, capture } => {
                write!(f, "`{text}` has ${capture} in the host or right after it; put a slash between")
            }
            Self::FieldName(name) => write!(f, "`{name}` is not the name of a field"),
            Self::ReservedField { name, instead } => write!(f, "{name} cannot be set here; {instead}"),
            Self::ControlCharacter(name) => write!(f, "the value of {name} has a control character"),
            Self::RefusalStatus(status) => {
                write!(f, "{status} is no status to refuse with; use 403, 404 or 410")
            }
            Self::ErrorStatus(status) => write!(f, "`{status}` is no status of an error, 400 to 599"),
            Self::ErrorPage(path) => {
                write!(f, "`{path}` is not the path of a page; write it like /404.html")
            }
            Self::HstsDirective(directive) => {
                write!(f, "browsers do not know `{directive}`; {HSTS_EXPECTED}")
            }
            Self::HstsRepeated(directive) => write!(f, "`{directive}` is repeated; {HSTS_EXPECTED}"),
            Self::HstsMaxAge => write!(f, "max-age is missing; {HSTS_EXPECTED}"),
        }
    }
}

impl Error for RuleError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Root(_, error) | Self::Unreadable(_, error) => Some(error),
            Self::RootFolder(_, error) => Some(error),
            Self::Pattern(_, error) => Some(error),
            _ => None,
        }
    }
}

/// Why a file was not compressed. The next request for the file tries again only after it has changed.
#[derive(Debug)]
pub(super) enum CompressionError {
    /// The system failed.
    System(io::Error),
    /// The compressor failed, or has no such coding.
    Encoder(EncoderFault),
    /// The file changed while it was read.
    Changed,
    /// The file does not fit in memory: its length.
    TooLong(u64),
}

impl From<io::Error> for CompressionError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<EncoderFault> for CompressionError {
    fn from(fault: EncoderFault) -> Self {
        Self::Encoder(fault)
    }
}

impl fmt::Display for CompressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(error) => error.fmt(f),
            Self::Encoder(fault) => fault.fmt(f),
            Self::Changed => f.write_str("the file has changed while it was read"),
            Self::TooLong(bytes) => write!(f, "{bytes} bytes do not fit in memory"),
        }
    }
}

impl Error for CompressionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::System(error) => Some(error),
            Self::Encoder(fault) => Some(fault),
            Self::Changed | Self::TooLong(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_other_letters_is_shown_in_its_ascii_form() {
        let error = RuleError::HostName("bücher.test".into()).to_string();
        assert!(error.ends_with("is written xn--bcher-kva.test"), "{error}");
        let error = RuleError::HostName("http://a.test".into()).to_string();
        assert!(error.ends_with("without scheme, port and path"), "{error}");
    }
}
