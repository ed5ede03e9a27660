//! Access to objects of the system: security descriptors, as texts (SDDL), and owners of directories.

use std::ffi::{OsStr, c_void};
use std::io;
use std::os::windows::fs::MetadataExt as _;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::path::Path;

use windows_sys::Win32::Foundation::{ERROR_INSUFFICIENT_BUFFER, ERROR_SUCCESS, HANDLE, LocalFree};
use windows_sys::Win32::Security::Authorization::{
    ConvertSidToStringSidW, ConvertStringSecurityDescriptorToSecurityDescriptorW, SDDL_REVISION_1,
    SE_FILE_OBJECT, SetNamedSecurityInfoW,
};
use windows_sys::Win32::Security::{
    ACL, DACL_SECURITY_INFORMATION, EqualSid, GetFileSecurityW, GetSecurityDescriptorDacl,
    GetSecurityDescriptorOwner, GetTokenInformation, IsWellKnownSid, OWNER_SECURITY_INFORMATION,
    PROTECTED_DACL_SECURITY_INFORMATION, PSECURITY_DESCRIPTOR, PSID, SECURITY_ATTRIBUTES, TOKEN_QUERY,
    TOKEN_USER, TokenUser, WinBuiltinAdministratorsSid, WinLocalSystemSid,
};
use windows_sys::Win32::Storage::FileSystem::{
    CreateDirectoryW, FILE_ATTRIBUTE_DIRECTORY, FILE_ATTRIBUTE_REPARSE_POINT,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

use super::command_line::zero_terminated;
use super::file_names::system_path;

/// Memory that the system has allocated for this process.
#[derive(Debug)]
struct LocalMemory(*mut c_void);

impl Drop for LocalMemory {
    fn drop(&mut self) {
        // SAFETY: a call of the system has returned the memory to be freed so, and nothing else frees it.
        unsafe { LocalFree(self.0) };
    }
}

/// A security descriptor, which the system has allocated.
#[derive(Debug)]
pub(crate) struct SecurityDescriptor(LocalMemory);

impl SecurityDescriptor {
    /// The descriptor of a text in the security descriptor definition language.
    ///
    /// # Errors
    /// The system does not understand the text.
    pub(crate) fn of(text: &str) -> io::Result<Self> {
        let text = zero_terminated(OsStr::new(text))?;
        let mut descriptor = std::ptr::null_mut();
        // SAFETY: the text ends with a zero, and the call writes one pointer to `descriptor`.
        let done = unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                text.as_ptr(),
                SDDL_REVISION_1,
                &raw mut descriptor,
                std::ptr::null_mut(),
            )
        };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(Self(LocalMemory(descriptor))) }
    }

    /// Takes the descriptor of a file from the system.
    ///
    /// # Safety
    /// A call of the system has allocated it, and nothing else frees it.
    pub(crate) unsafe fn taken(descriptor: PSECURITY_DESCRIPTOR) -> Self {
        Self(LocalMemory(descriptor))
    }

    /// The descriptor for calls of the system, which lives as long as this value.
    pub(crate) fn as_ptr(&self) -> PSECURITY_DESCRIPTOR {
        self.0.0
    }

    /// The attributes of a new object with this descriptor. They must not outlive it.
    pub(crate) fn attributes(&self) -> SECURITY_ATTRIBUTES {
        SECURITY_ATTRIBUTES {
            nLength: size_of::<SECURITY_ATTRIBUTES>() as u32,
            lpSecurityDescriptor: self.as_ptr(),
            bInheritHandle: 0,
        }
    }

    /// The owner, as a part of this descriptor; null if it names none.
    fn owner(&self) -> io::Result<PSID> {
        let (mut owner, mut is_defaulted) = (std::ptr::null_mut(), 0);
        // SAFETY: the descriptor is the system's own, and the call writes a pointer into it, and a flag.
        let done =
            unsafe { GetSecurityDescriptorOwner(self.as_ptr(), &raw mut owner, &raw mut is_defaulted) };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(owner) }
    }

    /// The list of rights, as a part of this descriptor.
    fn list(&self) -> io::Result<*const ACL> {
        let (mut list, mut is_present, mut is_defaulted) = (std::ptr::null_mut(), 0, 0);
        // SAFETY: the descriptor is the system's own, and the call writes a pointer into it, and two flags.
        let done = unsafe {
            GetSecurityDescriptorDacl(
                self.as_ptr(),
                &raw mut is_present,
                &raw mut list,
                &raw mut is_defaulted,
            )
        };
        if done == 0 {
            return Err(io::Error::last_os_error());
        }
        // Without a list, everybody would get all rights.
        if is_present == 0 || list.is_null() { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(list) }
    }
}

/// The user of this process: a buffer that begins with a TOKEN_USER, which points into the buffer.
pub(crate) struct CurrentUser(Vec<u64>);

