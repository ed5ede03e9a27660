//! The listing of a directory, as an HTML page or as JSON.
//!
//! The page works without scripts: sorting is a link (`?sort=size`, reversed `?sort=-size`), directories come first, and
//! numbers in names sort by value. The thread pool reads and renders each listing on request.
//!
//! ```text
//!   GET /music/?sort=-date            HTML
//!   GET /music/?json                  {"schema":1,"path":"/music/","truncated":false,"entries":[
//!     or Accept: application/json       {"name":"a.ogg","kind":"file","size_bytes":4096,"modified":"2024-…Z"}]}
//! ```
//! Entries that a client could not open from the page are left out:
//! - hidden and forbidden names, and paths that rules refuse
//! - links that may not be followed, and devices
//! - names that are not UTF-8, or that no request can contain ([`can_be_requested`])

use std::cmp::Ordering;
use std::fmt::Write;

use encke_io::files::{FileKind, Metadata, OpenError, Patience};
use encke_wire::accept;
use encke_wire::civil::Civil;
use encke_wire::field::Known;
use encke_wire::target::{decode_path, encode_path, query_pairs};

use super::find::SiteRoot;
use encke_server::Request;
use encke_wire::path_pattern::PATH_BYTES_MAX;

/// The contents of a directory.
pub(super) struct Listing {
    /// The decoded path, with a slash at both ends.
    path: String,
    entries: Vec<ListingLine>,
    /// The directory has more than [`ENTRIES_MAX`] entries.
    truncated: bool,
}

struct ListingLine {
    name: String,
    is_folder: bool,
    bytes: u64,
    modified_s: u64,
}

