//! The order service from outside: a process of its own, real sockets, a real database file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod crash;
mod load;
mod program;
mod retries;
mod service;
