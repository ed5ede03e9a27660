//! The settings of a site: one `[[site]]` table.
//!
//! These are values as written in the settings file; `rules` checks and compiles them once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use encke_settings::{ByteSize, LogTarget, Period, Section};

/// A site: a directory of files, for some host names or for all.
///
/// ```
/// use encke_settings::Section as _;
/// use encke_site::SiteSettings;
///
/// let settings = SiteSettings { index: vec!["home.html".into()], spa: true, ..SiteSettings::default() };
/// assert!(settings.check().is_empty());
/// let settings = SiteSettings { index: vec!["home/index.html".into()], ..settings };
/// assert_eq!(settings.check()[0].path, ["index"]);
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields, bound(deserialize = "R: Deserialize<'de>", serialize = "R: Serialize"))]
#[schemars(rename = "SiteSettings")]
pub struct SiteTable<R> {
    /// Host names of this site: `"example.org"`, or `"*.example.org"` for every name below it. The most specific name wins. A
    /// site without host names serves all names that no other site has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<String>,
    /// Directory whose files are served. A relative path starts at the directory of the settings file, and so does the default.
    pub root: PathBuf,
    /// Index files of a directory, tried in order.
    pub index: Vec<String>,
    /// Lists a directory that has no index file: as a page, or as JSON if the client requests it.
    pub list: bool,
    /// Responds with the root's index file when a browser navigates to a page that does not exist, for applications that route
    /// in the browser. Requests for a name with an extension, and requests that do not accept HTML, still get 404.
    pub spa: bool,
    /// With `spa`, also responds to names with a dot, such as `/users/j.doe`. A browser that navigates to a missing `/app.js` then
    /// receives the index file, too.
    pub spa_dots: bool,
    /// With `spa`, also responds to requests that accept HTML only by a wildcard (`Accept: */*`), as from programs and crawlers.
    /// With `spa_dots` in addition, a page that does not exist is never a 404, and missing scripts and images become HTML.
    pub spa_wildcards: bool,
    /// Serves names that begin with a dot, too. The names in the requested path count, not the target of a symbolic link.
    /// `/.well-known/` is always served.
    pub hidden: bool,
    /// Treatment of symbolic links below the root.
    pub symlinks: Symlinks,
    /// Values of Cache-Control by path; the last matching rule applies. The default is `no-cache`: clients keep the file and
    /// ask whether it has changed.
    pub cache: Vec<CacheRule>,
    /// Source of the `ETag` of files.
    pub etag: TagSource,
    /// Header fields of responses by path, for files and for responses of applications; of several rules for one field, the last one applies.
    pub headers: Vec<HeaderRule>,
    /// Makes browsers use `https` only: the value of Strict-Transport-Security (RFC 6797), such as `max-age=31536000;
    /// includeSubDomains`. Sent over TLS only. Browsers that received it refuse `http` for that time: begin with `max-age=300`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hsts: Option<String>,
    /// Target of this site's lines of the access log, in place of `log.access`: a file, `stdout` or `off`. Several sites may have
    /// the same file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_log: Option<LogTarget>,
    /// Redirects by path, for all methods; the first matching rule applies. A route with a more specific pattern precedes it.
    pub redirects: Vec<Redirect>,
    /// Paths whose files are in another place; the longest matching path applies.
    pub aliases: Vec<Alias>,
    /// Further rules for some paths; the last matching rule applies.
    pub paths: Vec<PathRule>,
    /// Pages for errors: `404 = "/404.html"`, a path of this site. They replace the default pages for missing and unreadable
    /// files (404, 403), methods that files do not support (405), rejected paths, the `status` of `paths`, access rules (401, 403), and
    /// failed requests to applications (413, 502, 503, 504).
    pub errors: BTreeMap<String, String>,
    /// Compression of responses.
    pub compression: Compression,
    /// Files kept open and in memory. The values of all sites are added up.
    pub open_files: OpenFiles,
    /// Requests that applications serve, or that are served from another path. The most specific pattern applies; all other
    /// requests are for the files of the site.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub route: Vec<R>,
}

/// The settings of a site whose requests are all for files.
pub type SiteSettings = SiteTable<NoRoute>;

/// A type without values, for sites without routes: another crate defines the settings of routes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum NoRoute {}

impl Section for NoRoute {}

