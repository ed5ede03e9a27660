//! Private files of Windows: their access control list (DACL) has entries for their owner, the system and the administrators,
//! and inherits none. A directory passes these entries on to all files that are created in it.

use std::ffi::c_void;
use std::fs::{File, Permissions};
use std::io;
use std::os::windows::ffi::OsStrExt as _;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::{Component, Path, Prefix};

use windows_sys::Win32::Foundation::{
    ERROR_ALREADY_EXISTS, ERROR_SUCCESS, GENERIC_WRITE, INVALID_HANDLE_VALUE, LocalFree,
};
use windows_sys::Win32::Security::Authorization::{
    ConvertSidToStringSidW, ConvertStringSecurityDescriptorToSecurityDescriptorW, GetNamedSecurityInfoW,
    SDDL_REVISION_1, SE_FILE_OBJECT,
};
use windows_sys::Win32::Security::{
    ACCESS_ALLOWED_ACE, ACE_HEADER, ACL, DACL_SECURITY_INFORMATION, EqualSid, GetAce, GetTokenInformation,
    IsWellKnownSid, PSID, SECURITY_ATTRIBUTES, SetKernelObjectSecurity, TOKEN_QUERY, TOKEN_USER, TokenUser,
    WinBuiltinAdministratorsSid, WinCreatorOwnerRightsSid, WinLocalSystemSid,
};
use windows_sys::Win32::Storage::FileSystem::{
    CREATE_NEW, CreateDirectoryW, CreateFileW, FILE_ATTRIBUTE_NORMAL, READ_CONTROL, WRITE_DAC,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

use super::files::SHARE_ALL;

/// The types of an entry of a list (winnt.h).
const ACCESS_ALLOWED: u8 = 0;
const ACCESS_DENIED: u8 = 1;

/// Memory that the system has allocated for this process.
#[derive(Debug)]
struct LocalMemory(*mut c_void);

impl Drop for LocalMemory {
    fn drop(&mut self) {
        // SAFETY: a call of the system has returned the memory to be freed so, and nothing else frees it.
        unsafe { LocalFree(self.0) };
    }
}

/// The user that this process runs as.
struct ProcessUser {
    /// A TOKEN_USER, and the SID to which it leads.
    token_user: Vec<u64>,
}

impl ProcessUser {
    fn new() -> io::Result<Self> {
        let mut token = std::ptr::null_mut();
        // SAFETY: the call writes one handle.
        if unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) } == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the handle was opened above, and nothing else knows of it.
        let token = unsafe { OwnedHandle::from_raw_handle(token) };
        // A SID has at most 68 bytes.
        let mut token_user = vec![0_u64; 32];
        let mut used = 0;
        // SAFETY: the call writes at most the given number of bytes to the buffer, which is that long.
        let done = unsafe {
            GetTokenInformation(
                token.as_raw_handle(),
                TokenUser,
                token_user.as_mut_ptr().cast(),
                size_of_val(&*token_user) as u32,
                &raw mut used,
            )
        };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(Self { token_user }) }
    }

    fn sid(&self) -> PSID {
        // SAFETY: the buffer starts with a TOKEN_USER, and has its alignment.
        unsafe { self.token_user.as_ptr().cast::<TOKEN_USER>().read() }.User.Sid
    }

    /// The SID as text: `S-1-5-…`.
    fn text(&self) -> io::Result<String> {
        let mut text = std::ptr::null_mut();
        // SAFETY: the SID is part of the buffer of `self`; the call writes one pointer.
        if unsafe { ConvertSidToStringSidW(self.sid(), &raw mut text) } == 0 {
            return Err(io::Error::last_os_error());
        }
        let text = LocalMemory(text.cast());
        let units = text.0.cast::<u16>().cast_const();
        let mut letters = String::new();
        // SAFETY: the text ends with a zero, and lives until `text` is dropped.
        letters.extend((0..).map(|at| unsafe { units.add(at).read() }).take_while(|unit| *unit != 0).map(
            |unit| {
                // A SID consists of ASCII characters.
                char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER)
            },
        ));
        Ok(letters)
    }
}

