//! The routes of all sites, compiled from the settings: which application, or which files, serve a request.

use std::cmp::Reverse;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use encke_settings::ByteSize;
use encke_wire::host_map::HostMap;
use encke_wire::path_pattern::{Captures, PathPattern};
use encke_wire::target::{decode_path, encode_target_path};

use crate::field_changes::FieldChanges;
use crate::response_coding::ResponseCompression;
use crate::script::names_script;
use crate::settings::FilesOrder;
use crate::site_rules::{SiteFields, SitePolicy};

/// A compiled route.
pub(crate) struct SiteRoute {
    pub(crate) pattern: PathPattern,
    /// Index among the routes of the site in the settings.
    pub(crate) number: usize,
    /// Index of the upstream; `None`: the files of the site.
    pub(crate) upstream: Option<usize>,
    /// The front script of a PHP route.
    pub(crate) php: Option<Arc<str>>,
    /// The directory of the site's files.
    pub(crate) root: Option<Arc<Path>>,
    /// Whether links below it may lead to scripts.
    pub(crate) follows_links: bool,
    /// Whether a route of the site runs PHP, so that no route sends a script as a file.
    pub(crate) hides_scripts: bool,
    pub(crate) files: Option<FilesOrder>,
    pub(crate) path: PathChange,
    pub(crate) internal: bool,
    /// Directories from which the application may send files, each with the host name under which it is served here.
    pub(crate) sendfile: Vec<(PathBuf, Arc<str>)>,
    /// Paths of channels to which the application may subscribe its clients.
    pub(crate) subscribe: Vec<PathPattern>,
    pub(crate) body_bytes: u64,
    /// Bytes of a body that are read before the application gets the request.
    pub(crate) buffer: u64,
    pub(crate) intercept_errors: bool,
    pub(crate) request: FieldChanges,
    pub(crate) response: FieldChanges,
    /// Paths of the site's error pages, by status.
    pub(crate) errors: Arc<[(u16, String)]>,
    /// The compression of responses; `None`: they are sent as they are.
    pub(crate) compression: Option<Arc<ResponseCompression>>,
    /// The rules of the site; `None` if they concern no route.
    pub(crate) rules: Option<Arc<dyn SitePolicy>>,
}

/// A change of the path.
#[derive(Clone, Debug)]
pub(crate) enum PathChange {
    None,
    Strip(String),
    Rewrite(Rewrite),
}

/// A path with captures: `/v2/$1`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rewrite {
    parts: Vec<RewritePart>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum RewritePart {
    Text(String),
    Capture(usize),
}

/// Why a text is no path that replaces another one. The origin is the settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RewriteError {
    NotAbsolute(String),
    /// A dollar sign without a number from 1 to 8.
    Dollar(String),
    /// A variable of another program: `$uri`.
    Variable(String, String),
    /// A character that has a meaning elsewhere: a query, or a value in braces.
    Character(String, char),
    /// The number of a capture that the pattern lacks, and the number of its stars.
    Capture(usize, usize),
}

impl fmt::Display for RewriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAbsolute(text) => write!(f, "{text:?} is no path: it must begin with a slash"),
            Self::Dollar(text) => write!(f, "{text:?}: a number from 1 to 8 must follow the dollar sign"),
            Self::Variable(text, name) => write!(
                f,
                "{text:?}: there are no variables such as ${name}; $1 to $8 are the texts that the stars of the pattern matched"
            ),
            Self::Character(text, '?') => write!(
                f,
                "{text:?}: a path without a query, because the query of the request is kept: omit everything from `?`"
            ),
            Self::Character(text, letter) => write!(
                f,
                "{text:?}: `{letter}` has no meaning in a path; $1 to $8 are the texts that the stars of the pattern matched"
            ),
            Self::Capture(number, stars) => {
                write!(f, "there is no ${number}: the pattern has {stars} stars")
            }
        }
    }
}

impl std::error::Error for RewriteError {}

impl Rewrite {
    /// Parses a path for requests that `pattern` matches.
    ///
    /// # Errors
    /// See [`RewriteError`].
    pub(crate) fn parse(text: &str, pattern: &PathPattern) -> Result<Self, RewriteError> {
        if !text.starts_with('/') {
            return Err(RewriteError::NotAbsolute(text.to_owned()));
        }
        if let Some(letter) = text.chars().find(|letter| matches!(letter, '?' | '#' | '{' | '}')) {
            return Err(RewriteError::Character(text.to_owned(), letter));
        }
        let mut parts = Vec::new();
        let mut pieces = text.split('$');
        parts.push(RewritePart::Text(pieces.next().unwrap_or_default().to_owned()));
        for piece in pieces {
            let number = piece
                .chars()
                .next()
                .and_then(|digit| digit.to_digit(10))
                .filter(|number| (1..=8).contains(number));
            let Some(number) = number.map(|number| number as usize) else {
                let end = piece.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
                let name = &piece[..end.unwrap_or(piece.len())];
                return Err(if name.starts_with(|letter: char| letter.is_ascii_alphabetic()) {
                    RewriteError::Variable(text.to_owned(), name.to_owned())
                } else {
                    RewriteError::Dollar(text.to_owned())
                });
            };
            if number > pattern.stars() {
                return Err(RewriteError::Capture(number, pattern.stars()));
            }
            parts.push(RewritePart::Capture(number - 1));
            parts.push(RewritePart::Text(piece[1..].to_owned()));
        }
        Ok(Self { parts })
    }

