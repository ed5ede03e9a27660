//! Finds the PHP script of a request among the files of a site.
//!
//! ```text
//!  /blog/index.php/2026/a ─► /blog/index.php is a file ─► script /blog/index.php, PATH_INFO /2026/a
//!  /blog/                 ─► /blog/index.php is a file ─► that script
//!  /about                 ─► no script: a file of the site, else the front script /index.php
//!  /upload/x.jpg/y.php    ─► /upload/x.jpg/y.php is no file: 404
//! ```
//! The path is decoded and resolved once, and split only after `.php` at the end of a segment, where a regular file of that very
//! name exists below the root. So no other file is executed, whatever the path looks like (CVE-2026-27590), and no source of a
//! script is sent as a file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use encke_io::files;

/// A script that serves a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PhpScript {
    /// The path of the script in the site.
    pub(crate) name: String,
    /// The rest of the request's path.
    pub(crate) path_info: String,
    /// The absolute path of the file, without links.
    pub(crate) file: PathBuf,
    /// The directory of the site's files, without links.
    pub(crate) root: PathBuf,
    /// Whether it is the script for paths that name neither a script nor a file.
    pub(crate) is_front: bool,
}

/// The scripts for one path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ScriptLook {
    /// The script that the path names.
    pub(crate) named: Option<Arc<PhpScript>>,
    /// The script for paths that name neither a script nor a file.
    pub(crate) front: Option<Arc<PhpScript>>,
}

/// Looks for the scripts of a decoded path, which has no dot segments. `follows_links`: whether a link below the root may lead to a
/// script. Blocks: file systems may be slow.
pub(crate) fn look(root: &Path, path: &str, front: &str, follows_links: bool) -> ScriptLook {
    // A deployment may have replaced a link.
    let Ok(root) = &std::fs::canonicalize(root) else { return ScriptLook::default() };
    let script = |path: &str, end| script(root, path, end, follows_links);
    let named = candidates(path).find_map(|end| script(path, end)).or_else(|| {
        let index = format!("{path}index.php");
        path.ends_with('/').then(|| script(&index, index.len())).flatten()
    });
    let front = script(front, front.len()).map(|front| PhpScript { is_front: true, ..front });
    ScriptLook { named: named.map(Arc::new), front: front.map(Arc::new) }
}

/// Whether a segment of the path has the name of a script, in any case of letters, or the last one that of a source which editors
/// and other servers know.
pub fn names_script(path: &str) -> bool {
    path.split('/').any(|segment| ends_with(segment, SUFFIX))
        || path.rsplit('/').next().is_some_and(|name| {
            let name = without_marks(name);
            SOURCE_SUFFIXES.iter().any(|suffix| ends_with(name, suffix))
        })
}

/// The name of a file without what editors and people add to the name of a copy.
fn without_marks(mut name: &str) -> &str {
    loop {
        let bare = name.trim_end_matches(['~', '#', ' ', '.']);
        let copy = COPY_SUFFIXES.iter().find(|suffix| ends_with(bare, suffix));
        match copy.and_then(|suffix| bare.get(..bare.len() - suffix.len())) {
            Some(shorter) => name = shorter,
            None => return bare,
        }
    }
}

fn ends_with(text: &str, suffix: &str) -> bool {
    let end = text.len().wrapping_sub(suffix.len());
    text.as_bytes().get(end..).is_some_and(|end| end.eq_ignore_ascii_case(suffix.as_bytes()))
}

/// The places after `.php` at the end of a segment.
fn candidates(path: &str) -> impl Iterator<Item = usize> {
    path.match_indices(SUFFIX)
        .map(|(start, _)| start + SUFFIX.len())
        .filter(|end| matches!(path.as_bytes().get(*end), None | Some(b'/')))
}

/// The script whose name ends at `end` of the path, if there is one. `root` has no links.
fn script(root: &Path, path: &str, end: usize, follows_links: bool) -> Option<PhpScript> {
    let (name, path_info) = path.split_at_checked(end)?;
    // Hidden files are no scripts, as the site sends none of them.
    if name.split('/').any(|segment| segment.starts_with('.')) {
        return None;
    }
    let relative = name.strip_prefix('/')?;
    let mut wanted = root.to_path_buf();
    wanted.extend(relative.split('/'));
    // A name that leads to another drive or to a device must not reach the system.
    if !files::is_used_name(root, relative, &wanted) {
        return None;
    }
    let file = std::fs::canonicalize(&wanted).ok()?;
    // A link may lead to another script of the site, and nowhere else.
    let is_script = file.starts_with(root)
        && file.as_os_str().as_encoded_bytes().ends_with(SUFFIX.as_bytes())
        && files::is_used_name(root, relative, &file)
        && (follows_links || wanted == file);
    let is_file = is_script && std::fs::metadata(&file).is_ok_and(|metadata| metadata.is_file());
    if !is_file {
        return None;
    }
    let (file, root) = usual_paths(&file, root);
    Some(PhpScript { name: name.to_owned(), path_info: path_info.to_owned(), file, root, is_front: false })
}

