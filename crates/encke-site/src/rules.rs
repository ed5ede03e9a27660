//! The rules of a site: its settings, checked and compiled, so that they are valid from then on.
//!
//! Rules are applied when a name is looked up, never when a cached response is sent: their result is part of the cached
//! response.

use std::path::{Path, PathBuf};

use encke_io::files::Links;
use encke_wire::field;
use encke_wire::target::encode_path;
use encke_wire::type_pattern;

use super::error::{RuleError, SiteKeyError};
use super::settings::{Alias, HeaderRule, Redirect, SiteTable, Symlinks, TagSource};
use encke_server::Fields;
use encke_wire::path_pattern::{PathPattern, STARS_MAX};

/// The compiled rules of one site.
#[derive(Debug)]
pub(super) struct RuleSet {
    /// The directories of files: aliases with the longest path first, then the root.
    pub(super) places: Vec<PathMapping>,
    pub(super) index: Vec<String>,
    pub(super) list: bool,
    pub(super) spa: bool,
    pub(super) spa_dots: bool,
    pub(super) spa_wildcards: bool,
    pub(super) etag: TagSource,
    pub(super) hidden: bool,
    pub(super) links: Links,
    /// Whether compressed siblings of files are served.
    pub(super) siblings: bool,
    pub(super) compression: CompressionRules,
    /// The lifetime of cached responses without notifications of changes, in ns.
    pub(super) revalidate_ns: u64,
    cache: Vec<(PathPattern, String)>,
    headers: Vec<(PathPattern, Vec<(String, String)>)>,
    /// Strict-Transport-Security, for responses over TLS.
    hsts: Option<Fields>,
    redirects: Vec<(PathPattern, RedirectTarget, u16)>,
    paths: Vec<(PathPattern, Special)>,
    /// Statuses and the paths of their pages.
    errors: Vec<(u16, String)>,
}

/// A directory or file, and its path in URLs.
#[derive(Debug)]
pub(super) struct PathMapping {
    /// The path. It begins with a slash, and ends with one for a directory.
    pub(super) prefix: String,
    /// The directory, or the directory that contains the file.
    pub(super) folder: PathBuf,
    /// The name of the file, if this is a single file.
    pub(super) file: Option<String>,
    /// The index of its alias in the settings; `None` for the root.
    pub(super) setting: Option<usize>,
}

/// The conditions for compression on the fly.
#[derive(Debug)]
pub(super) struct CompressionRules {
    pub(super) on_the_fly: bool,
    pub(super) min: u64,
    pub(super) max: u64,
    types: Vec<String>,
}

/// The rules for one path.
#[derive(Debug, Default)]
pub(super) struct PathPolicy {
    pub(super) special: Special,
    /// The value of Cache-Control.
    pub(super) cache_control: Option<String>,
    /// The fields of every response.
    pub(super) fields: Fields,
    /// Names of fields that rules remove.
    pub(super) removed: Vec<String>,
    /// Whether to omit X-Content-Type-Options.
    pub(super) sniffable: bool,
}

/// Properties of a path that rules may change; `None` leaves the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Special {
    pub(super) status: Option<u16>,
    pub(super) content_type: Option<String>,
    pub(super) list: Option<bool>,
    pub(super) compress: Option<bool>,
    pub(super) download: Option<bool>,
}

