//! `--watch`: samples the server's resource usage during a run.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use encke_load::probe::{ProbeSample, ServerProbe};
use encke_wire::method::Method;

use crate::CommandError;
use crate::client::{self, ClientRequest, Connection, Location, TrustSettings};

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

impl Watching {
    /// Starts with a first sample.
    ///
    ///  # Errors
    /// The process or the metrics cannot be read.
    pub(super) fn begin(&self) -> Result<ServerProbe, CommandError> {
        Ok(ServerProbe::new(self.to_string(), self.look().map_err(CommandError::CouldNotRun)?))
    }

    /// Takes another sample. A failed sample is skipped, and the next one covers its time.
    pub(super) fn again(&self, probe: &mut ServerProbe) {
        if let Ok(sample) = self.look() {
            probe.look(sample);
        }
    }

    /// Takes one sample.
    fn look(&self) -> Result<ProbeSample, String> {
        match self {
            Self::Process(pid) => ProbeSample::at_process(*pid, client::now())
                .ok_or_else(|| format!("--watch {pid}: no such process")),
            Self::Metrics(url) => page(url)
                .and_then(|page| {
                    ProbeSample::at_metrics(&page, client::now())
                        .ok_or_else(|| "process_cpu_seconds_total is missing".to_owned())
                })
                .map_err(|error| format!("--watch {self}: {error}")),
        }
    }
}

/// Requests a page of metrics. The query of its URL may contain a token.
fn page(url: &str) -> Result<String, String> {
    let Location { server, path, query } = Location::parse(url)?;
    let token = query.as_deref().and_then(|query| query.strip_prefix("token="));
    let authorization = token.map(|token| format!("Bearer {token}"));
    let field = authorization.as_deref().map(|value| ("Authorization", value));
    let request = ClientRequest { method: Method::Get, target: &path, fields: field.as_slice(), body: b"" };
    let mut connection =
        Connection::to(&server, &TrustSettings::new(None, false)).map_err(|trouble| trouble.to_string())?;
    let answer = connection.ask(&request, PATIENCE).map_err(|trouble| trouble.to_string())?;
    match answer.head.status() {
        200 => Ok(String::from_utf8_lossy(&answer.body).into_owned()),
        401 => Err("a token is required: append ?token=… to the URL".to_owned()),
        status => Err(format!("unexpected status {status}")),
    }
}

impl FromStr for Watching {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(pid) => Ok(Self::Process(pid)),
            Err(_) if text.contains("://") => Ok(Self::Metrics(text.to_owned())),
            Err(_) => {
                Err(format!("invalid target `{text}`: expected a process id, or http://HOST:8081/metrics"))
            }
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