/// The paths of a script and of its root for another program, which opens the script: in their usual form, or both as they are, if
/// only one has such a form.
fn usual_paths(file: &Path, root: &Path) -> (PathBuf, PathBuf) {
    let (usual_file, usual_root) = (files::plain_path(file), files::plain_path(root));
    if usual_file.starts_with(&usual_root) {
        (usual_file.into_owned(), usual_root.into_owned())
    } else {
        (file.to_owned(), root.to_owned())
    }
}

const SUFFIX: &str = ".php";
/// Names of sources, which only other servers run.
const SOURCE_SUFFIXES: [&str; 9] =
    [SUFFIX, ".phtml", ".pht", ".phar", ".php3", ".php4", ".php5", ".php7", ".php8"];
/// Ends of the names of copies.
const COPY_SUFFIXES: [&str; 9] = [".bak", ".old", ".orig", ".save", ".swp", ".swo", ".tmp", ".dist", ".copy"];

/// The scripts that a worker has found lately.
#[derive(Default)]
pub(crate) struct ScriptCache {
    /// By decoded path: the scripts of one route or more.
    found: HashMap<Box<str>, Vec<FoundScripts>>,
}

struct FoundScripts {
    route: usize,
    /// Time of the look-up, in ns of the monotonic clock.
    found_ns: u64,
    look: ScriptLook,
}

impl ScriptCache {
    /// `route` is a number that no other route of the worker has.
    pub(crate) fn get(&self, route: usize, path: &str, now_ns: u64) -> Option<&ScriptLook> {
        let found = self.found.get(path)?.iter().find(|found| found.route == route)?;
        (now_ns.saturating_sub(found.found_ns) < KNOWN_NS).then_some(&found.look)
    }

    pub(crate) fn insert(&mut self, route: usize, path: Box<str>, look: ScriptLook, now_ns: u64) {
        if self.found.len() >= KNOWN_MAX {
            self.found.clear();
        }
        let found = self.found.entry(path).or_default();
        found.retain(|found| found.route != route);
        found.push(FoundScripts { route, found_ns: now_ns, look });
    }
}

