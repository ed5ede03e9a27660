//! Rules about documents: paths, names of code and metrics, translations, the form of the changelog.

use std::collections::BTreeSet;

use super::TidyFindings;
use super::tree::Tree;

/// Rule: a path between backticks exists. `make lint` checks links with another program.
pub(super) fn path(tree: &Tree, findings: &mut TidyFindings) {
    for (path, text) in documents(tree) {
        for (number, line) in prose(text) {
            for span in spans(line).filter(|span| is_path(span) && !tree.has(span)) {
                findings.add("path", path, number, format!("there is no `{span}`"));
            }
        }
    }
}

/// The document that readers see first.
const START: &str = "README.md";

/// Rule: links lead from [`START`] to every document.
pub(super) fn reach(tree: &Tree, findings: &mut TidyFindings) {
    let mut reached = BTreeSet::from([START.to_owned()]);
    let mut unread = vec![START.to_owned()];
    while let Some(path) = unread.pop() {
        for (_, line) in prose(tree.text(&path).unwrap_or_default()) {
            let pages = links(line).filter(|target| !is_elsewhere(target));
            for page in pages.filter_map(|target| linked_document(tree, &path, target)) {
                if reached.insert(page.clone()) {
                    unread.push(page);
                }
            }
        }
    }
    for (path, _) in documents(tree).filter(|(path, _)| !reached.contains(*path)) {
        findings.add("reach", path, 0, format!("no path of links leads here from {START}"));
    }
}

/// Returns the document that a link leads to. A link to a directory leads to its README.md.
fn linked_document(tree: &Tree, from: &str, target: &str) -> Option<String> {
    let path = resolved(from, target.split('#').next()?)?;
    let index = format!("{path}/README.md");
    [path, index].into_iter().find(|path| path.ends_with(".md") && tree.text(path).is_some())
}

/// Whether a link leads to another host or to a mail address.
fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

fn documents(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.texts().filter(|(path, _)| path.ends_with(".md"))
}

/// Returns the numbered lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// Returns the targets of `[text](target)`, `src="target"`, `srcset="target"` and `href="target"`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"'), ("href=\"", '"')].into_iter().flat_map(
        move |(opens, closes)| line.split(opens).skip(1).filter_map(move |rest| rest.split(closes).next()),
    )
}

/// Returns the texts between single backticks.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether a code span is a path in this repository, judging by its first directory. Patterns and build results are not.
fn is_path(span: &str) -> bool {
    const FOLDERS: &[&str] =
        &["bench/", "crates/", "docs/", "dist/", "examples/", "fuzz/", "tests/", "xtask/"];
    const BUILT: &[&str] = &["bench/out", "dist/out", "fuzz/corpus", "fuzz/artifacts", "fuzz/target"];
    FOLDERS.iter().any(|folder| span.starts_with(folder))
        && !BUILT.iter().any(|folder| span.starts_with(folder))
        && span.chars().all(|char| char.is_ascii_alphanumeric() || "/._-".contains(char))
}

