//! The settings of a site: what stands in one `[[site]]` table.
//!
//! These are values as people write them; `rules` checks and compiles them, once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use encke_settings::{ByteSize, Period};

/// A site: a folder of files, for some host names or for all.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SiteSettings {
    /// Host names that this site answers to: `"example.org"`, or `"*.example.org"` for every name below it. The
    /// most exact one wins. A site without host names answers to all that no other site has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<String>,
    /// The folder whose files are served. A relative one starts at the settings file's folder.
    pub root: PathBuf,
    /// Files that stand for a folder, tried in order.
    pub index: Vec<String>,
    /// Lists a folder that has no index file: as a page, or as JSON to those who ask for it.
    pub list: bool,
    /// Answers navigation to a page that does not exist with the root's index file, for applications that do
    /// their own routing in the browser. Requests for a name with an extension, and those that do not accept
    /// HTML, still get their 404.
    pub spa: bool,
    /// Serves names that begin with a dot, too. The names in the requested path count, not the target of a symbolic link.
    /// `/.well-known/` is always served.
    pub hidden: bool,
    /// What a symbolic link may do.
    pub symlinks: Symlinks,
    /// Values of Cache-Control by path; of several rules that match, the last one counts. Without any it is
    /// `no-cache`: clients keep the file and ask whether it has changed.
    pub cache: Vec<CacheRule>,
    /// Fields added to answers, by path; of several rules for one field, the last one counts.
    pub headers: Vec<HeaderRule>,
    /// Has browsers come by `https` alone: the value of Strict-Transport-Security (RFC 6797), such as
    /// `max-age=31536000; includeSubDomains`. It is sent over TLS only. Who has seen it does not come by `http` again for
    /// so long: begin with `max-age=300`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hsts: Option<String>,
    /// Paths that have moved; the first rule that matches counts.
    pub redirects: Vec<Redirect>,
    /// Paths whose files lie elsewhere; the longest path that matches counts.
    pub aliases: Vec<Alias>,
    /// What else is special about some paths; of several rules that match, the last one counts.
    pub paths: Vec<PathRule>,
    /// Pages for errors: `404 = "/404.html"`, a path of this site.
    pub errors: BTreeMap<String, String>,
    /// How answers are compressed.
    pub compression: Compression,
    /// What is kept open and in memory. The figures of all sites are added up.
    pub open_files: OpenFiles,
}

impl Default for SiteSettings {
    fn default() -> Self {
        Self {
            host: Vec::new(),
            root: PathBuf::from("."),
            index: vec!["index.html".into()],
            list: false,
            spa: false,
            hidden: false,
            symlinks: Symlinks::Beneath,
            cache: Vec::new(),
            headers: Vec::new(),
            hsts: None,
            redirects: Vec::new(),
            aliases: Vec::new(),
            paths: Vec::new(),
            errors: BTreeMap::new(),
            compression: Compression::default(),
            open_files: OpenFiles::default(),
        }
    }
}

/// What a symbolic link below the root may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Symlinks {
    /// Lead to places below the root, by a relative path.
    #[default]
    Beneath,
    /// Nothing: no link is followed.
    Deny,
    /// Lead anywhere: whoever can write below the root can publish every file that Encke can read.
    Follow,
}

/// How long some files may be used without asking.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheRule {
    /// Paths, such as `/assets/**` or `/**/*.woff2`: `*` stands for a part of one segment, `**` for any number
    /// of segments.
    pub pattern: String,
    /// The value of Cache-Control, such as `public, max-age=31536000, immutable`.
    pub cache_control: String,
}

/// Fields for some answers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeaderRule {
    /// Paths, as in `cache`. Errors and redirects of these paths have the fields, too.
    pub pattern: String,
    /// Names and values. An empty value takes the field away that an earlier rule or Encke itself has set.
    pub set: BTreeMap<String, String>,
}

/// A path that has moved.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Redirect {
    /// Paths, as in `cache`: `/old/*`.
    pub from: String,
    /// A path of this site or a whole URL, with `$1` … `$8` for what the stars stood for: `/new/$1`. They may
    /// not stand in the host, so that nobody can make a link that leads from here to a place of theirs. The
    /// query is kept unless this has one.
    pub to: String,
    /// 301 or 308 for good, 302 or 307 for now, 303 to read something else.
    #[serde(default = "moved_permanently")]
    pub status: u16,
}

const fn moved_permanently() -> u16 {
    301
}

/// A path whose files lie elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Alias {
    /// The path: `/docs/` for a folder, `/favicon.ico` for a file.
    pub path: String,
    /// The folder or file, relative to the folder of the settings file.
    pub to: PathBuf,
}

/// What is special about some paths.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathRule {
    /// Paths, as in `cache`.
    pub pattern: String,
    /// Refuses them with this status, 400 to 499: 403, 404 or 410, for example.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Their media type, whatever the name says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Whether their folders are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<bool>,
    /// Whether they are compressed on the fly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compress: Option<bool>,
    /// Whether browsers save them to disk instead of showing them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download: Option<bool>,
}

/// How answers are compressed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Compression {
    /// Sends `FILE.br`, `FILE.zst` or `FILE.gz` in place of `FILE` to those who accept it, if it is there and no
    /// older.
    pub siblings: bool,
    /// Compresses other files with gzip and zstd when they are first asked for. Until that is done they are
    /// sent as they are.
    pub on_the_fly: bool,
    /// Media types that are compressed on the fly; `text/*` stands for all that begin so.
    pub types: Vec<String>,
    /// Smaller files are not compressed: they fit one packet as they are.
    pub min: ByteSize,
    /// Larger files are not compressed.
    pub max: ByteSize,
    /// Memory for what was compressed.
    pub memory: ByteSize,
}

impl Default for Compression {
    fn default() -> Self {
        let types = [
            "text/*",
            "application/javascript",
            "application/json",
            "application/ld+json",
            "application/manifest+json",
            "application/wasm",
            "application/xml",
            "application/xhtml+xml",
            "application/rss+xml",
            "application/atom+xml",
            "image/svg+xml",
            "image/bmp",
            "font/ttf",
            "font/otf",
        ];
        Self {
            siblings: true,
            on_the_fly: true,
            types: types.map(Into::into).into(),
            // With its head such a file takes one TCP segment (1,460 bytes) either way.
            min: ByteSize::of(1_024),
            // 8 MiB take some 100 ms to compress, and as much memory while that lasts.
            max: ByteSize::kib(8 * 1_024),
            memory: ByteSize::kib(32 * 1_024),
        }
    }
}

/// What is kept open and in memory, by all workers together.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OpenFiles {
    /// Files kept open: at most 512 for all sites together.
    pub count: u32,
    /// Names whose answer is kept.
    pub names: u32,
    /// Memory for small files and for the heads of all.
    pub memory: ByteSize,
    /// How long an answer is kept without looking at the file again, where the system does not tell of changes
    /// (network file systems, FUSE).
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

/// Descriptors that the number of connections leaves for files.
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
