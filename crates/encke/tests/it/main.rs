//! The program seen from outside: flags, signals, sockets, its load generator and its laboratory, alone and as nodes of a
//! cluster.
//!
//! One binary, so that whoever waits for a clock or a peer does so while others work.

mod nodes;
mod running;

mod cluster;
mod cluster_failures;
mod cluster_nodes;
mod cluster_storms;
mod cluster_streams;
mod durable;
mod https;
mod lab;
mod load;
mod load_push;
mod program;
mod push;
mod secure;
mod serve;
mod strangers;
mod terminal;
mod token;
