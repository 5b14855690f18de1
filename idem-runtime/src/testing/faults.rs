//! A store that fails on cue.

use super::{Method, delegate_store};
use crate::{
    record::{Answer, Record, RecordId},
    store::{AbandonedQuery, Claim, Claimed, ListQuery, Renewal, Renewed, Store, StoreError},
};
use bytes::Bytes;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use uuid::Uuid;

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It fails with [`StoreError::Unavailable`] and is not carried out.
    FailBefore,
    /// It is carried out, and its answer is lost: [`StoreError::Unavailable`].
    FailAfter,
    /// It is carried out after so long.
    DelayBefore(Duration),
    /// It is carried out, and answers after so long.
    DelayAfter(Duration),
    /// It is not carried out and never answers.
    HangBefore,
    /// It is carried out and never answers.
    HangAfter,
    /// It is refused with [`StoreError::Full`].
    Full,
}

/// Which calls of a method a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Occasion {
    /// The nth from now, counted from 1, and no other.
    Nth(u64),
    /// The next so many.
    Next(u64),
    /// Every one until [`FaultStore::heal`].
    Always,
}

/// Hands calls to another store, and lets those fail, hang or be late that its script names.
///
/// ```
/// # use idem_runtime::{store::MemoryStore, testing::{Fault, FaultStore, Method, Occasion}};
/// let store = FaultStore::new(MemoryStore::new());
/// store.script(Method::Complete, Occasion::Nth(2), Fault::FailAfter);
/// ```
///
/// A clone has the same script: give one to the application and keep one.
#[derive(Debug, Clone)]
pub struct FaultStore {
    inner: Arc<dyn Store>,
    script: Arc<Mutex<HashMap<Method, Vec<Cue>>>>,
}

#[derive(Debug)]
struct Cue {
    /// Calls to let pass first.
    pass: u64,
    /// Calls to strike after that.
    strike: u64,
    fault: Fault,
}

impl FaultStore {
    /// Hands calls to this store; nothing fails until it is told to.
    pub fn new(inner: impl Store) -> Self {
        Self::over(Arc::new(inner))
    }

    /// The same for a shared store.
    pub fn over(inner: Arc<dyn Store>) -> Self {
        FaultStore {
            inner,
            script: Arc::default(),
        }
    }

    /// Adds a fault to the script of one method. Where several strike the same call, the one that
    /// was added first does.
    pub fn script(&self, method: Method, occasion: Occasion, fault: Fault) {
        let (pass, strike) = match occasion {
            Occasion::Nth(n) => (n.saturating_sub(1), 1),
            Occasion::Next(n) => (0, n),
            Occasion::Always => (0, u64::MAX),
        };
        self.cues().entry(method).or_default().push(Cue {
            pass,
            strike,
            fault,
        });
    }

    /// Adds a fault to the script of every method: an outage.
    pub fn script_all(&self, occasion: Occasion, fault: Fault) {
        for method in Method::ALL {
            self.script(method, occasion, fault);
        }
    }

    /// Forgets the script: from now on nothing fails. Calls that hang go on hanging.
    pub fn heal(&self) {
        self.cues().clear();
    }

    fn cues(&self) -> MutexGuard<'_, HashMap<Method, Vec<Cue>>> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault of the call that is being made, and one call less for every cue.
    fn next_fault(&self, method: Method) -> Option<Fault> {
        let mut script = self.cues();
        let cues = script.get_mut(&method)?;
        let mut struck = None;
        for cue in cues.iter_mut() {
            if cue.pass > 0 {
                cue.pass -= 1;
            } else if cue.strike > 0 {
                cue.strike -= u64::from(cue.strike != u64::MAX);
                struck.get_or_insert(cue.fault);
            }
        }
        cues.retain(|cue| cue.strike > 0);
        struck
    }

    async fn around<T>(
        &self,
        method: Method,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let lost = || {
            Err(StoreError::unavailable(
                format!("{method:?}"),
                "a fault that a test asked for",
            ))
        };
        match self.next_fault(method) {
            None => call.await,
            Some(Fault::FailBefore) => lost(),
            Some(Fault::FailAfter) => {
                // The answer is lost whatever it was.
                let _ = call.await;
                lost()
            }
            Some(Fault::DelayBefore(time)) => {
                tokio::time::sleep(time).await;
                call.await
            }
            Some(Fault::DelayAfter(time)) => {
                let answer = call.await;
                tokio::time::sleep(time).await;
                answer
            }
            Some(Fault::HangBefore) => std::future::pending().await,
            Some(Fault::HangAfter) => {
                let _ = call.await;
                std::future::pending().await
            }
            Some(Fault::Full) => Err(StoreError::Full),
        }
    }
}

delegate_store!(FaultStore);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{store::MemoryStore, testing::CountingStore};

    async fn forget(store: &FaultStore) -> Result<bool, StoreError> {
        store.forget(&RecordId::new("a", "k", "POST /")).await
    }

    #[tokio::test]
    async fn the_script_names_the_calls_that_fail() {
        let counting = CountingStore::new(MemoryStore::new());
        let store = FaultStore::new(counting.clone());
        store.script(Method::Forget, Occasion::Nth(2), Fault::FailBefore);
        store.script(Method::Forget, Occasion::Nth(3), Fault::FailAfter);
        let mut ended = Vec::new();
        for _ in 0..4 {
            ended.push(forget(&store).await.is_ok());
        }
        assert_eq!(ended, [true, false, false, true]);
        assert_eq!(counting.calls(Method::Forget), 3, "one failed before it");

        store.script(Method::Forget, Occasion::Next(2), Fault::Full);
        assert!(store.purge_expired(1).await.is_ok(), "another method");
        assert!(forget(&store).await.is_err() && forget(&store).await.is_err());
        assert!(forget(&store).await.is_ok());

        store.script_all(Occasion::Always, Fault::FailBefore);
        assert!(forget(&store).await.is_err() && store.purge_expired(1).await.is_err());
        store.heal();
        assert!(forget(&store).await.is_ok() && store.purge_expired(1).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn calls_hang_before_or_after_their_effect() {
        let counting = CountingStore::new(MemoryStore::new());
        let store = FaultStore::new(counting.clone());
        for (fault, reached) in [(Fault::HangBefore, 0), (Fault::HangAfter, 1)] {
            counting.reset();
            store.script(Method::Forget, Occasion::Nth(1), fault);
            let patience = Duration::from_secs(3600);
            let ended = tokio::time::timeout(patience, forget(&store)).await;
            assert!(ended.is_err(), "{fault:?} answered");
            assert_eq!(counting.total(), reached, "{fault:?}");
        }
        let start = tokio::time::Instant::now();
        store.script(
            Method::Forget,
            Occasion::Nth(1),
            Fault::DelayBefore(Duration::from_secs(1)),
        );
        store.script(
            Method::Forget,
            Occasion::Nth(2),
            Fault::DelayAfter(Duration::from_secs(1)),
        );
        assert!(forget(&store).await.is_ok() && forget(&store).await.is_ok());
        assert!(start.elapsed() >= Duration::from_secs(2));
    }
}
