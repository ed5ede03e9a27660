//! The settings file on the disk: read with limits, replaced atomically.
//!
//! ```text
//!  .NAME.encke-new ── create, write, mode, owner, fsync ─► exchanged with NAME ─► fsync of the directory
//!  .NAME.encke-old ── the old file, until the new settings are in force: put back otherwise
//! ```
//! Killed at any of these steps, the process leaves the old or the new file, complete. A rest of a former attempt is replaced.
//! The old file itself is put back, not a copy, so that its inode and all its attributes stay. The exchange sets aside exactly
//! the file that it replaces: if that is not the text that was read, another program has written it, and it is put back.

use std::error::Error;
use std::fmt;
use std::fs::{self, Metadata};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use encke_io::files::{self, FileRights};
use encke_server::CodedText;
use encke_settings::BYTES_MAX;

/// Bytes of one write. A settings file is usually smaller.
const WRITE_BYTES: usize = 64 * 1024;

/// The step of a file operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileStep {
    Read,
    Create,
    Write,
    Permissions,
    Sync,
    Rename,
    /// Gives the replaced file its second name.
    SetAside,
    /// Compares the replaced file with the text that was read.
    Compare,
    SyncDirectory,
    Remove,
    List,
}

impl FileStep {
    const fn says(self) -> &'static str {
        match self {
            Self::Read => "cannot read",
            Self::Create => "cannot create",
            Self::Write => "cannot write",
            Self::Permissions => "cannot set the permissions of",
            Self::Sync => "cannot store on the disk",
            Self::Rename | Self::Compare => "cannot replace",
            Self::SetAside => "cannot rename",
            Self::SyncDirectory => "cannot store on the disk the directory",
            Self::Remove => "cannot remove",
            Self::List => "cannot list",
        }
    }
}

/// Why a file cannot be read or replaced. The origin is always this machine.
#[derive(Debug)]
pub(crate) struct FileError {
    pub(crate) path: PathBuf,
    pub(crate) step: FileStep,
    pub(crate) error: io::Error,
}

impl FileError {
    pub(crate) fn at(path: &Path, step: FileStep) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self { path, step, error }
    }

    /// The remedy, as the end of the message.
    fn remedy(&self) -> &'static str {
        match self.error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ": free space on this file system",
            io::ErrorKind::PermissionDenied => {
                ": the user that Encke runs as needs the right to write the file and its directory"
            }
            io::ErrorKind::ReadOnlyFilesystem => ": mount the file system with write access",
            // A file that is mounted alone into a container cannot be replaced.
            io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices => {
                ": the file is a mount point of its own; mount its directory instead"
            }
            _ => "",
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}{}", self.step.says(), self.path.display(), self.error, self.remedy())
    }
}

impl Error for FileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// A settings file as it is on the disk.
#[derive(Debug)]
pub(crate) struct FileContent {
    /// The file itself, behind all symbolic links.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// The last modification, in ms since 1970.
    pub(crate) modified_ms: u64,
}

/// Reads a settings file.
pub(crate) fn read(path: &Path) -> Result<FileContent, FileError> {
    let real = fs::canonicalize(path).map_err(FileError::at(path, FileStep::Read))?;
    let wrong = || FileError::at(&real, FileStep::Read);
    let invalid = |text: &'static str| wrong()(io::Error::new(io::ErrorKind::InvalidData, text));
    let mut bytes = Vec::new();
    let file = files::open_regular(&real).map_err(wrong())?;
    let metadata = file.metadata().map_err(wrong())?;
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(wrong())?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(invalid("larger than 1 MiB"));
    }
    let text = String::from_utf8(bytes).map_err(|_| invalid("not UTF-8"))?;
    Ok(FileContent { text, modified_ms: modified_ms(&metadata), path: real })
}

/// Distinguishes the contents of a file: length and time of the last modification. `None` if it cannot be read.
pub(crate) fn stamp(path: &Path) -> Option<(u64, Option<std::time::SystemTime>)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.len(), metadata.modified().ok()))
}

