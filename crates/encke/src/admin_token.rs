//! The generated token of the admin listener, in a private file: `encke status` and `encke console` of the same user read it.
//!
//! ```text
//!  server.state_dir is set      STATE_DIR/admin.token
//!  otherwise                    $XDG_STATE_HOME/encke/admin/8081.token      by the port, or the path of a Unix socket
//! ```
//!
//! The token holds for one process. Its file is removed at the end; after a kill, the file has a token that no server accepts. A
//! token of the settings is a secret of the operator, and is never copied.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use encke_assembly::Service;
use encke_assembly::settings::{Admin, Level, ListenAddress, OrOff, Settings};
use encke_io::Address;
use encke_settings::{notice, state};

use crate::arguments::Serve;
use crate::shell::quoted;

/// Maximum size of a file with a token. A generated token has 32 bytes.
const TOKEN_BYTES_MAX: u64 = 4096;

/// The directory of the user for state: that of the XDG Base Directory Specification, on Windows the local application data.
pub(crate) fn user_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The specification requires that relative paths are ignored.
    let folder = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_STATE_HOME")
        .map(|state| state.join("encke"))
        .or_else(|| folder("LOCALAPPDATA").map(|data| data.join("encke")))
        .or_else(|| folder("HOME").map(|home| home.join(".local/state/encke")))
}

/// The directory of tokens of servers without a state directory.
pub(crate) fn folder() -> Option<PathBuf> {
    user_folder(|name| std::env::var_os(name)).map(|user| user.join("admin"))
}

/// Creates the directory of tokens, if a server without a state directory may leave one. A site that starts later knows the
/// directory only if it exists, and never serves it.
pub(crate) fn prepare(settings: &Settings) {
    let is_needed = matches!(&settings.server.admin, OrOff::On(admin) if has_lasting_name(&admin.address()));
    if let Some(folder) = folder().filter(|_| is_needed && settings.server.state_dir.is_none()) {
        // A user without a writable directory has no such file.
        let _or_none = state::make_folder(&folder);
    }
}

/// The file with the token of a server with this state directory.
pub(crate) fn in_state_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("admin.token")
}

/// The file with the token of a server without a state directory, by the name of its admin listener.
pub(crate) fn of_listener(name: &str) -> Option<PathBuf> {
    let name: String =
        name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    Some(folder()?.join(format!("{name}.token")))
}

/// The name of a listener: its port, or the path of its Unix socket.
fn listener_name(address: &Address) -> String {
    match address {
        Address::Inet(inet) => inet.port().to_string(),
        Address::Unix(path) => path.display().to_string(),
    }
}

/// Whether a listener has the same name at each start. A free port has not, and its files would accumulate.
fn has_lasting_name(address: &ListenAddress) -> bool {
    match address {
        ListenAddress::Inet(inet) => inet.port() != 0,
        ListenAddress::Loopback(port) | ListenAddress::Everywhere(port) | ListenAddress::Name(_, port) => {
            *port != 0
        }
        ListenAddress::Unix(_) => true,
    }
}

/// Whether a client of this machine reaches an address without the network.
fn address_is_local(address: &Address) -> bool {
    match address {
        Address::Inet(inet) => inet.ip().is_loopback() || inet.ip().is_unspecified(),
        Address::Unix(_) => true,
    }
}

/// Reads a token. `None` if no server has left one.
pub(crate) fn read(file: &Path) -> io::Result<Option<String>> {
    let mut text = String::new();
    match fs::File::open(file) {
        Ok(open) => open.take(TOKEN_BYTES_MAX).read_to_string(&mut text)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty()))
}

/// The file with the token of this process. Dropping it removes the file.
pub(crate) struct AdminTokenFile {
    file: PathBuf,
    token: String,
    /// `encke console` with the arguments that find the file.
    command: String,
}

impl AdminTokenFile {
    /// Writes the token of a server, if Encke has generated the token and commands can find its file.
    pub(crate) fn write(service: &Service, settings: &Settings, arguments: &Serve) -> Option<Self> {
        let OrOff::On(admin @ Admin { token: None, .. }) = &settings.server.admin else { return None };
        let addresses = service.admin_addresses();
        let address = addresses.first()?;
        let config = arguments.config.as_deref();
        let file = match &settings.server.state_dir {
            Some(state_dir) => in_state_dir(state_dir),
            None => {
                let is_found = has_lasting_name(&admin.address())
                    && (arguments.admin.is_none() || address_is_local(address));
                let file = is_found.then(|| of_listener(&listener_name(address))).flatten();
                file.filter(|file| file.parent().is_some_and(Path::is_dir))?
            }
        };
        let mut command = String::from("encke console");
        if let Some(config) = config {
            command += &format!(" -c {}", quoted(config));
        }
        if arguments.admin.is_some() {
            command += &match address {
                Address::Inet(inet) if inet.ip().is_unspecified() => format!(" {}", inet.port()),
                Address::Inet(inet) => format!(" {inet}"),
                Address::Unix(path) => format!(" unix:{}", quoted(path)),
            };
        }
        let token = service.admin_token().to_owned();
        match state::put_private(&file, format!("{token}\n").as_bytes()) {
            Ok(()) => Some(Self { file, token, command }),
            Err(error) => {
                let text = format!("`encke status` and `encke console` need --token: {error}");
                notice::report(Level::Warn, &text);
                None
            }
        }
    }

    /// The command that opens the console.
    pub(crate) fn command(&self) -> &str {
        &self.command
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file
    }
}

impl Drop for AdminTokenFile {
    fn drop(&mut self) {
        // A successor may already have written its own token.
        if read(&self.file).is_ok_and(|found| found.as_ref() == Some(&self.token)) {
            let _may_be_gone = fs::remove_file(&self.file);
        }
    }
}