    fn apply(&self, path: &str, captures: &Captures) -> String {
        let part = |part: &RewritePart| match part {
            RewritePart::Text(text) => text.clone(),
            RewritePart::Capture(number) => {
                let range = captures.get(*number).cloned().unwrap_or_default();
                path.get(range).unwrap_or_default().to_owned()
            }
        };
        self.parts.iter().map(part).collect()
    }
}

impl SiteRoute {
    /// The escaped path for the application or the files, in place of the request's `path`, which is decoded. `None`: the path
    /// stays as it was sent.
    pub(crate) fn changed_path(&self, path: &str) -> Option<String> {
        let changed = match &self.path {
            PathChange::None => return None,
            PathChange::Strip(prefix) => {
                let rest = path
                    .strip_prefix(prefix.as_str())
                    .filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
                if rest.is_empty() { "/".to_owned() } else { rest.to_owned() }
            }
            PathChange::Rewrite(rewrite) => rewrite.apply(path, &self.pattern.captures(path)?),
        };
        let mut escaped = String::new();
        encode_target_path(&changed, &mut escaped);
        Some(escaped)
    }

    /// The path at which the application may subscribe its clients, in its canonical form, for a path that it has sent; `None` if it
    /// may not.
    pub(crate) fn subscription(&self, path: &str) -> Option<String> {
        if self.subscribe.is_empty() {
            return None;
        }
        let mut decoded = String::new();
        decode_path(path.as_bytes(), &mut decoded).ok()?;
        // A comma separates channels, of which the pattern would see one name.
        if decoded.contains(',') || !self.subscribe.iter().any(|pattern| pattern.matches(&decoded)) {
            return None;
        }
        let mut escaped = String::new();
        encode_target_path(&decoded, &mut escaped);
        Some(escaped)
    }

    /// Whether the site must not send the file at a path, because it could be the source of a script.
    pub(crate) fn hides(&self, path: &str) -> bool {
        self.hides_scripts && names_script(path)
    }

    /// Whether a rule of the site responds to requests for a decoded path in place of this route.
    pub(crate) fn is_overruled(&self, path: &str) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.decides(path, self.pattern.weight()))
    }

    /// The fields that the site gives responses to requests for a decoded path; `None` if there are none.
    pub(crate) fn site_fields(&self, path: &str, secure: bool) -> Option<Box<SiteFields>> {
        self.rules.as_ref()?.fields(path, secure).less(&self.response)
    }

    /// Whether a body of this length in bytes is too long.
    pub(crate) const fn exceeds(&self, bytes: u64) -> bool {
        bytes > self.body_bytes
    }

    /// The path of the site's page for an error.
    pub(crate) fn error_page(&self, status: u16) -> Option<&str> {
        self.errors.iter().find(|(other, _)| *other == status).map(|(_, path)| path.as_str())
    }
}

/// The limit of a body without a setting of the route.
pub(crate) fn body_limit(setting: Option<ByteSize>) -> u64 {
    setting.map_or(u64::MAX, ByteSize::bytes)
}

/// The routes of all sites.
#[derive(Default)]
pub(crate) struct RouteTable {
    pub(crate) hosts: HostMap,
    /// The routes of each site, the most specific first.
    pub(crate) sites: Vec<Vec<Arc<SiteRoute>>>,
    /// Host names under which only the gateway serves files.
    pub(crate) closed_from: u16,
}

/// The result of a look-up in a [`RouteTable`].
pub(crate) enum Found {
    /// No route matches: the files of the site.
    None,
    Route(Arc<SiteRoute>),
    /// Clients may not see this place.
    Closed,
    /// The path could be read in two ways.
    Malformed,
}

impl RouteTable {
    /// Finds the route for a request of a client. `path` is the raw path; the decoded one is left in `decoded`.
    pub(crate) fn find(&self, authority: &[u8], path: &[u8], decoded: &mut String) -> Found {
        match self.find_any(authority, path, decoded) {
            Found::Route(route) if route.internal => Found::Closed,
            found => found,
        }
    }

