//! An upstream: a set of targets, and the rules for connections to them.

use encke_server::UpstreamId;

use crate::settings::UpstreamSettings;
use crate::target::TargetSet;

/// An upstream, shared by all workers.
pub(crate) struct NamedUpstream {
    pub(crate) settings: UpstreamSettings,
    pub(crate) targets: TargetSet,
}

/// The kept connections of a worker to an upstream.
pub(crate) struct KeptConns {
    /// By target, the one used last at the end.
    by_target: Vec<Vec<UpstreamId>>,
}

impl KeptConns {
    pub(crate) fn new(targets: usize) -> Self {
        Self { by_target: (0..targets).map(|_| Vec::new()).collect() }
    }

    /// The connection to a target that was used last.
    pub(crate) fn last(&self, target: usize) -> Option<UpstreamId> {
        self.by_target.get(target)?.last().copied()
    }

    pub(crate) fn pop(&mut self, target: usize) {
        if let Some(kept) = self.by_target.get_mut(target) {
            kept.pop();
        }
    }

    /// Keeps a connection, unless there are `most` already.
    pub(crate) fn push(&mut self, target: usize, id: UpstreamId, most: u32) -> bool {
        match self.by_target.get_mut(target) {
            Some(kept) if kept.len() < most as usize => {
                kept.push(id);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn remove(&mut self, target: usize, id: UpstreamId) {
        if let Some(kept) = self.by_target.get_mut(target) {
            kept.retain(|other| *other != id);
        }
    }
}
