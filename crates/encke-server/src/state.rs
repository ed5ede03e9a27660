//! `server.state_dir`: what outlives the process.
//!
//! ```text
//!  state_dir/format      the arrangement of what lies here: "1"
//!            push.redb   durable channels, and at a planned end the rings of all others
//! ```

use std::fs;
use std::io;
use std::path::Path;

/// The arrangement that this version knows.
const FORMAT: &str = "1";

/// Makes the folder, for its owner alone, if it is not there, and sees that this version knows what is in it.
///
/// # Errors
/// It cannot be made or written, or a later version has written it.
pub(crate) fn prepare(folder: &Path) -> io::Result<()> {
    let named = |what: &str, error: &io::Error| {
        io::Error::new(error.kind(), format!("server.state_dir {}: {what}: {error}", folder.display()))
    };
    make(folder).map_err(|error| named("it cannot be made", &error))?;
    let file = folder.join("format");
    match fs::read_to_string(&file) {
        Ok(text) if text.trim() == FORMAT => Ok(()),
        Ok(text) => Err(io::Error::other(format!(
            "server.state_dir {} has format {:?}, and this version knows {FORMAT}: use the version that wrote it, or \
             another folder",
            folder.display(),
            text.trim()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::write(&file, format!("{FORMAT}\n")).map_err(|error| named("it cannot be written", &error))
        }
        Err(error) => Err(named("its file `format` cannot be read", &error)),
    }
}

#[cfg(unix)]
fn make(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn make(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_once_and_known_again_and_a_later_format_is_refused() {
        let top = std::env::temp_dir().join(format!("encke-state-{}", std::process::id()));
        let _left = fs::remove_dir_all(&top);
        let folder = top.join("a/b");
        prepare(&folder).expect("made");
        prepare(&folder).expect("known");
        fs::write(folder.join("format"), "2\n").expect("written");
        let error = prepare(&folder).expect_err("a later version's").to_string();
        assert!(error.contains("has format \"2\"") && error.contains("another folder"), "{error}");
        fs::write(top.join("file"), "").expect("written");
        let error = prepare(&top.join("file/state")).expect_err("below a file").to_string();
        assert!(error.starts_with("server.state_dir "), "{error}");
        fs::remove_dir_all(&top).expect("made here");
    }
}
