//! Keeping claims alive: one task per process renews every live lease with one call.
//!
//! A lease is renewed when a third of it has passed. Renewals that are nearly due join the batch,
//! so that the calls of a busy process fall together instead of multiplying with its claims.

use crate::{
    fail_points::point,
    record::RecordId,
    repair::within,
    store::{Renewal, Renewed, Store, StoreError},
};
use std::{
    collections::HashMap,
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
    /// When the task looks next at the latest; a claim that is due before has to wake it.
    next_look: Option<Instant>,
}

#[derive(Debug)]
struct Live {
    id: RecordId,
    lease: Duration,
    /// Before the call that last renewed it was sent: the store's lease cannot have begun earlier.
    renewed: Instant,
    lost: Arc<Lost>,
}

/// What this process knows of a claim without asking the store.
#[derive(Debug)]
enum Known {
    Held,
    Lost,
    /// Its lease may have run out: this would tell.
    Maybe(Renewal),
}

/// Whether a claim can no longer be kept.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    told: AtomicBool,
    telling: Notify,
    refused_a_step: AtomicBool,
    /// The outcome is on the way to the store. A renewal that comes after it finds a finished
    /// record: what that means, the outcome's own answer tells.
    settling: AtomicBool,
}

impl Lost {
    /// Says so; false if it was said before.
    fn tell(&self) -> bool {
        let first = !self.told.swap(true, Ordering::AcqRel);
        self.telling.notify_waiters();
        first
    }

    /// Notes that a step was not run because the claim may be lost.
    pub(crate) fn refuse_a_step(&self) {
        self.refused_a_step.store(true, Ordering::Release);
    }

    pub(crate) fn has_refused_a_step(&self) -> bool {
        self.refused_a_step.load(Ordering::Acquire)
    }

    fn is_settling(&self) -> bool {
        self.settling.load(Ordering::Acquire)
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

    /// The outcome is about to be saved. The lease is kept alive until this is dropped.
    pub(crate) fn settling(&self) {
        self.lost.settling.store(true, Ordering::Release);
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
                    lost: Arc::clone(&lost),
                },
            );
            let wake = state.next_look.is_none_or(|look| due < look);
            if wake {
                state.next_look = Some(due);
            }
            wake
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

    /// Makes sure that the claim with this fencing token is held at this moment. By this process's
    /// clock if that says so: nobody can have taken over what was renewed less than a lease ago. A
    /// process that has stood still asks the store.
    ///
    /// The clock is the monotonic one. Where it stands still together with the machine, as on Linux
    /// when that is suspended, such a pause is not noticed.
    ///
    /// # Errors
    ///
    /// [`StoreError::LeaseLost`], or what kept the store from renewing the lease.
    pub(crate) async fn assure(
        &self,
        owner: Uuid,
        store: &dyn Store,
        call_budget: Duration,
    ) -> Result<(), StoreError> {
        let renewal = match self.known(owner, Instant::now()) {
            Known::Held => return Ok(()),
            Known::Lost => return Err(StoreError::LeaseLost),
            Known::Maybe(_) if !self.renews => return Err(StoreError::LeaseLost),
            Known::Maybe(renewal) => [renewal],
        };
        let sent = Instant::now();
        let outcomes = within(call_budget, store.renew(&renewal)).await?;
        self.renewed(&renewal, &outcomes, sent);
        match self.known(owner, Instant::now()) {
            Known::Held => Ok(()),
            Known::Lost | Known::Maybe(_) => Err(StoreError::LeaseLost),
        }
    }

    fn known(&self, owner: Uuid, now: Instant) -> Known {
        match self.state().live.get(&owner) {
            None => Known::Lost,
            Some(live) if now < live.renewed + live.lease => Known::Held,
            Some(live) => Known::Maybe(Renewal {
                id: live.id.clone(),
                owner,
                lease: live.lease,
            }),
        }
    }