    /// Finds the route for a path, also an internal one.
    pub(crate) fn find_any(&self, authority: &[u8], path: &[u8], decoded: &mut String) -> Found {
        let Some(site) = self.hosts.site(authority) else { return Found::None };
        if site >= self.closed_from {
            return Found::Closed;
        }
        let Some(routes) = self.sites.get(usize::from(site)).filter(|routes| !routes.is_empty()) else {
            return Found::None;
        };
        if decode_path(path, decoded).is_err() {
            return Found::Malformed;
        }
        match routes.iter().find(|route| route.pattern.matches(decoded)) {
            Some(route) => Found::Route(Arc::clone(route)),
            // A site with PHP sends no script as a file.
            None if names_script(decoded) && routes.iter().any(|route| route.php.is_some()) => Found::Closed,
            None => Found::None,
        }
    }
}

/// The place of a route in the order of attempts, by its pattern. An internal route precedes all others, so that no pattern can
/// open its place to clients; then the number of characters besides stars decides.
pub(crate) fn order(pattern: &str, internal: bool) -> (bool, Reverse<usize>) {
    (!internal, Reverse(pattern.bytes().filter(|byte| *byte != b'*').count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(pattern: &str, path: PathChange) -> SiteRoute {
        SiteRoute {
            pattern: PathPattern::parse(pattern).expect("a pattern"),
            number: 0,
            upstream: None,
            php: None,
            root: None,
            follows_links: true,
            hides_scripts: false,
            files: None,
            path,
            internal: false,
            sendfile: Vec::new(),
            subscribe: Vec::new(),
            body_bytes: u64::MAX,
            buffer: 0,
            intercept_errors: false,
            request: FieldChanges::default(),
            response: FieldChanges::default(),
            errors: Arc::default(),
            compression: None,
            rules: None,
        }
    }

    #[test]
    fn paths_are_stripped_and_rewritten() {
        let strip = route("/api/**", PathChange::Strip("/api".into()));
        for (path, changed) in
            [("/api/a b", Some("/a%20b")), ("/api/", Some("/")), ("/api", Some("/")), ("/apis", None)]
        {
            assert_eq!(strip.changed_path(path).as_deref(), changed, "{path}");
        }
        let pattern = PathPattern::parse("/old/*/**").expect("a pattern");
        let rewrite = Rewrite::parse("/new/$2/by/$1", &pattern).expect("a path");
        let rewrite = route("/old/*/**", PathChange::Rewrite(rewrite));
        assert_eq!(rewrite.changed_path("/old/ann/x/y").as_deref(), Some("/new/x/y/by/ann"));
        assert_eq!(rewrite.changed_path("/other"), None);
        for (text, error) in [
            ("new", RewriteError::NotAbsolute("new".into())),
            ("/$3", RewriteError::Capture(3, 2)),
            ("/$", RewriteError::Dollar("/$".into())),
            ("/$9", RewriteError::Dollar("/$9".into())),
            ("/a$uri/b", RewriteError::Variable("/a$uri/b".into(), "uri".into())),
            ("/a?b=$1", RewriteError::Character("/a?b=$1".into(), '?')),
            ("/a/{1", RewriteError::Character("/a/{1".into(), '{')),
            ("/${1}", RewriteError::Character("/${1}".into(), '{')),
        ] {
            assert_eq!(Rewrite::parse(text, &pattern), Err(error));
        }
    }

    #[test]
    fn the_most_specific_route_of_the_site_applies() {
        let mut hosts = HostMap::default();
        hosts.add(Some("a.example"), 0).expect("free");
        hosts.add(None, 1).expect("free");
        hosts.add(Some("closed.invalid"), 2).expect("free");
        let mut routes: Vec<_> =
            ["/**", "/api/**", "/api/*/x"].map(|pattern| Arc::new(route(pattern, PathChange::None))).into();
        routes.sort_by_key(|route| order(&route.pattern.to_string(), route.internal));
        let table = RouteTable { hosts, sites: vec![routes, Vec::new()], closed_from: 2 };
        let mut decoded = String::new();
        let mut pattern =
            |host: &str, path: &str| match table.find(host.as_bytes(), path.as_bytes(), &mut decoded) {
                Found::None => "none".to_owned(),
                Found::Route(route) => route.pattern.to_string(),
                Found::Closed => "closed".to_owned(),
                Found::Malformed => "malformed".to_owned(),
            };
        assert_eq!(pattern("a.example", "/"), "/**");
        assert_eq!(pattern("A.example:80", "/api/b"), "/api/**");
        assert_eq!(pattern("a.example", "/x/%2e%2e/api/b/x"), "/api/*/x");
        assert_eq!(pattern("a.example", "/a%2fb"), "malformed");
        assert_eq!(pattern("b.example", "/api/b"), "none");
        assert_eq!(pattern("closed.invalid", "/"), "closed");
    }
}
