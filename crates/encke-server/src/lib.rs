//! encke-server
