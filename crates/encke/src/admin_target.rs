//! The admin listener of a running server, as commands name it.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use encke_assembly::settings::{ADMIN_DEFAULT, ListenAddress, OrOff, Settings};
use encke_wire::method::Method;
use serde_json::Value;

use crate::admin_token::{in_state_dir, of_listener, read};
use crate::arguments::AdminArgs;
use crate::client::{ClientError, ClientRequest, Connection, Location, ServerLocation, TrustSettings};
use crate::error::CommandError;

/// Timeout of a request. A listener on this machine responds within milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// The admin listener and its token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AdminTarget {
    server: ServerLocation,
    token: Option<String>,
    /// The authority of the server's certificate (PEM), in place of the system's authorities.
    authority: Option<PathBuf>,
}

/// Why a server sent no status. The origin is the server, or another program at its address.
#[derive(Debug)]
enum AdminError {
    /// There was no response.
    Client(ClientError),
    /// The server requires a token, and none was sent.
    NoToken,
    /// The server rejected the token.
    WrongToken,
    /// The response has this status.
    Status(u16),
    /// The response is not a status of Encke.
    Foreign,
}

impl AdminTarget {
    /// Address and token: from the arguments, else from the settings file, else the default address. Without a token there, the
    /// one that a running server of the same user has left.
    pub(crate) fn of(arguments: &AdminArgs) -> Result<Self, CommandError> {
        let mut admin = Self {
            server: ServerLocation::Inet(ADMIN_DEFAULT.ip().to_string(), ADMIN_DEFAULT.port()),
            token: None,
            authority: None,
        };
        let mut state_dir = None;
        if let Some(file) = &arguments.config {
            let server = Settings::read(file)?.server;
            state_dir = server.state_dir;
            let OrOff::On(settings) = server.admin else {
                let text = format!("the admin listener is off in {}", file.display());
                return Err(CommandError::system(text));
            };
            admin.server = server_at(&settings.address(), settings.tls.is_some());
            if let Some(secret) = &settings.token {
                admin.token = Some(secret.reveal().map_err(CommandError::system)?);
            }
        }
        if let Some(text) = &arguments.admin {
            let named = Self::parse(text)?;
            admin = Self { token: named.token.or(admin.token), authority: admin.authority, ..named };
        }
        if let Some(token) = &arguments.token {
            admin.token = Some(token.clone());
        }
        if let Some(file) = &arguments.ca {
            admin.authority = Some(file.clone());
        }
        if admin.token.is_none() && (arguments.admin.is_none() || admin.server.is_local()) {
            admin.token = admin.left_token(state_dir.as_deref())?;
        }
        if admin.token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(CommandError::usage("a token has no spaces or control characters"));
        }
        Ok(admin)
    }

    /// Reads the token that a running server has left. `state_dir` is that of the settings file.
    fn left_token(&self, state_dir: Option<&Path>) -> Result<Option<String>, CommandError> {
        let name = match &self.server {
            ServerLocation::Inet(_, port) | ServerLocation::Secure(_, port) => port.to_string(),
            ServerLocation::Unix(path) => path.display().to_string(),
        };
        let files = state_dir.map(in_state_dir).into_iter().chain(of_listener(&name));
        for file in files {
            let token = read(&file).map_err(|error| {
                let text = format!(
                    "cannot read the token in {}: run the command as the user of the server, or use --token",
                    file.display()
                );
                CommandError::system(error).context(text)
            })?;
            if token.is_some() {
                return Ok(token);
            }
        }
        Ok(None)
    }

    /// Parses `8081`, `HOST:PORT`, or a URL with `?token=`.
    fn parse(text: &str) -> Result<Self, CommandError> {
        let Location { server, query, .. } = Location::parse(text)
            .map_err(|error| CommandError::usage(error).context("invalid admin listener"))?;
        let mut pairs = query.as_deref().unwrap_or_default().split('&');
        let token = pairs.find_map(|pair| pair.strip_prefix("token=")).map(ToOwned::to_owned);
        Ok(Self { server, token, authority: None })
    }

    /// Requests `/api/v1/status` and returns the response body.
    pub(crate) fn ask(&self) -> Result<String, CommandError> {
        self.request(Method::Get, "/api/v1/status", 200)
    }

    /// Requests a one-time token, and returns the URL that opens the console with it.
    pub(crate) fn console_url(&self) -> Result<String, CommandError> {
        let made: Value = serde_json::from_str(&self.request(Method::Post, "/api/v1/session/token", 201)?)
            .unwrap_or_default();
        let url = made["url"].as_str().map(ToOwned::to_owned);
        url.ok_or_else(|| CommandError::server(AdminError::Foreign).context(&self.server))
    }

    /// Whether the admin listener is at a Unix socket, which no browser can open.
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self.server, ServerLocation::Unix(_))
    }

    /// Sends a request, and returns the response body if the status is `expected`.
    fn request(&self, method: Method, target: &str, expected: u16) -> Result<String, CommandError> {
        let failed = |error: AdminError| CommandError::server(error).context(&self.server);
        let authorization = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let field = authorization.as_deref().map(|value| ("Authorization", value));
        let request = ClientRequest { method, target, fields: field.as_slice(), body: b"" };
        let mut connection = Connection::to(&self.server, &TrustSettings::new(self.authority.clone(), false))
            .map_err(|error| failed(AdminError::Client(error)))?;
        let answer = connection.ask(&request, PATIENCE).map_err(|error| failed(AdminError::Client(error)))?;
        match answer.head.status() {
            status if status == expected => {
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                // A site with `spa`, for example, responds to every path.
                let json: Value = serde_json::from_str(&text).unwrap_or_default();
                if json["schema"].is_u64() { Ok(text) } else { Err(failed(AdminError::Foreign)) }
            }
            401 if self.token.is_some() => Err(failed(AdminError::WrongToken)),
            401 => Err(failed(AdminError::NoToken)),
            status => Err(failed(AdminError::Status(status))),
        }
    }
}

