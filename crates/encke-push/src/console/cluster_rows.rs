//! The lists of a cluster's streams and nodes, as this node sees them. Without a cluster they are empty.

use std::sync::Arc;

use encke_io::clock::Clock;
use encke_stats::{ListTicket, Query, Source};

use crate::cluster::ClusterLink;

/// The columns of streams, in the order of display.
const STREAM_COLUMNS: &[&str] = &[
    "stream",
    "state",
    "epoch",
    "sequence",
    "lag",
    "messages",
    "stored",
    "repeated",
    "refused",
    "queue",
    "queue_bytes",
    "dropped",
    "reconnects",
];
/// The columns of nodes, in the order of display.
const NODE_COLUMNS: &[&str] = &[
    "node",
    "state",
    "version",
    "uptime_s",
    "sequence",
    "lag",
    "channels",
    "subscriptions",
    "silent_s",
    "id",
];

struct StreamList(Option<Arc<ClusterLink>>);

struct NodeList(Option<Arc<ClusterLink>>);

/// Returns the sources of the lists.
pub(super) fn lists(cluster: Option<&Arc<ClusterLink>>) -> [Arc<dyn Source>; 2] {
    [Arc::new(StreamList(cluster.cloned())), Arc::new(NodeList(cluster.cloned()))]
}

impl Source for StreamList {
    fn name(&self) -> &'static str {
        "streams"
    }

    fn columns(&self) -> &'static [&'static str] {
        STREAM_COLUMNS
    }

    fn list(&self, _: &Query, ticket: ListTicket) {
        ticket.add(self.0.iter().flat_map(|cluster| cluster.stream_rows()));
    }
}

impl Source for NodeList {
    fn name(&self) -> &'static str {
        "nodes"
    }

    fn columns(&self) -> &'static [&'static str] {
        NODE_COLUMNS
    }

    fn list(&self, _: &Query, ticket: ListTicket) {
        let now_s = Clock::new().now().unix_s();
        ticket.add(self.0.iter().flat_map(|cluster| cluster.node_rows(now_s)));
    }
}
