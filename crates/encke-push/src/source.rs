//! The metrics of push and of its cluster, as sources.

use std::sync::Arc;

use encke_stats::{Family, Source};
use serde_json::Value;

use super::cluster::NoCluster;
use super::console;
use super::figures::{PushFigures, now_ns};
use super::plan::PushPlan;

impl Source for PushPlan {
    fn name(&self) -> &'static str {
        self.figures.name()
    }

    fn families(&self) -> Vec<Family> {
        let now_ns = now_ns();
        let mut families = self.figures.families();
        families.extend(self.admission.families(now_ns));
        families.extend(self.figures.levels(now_ns).families());
        families.extend(self.archive.iter().flat_map(|archive| archive.families()));
        families
    }

    fn status(&self) -> Option<Value> {
        self.figures.status()
    }
}

impl PushPlan {
    /// Returns the sources of push and of its cluster.
    pub(crate) fn sources(self: &Arc<Self>) -> Vec<Arc<dyn Source>> {
        let cluster: Arc<dyn Source> = match &self.cluster {
            Some(cluster) => Arc::<super::cluster::ClusterLink>::clone(cluster),
            None => Arc::new(NoCluster),
        };
        [Arc::<Self>::clone(self) as Arc<dyn Source>, cluster]
            .into_iter()
            .chain(console::lists(self))
            .collect()
    }
}

/// Returns the sources of a server without push, so that the status has the same keys.
pub fn sources_without_push() -> [Arc<dyn Source>; 2] {
    [Arc::new(PushFigures::default()), Arc::new(NoCluster)]
}