/// The format and order of a listing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ListingView {
    format: Format,
    sort: ListingSort,
    descending: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Format {
    Html,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum ListingSort {
    Name,
    Size,
    Date,
}

impl ListingView {
    /// The view that a request selects; by default HTML, sorted by name.
    pub(super) fn of(request: &Request<'_>) -> Self {
        let mut view = Self { format: Format::Html, sort: ListingSort::Name, descending: false };
        let offered = ["text/html", "application/json"];
        if accept::preferred(request.all(Known::Accept), &offered) == Some(1) {
            view.format = Format::Json;
        }
        for (key, value) in query_pairs(request.query().unwrap_or_default()) {
            match &*key {
                "json" => view.format = Format::Json,
                "sort" => {
                    let name = value.strip_prefix('-').unwrap_or(&value);
                    if let Some(sort) = ListingSort::ALL.into_iter().find(|sort| sort.key() == name) {
                        (view.sort, view.descending) = (sort, value.starts_with('-'));
                    }
                }
                _ => {}
            }
        }
        view
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self.format {
            Format::Html => "text/html; charset=utf-8",
            Format::Json => "application/json",
        }
    }

    /// Renders the listing.
    pub(super) fn render(self, listing: Listing) -> Vec<u8> {
        let Listing { path, mut entries, truncated } = listing;
        entries.sort_by(|one, other| {
            let order = match self.sort {
                ListingSort::Name => Ordering::Equal,
                ListingSort::Size => one.bytes.cmp(&other.bytes),
                ListingSort::Date => one.modified_s.cmp(&other.modified_s),
            };
            let order = order.then_with(|| natural(&one.name, &other.name));
            let order = if self.descending { order.reverse() } else { order };
            other.is_folder.cmp(&one.is_folder).then(order)
        });
        let mut out = String::with_capacity(4096 + entries.len() * 300);
        match self.format {
            Format::Html => self.html(&path, &entries, truncated, &mut out),
            Format::Json => json(&path, &entries, truncated, &mut out),
        }
        .expect("a string takes whatever is written to it");
        out.into_bytes()
    }

    fn html(
        self,
        path: &str,
        entries: &[ListingLine],
        truncated: bool,
        out: &mut String,
    ) -> std::fmt::Result {
        write!(out, "{HEAD}<title>{}</title>\n<main>\n<h1>", Escaped(path))?;
        crumbs(path, out)?;
        out.push_str("</h1>\n<table>\n<thead><tr>");
        for sort in ListingSort::ALL {
            let is_current = sort == self.sort;
            let minus = if is_current && !self.descending { "-" } else { "" };
            let aria = match (is_current, self.descending) {
                (false, _) => "",
                (true, false) => " aria-sort=\"ascending\"",
                (true, true) => " aria-sort=\"descending\"",
            };
            let (key, title) = (sort.key(), sort.title());
            write!(
                out,
                "<th scope=\"col\" class=\"{key}\"{aria}><a href=\"?sort={minus}{key}\">{title}</a></th>"
            )?;
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        if path != "/" {
            out.push_str("<tr class=\"d\"><td class=\"name\"><a href=\"../\">Parent directory</a></td><td></td><td></td></tr>\n");
        }
        for line in entries {
            let (class, slash) = if line.is_folder { ("d", "/") } else { ("f", "") };
            // With `./` in front, a name with a colon is not read as a URL scheme.
            let mut link = String::from("./");
            encode_path(&line.name, &mut link);
            let name = Escaped(&line.name);
            write!(
                out,
                "<tr class=\"{class}\"><td class=\"name\"><a href=\"{link}{slash}\">{name}{slash}</a></td>"
            )?;
            if line.is_folder {
                out.push_str("<td></td>");
            } else {
                write!(out, "<td class=\"size\" title=\"{} bytes\">{}</td>", line.bytes, Size(line.bytes))?;
            }
            let moment = UtcTime(line.modified_s);
            writeln!(out, "<td class=\"date\"><time datetime=\"{moment}\">{moment:#}</time></td></tr>")?;
        }
        let folders = entries.iter().filter(|line| line.is_folder).count();
        let files = entries.len() - folders;
        let bytes: u64 = entries.iter().map(|line| line.bytes).sum();
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        write!(
            out,
            "</tbody>\n</table>\n<footer>{folders} director{}, {files} file{}, {}",
            if folders == 1 { "y" } else { "ies" },
            plural(files),
            Size(bytes)
        )?;
        if truncated {
            write!(out, ". <strong>There are more: only {ENTRIES_MAX} are shown.</strong>")?;
        }
        out.push_str(" · <a href=\"?json\">as JSON</a></footer>\n</main>\n</html>\n");
        Ok(())
    }
}

fn json(path: &str, entries: &[ListingLine], truncated: bool, out: &mut String) -> std::fmt::Result {
    write!(out, "{{\"schema\":1,\"path\":{},\"truncated\":{truncated},\"entries\":[", Quoted(path))?;
    for (number, line) in entries.iter().enumerate() {
        let kind = if line.is_folder { "folder" } else { "file" };
        let comma = if number == 0 { "" } else { "," };
        write!(out, "{comma}\n{{\"name\":{},\"kind\":\"{kind}\",", Quoted(&line.name))?;
        if !line.is_folder {
            write!(out, "\"size_bytes\":{},", line.bytes)?;
        }
        write!(out, "\"modified\":\"{}\"}}", UtcTime(line.modified_s))?;
    }
    out.push_str("\n]}\n");
    Ok(())
}

/// Writes the path as links to each directory; the last one is the present directory.
fn crumbs(path: &str, out: &mut String) -> std::fmt::Result {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let mut names = std::iter::once("Home").chain(segments.iter().copied()).enumerate().peekable();
    while let Some((depth, name)) = names.next() {
        if names.peek().is_some() {
            let up = "../".repeat(segments.len() - depth);
            write!(out, "<a href=\"{up}\">{}</a><span>/</span>", Escaped(name))?;
        } else {
            write!(out, "<b>{}</b>", Escaped(name))?;
        }
    }
    Ok(())
}

impl Listing {
    /// Reads the directory at a decoded path. Blocks on the disk.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(super) fn read(ground: &SiteRoot, path: &str) -> Result<Self, OpenError> {
        let (folder, root, name) = ground.folder(path)?;
        let system = |error: std::io::Error| OpenError::System(error.raw_os_error().unwrap_or(0));
        let (found, truncated) = folder.entries(ENTRIES_MAX).map_err(system)?;
        let mut entries = Vec::with_capacity(found.len());
        for entry in found {
            let Ok(entry_name) = String::from_utf8(entry.name) else { continue };
            let entry_path = format!("{path}{entry_name}");
            let mut metadata = entry.metadata;
            if entry.is_link {
                let full = format!("{name}{entry_name}");
                let Ok(target) = root.open(full.as_bytes(), ground.rules.links, Patience::Patient) else {
                    continue;
                };
                if ground.forbids(&target, root, full.as_bytes()) {
                    continue;
                }
                metadata = target.metadata;
            }
            if !can_be_requested(&entry_path)
                || !ground.rules.shows(&entry_path)
                || ground.forbids_entry(&folder, &entry_name, &metadata)
                || metadata.kind == FileKind::Other
            {
                continue;
            }
            entries.push(ListingLine::of(entry_name, &metadata));
        }
        Ok(Self { path: path.to_owned(), entries, truncated })
    }
}

/// Whether a request can name a path. Paths with a control character or a backslash are rejected, raw or escaped, and so are
/// paths longer than any that is looked up.
fn can_be_requested(path: &str) -> bool {
    let (mut encoded, mut decoded) = (String::new(), String::new());
    encode_path(path, &mut encoded);
    path.len() <= PATH_BYTES_MAX && decode_path(encoded.as_bytes(), &mut decoded).is_ok() && decoded == path
}

impl ListingLine {
    fn of(name: String, metadata: &Metadata) -> Self {
        let is_folder = metadata.kind == FileKind::Folder;
        let bytes = if is_folder { 0 } else { metadata.len };
        Self { name, is_folder, bytes, modified_s: metadata.modified_ns / 1_000_000_000 }
    }
}

impl ListingSort {
    const ALL: [Self; 3] = [Self::Name, Self::Size, Self::Date];

    const fn key(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Size => "size",
            Self::Date => "date",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Name => "Name",
            Self::Size => "Size",
            Self::Date => "Changed (UTC)",
        }
    }
}

