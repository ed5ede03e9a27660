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

/// Looks for the scripts of a decoded path, which has no dot segments. Blocks: file systems may be slow.
pub(crate) fn look(root: &Path, path: &str, front: &str) -> ScriptLook {
    // A deployment may have replaced a link.
    let Ok(root) = &std::fs::canonicalize(root) else { return ScriptLook::default() };
    let named = candidates(path).find_map(|end| script(root, path, end)).or_else(|| {
        let index = format!("{path}index.php");
        path.ends_with('/').then(|| script(root, &index, index.len())).flatten()
    });
    let front = script(root, front, front.len()).map(|front| PhpScript { is_front: true, ..front });
    ScriptLook { named: named.map(Arc::new), front: front.map(Arc::new) }
}

/// Whether a segment of the path has the name of a script, in any case of letters.
pub(crate) fn names_script(path: &str) -> bool {
    path.split('/').any(|segment| {
        let end = segment.len().wrapping_sub(SUFFIX.len());
        segment.as_bytes().get(end..).is_some_and(|end| end.eq_ignore_ascii_case(SUFFIX.as_bytes()))
    })
}

/// The places after `.php` at the end of a segment.
fn candidates(path: &str) -> impl Iterator<Item = usize> {
    path.match_indices(SUFFIX)
        .map(|(start, _)| start + SUFFIX.len())
        .filter(|end| matches!(path.as_bytes().get(*end), None | Some(b'/')))
}

/// The script whose name ends at `end` of the path, if there is one.
fn script(root: &Path, path: &str, end: usize) -> Option<PhpScript> {
    let (name, path_info) = path.split_at_checked(end)?;
    // Hidden files are no scripts, as the site sends none of them.
    if name.split('/').any(|segment| segment.starts_with('.')) {
        return None;
    }
    let file = std::fs::canonicalize(root.join(name.strip_prefix('/')?)).ok()?;
    // A link may lead to another script of the site, and nowhere else.
    let is_script =
        file.starts_with(root) && file.as_os_str().as_encoded_bytes().ends_with(SUFFIX.as_bytes());
    let is_file = is_script && std::fs::metadata(&file).is_ok_and(|metadata| metadata.is_file());
    is_file.then(|| PhpScript {
        name: name.to_owned(),
        path_info: path_info.to_owned(),
        file,
        root: root.to_owned(),
        is_front: false,
    })
}

const SUFFIX: &str = ".php";

/// The scripts that a worker has found lately.
#[derive(Default)]
pub(crate) struct ScriptCache {
    found: HashMap<Box<str>, (u64, ScriptLook)>,
}

impl ScriptCache {
    pub(crate) fn get(&self, key: &str, now_ns: u64) -> Option<&ScriptLook> {
        let (found_ns, look) = self.found.get(key)?;
        (now_ns.saturating_sub(*found_ns) < KNOWN_NS).then_some(look)
    }

    pub(crate) fn insert(&mut self, key: Box<str>, look: ScriptLook, now_ns: u64) {
        if self.found.len() >= KNOWN_MAX {
            self.found.clear();
        }
        self.found.insert(key, (now_ns, look));
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
            let script = look(&self.0, path, "/index.php").named?;
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
        assert!(look(&root.0, "/about", "/index.php").front.is_some());
        assert!(look(&root.0, "/about", "/missing.php").front.is_none());
    }

    #[test]
    fn nothing_else_is_a_script() {
        let root = Root::new("else");
        let outside = Root::new("outside");
        outside.file("secret.php");
        for file in ["x.jpg", "index.php", "UPPER.PHP", "real.php", ".git/hook.php", ".hidden.php"] {
            root.file(file);
        }
        std::os::unix::fs::symlink(outside.0.join("secret.php"), root.0.join("out.php")).expect("a link");
        std::os::unix::fs::symlink(root.0.join("x.jpg"), root.0.join("image.php")).expect("a link");
        std::os::unix::fs::symlink(root.0.join("real.php"), root.0.join("alias.php")).expect("a link");
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
        assert_eq!(root.named("/alias.php"), pair("/alias.php", ""), "a link within the site");
    }

    #[test]
    fn names_of_scripts_are_never_files() {
        for path in ["/a.php", "/A.PHP", "/x.jpg/y.Php/z", "/.php"] {
            assert!(names_script(path), "{path}");
        }
        for path in ["/", "/a.phps", "/php", "/a.php.txt", "/a.html"] {
            assert!(!names_script(path), "{path}");
        }
    }

    #[test]
    fn what_was_found_is_known_for_a_second() {
        let mut cache = ScriptCache::default();
        cache.insert("/a".into(), ScriptLook::default(), 5);
        assert!(cache.get("/a", KNOWN_NS + 4).is_some());
        assert!(cache.get("/a", KNOWN_NS + 5).is_none());
        for number in 0..KNOWN_MAX {
            cache.insert(format!("/{number}").into(), ScriptLook::default(), 5);
        }
        assert!(cache.found.len() <= KNOWN_MAX && cache.get("/1023", 5).is_some());
    }
}
