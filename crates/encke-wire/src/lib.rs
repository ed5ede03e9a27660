//! encke-wire
