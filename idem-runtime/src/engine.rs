//! The contract: what a request with a key meets, and how its outcome is kept.
//!
//! The engine knows no HTTP framework and no SQL. The store reports facts, decisions are made here.

use crate::{
    at_work::{AtWork, Working},
    drain::InFlight,
    fail_points::point,
    lease::{HeldLease, LeaseKeeper, Lost},
    policy::{Abandonment, EffectivePolicy, OnStoreError},
    problem::{Problem, ProblemKind},
    record::{Answer, Record, RecordId, State, StoredResponse, handler_of},
    repair::{Anew, Outcome, Repair, Repairs, within},
    steps::Steps,
    store::{Claim, Claimed, Store, StoreError, Takeover},
    transaction::RunningTransactions,
    waiters::Waiters,
};
use bytes::Bytes;
use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{runtime::Handle, sync::Notify, time::Instant};
use uuid::Uuid;

/// Pause before a claim is repeated whose answer got lost.
const CLAIM_RETRY_PAUSE: Duration = Duration::from_millis(25);

/// Store calls that one waiting duplicate may make, its first claim included.
const WAITER_CALLS: u32 = 10;
/// Bounds of the pause between two of them, which doubles: what makes a lost notification harmless.
const WAITER_PAUSES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_secs(1);

/// A request that asks for its key.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: RecordId,
    pub(crate) fingerprint: String,
    pub(crate) also_accepted: Option<String>,
    pub(crate) route: String,
}

impl Request {
    pub(crate) fn into_claim(self, policy: &EffectivePolicy, takeover: Takeover) -> Claim {
        Claim {
            id: self.id,
            fingerprint: self.fingerprint,
            also_accepted: self.also_accepted,
            route: self.route,
            owner: Uuid::new_v4(),
            ttl: policy.ttl,
            lease: policy.lease,
            takeover,
        }
    }
}

/// What is to be done with it.
#[derive(Debug)]
pub(crate) enum Decision {
    /// It owns the key: run the handler.
    Run(Box<LiveClaim>),
    /// The same request was answered before.
    Replay(StoredResponse),
    /// The toolkit answers.
    Refuse(Problem),
    /// The store is unreachable and the route says to run without protection.
    RunUnprotected(RecordId),
}

/// The decisions and the machinery that keeps claims alive.
#[derive(Debug)]
pub(crate) struct Engine {
    store: Arc<dyn Store>,
    leases: Arc<LeaseKeeper>,
    repairs: Repairs,
    waiters: Arc<Waiters>,
    abandoned_met: Arc<Notify>,
    running: Arc<RunningTransactions>,
    at_work: Arc<AtWork>,
    won: Arc<AtomicU64>,
    call_budget: Duration,
}

impl Engine {
    pub(crate) fn start(
        store: Arc<dyn Store>,
        call_budget: Duration,
        renew_leases: bool,
        in_flight: &Arc<InFlight>,
        runtime: &Handle,
    ) -> Engine {
        let leases = LeaseKeeper::start(&store, call_budget, renew_leases.then_some(runtime));
        let repairs = Repairs::new(
            Arc::clone(&store),
            runtime.clone(),
            Arc::clone(in_flight),
            call_budget,
        );
        Engine {
            store,
            leases,
            repairs,
            waiters: Arc::default(),
            abandoned_met: Arc::default(),
            running: Arc::default(),
            at_work: Arc::default(),
            won: Arc::default(),
            call_budget,
        }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Notified when a request meets an abandoned record that is to be reconciled.
    pub(crate) fn abandoned_met(&self) -> Arc<Notify> {
        Arc::clone(&self.abandoned_met)
    }

    /// The number of claims that this process has won.
    pub(crate) fn won(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.won)
    }

    pub(crate) fn count_won(&self) {
        self.won.fetch_add(1, Ordering::Relaxed);
    }