impl RuleSet {
    /// Checks and compiles the settings of a site. Reads the file system only to tell directories from files.
    ///
    /// # Errors
    /// The first invalid key.
    pub(super) fn of<R>(settings: &SiteTable<R>) -> Result<Self, SiteKeyError> {
        let mut places =
            settings.aliases.iter().enumerate().map(PathMapping::of).collect::<Result<Vec<_>, _>>()?;
        places.sort_by_key(|place| std::cmp::Reverse(place.prefix.len()));
        places.push(PathMapping {
            prefix: "/".into(),
            folder: settings.root.clone(),
            file: None,
            setting: None,
        });
        for name in &settings.index {
            if name.is_empty() || name.contains(['/', '\\', '\0']) {
                return Err(("index", RuleError::FileName(name.clone())));
            }
        }
        let compression = CompressionRules {
            on_the_fly: settings.compression.on_the_fly,
            min: settings.compression.min.bytes(),
            max: settings.compression.max.bytes(),
            types: settings.compression.types.clone(),
        };
        let cache = |rule: &super::settings::CacheRule| {
            check_value("cache", "Cache-Control", &rule.cache_control)?;
            Ok((pattern("cache", &rule.pattern)?, rule.cache_control.clone()))
        };
        Ok(Self {
            places,
            index: settings.index.clone(),
            list: settings.list,
            spa: settings.spa,
            spa_dots: settings.spa_dots,
            spa_wildcards: settings.spa_wildcards,
            etag: settings.etag,
            hidden: settings.hidden,
            links: match settings.symlinks {
                Symlinks::Beneath => Links::Beneath,
                Symlinks::Deny => Links::Deny,
                Symlinks::Follow => Links::Follow,
            },
            siblings: settings.compression.siblings,
            compression,
            revalidate_ns: settings.open_files.revalidate.nanoseconds(),
            cache: settings.cache.iter().map(cache).collect::<Result<_, SiteKeyError>>()?,
            headers: settings.headers.iter().map(header_rule).collect::<Result<_, _>>()?,
            hsts: settings.hsts.as_deref().map(strict_transport).transpose()?,
            redirects: settings.redirects.iter().map(redirect).collect::<Result<_, _>>()?,
            paths: settings.paths.iter().map(path_rule).collect::<Result<_, _>>()?,
            errors: settings.errors.iter().map(error_page).collect::<Result<_, _>>()?,
        })
    }

    /// Strict-Transport-Security, for a response over TLS.
    pub(super) const fn hsts(&self) -> Option<&Fields> {
        self.hsts.as_ref()
    }

    /// The rules for a decoded path.
    pub(super) fn policy(&self, path: &str) -> PathPolicy {
        let mut policy = PathPolicy::default();
        if let Some((_, value)) = self.cache.iter().rev().find(|(pattern, _)| pattern.matches(path)) {
            policy.cache_control = Some(value.clone());
        }
        for (_, special) in self.paths.iter().filter(|(pattern, _)| pattern.matches(path)) {
            policy.special.overlay(special);
        }
        let mut fields: Vec<(&str, &str)> = Vec::new();
        for (name, value) in
            self.headers.iter().filter(|(pattern, _)| pattern.matches(path)).flat_map(|(_, set)| set)
        {
            fields.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
            fields.push((name, value));
        }
        for (name, value) in fields {
            policy.sniffable |= name.eq_ignore_ascii_case("x-content-type-options");
            if value.is_empty() {
                policy.removed.push(name.to_owned());
            } else {
                policy.fields.push(name, value.as_bytes()).expect("names and values were checked at start");
            }
        }
        policy
    }

    /// Whether a listing may contain a decoded path: it is neither hidden nor refused.
    pub(super) fn shows(&self, path: &str) -> bool {
        let refused =
            |(pattern, special): &(PathPattern, Special)| special.status.is_some() && pattern.matches(path);
        !self.is_hidden(path) && !self.paths.iter().any(refused)
    }

    /// The redirect of a decoded path: its status, its target without the query, and whether the query of the request is
    /// appended.
    pub(super) fn moved(&self, path: &str) -> Option<(u16, String, bool)> {
        self.redirects.iter().find_map(|(pattern, template, status)| {
            let captures = pattern.captures(path)?;
            Some((*status, template.filled(path, &captures), template.keeps_query))
        })
    }

    /// The weight of the redirect's pattern for a decoded path.
    pub(super) fn redirect_weight(&self, path: &str) -> Option<usize> {
        self.redirects
            .iter()
            .find(|(pattern, ..)| pattern.matches(path))
            .map(|(pattern, ..)| pattern.weight())
    }

