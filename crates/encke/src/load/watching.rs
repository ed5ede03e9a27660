//! `--watch`: looks at the server while it is asked.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use encke_load::watch::{Look, Watch};
use encke_wire::method::Method;

use crate::Failure;
use crate::client::{self, Belief, Connection, Location, Request};

/// A page of metrics takes milliseconds; one that takes longer would hold up the next look.
const PATIENCE: Duration = Duration::from_secs(1);

/// Who is looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Watching {
    /// A process of this machine.
    Process(u32),
    /// A page of metrics, as it was written.
    Metrics(String),
}

impl Watching {
    /// Begins with a look.
    ///
    /// # Errors
    /// There is nothing to be seen.
    pub(super) fn begin(&self) -> Result<Watch, Failure> {
        Ok(Watch::new(self.to_string(), self.look().map_err(Failure::CouldNotRun)?))
    }

    /// Looks again. A look that fails is missed, and the next one has it all.
    pub(super) fn again(&self, watch: &mut Watch) {
        if let Ok(look) = self.look() {
            watch.look(look);
        }
    }

    fn look(&self) -> Result<Look, String> {
        match self {
            Self::Process(pid) => Look::at_process(*pid, client::now())
                .ok_or_else(|| format!("--watch {pid}: there is no such process here")),
            Self::Metrics(url) => page(url)
                .and_then(|page| {
                    Look::at_metrics(&page, client::now())
                        .ok_or_else(|| "there is no process_cpu_seconds_total in it".to_owned())
                })
                .map_err(|error| format!("--watch {self}: {error}")),
        }
    }
}

/// A page of metrics; a token stands behind its URL.
fn page(url: &str) -> Result<String, String> {
    let Location { server, path, query } = Location::parse(url)?;
    let token = query.as_deref().and_then(|query| query.strip_prefix("token="));
    let authorization = token.map(|token| format!("Bearer {token}"));
    let field = authorization.as_deref().map(|value| ("Authorization", value));
    let request = Request { method: Method::Get, target: &path, fields: field.as_slice(), body: b"" };
    let mut connection =
        Connection::to(&server, &Belief::new(None, false)).map_err(|trouble| trouble.to_string())?;
    let answer = connection.ask(&request, PATIENCE).map_err(|trouble| trouble.to_string())?;
    match answer.head.status() {
        200 => Ok(String::from_utf8_lossy(&answer.body).into_owned()),
        401 => Err("it wants a token: put ?token=… behind it".to_owned()),
        status => Err(format!("it answered {status}")),
    }
}

impl FromStr for Watching {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(pid) => Ok(Self::Process(pid)),
            Err(_) if text.contains("://") => Ok(Self::Metrics(text.to_owned())),
            Err(_) => Err(format!("`{text}`: expected the number of a process, or http://HOST:8081/metrics")),
        }
    }
}

impl fmt::Display for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "process {pid}"),
            // What stands behind may be a token.
            Self::Metrics(url) => f.write_str(url.split('?').next().unwrap_or(url)),
        }
    }
}
