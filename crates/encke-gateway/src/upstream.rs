//! An upstream: a set of targets, and the rules for connections to them.

use std::collections::VecDeque;
use std::sync::Arc;

use encke_server::UpstreamId;

use crate::queue::WaitQueue;
use crate::settings::UpstreamSettings;
use crate::target::{TargetSet, UpstreamTarget};

/// An upstream, shared by all workers.
pub(crate) struct NamedUpstream {
    pub(crate) settings: UpstreamSettings,
    pub(crate) targets: TargetSet,
    pub(crate) queue: WaitQueue,
}

impl NamedUpstream {
    pub(crate) fn new(settings: UpstreamSettings, targets: TargetSet) -> Arc<Self> {
        Arc::new(Self { settings, targets, queue: WaitQueue::default() })
    }

    /// Whether an upstream has the same settings and targets. An application may have another number of processes now.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let urls = |upstream: &Self| -> Vec<_> {
            upstream.targets.targets.iter().map(|target| target.url().clone()).collect()
        };
        self.settings == other.settings && urls(self) == urls(other)
    }

    /// Shares the states of the targets of `old`, an upstream that is the same.
    pub(crate) fn share_states(&mut self, old: &Self) {
        for (target, old) in self.targets.targets.iter_mut().zip(&old.targets.targets) {
            target.state = Arc::clone(&old.state);
        }
    }

    /// Drains the targets that an operator has drained in `old`, an upstream of the same name with other settings.
    pub(crate) fn continue_drains(&self, old: &Self) {
        for target in &self.targets.targets {
            let same = |other: &&UpstreamTarget| other.url() == target.url() && other.state.is_drained();
            if old.targets.targets.iter().any(|other| same(&other)) {
                target.state.drain();
            }
        }
    }

    /// Whether the connections to each target are limited.
    pub(crate) const fn is_limited(&self) -> bool {
        self.settings.connections > 0
    }

    /// Whether a target has a free permit.
    pub(crate) fn has_room(&self, target: usize) -> bool {
        let target = self.targets.get(target);
        target.is_some_and(|target| !self.is_limited() || target.open() < self.settings.connections)
    }
}

/// The kept connections of a worker to an upstream.
pub(crate) struct KeptConns {
    upstream: Arc<NamedUpstream>,
    /// By target, the one used last at the end.
    by_target: Vec<VecDeque<UpstreamId>>,
    /// The releases that this worker has carried out.
    releases: u32,
}

impl KeptConns {
    pub(crate) fn new(upstream: &Arc<NamedUpstream>) -> Self {
        let by_target = (0..upstream.targets.len()).map(|_| VecDeque::new()).collect();
        Self { upstream: Arc::clone(upstream), by_target, releases: upstream.queue.releases() }
    }

    /// The connection to a target that was used last.
    pub(crate) fn last(&self, target: usize) -> Option<UpstreamId> {
        self.by_target.get(target)?.back().copied()
    }

    /// The connection to a target that was used last, of those for which `is_usable` holds.
    pub(crate) fn last_of(
        &self,
        target: usize,
        is_usable: impl Fn(&UpstreamId) -> bool,
    ) -> Option<UpstreamId> {
        self.by_target.get(target)?.iter().rev().copied().find(is_usable)
    }

    /// Whether a connection to a target is kept.
    pub(crate) fn has(&self, target: usize) -> bool {
        self.by_target.get(target).is_some_and(|kept| !kept.is_empty())
    }

    /// The kept connections if they are to be closed, with the indices of their targets. Each release is reported once.
    pub(crate) fn take_released(&mut self) -> Vec<(usize, UpstreamId)> {
        let releases = self.upstream.queue.releases();
        if std::mem::replace(&mut self.releases, releases) == releases {
            return Vec::new();
        }
        let all = self.by_target.iter().enumerate();
        all.flat_map(|(target, kept)| kept.iter().map(move |id| (target, *id))).collect()
    }

    /// Removes the connection that was not used for the longest time.
    pub(crate) fn pop_first(&mut self, target: usize) -> Option<UpstreamId> {
        let popped = self.by_target.get_mut(target)?.pop_front();
        self.count(popped.is_some(), -1);
        popped
    }

    /// Keeps a connection, unless there are `keep` already.
    pub(crate) fn push(&mut self, target: usize, id: UpstreamId) -> bool {
        let most = self.upstream.settings.kept() as usize;
        let Some(kept) = self.by_target.get_mut(target).filter(|kept| kept.len() < most) else {
            return false;
        };
        kept.push_back(id);
        self.count(true, 1);
        true
    }

    pub(crate) fn remove(&mut self, target: usize, id: UpstreamId) {
        let Some(kept) = self.by_target.get_mut(target) else { return };
        if let Some(place) = kept.iter().rposition(|other| *other == id) {
            kept.remove(place);
            self.count(true, -1);
        }
    }

    /// Counts a change for the queue. Without a limit no request waits, and no count is needed.
    fn count(&self, changed: bool, change: i32) {
        if changed && self.upstream.is_limited() {
            self.upstream.queue.count_idle(change);
        }
    }
}

impl Drop for KeptConns {
    fn drop(&mut self) {
        let kept: usize = self.by_target.iter().map(VecDeque::len).sum();
        self.count(kept > 0, -(kept as i32));
    }
}
