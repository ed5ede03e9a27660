//! Random failures of real clusters: three nodes and three NATS servers, some of which die and return while clients move from
//! node to node. The worlds of `encke-hub` try thousands of event orders in a simulated cluster; here sockets, processes and
//! JetStream are real.
//!
//! Every subscriber must receive every message once and in order. `ENCKE_SEED=n` runs one seed, `ENCKE_SEEDS=n` runs `n`
//! seeds. Seed and failures are printed. The times at which clients move depend on the seed and on the machine.

use crate::nodes::listener::Kind;
use crate::nodes::nats::Trio;
use crate::nodes::random::Random;
use crate::nodes::{Crowd, Node, Source, sites};
use encke_io::testing::Seeds;

/// The seeds of a complete run.
const SEEDS: u64 = 2;
/// Failures per seed.
const BLOWS: usize = 7;
/// Messages published before each failure, and again while a server is down.
const MESSAGES: usize = 60;

/// A failure during the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    /// A node is killed and returns later.
    NodeKilled,
    /// A node stops and restarts as in an upgrade.
    NodeUpgraded,
    /// A NATS server is killed and returns later.
    NatsKilled,
    /// Two NATS servers are killed: nothing can be stored until they return.
    MostNatsKilled,
    /// A node and a NATS server are killed; the node returns first.
    BothKilled,
}

impl Blow {
    const ALL: [Self; 5] =
        [Self::NodeKilled, Self::NodeUpgraded, Self::NatsKilled, Self::MostNatsKilled, Self::BothKilled];
}

#[test]
fn whoever_hops_misses_nothing_while_nodes_and_nats_servers_are_killed() {
    let seeds = Seeds::of(SEEDS);
    let (mut seen, mut hops) = (Vec::new(), 0);
    for seed in seeds.range() {
        let (blows, moves) = storm(seed);
        println!("seed {seed}: {blows:?}, and {moves} hops");
        seen.extend(blows);
        hops += moves;
    }
    let all = Blow::ALL.into_iter().find(|blow| !seen.contains(blow));
    assert!(seeds.is_single() || all.is_none(), "no seed has {all:?}: the test does not test it");
    assert!(hops > 100, "{hops} hops: clients did not hop");
}

/// Runs one cluster. Returns its failures, and how often clients moved.
fn storm(seed: u64) -> (Vec<Blow>, usize) {
    let mut random = Random::new(seed);
    println!("seed {seed} begins");
    let mut trio = Trio::start(&format!("storm-{seed}"));
    let cluster = format!("nats = {}\nreplicas = 3", trio.urls());
    let mut nodes: Vec<Node> =
        (0..3).map(|number| Node::start(&format!("storm-{seed}-{number}"), &cluster)).collect();
    let sites = sites(&nodes);
    let crowd = Crowd::hop(&sites, "storm", &Kind::ALL, &mut random);
    let source = Source::start(&sites, "storm");
    let (mut blows, mut orders) = (Vec::new(), Vec::new());
    let mut publish = || {
        source.begin(MESSAGES);
        orders.push(MESSAGES);
    };
    for _ in 0..BLOWS {
        let blow = Blow::ALL[random.below(Blow::ALL.len() as u64) as usize];
        let (node, nats) = (random.below(3) as usize, random.below(3) as usize);
        println!("seed {seed}: {blow:?}, of nodes {node}, of NATS servers {nats}");
        publish();
        match blow {
            Blow::NodeKilled => {
                nodes[node].kill();
                publish();
                nodes[node].again();
            }
            Blow::NodeUpgraded => nodes[node].upgrade(),
            Blow::NatsKilled => {
                trio.0[nats].stop();
                publish();
                trio.0[nats].run();
            }
            Blow::MostNatsKilled => {
                let other = (nats + 1) % 3;
                trio.0[nats].stop();
                trio.0[other].stop();
                trio.0[other].run();
                trio.0[nats].run();
            }
            Blow::BothKilled => {
                nodes[node].kill();
                trio.0[nats].stop();
                publish();
                nodes[node].again();
                trio.0[nats].run();
            }
        }
        blows.push(blow);
    }
    source.end();
    let accounts = crowd.settle(&orders);
    (blows, accounts.iter().map(|account| account.moves).sum())
}
