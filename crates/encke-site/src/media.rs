//! Media types by file name.
//!
//! Unknown types are `application/octet-stream`, which browsers save; with `X-Content-Type-Options: nosniff` they do not guess
//! either. Text is declared as UTF-8, the usual encoding today. Browsers would decode a page without a declaration in the
//! regional encoding of the user.
//!
//! `media-types/generate` makes the table from IANA's registrations and other sources, and lists its differences in
//! docs/media-types.md.

use std::cmp::Ordering;

use encke_wire::coding::Coding;

/// The media type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MediaType {
    /// The type without parameters.
    pub(super) name: &'static str,
    /// The coding of the file itself.
    pub(super) coding: Coding,
}

impl MediaType {
    /// Returns the type for the extension of `name`, ignoring case.
    pub(super) fn of(name: &str) -> Self {
        let name = name.rsplit('/').next().unwrap_or(name);
        let extension = match name.rsplit_once('.') {
            // `.profile` is a name without an extension.
            Some((stem, extension)) if !stem.is_empty() => extension.to_ascii_lowercase(),
            _ => return UNKNOWN,
        };
        // SVG in gzip: browsers do not display it without Content-Encoding.
        let coding = if extension == "svgz" { Coding::Gzip } else { Coding::Identity };
        listed(&extension).map_or(UNKNOWN, |name| Self { name, coding })
    }

    /// The value of Content-Type.
    pub(super) fn value(self) -> String {
        if self.name.starts_with("text/") {
            format!("{}; charset=utf-8", self.name)
        } else {
            self.name.to_owned()
        }
    }

    /// Whether files of this type are already compressed, so that smaller siblings are unlikely.
    pub(super) fn is_dense(self) -> bool {
        let (main, sub) = self.name.split_once('/').unwrap_or((self.name, ""));
        let is_sparse = sub.ends_with("+xml") || sub.ends_with("+json") || SPARSE.contains(&self.name);
        match main {
            _ if self.coding != Coding::Identity => true,
            "image" | "video" | "audio" => !is_sparse,
            "font" => sub.starts_with("woff"),
            _ => sub.ends_with("+zip") || DENSE.contains(&self.name),
        }
    }
}

/// Returns the type of an extension in lower case.
fn listed(extension: &str) -> Option<&'static str> {
    let (mut start, mut end) = (0, TABLE.len());
    while start < end {
        // The line that contains the middle.
        let middle = start + (end - start) / 2;
        let line_start = TABLE.get(start..middle)?.rfind('\n').map_or(start, |at| start + at + 1);
        let line_end = TABLE.get(middle..end)?.find('\n').map_or(end, |at| middle + at);
        let (listed, name) = TABLE.get(line_start..line_end)?.split_once(' ')?;
        match listed.cmp(extension) {
            Ordering::Less => start = line_end + 1,
            Ordering::Greater => end = line_start,
            Ordering::Equal => return Some(name),
        }
    }
    None
}

/// Lines of an extension and a type, sorted. Text of 60 kB in the program, which takes no memory of its own.
const TABLE: &str = include_str!("media_types.txt");

const UNKNOWN: MediaType = MediaType { name: "application/octet-stream", coding: Coding::Identity };

/// Types of images and sounds whose files are not compressed.
const SPARSE: [&str; 14] = [
    "audio/midi",
    "audio/wav",
    "audio/x-aiff",
    "audio/x-mpegurl",
    "audio/x-scpls",
    "image/bmp",
    "image/emf",
    "image/ktx",
    "image/tiff",
    "image/vnd.adobe.photoshop",
    "image/vnd.dwg",
    "image/vnd.dxf",
    "image/wmf",
    "image/x-icon",
];

