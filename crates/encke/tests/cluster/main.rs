//! Nodes of a cluster on real NATS servers: streams, failures, storms.

#[path = "../nodes/mod.rs"]
mod nodes;
#[path = "../running/mod.rs"]
mod running;

mod delivery;
mod failures;
mod membership;
mod storms;
mod streams;