pub(crate) fn modified_ms(metadata: &Metadata) -> u64 {
    let since = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Why the file cannot be replaced; `None` if nothing is known against it. `path` is behind all symbolic links.
pub(crate) fn obstacle(path: &Path) -> Option<CodedText> {
    let file = path.display();
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return Some(format!("cannot read {file}: {error}").into()),
    };
    // A rename would succeed without this permission, but its absence is a request of the operator.
    if metadata.permissions().readonly() {
        let text = CodedText::new(
            "file_read_only",
            "{file} is read-only: allow its owner to write it with `{command}`",
        );
        return Some(text.with("file", file).with("command", files::allow_writing(path)));
    }
    if let Err(error) = files::may_write(path) {
        return Some(FileError::at(path, FileStep::Write)(error).to_string().into());
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let error = files::may_write(folder).err()?;
    let text = "a new version is first written next to the file";
    Some(format!("{}; {text}", FileError::at(folder, FileStep::Write)(error)).into())
}

/// A replaced file, which can be put back.
#[derive(Debug)]
#[must_use]
pub(crate) struct ReplacedFile {
    path: PathBuf,
    /// The name of the old file.
    old: PathBuf,
    /// Its content, if the file system has neither exchanges nor links.
    copy: Option<Vec<u8>>,
    /// What it was expected to contain.
    expected: Vec<u8>,
    /// What the new file contains.
    written: Vec<u8>,
}

/// Replaces a file that contains `expected` atomically, with the permissions and, where the system allows it, the owner of the
/// old one. `path` is behind all symbolic links. `before` is called before each step that changes the disk.
///
/// # Errors
/// The file is unchanged, except if the error says that it could not be put back. [`FileStep::Compare`]: another program has
/// written it.
pub(crate) fn replace(
    path: &Path,
    (expected, content): (&[u8], &[u8]),
    before: &mut dyn FnMut(FileStep),
) -> Result<ReplacedFile, FileError> {
    let rights = FileRights::of(path).map_err(FileError::at(path, FileStep::Read))?;
    let old = sibling(path, "old");
    before(FileStep::Remove);
    remove(&old)?;
    let new = write_new(path, content, Some(&rights), before)?;
    let mut replaced = ReplacedFile {
        path: path.to_owned(),
        old,
        copy: None,
        expected: expected.to_vec(),
        written: content.to_vec(),
    };
    before(FileStep::Rename);
    if let Err(error) = replaced.swap(&new, before) {
        let _may_be_gone = fs::remove_file(&new);
        let _first_error_counts = replaced.discard();
        return Err(error);
    }
    before(FileStep::SyncDirectory);
    let checked = sync_parent(path).and_then(|()| match replaced.late_content()? {
        Some(_) => Err(changed(path)),
        None => Ok(()),
    });
    match checked {
        Ok(()) => Ok(replaced),
        Err(error) => {
            replaced.restore()?;
            Err(error)
        }
    }
}

impl ReplacedFile {
    /// Puts the new file in the place of the old one.
    fn swap(&mut self, new: &Path, before: &mut dyn FnMut(FileStep)) -> Result<(), FileError> {
        let rename = |from: &Path, to: &Path, step| fs::rename(from, to).map_err(FileError::at(to, step));
        if files::exchange(new, &self.path).is_ok() {
            before(FileStep::SetAside);
            return rename(new, &self.old, FileStep::SetAside).inspect_err(|_| {
                let _back = files::exchange(new, &self.path);
            });
        }
        before(FileStep::SetAside);
        // Some file systems have no links, and the kernel may forbid links to files of other users (fs.protected_hardlinks).
        if fs::hard_link(&self.path, &self.old).is_err() {
            self.copy = Some(content(&self.path)?);
        }
        if self.late_content()?.is_some() {
            return Err(changed(&self.path));
        }
        rename(new, &self.path, FileStep::Rename)
    }

    /// The content of the old file if another program has written it since it was read.
    pub(crate) fn late_content(&self) -> Result<Option<Vec<u8>>, FileError> {
        let found = match &self.copy {
            Some(copy) => copy.clone(),
            None => content(&self.old)?,
        };
        Ok(Some(found).filter(|found| *found != self.expected))
    }

    /// Puts the old file back.
    ///
    /// # Errors
    /// [`FileStep::Compare`]: another program has written the file meanwhile, so it stays, and the old one, too, under its
    /// second name.
    pub(crate) fn restore(&self) -> Result<(), FileError> {
        let is_ours = |path: &Path| Ok(content(path)? == self.written);
        if let Some(copy) = &self.copy {
            if !is_ours(&self.path)? {
                return Err(changed(&self.path));
            }
            let like = FileRights::of(&self.path).map_err(FileError::at(&self.path, FileStep::Read))?;
            return write_renamed(&self.path, copy, Some(&like), &mut |_| {});
        }
        let back = FileError::at(&self.path, FileStep::Rename);
        if files::exchange(&self.old, &self.path).is_ok() {
            if !is_ours(&self.old)? {
                files::exchange(&self.old, &self.path).map_err(back)?;
                return Err(changed(&self.path));
            }
            remove(&self.old)?;
        } else {
            if !is_ours(&self.path)? {
                return Err(changed(&self.path));
            }
            fs::rename(&self.old, &self.path).map_err(back)?;
        }
        sync_parent(&self.path)
    }

    /// Removes the old file.
    pub(crate) fn discard(&self) -> Result<(), FileError> {
        remove(&self.old)
    }
}

fn content(path: &Path) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    files::open_regular(path)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(FileError::at(path, FileStep::Read))?;
    Ok(bytes)
}

