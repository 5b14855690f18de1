//! Duplicates that wait for a running request of the same process.

use crate::record::RecordId;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// Who waits for which record.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<HashMap<RecordId, watch::Sender<()>>>);

/// One waiter, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    waiters: Arc<Waiters>,
    id: RecordId,
    settled: watch::Receiver<()>,
}

impl Waiters {
    fn map(&self) -> MutexGuard<'_, HashMap<RecordId, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait_for(self: &Arc<Self>, id: &RecordId) -> Waiter {
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

    /// Tells everybody who waits for a record that it was finished or freed.
    pub(crate) fn settled(&self, id: &RecordId) {
        if let Some(sender) = self.map().get(id) {
            sender.send_replace(());
        }
    }
}

impl Waiter {
    /// Resolves if the record was settled since this was last called, or as soon as it is.
    pub(crate) async fn settled(&mut self) {
        if self.settled.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Waiter {
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
        let waiters = Arc::new(Waiters::default());
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