impl<R> Default for SiteTable<R> {
    fn default() -> Self {
        Self {
            host: Vec::new(),
            root: PathBuf::from("."),
            index: vec!["index.html".into()],
            list: false,
            spa: false,
            spa_dots: false,
            spa_wildcards: false,
            hidden: false,
            symlinks: Symlinks::Beneath,
            cache: Vec::new(),
            etag: TagSource::Exact,
            headers: Vec::new(),
            hsts: None,
            access_log: None,
            redirects: Vec::new(),
            aliases: Vec::new(),
            paths: Vec::new(),
            errors: BTreeMap::new(),
            compression: Compression::default(),
            open_files: OpenFiles::default(),
            route: Vec::new(),
        }
    }
}

/// Treatment of symbolic links below the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Symlinks {
    /// Follows links to places below the root, by a relative path.
    #[default]
    Beneath,
    /// Follows no link.
    Deny,
    /// Follows every link: anyone able to write below the root can publish every file that Encke can read.
    Follow,
}

/// Source of the `ETag` of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TagSource {
    /// Inode, length and times in nanoseconds: every change has a new tag, and copies of a file on several servers have
    /// different ones.
    #[default]
    Exact,
    /// Modification time in whole seconds and length, in nginx's format: equal on all servers with copies that keep the time
    /// (`rsync -t`, tar, images of containers). New content with the same length and time keeps the tag.
    Portable,
}

/// Cache-Control of some paths.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheRule {
    /// Paths, such as `/assets/**` or `/**/*.woff2`: `*` matches a part of one segment, `**` any number of segments. All other
    /// characters match themselves; there are no regular expressions.
    pub pattern: String,
    /// The value of Cache-Control, such as `public, max-age=31536000, immutable`.
    pub cache_control: String,
}

/// Header fields of some paths.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeaderRule {
    /// Paths, as in `cache`. The rule also applies to errors, redirects and routes of these paths.
    pub pattern: String,
    /// Names and values, which replace fields of applications. An empty value removes a field that an earlier rule, an application
    /// or Encke itself has set. A change by `response` of the route precedes this one.
    pub set: BTreeMap<String, String>,
}

/// A redirect.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Redirect {
    /// Paths, as in `cache`: `/old/*`.
    pub from: String,
    /// A path of this site or a complete URL, with `$1` … `$8` for the texts that the stars matched: `/new/$1`. The host may
    /// not contain them, because otherwise an attacker could craft a link to this site that leads to another one. The query is
    /// kept unless this value has one.
    pub to: String,
    /// 301 or 308 for permanent, 302 or 307 for temporary redirects, 303 to read another resource.
    #[serde(default = "moved_permanently")]
    pub status: u16,
}

const fn moved_permanently() -> u16 {
    301
}

/// A path whose files are in another place.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Alias {
    /// The path: `/docs/` for a directory, `/favicon.ico` for a file.
    pub path: String,
    /// The directory or file. A relative path starts at the directory of the settings file.
    pub to: PathBuf,
}

/// Rules for some paths.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathRule {
    /// Paths, as in `cache`.
    pub pattern: String,
    /// Rejects requests for these paths with this status, 400 to 499: 403, 404 or 410, for example. It precedes every route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Media type of the files, whatever their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Whether directories are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<bool>,
    /// Whether files are compressed on the fly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compress: Option<bool>,
    /// Whether browsers save the files to disk instead of showing them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download: Option<bool>,
}

/// Compression of responses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Compression {
    /// Sends `FILE.br`, `FILE.zst` or `FILE.gz` instead of `FILE` to clients that accept it, if it exists and is not older, in
    /// whole seconds.
    pub siblings: bool,
    /// Compresses other files with gzip and zstd at the first request. Until that is done they are sent uncompressed. Also
    /// compresses responses of applications as they arrive, except event streams.
    pub on_the_fly: bool,
    /// Media types that are compressed on the fly: `text/*` is every type with that prefix, `*+json` every type with that suffix.
    pub types: Vec<String>,
    /// Size below which files and responses are not compressed, because they fit one packet uncompressed.
    pub min: ByteSize,
    /// Size above which files and responses are not compressed. Responses of unknown size are.
    pub max: ByteSize,
    /// Memory for compressed files, in bytes. The values of all sites are added up.
    pub memory: ByteSize,
    /// Responses of applications that a worker compresses at the same time. Each takes some 300 kB of memory; further ones are
    /// sent uncompressed.
    pub at_once: u32,
}

