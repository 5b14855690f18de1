//! A store that counts.

use super::{Method, delegate_store};
use crate::{
    record::{Answer, Record, RecordId},
    store::{AbandonedQuery, Claim, Claimed, ListQuery, Renewal, Renewed, Store, StoreError},
};
use bytes::Bytes;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};
use uuid::Uuid;

/// Counts the calls that reach another store, those that fail included.
///
/// A clone counts together with the original: give one to the application and keep one.
#[derive(Debug, Clone)]
pub struct CountingStore {
    inner: Arc<dyn Store>,
    counts: Arc<Mutex<HashMap<Method, u64>>>,
}

impl CountingStore {
    /// Counts the calls to this store.
    pub fn new(inner: impl Store) -> Self {
        Self::over(Arc::new(inner))
    }

    /// Counts the calls to this store.
    pub fn over(inner: Arc<dyn Store>) -> Self {
        CountingStore {
            inner,
            counts: Arc::default(),
        }
    }

    /// Calls of this method so far.
    pub fn calls(&self, method: Method) -> u64 {
        self.counts().get(&method).copied().unwrap_or(0)
    }

    /// Calls of all methods so far.
    pub fn total(&self) -> u64 {
        self.counts().values().sum()
    }

    /// Calls of all methods but renewal, which goes by time and not by request.
    pub fn total_without_renewals(&self) -> u64 {
        self.total() - self.calls(Method::Renew)
    }

    /// Counts from zero again.
    pub fn reset(&self) {
        self.counts().clear();
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, HashMap<Method, u64>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn around<T>(&self, method: Method, call: impl Future<Output = T>) -> T {
        *self.counts().entry(method).or_default() += 1;
        call.await
    }
}

delegate_store!(CountingStore);
