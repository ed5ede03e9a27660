//! Rules about single lines and files: unfinished code, paths of one machine, sizes.

use super::TidyFindings;
use super::source::has_word;
use super::tree::Tree;

const UNFINISHED_CODE: &[&str] = &["todo!", "unimplemented!", "dbg!", "#[ignore"];
const UNFINISHED_WORDS: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];

/// Rule: no marks of unfinished work. Gaps are listed in the documents, where users look.
pub(super) fn unfinished(tree: &Tree, findings: &mut TidyFindings) {
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

/// Rule: shipped code has no `unwrap`. Errors are handled, and an invariant has `expect` with its reason.
pub(super) fn unwrap(tree: &Tree, findings: &mut TidyFindings) {
    for (path, source) in tree.sources() {
        for (number, _) in source.shipped().filter(|(_, line)| has_word(&line.code, ".unwrap()")) {
            findings.add("unwrap", path, number, "handle it, or `expect(\"why it holds\")`");
        }
    }
}

/// Rule: a source file begins with a `//!` comment.
pub(super) fn header(tree: &Tree, findings: &mut TidyFindings) {
    for (path, source) in tree.sources() {
        // Targets of libFuzzer may begin with an attribute.
        let opening = source.lines().find(|(_, line)| !line.code.trim().starts_with("#!["));
        if !opening.is_some_and(|(_, line)| line.comment.starts_with("//!")) {
            findings.add("header", path, 1, "open the file with `//!`: what it is, what it is not");
        }
    }
}

/// Root directories that differ between machines.
const MACHINE_FOLDERS: &[&str] = &["tmp", "root", "home", "work", "farm", "Users"];

/// Rule: no path of the machine on which a line was written. Tests use a temporary directory, documents `/srv/site`.
pub(super) fn machine_path(tree: &Tree, findings: &mut TidyFindings) {
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

/// Whether `line` contains `folder` at the beginning of a path, not within one.
fn begins_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|char| char.is_alphanumeric() || "._-*}>~/)".contains(char))
    })
}

/// Maximum number of lines of a source file, tests included. A longer file is one state machine, kept whole and listed in
/// `RATCHETS`.
const LINES_MAX: usize = 900;
/// Maximum size of any file: 512 KiB. A screenshot has about 200 KiB.
const BYTES_MAX: usize = 512 * 1024;

/// Rule: files stay readable, and the repository stays quick to clone.
pub(super) fn size(tree: &Tree, findings: &mut TidyFindings) {
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
