//! The console that a program writes to.

use std::fs::File;
use std::io;

use windows_sys::Win32::System::Console::{
    ENABLE_VIRTUAL_TERMINAL_PROCESSING, GetConsoleMode, GetStdHandle, STD_ERROR_HANDLE, STD_OUTPUT_HANDLE,
    SetConsoleMode, SetConsoleOutputCP,
};

/// Opens the console of this process for reading, wherever standard input comes from.
///
/// # Errors
/// The process has no console.
pub fn open_terminal() -> io::Result<File> {
    File::options().read(true).write(true).open("CONIN$")
}

/// The number of UTF-8 among the code pages (CP_UTF8).
const UTF_8: u32 = 65_001;

/// Makes the console of this process read its output as UTF-8, and obey escape sequences. Shells that read the output through a
/// pipe use the same encoding. No effect without a console.
pub fn prepare_console() {
    // SAFETY: the call takes no pointers.
    unsafe { SetConsoleOutputCP(UTF_8) };
    for standard in [STD_OUTPUT_HANDLE, STD_ERROR_HANDLE] {
        // SAFETY: the call takes no pointers.
        let handle = unsafe { GetStdHandle(standard) };
        let mut mode = 0;
        // SAFETY: the call writes the mode; it fails if the handle is no console.
        if unsafe { GetConsoleMode(handle, &raw mut mode) } != 0 {
            // SAFETY: the call takes no pointers.
            unsafe { SetConsoleMode(handle, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING) };
        }
    }
}
