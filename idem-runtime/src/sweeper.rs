//! Removing expired records in bounded batches.
//!
//! Expired records are ignored on read and replaced by the next claim: sweeping only saves room.

use crate::{engine::error_chain, repair::within, store::Store};
use std::{
    ops::RangeInclusive,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{runtime::Handle, time::Instant};

/// How long the removal of one batch should take: requests beside it may have to wait as long.
const BITE: Duration = Duration::from_millis(2);
/// The size of a sweep's first batch.
const FIRST_BATCH: u32 = 50;
const BATCHES: RangeInclusive<u32> = 20..=1000;
/// The pause after a batch, in times of what it took: the busier the store is with other things, the
/// longer it is left alone.
const PAUSE: u32 = 4;
/// At least so long.
const LEAST_PAUSE: Duration = Duration::from_millis(5);

/// Sweeps every `period` on `runtime` for as long as `alive` lives.
pub(crate) fn start<A: Send + Sync + 'static>(
    store: Arc<dyn Store>,
    period: Duration,
    call_budget: Duration,
    alive: Weak<A>,
    runtime: &Handle,
) {
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(period).await;
            if alive.strong_count() == 0 {
                return;
            }
            sweep(&*store, call_budget).await;
        }
    });
}

async fn sweep(store: &dyn Store, call_budget: Duration) {
    let mut removed = 0;
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
        let took = begun.elapsed();
        batch = next_batch(batch, took);
        tokio::time::sleep((took * PAUSE).max(LEAST_PAUSE)).await;
    }
    if removed > 0 {
        tracing::info!(removed, "expired records removed");
    }
}

/// How many to remove after a batch that took so long. Half or twice as many at most: one call says
/// little, the store may have been busy with others.
fn next_batch(batch: u32, took: Duration) -> u32 {
    let fitting = f64::from(batch) * BITE.as_secs_f64() / took.as_secs_f64();
    (fitting as u32)
        .clamp(batch / 2, batch * 2)
        .clamp(*BATCHES.start(), *BATCHES.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_becomes_what_can_be_removed_in_a_bite() {
        assert_eq!(next_batch(100, BITE), 100);
        assert_eq!(next_batch(100, BITE * 5 / 4), 80);
        assert_eq!(next_batch(100, BITE * 100), 50, "one slow call says little");
        assert_eq!(next_batch(100, BITE / 100), 200);
        assert_eq!(next_batch(100, Duration::ZERO), 200);
        assert_eq!(next_batch(30, BITE * 100), 20);
        assert_eq!(next_batch(900, BITE / 100), 1000);
    }
}