    /// Transactional requests that run in this process.
    pub(crate) fn running(&self) -> &Arc<RunningTransactions> {
        &self.running
    }

    /// Hands an abandoned record that was taken with this fencing token back to its owner, if that is
    /// at work in this process.
    pub(crate) fn hand_back(&self, id: &RecordId, token: Uuid) -> bool {
        self.at_work.retake(id, token)
    }

    /// Tells those who wait in this process that a record was finished or freed.
    pub(crate) fn settled(&self, id: &RecordId) {
        self.waiters.settled(id);
    }

    /// Makes sure that a claim of this process is held at this moment.
    ///
    /// # Errors
    ///
    /// As [`LeaseKeeper::assure`].
    pub(crate) async fn assure_held(&self, owner: Uuid) -> Result<(), StoreError> {
        let (store, budget) = (&*self.store, self.call_budget);
        self.leases.assure(owner, store, budget).await
    }

    /// Budget of one store call.
    pub(crate) fn call_budget(&self) -> Duration {
        self.call_budget
    }

    /// Claims the key of `request`, or decides how it is answered without running.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        policy: &EffectivePolicy,
        request: Request,
    ) -> Decision {
        let rerun = policy.abandoned == Abandonment::Rerun && !policy.reconciled;
        let takeover = if rerun {
            Takeover::Abandoned
        } else {
            Takeover::Never
        };
        let claim = request.into_claim(policy, takeover);
        let claimed = self
            .ask_or_wait(
                policy.wait,
                &claim.id,
                async || self.claim(&claim).await,
                |claimed| matches!(claimed, Claimed::Standing(record) if may_wait(&claim, record)),
            )
            .await;
        match claimed {
            Ok((Claimed::Won { attempt, steps }, sent)) => {
                self.count_won();
                let lease = self
                    .leases
                    .hold(claim.id.clone(), claim.owner, claim.lease, sent);
                Decision::Run(Box::new(LiveClaim {
                    engine: Arc::clone(self),
                    working: policy.reconciled.then(|| self.at_work.enter(&claim.id)),
                    attempt,
                    steps,
                    ttl: claim.ttl,
                    id: claim.id,
                    fingerprint: claim.fingerprint,
                    also_accepted: claim.also_accepted,
                    route: claim.route,
                    owner: claim.owner,
                    claimed: sent,
                    lease_length: claim.lease,
                    lease,
                }))
            }
            Ok((Claimed::Standing(record), _)) => {
                if is_abandoned(&record) {
                    // Its lease ran out because the store was away, not its owner.
                    if claim.accepts(&record.fingerprint) && self.leases.holds(record.owner) {
                        return Decision::Refuse(Problem::new(ProblemKind::InProgress));
                    }
                    if policy.reconciled {
                        self.abandoned_met.notify_one();
                    }
                }
                judge(policy, &claim, *record)
            }
            Err(StoreError::Unreadable(error)) => {
                tracing::error!(route = claim.route, "{error}; its handler is not run");
                Decision::Refuse(Problem::new(ProblemKind::RecordUnreadable))
            }
            Err(error) => {
                tracing::warn!(
                    route = claim.route,
                    record = %claim.id.digest(),
                    error = error_chain(&error),
                    "the key could not be claimed"
                );
                if !matches!(error, StoreError::Full) {
                    self.repairs.start(
                        claim.id.clone(),
                        claim.owner,
                        Repair::ReleaseUncertain,
                        claim.ttl,
                        (),
                    );
                }
                match policy.on_store_error {
                    OnStoreError::Refuse => {
                        Decision::Refuse(Problem::new(ProblemKind::StoreUnavailable))
                    }
                    OnStoreError::Run => {
                        tracing::warn!(
                            route = claim.route,
                            "the handler runs without protection: the route accepts it while the store is unavailable"
                        );
                        Decision::RunUnprotected(claim.id)
                    }
                }
            }
        }
    }

    /// Asks the store for the key; where the route says so, a duplicate of a running request first
    /// waits for it. Tells also when the call was sent that decided.
    ///
    /// A waiter holds nothing of the store's between its calls. It is woken when the request is
    /// settled in this process, or looks again after a pause; it claims each time, so that it runs
    /// itself if the key was freed.
    pub(crate) async fn ask_or_wait<T>(
        &self,
        wait: Option<Duration>,
        id: &RecordId,
        ask: impl AsyncFn() -> Result<T, StoreError>,
        may_wait: impl Fn(&T) -> bool,
    ) -> Result<(T, Instant), StoreError> {
        let begun = Instant::now();
        let asked = ask().await?;
        let Some(wait) = wait.filter(|_| may_wait(&asked)) else {
            return Ok((asked, begun));
        };
        let deadline = begun + wait;
        let mut waiter = self.waiters.wait_for(id);
        let mut changed = self.store.changed(id);
        let mut pause = *WAITER_PAUSES.start();
        let mut calls = 1;
        // A call whose answer is lost may be the one that claims: the lease has run from there.
        let mut unanswered = None;
        loop {
            calls += 1;
            let last = calls == WAITER_CALLS;
            let until = if last {
                deadline
            } else {
                deadline.min(Instant::now() + pause)
            };
            tokio::select! {
                () = point!("engine.wait", tokio::time::sleep_until(until)) => {}
                () = waiter.settled(), if !last => {}
                () = &mut changed, if !last => changed = self.store.changed(id),
            }
            pause = (pause * 2).min(*WAITER_PAUSES.end());
            let sent = Instant::now();
            let over = last || sent >= deadline;
            match ask().await {
                Ok(asked) if over || !may_wait(&asked) => {
                    return Ok((asked, unanswered.unwrap_or(sent)));
                }
                Err(error) if over => return Err(error),
                Ok(_) => {}
                Err(_) => {
                    unanswered.get_or_insert(sent);
                }
            }
        }
    }

    /// Claims within the time budget. A call that failed may have been carried out: it is repeated
    /// once with the same fencing token, which then finds its own record.
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        within(self.call_budget, async {
            match point!("engine.claim", self.store.claim(claim)).await {
                Err(StoreError::Unavailable { .. }) => {
                    point!("engine.claim_pause", tokio::time::sleep(CLAIM_RETRY_PAUSE)).await;
                    point!("engine.claim_again", self.store.claim(claim)).await
                }
                other => other,
            }
        })
        .await
    }

    /// How a duplicate would be answered now, for an attempt that finds itself fenced: its own
    /// outcome must not become a second answer for the key. `None` if there is no other: nothing
    /// stands there any more, or the key meanwhile belongs to another request.
    pub(crate) async fn answer_of_the_winner(&self, fenced: &Attempt) -> Option<Decision> {
        let standing = within(self.call_budget, self.store.get(&fenced.id));
        let record = match point!("engine.winner", standing).await {
            Ok(record) => record?,
            Err(error) => {
                tracing::warn!(
                    record = %fenced.id.digest(),
                    error = error_chain(&error),
                    "the answer of the attempt that owns the key could not be read"
                );
                return Some(Decision::Refuse(Problem::new(
                    ProblemKind::StoreUnavailable,
                )));
            }
        };
        let accepted = [Some(&fenced.fingerprint), fenced.also_accepted.as_ref()];
        if !accepted.contains(&Some(&record.fingerprint)) {
            return None;
        }
        Some(match record.state {
            State::Finished { answer, .. } => answered(answer),
            State::Running { .. } => Decision::Refuse(Problem::new(ProblemKind::InProgress)),
        })
    }
}

