//! Removing expired records in bounded batches.
//!
//! Expired records are ignored on read and replaced by the next claim: sweeping only saves room.

use crate::{engine::error_chain, repair::within, store::Store};
use std::{
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{runtime::Handle, time::Instant};

/// Records removed by one call: small enough that requests beside it do not notice.
const BATCH: u32 = 100;
/// The pause after a batch, in times of what it took, for the same reason: the busier the store is
/// with other things, the longer it is left alone.
const PAUSE: u32 = 3;
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
    loop {
        let begun = Instant::now();
        match within(call_budget, store.purge_expired(BATCH)).await {
            Ok(batch) => {
                removed += batch;
                metrics::counter!("idempotency_purged_total").increment(batch);
                if batch < u64::from(BATCH) {
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
        tokio::time::sleep((begun.elapsed() * PAUSE).max(LEAST_PAUSE)).await;
    }
    if removed > 0 {
        tracing::info!(removed, "expired records removed");
    }
}
