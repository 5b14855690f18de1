//! Finishing in the background what the store could not take at once.
//!
//! Two things must not be left to the end of a lease: an answer that was sent but not saved, and a
//! claim that may have been made although the store's answer got lost, so that nobody runs it.

use crate::{
    at_work::Working,
    drain::InFlight,
    engine::error_chain,
    fail_points::point,
    record::{Answer, RecordId},
    store::{Claim, Claimed, Renewal, Store, StoreError},
};
use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};
use tokio::{runtime::Handle, sync::Semaphore, time::Instant};
use uuid::Uuid;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Answers and claims that may wait for an unreachable store at one time: what bounds the memory
/// that an outage can take.
const MOST_AT_ONCE: usize = 10_000;
/// Calls under way at one time: a store that comes back must not be flooded.
const CALLS: usize = 8;

/// What is to be done as soon as the store can be reached.
#[derive(Debug)]
pub(crate) enum Repair {
    /// Save this answer, anew if its claim is gone and it may be.
    Complete(Answer, Option<Box<Anew>>),
    /// Save this answer, whose claim is gone.
    Anew(Answer, Box<Anew>),
    /// Free the key of a finished attempt.
    Release,
    /// Free the key if the claim was made after all.
    ReleaseUncertain,
}

/// How the answer of an attempt is saved whose claim is gone: it was freed behind an owner that was
/// taken for dead, or the store has lost its record. What the attempt has done is then what there is to
/// be replayed, if nobody has the key.
#[derive(Debug)]
pub(crate) struct Anew {
    /// The claim that it is saved under, the same each time it is tried.
    pub(crate) claim: Claim,
    /// The attempt, where the reconciler of its own process may have taken its record.
    pub(crate) working: Option<Arc<Working>>,
    /// The end of the life that the record would have had. What was saved under the key by another
    /// attempt meanwhile lives longer: until then it stands in the way of this one.
    pub(crate) until: Instant,
}

/// What the store says of a repair.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// Not yet: another holds the key, who may yet free it.
    Held,
}

impl Anew {
    /// # Errors
    ///
    /// [`StoreError::LeaseLost`] if another attempt has finished, or it is too late. Otherwise it is not
    /// known, and can be tried again.
    pub(crate) async fn save(
        &self,
        answer: &Answer,
        store: &dyn Store,
        budget: Duration,
    ) -> Result<Outcome, StoreError> {
        let ttl = self.until.saturating_duration_since(Instant::now());
        if ttl.is_zero() {
            return Err(StoreError::LeaseLost);
        }
        if let Some(token) = self.working.as_ref().and_then(|working| working.retaken()) {
            match within(budget, store.complete(&self.claim.id, token, answer)).await {
                Err(StoreError::LeaseLost) => {}
                saved => return saved.map(|()| Outcome::Done),
            }
        }
        let claim = Claim {
            ttl,
            ..self.claim.clone()
        };
        let claimed = within(budget, store.claim(&claim)).await?;
        match &claimed {
            // What stands there may be its own: saved by an earlier try, whose answer got lost.
            Claimed::Standing(record) if record.owner == claim.owner => {}
            Claimed::Standing(record)
                if claim.accepts(&record.fingerprint) && record.is_running() =>
            {
                return Ok(Outcome::Held);
            }
            Claimed::Standing(_) => return Err(StoreError::LeaseLost),
            Claimed::Won { .. } => {}
        }
        within(budget, store.complete(&claim.id, claim.owner, answer)).await?;
        tracing::warn!(
            record = %claim.id.digest(),
            path = claim.id.request_path(),
            "lease lost: the key had been freed, and the outcome of its first attempt was saved anew"
        );
        Ok(Outcome::Done)
    }
}

/// Runs repairs.
#[derive(Debug)]
pub(crate) struct Repairs {
    store: Arc<dyn Store>,
    runtime: Handle,
    in_flight: Arc<InFlight>,
    waiting: Arc<AtomicUsize>,
    calls: Arc<Semaphore>,
    call_budget: Duration,
}

