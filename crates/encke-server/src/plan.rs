//! The configuration of the workers: derived from settings, and replaced as a whole by a reload.

use std::sync::Arc;

use crate::guard::GuardPoint;
use crate::handler::Mount;
use crate::policy::ConnLimits;

/// Policy, handlers and guards of all workers.
pub(crate) struct WorkerPlan {
    pub policy: ConnLimits,
    pub mounts: Vec<MountPoint>,
    pub(crate) guards: Vec<GuardPoint>,
}

/// A handler and where it is mounted.
#[derive(Clone)]
pub(crate) struct MountPoint {
    /// The handler serves the paths that begin with this prefix, compared as sent.
    pub prefix: String,
    pub mount: Arc<dyn Mount>,
    /// Only the admin listener serves this mount; other listeners do not.
    pub admin: bool,
}