    /// Whether the rules reject all requests for a decoded path.
    pub(super) fn rejects(&self, path: &str) -> bool {
        self.paths.iter().any(|(pattern, special)| special.status.is_some() && pattern.matches(path))
    }

    /// Whether some rule concerns other responses than files.
    pub(super) fn concern_all_responses(&self) -> bool {
        !self.redirects.is_empty()
            || !self.headers.is_empty()
            || self.hsts.is_some()
            || self.paths.iter().any(|(_, special)| special.status.is_some())
    }

    /// A path that a redirect matches first. `None` if an earlier rule matches it.
    pub(super) fn redirect_sample(&self, number: usize) -> Option<String> {
        let sample = self.redirects.get(number)?.0.sample();
        let first = self.redirects.iter().position(|(pattern, ..)| pattern.matches(&sample));
        (first == Some(number)).then_some(sample)
    }

    /// The place of a decoded path, as an index of `places`, and the path's name below it. `None` if the path is that of an
    /// aliased directory without the trailing slash.
    pub(super) fn place<'a>(&'a self, path: &'a str) -> Option<(usize, &'a str)> {
        for (number, place) in self.places.iter().enumerate() {
            match &place.file {
                Some(file) if path == place.prefix => return Some((number, file)),
                None if path.starts_with(place.prefix.as_str()) => {
                    return Some((number, &path[place.prefix.len()..]));
                }
                None if place.prefix.strip_suffix('/') == Some(path) => return None,
                _ => {}
            }
        }
        None
    }

    /// The rules that apply to a decoded path, in order: the key, the index in its list, and the rule with its effect.
    pub(super) fn explain(&self, path: &str) -> Vec<(&'static str, Option<usize>, String)> {
        let matching = |(_, pattern): &(usize, &PathPattern)| pattern.matches(path);
        if let Some(place) = self.redirects.iter().position(|(pattern, ..)| pattern.matches(path)) {
            let moved = self.moved(path).map(|(status, target, _)| format!("redirect {status} to {target}"));
            return vec![("redirects", Some(place), moved.unwrap_or_default())];
        }
        let mut steps = Vec::new();
        let paths = self.paths.iter().map(|(pattern, _)| pattern).enumerate();
        for (place, pattern) in paths.filter(matching) {
            let status = self.paths[place].1.status.map_or_else(String::new, |status| format!(": {status}"));
            steps.push(("paths", Some(place), format!("rule for {pattern}{status}")));
        }
        if self.policy(path).special.status.is_some() {
            return steps;
        }
        if self.is_hidden(path) {
            steps.push(("hidden", None, "a hidden name: 404".to_owned()));
            return steps;
        }
        let lies = self.place(path).and_then(|(number, _)| self.places.get(number));
        steps.push(match lies {
            Some(place) => {
                let key = if place.setting.is_some() { "aliases" } else { "root" };
                (key, place.setting, format!("{} from {}", place.prefix, place.folder.display()))
            }
            None => ("aliases", None, "redirect 301 to the path with a slash".to_owned()),
        });
        let headers = self.headers.iter().map(|(pattern, _)| pattern).enumerate();
        for (place, pattern) in headers.filter(matching) {
            steps.push(("headers", Some(place), format!("fields for {pattern}")));
        }
        let cache = self.cache.iter().map(|(pattern, _)| pattern).enumerate();
        // The last matching rule applies.
        if let Some((place, pattern)) = cache.rev().find(matching) {
            steps.push((
                "cache",
                Some(place),
                format!("Cache-Control for {pattern}: {}", self.cache[place].1),
            ));
        }
        steps
    }

    /// The path of the page for an error status.
    pub(super) fn error_page(&self, status: u16) -> Option<&str> {
        self.errors.iter().find(|(page, _)| *page == status).map(|(_, path)| path.as_str())
    }

    /// Whether a path is hidden: a segment begins with a dot, except the first segment of `/.well-known/`.
    pub(super) fn is_hidden(&self, path: &str) -> bool {
        let shown = path.strip_prefix("/.well-known/").unwrap_or(path);
        !self.hidden && shown.split('/').any(|segment| segment.starts_with('.'))
    }
}

