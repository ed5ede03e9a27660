//! The gateway: applications behind this server.
//!
//! ```text
//!  Gateway (Mount, shared) ── opened by each worker ──► Proxy (Handler)
//!    Upstream   settings, targets with load and health      UpstreamConn      connections of this worker, busy or kept
//!    figures    the counters of all workers                 ProxiedRequest    requests without a complete response
//! ```
//! Heads are written from the parsed view of a request, and responses are read as strictly as requests: what two servers could
//! read in two ways passes in neither direction.
//!
//! Known gaps: TLS to an application, HTTP/2 to an application, WebSockets, and files named by an application
//! (`X-Accel-Redirect`, `X-Sendfile`).

mod fault;
mod figures;
mod proxy;
mod request_head;
mod response_reader;
mod settings;
mod target;
mod target_url;
mod upstream;

use std::fmt;
use std::sync::{Arc, Mutex};

use encke_io::lock;
use encke_server::{Handler, HandlerContext, Mount, WorkerSetup};
use encke_stats::Source;

pub use settings::UpstreamSettings;
pub use target_url::TargetUrl;

use figures::{GatewayFigures, ProxyCounters};
use proxy::Proxy;
use target::TargetSet;
use upstream::Upstream;

/// Forwards all requests of a mount point to an upstream.
pub struct Gateway {
    upstream: Arc<Upstream>,
    /// The counters of the workers that have opened the mount.
    workers: Arc<Mutex<Vec<Arc<ProxyCounters>>>>,
}

impl Gateway {
    /// Creates the gateway to an upstream. Blocks while the system resolves the names of its targets. A name that cannot be
    /// resolved now is tried again with the requests.
    ///
    /// # Errors
    /// The upstream has no target, or too many.
    pub fn new(settings: UpstreamSettings) -> Result<Self, GatewayError> {
        if settings.to.is_empty() || settings.to.len() > settings::TARGETS_MAX {
            return Err(GatewayError::TargetCount(settings.to.len()));
        }
        let targets = settings.to.iter().map(|url| (url.clone(), url.addresses().unwrap_or_default())).collect();
        let upstream = Arc::new(Upstream { targets: TargetSet::new(targets), settings });
        Ok(Self { upstream, workers: Arc::default() })
    }

    /// The targets whose names have no address at present.
    pub fn unresolved(&self) -> impl Iterator<Item = &TargetUrl> {
        let targets = &self.upstream.targets;
        (0..targets.len()).filter_map(|index| targets.get(index)).filter(|target| target.address(0).is_none()).map(target::Target::url)
    }
}

impl Mount for Gateway {
    fn open(&self, context: HandlerContext, _: &mut WorkerSetup<'_>) -> Box<dyn Handler> {
        let counters = Arc::<ProxyCounters>::default();
        lock(&self.workers).push(Arc::clone(&counters));
        Box::new(Proxy::new(Arc::clone(&self.upstream), counters, context))
    }

    fn sources(&self) -> Vec<Arc<dyn Source>> {
        vec![Arc::new(GatewayFigures { workers: Arc::clone(&self.workers) })]
    }
}

/// Why a gateway cannot be created. The origin is the settings.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GatewayError {
    /// The number of targets of an upstream, which is 0 or too large.
    TargetCount(usize),
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TargetCount(0) => f.write_str("an upstream needs a target: to = [\"http://127.0.0.1:3000\"]"),
            Self::TargetCount(count) => {
                write!(f, "an upstream has at most {} targets, and this one has {count}", settings::TARGETS_MAX)
            }
        }
    }
}

impl std::error::Error for GatewayError {}
