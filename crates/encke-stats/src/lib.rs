//! Metrics of a running Encke and their output: counters, gauges, histograms; Prometheus text, JSON and plots.
//!
//! ```text
//!  worker 0 ─ Counter Gauge Histogram ─┐  read at any time,         ┌─► prometheus::render ─► /metrics
//!  worker 1 ─ Counter Gauge Histogram ─┼─ summed by the reader ─► [Family]
//!  worker n ─ Counter Gauge Histogram ─┘                            └─► json::render ──────► /api/v1/live
//! ```
//!
//! [`page`] and [`plot`] render results for people, as an HTML page with plots. They are in this crate because every crate with
//! results to show depends on it, and because they need no operating system.
//!
//! A feature offers its metrics as a [`Source`]; the crates that show them know no feature.
//!
//! In scope: the cells, their sums, sources, the two output formats, the page. Out of scope: which metrics exist (the crate
//! that counts decides), clocks (durations arrive in nanoseconds), and access to the operating system.
//!
//! **One writer.** Each cell belongs to the one thread that writes it, so an addition is a plain load, add and store. A request
//! needs no locked instruction, and moves no cache line between processor cores. Other threads may read at any time. They see a
//! recent value of each cell, and no two cells as of the same moment. [`LastSecond`] is the exception: threads may share it.

mod cell;
mod family;
mod histogram;
pub mod json;
pub mod page;
pub mod plot;
pub mod prometheus;
mod second;
mod source;
mod sync;
mod ticket;
#[cfg(test)]
mod ticket_tests;

pub use cell::{Counter, Gauge};
pub use family::{Family, Kind, Sample, Value};
pub use histogram::{Distribution, DistributionInterval, Histogram};
pub use second::LastSecond;
pub use source::{Cell, ListTicket, Query, Row, Rows, Sort, Source};
pub use ticket::{Gathered, Ticket};