/// Types of other files that are compressed.
const DENSE: [&str; 12] = [
    "application/gzip",
    "application/java-archive",
    "application/vnd.android.package-archive",
    "application/vnd.google-earth.kmz",
    "application/vnd.rar",
    "application/x-7z-compressed",
    "application/x-brotli",
    "application/x-bzip2",
    "application/x-lz4",
    "application/x-xz",
    "application/zip",
    "application/zstd",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_known_by_extension_in_any_case() {
        for (name, value) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a/b.d/STYLE.CSS", "text/css; charset=utf-8"),
            ("app.mjs", "text/javascript; charset=utf-8"),
            ("notes.txt", "text/plain; charset=utf-8"),
            ("data.json", "application/json"),
            ("picture.svg", "image/svg+xml"),
            ("picture.avif", "image/avif"),
            ("font.woff2", "font/woff2"),
            ("module.wasm", "application/wasm"),
            ("archive.tar.gz", "application/gzip"),
            ("README", "application/octet-stream"),
            (".html", "application/octet-stream"),
            ("x.unheard-of", "application/octet-stream"),
            ("x.", "application/octet-stream"),
        ] {
            assert_eq!(MediaType::of(name).value(), value, "{name}");
        }
    }

    #[test]
    fn every_line_of_the_table_is_found_and_can_stand_in_a_field() {
        let mut before = "";
        for line in TABLE.lines() {
            let (extension, name) = line.split_once(' ').expect("an extension and a type");
            assert!(before < extension && TABLE.is_ascii(), "{extension} is not sorted");
            assert_eq!(listed(extension), Some(name));
            assert_eq!(extension, extension.to_ascii_lowercase());
            let (main, sub) = name.split_once('/').expect("a type and a subtype");
            let is_token = |part: &str| encke_wire::field::is_token(part.as_bytes());
            assert!(is_token(main) && is_token(sub), "{name}");
            before = extension;
        }
        for unlisted in ["", "0", "~", "htmlx", "htm l", "zzzz", "\u{e4}", "\n"] {
            assert_eq!(listed(unlisted), None, "{unlisted:?}");
        }
    }

    #[test]
    fn types_follow_registrations_and_the_documented_differences() {
        for (extensions, name) in [
            ("rpm", "application/x-redhat-package-manager"),
            ("ts mts", "video/mp2t"),
            ("m3u8", "application/vnd.apple.mpegurl"),
            ("otf", "font/otf"),
            ("woff", "font/woff"),
            ("m4a m4b", "audio/mp4"),
            ("obj", "model/obj"),
            ("aif", "audio/x-aiff"),
            ("mid", "audio/midi"),
            ("cer", "application/pkix-cert"),
            ("step", "model/step"),
            ("dwg", "image/vnd.dwg"),
            ("m4s", "video/iso.segment"),
            ("psd", "image/vnd.adobe.photoshop"),
            ("usdz", "model/vnd.usdz+zip"),
            ("3mf", "model/3mf"),
            ("cbor", "application/cbor"),
            ("wgsl", "text/wgsl"),
            ("amr", "audio/amr"),
            ("mvt", "application/vnd.mapbox-vector-tile"),
            ("numbers", "application/vnd.apple.numbers"),
            ("vsdx", "application/vnd.visio"),
            ("diff patch rs py", "text/plain"),
            ("ipynb", "application/x-ipynb+json"),
            ("js mjs cjs es6", "text/javascript"),
            ("xml", "application/xml"),
            ("svg svgz", "image/svg+xml"),
            ("exe", "application/octet-stream"),
        ] {
            for extension in extensions.split(' ') {
                assert_eq!(MediaType::of(&format!("a.{extension}")).name, name, "{extension}");
            }
        }
    }

    #[test]
    fn dense_types_have_no_compressed_siblings() {
        for (name, dense) in [
            ("a.png", true),
            ("a.svg", false),
            ("a.mp4", true),
            ("a.woff2", true),
            ("a.ttf", false),
            ("a.gz", true),
            ("a.html", false),
            ("a.svgz", true),
            ("a.psd", false),
            ("a.epub", true),
            ("a.m3u8", false),
            ("a.usdz", true),
        ] {
            assert_eq!(MediaType::of(name).is_dense(), dense, "{name}");
        }
    }
}
