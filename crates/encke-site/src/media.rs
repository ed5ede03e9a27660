//! Media types by file name.
//!
//! Unknown types are `application/octet-stream`, which browsers save; with `X-Content-Type-Options: nosniff` they do not guess
//! either. Text is declared as UTF-8, the usual encoding today. Browsers would decode a page without a declaration in the
//! regional encoding of the user.

/// The media type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MediaType {
    /// The type without parameters.
    pub(super) name: &'static str,
}

impl MediaType {
    /// Returns the type for the extension of `name`, ignoring case.
    pub(super) fn of(name: &str) -> Self {
        let name = name.rsplit('/').next().unwrap_or(name);
        let extension = match name.rsplit_once('.') {
            // `.profile` is a name without an extension.
            Some((stem, extension)) if !stem.is_empty() => extension,
            _ => return UNKNOWN,
        };
        let own = OWN.iter().find(|(listed, _)| listed.eq_ignore_ascii_case(extension));
        let name = own.map(|(_, name)| *name).or_else(|| mime_guess::from_ext(extension).first_raw());
        name.map_or(UNKNOWN, |name| Self { name })
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
        match main {
            "image" => !matches!(sub, "svg+xml" | "bmp" | "x-icon" | "vnd.microsoft.icon"),
            "video" | "audio" => true,
            "font" => sub.starts_with("woff"),
            _ => matches!(
                self.name,
                "application/gzip"
                    | "application/zip"
                    | "application/zstd"
                    | "application/x-7z-compressed"
                    | "application/x-bzip2"
                    | "application/x-xz"
                    | "application/x-brotli"
                    | "application/vnd.rar"
                    | "application/java-archive"
            ),
        }
    }
}

const UNKNOWN: MediaType = MediaType { name: "application/octet-stream" };

/// Types that the common table lacks, or defines differently from usage on the web.
const OWN: [(&str, &str); 9] = [
    ("js", "text/javascript"),
    ("mjs", "text/javascript"),
    ("map", "application/json"),
    ("ndjson", "application/x-ndjson"),
    ("zst", "application/zstd"),
    ("br", "application/x-brotli"),
    ("gz", "application/gzip"),
    ("xml", "application/xml"),
    ("toml", "application/toml"),
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
    fn every_type_can_stand_in_a_field() {
        for (_, name) in OWN {
            assert!(encke_wire::field::is_field_value(name.as_bytes()));
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
        ] {
            assert_eq!(MediaType::of(name).is_dense(), dense, "{name}");
        }
    }
}
