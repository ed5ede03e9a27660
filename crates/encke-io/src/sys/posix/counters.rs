//! Processor counters: not used on this system.

use std::io;

use crate::counters::{CountedEvent, CounterError};

/// Counters of one thread: no value exists.
#[derive(Debug)]
pub enum Counters {}

impl Counters {
    /// Not supported: Encke does not use the counters of other systems.
    ///
    /// # Errors
    /// Always.
    pub fn of_this_thread(_: &[CountedEvent]) -> Result<Self, CounterError> {
        Err(CounterError::System(io::ErrorKind::Unsupported.into()))
    }

    /// Returns the counts.
    ///
    /// # Errors
    /// None: no value of this type exists.
    pub fn read(&mut self) -> Result<Vec<u64>, CounterError> {
        match *self {}
    }
}
