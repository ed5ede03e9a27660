//! URLs of streams on other servers.

use encke_settings::{Secret, TargetUrl};

use crate::settings::PullSettings;

/// The URL of a stream on another server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PullUrl {
    pub(crate) target: TargetUrl,
    /// Path and query.
    pub(crate) path: String,
    /// The token that the server requires.
    pub(crate) token: Option<Secret>,
}

impl PullUrl {
    /// Returns the URL of a stream, with the token of the settings.
    pub(crate) fn of(pull: &PullSettings, name: &str) -> Option<Self> {
        Some(Self { token: pull.token.clone(), ..Self::parse(&pull.url, name)? })
    }

    /// Returns the URL that this one redirects to. The token is only for its own server.
    pub(crate) fn redirected(&self, to: Self) -> Self {
        let token = self.token.clone().filter(|_| to.target == self.target);
        Self { token, ..to }
    }

    /// Parses a URL. One that ends with a slash gets the name of the stream.
    pub(crate) fn parse(text: &str, name: &str) -> Option<Self> {
        let (scheme, rest) =
            text.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"))?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let target = format!("{scheme}://{authority}").parse().ok()?;
        let path = if path.is_empty() { "/" } else { path };
        let is_plain = path.bytes().all(|byte| (0x21..0x7f).contains(&byte) && byte != b'#');
        let path = if path.ends_with('/') { format!("{path}{name}") } else { path.to_owned() };
        is_plain.then_some(Self { target, path, token: None })
    }
}

/// The URL for logs, errors and lists: without its query, which may have a token.
impl std::fmt::Display for PullUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.split('?').next().unwrap_or_default();
        write!(f, "{}{path}", self.target)
    }
}

/// As displayed: the query and the token are secrets.
impl std::fmt::Debug for PullUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_ends_with_a_slash_gets_the_name_of_the_stream() {
        let parse = |text: &str| PullUrl::parse(text, "a/film").map(|url| url.to_string());
        assert_eq!(parse("http://node-a:8080/live/"), Some("http://node-a:8080/live/a/film".into()));
        assert_eq!(parse("http://node-a"), Some("http://node-a:80/a/film".into()));
        assert_eq!(parse("https://node-a/live/"), Some("https://node-a:443/live/a/film".into()));
        for wrong in ["node-a/live/film", "http:///film", "https:///film", "http://node-a/li ve", "ftp://a/b"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_query_is_requested_and_not_shown() {
        let url = PullUrl::parse("http://node-a/live/film?access_token=secret", "film").expect("a URL");
        assert_eq!(url.path, "/live/film?access_token=secret");
        assert_eq!([url.to_string(), format!("{url:?}")], ["http://node-a:80/live/film"; 2]);
    }

    #[test]
    fn a_redirection_takes_the_token_to_no_other_server() {
        let token = Some(Secret::Text("secret".into()));
        let url =
            PullUrl::of(&PullSettings { url: "https://node-a/live/".into(), token: token.clone() }, "film");
        let url = url.expect("a URL");
        assert_eq!(url.token, token);
        for (to, has_token) in [
            ("https://node-a/other/film", true),
            ("https://node-a:443/film", true),
            ("http://node-a/live/film", false),
            ("https://node-a:8443/live/film", false),
            ("https://node-b/live/film", false),
        ] {
            let redirected = url.redirected(PullUrl::parse(to, "").expect("a URL"));
            assert_eq!(redirected.token.is_some(), has_token, "{to}");
        }
    }
}
