//! Tests of the program from outside: flags, signals, sockets, load generator and lab; alone and as nodes of a cluster.
//!
//! One binary, so that a test that waits for a timer or a peer overlaps with others.

mod nodes;
mod running;

mod cluster;
mod cluster_failures;
mod cluster_nodes;
mod cluster_storms;
mod cluster_streams;
mod console_settings;
mod console_streams;
mod documents;
mod durable;
mod https;
mod lab;
mod load;
mod load_push;
mod program;
mod push;
mod restart;
mod secure;
mod serve;
mod strangers;
mod terminal;
mod token;