/// Resolves a path relative to a file's directory. Returns `None` if it leads above the root.
fn resolved(from: &str, file: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in file.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Rule: a `Type::part` in a document exists in the code.
pub(super) fn name(tree: &Tree, findings: &mut TidyFindings) {
    let known = identifiers(tree);
    for (path, text) in documents(tree) {
        for (number, line) in prose(text) {
            for span in spans(line).filter(|span| is_name(span)) {
                let missing = span.trim_end_matches("()").split("::").find(|part| !known.contains(*part));
                if let Some(part) = missing {
                    findings.add("name", path, number, format!("`{span}`: no `{part}` in the code"));
                }
            }
        }
    }
}

/// Whether a code span is a Rust path that begins with a type of ours.
fn is_name(span: &str) -> bool {
    let identifier =
        |part: &str| !part.is_empty() && part.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
    span.contains("::")
        && !span.starts_with("std::")
        && span.trim_end_matches("()").split("::").all(identifier)
}

fn identifiers(tree: &Tree) -> BTreeSet<&str> {
    tree.sources()
        .flat_map(|(_, source)| source.lines())
        .flat_map(|(_, line)| line.code.split(|char: char| !(char.is_ascii_alphanumeric() || char == '_')))
        .chain(tree.files().filter_map(|(path, _)| path.strip_prefix("crates/")?.split('/').next()))
        .collect()
}

/// Pages with excerpts of sources that tests compile and run.
const EXCERPTS: &[&str] = &["docs/embedding.md"];

/// Rule: each block of Rust on these pages is an excerpt of the source in the last link before it, whatever the indentation.
pub(super) fn excerpt(tree: &Tree, findings: &mut TidyFindings) {
    for page in EXCERPTS {
        let mut source = None;
        let mut lines = tree.text(page).unwrap_or_default().lines().enumerate();
        while let Some((index, line)) = lines.next() {
            if let Some(target) = links(line).filter(|target| target.ends_with(".rs")).last() {
                source = resolved(page, target);
            }
            if line.trim() != "```rust" {
                continue;
            }
            let block: Vec<&str> =
                lines.by_ref().map(|(_, line)| line.trim()).take_while(|line| *line != "```").collect();
            let Some(path) = &source else {
                findings.add("excerpt", page, index + 1, "no link to a source before this block");
                continue;
            };
            let text: Vec<&str> = tree.text(path).unwrap_or_default().lines().map(str::trim).collect();
            if !text.windows(block.len().max(1)).any(|part| part == block) {
                findings.add("excerpt", page, index + 1, format!("`{path}` has no such lines"));
            }
        }
    }
}

/// Directories with translated pages: the languages are subdirectories with the same file names.
const TRANSLATED: &[(&str, &[&str])] = &[("docs/lab", &["ja", "zh-Hant"])];

/// Rule: a page and its translations link to each other, and have the same headings, list items, table rows, figures and code
/// spans. A change of one page thus requires a change of the others.
pub(super) fn translation(tree: &Tree, findings: &mut TidyFindings) {
    for &(folder, languages) in TRANSLATED {
        let names = documents(tree).filter_map(|(path, text)| {
            let name = path.strip_prefix(folder)?.strip_prefix('/')?;
            (!name.contains('/')).then_some((name, text))
        });
        for (name, original) in names {
            for language in languages {
                let path = format!("{folder}/{language}/{name}");
                let faults = match tree.text(&path) {
                    Some(text) => lags(original, &format!("{language}/{name}"), text, &format!("../{name}")),
                    None => vec![format!("it is not there, and `{folder}/{name}` is")],
                };
                for fault in faults {
                    findings.add("translation", &path, 0, fault);
                }
            }
        }
    }
}

/// Returns the differences between a translation and its original, which must link to each other.
fn lags(original: &str, translation: &str, text: &str, back: &str) -> Vec<String> {
    let leads =
        |text: &str, target: &str| text.lines().take(HEAD_LINES).flat_map(links).any(|link| link == target);
    let links = [(original, translation), (text, back)];
    let links = links.into_iter().filter(|(text, target)| !leads(text, target));
    let links = links.map(|(_, target)| format!("no link to `{target}` at its head, or there"));
    let parts = PARTS.iter().filter_map(|(what, parts)| {
        let part = difference(&parts(original), &parts(text))?;
        Some(format!("its {what} are others than in the original: {part}"))
    });
    links.chain(parts).collect()
}

/// The number of lines that contain the title and the links to other languages.
const HEAD_LINES: usize = 3;

type TextParts = fn(&str) -> Vec<String>;

/// The parts that are equal in every language, in any order.
const PARTS: [(&str, TextParts); 4] =
    [("headings and points", heads), ("rows of tables", rows), ("figures", figures), ("spans of code", code)];

/// Returns the level of each heading, and the mark of each list item.
fn heads(text: &str) -> Vec<String> {
    let heads = prose(text).filter(|(_, line)| line.starts_with('#') || line.starts_with("- "));
    heads.filter_map(|(_, line)| line.split_once(' ')).map(|(mark, _)| mark.to_owned()).collect()
}

/// Returns the number of columns of each row.
fn rows(text: &str) -> Vec<String> {
    let rows = prose(text).filter(|(_, line)| line.starts_with('|'));
    rows.map(|(_, line)| format!("{} columns", line.split('|').count() - 2)).collect()
}

/// Returns the numbers of two digits or more. Smaller ones may be words in some languages.
fn figures(text: &str) -> Vec<String> {
    text.split(|char: char| !(char.is_ascii_digit() || matches!(char, '.' | ',')))
        .map(|figure| figure.trim_matches(['.', ',']).to_owned())
        .filter(|figure| figure.len() > 1)
        .collect()
}

fn code(text: &str) -> Vec<String> {
    prose(text).flat_map(|(_, line)| spans(line)).map(str::to_owned).collect()
}

/// Returns an element that occurs more often in one list than in the other.
fn difference(some: &[String], others: &[String]) -> Option<String> {
    let count = |all: &[String], one: &str| all.iter().filter(|other| *other == one).count();
    let part = some.iter().chain(others).find(|part| count(some, part) != count(others, part))?;
    Some(format!("`{part}` is there {} times, and not {}", count(others, part), count(some, part)))
}

const METRICS_PAGE: &str = "docs/operations.md";

/// Rule: the page for operators names every metric, and no other.
pub(super) fn metric(tree: &Tree, findings: &mut TidyFindings) {
    let told: BTreeSet<String> = tree.text(METRICS_PAGE).map(|text| metrics(text, '`')).unwrap_or_default();
    let mut counted = BTreeSet::new();
    for (path, file) in tree.files() {
        let (Some(source), Some(text)) = (&file.rust, &file.text) else { continue };
        // The figures of the generator, the lab and the program are not metrics of the server.
        let counts = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        if counts.is_none_or(|(name, _)| matches!(name, "encke" | "encke-lab" | "encke-load")) {
            continue;
        }
        for ((_, line), raw) in source.lines().zip(text.lines()) {
            if !line.test && !line.comment.starts_with("//") {
                counted.extend(metrics(raw, '"'));
            }
        }
    }
    for name in counted.difference(&told) {
        findings.add("metric", METRICS_PAGE, 0, format!("it does not name `{name}`"));
    }
    for name in told.difference(&counted) {
        findings.add("metric", METRICS_PAGE, 0, format!("`{name}` is counted nowhere"));
    }
}

/// Returns the names of metrics between two `quote` characters, without labels.
fn metrics(text: &str, quote: char) -> BTreeSet<String> {
    text.lines()
        .flat_map(|line| line.split(quote).skip(1).step_by(2))
        .map(|span| span.split('{').next().unwrap_or(span))
        .filter(|span| span.starts_with("encke_") || span.starts_with("process_"))
        .filter(|span| span.chars().all(|char| char.is_ascii_lowercase() || char == '_'))
        .map(str::to_owned)
        .collect()
}

/// Tables of names that users see: the declaring macro, its file, and the page that explains the names.
const TABLES: &[(&str, &str, &str)] = &[
    ("close_reasons!", "crates/encke-server/src/close.rs", "docs/operations.md"),
    ("refusals!", "crates/encke-wire/src/http1/refusal.rs", "docs/http.md"),
];

/// Rule: every name of those tables is on its page.
pub(super) fn table(tree: &Tree, findings: &mut TidyFindings) {
    for &(table, file, page) in TABLES {
        let Some(text) = tree.text(file) else { continue };
        let rows = text.lines().skip_while(|line| !line.starts_with(table)).take_while(|line| *line != "}");
        let told = tree.text(page).unwrap_or_default();
        for name in rows.filter_map(|row| row.split('"').nth(1)) {
            if !told.contains(&format!("`{name}`")) {
                findings.add("table", page, 0, format!("it does not name `{name}` of {table}"));
            }
        }
    }
}

const CHANGES: &str = "CHANGELOG.md";
const SECTIONS: &[&str] = &["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];

/// Rule: `CHANGELOG.md` has the form of keepachangelog.com 1.1: versions, newest first, with a date or `Unreleased`, each with
/// the six sections and their list items. It contains the version of the workspace.
pub(super) fn changelog(tree: &Tree, findings: &mut TidyFindings) {
    let Some(text) = tree.text(CHANGES) else {
        findings.add("changelog", CHANGES, 0, "there is none");
        return;
    };
    let mut say = |line: usize, text: String| findings.add("changelog", CHANGES, line, text);
    if text.lines().next() != Some("# Changelog") {
        say(1, "its first line is `# Changelog`".into());
    }
    let mut versions: Vec<(u32, u32, u32)> = Vec::new();
    let mut section = None;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if let Some(heading) = line.strip_prefix("## ") {
            section = None;
            match release(heading) {
                Some(version) if versions.last().is_some_and(|newer| *newer <= version) => {
                    say(number, "newest first".into());
                }
                Some(version) => versions.push(version),
                None if heading == "[Unreleased]" && versions.is_empty() => {}
                None => {
                    let form = "`[1.2.3] - 2026-01-31` or `[1.2.3] - Unreleased`";
                    say(number, format!("`{heading}` is no {form}"));
                }
            }
        } else if let Some(heading) = line.strip_prefix("### ") {
            section = Some(heading);
            if !SECTIONS.contains(&heading) {
                say(number, format!("`{heading}` is none of {}", SECTIONS.join(", ")));
            }
        } else if line.starts_with("- ") && section.is_none() {
            say(number, "a point belongs to a section, such as `### Added`".into());
        }
    }
    let version = tree.text("Cargo.toml").and_then(workspace_version);
    if let Some(version) = version.filter(|version| !versions.contains(version)) {
        let (major, minor, patch) = version;
        say(0, format!("it does not name the workspace's version, {major}.{minor}.{patch}"));
    }
}

/// Parses the version of `[1.2.3] - DATE`.
fn release(heading: &str) -> Option<(u32, u32, u32)> {
    let (number, date) = heading.strip_prefix('[')?.split_once("] - ")?;
    let date_holds = date == "Unreleased"
        || date.len() == 10
            && date
                .char_indices()
                .all(|(at, char)| if at == 4 || at == 7 { char == '-' } else { char.is_ascii_digit() });
    version(number).filter(|_| date_holds)
}

fn version(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    let version = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some(version)
}

fn workspace_version(manifest: &str) -> Option<(u32, u32, u32)> {
    version(manifest.lines().find_map(|line| line.strip_prefix("version = "))?.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_start_at_the_folder_of_their_document() {
        assert_eq!(resolved("docs/guide.md", "http.md").as_deref(), Some("docs/http.md"));
        assert_eq!(resolved("docs/guide.md", "../README.md").as_deref(), Some("README.md"));
        assert_eq!(resolved("README.md", "../x"), None);
    }

    #[test]
    fn what_stands_in_a_fence_is_no_prose() {
        let lines: Vec<usize> = prose("a\n```toml\nb\n```\nc\n").map(|(number, _)| number).collect();
        assert_eq!(lines, [1, 5]);
    }

    #[test]
    fn a_release_has_a_version_and_a_date() {
        assert_eq!(release("[0.1.0] - Unreleased"), Some((0, 1, 0)));
        assert_eq!(release("[1.12.3] - 2026-01-31"), Some((1, 12, 3)));
        for wrong in
            ["0.1.0 - Unreleased", "[0.1] - Unreleased", "[0.1.0]", "[0.1.0] - soon", "[0.1.0] - 31-01-2026"]
        {
            assert_eq!(release(wrong), None, "{wrong}");
        }
    }
}
