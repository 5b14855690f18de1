//! Attempts at work in this process whose records its own reconciler may meet.
//!
//! While the store is away, leases run out though their owners are alive. When it is back, the reconciler
//! may take such a record before its owner has renewed the lease. Nobody needs to be asked about an
//! attempt that is still at work here: it saves its outcome under the reconciler's fencing token.

use crate::record::RecordId;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};
use uuid::Uuid;

/// The attempts by their records.
#[derive(Debug, Default)]
pub(crate) struct AtWork(Mutex<HashMap<RecordId, Weak<Working>>>);

/// An attempt that is at work, or whose outcome is on the way to the store, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Working {
    all: Weak<AtWork>,
    id: RecordId,
    retaken: Mutex<Option<Uuid>>,
}

impl AtWork {
    fn map(&self) -> MutexGuard<'_, HashMap<RecordId, Weak<Working>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(self: &Arc<Self>, id: &RecordId) -> Arc<Working> {
        let working = Arc::new(Working {
            all: Arc::downgrade(self),
            id: id.clone(),
            retaken: Mutex::default(),
        });
        self.map().insert(id.clone(), Arc::downgrade(&working));
        working
    }

    /// Hands a record that was taken with this fencing token to the attempt that is at work on it.
    /// False if there is none.
    pub(crate) fn retake(&self, id: &RecordId, token: Uuid) -> bool {
        // In a statement of its own: what is dropped last wants the map's lock.
        let working = self.map().get(id).and_then(Weak::upgrade);
        working.is_some_and(|working| {
            *working.token() = Some(token);
            true
        })
    }
}

impl Working {
    fn token(&self) -> MutexGuard<'_, Option<Uuid>> {
        self.retaken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fencing token under which the record has been handed back.
    pub(crate) fn retaken(&self) -> Option<Uuid> {
        *self.token()
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some(all) = self.all.upgrade() {
            let mut map = all.map();
            // Another attempt at the same operation may have entered meanwhile.
            if map.get(&self.id).is_some_and(|own| own.strong_count() == 0) {
                map.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_handed_to_the_attempt_that_is_at_work_and_to_no_other() {
        let all = Arc::new(AtWork::default());
        let (id, other) = (RecordId::new("a", "k", "p"), RecordId::new("a", "l", "p"));
        let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
        let working = all.enter(&id);
        assert!(!all.retake(&other, first));
        assert!(all.retake(&id, first) && all.retake(&id, second));
        assert_eq!(working.retaken(), Some(second));
        let next = all.enter(&id);
        drop(working);
        assert!(all.retake(&id, first), "the next attempt stays");
        drop(next);
        assert!(!all.retake(&id, first));
        assert!(all.map().is_empty());
    }
}