/// The remedy for an address of another listener or program.
const NOT_ADMIN: &str = "this is not the admin listener of Encke; the start-up lines print its URL";

/// Where the token is found.
const TOKEN_ORIGIN: &str = "it is server.admin.token, or, if that is not set, in the start-up lines of the server. With -c FILE its user needs none";

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::NoToken => write!(f, "a token is required (--token or $ENCKE_TOKEN): {TOKEN_ORIGIN}"),
            Self::WrongToken => write!(f, "wrong token: {TOKEN_ORIGIN}"),
            Self::Status(429) => write!(
                f,
                "too many wrong tokens or passwords from this address; wait a minute. The token: {TOKEN_ORIGIN}"
            ),
            Self::Status(421) => f.write_str(
                "the admin listener does not accept this host name: use an IP address, or add the name to \
                 server.admin.hosts in its settings file",
            ),
            Self::Status(status) => write!(f, "unexpected status {status}: {NOT_ADMIN}"),
            Self::Foreign => write!(f, "the response is not a status: {NOT_ADMIN}"),
        }
    }
}

impl Error for AdminError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Client(error) => Some(error),
            Self::NoToken | Self::WrongToken | Self::Status(_) | Self::Foreign => None,
        }
    }
}

/// Returns the server that reaches a listener at this address from the same machine.
fn server_at(address: &ListenAddress, secure: bool) -> ServerLocation {
    let (host, port) = match address {
        // Certificates name the host, and rarely its address.
        ListenAddress::Loopback(port) | ListenAddress::Everywhere(port) if secure => {
            ("localhost".into(), *port)
        }
        ListenAddress::Loopback(port) | ListenAddress::Everywhere(port) => ("127.0.0.1".into(), *port),
        ListenAddress::Inet(address) => (address.ip().to_string(), address.port()),
        ListenAddress::Name(host, port) => (host.clone(), *port),
        ListenAddress::Unix(path) => return ServerLocation::Unix(path.clone()),
    };
    if secure { ServerLocation::Secure(host, port) } else { ServerLocation::Inet(host, port) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_listener_is_named_in_any_form() {
        for (text, host, token) in [
            ("8081", "127.0.0.1:8081", None),
            ("localhost:8081", "localhost:8081", None),
            ("[::1]:8081", "[::1]:8081", None),
            ("http://127.0.0.1:8081", "127.0.0.1:8081", None),
            ("https://example.com/", "example.com:443", None),
            ("http://127.0.0.1:8081/?token=abc", "127.0.0.1:8081", Some("abc")),
            ("http://127.0.0.1:8081/api/v1/status?x=1&token=abc", "127.0.0.1:8081", Some("abc")),
        ] {
            let admin = AdminTarget::parse(text).unwrap_or_else(|failure| panic!("{failure}"));
            assert_eq!((admin.server.to_string().as_str(), admin.token.as_deref()), (host, token), "{text}");
        }
        for text in ["", "localhost", "a b:1", "http:///x"] {
            assert!(matches!(AdminTarget::parse(text), Err(CommandError::Usage(_))), "{text}");
        }
    }

    #[test]
    fn other_servers_and_other_listeners_are_named_as_such() {
        use std::io::{Read as _, Write as _};
        for (status, body, said) in [
            ("404 Not Found", "", "unexpected status 404: this is not the admin listener of Encke"),
            ("421 Misdirected Request", "", "add the name to server.admin.hosts"),
            ("429 Too Many Requests", "", "too many wrong tokens or passwords from this address"),
            ("200 OK", "<p>hello", "the response is not a status: this is not the admin listener"),
            ("200 OK", "{}", "the response is not a status: this is not the admin listener"),
            ("401 Unauthorized", "", "a token is required"),
        ] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = listener.local_addr().expect("bound").to_string();
            let server = std::thread::spawn(move || {
                let (mut client, _) = listener.accept().expect("a client");
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") {
                    client.read_exact(&mut byte).expect("a head");
                    head.push(byte[0]);
                }
                let length = body.len();
                let response = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
                client.write_all(response.as_bytes()).expect("the client reads");
            });
            let failure = AdminTarget::parse(&address).and_then(|admin| admin.ask()).expect_err(status);
            assert!(failure.to_string().contains(said), "{status}: {failure}");
            server.join().expect("no panic");
        }
    }
}
