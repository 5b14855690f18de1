//! The end of processes and connections at bad moments, against the lab as real processes.
//!
//! Labels in comments are those of the catalogue of known faults that each test stands for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod freeze;
mod kill;
mod matrix;
mod points;
mod reconcile;
mod reset;
mod restart;
mod shutdown;
mod steps;

use idem_tests::harness::{Call, Reply, eventually};

/// The lab's binary.
const LAB: &str = env!("CARGO_BIN_EXE_lab");

/// The answer to a retry as soon as it is no longer "in progress".
async fn settled(call: &Call) -> Reply {
    eventually("a settled key", async || {
        let reply = call.send().await;
        (reply.problem().as_deref() != Some("in-progress")).then_some(reply)
    })
    .await
}
