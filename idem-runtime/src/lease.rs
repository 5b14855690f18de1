//! Keeping claims alive: one task per process renews every live lease with one call.
//!
//! A lease is renewed when a third of it has passed. Renewals that are nearly due join the batch,
//! so that the calls of a busy process fall together instead of multiplying with its claims.

use crate::{
    fail_points::point,
    record::RecordId,
    store::{Renewal, Renewed, Store},
};
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{runtime::Handle, sync::Notify, time::Instant};
use uuid::Uuid;

/// Every claim this process holds, and the task that renews them.
#[derive(Debug)]
pub(crate) struct LeaseKeeper {
    renews: bool,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug)]
struct State {
    live: HashMap<Uuid, Live>,
    /// When the task looks next; a claim that is due before has to wake it.
    next_look: Option<Instant>,
}

#[derive(Debug)]
struct Live {
    id: RecordId,
    lease: Duration,
    /// Before the call that last renewed it was sent: the store's lease cannot have begun earlier.
    renewed: Instant,
    /// Its outcome is on the way to the store. A renewal that comes after it finds a finished
    /// record: what that means, the outcome's own answer tells.
    settling: bool,
    lost: Arc<Lost>,
}

/// Whether a claim can no longer be kept.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    told: AtomicBool,
    telling: Notify,
}

impl Lost {
    /// Says so; false if it was said before.
    fn tell(&self) -> bool {
        let first = !self.told.swap(true, Ordering::AcqRel);
        self.telling.notify_waiters();
        first
    }

    fn is_told(&self) -> bool {
        self.told.load(Ordering::Acquire)
    }

    /// Resolves when it is said, at once if it was.
    pub(crate) async fn wait(&self) {
        let mut telling = std::pin::pin!(self.telling.notified());
        // Listening before looking: what is said in between is not missed.
        telling.as_mut().enable();
        if !self.is_told() {
            telling.await;
        }
    }
}

/// A claim that is being kept alive, until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldLease {
    keeper: Arc<LeaseKeeper>,
    owner: Uuid,
    lost: Arc<Lost>,
}

impl HeldLease {
    /// Tells when the claim can no longer be kept.
    pub(crate) fn lost(&self) -> Arc<Lost> {
        Arc::clone(&self.lost)
    }
}

impl HeldLease {
    /// The outcome is about to be saved. The lease is kept alive until this is dropped.
    pub(crate) fn settling(&self) {
        if let Some(live) = self.keeper.state().live.get_mut(&self.owner) {
            live.settling = true;
        }
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.keeper.state().live.remove(&self.owner);
    }
}

