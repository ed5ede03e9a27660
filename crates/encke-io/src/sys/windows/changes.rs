//! Change notifications of Windows: ReadDirectoryChangesW, one pending call per directory.
//!
//! ```text
//!  watch ─► PENDING ── the system fills the buffer, sets the event ─► a thread of the system rings the bell ─► read
//!             ▲                                                                                                 │
//!             └────────────────────────────── changes and overflows: called again ◄─────────────────────────────┤
//!                                                     removed, or an error: Gone ◄──────────────────────────────┘
//!  forget ─► cancelled ─► freed once the call has ended
//! ```
//! The bell is a UDP socket that is connected to itself, because a reactor watches sockets. All directories share one event.
//! A new call resets it, so every call is followed by a look at all others.
//!
//! **Memory.** The kernel writes into a [`FolderPart`] until its call has ended, also after a cancel. It never moves, and is freed
//! after that. If a call does not end when everything is dropped, its memory stays allocated.
//!
//! Windows reports neither the move of a watched directory itself, nor, before a file is closed, all that was written to it.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::windows::ffi::OsStringExt as _;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use windows_sys::Wdk::Storage::FileSystem::{
    FILE_DIRECTORY_FILE, FileFsDeviceInformation, NtQueryVolumeInformationFile,
};
use windows_sys::Win32::Foundation::{
    HANDLE, NTSTATUS, STATUS_CANCELLED, STATUS_PENDING, STATUS_SUCCESS, WAIT_OBJECT_0,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_LIST_DIRECTORY, FILE_NOTIFY_CHANGE_ATTRIBUTES, FILE_NOTIFY_CHANGE_CREATION,
    FILE_NOTIFY_CHANGE_DIR_NAME, FILE_NOTIFY_CHANGE_FILE_NAME, FILE_NOTIFY_CHANGE_LAST_WRITE,
    FILE_NOTIFY_CHANGE_SECURITY, FILE_NOTIFY_CHANGE_SIZE, FILE_READ_ATTRIBUTES,
    GetVolumeInformationByHandleW, ReadDirectoryChangesW, SYNCHRONIZE,
};
use windows_sys::Win32::System::IO::{CancelIoEx, IO_STATUS_BLOCK, OVERLAPPED};
use windows_sys::Win32::System::Threading::WaitForSingleObject;

use super::error::SysError;
use super::event_wait::{EventWait, Rings};
use super::files::SHARE_ALL;
use super::object::ObjectOpening;
use crate::changes::{Change, FolderId};
use crate::files::{FileId, OpenFile};
use crate::socket::Watched;

/// Words of a directory's buffer. The kernel keeps one of the same size: 8 MiB in all for 1,024 directories.
const BUFFER_WORDS: usize = 1_024;

/// Maximum time to wait for the ends of cancelled calls, in ms.
const DROP_WAIT_MS: u32 = 1_000;

/// Maximum number of looks at all directories in one call of [`Changes::read`]: a program that changes files without a pause
/// must not occupy the reader.
const READ_PASSES_MAX: usize = 16;

/// The status of a call whose changes did not fit into the buffer (STATUS_NOTIFY_ENUM_DIR).
const STATUS_NOTIFY_ENUM_DIR: NTSTATUS = 0x10C;

const FILTER: u32 = FILE_NOTIFY_CHANGE_FILE_NAME
    | FILE_NOTIFY_CHANGE_DIR_NAME
    | FILE_NOTIFY_CHANGE_ATTRIBUTES
    | FILE_NOTIFY_CHANGE_SIZE
    | FILE_NOTIFY_CHANGE_LAST_WRITE
    | FILE_NOTIFY_CHANGE_CREATION
    | FILE_NOTIFY_CHANGE_SECURITY;

/// Watches directories.
pub struct Changes {
    /// The event is set at the end of every call, and reset by the thread that waits for it, which rings the bell.
    wait: EventWait<ChangeBell>,
    folders: HashMap<FolderId, FolderWatch>,
    by_file: HashMap<FileId, FolderId>,
    /// Watches that were removed, and whose calls may be pending.
    ending: Vec<FolderWatch>,
    next_id: i32,
}

