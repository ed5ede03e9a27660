//! Names that lead through links below a root: symbolic links, junctions and mount points, resolved component by component.
//!
//! ```text
//!  a/link/b ─► open `a` in the root ─► open `link` in `a`: a link ─► its target ─┬─ relative: the components replace `link`
//!                                                                               ├─ absolute, below the root: from the root
//!                                                                               ├─ absolute, local: only `Links::Follow`
//!                                                                               └─ another machine, unknown: never
//! ```
//! The system itself never follows a link here, except to the absolute target of [`Links::Follow`]: each component is opened relative
//! to the handle of its directory, as what it is. So no race can lead outside, and no link below the root makes this process
//! connect to another machine. `..` in a target leads to the directory that the walk came from, never above the root.

use windows_sys::Win32::System::SystemServices::{IO_REPARSE_TAG_MOUNT_POINT, IO_REPARSE_TAG_SYMLINK};

use crate::files::{Links, OpenError};

/// Maximum number of links followed in one lookup, as on Linux.
const LINKS_MAX: usize = 40;

/// The target of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LinkTarget {
    /// Components from the directory of the link; `..` among them.
    Relative(Vec<String>),
    /// A path on a drive of this machine: `C:\site\a`.
    Local(String),
    /// Another machine, a volume without a drive, or a kind of link that is not known.
    Other,
}

/// An opened component.
pub(crate) struct WalkEntry<H> {
    pub(crate) handle: H,
    pub(crate) is_folder: bool,
    /// The target, if the component is a link.
    pub(crate) link: Option<LinkTarget>,
}

/// The directories that a walk goes through.
pub(crate) trait LinkTree {
    type Handle;

    /// Opens an entry of a directory, as what it is. With `is_requested`, its true name must be exactly `name`.
    fn open(
        &self,
        folder: &Self::Handle,
        name: &str,
        is_requested: bool,
    ) -> Result<WalkEntry<Self::Handle>, OpenError>;

    /// Opens a local path, and follows its links.
    fn open_local(&self, path: &str) -> Result<WalkEntry<Self::Handle>, OpenError>;
}

struct PendingComponent {
    name: String,
    /// The component is the request's, not a link's.
    is_requested: bool,
}

/// Opens the file of a name whose components are `segments`, beginning at `root`, whose true name is `root_name`.
///
/// # Errors
/// See [`OpenError`]. [`OpenError::Forbidden`] if `links` does not permit the way.
pub(crate) fn walk<T: LinkTree>(
    tree: &T,
    root: T::Handle,
    root_name: &str,
    segments: &[&str],
    links: Links,
) -> Result<T::Handle, OpenError> {
    let requested = segments.iter().rev();
    let mut pending: Vec<PendingComponent> =
        requested.map(|name| PendingComponent { name: (*name).to_owned(), is_requested: true }).collect();
    let mut way = vec![WalkEntry { handle: root, is_folder: true, link: None }];
    let mut followed = 0;
    while let Some(PendingComponent { name, is_requested }) = pending.pop() {
        if name == ".." {
            way.pop();
            // The root's parent is outside.
            if way.is_empty() {
                return Err(OpenError::Forbidden);
            }
            continue;
        }
        let folder = way.last().filter(|entry| entry.is_folder).ok_or(OpenError::NotFound)?;
        let entry = tree.open(&folder.handle, &name, is_requested)?;
        let Some(link) = entry.link.clone() else {
            way.push(entry);
            continue;
        };
        followed += 1;
        if links == Links::Deny || followed > LINKS_MAX {
            return Err(OpenError::Forbidden);
        }
        let mut components = match link {
            LinkTarget::Relative(components) => components,
            LinkTarget::Local(path) => match below(&path, root_name) {
                Some(components) => {
                    way.truncate(1);
                    components
                }
                None if links == Links::Follow => {
                    way = vec![tree.open_local(&path)?];
                    Vec::new()
                }
                None => return Err(OpenError::Forbidden),
            },
            LinkTarget::Other => return Err(OpenError::Forbidden),
        };
        components.reverse();
        pending.extend(components.into_iter().map(|name| PendingComponent { name, is_requested: false }));
    }
    way.pop().map(|entry| entry.handle).ok_or(OpenError::Forbidden)
}

/// The components of a local path below the root; `None` if it is elsewhere. Case is ignored: the walk from the root finds out
/// whether the path exists.
fn below(path: &str, root_name: &str) -> Option<Vec<String>> {
    let root = root_name.strip_prefix(r"\\?\")?;
    let mut components = parts(path);
    for expected in parts(root) {
        if components.next()?.to_lowercase() != expected.to_lowercase() {
            return None;
        }
    }
    let rest: Vec<String> = components.map(str::to_owned).collect();
    (!rest.iter().any(|name| name == "..")).then_some(rest)
}

/// The components of a path. The system reads both slashes in targets as separators.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split(['\\', '/']).filter(|part| !part.is_empty() && *part != ".")
}