    /// What is due, or else when something will be.
    fn due(&self, now: Instant) -> Result<Vec<Renewal>, Option<Instant>> {
        let mut state = self.state();
        let next = state
            .live
            .values()
            .map(|live| live.renewed + live.lease / 3)
            .min();
        if next.is_none_or(|next| next > now) {
            // A look that was planned stays, though the claim that it was for has ended: else each
            // claim of a process that is done with one before the next would wake the task.
            let planned = state.next_look.filter(|look| *look > now);
            state.next_look = next.into_iter().chain(planned).min();
            return Err(state.next_look);
        }
        state.next_look = next;
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
                        live.renewed = live.renewed.max(sent);
                    }
                }
                // Also one that is settling is asked for no more: it would be due again at once.
                Renewed::Lost => {
                    let live = state.live.remove(&renewal.owner);
                    if let Some(live) = live.filter(|live| !live.lost.is_settling()) {
                        tracing::error!(
                            record = %live.id.digest(),
                            path = live.id.request_path(),
                            "lease lost: the claim of a running request was taken over or resolved"
                        );
                        live.lost.tell();
                    }
                }
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
    use crate::store::{Claim, MemoryStore, Takeover};
    use futures_util::FutureExt;

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
        tokio::time::advance(LEASE).await;
        assert_eq!(
            keeper.due(Instant::now()).map(|batch| batch.len()),
            Err(None),
            "nor is the store asked again and again"
        );
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
    async fn claims_that_come_and_go_do_not_wake_the_task() {
        let (keeper, first, _) = held();
        let woken = || keeper.wake.notified().now_or_never().is_some();
        assert!(woken(), "by the first");
        let now = Instant::now();
        assert_eq!(keeper.due(now).map(|_| ()), Err(Some(now + LEASE / 3)));
        drop(first);
        assert_eq!(keeper.due(now).map(|_| ()), Err(Some(now + LEASE / 3)));
        let hold = |lease| keeper.hold(RecordId::new("a", "k2", "p"), Uuid::new_v4(), lease, now);
        let second = hold(LEASE);
        assert!(!woken(), "the task looks in time for this one");
        let shorter = hold(LEASE / 2);
        assert!(woken(), "the task would look too late for this one");
        drop((second, shorter));
        tokio::time::advance(LEASE / 3).await;
        assert_eq!(keeper.due(Instant::now()).map(|_| ()), Err(None), "idle");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_could_not_be_renewed_in_time_is_told() {
        let (keeper, lease, _) = held();
        keeper.not_renewed(Instant::now() + LEASE / 2);
        assert!(!lease.lost().is_told());
        keeper.not_renewed(Instant::now() + LEASE);
        assert!(lease.lost().is_told());
    }

    /// A keeper that renews, with a claim of the store's; nothing that is due is renewed by itself.
    async fn claimed(store: &Arc<dyn Store>) -> (Arc<LeaseKeeper>, HeldLease, Claim) {
        let claim = Claim {
            id: RecordId::new("alice", "k1", "POST /orders"),
            fingerprint: "a".repeat(64),
            also_accepted: None,
            route: "POST /orders shop::create_order".to_owned(),
            owner: Uuid::new_v4(),
            ttl: LEASE * 100,
            lease: Duration::ZERO,
            takeover: Takeover::Abandoned,
        };
        store.claim(&claim).await.expect("a claim");
        let keeper = Arc::new(LeaseKeeper {
            renews: true,
            state: Mutex::new(State {
                live: HashMap::new(),
                next_look: None,
            }),
            wake: Notify::new(),
        });
        let lease = keeper.hold(claim.id.clone(), claim.owner, LEASE, Instant::now());
        (keeper, lease, claim)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_runs_is_held_without_asking_the_store() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let (keeper, _lease, claim) = claimed(&store).await;
        store.release(&claim.id, claim.owner).await.expect("freed");
        tokio::time::advance(LEASE - Duration::from_millis(1)).await;
        keeper
            .assure(claim.owner, &*store, LEASE)
            .await
            .expect("nobody can have taken it over yet");
        tokio::time::advance(Duration::from_millis(1)).await;
        let asked = keeper.assure(claim.owner, &*store, LEASE).await;
        assert!(matches!(asked, Err(StoreError::LeaseLost)), "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_that_stood_still_asks_whether_it_was_taken_over() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let (keeper, lease, claim) = claimed(&store).await;
        tokio::time::advance(LEASE).await;
        keeper
            .assure(claim.owner, &*store, LEASE)
            .await
            .expect("it was not, and the lease runs anew");
        tokio::time::advance(LEASE).await;
        let other = Claim {
            owner: Uuid::new_v4(),
            ..claim.clone()
        };
        store.forget(&claim.id).await.expect("gone");
        store.claim(&other).await.expect("another owner");
        let asked = keeper.assure(claim.owner, &*store, LEASE).await;
        assert!(matches!(asked, Err(StoreError::LeaseLost)), "{asked:?}");
        assert!(lease.lost().is_told());
        let asked = keeper.assure(claim.owner, &*store, LEASE).await;
        assert!(matches!(asked, Err(StoreError::LeaseLost)), "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_keeper_that_never_renews_takes_the_clock_s_word() {
        let (keeper, _lease, renewal) = held();
        let store = MemoryStore::new();
        keeper
            .assure(renewal.owner, &store, LEASE)
            .await
            .expect("it runs");
        tokio::time::advance(LEASE).await;
        let asked = keeper.assure(renewal.owner, &store, LEASE).await;
        assert!(matches!(asked, Err(StoreError::LeaseLost)), "{asked:?}");
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