/// A socket that is readable while changes are pending.
struct ChangeBell {
    /// Connected to itself, so that it receives no other program's bytes.
    socket: UdpSocket,
    /// Set from the first ring until the changes are read, so that the socket never holds more than one byte.
    is_rung: AtomicBool,
}

impl ChangeBell {
    fn ring(&self) {
        if !self.is_rung.swap(true, Ordering::AcqRel) && self.socket.send(b"!").is_err() {
            // The next change rings again.
            self.is_rung.store(false, Ordering::Release);
        }
    }

    /// Call this before reading changes, so that each later change rings again.
    fn silence(&self) {
        let mut byte = [0];
        while self.socket.recv(&mut byte).is_ok() {}
        self.is_rung.store(false, Ordering::Release);
    }
}

/// A watched directory, and its call.
///
/// INVARIANT: `part` points to a part on the heap, which only this value frees, and only while no call is pending.
struct FolderWatch {
    /// Opened for overlapped calls.
    handle: OwnedHandle,
    part: NonNull<FolderPart>,
    is_pending: bool,
    file: FileId,
    /// Calls to `watch` without one to `forget`.
    count: u32,
}

/// The memory of a call.
struct FolderPart {
    overlapped: UnsafeCell<OVERLAPPED>,
    buffer: UnsafeCell<[u32; BUFFER_WORDS]>,
    /// Shows a test whether the part still exists.
    #[cfg(test)]
    witness: std::sync::Arc<()>,
}

impl FolderWatch {
    fn new(handle: OwnedHandle, file: FileId) -> Self {
        let part = Box::new(FolderPart {
            overlapped: UnsafeCell::new(OVERLAPPED::default()),
            buffer: UnsafeCell::new([0; BUFFER_WORDS]),
            #[cfg(test)]
            witness: std::sync::Arc::default(),
        });
        Self { handle, part: NonNull::from(Box::leak(part)), is_pending: false, file, count: 1 }
    }

    fn part(&self) -> &FolderPart {
        // SAFETY: the part lives as long as this value (INVARIANT). The fields that the kernel writes are in UnsafeCells.
        unsafe { self.part.as_ref() }
    }

    /// Starts a call.
    fn begin(&mut self, event: HANDLE) -> io::Result<()> {
        assert!(!self.is_pending, "one call at a time");
        let FolderPart { overlapped, buffer, .. } = self.part();
        // SAFETY: no call is pending, so the kernel does not write to the part until this call; then only the kernel does, until
        // the call has ended. The part stays where it is until then (INVARIANT).
        let begun = unsafe {
            overlapped.get().write(OVERLAPPED {
                // The system sets it, too, but perhaps not before another thread looks.
                Internal: STATUS_PENDING as usize,
                hEvent: event,
                ..OVERLAPPED::default()
            });
            ReadDirectoryChangesW(
                self.handle.as_raw_handle(),
                buffer.get().cast(),
                size_of::<[u32; BUFFER_WORDS]>() as u32,
                0,
                FILTER,
                std::ptr::null_mut(),
                overlapped.get(),
                None,
            )
        };
        if begun == 0 {
            return Err(io::Error::last_os_error());
        }
        self.is_pending = true;
        Ok(())
    }

    /// Whether the call has ended.
    fn has_ended(&self) -> bool {
        self.is_pending && self.status() != STATUS_PENDING
    }

    fn status(&self) -> NTSTATUS {
        let overlapped = self.part().overlapped.get();
        // SAFETY: the block lives as long as this value. The kernel writes its status at most once, and after everything else.
        let status = unsafe { AtomicUsize::from_ptr(&raw mut (*overlapped).Internal) };
        status.load(Ordering::Acquire) as NTSTATUS
    }

    /// Takes the status and the output of a call that has ended.
    fn take_result(&mut self) -> Option<(NTSTATUS, &[u8])> {
        if !self.has_ended() {
            return None;
        }
        self.is_pending = false;
        let status = self.status();
        let FolderPart { overlapped, buffer, .. } = self.part();
        // SAFETY: the call has ended, so the kernel has stopped writing to the part; this value is borrowed as long as the
        // slice lives, and begins no other call meanwhile.
        let written = unsafe {
            let len = (*overlapped.get()).InternalHigh.min(size_of::<[u32; BUFFER_WORDS]>());
            std::slice::from_raw_parts(buffer.get().cast::<u8>(), len)
        };
        Some((status, written))
    }

