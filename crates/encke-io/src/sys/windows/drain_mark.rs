//! Marks of draining servers: not available on this system.

use std::time::Duration;

use crate::drain_mark::HeldResource;

/// Not available on this system: marks nothing.
pub struct DrainMark;

impl DrainMark {
    /// Marks nothing.
    pub fn set(_held: &[HeldResource]) -> Self {
        Self
    }
}

/// Not available on this system: no value exists.
#[derive(Debug)]
pub enum DrainingProcess {}

impl DrainingProcess {
    /// Finds nothing.
    pub fn find(_held: &HeldResource) -> Option<Self> {
        None
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        match *self {}
    }

    /// Waits until the process has ended.
    pub fn wait(&self, _time: Duration) -> bool {
        match *self {}
    }
}
