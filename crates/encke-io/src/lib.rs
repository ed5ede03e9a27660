//! encke-io