impl Repairs {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        runtime: Handle,
        in_flight: Arc<InFlight>,
        call_budget: Duration,
    ) -> Repairs {
        Repairs {
            store,
            runtime,
            in_flight,
            waiting: Arc::default(),
            calls: Arc::new(Semaphore::new(CALLS)),
            call_budget,
        }
    }

    /// Repeats `repair` until it is done, refused, or `patience` has passed. `keep` is held as long.
    pub(crate) fn start<K: Send + 'static>(
        &self,
        id: RecordId,
        owner: Uuid,
        repair: Repair,
        patience: Duration,
        keep: K,
    ) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MOST_AT_ONCE {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            tracing::error!(record = %id.digest(), "given up: too many records wait for the store");
            return;
        }
        let (store, waiting) = (Arc::clone(&self.store), Arc::clone(&self.waiting));
        let (ticket, budget) = (self.in_flight.enter_always(), self.call_budget);
        let calls = Arc::clone(&self.calls);
        self.runtime.spawn(async move {
            run(&*store, &calls, &id, owner, repair, patience, budget).await;
            waiting.fetch_sub(1, Ordering::Relaxed);
            drop((ticket, keep));
        });
    }
}

/// Frees the key of a claim that may have been made and whose handler is not run. What it has taken
/// over keeps its count of attempts and the results of their steps: of that only the lease is ended.
///
/// # Errors
///
/// [`StoreError::LeaseLost`] if no such claim stands. Otherwise it is not known, and can be tried again.
async fn release_uncertain(
    store: &dyn Store,
    id: &RecordId,
    owner: Uuid,
    budget: Duration,
) -> Result<Outcome, StoreError> {
    let ended = async {
        match store.get(id).await? {
            Some(record) if record.owner != owner => Err(StoreError::LeaseLost),
            None => Err(StoreError::LeaseLost),
            Some(record) if record.attempt == 1 => store.release(id, owner).await,
            Some(_) => {
                let end = Renewal {
                    id: id.clone(),
                    owner,
                    lease: Duration::ZERO,
                };
                // One that is taken over already has ended, too.
                store.renew(&[end]).await.map(drop)
            }
        }
    };
    within(budget, ended).await.map(|()| Outcome::Done)
}

async fn run(
    store: &dyn Store,
    calls: &Semaphore,
    id: &RecordId,
    owner: Uuid,
    mut repair: Repair,
    patience: Duration,
    budget: Duration,
) {
    let deadline = Instant::now() + patience;
    let mut pause = FIRST_PAUSE;
    // A claim that was sent before may still be on its way when the store answers again: being
    // absent once does not mean that it will not stand there a moment later.
    let mut absences_left = if matches!(repair, Repair::ReleaseUncertain) {
        2
    } else {
        0
    };
    loop {
        point!("repair.pause", tokio::time::sleep(pause)).await;
        // The semaphore is never closed; if it were, there would only be no limit.
        let permit = point!("repair.permit", calls.acquire()).await;
        let call = async {
            let done = match &repair {
                Repair::Complete(answer, _) => store.complete(id, owner, answer),
                Repair::Anew(answer, anew) => return anew.save(answer, store, budget).await,
                Repair::Release => store.release(id, owner),
                Repair::ReleaseUncertain => {
                    return release_uncertain(store, id, owner, budget).await;
                }
            };
            within(budget, done).await.map(|()| Outcome::Done)
        };
        let outcome = point!("repair.call", call).await;
        drop(permit);
        match outcome {
            Ok(Outcome::Done) => {
                tracing::info!(record = %id.digest(), "record repaired: the store is back");
                return;
            }
            Ok(Outcome::Held) => {}
            Err(StoreError::LeaseLost) if absences_left > 0 => absences_left -= 1,
            Err(StoreError::LeaseLost) => match repair {
                Repair::Complete(answer, Some(anew)) => {
                    repair = Repair::Anew(answer, anew);
                    // At once: who asks for the key before would run.
                    pause = Duration::ZERO;
                    continue;
                }
                Repair::Complete(..) | Repair::Anew(..) => {
                    tracing::error!(
                        record = %id.digest(),
                        "lease lost: an answer that was sent could not be saved"
                    );
                    return;
                }
                Repair::Release | Repair::ReleaseUncertain => return,
            },
            Err(error) if Instant::now() >= deadline => {
                tracing::error!(
                    record = %id.digest(),
                    error = error_chain(&error),
                    "given up: a record could not be repaired"
                );
                return;
            }
            Err(_) => {}
        }
        pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    }
}

