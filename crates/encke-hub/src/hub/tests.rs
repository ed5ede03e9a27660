//! Cases of the hub.