/// Compares names ignoring case, with numbers ordered by value: `a2` before `A10`.
fn natural(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one.as_bytes(), other.as_bytes());
    loop {
        let (Some(&a), Some(&b)) = (left.first(), right.first()) else {
            return left.len().cmp(&right.len()).then_with(|| one.cmp(other));
        };
        let order = if a.is_ascii_digit() && b.is_ascii_digit() {
            let (first, second) = (number(&mut left), number(&mut right));
            // Without leading zeros the longer number is the greater one.
            first.len().cmp(&second.len()).then_with(|| first.cmp(second))
        } else {
            (left, right) = (&left[1..], &right[1..]);
            a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Removes the digits at the start of `text`, and returns them without leading zeros.
fn number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    &digits[zeros..]
}

/// Text escaped for HTML and its attributes.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in self.0.chars() {
            match character {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // Characters that reverse the reading direction could hide the extension of a name.
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => f.write_char('\u{fffd}')?,
                control if control.is_control() => f.write_char('\u{fffd}')?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// A JSON string (RFC 8259 §7).
struct Quoted<'a>(&'a str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\u{0}'..='\u{1f}' | '\u{7f}' => write!(f, "\\u{:04x}", u32::from(character))?,
                other => f.write_char(other)?,
            }
        }
        f.write_char('"')
    }
}

/// A size with about three digits.
struct Size(u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut unit = 0;
        let mut tenths = u128::from(self.0) * 10;
        while tenths >= 10_235 && unit + 1 < UNITS.len() {
            tenths = (tenths + 512) / 1_024;
            unit += 1;
        }
        if unit == 0 || tenths >= 1_000 {
            write!(f, "{} {}", (tenths + 5) / 10, UNITS[unit])
        } else {
            write!(f, "{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
        }
    }
}

/// A moment in UTC, in seconds since 1970: RFC 3339, or `{:#}` for a readable form.
struct UtcTime(u64);

impl std::fmt::Display for UtcTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = Civil::of(self.0).rfc3339();
        let text = str::from_utf8(&text).expect("digits and their separators");
        if f.alternate() { write!(f, "{} {}", &text[..10], &text[11..16]) } else { write!(f, "{text}Z") }
    }
}

const HEAD: &str = include_str!("listing.html");