impl CurrentUser {
    pub(crate) fn find() -> io::Result<Self> {
        let mut token: HANDLE = std::ptr::null_mut();
        // SAFETY: the call writes one handle.
        if unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) } == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the handle was opened above, and nothing else knows of it.
        let token = unsafe { OwnedHandle::from_raw_handle(token) };
        // A security identifier has at most 68 bytes.
        let mut buffer = vec![0_u64; 32];
        let mut needed = 0;
        // SAFETY: the call writes at most as many bytes as the buffer has; 64-bit words are aligned for the structure.
        let done = unsafe {
            GetTokenInformation(
                token.as_raw_handle(),
                TokenUser,
                buffer.as_mut_ptr().cast(),
                size_of_val(&*buffer) as u32,
                &raw mut needed,
            )
        };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(Self(buffer)) }
    }

    pub(crate) fn sid(&self) -> PSID {
        // SAFETY: the system has written a TOKEN_USER to the beginning of the buffer, which is aligned for it.
        unsafe { self.0.as_ptr().cast::<TOKEN_USER>().read().User.Sid }
    }

    /// The identifier as a text: `S-1-5-…`.
    fn text(&self) -> io::Result<String> {
        // SAFETY: the identifier is in this buffer.
        unsafe { sid_text(self.sid()) }
    }
}

