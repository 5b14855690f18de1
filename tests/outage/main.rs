//! The contract while the store is out of reach, and with several processes on one store.
//!
//! Labels in comments are those of the catalogue of known faults that each test stands for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod away;
mod histories;
mod instances;
mod leases;
mod line;
mod lost;
mod plan;
mod startup;
mod waiting;

use idem_tests::harness::{Call, Lab, Reply, eventually};
use std::{cell::Cell, time::Duration};
use tokio::time::Instant;

/// The lab's binary.
const LAB: &str = env!("CARGO_BIN_EXE_lab");

/// The flag and the value of the time budget of one store call in most of these tests.
const BUDGET_FLAG: [&str; 2] = ["--store-timeout", "1s"];
const BUDGET: Duration = Duration::from_secs(1);

/// What a busy machine adds to any limit.
const SLACK: Duration = Duration::from_millis(2500);

/// The line of a lab's log in which these words are for the `nth` time, from 1. It may take a moment
/// to get here.
async fn logged(lab: &Lab, words: &str, nth: usize) -> String {
    eventually((words, nth), async || {
        let log = lab.log();
        let mut lines = log.lines().filter(|line| line.contains(words));
        lines.nth(nth - 1).map(str::to_owned)
    })
    .await
}

/// The answer to a retry as soon as the store can be reached and the key is no longer in progress,
/// which must not last longer than this.
async fn recovered(call: &Call, in_progress_at_most: Duration) -> Reply {
    let since = Cell::new(None);
    eventually("an answer of the store's", async || {
        let reply = call.send().await;
        match reply.problem().as_deref() {
            Some("store-unavailable") => {
                since.set(None);
                None
            }
            Some("in-progress") => {
                let begun = since.get().unwrap_or_else(Instant::now);
                since.set(Some(begun));
                let lasted = begun.elapsed();
                assert!(
                    lasted < in_progress_at_most + SLACK,
                    "in progress for {lasted:?}: {reply:?}"
                );
                None
            }
            _ => Some(reply),
        }
    })
    .await
}

/// Ends the labs and lets the relay notice. A server that is to drop a database waits for as long as a
/// minute for somebody who is just logging in, and the relay in between has no turn meanwhile.
async fn hang_up(labs: impl IntoIterator<Item = &mut Lab>) {
    for lab in labs {
        lab.kill();
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
}
