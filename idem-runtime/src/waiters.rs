//! Duplicates of this process that wait for a running request.

use crate::record::RecordId;
use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// Who waits for which record, by whatever names one.
#[derive(Debug)]
pub(crate) struct Waiters<K = RecordId>(Mutex<HashMap<K, watch::Sender<()>>>);

/// One waiter, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiter<K: Eq + Hash = RecordId> {
    waiters: Arc<Waiters<K>>,
    id: K,
    settled: watch::Receiver<()>,
}

impl<K> Default for Waiters<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Waiters<K> {
    /// All records that somebody waits for.
    #[cfg(feature = "redis")]
    pub(crate) fn all(&self) -> std::collections::HashSet<K> {
        self.map().keys().cloned().collect()
    }

    pub(crate) fn wait_for(self: &Arc<Self>, id: &K) -> Waiter<K> {
        let settled = self
            .map()
            .entry(id.clone())
            .or_insert_with(|| watch::channel(()).0)
            .subscribe();
        Waiter {
            waiters: Arc::clone(self),
            id: id.clone(),
            settled,
        }
    }
}

impl<K: Eq + Hash> Waiters<K> {
    fn map(&self) -> MutexGuard<'_, HashMap<K, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everybody who waits for a record that it was finished or freed.
    pub(crate) fn settled<Q>(&self, id: &Q)
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if let Some(sender) = self.map().get(id) {
            sender.send_replace(());
        }
    }

    /// Whether anybody waits for a record.
    #[cfg(feature = "postgres")]
    pub(crate) fn waits_for(&self, id: &K) -> bool {
        self.map().contains_key(id)
    }

    /// Whether nobody waits for anything.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.map().is_empty()
    }
}

impl<K: Eq + Hash> Waiter<K> {
    /// Resolves if the record was settled since this was last called, or as soon as it is.
    pub(crate) async fn settled(&mut self) {
        if self.settled.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl<K: Eq + Hash> Drop for Waiter<K> {
    fn drop(&mut self) {
        let mut map = self.waiters.map();
        // This waiter's own receiver still counts.
        if map
            .get(&self.id)
            .is_some_and(|sender| sender.receiver_count() <= 1)
        {
            map.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_waiter_is_told_once_and_leaves_nothing_behind() {
        let waiters: Arc<Waiters> = Arc::default();
        let (id, other) = (RecordId::new("a", "k", "p"), RecordId::new("a", "l", "p"));
        let mut first = waiters.wait_for(&id);
        let mut second = waiters.wait_for(&id);
        waiters.settled(&other);
        waiters.settled(&id);
        first.settled().await;
        second.settled().await;
        let again = tokio::time::timeout(std::time::Duration::from_millis(10), first.settled());
        assert!(again.await.is_err(), "one settlement is told once");
        drop((first, second));
        assert!(waiters.map().is_empty());
    }
}