    /// Cancels the call. It still ends.
    fn cancel(&self) {
        // SAFETY: the handle is open, and the block only names the call.
        let _is_over = unsafe { CancelIoEx(self.handle.as_raw_handle(), self.part().overlapped.get()) };
    }
}

impl Drop for FolderWatch {
    fn drop(&mut self) {
        if self.is_pending && !self.has_ended() {
            // The kernel still uses the memory: it stays allocated.
            return;
        }
        // SAFETY: `new` has leaked this box, and no call is pending.
        drop(unsafe { Box::from_raw(self.part.as_ptr()) });
    }
}

impl Changes {
    /// Creates an instance that watches nothing.
    ///
    /// # Errors
    /// The process is out of handles or ports.
    pub fn new() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(socket.local_addr()?)?;
        socket.set_nonblocking(true)?;
        let bell = ChangeBell { socket, is_rung: AtomicBool::new(false) };
        let wait = EventWait::new(Rings::Always, bell, ChangeBell::ring)?;
        let (folders, by_file) = (HashMap::new(), HashMap::new());
        Ok(Self { wait, folders, by_file, ending: Vec::new(), next_id: 0 })
    }

    fn bell(&self) -> &ChangeBell {
        self.wait.context()
    }

    /// Closes this: on this system nothing waits for it.
    pub fn close_aside(self) {}

    /// A socket for [`crate::Op::Watch`] that becomes readable when notifications are pending.
    ///
    /// # Errors
    /// Out of handles.
    pub fn watched(&self) -> io::Result<Watched> {
        Ok(Watched::new(self.bell().socket.try_clone()?.into()))
    }

    /// Watches an open directory. Watching the same directory again returns the same id.
    ///
    /// # Errors
    /// Out of handles, or the file system has no notifications.
    pub fn watch(&mut self, folder: &OpenFile) -> io::Result<FolderId> {
        if let Some(id) = self.by_file.get(&folder.id()) {
            self.folders.get_mut(id).expect("a file leads to its watch").count += 1;
            return Ok(*id);
        }
        let mut watch = FolderWatch::new(reopen(folder)?, folder.id());
        watch.begin(self.wait.event())?;
        let id = FolderId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.by_file.insert(watch.file, id);
        self.folders.insert(id, watch);
        self.free_ended();
        // The new call has reset the event, perhaps before the waiting thread saw the end of another call.
        if self.folders.values().any(FolderWatch::has_ended) {
            self.bell().ring();
        }
        Ok(id)
    }

    /// Watches a directory by its path.
    ///
    /// # Errors
    /// As [`Changes::watch`], or the directory does not exist.
    pub fn watch_path(&mut self, path: &Path) -> io::Result<FolderId> {
        let folder = OpenFile::folder(path).map_err(io::Error::other)?;
        self.watch(&folder)
    }

    /// Removes one watch. Each call to `watch` needs one call to `forget`.
    pub fn forget(&mut self, folder: FolderId) {
        let Some(watch) = self.folders.get_mut(&folder) else { return };
        watch.count -= 1;
        if watch.count == 0 {
            self.end(folder);
        }
        self.free_ended();
    }

    /// Removes all watches and drops all pending notifications.
    pub fn clear(&mut self) {
        let all: Vec<FolderId> = self.folders.keys().copied().collect();
        for folder in all {
            self.end(folder);
        }
        self.bell().silence();
        self.free_ended();
    }

    /// Number of watched directories.
    pub fn len(&self) -> usize {
        self.folders.len()
    }

    /// Whether no directory is watched.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }

    /// Reads all pending notifications.
    ///
    /// # Errors
    /// None: a directory that cannot be watched any more is reported as gone.
    pub fn read(&mut self, each: impl FnMut(Change)) -> io::Result<()> {
        self.read_within(READ_PASSES_MAX, each);
        Ok(())
    }

    /// Reads notifications in at most `passes_max` looks at all directories. Rings the bell again if there may be more.
    fn read_within(&mut self, passes_max: usize, mut each: impl FnMut(Change)) {
        self.bell().silence();
        self.free_ended();
        // A new call resets the event of all. So this looks again until no call has ended, or rings itself.
        let mut gone = Vec::new();
        for _ in 0..passes_max {
            let mut is_quiet = true;
            for (&id, watch) in &mut self.folders {
                let Some((status, written)) = watch.take_result() else { continue };
                is_quiet = false;
                let goes_on = report(status, id, written, &mut each);
                if !goes_on || watch.begin(self.wait.event()).is_err() {
                    gone.push(id);
                }
            }
            for id in gone.drain(..) {
                self.end(id);
                each(Change::Gone(id));
            }
            if is_quiet {
                return;
            }
        }
        self.bell().ring();
    }

    /// Stops a watch.
    fn end(&mut self, folder: FolderId) {
        let Some(watch) = self.folders.remove(&folder) else { return };
        self.by_file.remove(&watch.file);
        if watch.is_pending {
            watch.cancel();
        }
        self.ending.push(watch);
    }

    /// Frees removed watches whose calls have ended.
    fn free_ended(&mut self) {
        self.ending.retain(|watch| watch.is_pending && !watch.has_ended());
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // Otherwise the thread that waits would reset the event.
        self.wait.end();
        self.clear();
        while !self.ending.is_empty() {
            // SAFETY: the event is open.
            let waited = unsafe { WaitForSingleObject(self.wait.event(), DROP_WAIT_MS) };
            self.free_ended();
            if waited != WAIT_OBJECT_0 {
                return;
            }
        }
    }
}

