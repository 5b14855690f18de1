//! For tests: the suite that states what a store must do, and stores that count, or fail on cue
//! (feature `testing`).

pub mod conformance;
mod counting;
mod faults;

pub use counting::CountingStore;
pub use faults::{Fault, FaultStore, Occasion};

/// A method of [`Store`](crate::store::Store) that reaches the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// [`Store::claim`](crate::store::Store::claim)
    Claim,
    /// [`Store::renew`](crate::store::Store::renew)
    Renew,
    /// [`Store::complete`](crate::store::Store::complete)
    Complete,
    /// [`Store::release`](crate::store::Store::release)
    Release,
    /// [`Store::save_steps`](crate::store::Store::save_steps)
    SaveSteps,
    /// [`Store::take_abandoned`](crate::store::Store::take_abandoned)
    TakeAbandoned,
    /// [`Store::purge_expired`](crate::store::Store::purge_expired)
    PurgeExpired,
    /// [`Store::get`](crate::store::Store::get)
    Get,
    /// [`Store::list`](crate::store::Store::list)
    List,
    /// [`Store::forget`](crate::store::Store::forget)
    Forget,
}

impl Method {
    /// Every method.
    pub const ALL: [Method; 10] = [
        Method::Claim,
        Method::Renew,
        Method::Complete,
        Method::Release,
        Method::SaveSteps,
        Method::TakeAbandoned,
        Method::PurgeExpired,
        Method::Get,
        Method::List,
        Method::Forget,
    ];
}

/// Implements [`Store`](crate::store::Store) for a wrapper with the fields `inner`, by handing each
/// call to the wrapper's `around(method, call)`.
macro_rules! delegate_store {
    ($wrapper:ident) => {
        #[async_trait::async_trait]
        impl $crate::store::Store for $wrapper {
            async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
                self.around(Method::Claim, self.inner.claim(claim)).await
            }
            async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, StoreError> {
                self.around(Method::Renew, self.inner.renew(renewals)).await
            }
            async fn complete(
                &self,
                id: &RecordId,
                owner: Uuid,
                answer: &Answer,
            ) -> Result<(), StoreError> {
                self.around(Method::Complete, self.inner.complete(id, owner, answer))
                    .await
            }
            async fn release(&self, id: &RecordId, owner: Uuid) -> Result<(), StoreError> {
                self.around(Method::Release, self.inner.release(id, owner))
                    .await
            }
            async fn save_steps(
                &self,
                id: &RecordId,
                owner: Uuid,
                steps: &Bytes,
            ) -> Result<(), StoreError> {
                self.around(Method::SaveSteps, self.inner.save_steps(id, owner, steps))
                    .await
            }
            async fn take_abandoned(
                &self,
                query: &AbandonedQuery,
            ) -> Result<Vec<Record>, StoreError> {
                self.around(Method::TakeAbandoned, self.inner.take_abandoned(query))
                    .await
            }
            async fn purge_expired(&self, limit: u32) -> Result<u64, StoreError> {
                self.around(Method::PurgeExpired, self.inner.purge_expired(limit))
                    .await
            }
            async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
                self.around(Method::Get, self.inner.get(id)).await
            }
            async fn list(&self, query: &ListQuery) -> Result<Vec<Record>, StoreError> {
                self.around(Method::List, self.inner.list(query)).await
            }
            async fn forget(&self, id: &RecordId) -> Result<bool, StoreError> {
                self.around(Method::Forget, self.inner.forget(id)).await
            }
            async fn changed(&self, id: &RecordId) {
                self.inner.changed(id).await
            }
            fn name(&self) -> &'static str {
                self.inner.name()
            }
            fn needs_purging(&self) -> bool {
                self.inner.needs_purging()
            }
        }
    };
}
use delegate_store;
