//! What the workers do, as a value: made from settings, replaced whole at a reload.

use std::sync::Arc;

use crate::guard::GuardPoint;
use crate::handler::Mount;
use crate::policy::ConnLimits;

/// Policy, handlers and guards.
pub(crate) struct WorkerPlan {
    pub policy: ConnLimits,
    pub mounts: Vec<MountPoint>,
    pub(crate) guards: Vec<GuardPoint>,
}

/// A handler's place.
#[derive(Clone)]
pub(crate) struct MountPoint {
    /// Paths that begin with it, as sent, are the handler's.
    pub prefix: String,
    pub mount: Arc<dyn Mount>,
    /// It is reached through the admin listener only; the others are not.
    pub admin: bool,
}