impl CompressionRules {
    /// Whether files of this media type (without parameters) are compressed on the fly.
    pub(super) fn has_type(&self, media_type: &str) -> bool {
        self.types.iter().any(|listed| type_pattern::matches(listed, media_type.as_bytes()))
    }
}

impl Special {
    fn overlay(&mut self, over: &Self) {
        let Self { status, content_type, list, compress, download } = over.clone();
        self.status = status.or(self.status);
        self.content_type = content_type.or_else(|| self.content_type.take());
        self.list = list.or(self.list);
        self.compress = compress.or(self.compress);
        self.download = download.or(self.download);
    }
}

impl PathMapping {
    fn of((number, alias): (usize, &Alias)) -> Result<Self, SiteKeyError> {
        let setting = Some(number);
        let wrong = |error| ("aliases", error);
        if !alias.path.starts_with('/') || alias.path.contains("//") {
            return Err(wrong(RuleError::AliasPath(alias.path.clone())));
        }
        let metadata = std::fs::metadata(&alias.to)
            .map_err(|error| wrong(RuleError::Unreadable(alias.to.clone(), error)))?;
        if metadata.is_dir() {
            let prefix = format!("{}/", alias.path.trim_end_matches('/'));
            return Ok(Self { prefix, folder: alias.to.clone(), file: None, setting });
        }
        if alias.path.ends_with('/') {
            return Err(wrong(RuleError::AliasSlash(alias.to.clone())));
        }
        let name = alias.to.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| wrong(RuleError::NotUtf8(alias.to.clone())))?;
        let folder = alias.to.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).to_path_buf();
        Ok(Self { prefix: alias.path.clone(), folder, file: Some(name.to_owned()), setting })
    }
}

/// Checks a value of `hsts` (RFC 6797 §6.1), which may have the directives that browsers know, each once. Returns its field.
fn strict_transport(value: &str) -> Result<Fields, SiteKeyError> {
    let wrong = |error| Err(("hsts", error));
    check_value("hsts", "Strict-Transport-Security", value)?;
    let mut seen: Vec<String> = Vec::new();
    for directive in value.split(';').map(str::trim) {
        let (name, argument) = match directive.split_once('=') {
            Some((name, argument)) => (name.trim_end(), Some(argument.trim_start())),
            None => (directive, None),
        };
        let name = name.to_ascii_lowercase();
        let known = match (name.as_str(), argument) {
            ("max-age", Some(seconds)) => {
                !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit())
            }
            ("includesubdomains" | "preload", None) => true,
            _ => false,
        };
        if !known {
            return wrong(RuleError::HstsDirective(directive.to_owned()));
        }
        if seen.contains(&name) {
            return wrong(RuleError::HstsRepeated(name));
        }
        seen.push(name);
    }
    if !seen.iter().any(|name| name == "max-age") {
        return wrong(RuleError::HstsMaxAge);
    }
    let mut fields = Fields::new();
    fields.push("Strict-Transport-Security", value.as_bytes()).expect("checked above");
    Ok(fields)
}

/// The target of a redirect: text with captures in between.
#[derive(Debug)]
struct RedirectTarget {
    pieces: Vec<RedirectPiece>,
    keeps_query: bool,
}

#[derive(Debug)]
enum RedirectPiece {
    Text(String),
    /// The index of a capture.
    Capture(usize),
}

