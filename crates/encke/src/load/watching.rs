//! `--watch`: samples the server's resource usage during a run.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use encke_load::probe::{ProbeSample, ServerProbe};
use encke_wire::method::Method;

use crate::client::{self, ClientError, ClientRequest, Connection, Location, LocationError, TrustSettings};
use crate::error::{ArgumentError, CommandError};

/// Timeout for a page of metrics, which takes milliseconds. A longer one would delay the next sample.
const PATIENCE: Duration = Duration::from_secs(1);

/// The source of the resource usage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Watching {
    /// A process of this machine, by its id.
    Process(u32),
    /// The URL of a page of metrics, as given.
    Metrics(String),
}

/// Why there is no sample. The next sample is a retry.
#[derive(Debug)]
enum WatchError {
    /// There is no such process, or it has ended.
    NoProcess,
    /// The URL is invalid.
    Location(LocationError),
    /// The server did not respond.
    Client(ClientError),
    /// The server requires a token.
    Token,
    /// The server sent this status.
    Status(u16),
    /// The page lacks the processor time.
    NoCpu,
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess => f.write_str("no such process"),
            Self::Location(error) => error.fmt(f),
            Self::Client(error) => error.fmt(f),
            Self::Token => f.write_str("a token is required: append ?token=… to the URL"),
            Self::Status(status) => write!(f, "unexpected status {status}"),
            Self::NoCpu => f.write_str("process_cpu_seconds_total is missing"),
        }
    }
}

impl Error for WatchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Location(error) => Some(error),
            Self::Client(error) => Some(error),
            _ => None,
        }
    }
}

impl Watching {
    /// Starts with a first sample.
    ///
    ///  # Errors
    /// The process or the metrics cannot be read.
    pub(super) fn begin(&self) -> Result<ServerProbe, CommandError> {
        let look = self.look().map_err(|error| match self {
            Self::Process(pid) => CommandError::system(error).context(format_args!("--watch {pid}")),
            Self::Metrics(_) => CommandError::server(error).context(format_args!("--watch {self}")),
        })?;
        Ok(ServerProbe::new(self.to_string(), look))
    }

    /// Takes another sample. A failed sample is skipped, and the next one covers its time.
    pub(super) fn again(&self, probe: &mut ServerProbe) {
        if let Ok(sample) = self.look() {
            probe.look(sample);
        }
    }

    /// Takes one sample.
    fn look(&self) -> Result<ProbeSample, WatchError> {
        match self {
            Self::Process(pid) => ProbeSample::at_process(*pid, client::now()).ok_or(WatchError::NoProcess),
            Self::Metrics(url) => {
                ProbeSample::at_metrics(&page(url)?, client::now()).ok_or(WatchError::NoCpu)
            }
        }
    }
}

/// Requests a page of metrics. The query of its URL may contain a token.
fn page(url: &str) -> Result<String, WatchError> {
    let Location { server, path, query } = Location::parse(url).map_err(WatchError::Location)?;
    let token = query.as_deref().and_then(|query| query.strip_prefix("token="));
    let authorization = token.map(|token| format!("Bearer {token}"));
    let field = authorization.as_deref().map(|value| ("Authorization", value));
    let request = ClientRequest { method: Method::Get, target: &path, fields: field.as_slice(), body: b"" };
    let mut connection =
        Connection::to(&server, &TrustSettings::new(None, false)).map_err(WatchError::Client)?;
    let answer = connection.ask(&request, PATIENCE).map_err(WatchError::Client)?;
    match answer.head.status() {
        200 => Ok(String::from_utf8_lossy(&answer.body).into_owned()),
        401 => Err(WatchError::Token),
        status => Err(WatchError::Status(status)),
    }
}

impl FromStr for Watching {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Self, ArgumentError> {
        match text.parse() {
            Ok(pid) => Ok(Self::Process(pid)),
            Err(_) if text.contains("://") => Ok(Self::Metrics(text.to_owned())),
            Err(_) => Err(ArgumentError::Watch(text.to_owned())),
        }
    }
}

impl fmt::Display for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "process {pid}"),
            // The query may contain a token, so it is not shown.
            Self::Metrics(url) => f.write_str(url.split('?').next().unwrap_or(url)),
        }
    }
}
