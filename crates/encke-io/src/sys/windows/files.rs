//! Files of Windows, opened relative to the handle of their root, so that the system rewrites no name.
//!
//! The system follows no links: a name that leads through a symbolic link or a junction is resolved by `links.rs`, as the
//! [`Links`] policy permits. Other reparse points are refused. Hidden and system files are not found.

use std::fs::File;
use std::io;
use std::os::windows::ffi::OsStringExt as _;
use std::os::windows::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::windows::io::AsRawHandle;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use windows_sys::Wdk::Storage::FileSystem::{
    FILE_DIRECTORY_FILE, FILE_OPEN_REPARSE_POINT, FILE_SYNCHRONOUS_IO_NONALERT,
};
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_BAD_PATHNAME, ERROR_DIRECTORY, ERROR_FILE_NOT_FOUND, ERROR_INVALID_NAME,
    ERROR_NO_MORE_FILES, ERROR_PATH_NOT_FOUND, ERROR_REPARSE_POINT_ENCOUNTERED, ERROR_SHARING_VIOLATION,
    ERROR_TOO_MANY_OPEN_FILES, NTSTATUS, OBJ_DONT_REPARSE, STATUS_INVALID_PARAMETER,
};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ATTRIBUTE_DIRECTORY, FILE_ATTRIBUTE_HIDDEN,
    FILE_ATTRIBUTE_REPARSE_POINT, FILE_ATTRIBUTE_SYSTEM, FILE_BASIC_INFO, FILE_FLAG_BACKUP_SEMANTICS,
    FILE_FLAG_OPEN_REPARSE_POINT, FILE_ID_BOTH_DIR_INFO, FILE_NAME_NORMALIZED, FILE_READ_ATTRIBUTES,
    FILE_READ_DATA, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, FILE_TYPE_DISK, FILE_WRITE_DATA,
    FileBasicInfo, FileIdBothDirectoryInfo, FileIdBothDirectoryRestartInfo, GetFileInformationByHandle,
    GetFileInformationByHandleEx, GetFileType, GetFinalPathNameByHandleW, MAXIMUM_REPARSE_DATA_BUFFER_SIZE,
    SYNCHRONIZE, VOLUME_NAME_DOS,
};
use windows_sys::Win32::System::IO::DeviceIoControl;
use windows_sys::Win32::System::Ioctl::FSCTL_GET_REPARSE_POINT;

use super::error::SysError;
use super::file_names::{is_name, is_true_name, segments};
pub use super::file_names::{is_used_name, plain_path};
use super::links::{self, LinkTarget, LinkTree, WalkEntry};
use super::object::ObjectOpening;
pub(crate) use super::private_files::{OwnRights, create_private, is_private, make_private_folder};
use crate::files::{
    DirEntry, FileId, FileKind, Links, Metadata, OpenError, OpenFile, Patience, Root, not_regular, regular,
};

/// The open directory of a [`Root`], and its true name.
#[derive(Debug)]
pub(crate) struct RootHandle {
    folder: File,
    true_name: Vec<u16>,
}
/// The handle of an [`OpenFile`].
pub(crate) type FileHandle = File;

pub(super) const SHARE_ALL: u32 = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
const READ: u32 = FILE_READ_DATA | FILE_READ_ATTRIBUTES | SYNCHRONIZE;

/// Attributes of files that are not shown.
const CONCEALED: u32 = FILE_ATTRIBUTE_HIDDEN | FILE_ATTRIBUTE_SYSTEM;

/// Bytes of directory entries read per call.
const ENTRIES_BYTES: usize = 64 * 1024;

/// The longest path of the system, in units.
const PATH_UNITS: usize = 32_768;

/// Opens a directory by its path.
fn open_folder(path: &Path, flags: u32) -> io::Result<File> {
    File::options()
        .access_mode(READ)
        .share_mode(SHARE_ALL)
        .custom_flags(FILE_FLAG_BACKUP_SEMANTICS | flags)
        .open(path)
}

/// Opens a file or a directory by its path.
fn open_any(path: &Path, access: u32) -> io::Result<File> {
    File::options()
        .access_mode(access)
        .share_mode(SHARE_ALL)
        .custom_flags(FILE_FLAG_BACKUP_SEMANTICS)
        .open(path)
}

