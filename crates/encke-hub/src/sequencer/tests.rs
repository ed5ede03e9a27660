//! Cases of the sequencer.