/// A store call within its time budget.
pub(crate) async fn within<T>(
    budget: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut call = pin!(call);
    // A store that answers at once, as one in memory does, needs no timer.
    if let Poll::Ready(answer) = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await {
        return answer;
    }
    tokio::time::timeout(budget, call)
        .await
        .unwrap_or_else(|_| {
            Err(StoreError::Unavailable {
                context: format!("no answer within {budget:?}"),
                source: None,
            })
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::unwrap_used)]
    use super::*;
    use crate::store::{MemoryStore, Takeover};

    const BUDGET: Duration = Duration::from_secs(1);

    fn anew(until: Instant) -> Anew {
        Anew {
            claim: Claim {
                id: RecordId::new("user", "k", "POST /orders"),
                fingerprint: "0".repeat(64),
                also_accepted: None,
                route: "POST /orders shop::create".to_owned(),
                owner: Uuid::new_v4(),
                ttl: Duration::from_secs(3600),
                lease: Duration::from_secs(60),
                takeover: Takeover::Never,
            },
            working: None,
            until,
        }
    }

    #[tokio::test]
    async fn a_takeover_that_nobody_runs_leaves_what_earlier_attempts_have_saved() {
        let store = MemoryStore::new();
        let claim = |lease| Claim {
            owner: Uuid::new_v4(),
            lease: Duration::from_millis(lease),
            takeover: Takeover::Abandoned,
            ..anew(Instant::now()).claim
        };
        let first = claim(5);
        let id = &first.id;
        store.claim(&first).await.unwrap();
        let steps = bytes::Bytes::from_static(b"charged");
        store.save_steps(id, first.owner, &steps).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        let second = claim(60_000);
        store.claim(&second).await.unwrap();
        let released = release_uncertain(&store, id, second.owner, BUDGET).await;
        assert_eq!(released.unwrap(), Outcome::Done);
        match store.claim(&claim(60_000)).await.unwrap() {
            Claimed::Won { attempt, steps: of } => assert_eq!((attempt, of), (3, Some(steps))),
            other => panic!("{other:?}"),
        }
        let released = release_uncertain(&store, id, second.owner, BUDGET).await;
        assert!(matches!(released, Err(StoreError::LeaseLost)), "another's");
    }

    #[tokio::test]
    async fn who_holds_the_key_may_free_it_and_who_has_finished_does_not() {
        let store = MemoryStore::new();
        let answer = Answer::Tombstone { code: 201 };
        let anew = anew(Instant::now() + Duration::from_secs(600));
        let other = Claim {
            owner: Uuid::new_v4(),
            ..anew.claim.clone()
        };
        store.claim(&other).await.unwrap();
        let held = anew.save(&answer, &store, BUDGET).await.unwrap();
        assert_eq!(held, Outcome::Held);
        let theirs = Answer::Tombstone { code: 202 };
        store
            .complete(&other.id, other.owner, &theirs)
            .await
            .unwrap();
        let refused = anew.save(&answer, &store, BUDGET).await;
        assert!(matches!(refused, Err(StoreError::LeaseLost)), "{refused:?}");
    }

    #[tokio::test]
    async fn what_is_saved_anew_lives_no_longer_than_its_record_would_have() {
        let store = MemoryStore::new();
        let answer = Answer::Tombstone { code: 201 };
        let late = anew(Instant::now());
        let refused = late.save(&answer, &store, BUDGET).await;
        assert!(matches!(refused, Err(StoreError::LeaseLost)), "{refused:?}");
        assert!(store.get(&late.claim.id).await.unwrap().is_none());

        let left = Duration::from_secs(600);
        let anew = anew(Instant::now() + left);
        anew.save(&answer, &store, BUDGET).await.unwrap();
        // Once more, as after an answer that got lost.
        anew.save(&answer, &store, BUDGET).await.unwrap();
        let record = store.get(&anew.claim.id).await.unwrap().unwrap();
        assert_eq!(record.owner, anew.claim.owner);
        assert!(record.expires_at.since(record.created_at) <= left);
    }
}
