//! What the workers do, as a value: made from settings, replaced whole at a reload.

use std::sync::Arc;

use crate::handler::Mount;
use crate::policy::Policy;

/// Policy and handlers.
pub struct Plan {
    pub policy: Policy,
    pub mounts: Vec<MountPoint>,
}

/// A handler's place.
#[derive(Clone)]
pub struct MountPoint {
    /// Paths that begin with it, as sent, are the handler's.
    pub prefix: String,
    pub mount: Arc<dyn Mount>,
    /// It is reached through the admin listener only; the others are not.
    pub admin: bool,
}