/// The security descriptor of a private file. `flags`: inheritance by the files of a directory.
fn private_descriptor(flags: &str) -> io::Result<LocalMemory> {
    let user = ProcessUser::new()?.text()?;
    let text = format!("D:P(A;{flags};FA;;;{user})(A;{flags};FA;;;SY)(A;{flags};FA;;;BA)\0");
    let text: Vec<u16> = text.encode_utf16().collect();
    let mut descriptor = std::ptr::null_mut();
    // SAFETY: the text ends with a zero and lives until the call returns, which writes one pointer.
    let done = unsafe {
        ConvertStringSecurityDescriptorToSecurityDescriptorW(
            text.as_ptr(),
            SDDL_REVISION_1,
            &raw mut descriptor,
            std::ptr::null_mut(),
        )
    };
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(LocalMemory(descriptor)) }
}

fn attributes(descriptor: &LocalMemory) -> SECURITY_ATTRIBUTES {
    SECURITY_ATTRIBUTES {
        nLength: size_of::<SECURITY_ATTRIBUTES>() as u32,
        lpSecurityDescriptor: descriptor.0,
        bInheritHandle: 0,
    }
}

/// A path for the system, which ends with a zero. In the form that may be longer than 260 units, if it is on a drive.
fn name(path: &Path) -> io::Result<Vec<u16>> {
    let path = std::path::absolute(path)?;
    let is_on_drive = matches!(path.components().next(),
        Some(Component::Prefix(prefix)) if matches!(prefix.kind(), Prefix::Disk(_)));
    let prefix = if is_on_drive { r"\\?\" } else { "" };
    let mut name: Vec<u16> = prefix.encode_utf16().chain(path.as_os_str().encode_wide()).collect();
    if name.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    name.push(0);
    Ok(name)
}

/// Creates a file that only its owner may read and write, and opens it to write.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let descriptor = private_descriptor("")?;
    let (name, attributes) = (name(path)?, attributes(&descriptor));
    // SAFETY: the name ends with a zero; all pointers lead to values that live until the call returns.
    let handle = unsafe {
        CreateFileW(
            name.as_ptr(),
            GENERIC_WRITE | READ_CONTROL | WRITE_DAC,
            SHARE_ALL,
            &raw const attributes,
            CREATE_NEW,
            FILE_ATTRIBUTE_NORMAL,
            std::ptr::null_mut(),
        )
    };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle was opened above, and nothing else knows of it.
    Ok(unsafe { File::from_raw_handle(handle) })
}

/// Creates a directory for its owner only, with its ancestors. One that exists stays as it is.
pub(crate) fn make_private_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_private_folder(parent)?;
    }
    let descriptor = private_descriptor("OICI")?;
    let (name, attributes) = (name(folder)?, attributes(&descriptor));
    // SAFETY: the name ends with a zero; all pointers lead to values that live until the call returns.
    if unsafe { CreateDirectoryW(name.as_ptr(), &raw const attributes) } == 0 {
        let error = io::Error::last_os_error();
        // Another process may have made it meanwhile.
        let exists = error.raw_os_error().is_some_and(|number| number as u32 == ERROR_ALREADY_EXISTS);
        return if exists && folder.is_dir() { Ok(()) } else { Err(error) };
    }
    Ok(())
}

/// The access control list of a file.
#[derive(Debug)]
struct AccessList {
    /// The security descriptor that contains `dacl`.
    descriptor: LocalMemory,
    dacl: *mut ACL,
}

impl AccessList {
    fn of(path: &Path) -> io::Result<Self> {
        let name = name(path)?;
        let (mut dacl, mut descriptor) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the name ends with a zero and lives until the call returns, which writes two pointers.
        let error = unsafe {
            GetNamedSecurityInfoW(
                name.as_ptr(),
                SE_FILE_OBJECT,
                DACL_SECURITY_INFORMATION,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                &raw mut dacl,
                std::ptr::null_mut(),
                &raw mut descriptor,
            )
        };
        if error != ERROR_SUCCESS {
            return Err(io::Error::from_raw_os_error(error as i32));
        }
        Ok(Self { descriptor: LocalMemory(descriptor), dacl })
    }

