//! Driving the lab as a process, over real sockets, on every store that a run is about.

// This module speaks to people at a terminal: a panic with a sentence is how a test fails.
#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used)]

mod call;
mod every;
mod in_process;
mod journal;
mod loopback;
mod process;
mod proxy;
mod raw;
mod site;

pub use call::{Call, Reply, assert_replay};
pub use every::{durable, each, full_scale, scaled, transactional};
pub use in_process::InProcess;
pub use journal::{Journal, Line};
pub use loopback::unshared_address;
pub use process::Lab;
pub use proxy::{Fault, Moment, Proxy};
pub use raw::{Connection, RawReply, request};
pub use site::{Site, start_lab};

use std::{fmt::Debug, time::Duration};
use tokio::time::Instant;

/// How long a test waits for what must happen. Only a failing test waits so long.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Looks again and again until `look` sees something.
///
/// # Panics
///
/// With `what`, if that takes longer than [`PATIENCE`].
pub async fn eventually<T>(what: impl Debug, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited too long for {what:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