fn changed(path: &Path) -> FileError {
    FileError::at(path, FileStep::Compare)(io::Error::other("another program has changed it meanwhile"))
}

fn sync_parent(path: &Path) -> Result<(), FileError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    files::sync_directory(folder).map_err(FileError::at(folder, FileStep::SyncDirectory))
}

/// The text of an old file that an attempt left, because the process was killed or another program wrote the file meanwhile.
pub(crate) fn left_over(path: &Path) -> Option<String> {
    String::from_utf8(content(&sibling(path, "old")).ok()?).ok()
}

/// The files that a replacement of the file at a real path has for a moment. Never serve them: they have its secrets.
pub fn temporary_files(path: &Path) -> [PathBuf; 2] {
    [sibling(path, "new"), sibling(path, "old")]
}

/// The name of a temporary file next to a file.
fn sibling(path: &Path, end: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.encke-{end}"))
}

fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FileError::at(path, FileStep::Remove)(error))
        }
        _ => Ok(()),
    }
}

/// Writes a private file atomically, readable only by its owner.
pub(crate) fn write_private(
    path: &Path,
    content: &[u8],
    before: &mut dyn FnMut(FileStep),
) -> Result<(), FileError> {
    write_renamed(path, content, None, before)
}

fn write_renamed(
    path: &Path,
    content: &[u8],
    like: Option<&FileRights>,
    before: &mut dyn FnMut(FileStep),
) -> Result<(), FileError> {
    let new = write_new(path, content, like, before)?;
    before(FileStep::Rename);
    if let Err(error) = fs::rename(&new, path) {
        let _may_be_gone = fs::remove_file(&new);
        return Err(FileError::at(path, FileStep::Rename)(error));
    }
    before(FileStep::SyncDirectory);
    sync_parent(path)
}

/// Writes the new file next to the old one, and returns its path.
fn write_new(
    path: &Path,
    content: &[u8],
    like: Option<&FileRights>,
    before: &mut dyn FnMut(FileStep),
) -> Result<PathBuf, FileError> {
    let new = sibling(path, "new");
    let written = (|| {
        before(FileStep::Remove);
        // A rest may have other permissions, or be a link to another file.
        remove(&new)?;
        before(FileStep::Create);
        let mut file = files::create_private(&new).map_err(FileError::at(&new, FileStep::Create))?;
        for part in content.chunks(WRITE_BYTES) {
            before(FileStep::Write);
            file.write_all(part).map_err(FileError::at(&new, FileStep::Write))?;
        }
        if let Some(old) = like {
            before(FileStep::Permissions);
            old.give_to(&file).map_err(FileError::at(&new, FileStep::Permissions))?;
        }
        before(FileStep::Sync);
        file.sync_all().map_err(FileError::at(&new, FileStep::Sync))
    })();
    match written {
        Ok(()) => Ok(new),
        Err(error) => {
            let _may_be_gone = fs::remove_file(&new);
            Err(error)
        }
    }
}