/// Whether a claim met its own request still running: no other outcome can change by waiting.
pub(crate) fn may_wait(claim: &Claim, record: &Record) -> bool {
    claim.accepts(&record.fingerprint) && record.is_running() && !is_abandoned(record)
}

/// Whether the owner of a running record has died, or cannot reach the store.
fn is_abandoned(record: &Record) -> bool {
    matches!(record.state, State::Running { locked_until } if locked_until <= record.now)
}

/// How a duplicate is answered by the record that stands there.
pub(crate) fn judge(policy: &EffectivePolicy, claim: &Claim, record: Record) -> Decision {
    if !claim.accepts(&record.fingerprint) {
        return Decision::Refuse(Problem::key_reused(policy.mismatch));
    }
    match record.state {
        State::Finished {
            answer: Answer::Kept(response),
            ..
        } => Decision::Replay(response),
        State::Finished {
            answer: Answer::Tombstone { .. },
            ..
        } => Decision::Refuse(Problem::new(ProblemKind::ResponseNotRetained)),
        State::Running { locked_until } => {
            let lease_left = locked_until.since(record.now);
            // Its handler's function is the one that is asked: if that has another name by now, nobody is.
            let is_reconciled = policy.reconciled && record.handler() == handler_of(&claim.route);
            let resolves_itself = is_reconciled || claim.takeover == Takeover::Abandoned;
            if lease_left.is_zero() && !resolves_itself {
                return Decision::Refuse(Problem::new(ProblemKind::OutcomeUnknown));
            }
            let running_for = record.now.since(record.created_at);
            Decision::Refuse(
                Problem::new(ProblemKind::InProgress)
                    .with_retry_after(retry_after(running_for, policy.lease)),
            )
        }
    }
}

