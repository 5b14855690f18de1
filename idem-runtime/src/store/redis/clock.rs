//! Bounds for the servers' clocks, from what they last told and the time that has passed since.
//!
//! Whose turn it is, the server's clock decides, in a script. The bounds only spare the script where
//! its answer is certain: a lease that ends later than the server's clock can possibly be is still
//! running. If somebody sets a server's clock, they are wrong until its next answer, and then a
//! duplicate may be told for a little longer that its request is in progress; nothing runs by them.

use super::link::Ranges;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How far two clocks drift apart at most: one part in so many. Ten times what a clock is allowed
/// that nobody disciplines.
const DRIFT: i64 = 1000;

/// What the clocks of the nodes have last told.
pub(super) struct Clocks {
    ranges: Ranges,
    /// One for each node.
    readings: Mutex<Vec<Option<Reading>>>,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    now: i64,
    sent: Instant,
    received: Instant,
}

/// The earliest and the latest that a clock can stand at, in milliseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) earliest: i64,
    pub(super) latest: i64,
}

impl Reading {
    fn bounds(self, at: Instant) -> Bounds {
        // The clock tells whole milliseconds and so do we: each of the two may hide one.
        let least = whole(at.saturating_duration_since(self.received));
        let most = whole(at.saturating_duration_since(self.sent)).saturating_add(2);
        Bounds {
            earliest: self.now.saturating_add(least - least / DRIFT),
            latest: self.now.saturating_add(most).saturating_add(most / DRIFT),
        }
    }
}

/// Milliseconds that have passed, not rounded up.
fn whole(passed: Duration) -> i64 {
    i64::try_from(passed.as_millis()).unwrap_or(i64::MAX)
}

impl Clocks {
    pub(super) fn new(ranges: Ranges) -> Self {
        Self {
            readings: Mutex::new(vec![None; ranges.nodes()]),
            ranges,
        }
    }

    fn readings(&self) -> MutexGuard<'_, Vec<Option<Reading>>> {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node of this key has told the time, in the answer to what was sent then.
    pub(super) fn note(&self, key: &str, sent: Instant, now: i64) {
        self.note_node(self.ranges.node_of(key), sent, now);
    }

    pub(super) fn note_node(&self, node: usize, sent: Instant, now: i64) {
        let received = Instant::now();
        if let Some(reading) = self.readings().get_mut(node) {
            *reading = Some(Reading {
                now,
                sent,
                received,
            });
        }
    }

    /// The bounds for the clock of this key's node, if it ever told the time.
    pub(super) fn of(&self, key: &str) -> Option<Bounds> {
        let reading = self.readings().get(self.ranges.node_of(key)).copied()??;
        Some(reading.bounds(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_hold_for_any_moment_of_the_exchange_and_any_drift() {
        let sent = Instant::now();
        let received = sent + Duration::from_millis(40);
        let reading = Reading {
            now: 1_000_000,
            sent,
            received,
        };
        // Read when the answer left, or when the question came; a clock that is slow or fast.
        let at = received + Duration::from_secs(100);
        assert_eq!(
            reading.bounds(at),
            Bounds {
                earliest: 1_000_000 + 100_000 - 100,
                latest: 1_000_000 + 100_042 + 100,
            }
        );
    }
}
