//! Removing expired records in bounded batches.
//!
//! Expired records are ignored on read and replaced by the next claim: sweeping only saves room.

use crate::{
    engine::{Engine, error_chain},
    repair::within,
    store::Store,
};
use std::{
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{runtime::Handle, time::Instant};

/// How long the removal of one batch should take: requests beside it may have to wait as long.
const BITE: Duration = Duration::from_millis(2);
/// The size of a sweep's first batch.
const FIRST_BATCH: u32 = 50;
const BATCHES: RangeInclusive<u32> = 20..=1000;
/// No batch is larger, however many records have been added.
const LARGEST_BATCH: u32 = 10_000;
/// The pause after a batch, in times of what it took: the busier the store is with other things, the
/// longer it is left alone.
const PAUSE: u32 = 4;
/// At least so long.
const LEAST_PAUSE: Duration = Duration::from_millis(5);

/// Sweeps every `period` on `runtime` for as long as `engine` lives.
pub(crate) fn start(engine: &Arc<Engine>, period: Duration, runtime: &Handle) {
    let (store, won) = (Arc::clone(engine.store()), engine.won());
    let (call_budget, alive) = (engine.call_budget(), Arc::downgrade(engine));
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(period).await;
            if alive.strong_count() == 0 {
                return;
            }
            sweep(&*store, call_budget, &won).await;
        }
    });
}

/// Removes what has expired by now. `won` counts the records that this process has made.
async fn sweep(store: &dyn Store, call_budget: Duration, won: &AtomicU64) {
    let mut removed = 0;
    let mut seen = won.load(Ordering::Relaxed);
    let mut batch = FIRST_BATCH;
    loop {
        let begun = Instant::now();
        match within(call_budget, store.purge_expired(batch)).await {
            Ok(gone) => {
                removed += gone;
                metrics::counter!("idempotency_purged_total").increment(gone);
                if gone < u64::from(batch) {
                    break;
                }
            }
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "expired records could not be removed"
                );
                break;
            }
        }
        let so_far = won.load(Ordering::Relaxed);
        let pause;
        (batch, pause) = next(batch, begun.elapsed(), so_far - seen);
        seen = so_far;
        tokio::time::sleep(pause).await;
    }
    if removed > 0 {
        tracing::info!(removed, "expired records removed");
    }
}

/// How many to remove after a batch that took so long, and the pause before. What `added` records
/// since the batch before it must not outrun this: they expire, too.
fn next(batch: u32, took: Duration, added: u64) -> (u32, Duration) {
    // Half or twice as many at most: one call says little, the store may have been busy with others.
    let fitting = f64::from(batch) * BITE.as_secs_f64() / took.as_secs_f64();
    let gentle = (fitting as u32)
        .clamp(batch / 2, batch * 2)
        .clamp(*BATCHES.start(), *BATCHES.end());
    let enough = u32::try_from(added * 2).map_or(LARGEST_BATCH, |twice| twice.min(LARGEST_BATCH));
    if enough > gentle {
        (enough, LEAST_PAUSE)
    } else {
        (gentle, (took * PAUSE).max(LEAST_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_becomes_what_can_be_removed_in_a_bite() {
        let size = |batch, took| next(batch, took, 0).0;
        assert_eq!(size(100, BITE), 100);
        assert_eq!(size(100, BITE * 5 / 4), 80);
        assert_eq!(size(100, BITE * 100), 50, "one slow call says little");
        assert_eq!(size(100, BITE / 100), 200);
        assert_eq!(size(100, Duration::ZERO), 200);
        assert_eq!(size(30, BITE * 100), 20);
        assert_eq!(size(900, BITE / 100), 1000);
        let pause = |took| next(100, took, 0).1;
        assert_eq!(pause(BITE), BITE * PAUSE);
        assert_eq!(pause(Duration::ZERO), LEAST_PAUSE);
    }

    #[test]
    fn twice_as_many_are_removed_as_are_added() {
        let slow = BITE * 100;
        assert_eq!(next(100, slow, 25), (50, slow * PAUSE));
        assert_eq!(next(100, slow, 300), (600, LEAST_PAUSE));
        assert_eq!(next(100, slow, u64::from(u32::MAX)).0, LARGEST_BATCH);
    }
}
