//! The channels of a command: names or URLs, all on one server.

use std::error::Error;
use std::fmt;

use super::location::{Location, LocationError, ServerLocation};

/// Channels of one server under one path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ChannelsPath {
    pub(crate) server: ServerLocation,
    /// The request path: `/push/A,B,C`.
    pub(crate) path: String,
    query: Option<String>,
}

/// Why channels cannot be named, or cannot share one request. The origin is the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ChannelsError {
    /// A URL is invalid.
    Location(LocationError),
    /// No channel is named.
    Empty,
    /// The URL names a server only: the URL, and the server.
    NoChannel(String, ServerLocation),
    /// The name of a channel is invalid.
    Name(String),
    /// Two channels are on different servers: the path and server of each.
    Servers(Box<[(String, ServerLocation); 2]>),
    /// The paths of two channels have no common prefix.
    Prefixes([String; 2]),
}

/// The default prefix of channels (setting `push.prefix`).
const PREFIX: &str = "/push/";

impl ChannelsPath {
    /// Parses channels, given by name at `server` or by URL. The path of `server` is the prefix of its channels.
    ///
    ///  # Errors
    /// An invalid name or URL, or channels that cannot share one request.
    pub(crate) fn of<'a>(
        names: impl IntoIterator<Item = &'a str>,
        server: &str,
    ) -> Result<Self, ChannelsError> {
        let default = Location::parse(server)?;
        let prefix = match default.path.as_str() {
            "" | "/" => PREFIX.to_owned(),
            path => format!("{}/", path.trim_end_matches('/')),
        };
        let mut all: Option<Self> = None;
        for name in names {
            // A channel name contains no colon; a URL always does.
            let one = if name.contains(':') {
                Self::at(Location::parse(name)?, name)?
            } else {
                check(name)?;
                let path = format!("{prefix}{name}");
                Self { server: default.server.clone(), path, query: default.query.clone() }
            };
            match &mut all {
                None => all = Some(one),
                Some(all) => all.join(&one, &prefix)?,
            }
        }
        all.ok_or(ChannelsError::Empty)
    }

    fn at(location: Location, text: &str) -> Result<Self, ChannelsError> {
        let Location { server, path, query } = location;
        if path.trim_matches('/').is_empty() || matches!(server, ServerLocation::Unix(_)) {
            return Err(ChannelsError::NoChannel(text.to_owned(), server));
        }
        Ok(Self { server, path, query })
    }

    /// Adds the channels of `other`. One stream has one path, so both must share the prefix.
    fn join(&mut self, other: &Self, prefix: &str) -> Result<(), ChannelsError> {
        if (&self.server, &self.query) != (&other.server, &other.query) {
            let place = |channels: &Self| (channels.path.clone(), channels.server.clone());
            return Err(ChannelsError::Servers(Box::new([place(self), place(other)])));
        }
        let shared = [prefix, PREFIX]
            .into_iter()
            .find_map(|prefix| other.path.strip_prefix(prefix).filter(|_| self.path.starts_with(prefix)));
        match shared {
            Some(names) => {
                self.path.push(',');
                self.path.push_str(names);
                Ok(())
            }
            None => Err(ChannelsError::Prefixes([self.path.clone(), other.path.clone()])),
        }
    }

    /// Returns the request target, with `more` appended to the query.
    pub(crate) fn target(&self, more: &[&str]) -> String {
        let query: Vec<&str> = self.query.as_deref().into_iter().chain(more.iter().copied()).collect();
        if query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, query.join("&")) }
    }
}

/// Rejects names that cannot be part of a path. The server decides whether the name is a valid channel.
fn check(name: &str) -> Result<(), ChannelsError> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-/,".contains(&byte);
    if name.is_empty() || !name.bytes().all(letter) || name.starts_with('/') {
        return Err(ChannelsError::Name(name.to_owned()));
    }
    Ok(())
}