impl LeaseKeeper {
    /// A keeper whose task runs on `runtime`; `None` for a keeper that never renews.
    pub(crate) fn start(
        store: &Arc<dyn Store>,
        call_budget: Duration,
        runtime: Option<&Handle>,
    ) -> Arc<LeaseKeeper> {
        let keeper = Arc::new(LeaseKeeper {
            renews: runtime.is_some(),
            state: Mutex::new(State {
                live: HashMap::new(),
                next_look: None,
            }),
            wake: Notify::new(),
        });
        if let Some(runtime) = runtime {
            runtime.spawn(renew_for_ever(
                Arc::downgrade(&keeper),
                Arc::clone(store),
                call_budget,
            ));
        }
        keeper
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a claim alive that was sent at `claimed`.
    pub(crate) fn hold(
        self: &Arc<Self>,
        id: RecordId,
        owner: Uuid,
        lease: Duration,
        claimed: Instant,
    ) -> HeldLease {
        let lost = Arc::new(Lost::default());
        let due = claimed + lease / 3;
        let wake = {
            let mut state = self.state();
            state.live.insert(
                owner,
                Live {
                    id,
                    lease,
                    renewed: claimed,
                    settling: false,
                    lost: Arc::clone(&lost),
                },
            );
            state.next_look.is_none_or(|look| due < look)
        };
        if wake {
            self.wake.notify_one();
        }
        HeldLease {
            keeper: Arc::clone(self),
            owner,
            lost,
        }
    }

    /// Whether the owner with this fencing token is at work in this process, or its outcome still
    /// on the way to the store, and its lease is to be renewed.
    pub(crate) fn holds(&self, owner: Uuid) -> bool {
        self.renews && self.state().live.contains_key(&owner)
    }

    /// What is due, or else when something will be.
    fn due(&self, now: Instant) -> Result<Vec<Renewal>, Option<Instant>> {
        let mut state = self.state();
        let next = state
            .live
            .values()
            .map(|live| live.renewed + live.lease / 3)
            .min();
        state.next_look = next;
        if next.is_none_or(|next| next > now) {
            return Err(next);
        }
        Ok(state
            .live
            .iter()
            .filter(|(_, live)| live.renewed + live.lease / 6 <= now)
            .map(|(owner, live)| Renewal {
                id: live.id.clone(),
                owner: *owner,
                lease: live.lease,
            })
            .collect())
    }

    fn renewed(&self, renewals: &[Renewal], outcomes: &[Renewed], sent: Instant) {
        let mut state = self.state();
        for (renewal, outcome) in renewals.iter().zip(outcomes) {
            match outcome {
                Renewed::Held => {
                    if let Some(live) = state.live.get_mut(&renewal.owner) {
                        live.renewed = sent;
                    }
                }
                Renewed::Lost => match state.live.entry(renewal.owner) {
                    Entry::Occupied(live) if !live.get().settling => {
                        let live = live.remove();
                        tracing::error!(
                            record = %live.id.digest(),
                            path = live.id.request_path(),
                            "lease lost: the claim of a running request was taken over or resolved"
                        );
                        live.lost.tell();
                    }
                    _ => {}
                },
            }
        }
    }

    /// After a failed call: claims that may have been taken over meanwhile are told so.
    fn not_renewed(&self, now: Instant) {
        for live in self.state().live.values() {
            if live.renewed + live.lease <= now && live.lost.tell() {
                tracing::error!(
                    record = %live.id.digest(),
                    path = live.id.request_path(),
                    "lease lost: it could not be renewed in time"
                );
            }
        }
    }
}

async fn renew_for_ever(keeper: Weak<LeaseKeeper>, store: Arc<dyn Store>, call_budget: Duration) {
    loop {
        let Some(strong) = keeper.upgrade() else {
            return;
        };
        let batch = match strong.due(Instant::now()) {
            Ok(batch) => batch,
            Err(next) => {
                // Waiting must not keep the keeper alive: look up now and then whether it still is.
                let idle = Instant::now() + Duration::from_secs(5);
                let until = next.map_or(idle, |next| next.min(idle));
                tokio::select! {
                    () = point!("lease.idle", tokio::time::sleep_until(until)) => {}
                    () = strong.wake.notified() => {}
                }
                continue;
            }
        };
        let shortest = batch
            .iter()
            .map(|renewal| renewal.lease)
            .min()
            .unwrap_or(call_budget);
        let sent = Instant::now();
        let call = tokio::time::timeout(call_budget.min(shortest), store.renew(&batch));
        let failure = match point!("lease.renew", call).await {
            Ok(Ok(outcomes)) => {
                strong.renewed(&batch, &outcomes, sent);
                continue;
            }
            Ok(Err(error)) => crate::engine::error_chain(&error),
            Err(_) => "it took longer than its time budget".to_owned(),
        };
        tracing::warn!(
            claims = batch.len(),
            error = failure,
            "leases could not be renewed"
        );
        metrics::counter!("idempotency_renewal_failures_total").increment(1);
        strong.not_renewed(Instant::now());
        point!("lease.pause", tokio::time::sleep(shortest / 12)).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;
    use crate::store::MemoryStore;

    const LEASE: Duration = Duration::from_secs(30);

    fn held() -> (Arc<LeaseKeeper>, HeldLease, Renewal) {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let keeper = LeaseKeeper::start(&store, LEASE, None);
        let renewal = Renewal {
            id: RecordId::new("alice", "k1", "POST /orders"),
            owner: Uuid::new_v4(),
            lease: LEASE,
        };
        let lease = keeper.hold(renewal.id.clone(), renewal.owner, LEASE, Instant::now());
        (keeper, lease, renewal)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_renewal_tells_the_running_request() {
        let (keeper, lease, renewal) = held();
        keeper.renewed(&[renewal], &[Renewed::Lost], Instant::now());
        assert!(lease.lost().is_told());
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_comes_after_the_outcome_tells_nothing() {
        let (keeper, lease, renewal) = held();
        lease.settling();
        keeper.renewed(&[renewal], &[Renewed::Lost], Instant::now());
        assert!(!lease.lost().is_told());
    }

    #[tokio::test(start_paused = true)]
    async fn leases_that_are_nearly_due_join_the_batch() {
        let (keeper, _first, _) = held();
        tokio::time::advance(LEASE / 6).await;
        let second = keeper.hold(
            RecordId::new("a", "k2", "p"),
            Uuid::new_v4(),
            LEASE,
            Instant::now(),
        );
        tokio::time::advance(LEASE / 6).await;
        assert_eq!(keeper.due(Instant::now()).map(|batch| batch.len()), Ok(2));
        drop(second);
        assert_eq!(keeper.due(Instant::now()).map(|batch| batch.len()), Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_could_not_be_renewed_in_time_is_told() {
        let (keeper, lease, _) = held();
        keeper.not_renewed(Instant::now() + LEASE / 2);
        assert!(!lease.lost().is_told());
        keeper.not_renewed(Instant::now() + LEASE);
        assert!(lease.lost().is_told());
    }

    #[tokio::test]
    async fn everybody_who_waits_for_a_loss_is_told_early_or_late() {
        let lost = Arc::new(Lost::default());
        let early = tokio::spawn({
            let lost = Arc::clone(&lost);
            async move { lost.wait().await }
        });
        tokio::task::yield_now().await;
        assert!(lost.tell(), "the first to say so");
        assert!(!lost.tell());
        early.await.expect("told");
        lost.wait().await;
    }
}