    /// Whether it grants rights to the user, the system and the administrators only.
    fn is_for(&self, user: &ProcessUser) -> bool {
        if self.dacl.is_null() {
            // A file without a list is open for all.
            return false;
        }
        // SAFETY: the list is part of the descriptor, which lives as long as `self`.
        let count = unsafe { self.dacl.read() }.AceCount;
        (0..u32::from(count)).all(|index| {
            let mut entry = std::ptr::null_mut();
            // SAFETY: the list is whole, and the call writes one pointer.
            if unsafe { GetAce(self.dacl, index, &raw mut entry) } == 0 {
                return false;
            }
            // SAFETY: each entry starts with a header.
            match unsafe { entry.cast::<ACE_HEADER>().read() }.AceType {
                ACCESS_DENIED => true,
                ACCESS_ALLOWED => {
                    // SAFETY: an entry of this type has a SID from this place on.
                    let sid = unsafe { &raw mut (*entry.cast::<ACCESS_ALLOWED_ACE>()).SidStart }.cast();
                    // SAFETY: both are whole SIDs, which live until the calls return.
                    unsafe {
                        EqualSid(sid, user.sid()) != 0
                            || [WinLocalSystemSid, WinBuiltinAdministratorsSid, WinCreatorOwnerRightsSid]
                                .into_iter()
                                .any(|known| IsWellKnownSid(sid, known) != 0)
                    }
                }
                _ => false,
            }
        })
    }
}

/// Whether only the user of this process, the system and the administrators may read the file or directory.
pub(crate) fn is_private(path: &Path) -> io::Result<bool> {
    Ok(AccessList::of(path)?.is_for(&ProcessUser::new()?))
}

/// The permissions of a file: its access control list, and its read-only attribute.
#[derive(Debug)]
pub(crate) struct OwnRights {
    list: AccessList,
    permissions: Permissions,
}

impl OwnRights {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { list: AccessList::of(path)?, permissions: std::fs::metadata(path)?.permissions() })
    }

    /// Gives these rights to a file that [`create_private`] has created.
    pub(crate) fn give_to(&self, file: &File) -> io::Result<()> {
        // SAFETY: the handle is open, and the descriptor lives as long as `self`.
        let done = unsafe {
            SetKernelObjectSecurity(file.as_raw_handle(), DACL_SECURITY_INFORMATION, self.list.descriptor.0)
        };
        if done == 0 {
            return Err(io::Error::last_os_error());
        }
        file.set_permissions(self.permissions.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn private_files_and_folders_are_their_owners_and_others_are_not() {
        let top = std::env::temp_dir().join(format!("encke-private-{}", std::process::id()));
        let _left = std::fs::remove_dir_all(&top);
        let folder = top.join("a/b");
        make_private_folder(&folder).expect("made");
        make_private_folder(&folder).expect("it exists");
        for one in [&top, &folder] {
            assert!(is_private(one).expect("readable"), "{}", one.display());
        }
        let (file, open) = (folder.join("a.key"), folder.join("open"));
        create_private(&file).and_then(|mut file| file.write_all(b"secret")).expect("written");
        assert_eq!(std::fs::read(&file).expect("its owner may"), b"secret");
        assert!(is_private(&file).expect("readable"));
        let error = create_private(&file).expect_err("it exists");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);

        // A file with access for every user.
        let everybody: Vec<u16> = "D:P(A;;FA;;;WD)\0".encode_utf16().collect();
        let mut descriptor = std::ptr::null_mut();
        // SAFETY: as in `private_descriptor`.
        let done = unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                everybody.as_ptr(),
                SDDL_REVISION_1,
                &raw mut descriptor,
                std::ptr::null_mut(),
            )
        };
        assert_ne!(done, 0);
        let descriptor = LocalMemory(descriptor);
        let (path, attributes) = (name(&open).expect("a path"), attributes(&descriptor));
        // SAFETY: as in `make_private_folder`.
        assert_ne!(unsafe { CreateDirectoryW(path.as_ptr(), &raw const attributes) }, 0);
        assert!(!is_private(&open).expect("readable"));

        let copy = folder.join("copy");
        let new = create_private(&copy).expect("created");
        OwnRights::of(&open).expect("readable").give_to(&new).expect("given");
        assert!(!is_private(&copy).expect("readable"), "it has the rights of the other");
        drop(new);
        std::fs::remove_dir_all(&top).expect("made here");
    }

    #[test]
    fn paths_may_be_long_and_have_no_zero() {
        let text = |path: &str| {
            let mut units = name(Path::new(path))?;
            assert_eq!(units.pop(), Some(0));
            Ok::<_, io::Error>(String::from_utf16(&units).expect("Unicode"))
        };
        for (path, expected) in [
            (r"C:\a\b", r"\\?\C:\a\b"),
            ("C:/a/./b", r"\\?\C:\a\b"),
            (r"\\?\C:\a", r"\\?\C:\a"),
            (r"\\server\share\a", r"\\server\share\a"),
        ] {
            assert_eq!(text(path).expect("a path"), expected);
        }
        assert_eq!(text("C:\\a\0b").expect_err("a zero").kind(), io::ErrorKind::InvalidInput);
    }
}