/// Opens an open directory once more, for overlapped calls.
fn reopen(folder: &OpenFile) -> io::Result<OwnedHandle> {
    let opening = ObjectOpening {
        root: folder.handle.as_raw_handle(),
        attributes: 0,
        access: FILE_LIST_DIRECTORY | FILE_READ_ATTRIBUTES | SYNCHRONIZE,
        share: SHARE_ALL,
        options: FILE_DIRECTORY_FILE,
    };
    opening.open("").map_err(|status| SysError::of_status(status).into())
}

impl AsHandle for OpenFile {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.handle.as_handle()
    }
}

/// Reports the result of a call. Returns whether the directory can be watched further.
fn report(status: NTSTATUS, id: FolderId, written: &[u8], each: &mut impl FnMut(Change)) -> bool {
    match status {
        STATUS_SUCCESS if !written.is_empty() => {
            for name in names(written) {
                match name {
                    Some(name) => each(Change::Entry(id, name)),
                    None => each(Change::Overflow),
                }
            }
            true
        }
        // The system cancels the calls of a thread that ends.
        STATUS_SUCCESS | STATUS_NOTIFY_ENUM_DIR | STATUS_CANCELLED => {
            each(Change::Overflow);
            true
        }
        _ => false,
    }
}

/// The names in a buffer that the system has filled, encoded as in requests; `None` for a name that may be short.
fn names(buffer: &[u8]) -> impl Iterator<Item = Option<Vec<u8>>> {
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let at = next?;
        let word = |place: usize| {
            let bytes = buffer.get(at + place..at + place + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().expect("four bytes")) as usize)
        };
        let (distance, len) = (word(0)?, word(8)?);
        next = (distance != 0).then_some(at + distance);
        let units = buffer.get(at + NAME_OFFSET..at + NAME_OFFSET + len)?.chunks_exact(2);
        let units: Vec<u16> = units.map(|unit| u16::from_ne_bytes([unit[0], unit[1]])).collect();
        if may_be_short(&units) {
            return Some(None);
        }
        Some(Some(OsString::from_wide(&units).into_encoded_bytes()))
    })
}

/// The offset of the name in FILE_NOTIFY_INFORMATION.
const NAME_OFFSET: usize = 12;

