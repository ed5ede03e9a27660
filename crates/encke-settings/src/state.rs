//! The state directory (`server.state_dir`) for data that outlives the process.
//!
//! ```text
//!  state_dir/format                    the version of this layout: "1"
//!            admin.token              the generated token of the admin listener, of a running process
//!            push.redb                 durable channels, and after a drain the rings of all others
//!            authority/authority.pem   the authority of `--tls-self-signed`, which clients must trust
//!                      authority.key   its private key
//!                      localhost.pem   the certificate that it signed, and its key
//!            acme/at-DIRECTORY/        for each ACME directory:
//!                      account.json    the account there, with its key
//!                      NAME.pem        a certificate's key and chain, by its first name
//! ```

use std::error::Error;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use encke_io::files;

/// The layout that this version supports.
const FORMAT: &str = "1";

/// Why data cannot be stored in the state directory. The origin is always this machine: its disk, or the directory that the
/// settings name.
#[derive(Debug)]
#[non_exhaustive]
pub enum StateError {
    /// The state directory itself, or its file `format`, cannot be used.
    Dir(PathBuf, StateStep, io::Error),
    /// A file or directory in the state directory cannot be used.
    File(PathBuf, StateStep, io::Error),
    /// A later version wrote the state directory.
    Format {
        /// The state directory.
        folder: PathBuf,
        /// The format that it has.
        found: String,
    },
}

/// The operation on a file or directory that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StateStep {
    /// Creating a directory.
    Create,
    /// Reading a file.
    Read,
    /// Writing or replacing a file.
    Write,
}

impl fmt::Display for StateStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "cannot be created",
            Self::Read => "cannot be read",
            Self::Write => "cannot be written",
        })
    }
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dir(path, step, error) => write!(f, "server.state_dir: {} {step}: {error}", path.display()),
            Self::File(path, step, error) => write!(f, "{} {step}: {error}", path.display()),
            Self::Format { folder, found } => write!(
                f,
                "server.state_dir {} has format {found:?}, but this version supports only {FORMAT}: use the version that wrote \
                 it, or another directory",
                folder.display()
            ),
        }
    }
}

impl Error for StateError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Dir(.., error) | Self::File(.., error) => Some(error),
            Self::Format { .. } => None,
        }
    }
}

/// Creates the directory, for its owner only, if there is none. Checks that this version supports its layout.
///
/// # Errors
/// The directory cannot be created or written, or a later version has written it.
pub fn prepare(folder: &Path) -> Result<(), StateError> {
    files::make_private_folder(folder)
        .map_err(|error| StateError::Dir(folder.to_owned(), StateStep::Create, error))?;
    let file = folder.join("format");
    match fs::read_to_string(&file) {
        Ok(text) if text.trim() == FORMAT => Ok(()),
        Ok(text) => Err(StateError::Format { folder: folder.to_owned(), found: text.trim().to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::write(&file, format!("{FORMAT}\n"))
            .map_err(|error| StateError::Dir(file, StateStep::Write, error)),
        Err(error) => Err(StateError::Dir(file, StateStep::Read, error)),
    }
}

/// Writes a private file, readable only by its owner. A former one is replaced atomically: after a crash the file is the old or
/// the new one.
///
/// # Errors
/// The file cannot be written.
pub fn put_private(file: &Path, content: &[u8]) -> Result<(), StateError> {
    let new = file.with_added_extension("new");
    let put = || {
        // A file left by a crash may have other permissions.
        if let Err(error) = fs::remove_file(&new)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut writer = files::create_private(&new)?;
        writer.write_all(content)?;
        writer.sync_all()?;
        fs::rename(&new, file)
    };
    put().map_err(|error| StateError::File(file.to_owned(), StateStep::Write, error))
}

/// Creates a directory below the state directory, for its owner only, if there is none.
///
/// # Errors
/// The directory cannot be created.
pub fn make_folder(folder: &Path) -> Result<(), StateError> {
    files::make_private_folder(folder)
        .map_err(|error| StateError::File(folder.to_owned(), StateStep::Create, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_file_is_its_owners_alone_and_takes_the_place_of_the_one_before() {
        let folder = std::env::temp_dir().join(format!("encke-private-{}", std::process::id()));
        make_folder(&folder).expect("made");
        let file = folder.join("a.key");
        // A file that a crash may have left.
        fs::write(folder.join("a.key.new"), "half").expect("written");
        for content in ["one", "another"] {
            put_private(&file, content.as_bytes()).expect("written");
            assert_eq!(fs::read_to_string(&file).expect("there"), content);
            assert!(files::is_private(&file).expect("there"));
        }
        assert_eq!(fs::read_dir(&folder).expect("there").count(), 1, "nothing else is left");
        let below = file.join("below");
        let error = put_private(&below, b"").expect_err("below a file").to_string();
        assert!(error.contains(&format!("{} cannot be written", below.display())), "{error}");
        fs::remove_dir_all(&folder).expect("made here");
    }

    #[test]
    fn a_folder_is_made_once_and_known_again_and_a_later_format_is_refused() {
        let top = std::env::temp_dir().join(format!("encke-state-{}", std::process::id()));
        let _left = fs::remove_dir_all(&top);
        let folder = top.join("a/b");
        prepare(&folder).expect("made");
        prepare(&folder).expect("known");
        fs::write(folder.join("format"), "2\n").expect("written");
        let error = prepare(&folder).expect_err("a later version's").to_string();
        assert!(error.contains("has format \"2\"") && error.contains("another directory"), "{error}");
        fs::write(top.join("file"), "").expect("written");
        let error = prepare(&top.join("file/state")).expect_err("below a file").to_string();
        assert!(error.starts_with("server.state_dir: "), "{error}");
        fs::remove_dir_all(&top).expect("made here");
    }
}