/// Reads the target of a link from its reparse data (REPARSE_DATA_BUFFER).
pub(crate) fn target(data: &[u8]) -> LinkTarget {
    /// The flag of a relative symbolic link.
    const RELATIVE: u32 = 1;
    let half = |at: usize| Some(u16::from_le_bytes(data.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?));
    let found = || {
        // Tag, length and an unused half; then offset and length of the name that the system uses, and of one to be shown.
        let (names, is_relative) = match word(0)? {
            IO_REPARSE_TAG_SYMLINK => (20, word(16)? & RELATIVE != 0),
            IO_REPARSE_TAG_MOUNT_POINT => (16, false),
            _ => return None,
        };
        let start = names + usize::from(half(8)?);
        let bytes = data.get(start..start + usize::from(half(10)?))?;
        let units: Vec<u16> =
            bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        let name = String::from_utf16(&units).ok()?;
        if is_relative {
            // A leading slash means the drive's first directory.
            let is_plain = !name.starts_with(['\\', '/']) && !name.contains(':');
            return is_plain.then(|| LinkTarget::Relative(parts(&name).map(str::to_owned).collect()));
        }
        let path = name.strip_prefix(r"\??\")?;
        let is_drive = matches!(path.as_bytes(), [letter, b':', b'\\', ..] if letter.is_ascii_alphabetic());
        (is_drive && !path[2..].contains(':')).then(|| LinkTarget::Local(path.to_owned()))
    };
    found().unwrap_or(LinkTarget::Other)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const ROOT: &str = r"\\?\C:\Site";

    /// A file system: paths with their links. A handle is the path.
    struct FakeTree(BTreeMap<&'static str, FakeFile>);

    enum FakeFile {
        Folder,
        Page,
        Link(LinkTarget),
    }

    fn relative(path: &str) -> FakeFile {
        FakeFile::Link(LinkTarget::Relative(parts(path).map(str::to_owned).collect()))
    }

    fn local(path: &str) -> FakeFile {
        FakeFile::Link(LinkTarget::Local(path.to_owned()))
    }

    impl LinkTree for FakeTree {
        type Handle = String;

        fn open(
            &self,
            folder: &String,
            name: &str,
            is_requested: bool,
        ) -> Result<WalkEntry<String>, OpenError> {
            let path = format!(r"{folder}\{name}");
            // As the system: case is ignored, but the true name is known.
            let found = self.0.iter().find(|(other, _)| other.eq_ignore_ascii_case(&path));
            let (path, file) = found.ok_or(OpenError::NotFound)?;
            if is_requested && !path.ends_with(&format!(r"\{name}")) {
                return Err(OpenError::NotFound);
            }
            let link = if let FakeFile::Link(target) = file { Some(target.clone()) } else { None };
            let is_folder = matches!(file, FakeFile::Folder);
            Ok(WalkEntry { handle: (*path).to_owned(), is_folder, link })
        }

        fn open_local(&self, path: &str) -> Result<WalkEntry<String>, OpenError> {
            let (folder, name) = path.rsplit_once('\\').ok_or(OpenError::NotFound)?;
            self.open(&folder.to_owned(), name, false)
        }
    }

    fn tree() -> FakeTree {
        FakeTree(
            [
                (r"C:\Site\a", FakeFile::Page),
                (r"C:\Site\sub", FakeFile::Folder),
                (r"C:\Site\sub\b", FakeFile::Page),
                (r"C:\Site\sub\deep", FakeFile::Folder),
                (r"C:\Site\in", relative(r"sub\b")),
                (r"C:\Site\twice", relative("in")),
                (r"C:\Site\folder", relative("sub")),
                (r"C:\Site\sub\back", relative(r"..\a")),
                (r"C:\Site\sub\deep\back", relative("..")),
                (r"C:\Site\out", relative(r"..\secret")),
                (r"C:\Site\sub\out", relative(r"..\..\secret")),
                (r"C:\Site\up", relative("..")),
                (r"C:\Site\circle", relative("circle")),
                (r"C:\Site\junction", local(r"C:\site\SUB")),
                (r"C:\Site\whole", local(r"C:\Site")),
                (r"C:\Site\beside", local(r"C:\Sites\x")),
                (r"C:\Site\climbing", local(r"C:\Site\sub\..\..\secret")),
                (r"C:\Site\absolute", local(r"C:\secret")),
                (r"C:\Site\elsewhere", local(r"C:\other")),
                (r"C:\Site\share", FakeFile::Link(LinkTarget::Other)),
                (r"C:\Site\through", relative(r"share\x")),
                (r"C:\secret", FakeFile::Page),
                (r"C:\Sites\x", FakeFile::Page),
                (r"C:\other", FakeFile::Folder),
                (r"C:\other\c", FakeFile::Page),
                (r"C:\other\up", relative(r"..\secret")),
            ]
            .into(),
        )
    }

    fn find(name: &str, links: Links) -> Result<String, OpenError> {
        let segments: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
        walk(&tree(), r"C:\Site".to_owned(), ROOT, &segments, links)
    }

    #[test]
    fn links_below_the_root_lead_to_their_files() {
        for (name, expected) in [
            ("", r"C:\Site"),
            ("a", r"C:\Site\a"),
            ("sub/b", r"C:\Site\sub\b"),
            ("in", r"C:\Site\sub\b"),
            ("twice", r"C:\Site\sub\b"),
            ("folder/b", r"C:\Site\sub\b"),
            ("folder/deep/back/b", r"C:\Site\sub\b"),
            ("sub/back", r"C:\Site\a"),
            ("junction/b", r"C:\Site\sub\b"),
            ("junction/back", r"C:\Site\a"),
            ("whole/whole/a", r"C:\Site\a"),
        ] {
            for links in [Links::Beneath, Links::Follow] {
                assert_eq!(find(name, links).as_deref(), Ok(expected), "{name} with {links:?}");
            }
        }
    }

    #[test]
    fn no_link_is_followed_under_deny() {
        for name in ["in", "folder/b", "sub/back", "junction/b", "whole/a", "absolute", "share"] {
            assert_eq!(find(name, Links::Deny), Err(OpenError::Forbidden), "{name}");
        }
        assert_eq!(find("sub/b", Links::Deny).as_deref(), Ok(r"C:\Site\sub\b"));
    }

    #[test]
    fn no_link_leads_above_the_root_or_to_another_machine() {
        for name in ["out", "sub/out", "up", "up/secret", "share", "share/x", "through", "circle"] {
            for links in [Links::Beneath, Links::Follow] {
                assert_eq!(find(name, links), Err(OpenError::Forbidden), "{name} with {links:?}");
            }
        }
    }

    #[test]
    fn only_follow_leads_to_other_local_paths() {
        for (name, expected) in
            [("absolute", r"C:\secret"), ("elsewhere/c", r"C:\other\c"), ("beside", r"C:\Sites\x")]
        {
            assert_eq!(find(name, Links::Beneath), Err(OpenError::Forbidden), "{name}");
            assert_eq!(find(name, Links::Follow).as_deref(), Ok(expected), "{name}");
        }
        // The system writes no dots into absolute targets, and does not resolve them in such paths.
        assert_eq!(find("climbing", Links::Beneath), Err(OpenError::Forbidden));
        assert_eq!(find("climbing", Links::Follow), Err(OpenError::NotFound));
        // The directory above a target is not known.
        assert_eq!(find("elsewhere/up", Links::Follow), Err(OpenError::Forbidden));
    }

    #[test]
    fn a_request_must_spell_names_as_they_are_and_files_have_no_entries() {
        for name in ["IN", "Folder/b", "folder/B", "JUNCTION/b", "a/b", "in/x", "absent", "sub/absent"] {
            assert_eq!(find(name, Links::Beneath), Err(OpenError::NotFound), "{name}");
        }
    }

    /// Reparse data with the name for the system, after one to be shown.
    fn data(tag: u32, flags: Option<u32>, name: &str) -> Vec<u8> {
        let shown: Vec<u8> = "shown".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut data = tag.to_le_bytes().to_vec();
        data.extend([0; 4]);
        for half in [shown.len(), name.len(), 0, shown.len()] {
            data.extend((half as u16).to_le_bytes());
        }
        data.extend(flags.map(u32::to_le_bytes).into_iter().flatten());
        data.extend(shown);
        data.extend(name);
        data
    }

    #[test]
    fn targets_are_read_from_the_data_of_links() {
        let symlink = |flags, name| target(&data(IO_REPARSE_TAG_SYMLINK, Some(flags), name));
        let junction = |name| target(&data(IO_REPARSE_TAG_MOUNT_POINT, None, name));
        let components =
            |names: &[&str]| LinkTarget::Relative(names.iter().map(ToString::to_string).collect());
        assert_eq!(symlink(1, r"sub\b"), components(&["sub", "b"]));
        assert_eq!(symlink(1, r"..\.\sub/b\"), components(&["..", "sub", "b"]));
        assert_eq!(symlink(0, r"\??\C:\a b"), LinkTarget::Local(r"C:\a b".into()));
        assert_eq!(junction(r"\??\D:\x\"), LinkTarget::Local(r"D:\x\".into()));
        for name in [r"\sub", "/sub", "C:sub", r"a:stream"] {
            assert_eq!(symlink(1, name), LinkTarget::Other, "{name}");
        }
        for name in [
            r"\??\UNC\host\share",
            r"\??\Volume{8a2e}\x",
            r"\\host\share",
            r"\??\C:",
            r"\??\C:\a:stream",
            r"\??\GLOBALROOT\Device\x",
            r"C:\x",
            "",
        ] {
            assert_eq!(symlink(0, name), LinkTarget::Other, "{name}");
            assert_eq!(junction(name), LinkTarget::Other, "{name}");
        }
        assert_eq!(target(&data(0x9000_001A, None, "x")), LinkTarget::Other, "a file in a cloud");
        let whole = data(IO_REPARSE_TAG_SYMLINK, Some(1), "sub");
        for end in 0..whole.len() {
            assert_eq!(target(&whole[..end]), LinkTarget::Other, "cut at {end}");
        }
    }
}