/// Time for which a script is known to exist, in ns.
const KNOWN_NS: u64 = 1_000_000_000;
/// Paths that are remembered. Beyond it all are forgotten.
const KNOWN_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("encke-script-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&root);
            std::fs::create_dir_all(&root).expect("a directory");
            Self(std::fs::canonicalize(root).expect("it exists"))
        }

        fn file(&self, path: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, "<?php").expect("a file");
        }

        fn named(&self, path: &str) -> Option<(String, String)> {
            let script = look(&self.0, path, "/index.php", true).named?;
            Some((script.name.clone(), script.path_info.clone()))
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn pair(name: &str, info: &str) -> Option<(String, String)> {
        Some((name.to_owned(), info.to_owned()))
    }

    #[test]
    fn a_path_with_a_drive_or_an_absolute_path_names_no_script() {
        let root = Root::new("drive");
        root.file("a.php");
        let other = Root::new("drive-other");
        other.file("b.php");
        let outside = other.0.join("b.php");
        for path in ["/C:/a.php", "/C:a.php", "/NUL/a.php", &format!("/{}", outside.display())] {
            assert_eq!(root.named(path), None, "{path}");
        }
        assert_eq!(root.named("/a.php"), pair("/a.php", ""));
    }

    #[test]
    fn a_script_and_its_root_have_the_same_form_of_path() {
        let root = Path::new(if std::path::MAIN_SEPARATOR == '/' { "/srv" } else { r"\\?\C:\srv" });
        for file in [root.join("a.php"), root.join("d".repeat(250)).join("a.php")] {
            let (file, root) = usual_paths(&file, root);
            assert!(file.starts_with(&root), "{} {}", file.display(), root.display());
        }
    }

    #[test]
    fn a_path_is_split_after_a_script_that_exists() {
        let root = Root::new("split");
        for file in ["index.php", "blog/index.php", "dir.php/inner.php", "a b.php", "ü.php", "x.jpg"] {
            root.file(file);
        }
        assert_eq!(root.named("/index.php"), pair("/index.php", ""));
        assert_eq!(root.named("/index.php/a/b.php"), pair("/index.php", "/a/b.php"));
        assert_eq!(root.named("/blog/"), pair("/blog/index.php", ""));
        assert_eq!(root.named("/"), pair("/index.php", ""));
        assert_eq!(root.named("/dir.php/inner.php/x"), pair("/dir.php/inner.php", "/x"));
        assert_eq!(root.named("/a b.php"), pair("/a b.php", ""));
        assert_eq!(root.named("/ü.php/ü"), pair("/ü.php", "/ü"));
        assert!(look(&root.0, "/about", "/index.php", true).front.is_some());
        assert!(look(&root.0, "/about", "/missing.php", true).front.is_none());
    }

    #[test]
    fn nothing_else_is_a_script() {
        let root = Root::new("else");
        let outside = Root::new("outside");
        outside.file("secret.php");
        for file in ["x.jpg", "index.php", "UPPER.PHP", "real.php", ".git/hook.php", ".hidden.php"] {
            root.file(file);
        }
        // Windows: no program without special rights can make links.
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            symlink(outside.0.join("secret.php"), root.0.join("out.php")).expect("a link");
            symlink(root.0.join("x.jpg"), root.0.join("image.php")).expect("a link");
            symlink(root.0.join("real.php"), root.0.join("alias.php")).expect("a link");
        }
        std::fs::create_dir(root.0.join("dir.php")).expect("a directory");
        for path in [
            "/x.jpg/y.php",
            "/x.jpg",
            "/x.jpg/.php",
            "/out.php",
            "/image.php",
            "/dir.php",
            "/dir.php/",
            "/UPPER.PHP",
            "/index.phpx",
            "/index.php.bak",
            "/index.php\u{0}",
            "/.php",
            "/real.php./x",
            "/.git/hook.php",
            "/.hidden.php",
            "",
            "index.php",
        ] {
            assert_eq!(root.named(path), None, "{path:?}");
        }
        if cfg!(unix) {
            assert_eq!(root.named("/alias.php"), pair("/alias.php", ""), "a link within the site");
        }
    }

    // Windows: no program without special rights can make links.
    #[cfg(unix)]
    #[test]
    fn a_link_leads_to_no_script_if_the_site_follows_none() {
        let root = Root::new("links");
        root.file("dir/index.php");
        root.file("real.php");
        for (to, link) in [("real.php", "alias.php"), ("dir", "linked"), ("real.php", "front.php")] {
            std::os::unix::fs::symlink(to, root.0.join(link)).expect("a link");
        }
        let through = root.0.with_extension("link");
        let _ = std::fs::remove_file(&through);
        std::os::unix::fs::symlink(&root.0, &through).expect("a link");
        for path in ["/alias.php", "/alias.php/more", "/linked/index.php", "/linked/"] {
            assert!(look(&root.0, path, "/front.php", true).named.is_some(), "{path}");
            let denied = look(&root.0, path, "/front.php", false);
            assert_eq!(denied, ScriptLook::default(), "{path}");
        }
        for path in ["/real.php", "/dir/", "/dir/index.php/more"] {
            // The root itself may be a link: it is the operator's.
            assert!(look(&through, path, "/real.php", false).named.is_some(), "{path}");
        }
        std::fs::remove_file(through).expect("the link");
    }

    /// On Unix all these are names of other files, which do not exist.
    #[test]
    fn a_script_has_one_name() {
        let root = Root::new("one-name");
        root.file("Shop/long name.php");
        root.file("Shop/.hidden/hook.php");
        assert!(root.named("/Shop/long name.php").is_some());
        for path in [
            "/shop/long name.php",
            "/Shop/LONG NAME.php",
            "/Shop/LONGNA~1.php",
            "/Shop\\long name.php",
            "/Shop\\.hidden\\hook.php",
            "/Shop/long name.php.",
            "/Shop/long name.php ",
            "/Shop/long name.php::$DATA",
            "/Shop/long name.php:stream.php",
        ] {
            assert_eq!(root.named(path), None, "{path}");
        }
    }

    #[test]
    fn names_of_scripts_are_never_files() {
        for path in [
            "/a.php",
            "/A.PHP",
            "/x.jpg/y.Php/z",
            "/.php",
            "/a.phtml",
            "/a.PHP5",
            "/a.php~",
            "/a.php.bak",
            "/#a.php#",
            "/a.php.old~",
        ] {
            assert!(names_script(path), "{path}");
        }
        for path in ["/", "/a.phps", "/php", "/a.php.txt", "/a.html", "/a.phtml/b.txt", "/~", "/notes.old"] {
            assert!(!names_script(path), "{path}");
        }
    }

    #[test]
    fn what_was_found_is_known_for_a_second() {
        let mut cache = ScriptCache::default();
        cache.insert(1, "/a".into(), ScriptLook::default(), 5);
        assert!(cache.get(1, "/a", KNOWN_NS + 4).is_some());
        assert!(cache.get(1, "/a", KNOWN_NS + 5).is_none());
        assert!(cache.get(2, "/a", 5).is_none(), "another route");
        cache.insert(2, "/a".into(), ScriptLook::default(), 5);
        cache.insert(1, "/a".into(), ScriptLook::default(), 9);
        assert!(cache.get(2, "/a", 5).is_some() && cache.get(1, "/a", KNOWN_NS + 8).is_some());
        for number in 0..KNOWN_MAX {
            cache.insert(1, format!("/{number}").into(), ScriptLook::default(), 5);
        }
        assert!(cache.found.len() <= KNOWN_MAX && cache.get(1, "/1023", 5).is_some());
    }
}