/// How a finished record is answered.
fn answered(answer: Answer) -> Decision {
    match answer {
        Answer::Kept(response) => Decision::Replay(response),
        Answer::Tombstone { .. } => {
            Decision::Refuse(Problem::new(ProblemKind::ResponseNotRetained))
        }
    }
}

/// When to ask again for a running request: after as long as it has already run, so that the pauses
/// double, between one second and the lease.
fn retry_after(running_for: Duration, lease: Duration) -> Duration {
    const SECOND: Duration = Duration::from_secs(1);
    running_for.min(lease).max(SECOND).min(lease.max(SECOND))
}

/// Which record a fenced attempt was about.
#[derive(Debug)]
pub(crate) struct Attempt {
    id: RecordId,
    fingerprint: String,
    also_accepted: Option<String>,
}

/// A claim this process holds, kept alive until it is settled.
///
/// Dropped unsettled (the process is ending), it is left to its lease.
#[derive(Debug)]
pub(crate) struct LiveClaim {
    engine: Arc<Engine>,
    id: RecordId,
    fingerprint: String,
    also_accepted: Option<String>,
    route: String,
    owner: Uuid,
    attempt: u32,
    steps: Option<Bytes>,
    ttl: Duration,
    /// When the claim was sent.
    claimed: Instant,
    lease_length: Duration,
    lease: HeldLease,
    /// On a route that is reconciled.
    working: Option<Arc<Working>>,
}

/// What became of an outcome.
#[derive(Debug)]
pub(crate) enum Settled {
    /// The store has it.
    Saved,
    /// The store could not be reached; it is tried again in the background.
    Pending,
    /// Another attempt owns the key: this outcome is nobody's answer.
    Fenced(Attempt),
}

impl LiveClaim {
    pub(crate) fn id(&self) -> &RecordId {
        &self.id
    }

    pub(crate) fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The durable steps of this operation, with what earlier attempts kept.
    pub(crate) fn steps(&self, lease: Duration) -> Steps {
        let engine = Arc::clone(&self.engine);
        Steps::new(
            engine,
            self.id.clone(),
            self.owner,
            lease,
            self.lost(),
            self.steps.as_ref(),
        )
    }

    pub(crate) fn lost(&self) -> Arc<Lost> {
        self.lease.lost()
    }