/// Whether a name may be the short name of a file, which stands for its true one if a program has used it (`LONGNA~1.HTM`).
fn may_be_short(name: &[u16]) -> bool {
    const LEN_MAX: usize = 8 + 1 + 3;
    let digit = u16::from(b'0')..=u16::from(b'9');
    name.len() <= LEN_MAX
        && name.windows(2).any(|pair| pair[0] == u16::from(b'~') && digit.contains(&pair[1]))
}

/// Whether all changes below `folder` go through this machine, which then reports each of them. This is not the case on network
/// drives, and file systems shared with the host of a virtual machine.
pub fn reliable(folder: impl AsHandle) -> bool {
    const LOCAL: [&str; 5] = ["NTFS", "ReFS", "FAT", "FAT32", "exFAT"];
    let folder = folder.as_handle().as_raw_handle();
    !is_remote(folder) && file_system(folder).is_some_and(|name| LOCAL.contains(&name.as_str()))
}

/// FILE_FS_DEVICE_INFORMATION.
#[repr(C)]
#[derive(Default)]
struct VolumeDevice {
    kind: u32,
    characteristics: u32,
}

/// Whether an open file is on another machine. True if the system does not report it.
fn is_remote(file: HANDLE) -> bool {
    /// FILE_REMOTE_DEVICE.
    const REMOTE: u32 = 0x10;
    let mut device = VolumeDevice::default();
    let mut status = IO_STATUS_BLOCK::default();
    // SAFETY: the call writes to both structures, gets the size of the first, and does not return before it is done.
    let result = unsafe {
        NtQueryVolumeInformationFile(
            file,
            &raw mut status,
            (&raw mut device).cast(),
            size_of::<VolumeDevice>() as u32,
            FileFsDeviceInformation,
        )
    };
    result != STATUS_SUCCESS || device.characteristics & REMOTE != 0
}