/// Maximum number of entries in a listing: as a page some 3 MB, which a browser still shows at once.
const ENTRIES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, is_folder: bool, bytes: u64, modified_s: u64) -> ListingLine {
        ListingLine { name: name.into(), is_folder, bytes, modified_s }
    }

    fn view(sort: ListingSort, descending: bool) -> ListingView {
        ListingView { format: Format::Json, sort, descending }
    }

    fn order(view: ListingView) -> Vec<String> {
        let entries = vec![
            line("b10", false, 5, 30),
            line("zoo", true, 0, 10),
            line("B2", false, 7, 20),
            line("a", false, 6, 10),
            line("Attic", true, 0, 99),
        ];
        let text = view.render(Listing { path: "/".into(), entries, truncated: false });
        let value: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let names = value["entries"].as_array().expect("a list").iter();
        names.map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect()
    }

    #[test]
    fn folders_come_first_whatever_the_order() {
        assert_eq!(order(view(ListingSort::Name, false)), ["Attic", "zoo", "a", "B2", "b10"]);
        assert_eq!(order(view(ListingSort::Name, true)), ["zoo", "Attic", "b10", "B2", "a"]);
        assert_eq!(order(view(ListingSort::Size, false)), ["Attic", "zoo", "b10", "a", "B2"]);
        assert_eq!(order(view(ListingSort::Date, true)), ["Attic", "zoo", "b10", "B2", "a"]);
    }

    #[test]
    fn names_cannot_break_out_of_the_page() {
        let name = "<script>alert(1)</script>\"'&\u{202e}\n.txt";
        let entries = || vec![line(name, false, 1, 0), line("java:x", false, 1, 0)];
        let html = ListingView { format: Format::Html, ..view(ListingSort::Name, false) };
        let page = html.render(Listing { path: "/<b>/".into(), entries: entries(), truncated: true });
        let page = String::from_utf8(page).expect("UTF-8");
        assert!(!page.contains("<script>") && !page.contains("<b>/") && !page.contains('\u{202e}'));
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;\u{fffd}\u{fffd}.txt"));
        assert!(
            page.contains("href=\"./%3Cscript%3Ealert(1)%3C/script%3E%22%27%26%E2%80%AE%0A.txt\""),
            "{page}"
        );
        assert!(page.contains("href=\"./java:x\""), "a colon is not a scheme");
        assert!(page.contains("only 10000 are shown"));
        let json = view(ListingSort::Name, false);
        let text = json.render(Listing { path: "/<b>/".into(), entries: entries(), truncated: true });
        let value: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(value["entries"][0]["name"], name);
        assert_eq!(value["truncated"], true);
    }

    #[test]
    fn the_page_counts_directories_files_and_bytes() {
        let html = ListingView { format: Format::Html, ..view(ListingSort::Name, false) };
        for (directories, files, text) in [
            (0, 0, "<footer>0 directories, 0 files, 0 B"),
            (1, 1, "<footer>1 directory, 1 file, 7 B"),
            (2, 3, "<footer>2 directories, 3 files, 21 B"),
        ] {
            let name = |number| format!("entry-{number}");
            let lines = (0..directories).map(|number| line(&name(number), true, 0, 0));
            let entries =
                lines.chain((0..files).map(|number| line(&name(number + 9), false, 7, 0))).collect();
            let page = html.render(Listing { path: "/".into(), entries, truncated: false });
            let page = String::from_utf8(page).expect("UTF-8");
            assert!(page.contains(text), "{text}: {page}");
        }
    }

    #[test]
    fn sizes_and_moments_are_written_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_536, "1.5 KiB"),
            (102_400, "100 KiB"),
            (1_048_575, "1.0 MiB"),
            (2_397_701, "2.3 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(UtcTime(seconds).to_string(), text);
        }
        assert_eq!(format!("{:#}", UtcTime(1_700_000_000)), "2023-11-14 22:13");
    }

    #[test]
    fn numbers_in_names_count_as_numbers() {
        for (less, greater) in
            [("a2", "a10"), ("a2b", "A2C"), ("a", "a1"), ("a01", "a2"), ("1", "a"), ("a01", "a1")]
        {
            assert_eq!(natural(less, greater), Ordering::Less, "{less} {greater}");
            assert_eq!(natural(greater, less), Ordering::Greater, "{greater} {less}");
        }
        assert_eq!(natural("a", "a"), Ordering::Equal);
    }

    #[test]
    fn crumbs_lead_up_step_by_step() {
        let mut out = String::new();
        crumbs("/a/b c/", &mut out).expect("written");
        assert_eq!(
            out,
            "<a href=\"../../\">Home</a><span>/</span><a href=\"../\">a</a><span>/</span><b>b c</b>"
        );
        out.clear();
        crumbs("/", &mut out).expect("written");
        assert_eq!(out, "<b>Home</b>");
    }
}