    /// Saves the answer of the attempt.
    pub(crate) async fn complete(self: Box<Self>, answer: Answer) -> Settled {
        self.lease.settling();
        let call = self.engine.store.complete(&self.id, self.owner, &answer);
        let call = within(self.engine.call_budget, call);
        let saved = point!("engine.complete", call).await;
        let saved = match saved {
            Err(StoreError::LeaseLost) => Box::pin(self.complete_anew(&answer)).await,
            saved => saved,
        };
        self.settle(saved, Some(answer))
    }

    /// How the outcome is saved if the claim is gone. None if it is not: it may be the outcome of a step
    /// that was not run because of that; and how long a record lives is only known to the attempt that
    /// made it.
    fn anew(&self) -> Option<Box<Anew>> {
        if self.attempt > 1 || self.lease.lost().has_refused_a_step() {
            return None;
        }
        Some(Box::new(Anew {
            claim: Claim {
                id: self.id.clone(),
                fingerprint: self.fingerprint.clone(),
                also_accepted: None,
                route: self.route.clone(),
                owner: Uuid::new_v4(),
                ttl: self.ttl,
                lease: self.lease_length,
                takeover: Takeover::Never,
            },
            working: self.working.clone(),
            until: self.claimed + self.ttl,
        }))
    }

    /// Saves the answer of an attempt whose claim is gone, see [`Anew`]. Where it is not known whether
    /// another has the key, the attempt is fenced, and what can be saved of it is saved in the
    /// background.
    async fn complete_anew(&self, answer: &Answer) -> Result<(), StoreError> {
        let anew = self.anew().ok_or(StoreError::LeaseLost)?;
        let (store, budget) = (&*self.engine.store, self.engine.call_budget);
        match anew.save(answer, store, budget).await {
            Ok(Outcome::Done) => return Ok(()),
            Err(StoreError::LeaseLost) => {}
            Ok(Outcome::Held) | Err(_) => self.engine.repairs.start(
                self.id.clone(),
                self.owner,
                Repair::Anew(answer.clone(), anew),
                self.ttl,
                (),
            ),
        }
        Err(StoreError::LeaseLost)
    }

    /// Frees the key: the attempt had no effect.
    pub(crate) async fn release(self: Box<Self>) -> Settled {
        self.lease.settling();
        let call = self.engine.store.release(&self.id, self.owner);
        let call = within(self.engine.call_budget, call);
        let mut released = point!("engine.release", call).await;
        let retaken = self.working.as_ref().and_then(|working| working.retaken());
        if let (Err(StoreError::LeaseLost), Some(token)) = (&released, retaken) {
            let call = self.engine.store.release(&self.id, token);
            released = within(self.engine.call_budget, call).await;
        }
        self.settle(released, None)
    }

    /// What became of the outcome: of this answer, or of a release.
    fn settle(self, outcome: Result<(), StoreError>, answer: Option<Answer>) -> Settled {
        match outcome {
            Ok(()) => {
                self.engine.settled(&self.id);
                Settled::Saved
            }
            Err(StoreError::LeaseLost) => {
                tracing::error!(
                    record = %self.id.digest(),
                    path = self.id.request_path(),
                    attempt = self.attempt,
                    "lease lost: the outcome of this attempt is refused, another owns the key"
                );
                Settled::Fenced(Attempt {
                    id: self.id,
                    fingerprint: self.fingerprint,
                    also_accepted: self.also_accepted,
                })
            }
            Err(error) => {
                tracing::error!(
                    record = %self.id.digest(),
                    path = self.id.request_path(),
                    error = error_chain(&error),
                    "the outcome could not be saved; it is tried again in the background"
                );
                let repair = match answer {
                    Some(answer) => Repair::Complete(answer, self.anew()),
                    None => Repair::Release,
                };
                let engine = Arc::clone(&self.engine);
                engine
                    .repairs
                    .start(self.id, self.owner, repair, self.ttl, self.lease);
                Settled::Pending
            }
        }
    }
}

