//! encke-stats
