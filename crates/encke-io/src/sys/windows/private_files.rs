//! Private files of Windows: their access control list (DACL) has entries for their owner, the system and the administrators,
//! and inherits none. A directory passes these entries on to all files that are created in it.

use std::fs::{File, Permissions};
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle};
use std::path::Path;

use windows_sys::Win32::Foundation::{
    ERROR_ALREADY_EXISTS, ERROR_SUCCESS, GENERIC_WRITE, INVALID_HANDLE_VALUE,
};
use windows_sys::Win32::Security::Authorization::{GetNamedSecurityInfoW, SE_FILE_OBJECT};
use windows_sys::Win32::Security::{
    ACCESS_ALLOWED_ACE, ACE_HEADER, ACL, DACL_SECURITY_INFORMATION, EqualSid, GetAce, IsWellKnownSid,
    SetKernelObjectSecurity, WinBuiltinAdministratorsSid, WinCreatorOwnerRightsSid, WinLocalSystemSid,
};
use windows_sys::Win32::Storage::FileSystem::{
    CREATE_NEW, CreateDirectoryW, CreateFileW, FILE_ATTRIBUTE_NORMAL, READ_CONTROL, WRITE_DAC,
};

use super::file_names::system_path;
use super::files::SHARE_ALL;
use super::security::{CurrentUser, SecurityDescriptor, for_owner_and_administrators};

/// The types of an entry of a list (winnt.h).
const ACCESS_ALLOWED: u8 = 0;
const ACCESS_DENIED: u8 = 1;

/// Creates a file that only its owner may read and write, and opens it to write.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let descriptor = for_owner_and_administrators("FA", "")?;
    let (name, attributes) = (system_path(path)?, descriptor.attributes());
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
    let descriptor = for_owner_and_administrators("FA", "OICI")?;
    let (name, attributes) = (system_path(folder)?, descriptor.attributes());
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
    descriptor: SecurityDescriptor,
    dacl: *mut ACL,
}

impl AccessList {
    fn of(path: &Path) -> io::Result<Self> {
        let name = system_path(path)?;
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
        // SAFETY: the call has allocated the descriptor for this process.
        Ok(Self { descriptor: unsafe { SecurityDescriptor::taken(descriptor) }, dacl })
    }

    /// Whether it grants rights to the user, the system and the administrators only.
    fn is_for(&self, user: &CurrentUser) -> bool {
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
    Ok(AccessList::of(path)?.is_for(&CurrentUser::find()?))
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
            SetKernelObjectSecurity(
                file.as_raw_handle(),
                DACL_SECURITY_INFORMATION,
                self.list.descriptor.as_ptr(),
            )
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
        let descriptor = SecurityDescriptor::of("D:P(A;;FA;;;WD)").expect("a descriptor");
        let (path, attributes) = (system_path(&open).expect("a path"), descriptor.attributes());
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
}