/// The name of an open file as the file system has it, with its drive.
fn true_name(file: &File) -> io::Result<Vec<u16>> {
    let mut buffer = vec![0_u16; PATH_UNITS];
    // SAFETY: the call writes at most `PATH_UNITS` units to the buffer, which is that long.
    let len = unsafe {
        GetFinalPathNameByHandleW(
            file.as_raw_handle(),
            buffer.as_mut_ptr(),
            PATH_UNITS as u32,
            FILE_NAME_NORMALIZED | VOLUME_NAME_DOS,
        )
    } as usize;
    if len == 0 || len >= PATH_UNITS {
        return Err(io::Error::last_os_error());
    }
    buffer.truncate(len);
    Ok(buffer)
}

/// Nanoseconds since 1970 of a time in units of 100 ns since 1601. Earlier times read as 1970.
fn unix_ns(time: i64) -> u64 {
    const EPOCH: i64 = 116_444_736_000_000_000;
    u64::try_from(time.saturating_sub(EPOCH)).unwrap_or(0).saturating_mul(100)
}

const fn wide(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

fn kind_of(attributes: u32) -> FileKind {
    if attributes & FILE_ATTRIBUTE_REPARSE_POINT != 0 {
        FileKind::Other
    } else if attributes & FILE_ATTRIBUTE_DIRECTORY != 0 {
        FileKind::Folder
    } else {
        FileKind::File
    }
}

/// The metadata of an open file, and its attributes.
fn metadata_of(file: &File) -> io::Result<(Metadata, u32)> {
    let mut by_handle = BY_HANDLE_FILE_INFORMATION::default();
    let mut basic = FILE_BASIC_INFO::default();
    // SAFETY: the calls write to these structures and get their sizes.
    let done = unsafe {
        GetFileInformationByHandle(file.as_raw_handle(), &raw mut by_handle) != 0
            && GetFileInformationByHandleEx(
                file.as_raw_handle(),
                FileBasicInfo,
                (&raw mut basic).cast(),
                size_of::<FILE_BASIC_INFO>() as u32,
            ) != 0
    };
    if !done {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes no pointers.
    let is_disk = unsafe { GetFileType(file.as_raw_handle()) } == FILE_TYPE_DISK;
    let metadata = Metadata {
        kind: if is_disk { kind_of(basic.FileAttributes) } else { FileKind::Other },
        len: wide(by_handle.nFileSizeHigh, by_handle.nFileSizeLow),
        modified_ns: unix_ns(basic.LastWriteTime),
        changed_ns: unix_ns(basic.ChangeTime.max(basic.LastWriteTime)),
        inode: wide(by_handle.nFileIndexHigh, by_handle.nFileIndexLow),
        device: by_handle.dwVolumeSerialNumber.into(),
    };
    Ok((metadata, basic.FileAttributes))
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        let number = error.raw_os_error().unwrap_or(0);
        match number as u32 {
            ERROR_FILE_NOT_FOUND | ERROR_PATH_NOT_FOUND | ERROR_INVALID_NAME | ERROR_BAD_PATHNAME
            | ERROR_DIRECTORY => Self::NotFound,
            ERROR_ACCESS_DENIED | ERROR_SHARING_VIOLATION | ERROR_REPARSE_POINT_ENCOUNTERED => {
                Self::Forbidden
            }
            ERROR_TOO_MANY_OPEN_FILES => Self::Descriptors,
            _ => Self::System(number),
        }
    }
}

impl Root {
    /// Opens a directory to serve files from.
    ///
    /// # Errors
    /// The path does not exist, is not a directory, or may not be read.
    pub fn new(path: &Path) -> io::Result<Self> {
        let folder = open_folder(&path.canonicalize()?, 0)?;
        if metadata_of(&folder)?.0.kind != FileKind::Folder {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let true_name = true_name(&folder)?;
        let path = PathBuf::from(std::ffi::OsString::from_wide(&true_name));
        Ok(Self { handle: RootHandle { folder, true_name }, path })
    }

    /// The identity of the root directory.
    ///
    /// # Errors
    /// The file system's.
    pub fn id(&self) -> io::Result<FileId> {
        let (metadata, _) = metadata_of(&self.handle.folder)?;
        Ok((metadata.device, metadata.inode))
    }

    /// Opens `name`, a path relative to the root without a leading slash. `""` is the root itself. A name must be spelled as the
    /// file system has it.
    ///
    /// # Errors
    /// See [`OpenError`]. Always [`OpenError::NotCached`] with [`Patience::Cached`]: this system cannot promise not to wait.
    pub fn open(&self, name: &[u8], links: Links, patience: Patience) -> Result<OpenFile, OpenError> {
        let (segments, is_folder) = segments(name).ok_or(OpenError::NotFound)?;
        if patience == Patience::Cached {
            return Err(OpenError::NotCached);
        }
        match self.open_without_links(&segments, is_folder) {
            // There may be a link.
            Err(OpenError::Forbidden) if links != Links::Deny => {
                self.open_by_links(&segments, is_folder, links)
            }
            opened => opened,
        }
    }

    fn open_without_links(&self, segments: &[&str], is_folder: bool) -> Result<OpenFile, OpenError> {
        let file = open_relative(&self.handle.folder, &segments.join("\\"), is_folder)?;
        let (metadata, attributes) = metadata_of(&file)?;
        if attributes & FILE_ATTRIBUTE_REPARSE_POINT != 0 {
            return Err(OpenError::Forbidden);
        }
        // The root itself may be a drive, which has the attributes of a system directory.
        let is_concealed = attributes & CONCEALED != 0 && !segments.is_empty();
        if is_concealed || !is_true_name(&true_name(&file)?, &self.handle.true_name, segments) {
            return Err(OpenError::NotFound);
        }
        Ok(OpenFile { handle: file, metadata })
    }

    fn open_by_links(&self, segments: &[&str], is_folder: bool, links: Links) -> Result<OpenFile, OpenError> {
        let root = self.open_without_links(&[], true)?;
        // Without a name in UTF-16, no absolute link leads to it.
        let root_name = String::from_utf16(&self.handle.true_name).unwrap_or_default();
        let opened = links::walk(&DiskTree, root, &root_name, segments, links)?;
        if is_folder && opened.metadata.kind != FileKind::Folder {
            return Err(OpenError::NotFound);
        }
        Ok(opened)
    }
}

/// The file systems of this machine.
struct DiskTree;

impl LinkTree for DiskTree {
    type Handle = OpenFile;

    fn open(
        &self,
        folder: &OpenFile,
        name: &str,
        is_requested: bool,
    ) -> Result<WalkEntry<OpenFile>, OpenError> {
        // The target of a link may contain names that requests may not contain.
        if !is_name(name) {
            return Err(OpenError::NotFound);
        }
        let file = open_relative(&folder.handle, name, false)?;
        if is_requested && !is_true_name(&true_name(&file)?, &true_name(&folder.handle)?, &[name]) {
            return Err(OpenError::NotFound);
        }
        walk_entry(file)
    }

    fn open_local(&self, path: &str) -> Result<WalkEntry<OpenFile>, OpenError> {
        let path = format!(r"\\?\{path}");
        let file = open_folder(Path::new(&path), 0)?;
        // Links in this path may lead to another machine.
        let remote: Vec<u16> = r"\\?\UNC\".encode_utf16().collect();
        if true_name(&file)?.starts_with(&remote) {
            return Err(OpenError::Forbidden);
        }
        walk_entry(file)
    }
}

fn walk_entry(file: File) -> Result<WalkEntry<OpenFile>, OpenError> {
    let (metadata, attributes) = metadata_of(&file)?;
    if attributes & CONCEALED != 0 {
        return Err(OpenError::NotFound);
    }
    let is_link = attributes & FILE_ATTRIBUTE_REPARSE_POINT != 0;
    let link = if is_link { Some(link_target(&file)?) } else { None };
    let is_folder = metadata.kind == FileKind::Folder;
    Ok(WalkEntry { handle: OpenFile { handle: file, metadata }, is_folder, link })
}

/// The target of a reparse point.
fn link_target(file: &File) -> io::Result<LinkTarget> {
    let mut data = vec![0_u8; MAXIMUM_REPARSE_DATA_BUFFER_SIZE as usize];
    let mut len = 0;
    // SAFETY: the call writes at most as many bytes as the buffer has, and one number; it is synchronous.
    let done = unsafe {
        DeviceIoControl(
            file.as_raw_handle(),
            FSCTL_GET_REPARSE_POINT,
            std::ptr::null(),
            0,
            data.as_mut_ptr().cast(),
            data.len() as u32,
            &raw mut len,
            std::ptr::null_mut(),
        )
    };
    if done == 0 {
        return Err(io::Error::last_os_error());
    }
    data.truncate(len as usize);
    Ok(links::target(&data))
}

/// The attribute by which an open rejects links in the path; 0 if the system does not support it (before Windows 10 of 2017). Then
/// the true name differs from the path, so the file is not found.
static NO_LINKS: AtomicU32 = AtomicU32::new(OBJ_DONT_REPARSE);

/// Opens a path relative to a directory, whose name the system does not rewrite. A link at its end is opened itself.
fn open_relative(folder: &File, name: &str, is_folder: bool) -> io::Result<File> {
    let attributes = NO_LINKS.load(Ordering::Relaxed);
    match open_with(folder, name, is_folder, attributes) {
        Err(STATUS_INVALID_PARAMETER) if attributes != 0 => {
            let opened = open_with(folder, name, is_folder, 0);
            if opened.is_ok() {
                NO_LINKS.store(0, Ordering::Relaxed);
            }
            opened
        }
        opened => opened,
    }
    .map_err(|status| SysError::of_status(status).into())
}

/// Opens a path relative to a directory, with attributes of the object. The error is a status of the kernel.
fn open_with(folder: &File, name: &str, is_folder: bool, attributes: u32) -> Result<File, NTSTATUS> {
    let kind = if is_folder { FILE_DIRECTORY_FILE } else { 0 };
    let opening = ObjectOpening {
        root: folder.as_raw_handle(),
        attributes,
        access: READ,
        share: SHARE_ALL,
        options: FILE_SYNCHRONOUS_IO_NONALERT | FILE_OPEN_REPARSE_POINT | kind,
    };
    opening.open(name).map(File::from)
}

impl OpenFile {
    /// Opens the directory at `path`, which may not be a link itself.
    ///
    /// # Errors
    /// See [`OpenError`]. The error is [`OpenError::NotFound`] also if `path` is not a directory.
    pub fn folder(path: &Path) -> Result<Self, OpenError> {
        let handle = open_folder(path, FILE_FLAG_OPEN_REPARSE_POINT)?;
        let (metadata, _) = metadata_of(&handle)?;
        match metadata.kind {
            FileKind::Folder => Ok(Self { handle, metadata }),
            FileKind::File => Err(OpenError::NotFound),
            FileKind::Other => Err(OpenError::Forbidden),
        }
    }

    /// The file's current metadata.
    ///
    /// # Errors
    /// The file system's.
    pub fn stat(&self) -> io::Result<Metadata> {
        Ok(metadata_of(&self.handle)?.0)
    }

    /// The identity of the file, independent of the name used to open it.
    pub fn id(&self) -> FileId {
        (self.metadata.device, self.metadata.inode)
    }

    /// The file's current path; `None` if the system does not report it.
    pub fn path(&self) -> Option<PathBuf> {
        true_name(&self.handle).ok().map(|name| PathBuf::from(std::ffi::OsString::from_wide(&name)))
    }

    /// Not supported on this system: always `None`.
    pub fn read_cached_at(&self, _offset: u64, _into: &mut [u8]) -> Option<usize> {
        None
    }

    /// Reads at `offset` until `into` is full or the file ends. Returns the number of bytes read. May wait for a disk.
    ///
    /// # Errors
    /// The file system's.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            match self.handle.seek_read(&mut into[filled..], offset + filled as u64)? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(filled)
    }

    /// The entries of a directory, unsorted, at most `limit`, and whether more exist. Omits `.`, `..`, hidden and system files,
    /// and names that are not Unicode.
    ///
    /// # Errors
    /// Not a directory, or an error of the file system.
    pub fn entries(&self, limit: usize) -> io::Result<(Vec<DirEntry>, bool)> {
        let mut entries = Vec::new();
        // 64-bit words: the alignment of entries.
        let mut buffer = vec![0_u64; ENTRIES_BYTES / 8];
        let mut class = FileIdBothDirectoryRestartInfo;
        loop {
            // SAFETY: the call writes at most `ENTRIES_BYTES` bytes to the buffer, which is that long.
            let done = unsafe {
                GetFileInformationByHandleEx(
                    self.handle.as_raw_handle(),
                    class,
                    buffer.as_mut_ptr().cast(),
                    ENTRIES_BYTES as u32,
                )
            };
            if done == 0 {
                let error = io::Error::last_os_error();
                let is_end = error.raw_os_error().is_some_and(|number| number as u32 == ERROR_NO_MORE_FILES);
                return if is_end { Ok((entries, false)) } else { Err(error) };
            }
            class = FileIdBothDirectoryInfo;
            let mut offset = 0;
            loop {
                let (entry, next) = entry_at(&buffer, offset, self.metadata.device);
                if let Some(entry) = entry {
                    if entries.len() == limit {
                        return Ok((entries, true));
                    }
                    entries.push(entry);
                }
                if next == 0 {
                    break;
                }
                offset += next;
            }
        }
    }
}

/// The entry at an offset of a buffer that the system has filled, and the distance to the next one, 0 at the last.
fn entry_at(buffer: &[u64], offset: usize, device: u64) -> (Option<DirEntry>, usize) {
    let bytes = size_of_val(buffer);
    assert!(offset + size_of::<FILE_ID_BOTH_DIR_INFO>() <= bytes, "an entry lies in its buffer");
    // SAFETY: the buffer contains the whole entry, and any bytes are a valid value.
    let info = unsafe { buffer.as_ptr().byte_add(offset).cast::<FILE_ID_BOTH_DIR_INFO>().read_unaligned() };
    let start = offset + std::mem::offset_of!(FILE_ID_BOTH_DIR_INFO, FileName);
    let len = info.FileNameLength as usize;
    assert!(start + len <= bytes, "a name lies in its buffer");
    // SAFETY: the buffer contains the whole name, aligned to 16-bit units.
    let units = unsafe { std::slice::from_raw_parts(buffer.as_ptr().byte_add(start).cast::<u16>(), len / 2) };
    let name = String::from_utf16(units).ok().filter(|name| name != "." && name != "..");
    let entry = name.filter(|_| info.FileAttributes & CONCEALED == 0).map(|name| DirEntry {
        name: name.into_bytes(),
        is_link: info.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT != 0,
        metadata: Metadata {
            kind: kind_of(info.FileAttributes),
            len: u64::try_from(info.EndOfFile).unwrap_or(0),
            modified_ns: unix_ns(info.LastWriteTime),
            changed_ns: unix_ns(info.ChangeTime.max(info.LastWriteTime)),
            inode: info.FileId as u64,
            device,
        },
    });
    (entry, info.NextEntryOffset as usize)
}

/// The identity of the file at `path`; `None` if it cannot be determined.
pub fn id_of(path: &Path) -> Option<FileId> {
    let file = open_any(path, FILE_READ_ATTRIBUTES).ok()?;
    let (metadata, _) = metadata_of(&file).ok()?;
    Some((metadata.device, metadata.inode))
}

/// Tests whether this process may write to a file, or create files in a directory.
///
/// # Errors
/// It may not, or the path does not exist.
pub fn may_write(path: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    // A directory with this attribute is a special folder of the desktop.
    if metadata.permissions().readonly() && metadata.is_file() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // For a directory the same number is the right to create files.
    open_any(path, FILE_WRITE_DATA).map(drop)
}

/// The command that lets the owner of a file write it.
pub fn allow_writing(file: &Path) -> String {
    format!("attrib -r \"{}\"", plain_path(file).display())
}

/// Opens a regular file to read. Never waits for a device or a pipe.
///
/// # Errors
/// The system's, or the path leads to something else than a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = open_any(path, READ)?;
    // SAFETY: the call takes no pointers.
    if unsafe { GetFileType(file.as_raw_handle()) } != FILE_TYPE_DISK {
        return Err(not_regular());
    }
    regular(file)
}