/// Creates a directory for its owner only, if there is none.
pub(crate) fn make_private_folder(folder: &Path) -> Result<(), FileError> {
    if folder.is_dir() {
        return Ok(());
    }
    files::make_private_folder(folder).map_err(FileError::at(folder, FileStep::Create))?;
    let parent = folder.parent().unwrap_or(Path::new("/"));
    files::sync_directory(parent).map_err(FileError::at(parent, FileStep::SyncDirectory))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::process::Command;

    /// A directory that its drop removes.
    pub(crate) struct ScratchDir(pub(crate) PathBuf);

    impl ScratchDir {
        pub(crate) fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("encke-console-{name}-{}", std::process::id()));
            let _left = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).expect("a temporary directory");
            Self(fs::canonicalize(path).expect("just made"))
        }
    }

    impl Drop for ScratchDir {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    const OLD: &[u8] = b"[server]\nbacklog = 1\n";

    fn new_content() -> Vec<u8> {
        // Three writes.
        [b"[server]\nbacklog = 2\n# ".as_slice(), &vec![b'x'; 2 * WRITE_BYTES]].concat()
    }

    #[cfg(unix)]
    #[test]
    fn a_replaced_file_keeps_its_mode_and_a_link_stays_a_link() {
        use std::os::unix::fs::PermissionsExt as _;
        let scratch = ScratchDir::new("replace");
        let (file, link) = (scratch.0.join("real.toml"), scratch.0.join("link.toml"));
        fs::write(&file, OLD).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("own file");
        std::os::unix::fs::symlink("real.toml", &link).expect("a link");
        let content = read(&link).expect("readable");
        assert_eq!(content.path, file);
        let inode = encke_io::files::id_of(&file);
        let replaced = replace(&content.path, (OLD, b"new"), &mut |_| {}).expect("replaced");
        assert_eq!(fs::read(&file).expect("there"), b"new");
        replaced.restore().expect("restored");
        assert_eq!((fs::read(&file).expect("there").as_slice(), encke_io::files::id_of(&file)), (OLD, inode));
        replace(&content.path, (OLD, b"new"), &mut |_| {}).expect("replaced").discard().expect("removed");
        assert_eq!(fs::read(&file).expect("there"), b"new");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(&scratch.0).expect("there").count(), 2, "nothing else is left");
        write_private(&scratch.0.join("private"), b"x", &mut |_| {}).expect("written");
        let mode = fs::metadata(scratch.0.join("private")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_replaced_file_keeps_its_rights() {
        let scratch = ScratchDir::new("rights");
        let (private, public) = (scratch.0.join("private.toml"), scratch.0.join("public.toml"));
        files::create_private(&private).and_then(|mut file| file.write_all(OLD)).expect("written");
        fs::write(&public, OLD).expect("written");
        for file in [&private, &public] {
            let before = files::is_private(file).expect("there");
            assert!(before || file == &public);
            let replaced = replace(file, (OLD, b"new"), &mut |_| {}).expect("replaced");
            assert_eq!(files::is_private(file).expect("there"), before, "{}", file.display());
            replaced.restore().expect("restored");
            assert_eq!(fs::read(file).expect("there"), OLD);
            assert_eq!(files::is_private(file).expect("there"), before, "{}", file.display());
        }
        assert_eq!(fs::read_dir(&scratch.0).expect("there").count(), 2, "nothing else is left");
    }

    /// The part of [`a_kill_at_any_step_leaves_a_complete_file`] that runs in a process of its own.
    #[test]
    fn a_child_that_is_killed_at_a_step() {
        let (Ok(file), Ok(at)) = (std::env::var("ENCKE_REPLACE"), std::env::var("ENCKE_KILL_AT")) else {
            return;
        };
        let at: usize = at.parse().expect("a number");
        let mut step = 0;
        let result = replace(Path::new(&file), (OLD, &new_content()), &mut |_| {
            if step == at {
                // As by a kill -9: no destructor, no flush.
                std::process::abort();
            }
            step += 1;
        });
        if step == at {
            // Before the settings are applied.
            std::process::abort();
        }
        result.expect("replaced").discard().expect("removed");
    }

    #[test]
    fn a_kill_at_any_step_leaves_a_complete_file() {
        let scratch = ScratchDir::new("kill");
        let file = scratch.0.join("encke.toml");
        let program = std::env::current_exe().expect("this test");
        let name = "settings::file::tests::a_child_that_is_killed_at_a_step";
        let (mut old_left, mut new_left) = (0, 0);
        for at in 0.. {
            fs::write(&file, OLD).expect("written");
            let child = Command::new(&program)
                .args(["--exact", name])
                .env("ENCKE_REPLACE", &file)
                .env("ENCKE_KILL_AT", at.to_string())
                .output()
                .expect("this program runs");
            let left = fs::read(&file).expect("the file is there");
            if left == OLD {
                old_left += 1;
            } else {
                assert!(left == new_content(), "step {at} left {} bytes", left.len());
                new_left += 1;
                // The old text is still there, until it is in no danger.
                let rests = temporary_files(&file).map(|rest| fs::read(rest).ok());
                let is_kept = rests.iter().flatten().any(|rest| rest == OLD);
                assert!(is_kept != child.status.success(), "step {at}");
            }
            if child.status.success() {
                break;
            }
        }
        // Remove the old rest. The file: remove, create, three writes, permissions, sync, rename. Then the second name, which
        // precedes the rename on file systems without exchanges, the sync of the directory, the reload, and the end.
        assert!(matches!((old_left, new_left), (9, 4) | (10, 3)), "{old_left} old, {new_left} new");
        assert_eq!(fs::read_dir(&scratch.0).expect("there").count(), 1, "the rests of all attempts are gone");
    }

    /// How an editor saves: in place, or by a rename.
    const SAVES: [fn(&Path, &[u8]); 2] = [
        |file, text| fs::write(file, text).expect("written"),
        |file, text| {
            let saved = file.with_extension("saved");
            fs::write(&saved, text).expect("written");
            fs::rename(&saved, file).expect("renamed");
        },
    ];

    #[test]
    fn a_text_that_another_program_saves_meanwhile_is_not_replaced() {
        let scratch = ScratchDir::new("race");
        let file = scratch.0.join("encke.toml");
        for (kind, save) in SAVES.into_iter().enumerate() {
            for at in [FileStep::Create, FileStep::Sync, FileStep::Rename] {
                fs::write(&file, OLD).expect("written");
                let error = replace(&file, (OLD, b"new"), &mut |step| {
                    if step == at {
                        save(&file, b"theirs");
                    }
                });
                let error = error.expect_err("changed");
                assert_eq!(error.step, FileStep::Compare, "{error}");
                assert_eq!(fs::read(&file).expect("there"), b"theirs", "way {kind}, before {at:?}");
                assert_eq!(fs::read_dir(&scratch.0).expect("there").count(), 1, "nothing else is left");
            }
        }
    }

    #[test]
    fn a_text_that_another_program_saves_before_a_rejection_stays() {
        let scratch = ScratchDir::new("race-back");
        let file = scratch.0.join("encke.toml");
        for save in SAVES {
            fs::write(&file, OLD).expect("written");
            let replaced = replace(&file, (OLD, b"new"), &mut |_| {}).expect("replaced");
            save(&file, b"theirs");
            assert_eq!(replaced.restore().expect_err("changed").step, FileStep::Compare);
            assert_eq!(fs::read(&file).expect("there"), b"theirs");
            assert_eq!(
                left_over(&file).map(String::into_bytes).as_deref(),
                Some(OLD),
                "kept for the versions"
            );
        }
        if cfg!(windows) {
            // Only since version 1607 an open file can be replaced.
            return;
        }
        // A program that has opened the old file may still write it.
        fs::write(&file, OLD).expect("written");
        let mut opened = fs::OpenOptions::new().append(true).open(&file).expect("there");
        let replaced = replace(&file, (OLD, b"new"), &mut |_| {}).expect("replaced");
        assert_eq!(replaced.late_content().expect("readable"), None);
        opened.write_all(b"# late").expect("written");
        let late = replaced.late_content().expect("readable").expect("it was written");
        assert!(late.ends_with(b"# late"));
        replaced.discard().expect("removed");
    }

    #[test]
    fn errors_name_the_file_and_the_remedy() {
        let full =
            FileError::at(Path::new("/etc/a.toml"), FileStep::Write)(io::ErrorKind::StorageFull.into());
        assert!(
            full.to_string().contains("/etc/a.toml") && full.to_string().contains("free space"),
            "{full}"
        );
        let busy = FileError::at(Path::new("/a"), FileStep::Rename)(io::ErrorKind::ResourceBusy.into());
        assert!(busy.to_string().contains("mount its directory"), "{busy}");
        let missing = read(Path::new("/nonexistent/a.toml")).expect_err("not there").to_string();
        assert!(missing.contains("/nonexistent/a.toml"), "{missing}");
        let scratch = ScratchDir::new("errors");
        assert!(read(&scratch.0).expect_err("a directory").to_string().contains("not a regular file"));
        let file = scratch.0.join("a.toml");
        fs::write(&file, [0xff]).expect("written");
        assert!(read(&file).expect_err("no text").to_string().contains("not UTF-8"));
        assert_eq!(obstacle(&file), None);
        let mut permissions = fs::metadata(&file).expect("there").permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&file, permissions).expect("own file");
        let reason = obstacle(&file).expect("read-only").to_string();
        assert!(reason.contains(&files::allow_writing(&file)), "{reason}");
    }
}
