//! The experiments, each with its rows, loads and claims.

use crate::experiment::Experiment;
use crate::rounds::RoundPace;

mod accept;
mod backlog;
mod byte_counter;
mod comet;
mod fanout;
mod mux;
mod parser;
mod requests;
mod ring;
mod timers;
mod trigger;
mod zerocopy;

/// All experiments, in the order in which `all` runs them.
pub const NAMES: [&str; 10] =
    ["accept", "backlog", "comet", "fanout", "mux", "parser", "ring", "timers", "trigger", "zerocopy"];

/// Prepares an experiment; `None` if the name is unknown.
pub fn open(name: &str, pace: &RoundPace) -> Option<Box<dyn Experiment>> {
    Some(match name {
        "accept" => Box::new(accept::Accept::new(pace)),
        "backlog" => Box::new(backlog::BacklogExperiment::new(pace)),
        "comet" => Box::new(comet::Comet::new(pace)),
        "fanout" => Box::new(fanout::Fanout::new(pace)),
        "mux" => Box::new(mux::Multiplexers::new(pace)),
        "parser" => Box::new(parser::ParserExperiment::new(pace)),
        "ring" => Box::new(ring::RingReads::new(pace)),
        "timers" => Box::new(timers::TimersExperiment::new(pace)),
        "trigger" => Box::new(trigger::Trigger::new(pace)),
        "zerocopy" => Box::new(zerocopy::Zerocopy::new(pace)),
        _ => return None,
    })
}
