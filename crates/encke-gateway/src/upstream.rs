//! An upstream: a set of targets, and the rules for connections to them.

use crate::settings::UpstreamSettings;
use crate::target::TargetSet;

/// An upstream, shared by all workers.
pub(crate) struct Upstream {
    pub(crate) settings: UpstreamSettings,
    pub(crate) targets: TargetSet,
}
