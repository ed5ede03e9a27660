//! Rules about single lines and files: nothing unfinished, nothing of somebody's machine, nothing too long.

use super::Findings;
use super::source::has_word;
use super::tree::Tree;

const UNFINISHED_CODE: &[&str] = &["todo!", "unimplemented!", "dbg!", "#[ignore"];
const UNFINISHED_WORDS: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];

/// Nothing is left for later: what is missing is named in the documents, where users look.
pub(super) fn unfinished(tree: &Tree, findings: &mut Findings) {
    for (path, source) in tree.sources() {
        for (number, line) in source.lines() {
            let code = UNFINISHED_CODE.iter().find(|mark| has_word(&line.code, mark));
            let word = UNFINISHED_WORDS.iter().find(|mark| has_word(&line.comment, mark));
            if let Some(mark) = code.or(word) {
                findings.add(
                    "unfinished",
                    path,
                    number,
                    format!("`{mark}`: finish it, or name the gap in docs/"),
                );
            }
        }
    }
}

/// What ships does not end at a surprise: an error is an answer, and what cannot happen says why.
pub(super) fn unwrap(tree: &Tree, findings: &mut Findings) {
    for (path, source) in tree.sources() {
        for (number, _) in source.shipped().filter(|(_, line)| has_word(&line.code, ".unwrap()")) {
            findings.add("unwrap", path, number, "handle it, or `expect(\"why it holds\")`");
        }
    }
}

/// A file opens with a `//!` that says what it is.
pub(super) fn header(tree: &Tree, findings: &mut Findings) {
    for (path, source) in tree.sources() {
        // libFuzzer's targets may open with an attribute.
        let opening = source.lines().find(|(_, line)| !line.code.trim().starts_with("#!["));
        if !opening.is_some_and(|(_, line)| line.comment.starts_with("//!")) {
            findings.add("header", path, 1, "open the file with `//!`: what it is, what it is not");
        }
    }
}

/// Folders at the root of machines that are nobody's to rely on.
const MACHINE_FOLDERS: &[&str] = &["tmp", "root", "home", "work", "farm", "Users"];

/// No path of the machine on which a line was written: a test asks for a temporary folder, a document says
/// `/srv/site`.
pub(super) fn machine_path(tree: &Tree, findings: &mut Findings) {
    let folders: Vec<String> = MACHINE_FOLDERS.iter().map(|folder| format!("/{folder}/")).collect();
    for (path, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            if let Some(folder) = folders.iter().find(|folder| begins_a_path(line, folder)) {
                findings.add(
                    "machine",
                    path,
                    index + 1,
                    format!("a path in `{folder}` is true on one machine only"),
                );
            }
        }
    }
}

/// Whether `folder` stands in `line` where a path begins, not within one.
fn begins_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|char| char.is_alphanumeric() || "._-*}>~/)".contains(char))
    })
}

/// Lines of a source file, tests included. A longer one is one state machine, kept whole, and listed as such.
const LINES_MAX: usize = 900;
/// Bytes of any file: 512 KiB. A picture of a page is some 200 KiB.
const BYTES_MAX: usize = 512 * 1024;

/// Files stay readable, and the repository quick to clone.
pub(super) fn size(tree: &Tree, findings: &mut Findings) {
    for (path, file) in tree.files() {
        let lines = file.rust.as_ref().and(file.text.as_ref()).map_or(0, |text| text.lines().count());
        if lines > LINES_MAX {
            let text = format!("{lines} lines; {LINES_MAX} hold one idea: split it by state");
            findings.measure("size", path, lines, text);
        }
        if file.bytes > BYTES_MAX {
            findings.add("size", path, 0, format!("{} bytes; at most {BYTES_MAX} are kept here", file.bytes));
        }
    }
}
