//! Linux.

pub(crate) mod epoll;
pub(crate) mod uring;