/// Not available on this system.
///
/// # Errors
/// Always.
pub fn exchange(_one: &Path, _other: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Does nothing: not supported on this system.
///
/// # Errors
/// None.
pub fn allocate(_file: &File, _from: u64, _to: u64) -> io::Result<()> {
    Ok(())
}

/// The target of a link on the way to a file; `None` if the path leads to something else.
///
/// # Errors
/// The path does not exist, or `Unsupported`: the steps of links are not followed on this system.
pub(crate) fn step_target(path: &Path) -> io::Result<Option<PathBuf>> {
    let attributes = std::fs::symlink_metadata(path)?.file_attributes();
    let is_link = attributes & FILE_ATTRIBUTE_REPARSE_POINT != 0;
    if is_link { Err(io::ErrorKind::Unsupported.into()) } else { Ok(None) }
}

/// Whether a file can have this name, relative to a root. Others must not become a path: `C:` would replace the root.
pub(crate) fn may_exist(name: &[u8]) -> bool {
    segments(name).is_some()
}

/// A component of a path, as the system has it.
pub(crate) fn os_name(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Does nothing: this system stores names itself.
pub(crate) fn sync_directory(_folder: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory `site` next to a secret file, removed at the end.
    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("encke-files-{name}-{}", std::process::id()));
            let _left = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(path.join("site/sub")).expect("a writable temporary folder");
            std::fs::write(path.join("secret"), "secret").expect("written");
            std::fs::write(path.join("site/a.html"), "aaaa").expect("written");
            std::fs::write(path.join("site/sub/a longer name.html"), "bb").expect("written");
            Self(path)
        }

        fn root(&self) -> Root {
            Root::new(&self.0.join("site")).expect("opened")
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _gone = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_has_one_name_and_no_other() {
        let scene = Scene::new("names");
        let root = scene.root();
        let open = |name: &str| {
            root.open(name.as_bytes(), Links::Beneath, Patience::Patient).map(|file| file.metadata.len)
        };
        assert_eq!(open("a.html"), Ok(4));
        assert_eq!(open("sub/a longer name.html"), Ok(2));
        for name in [
            "A.html",
            "a.HTML",
            "a.html.",
            "a.html ",
            "a.html...  ",
            "a.html::$DATA",
            "SUB/a longer name.html",
            "sub\\a longer name.html",
            "sub/ALONGE~1.HTM",
            "sub/../a.html",
            "../secret",
            "sub/../../secret",
            "/a.html",
            "NUL",
            "aux.",
            "COM1",
            "a.html/",
            "C:/a.html",
        ] {
            assert_eq!(open(name), Err(OpenError::NotFound), "{name:?}");
        }
        assert_eq!(
            root.open(b"a.html", Links::Beneath, Patience::Cached).map(drop),
            Err(OpenError::NotCached)
        );
    }

    #[test]
    fn a_walk_along_links_finds_files_under_their_true_names_only() {
        let scene = Scene::new("walk");
        let root = scene.root();
        for links in [Links::Deny, Links::Beneath, Links::Follow] {
            let open = |name: &str| {
                let (segments, is_folder) = segments(name.as_bytes()).expect("a name");
                root.open_by_links(&segments, is_folder, links).map(|file| file.id())
            };
            for name in ["a.html", "sub/a longer name.html", "sub", "sub/", ""] {
                let direct = root.open(name.as_bytes(), links, Patience::Patient).map(|file| file.id());
                assert!(direct.is_ok(), "{name:?}");
                assert_eq!(open(name), direct, "{name:?}");
            }
            for name in
                ["A.html", "SUB/a longer name.html", "sub/ALONGE~1.HTM", "absent", "a.html/b", "a.html/"]
            {
                assert_eq!(open(name), Err(OpenError::NotFound), "{name:?}");
            }
        }
    }

    #[test]
    fn an_open_file_is_read_and_may_be_removed_meanwhile() {
        let scene = Scene::new("read");
        let root = scene.root();
        let file = root.open(b"a.html", Links::Deny, Patience::Patient).expect("opened");
        assert_eq!((file.metadata.kind, file.metadata.len), (FileKind::File, 4));
        assert!(file.metadata.modified_ns > 1_000_000_000_000_000_000);
        assert_eq!(Some(file.id()), id_of(&scene.0.join("site/a.html")));
        assert_eq!(file.path(), Some(root.path().join("a.html")));
        let mut bytes = [0; 8];
        assert_eq!(file.read_at(1, &mut bytes).expect("read"), 3);
        std::fs::remove_file(scene.0.join("site/a.html")).expect("it is shared for that");
        assert_eq!(file.read_at(0, &mut bytes[..2]).expect("read"), 2);
    }

    #[test]
    fn the_step_to_a_file_is_in_its_own_directory() {
        let scene = Scene::new("steps");
        let root = scene.root();
        for (name, folder, last) in [
            ("a.html", "", "a.html"),
            ("sub/a longer name.html", "sub", "a longer name.html"),
            ("sub/missing", "sub", "missing"),
            ("missing/deep/down", "", "missing"),
            ("a.html/b", "a.html", "b"),
        ] {
            let folder = root.path().components().chain(Path::new(folder).components()).collect();
            let expected = crate::files::PathStep { folder, name: last.into() };
            assert_eq!(root.steps(name.as_bytes()), Some(vec![expected]), "{name}");
        }
    }

    #[test]
    fn a_name_that_no_file_can_have_has_no_steps() {
        let scene = Scene::new("no-steps");
        let root = scene.root();
        for name in
            ["/C:/windows", "C:/windows", "C:", "sub/C:/x", "a:b", "sub\\..\\x", "../x", "NUL", "a.html."]
        {
            assert_eq!(root.steps(name.as_bytes()), Some(Vec::new()), "{name}");
        }
    }

    #[test]
    fn only_regular_files_are_read_whole_and_rights_to_write_are_known() {
        let scene = Scene::new("regular");
        let file = scene.0.join("site/a.html");
        assert!(open_regular(&file).is_ok() && may_write(&file).is_ok());
        for other in [scene.0.join("site"), "NUL".into()] {
            let error = open_regular(&other).expect_err("not a file");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{}: {error}", other.display());
        }
        assert!(may_write(&scene.0.join("site")).is_ok());
        assert_eq!(may_write(&scene.0.join("none")).expect_err("none").kind(), io::ErrorKind::NotFound);
        let before = std::fs::metadata(&file).expect("there").permissions();
        let mut permissions = before.clone();
        permissions.set_readonly(true);
        std::fs::set_permissions(&file, permissions).expect("own file");
        assert_eq!(may_write(&file).expect_err("read-only").kind(), io::ErrorKind::PermissionDenied);
        std::fs::set_permissions(&file, before).expect("own file");
    }

    #[test]
    fn a_listing_is_bounded_and_says_so() {
        let scene = Scene::new("list");
        for number in 0..1_000 {
            std::fs::write(scene.0.join(format!("site/sub/file {number} with a name")), "x")
                .expect("written");
        }
        let root = scene.root();
        let folder = root.open(b"sub/", Links::Deny, Patience::Patient).expect("opened");
        assert_eq!(folder.metadata.kind, FileKind::Folder);
        let (all, more) = folder.entries(2_000).expect("read");
        assert_eq!((all.len(), more), (1_001, false));
        let one = all.iter().find(|entry| entry.name == b"file 7 with a name").expect("it is there");
        let found = root.open(b"sub/file 7 with a name", Links::Deny, Patience::Patient).expect("opened");
        assert_eq!(one.metadata, found.metadata);
        let (some, more) = folder.entries(3).expect("read");
        assert_eq!((some.len(), more), (3, true));
        let (top, _) =
            root.open(b"", Links::Deny, Patience::Patient).expect("opened").entries(9).expect("read");
        assert_eq!(top.len(), 2);
    }
}
