//! The order service from outside: a process of its own, real sockets, a real database file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod crash;
// `tests/run` builds with all features.
#[cfg(all(feature = "postgres", feature = "mysql", feature = "redis"))]
mod elsewhere;
mod load;
mod payments;
mod program;
mod retries;
mod service;