/// An error and its sources, in one line.
pub(crate) fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::unwrap_used)]
    use super::*;
    use crate::{
        policy::{Options, Policy},
        scope::Scope,
        store::MemoryStore,
    };

    async fn begun(engine: &Arc<Engine>) -> Box<LiveClaim> {
        begun_with(engine, 'a', None).await
    }

    async fn begun_with(
        engine: &Arc<Engine>,
        fingerprint: char,
        also_accepted: Option<char>,
    ) -> Box<LiveClaim> {
        let policy = Policy::new(Scope::Global, 60_000)
            .lease_ms(1)
            .abandoned(Abandonment::Rerun);
        let policy = EffectivePolicy::new(&policy, &Options::NONE);
        let of = |digit: char| digit.to_string().repeat(64);
        let request = Request {
            id: RecordId::new("*", "k", "POST /orders"),
            fingerprint: of(fingerprint),
            also_accepted: also_accepted.map(of),
            route: "POST /orders shop::create_order".to_owned(),
        };
        match engine.begin(&policy, request).await {
            Decision::Run(claim) => claim,
            other => panic!("{other:?}"),
        }
    }

    /// An engine that renews nothing.
    fn engine() -> Arc<Engine> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let (in_flight, runtime) = (Arc::default(), Handle::current());
        let budget = Duration::from_secs(1);
        Arc::new(Engine::start(store, budget, false, &in_flight, &runtime))
    }

    #[tokio::test]
    async fn what_is_saved_anew_is_the_first_attempt_s_and_of_all_its_steps() {
        let engine = engine();
        let first = begun(&engine).await;
        assert!(first.anew().is_some());
        first.lost().refuse_a_step();
        assert!(
            first.anew().is_none(),
            "what is left of an operation is no outcome"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
        let second = begun(&engine).await;
        assert_eq!(second.attempt(), 2);
        assert!(
            second.anew().is_none(),
            "its record ends before its own ttl does"
        );
    }

    #[tokio::test]
    async fn a_fenced_attempt_knows_its_winner_by_a_fingerprint_under_the_previous_key() {
        let engine = engine();
        begun(&engine).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        let fenced = begun_with(&engine, 'b', Some('a')).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        let winner = begun_with(&engine, 'b', Some('a')).await;
        winner.complete(Answer::Tombstone { code: 201 }).await;
        match fenced.complete(Answer::Tombstone { code: 200 }).await {
            Settled::Fenced(attempt) => {
                assert!(engine.answer_of_the_winner(&attempt).await.is_some());
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_lease_is_counted_from_the_call_whose_answer_was_lost() {
        let asked = std::sync::Mutex::new(Vec::new());
        let ask = async || {
            let mut asked = asked.lock().unwrap();
            asked.push(Instant::now());
            match asked.len() {
                1 => Ok("another runs"),
                2 | 3 => Err(StoreError::LeaseLost),
                _ => Ok("claimed"),
            }
        };
        let id = RecordId::new("*", "k", "POST /orders");
        let wait = Some(Duration::from_secs(60));
        let (claimed, since) = engine()
            .ask_or_wait(wait, &id, ask, |asked| *asked == "another runs")
            .await
            .unwrap();
        assert_eq!(claimed, "claimed");
        assert!(since <= asked.lock().unwrap()[1]);
    }

    #[test]
    fn retry_after_grows_with_the_run_and_stays_within_the_lease() {
        let lease = Duration::from_secs(30);
        assert_eq!(retry_after(Duration::ZERO, lease), Duration::from_secs(1));
        assert_eq!(
            retry_after(Duration::from_secs(7), lease),
            Duration::from_secs(7)
        );
        assert_eq!(retry_after(Duration::from_secs(90), lease), lease);
        let short = Duration::from_millis(200);
        assert_eq!(
            retry_after(Duration::from_secs(5), short),
            Duration::from_secs(1)
        );
    }
}
