//! What a running Encke counts, and how it is told: counters, gauges, histograms; Prometheus text, JSON and plots.
//!
//! ```text
//!  worker 0 ─ Counter Gauge Histogram ─┐  read at any time,         ┌─► prometheus::render ─► /metrics
//!  worker 1 ─ Counter Gauge Histogram ─┼─ summed by the reader ─► [Family]
//!  worker n ─ Counter Gauge Histogram ─┘                            └─► json::render ──────► /api/v1/live
//! ```
//!
//! [`page`] and [`plot`] show numbers to people: a page of HTML with plots within, for whichever crate has something to
//! show. They stand here because all of those stand on this crate, and need nothing of a system.
//!
//! A feature offers its figures as a [`Source`]; whatever shows them knows no feature.
//!
//! In scope: the cells, their sums, sources, the two texts, the page. Out of scope: which metrics exist (the crate that counts
//! says so), time (a duration comes in as nanoseconds), and anything that an operating system would know.
//!
//! **One writer.** Each cell belongs to the one thread that writes it, so an addition is a plain load, add and
//! store: no locked instruction, no cache line that travels between cores on every request. Other threads may
//! read at any time; they see each cell's value of a moment ago, and no two cells as of the same moment.
//! [`LastSecond`] is the exception: threads may share it.

mod cell;
mod family;
mod histogram;
pub mod json;
pub mod page;
pub mod plot;
pub mod prometheus;
mod second;
mod source;
mod ticket;

pub use cell::{Counter, Gauge};
pub use family::{Family, Kind, Sample, Value};
pub use histogram::{Distribution, Histogram};
pub use second::LastSecond;
pub use source::{Cell, ListTicket, Query, Row, Rows, Sort, Source};
pub use ticket::{Gathered, Ticket};