impl RedirectTarget {
    fn parse(text: &str, stars: usize) -> Result<Self, RuleError> {
        // The start of the path: no capture may precede it, or a request could choose the host.
        let path_at = match text.split_once("://") {
            Some((scheme @ ("http" | "https"), rest)) => {
                scheme.len() + 3 + rest.find(['/', '?', '#']).unwrap_or(rest.len())
            }
            _ if text.starts_with('/') && !text.starts_with("//") => 0,
            _ => return Err(RuleError::Target(text.to_owned())),
        };
        if let Some(byte) =
            text.bytes().find(|byte| !byte.is_ascii_graphic() || b"\\<>\"`{}^|".contains(byte))
        {
            return Err(RuleError::TargetByte(text.to_owned(), byte));
        }
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            literal.push_str(&rest[..at]);
            let digit =
                rest[at + 1..].chars().next().and_then(|digit| digit.to_digit(10)).unwrap_or(0) as usize;
            if digit == 0 || digit > STARS_MAX {
                return Err(RuleError::TargetDollar(text.to_owned()));
            }
            if digit > stars {
                return Err(RuleError::TargetCapture { text: text.to_owned(), capture: digit, stars });
            }
            if text.len() - rest.len() + at <= path_at && path_at > 0 {
                return Err(RuleError::TargetHost { text: text.to_owned(), capture: digit });
            }
            pieces.push(RedirectPiece::Text(std::mem::take(&mut literal)));
            pieces.push(RedirectPiece::Capture(digit - 1));
            rest = &rest[at + 2..];
        }
        literal.push_str(rest);
        pieces.push(RedirectPiece::Text(literal));
        Ok(Self { pieces, keeps_query: !text.contains(['?', '#']) })
    }

    /// Fills in the captures of `path`, escaped. A target that begins with a slash never begins with two, which would name a
    /// host.
    fn filled(&self, path: &str, captures: &[std::ops::Range<usize>]) -> String {
        let mut target = String::new();
        for piece in &self.pieces {
            match piece {
                RedirectPiece::Text(text) => target.push_str(text),
                RedirectPiece::Capture(number) => encode_path(&path[captures[*number].clone()], &mut target),
            }
        }
        if target.starts_with('/') {
            let host_like = target.len() - target.trim_start_matches('/').len();
            target.drain(1..host_like);
        }
        target
    }
}

fn pattern(key: &'static str, text: &str) -> Result<PathPattern, SiteKeyError> {
    PathPattern::parse(text).map_err(|error| (key, RuleError::Pattern(text.to_owned(), error)))
}

fn redirect(rule: &Redirect) -> Result<(PathPattern, RedirectTarget, u16), SiteKeyError> {
    let from = pattern("redirects", &rule.from)?;
    let template = RedirectTarget::parse(&rule.to, from.stars()).map_err(|error| ("redirects", error))?;
    if !matches!(rule.status, 301 | 302 | 303 | 307 | 308) {
        return Err(("redirects", RuleError::RedirectStatus(rule.status)));
    }
    Ok((from, template, rule.status))
}

fn header_rule(rule: &HeaderRule) -> Result<(PathPattern, Vec<(String, String)>), SiteKeyError> {
    for (name, value) in &rule.set {
        if !field::is_token(name.as_bytes()) {
            return Err(("headers", RuleError::FieldName(name.clone())));
        }
        let lower = name.to_ascii_lowercase();
        if let Some((_, instead)) = RESERVED.iter().find(|(reserved, _)| *reserved == lower) {
            return Err(("headers", RuleError::ReservedField { name: name.clone(), instead }));
        }
        check_value("headers", name, value)?;
    }
    let set = rule.set.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    Ok((pattern("headers", &rule.pattern)?, set))
}

fn path_rule(rule: &super::settings::PathRule) -> Result<(PathPattern, Special), SiteKeyError> {
    if let Some(status) = rule.status
        && !(400..500).contains(&status)
    {
        return Err(("paths", RuleError::RefusalStatus(status)));
    }
    if let Some(media_type) = &rule.content_type {
        check_value("paths", "content_type", media_type)?;
    }
    let special = Special {
        status: rule.status,
        content_type: rule.content_type.clone(),
        list: rule.list,
        compress: rule.compress,
        download: rule.download,
    };
    Ok((pattern("paths", &rule.pattern)?, special))
}

fn error_page((status, path): (&String, &String)) -> Result<(u16, String), SiteKeyError> {
    let number = status.parse().ok().filter(|number| (400..600).contains(number));
    let number = number.ok_or_else(|| ("errors", RuleError::ErrorStatus(status.clone())))?;
    if !path.starts_with('/') || path.ends_with('/') {
        return Err(("errors", RuleError::ErrorPage(path.clone())));
    }
    Ok((number, path.clone()))
}