/// An identifier as a text.
///
/// # Safety
/// `sid` is a valid identifier.
unsafe fn sid_text(sid: PSID) -> io::Result<String> {
    let mut text = std::ptr::null_mut();
    // SAFETY: the caller vouches for the identifier, and the call writes one pointer.
    if unsafe { ConvertSidToStringSidW(sid, &raw mut text) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let memory = LocalMemory(text.cast());
    // SAFETY: the system has allocated a text that ends with a zero, and it lives until `memory` is dropped.
    let units = unsafe {
        let len = (0..).take_while(|&at| *text.add(at) != 0).count();
        std::slice::from_raw_parts(text, len)
    };
    let found = String::from_utf16_lossy(units);
    drop(memory);
    Ok(found)
}

/// The descriptor of an object to which only this process's user, the administrators and the system have `rights`: `GA`, or `FA`
/// for files. `flags`: how the files of a directory inherit it, as `OICI`, or empty.
///
/// # Errors
/// The system's.
pub(crate) fn for_owner_and_administrators(rights: &str, flags: &str) -> io::Result<SecurityDescriptor> {
    let user = CurrentUser::find()?.text()?;
    SecurityDescriptor::of(&format!(
        "D:P(A;{flags};{rights};;;{user})(A;{flags};{rights};;;SY)(A;{flags};{rights};;;BA)"
    ))
}

/// Creates a directory with a descriptor. If the directory exists, sets the descriptor's owner and list of rights. Files in it get
/// the entries that are inherited. Returns false, and changes nothing, if the directory is a link or belongs neither to the
/// administrators, nor to the system, nor to this user, because its owner could change it later.
///
/// # Errors
/// The system's.
pub(crate) fn make_directory(path: &Path, descriptor: &SecurityDescriptor) -> io::Result<bool> {
    let name = system_path(path)?;
    let attributes = descriptor.attributes();
    // SAFETY: the name ends with a zero; name and attributes live until the call returns.
    if unsafe { CreateDirectoryW(name.as_ptr(), &raw const attributes) } != 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.kind() != io::ErrorKind::AlreadyExists {
        return Err(error);
    }
    let found = std::fs::symlink_metadata(path)?.file_attributes();
    if found & FILE_ATTRIBUTE_DIRECTORY == 0 {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    if found & FILE_ATTRIBUTE_REPARSE_POINT != 0 || !is_owner_trusted(&name)? {
        return Ok(false);
    }
    let (owner, list) = (descriptor.owner()?, descriptor.list()?);
    let with_owner = if owner.is_null() { 0 } else { OWNER_SECURITY_INFORMATION };
    let which = with_owner | DACL_SECURITY_INFORMATION | PROTECTED_DACL_SECURITY_INFORMATION;
    // SAFETY: the name ends with a zero; owner and list are parts of the descriptor, which lives until the call returns.
    let status = unsafe {
        SetNamedSecurityInfoW(
            name.as_ptr(),
            SE_FILE_OBJECT,
            which,
            owner,
            std::ptr::null_mut(),
            list,
            std::ptr::null(),
        )
    };
    if status == ERROR_SUCCESS { Ok(true) } else { Err(io::Error::from_raw_os_error(status as i32)) }
}

/// Whether a file is no link, and belongs to administrators, to the system, or to the user of this process.
///
/// # Errors
/// The system's.
pub(crate) fn is_trusted(path: &Path) -> io::Result<bool> {
    let found = std::fs::symlink_metadata(path)?.file_attributes();
    Ok(found & FILE_ATTRIBUTE_REPARSE_POINT == 0 && is_owner_trusted(&system_path(path)?)?)
}

/// Whether a file or directory belongs to administrators, to the system, or to the user of this process.
fn is_owner_trusted(name: &[u16]) -> io::Result<bool> {
    let user = CurrentUser::find()?;
    let mut buffer = vec![0_u64; 64];
    let mut needed = 0;
    loop {
        // SAFETY: the name ends with a zero; the call writes at most as many bytes as the buffer has.
        let done = unsafe {
            GetFileSecurityW(
                name.as_ptr(),
                OWNER_SECURITY_INFORMATION,
                buffer.as_mut_ptr().cast(),
                size_of_val(&*buffer) as u32,
                &raw mut needed,
            )
        };
        if done != 0 {
            break;
        }
        let error = io::Error::last_os_error();
        let is_short = error.raw_os_error() == Some(ERROR_INSUFFICIENT_BUFFER as i32);
        if !is_short || needed as usize <= size_of_val(&*buffer) {
            return Err(error);
        }
        buffer = vec![0; (needed as usize).div_ceil(8)];
    }
    let mut owner: PSID = std::ptr::null_mut();
    let mut is_defaulted = 0;
    // SAFETY: the buffer holds a descriptor, and the call writes a pointer into it, and a flag.
    let done = unsafe {
        GetSecurityDescriptorOwner(buffer.as_mut_ptr().cast(), &raw mut owner, &raw mut is_defaulted)
    };
    if done == 0 || owner.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both identifiers are valid, and live in buffers that outlive the call.
    Ok(unsafe { is_trusted_owner(owner, &user) })
}

/// Whether files of this owner are trusted: administrators, the system, or this user.
///
/// # Safety
/// `owner` is a valid identifier.
unsafe fn is_trusted_owner(owner: PSID, user: &CurrentUser) -> bool {
    // SAFETY: the caller vouches for the one identifier, and the other lives in its buffer.
    unsafe {
        IsWellKnownSid(owner, WinBuiltinAdministratorsSid) != 0
            || IsWellKnownSid(owner, WinLocalSystemSid) != 0
            || EqualSid(owner, user.sid()) != 0
    }
}

/// The entries of a descriptor's list: account, rights, and the objects that inherit the entry.
#[cfg(test)]
pub(super) fn entries(descriptor: &SecurityDescriptor) -> io::Result<Vec<(String, u32, u32)>> {
    use windows_sys::Win32::Security::{ACCESS_ALLOWED_ACE, GetAce};
    let list = descriptor.list()?;
    // SAFETY: the list is a part of the descriptor, which the caller keeps.
    let count = unsafe { (*list).AceCount };
    (0..count)
        .map(|number| {
            let mut entry = std::ptr::null_mut();
            // SAFETY: as above. Every entry of a list that permits has this structure, and ends with an identifier.
            unsafe {
                if GetAce(list, number.into(), &raw mut entry) == 0 {
                    return Err(io::Error::last_os_error());
                }
                let entry = entry.cast::<ACCESS_ALLOWED_ACE>();
                let who = sid_text((&raw mut (*entry).SidStart).cast())?;
                Ok((who, (*entry).Mask, (*entry).Header.AceFlags.into()))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_an_identifier_and_a_bad_descriptor_is_an_error() {
        let text = CurrentUser::find().and_then(|user| user.text()).expect("this process has a user");
        assert!(text.starts_with("S-1-"), "{text}");
        for_owner_and_administrators("GA", "").expect("a descriptor");
        assert!(SecurityDescriptor::of("no descriptor").is_err());
    }

    #[test]
    fn a_directory_is_made_once_and_a_file_in_its_place_is_an_error() {
        let path = std::env::temp_dir().join(format!("encke-directory-{}", std::process::id()));
        let _left = std::fs::remove_dir_all(&path);
        let descriptor = for_owner_and_administrators("GA", "").expect("a descriptor");
        assert!(make_directory(&path, &descriptor).expect("created"));
        assert!(make_directory(&path, &descriptor).expect("it belongs to this user"));
        std::fs::write(path.join("file"), "x").expect("this user may write");
        let error = make_directory(&path.join("file"), &descriptor).expect_err("a file");
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        assert!(is_trusted(&path.join("file")).expect("readable"), "it belongs to this user");
        assert!(is_trusted(&path.join("missing")).is_err());
        std::fs::remove_dir_all(&path).expect("it was made here");
    }

    #[test]
    fn administrators_the_system_and_this_user_are_trusted_and_no_others() {
        let user = CurrentUser::find().expect("this process has a user");
        let own = user.text().expect("a text");
        // Everyone, users, the account of the service and that of other services, anonymous, another user, and one of this domain.
        let others = ["WD", "BU", "NS", "LS", "AN", "S-1-5-21-1-2-3-1001", &format!("{own}-1")];
        let trusted = ["BA", "SY", &own];
        for (owner, expected) in
            trusted.map(|owner| (owner, true)).into_iter().chain(others.map(|owner| (owner, false)))
        {
            let descriptor = SecurityDescriptor::of(&format!("O:{owner}")).expect(owner);
            let sid = descriptor.owner().expect("named");
            assert!(!sid.is_null(), "{owner}");
            // SAFETY: the identifier is a part of the descriptor, which lives until the call returns.
            assert_eq!(unsafe { is_trusted_owner(sid, &user) }, expected, "{owner}");
        }
    }
}