impl Default for Compression {
    fn default() -> Self {
        let types = [
            "text/*",
            "*+json",
            "*+xml",
            "application/cbor",
            "application/javascript",
            "application/json",
            "application/json5",
            "application/rtf",
            "application/sql",
            "application/toml",
            "application/vnd.apple.mpegurl",
            "application/vnd.mapbox-vector-tile",
            "application/vnd.ms-fontobject",
            "application/wasm",
            "application/x-ndjson",
            "application/x-subrip",
            "application/xml",
            "application/xml-dtd",
            "application/yaml",
            "audio/x-mpegurl",
            "font/collection",
            "font/otf",
            "font/ttf",
            "image/bmp",
            "image/vnd.microsoft.icon",
            "image/x-icon",
            "model/*",
        ];
        Self {
            siblings: true,
            on_the_fly: true,
            types: types.map(Into::into).into(),
            // With its head a file below this size takes one TCP segment (1,460 bytes) in any case.
            min: ByteSize::of(1_024),
            // 8 MiB take some 100 ms to compress, and as much memory during that time.
            max: ByteSize::kib(8 * 1_024),
            memory: ByteSize::kib(32 * 1_024),
            at_once: 64,
        }
    }
}

/// Files kept open and in memory, by all workers together.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OpenFiles {
    /// Number of files kept open, at most 512 for all sites together.
    pub count: u32,
    /// Number of names whose response is cached.
    pub names: u32,
    /// Memory for small files and for the heads of all, in bytes.
    pub memory: ByteSize,
    /// Time for which a response is cached without checking the file. Changes that the system reports take effect at once: this
    /// is for network file systems, FUSE, and writes through hard links, mappings (mmap) and other mounts of a file.
    pub revalidate: Period,
}

impl Default for OpenFiles {
    fn default() -> Self {
        Self {
            count: OPEN_FILES_MAX,
            names: 8_192,
            // 8,192 names of small files at some 2 KiB each; a busy site has a few hundred.
            memory: ByteSize::kib(16 * 1_024),
            revalidate: Period::seconds(1),
        }
    }
}

/// Descriptors reserved for files when the maximum number of connections is computed.
pub(super) const OPEN_FILES_MAX: u32 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_everything_in_it_is_read_back() {
        let text = r#"
            host = ["example.org", "*.example.org"]
            root = "public"
            index = ["index.html", "index.htm"]
            list = true
            spa = true
            spa_dots = true
            spa_wildcards = true
            etag = "portable"
            hidden = true
            symlinks = "deny"
            errors = { 404 = "/404.html" }
            cache = [{ pattern = "/assets/**", cache_control = "public, max-age=31536000, immutable" }]
            headers = [{ pattern = "/**", set = { "X-Frame-Options" = "DENY" } }]
            hsts = "max-age=300"
            redirects = [{ from = "/old/*", to = "/new/$1", status = 308 }, { from = "/x", to = "/y" }]
            aliases = [{ path = "/docs/", to = "../docs" }]
            paths = [{ pattern = "/internal/**", status = 404 }]

            [compression]
            on_the_fly = false
            max = "1MiB"

            [open_files]
            count = 64
            revalidate = "5s"
        "#;
        let site: SiteSettings = toml::from_str(text).expect("valid settings");
        assert_eq!(site.host, ["example.org", "*.example.org"]);
        assert_eq!(site.symlinks, Symlinks::Deny);
        assert_eq!(site.etag, TagSource::Portable);
        assert_eq!(site.redirects[0].status, 308);
        assert_eq!(site.redirects[1].status, 301);
        assert_eq!(site.errors["404"], "/404.html");
        assert!(site.compression.siblings, "what is not said keeps its default");
        assert_eq!(site.open_files.revalidate.duration().as_secs(), 5);
        let again: SiteSettings = toml::from_str(&toml::to_string(&site).expect("written")).expect("read");
        assert_eq!(again, site);
    }

    #[test]
    fn unknown_keys_are_refused_in_every_table() {
        for text in [
            "rooot = \".\"",
            "[compression]\ngzip = true",
            "[open_files]\nfoo = 1",
            "cache = [{ pattern = \"/\", cache_control = \"x\", foo = 1 }]",
            "redirects = [{ from = \"/\", to = \"/\", code = 301 }]",
            "symlinks = \"never\"",
        ] {
            assert!(toml::from_str::<SiteSettings>(text).is_err(), "{text}");
        }
    }
}
