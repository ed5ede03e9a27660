//! Opening objects of the system by NtCreateFile: files relative to a directory, and drivers.

use std::os::windows::io::{FromRawHandle as _, OwnedHandle};

use windows_sys::Wdk::Foundation::OBJECT_ATTRIBUTES;
use windows_sys::Wdk::Storage::FileSystem::{FILE_OPEN, NtCreateFile};
use windows_sys::Win32::Foundation::{
    HANDLE, NTSTATUS, STATUS_OBJECT_NAME_INVALID, STATUS_SUCCESS, UNICODE_STRING,
};
use windows_sys::Win32::System::IO::IO_STATUS_BLOCK;

/// How to open an object that exists.
pub(crate) struct ObjectOpening {
    /// The directory in which the name is looked up; null for an absolute name. It must be open.
    pub(crate) root: HANDLE,
    /// Attributes of the lookup (OBJ_…).
    pub(crate) attributes: u32,
    /// Rights of the new handle.
    pub(crate) access: u32,
    /// Rights that other handles may have at the same time (FILE_SHARE_…).
    pub(crate) share: u32,
    /// Options of NtCreateFile.
    pub(crate) options: u32,
}

impl ObjectOpening {
    /// Opens the object of a name. An empty name is the root itself.
    ///
    /// # Errors
    /// The kernel's status.
    pub(crate) fn open(&self, name: &str) -> Result<OwnedHandle, NTSTATUS> {
        let mut units: Vec<u16> = name.encode_utf16().collect();
        let bytes = u16::try_from(units.len() * 2).map_err(|_| STATUS_OBJECT_NAME_INVALID)?;
        let name = UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_mut_ptr() };
        let attributes = OBJECT_ATTRIBUTES {
            Length: size_of::<OBJECT_ATTRIBUTES>() as u32,
            RootDirectory: self.root,
            ObjectName: &raw const name,
            Attributes: self.attributes,
            SecurityDescriptor: std::ptr::null(),
            SecurityQualityOfService: std::ptr::null(),
        };
        let mut handle: HANDLE = std::ptr::null_mut();
        let mut status = IO_STATUS_BLOCK::default();
        // SAFETY: all pointers lead to values that live until the call returns, and it does not return before it is done.
        let result = unsafe {
            NtCreateFile(
                &raw mut handle,
                self.access,
                &raw const attributes,
                &raw mut status,
                std::ptr::null(),
                0,
                self.share,
                FILE_OPEN,
                self.options,
                std::ptr::null(),
                0,
            )
        };
        if result != STATUS_SUCCESS {
            return Err(result);
        }
        // SAFETY: the handle was opened above, and nothing else knows of it.
        Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
    }
}