fn check_value(key: &'static str, name: &str, value: &str) -> Result<(), SiteKeyError> {
    if field::is_field_value(value.as_bytes()) {
        Ok(())
    } else {
        Err((key, RuleError::ControlCharacter(name.to_owned())))
    }
}

/// Fields that no rule may set, and the alternative.
const RESERVED: [(&str, &str); 16] = [
    ("cache-control", "use `cache`"),
    ("content-type", "use `content_type` in `paths`"),
    ("content-disposition", "use `download` in `paths`"),
    ("content-length", "Encke knows it"),
    ("content-range", "Encke knows it"),
    ("content-encoding", "use `compression`"),
    ("transfer-encoding", "it belongs to the connection"),
    ("connection", "it belongs to the connection"),
    ("keep-alive", "it belongs to the connection"),
    ("upgrade", "it belongs to the connection"),
    ("trailer", "it belongs to the connection"),
    ("date", "Encke knows it"),
    ("etag", "Encke knows it"),
    ("last-modified", "Encke knows it"),
    ("accept-ranges", "Encke knows it"),
    ("location", "use `redirects`"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Result<RuleSet, String> {
        let settings: crate::SiteSettings = toml::from_str(text).expect("well-formed settings");
        RuleSet::of(&settings).map_err(|(key, error)| format!("{key}: {error}"))
    }

    fn moved(to: &str, path: &str) -> String {
        let rules = rules(&format!("redirects = [{{ from = \"/x**\", to = \"{to}\" }}]")).expect("valid");
        rules.moved(path).expect("it has moved").1
    }

    #[test]
    fn a_redirect_takes_what_the_stars_stood_for_along() {
        assert_eq!(moved("/new/$1", "/xa/b"), "/new/a/b");
        assert_eq!(moved("https://example.org/$1?x=$1", "/xa"), "https://example.org/a?x=a");
        assert_eq!(moved("/costs%24$1", "/x5"), "/costs%245");
        assert_eq!(moved("/n/$1", "/x\"<é&;"), "/n/%22%3C%C3%A9%26%3B");
    }

    #[test]
    fn a_redirect_cannot_be_made_to_lead_to_another_host() {
        assert_eq!(moved("/$1", "/x/evil.example/"), "/evil.example/");
        assert_eq!(moved("/$1", "/x//evil.example"), "/evil.example");
        assert_eq!(moved("/$1", "/x\\evil.example"), "/%5Cevil.example");
        assert_eq!(moved("/$1", "/x\r\nSet-Cookie: a=b"), "/%0D%0ASet-Cookie:%20a=b");
        for to in
            ["https://$1/", "https://example.org$1", "https://a.$1.org/", "//$1", "$1", "javascript:$1", ""]
        {
            let text = format!("redirects = [{{ from = \"/x**\", to = \"{to}\" }}]");
            assert!(rules(&text).is_err_and(|error| error.starts_with("redirects")), "{to}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_to_write_instead() {
        for (text, says) in [
            ("redirects = [{ from = \"/a\", to = \"/$1\" }]", "has 0 stars"),
            ("redirects = [{ from = \"/a\", to = \"/b\", status = 200 }]", "200 is no redirect"),
            ("redirects = [{ from = \"/a\", to = \"/b c\" }]", "%20"),
            ("redirects = [{ from = \"/a*\", to = \"/$\" }]", "%24"),
            ("headers = [{ pattern = \"/\", set = { \"Content-Length\" = \"5\" } }]", "Encke knows it"),
            ("headers = [{ pattern = \"/\", set = { \"cache-control\" = \"x\" } }]", "use `cache`"),
            ("headers = [{ pattern = \"/\", set = { \"a b\" = \"x\" } }]", "not the name of a field"),
            ("headers = [{ pattern = \"/\", set = { \"a\" = \"x\\r\\ny\" } }]", "control character"),
            ("headers = [{ pattern = \"x\", set = {} }]", "begins with a slash"),
            ("errors = { 200 = \"/x\" }", "no status of an error"),
            ("errors = { 404 = \"x.html\" }", "write it like /404.html"),
            ("index = [\"../x\"]", "not the name of a file"),
            ("aliases = [{ path = \"x\", to = \".\" }]", "write it like /docs/"),
            ("aliases = [{ path = \"/x\", to = \"./no-such-thing\" }]", "cannot be read"),
            ("aliases = [{ path = \"/x/\", to = \"Cargo.toml\" }]", "is a file"),
            ("paths = [{ pattern = \"/x\", status = 200 }]", "no status to refuse with"),
            ("hsts = \"\"", "max-age=SECONDS"),
            ("hsts = \"includeSubDomains\"", "max-age is missing"),
            ("hsts = \"max-age\"", "browsers do not know"),
            ("hsts = \"max-age=1d\"", "browsers do not know"),
            ("hsts = \"max-age=1; max-age=2\"", "is repeated"),
            ("hsts = \"max-age=1; includeSubdomain\"", "browsers do not know"),
            ("hsts = \"max-age=1\\n; preload\"", "control character"),
        ] {
            let error = rules(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn later_rules_win_and_an_empty_value_takes_a_field_away() {
        let rules = rules(
            r#"
            cache = [{ pattern = "/**", cache_control = "a" }, { pattern = "/x/**", cache_control = "b" }]
            headers = [
                { pattern = "/**", set = { "X-A" = "1", "X-B" = "1" } },
                { pattern = "/x/**", set = { "x-a" = "2", "X-B" = "", "X-Content-Type-Options" = "" } },
            ]
            paths = [{ pattern = "/x/**", list = true, compress = false }, { pattern = "/x/y", list = false }]
            "#,
        )
        .expect("valid");
        let policy = rules.policy("/");
        assert_eq!(policy.cache_control.as_deref(), Some("a"));
        assert_eq!(policy.fields.value("X-B"), Some(&b"1"[..]));
        assert_eq!(policy.special, Special::default());
        let policy = rules.policy("/x/y");
        assert_eq!(policy.cache_control.as_deref(), Some("b"));
        assert_eq!(policy.fields.iter().collect::<Vec<_>>(), [(&b"x-a"[..], &b"2"[..])]);
        assert!(policy.sniffable);
        assert_eq!((policy.special.list, policy.special.compress), (Some(false), Some(false)));
    }

    #[test]
    fn the_longest_alias_that_matches_whole_segments_counts() {
        let rules = rules(
            r#"aliases = [{ path = "/d", to = "." }, { path = "/d/e/", to = "." }, { path = "/f", to = "Cargo.toml" }]"#,
        )
        .expect("valid");
        let prefix =
            |path| rules.place(path).map(|(place, name)| (rules.places[place].prefix.as_str(), name));
        assert_eq!(prefix("/d/x"), Some(("/d/", "x")));
        assert_eq!(prefix("/d/e/x"), Some(("/d/e/", "x")));
        assert_eq!(prefix("/dx"), Some(("/", "dx")));
        assert_eq!(prefix("/d"), None, "the folder lacks its slash");
        assert_eq!(prefix("/f"), Some(("/f", "Cargo.toml")));
        assert_eq!(prefix("/f/x"), Some(("/", "f/x")));
        assert_eq!(prefix("/"), Some(("/", "")));
    }

    #[test]
    fn dotfiles_are_hidden_but_for_well_known() {
        let rules = rules("").expect("valid");
        for (path, hidden) in [
            ("/a", false),
            ("/.env", true),
            ("/a/.git/config", true),
            ("/.well-known/x", false),
            ("/.well-known/.secret", true),
            ("/a/.well-known/x", true),
            ("/.well-known", true),
            ("/..a", true),
            ("/a.b", false),
        ] {
            assert_eq!(rules.is_hidden(path), hidden, "{path}");
        }
        assert!(!RuleSet { hidden: true, ..rules }.is_hidden("/.env"));
    }
}
