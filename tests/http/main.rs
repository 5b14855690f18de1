//! The contract over real sockets, against the lab, on every selected store.
//!
//! Tests are named after the behaviour. The labels in comments are those of the catalogue of known
//! faults that each of them stands for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod body_limits;
mod cancelled;
mod compression;
mod contention;
mod differential;
mod errors;
mod expiry;
mod fingerprint;
mod golden;
mod http2;
mod in_process;
mod keys;
mod lab;
mod load;
mod options;
mod order;
mod outcomes;
mod problems;
mod progress;
mod race;
mod replay;
mod scopes;
mod store_calls;
mod transactional;
mod waiting;

/// The lab's binary.
const LAB: &str = env!("CARGO_BIN_EXE_lab");
