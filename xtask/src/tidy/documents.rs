//! Rules about documents: their links, the code and the metrics they name, the changelog's form.

use std::collections::BTreeSet;

use super::Findings;
use super::tree::Tree;

/// A link leads to a file of the repository, and its `#anchor` to a heading there. Links to other hosts are not
/// followed: the check needs no network.
pub(super) fn link(tree: &Tree, findings: &mut Findings) {
    for (path, text) in documents(tree) {
        for (number, line) in prose(text) {
            for target in links(line) {
                if let Err(text) = follow(tree, path, target) {
                    findings.add("link", path, number, text);
                }
            }
            for span in spans(line).filter(|span| is_path(span)) {
                if !tree.has(span) {
                    findings.add("link", path, number, format!("there is no `{span}`"));
                }
            }
        }
    }
}

fn documents(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.texts().filter(|(path, _)| path.ends_with(".md"))
}

/// Numbered lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// The targets of `[text](target)` and of `src="target"`, `srcset="target"`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"'), ("href=\"", '"')].into_iter().flat_map(
        move |(opens, closes)| line.split(opens).skip(1).filter_map(move |rest| rest.split(closes).next()),
    )
}

/// What stands between single backticks.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether a span of code is a path of this repository, as far as its first folder tells. Patterns and what is
/// built are not.
fn is_path(span: &str) -> bool {
    const FOLDERS: &[&str] =
        &["bench/", "crates/", "docs/", "dist/", "examples/", "fuzz/", "tests/", "xtask/"];
    const BUILT: &[&str] = &["bench/out", "dist/out", "fuzz/corpus", "fuzz/artifacts", "fuzz/target"];
    FOLDERS.iter().any(|folder| span.starts_with(folder))
        && !BUILT.iter().any(|folder| span.starts_with(folder))
        && span.chars().all(|char| char.is_ascii_alphanumeric() || "/._-".contains(char))
}

fn follow(tree: &Tree, from: &str, target: &str) -> Result<(), String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() { Some(from.to_owned()) } else { resolved(from, file) };
    let path = path.ok_or_else(|| format!("`{target}` leads out of the repository"))?;
    if !tree.has(&path) {
        return Err(format!("`{target}` leads to `{path}`, which is not there"));
    }
    let Some(anchor) = anchor.filter(|_| path.ends_with(".md")) else { return Ok(()) };
    let found = prose(tree.text(&path).unwrap_or_default())
        .filter(|(_, line)| line.starts_with('#'))
        .any(|(_, line)| slug(line.trim_start_matches('#')) == anchor);
    if found { Ok(()) } else { Err(format!("`{path}` has no heading #{anchor}")) }
}

/// A path as seen from a file's folder; `None`: it is above the root.
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

/// A heading's anchor, as GitHub makes it.
fn slug(heading: &str) -> String {
    let kept = |char: &char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_');
    heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(kept)
        .map(|char| if char == ' ' { '-' } else { char })
        .collect()
}

/// A document that says `Type::part` means code that is there.
pub(super) fn name(tree: &Tree, findings: &mut Findings) {
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

/// Whether a span is a path in Rust that begins at a type of ours.
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

/// Folders of pages that are there in other languages, too: in a folder below, each under its own name.
const TRANSLATED: &[(&str, &[&str])] = &[("docs/lab", &["ja", "zh-Hant"])];

/// A page and its translations link to each other, and have the same headings, points, rows of tables, figures and spans
/// of code: who changes one of them finds out here about the others.
pub(super) fn translation(tree: &Tree, findings: &mut Findings) {
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

/// Where a translation lags behind its original, of which each should link to the other.
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

/// The links among the languages stand behind the title.
const HEAD_LINES: usize = 3;

type Parts = fn(&str) -> Vec<String>;

/// What is the same in every language, in any order.
const PARTS: [(&str, Parts); 4] =
    [("headings and points", heads), ("rows of tables", rows), ("figures", figures), ("spans of code", code)];

/// The level of each heading, and the mark of each point of a list.
fn heads(text: &str) -> Vec<String> {
    let heads = prose(text).filter(|(_, line)| line.starts_with('#') || line.starts_with("- "));
    heads.filter_map(|(_, line)| line.split_once(' ')).map(|(mark, _)| mark.to_owned()).collect()
}

/// How many columns each row has.
fn rows(text: &str) -> Vec<String> {
    let rows = prose(text).filter(|(_, line)| line.starts_with('|'));
    rows.map(|(_, line)| format!("{} columns", line.split('|').count() - 2)).collect()
}

/// Numbers of two digits or more: smaller ones may be words, and not in every language.
fn figures(text: &str) -> Vec<String> {
    text.split(|char: char| !(char.is_ascii_digit() || matches!(char, '.' | ',')))
        .map(|figure| figure.trim_matches(['.', ',']).to_owned())
        .filter(|figure| figure.len() > 1)
        .collect()
}

fn code(text: &str) -> Vec<String> {
    prose(text).flat_map(|(_, line)| spans(line)).map(str::to_owned).collect()
}

/// One thing that is in one of both more often than in the other.
fn difference(some: &[String], others: &[String]) -> Option<String> {
    let count = |all: &[String], one: &str| all.iter().filter(|other| *other == one).count();
    let part = some.iter().chain(others).find(|part| count(some, part) != count(others, part))?;
    Some(format!("`{part}` is there {} times, and not {}", count(others, part), count(some, part)))
}

const METRICS_PAGE: &str = "docs/operations.md";

/// The page for operators names every metric, and no other.
pub(super) fn metric(tree: &Tree, findings: &mut Findings) {
    let told: BTreeSet<String> = tree.text(METRICS_PAGE).map(|text| metrics(text, '`')).unwrap_or_default();
    let mut counted = BTreeSet::new();
    for (path, file) in tree.files() {
        let (Some(source), Some(text)) = (&file.rust, &file.text) else { continue };
        // The generator, the lab and the program show figures of their own.
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

/// Names of metrics that stand between two of `quote`, without their labels.
fn metrics(text: &str, quote: char) -> BTreeSet<String> {
    text.lines()
        .flat_map(|line| line.split(quote).skip(1).step_by(2))
        .map(|span| span.split('{').next().unwrap_or(span))
        .filter(|span| span.starts_with("encke_") || span.starts_with("process_"))
        .filter(|span| span.chars().all(|char| char.is_ascii_lowercase() || char == '_'))
        .map(str::to_owned)
        .collect()
}

/// Tables of names that users meet: the macro that declares one, in which file, and the page that explains it.
const TABLES: &[(&str, &str, &str)] = &[
    ("close_reasons!", "crates/encke-server/src/close.rs", "docs/operations.md"),
    ("refusals!", "crates/encke-wire/src/http1/refusal.rs", "docs/http.md"),
];

/// Every name of those tables stands on its page.
pub(super) fn table(tree: &Tree, findings: &mut Findings) {
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

/// `CHANGELOG.md` keeps the form of keepachangelog.com 1.1: versions, newest first, with a date or `Unreleased`;
/// in them the six sections; in those, points. The version of the workspace is among them.
pub(super) fn changelog(tree: &Tree, findings: &mut Findings) {
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

/// The version of `[1.2.3] - DATE`.
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
    fn anchors_are_made_as_github_makes_them() {
        assert_eq!(slug(" Behind a proxy"), "behind-a-proxy");
        assert_eq!(slug(" `encke check`, and why?"), "encke-check-and-why");
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