impl fmt::Display for ChannelsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Location(error) => error.fmt(f),
            Self::Empty => f.write_str("a channel is required"),
            Self::NoChannel(text, server) => write!(
                f,
                "`{text}` has no channel: expected a channel such as `news` or http://{}{PREFIX}news (--server specifies \
                 only a server)",
                server.authority()
            ),
            Self::Name(name) => write!(
                f,
                "invalid channel `{name}`: expected letters, digits, `.`, `_`, `~` and `-`, in segments joined by `/`"
            ),
            Self::Servers(both) => {
                let [(one, server), (other, other_server)] = &**both;
                write!(
                    f,
                    "`{one}` is on {server}, `{other}` on {other_server}: a stream has one server, so each needs its own `encke \
                     sub`"
                )
            }
            Self::Prefixes([one, other]) => write!(
                f,
                "`{one}` and `{other}` have no common prefix such as {PREFIX}, so they cannot share a stream"
            ),
        }
    }
}

impl Error for ChannelsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Location(error) => Some(error),
            _ => None,
        }
    }
}

impl From<LocationError> for ChannelsError {
    fn from(error: LocationError) -> Self {
        Self::Location(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str], server: &str) -> Result<(String, String), ChannelsError> {
        let found = ChannelsPath::of(names.iter().copied(), server)?;
        Ok((found.server.to_string(), found.target(&[])))
    }

    #[test]
    fn channels_are_named_by_name_or_by_url() {
        for (names, server, at, target) in [
            (&["news"][..], "8080", "127.0.0.1:8080", "/push/news"),
            (&["chat/lobby"], "http://h:1/", "h:1", "/push/chat/lobby"),
            (&["news"], "http://h:1/live", "h:1", "/live/news"),
            (&["news"], "http://h:1/live/?access_token=t", "h:1", "/live/news?access_token=t"),
            (&["news"], "unix:/s", "unix:/s", "/push/news"),
            (&["a,b"], "8080", "127.0.0.1:8080", "/push/a,b"),
            (&["a", "b/c", "d"], "8080", "127.0.0.1:8080", "/push/a,b/c,d"),
            (&["http://h:1/push/a", "http://h:1/push/b"], "8080", "h:1", "/push/a,b"),
            (&["http://h:1/push/a", "b"], "h:1", "h:1", "/push/a,b"),
            (&["http://h:1/live/a", "b"], "h:1/live", "h:1", "/live/a,b"),
            (&["https://h/push/a", "https://h:443/push/b"], "8080", "h:443", "/push/a,b"),
            (&["h:1/anything/at/all?x=1"], "8080", "h:1", "/anything/at/all?x=1"),
        ] {
            assert_eq!(of(names, server), Ok((at.into(), target.into())), "{names:?} at {server}");
        }
    }

    #[test]
    fn what_is_no_channel_is_refused_with_a_reason() {
        for (names, said) in [
            (&[""][..], "invalid channel"),
            (&["a b"], "invalid channel"),
            (&["/news"], "invalid channel"),
            (&["a?b"], "invalid channel"),
            (&["a\nb"], "invalid channel"),
            (&["http://h:1/"], "has no channel"),
            (&["8080:"], "invalid server address"),
            (&["unix:/s"], "has no channel"),
            (&["http://h:1/push/a", "http://h:2/push/b"], "one server"),
            (&["http://h:1/push/a", "http://h:1/live/b"], "share a stream"),
            (&["https://h:1/push/a", "http://h:1/push/b"], "one server"),
        ] {
            let error = of(names, "8080").expect_err("refused");
            assert!(error.to_string().contains(said), "{names:?}: {error}");
        }
    }

    #[test]
    fn more_is_added_to_the_query() {
        let channels = ChannelsPath::of(["h:1/push/a?x=1"], "8080").expect("a URL");
        assert_eq!(channels.target(&["since=all", "envelope"]), "/push/a?x=1&since=all&envelope");
        let channels = ChannelsPath::of(["a"], "8080").expect("a name");
        assert_eq!(channels.target(&["envelope"]), "/push/a?envelope");
    }
}
