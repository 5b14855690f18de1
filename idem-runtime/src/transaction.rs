//! Transactional routes: what a request meets where claim, business writes and answer are one
//! commit.

use crate::{
    engine::{Decision, Engine, Request, error_chain, judge, may_wait},
    fail_points::point,
    policy::EffectivePolicy,
    problem::{Problem, ProblemKind},
    record::{Answer, Record, RecordId},
    repair::within,
    store::{Begun, Claim, Connection, OpenTransaction, StoreError, Takeover},
};
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Transactional requests that run in this process, with their fingerprints: a duplicate of one of
/// them is answered without a connection of its own, and a reused key recognised although the
/// record is not visible yet.
#[derive(Debug, Default)]
pub(crate) struct RunningTransactions(Mutex<HashMap<RecordId, String>>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    all: Arc<RunningTransactions>,
    id: RecordId,
}

impl RunningTransactions {
    fn map(&self) -> MutexGuard<'_, HashMap<RecordId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a request, or tells the fingerprint of the one that runs under its identity.
    fn enter(self: &Arc<Self>, claim: &Claim) -> Result<Running, String> {
        match self.map().entry(claim.id.clone()) {
            Entry::Occupied(running) => Err(running.get().clone()),
            Entry::Vacant(vacant) => {
                vacant.insert(claim.fingerprint.clone());
                Ok(Running {
                    all: Arc::clone(self),
                    id: claim.id.clone(),
                })
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.all.map().remove(&self.id);
    }
}

/// What is to be done with a request on a transactional route.
pub(crate) enum TransactionDecision<C> {
    /// It owns the key: run the handler on this.
    Run(ClaimedTransaction<C>),
    /// The handler does not run.
    Otherwise(Decision),
}

/// An open transaction that has claimed the key.
pub(crate) struct ClaimedTransaction<C> {
    pub(crate) transaction: Box<dyn OpenTransaction<C>>,
    pub(crate) settlement: Settlement,
    pub(crate) attempt: u32,
}

/// What is left of a claimed transaction while the handler works on it.
pub(crate) struct Settlement {
    engine: Arc<Engine>,
    id: RecordId,
    running: Running,
}

enum Asked<C> {
    Won {
        transaction: Box<dyn OpenTransaction<C>>,
        attempt: u32,
        running: Running,
    },
    Running,
    Reused,
    Standing(Box<Record>),
}

impl Engine {
    /// Opens a transaction that claims the key of `request`, or decides how it is answered without
    /// running.
    pub(crate) async fn begin_transaction<C: Connection>(
        self: &Arc<Self>,
        policy: &EffectivePolicy,
        request: Request,
    ) -> TransactionDecision<C> {
        let claim = request.into_claim(policy, Takeover::Abandoned);
        let asked = self
            .ask_or_wait(
                policy.wait,
                &claim.id,
                async || self.ask_transaction(&claim).await,
                |asked| match asked {
                    Asked::Running => true,
                    Asked::Standing(record) => may_wait(&claim, record),
                    Asked::Won { .. } | Asked::Reused => false,
                },
            )
            .await;
        let decision = match asked {
            Ok((
                Asked::Won {
                    transaction,
                    attempt,
                    running,
                },
                _,
            )) => {
                self.count_won();
                return TransactionDecision::Run(ClaimedTransaction {
                    transaction,
                    attempt,
                    settlement: Settlement {
                        engine: Arc::clone(self),
                        id: claim.id,
                        running,
                    },
                });
            }
            Ok((Asked::Running, _)) => Decision::Refuse(Problem::new(ProblemKind::InProgress)),
            Ok((Asked::Reused, _)) => Decision::Refuse(Problem::key_reused(policy.mismatch)),
            Ok((Asked::Standing(record), _)) => judge(policy, &claim, *record),
            Err(StoreError::Unreadable(error)) => {
                tracing::error!(route = claim.route, "{error}; its handler is not run");
                Decision::Refuse(Problem::new(ProblemKind::RecordUnreadable))
            }
            Err(error) => {
                tracing::warn!(
                    route = claim.route,
                    record = %claim.id.digest(),
                    error = error_chain(&error),
                    "no transaction could be opened for the key"
                );
                Decision::Refuse(Problem::new(ProblemKind::StoreUnavailable))
            }
        };
        TransactionDecision::Otherwise(decision)
    }

    async fn ask_transaction<C: Connection>(&self, claim: &Claim) -> Result<Asked<C>, StoreError> {
        let running = match self.running().enter(claim) {
            Ok(running) => running,
            Err(fingerprint) => {
                return Ok(if claim.accepts(&fingerprint) {
                    Asked::Running
                } else {
                    Asked::Reused
                });
            }
        };
        let store = C::store(&**self.store()).ok_or_else(|| StoreError::Unavailable {
            context: format!("the store is not a {} database", C::DATABASE),
            source: None,
        })?;
        let begun = within(self.call_budget(), store.begin_claimed(claim));
        let begun = point!("transaction.begin", begun).await?;
        Ok(match begun {
            Begun::Won {
                transaction,
                attempt,
            } => Asked::Won {
                transaction,
                attempt,
                running,
            },
            Begun::Running => Asked::Running,
            Begun::Standing(record) => Asked::Standing(record),
        })
    }
}

/// How a transaction ends.
pub(crate) enum Ending {
    /// With everything the handler has written, and its answer.
    Commit(Answer),
    /// Without what the handler has written, but with its answer.
    KeepAnswerOnly(Answer),
    /// As if it had not begun.
    Rollback,
}

/// Ends a transaction.
///
/// # Errors
///
/// The problem to answer with instead of the handler's own response, which must not be sent for
/// what was not committed.
pub(crate) async fn end<C>(
    engine: &Engine,
    transaction: Box<dyn OpenTransaction<C>>,
    ending: Ending,
) -> Result<(), Problem> {
    let budget = engine.call_budget();
    let ended = match ending {
        Ending::Commit(answer) => {
            let committed = within(budget, transaction.commit(&answer));
            point!("transaction.commit", committed).await
        }
        Ending::KeepAnswerOnly(answer) => {
            let kept = within(budget, transaction.keep_answer_only(&answer));
            point!("transaction.keep_answer", kept).await
        }
        Ending::Rollback => within(budget, async {
            point!("transaction.rollback", transaction.rollback()).await;
            Ok(())
        })
        .await
        // Whatever became of the rollback: without a commit there is nothing.
        .or(Ok(())),
    };
    ended.map_err(|error| {
        tracing::error!(
            error = error_chain(&error),
            "a transaction could not be committed"
        );
        // The answer to the commit itself may have got lost.
        match error {
            StoreError::Unavailable { .. } => Problem::new(ProblemKind::StoreUnavailable)
                .with_detail(
                    "It is not known whether the request was committed. Retry with the same key.",
                ),
            _ => not_committed(),
        }
    })
}

/// The answer in place of the handler's own, where nothing was committed and a retry can succeed.
pub(crate) fn not_committed() -> Problem {
    Problem::new(ProblemKind::StoreUnavailable)
        .with_detail("The request was not committed. Retry with the same key.")
}

impl Settlement {
    pub(crate) fn id(&self) -> &RecordId {
        &self.id
    }

    /// Ends the transaction of a claim and tells those who wait for it.
    ///
    /// # Errors
    ///
    /// As [`end`].
    pub(crate) async fn end<C>(
        self,
        transaction: Box<dyn OpenTransaction<C>>,
        ending: Ending,
    ) -> Result<(), Problem> {
        let ended = end(&self.engine, transaction, ending).await;
        self.free();
        ended
    }

    /// The transaction is gone: it was dropped by a panic.
    pub(crate) fn free(self) {
        // First out of the list, then told: whoever is woken must not find it there.
        drop(self.running);
        self.engine.settled(&self.id);
    }
}