/// The name of an open file's file system.
fn file_system(file: HANDLE) -> Option<String> {
    let mut name = [0_u16; 64];
    // SAFETY: the call writes at most as many units to `name` as it has; the other pointers may be null.
    let known = unsafe {
        GetVolumeInformationByHandleW(
            file,
            std::ptr::null_mut(),
            0,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            name.as_mut_ptr(),
            name.len() as u32,
        )
    };
    let len = name.iter().position(|unit| *unit == 0)?;
    if known == 0 { None } else { String::from_utf16(&name[..len]).ok() }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    /// The time between two checks of the results of the system's own threads.
    const POLL: Duration = Duration::from_millis(1);

    /// A directory that is watched, and removed at the end.
    struct WatchedDirectory(PathBuf);

    impl WatchedDirectory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("encke-changes-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a directory");
            Self(path)
        }

        /// A watch without a call.
        fn watch(&self) -> FolderWatch {
            let folder = OpenFile::folder(&self.0).expect("a directory");
            FolderWatch::new(reopen(&folder).expect("opened once more"), folder.id())
        }
    }

    impl Drop for WatchedDirectory {
        fn drop(&mut self) {
            let _may_be_open = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn reading_ends_after_its_passes_and_rings_for_the_rest() {
        let directory = WatchedDirectory::new("passes");
        let mut changes = Changes::new().expect("sockets and events");
        let id = changes.watch_path(&directory.0).expect("local");
        std::fs::write(directory.0.join("a"), "x").expect("written");
        let is_rung = |changes: &Changes| changes.bell().socket.peek(&mut [0]).is_ok();
        while !is_rung(&changes) || !changes.folders.values().all(FolderWatch::has_ended) {
            std::thread::park_timeout(POLL);
        }
        changes.read_within(0, |change| panic!("{change:?} was read without a pass"));
        // The rest waits for a ring.
        while !is_rung(&changes) {
            std::thread::park_timeout(POLL);
        }
        let mut told = Vec::new();
        changes.read(|change| told.push(change)).expect("it never fails");
        assert!(told.contains(&Change::Entry(id, b"a".to_vec())), "{told:?}");
    }

    #[test]
    fn a_part_is_freed_only_without_a_pending_call() {
        let directory = WatchedDirectory::new("part");
        let unused = directory.watch();
        let witness = Arc::clone(&unused.part().witness);
        drop(unused);
        assert_eq!(Arc::strong_count(&witness), 1, "no call was made");
        let wait = EventWait::new(Rings::Always, (), |()| {}).expect("a wait");
        let mut pending = directory.watch();
        let witness = Arc::clone(&pending.part().witness);
        pending.begin(wait.event()).expect("local");
        // Dropped without a cancel. The system ends the call when the handle is closed, perhaps later.
        assert!(!pending.has_ended());
        drop(pending);
        assert_eq!(Arc::strong_count(&witness), 2, "the kernel may still write to it");
    }

    #[test]
    fn a_call_that_does_not_end_is_given_up() {
        let directory = WatchedDirectory::new("endless");
        let mut changes = Changes::new().expect("sockets and events");
        let mut endless = directory.watch();
        let witness = Arc::clone(&endless.part().witness);
        // As a call whose end the system never reports.
        // SAFETY: no call was made, so nothing else uses the block.
        unsafe { (*endless.part().overlapped.get()).Internal = STATUS_PENDING as usize };
        endless.is_pending = true;
        changes.ending.push(endless);
        drop(changes);
        assert_eq!(Arc::strong_count(&witness), 2, "its memory stays allocated");
    }

    /// A buffer as the system fills it, with these names.
    fn buffer(names: &[&[u16]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, name) in names.iter().enumerate() {
            let len = NAME_OFFSET + name.len() * 2;
            let distance = if number + 1 == names.len() { 0 } else { len.next_multiple_of(4) };
            for word in [distance, 3, name.len() * 2] {
                bytes.extend((word as u32).to_ne_bytes());
            }
            bytes.extend(name.iter().flat_map(|unit| unit.to_ne_bytes()));
            bytes.resize(bytes.len() + distance.saturating_sub(len), 0);
        }
        bytes
    }

    fn units(name: &str) -> Vec<u16> {
        name.encode_utf16().collect()
    }

    #[test]
    fn the_names_of_a_buffer_are_read_in_order() {
        let [one, two, three] = ["a", "größe.html", "x.css"].map(units);
        let found: Vec<_> = names(&buffer(&[&one, &two, &three])).flatten().collect();
        assert_eq!(found, [&b"a"[..], "größe.html".as_bytes(), b"x.css"]);
        let lone = [u16::from(b'a'), 0xD800];
        assert_eq!(names(&buffer(&[&lone])).flatten().next(), Some(b"a\xED\xA0\x80".to_vec()));
    }

    #[test]
    fn a_buffer_that_ends_early_is_read_as_far_as_it_goes() {
        let [one, two] = ["first", "second"].map(units);
        let whole = buffer(&[&one, &two]);
        for len in 0..whole.len() {
            let found: Vec<_> = names(&whole[..len]).collect();
            assert!(found.len() < 2, "{len} bytes");
        }
        // A distance beyond the buffer.
        let mut astray = whole;
        astray[..4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(names(&astray).count(), 1);
    }

    #[test]
    fn a_name_that_may_be_short_counts_as_an_overflow() {
        for (name, expected) in [
            ("LONGNA~1.HTM", true),
            ("A~9", true),
            ("longer~1.html", false),
            ("draft~", false),
            ("a~b", false),
            ("index.html", false),
        ] {
            assert_eq!(may_be_short(&units(name)), expected, "{name}");
        }
        let mut told = Vec::new();
        assert!(
            report(STATUS_SUCCESS, FolderId(3), &buffer(&[&units("LONGNA~1.HTM")]), &mut |c| told.push(c))
        );
        assert!(report(STATUS_SUCCESS, FolderId(3), &[], &mut |change| told.push(change)));
        assert!(report(STATUS_NOTIFY_ENUM_DIR, FolderId(3), &[], &mut |change| told.push(change)));
        assert_eq!(told, [const { Change::Overflow }; 3]);
        /// STATUS_DELETE_PENDING.
        const REMOVED: NTSTATUS = 0xC000_0056_u32 as NTSTATUS;
        assert!(!report(REMOVED, FolderId(3), &[], &mut |change| panic!("{change:?}")));
    }
}
