//! What a store must do, whatever engine is underneath.
//!
//! A store reports facts; the engine decides. The semantics are stated here in words and in
//! `idem_runtime::testing::conformance` (feature `testing`) as a suite that every store passes.

mod conflict;
mod memory;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
mod transaction;

pub use memory::MemoryStore;
#[cfg(feature = "mysql")]
pub use mysql::{MySqlStore, MySqlStoreBuilder};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresStore, PostgresStoreBuilder};
#[cfg(feature = "redis")]
pub use redis::RedisStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use transaction::{Begun, Connection, OpenTransaction, TransactionalStore};

pub(crate) use conflict::is_conflict;

use crate::record::{Answer, Record, RecordId, Unreadable};
use async_trait::async_trait;
use bytes::Bytes;
use std::{any::Any, error::Error, fmt, time::Duration};
use uuid::Uuid;

/// A place where records stand.
///
/// Rules that hold for every method:
///
/// - **One clock.** Every comparison with "now" is made by the store's own clock, inside the store.
/// - **One atomic round trip per call.** No method reads and then writes in two steps that another
///   caller can come between.
/// - **Safe to repeat.** A caller whose answer got lost repeats the call with the same fencing
///   token and gets the result that the first call had.
/// - **A record is live** if it has not expired. An expired one is as if it were not there, purged
///   or not. A record whose lease still runs is live even after its TTL: work under way is never
///   started a second time. A moment that has come is over: a TTL or lease of zero is over at once.
/// - **An owner's call for a record that is no longer live** may be a lost lease, or succeed if the
///   record has been neither purged nor taken by another: nobody runs beside it.
/// - Text is compared as bytes.
///
/// A call may be dropped at any await: that must leave the store usable, with the call either
/// carried out or not.
#[async_trait]
pub trait Store: Any + Send + Sync {
    /// Takes the key, or reports the record that stands there.
    ///
    /// The key is taken ([`Claimed::Won`]) if
    ///
    /// - no live record stands there: a new record begins, attempt 1, `created_at` now,
    ///   `expires_at` after [`Claim::ttl`], `locked_until` after [`Claim::lease`];
    /// - the standing record has this claim's own [`Claim::owner`] and is running: the same claim
    ///   was made before and its answer was lost. Nothing changes, the attempt is the standing one;
    /// - [`Claim::takeover`] is [`Takeover::Abandoned`], the standing record is running, its lease
    ///   has run out, its format is this release's and its fingerprint is the claim's (or the
    ///   accepted older one): the record changes its owner, the attempt is counted up, the lease
    ///   starts anew; everything else, `expires_at` and `steps` included, stays.
    ///
    /// Otherwise nothing is written ([`Claimed::Standing`]). Of any number of simultaneous claims
    /// for one key exactly one wins.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if it is not known whether the claim was made,
    /// [`StoreError::Full`] if there is no room, [`StoreError::Unreadable`] if what stands there
    /// cannot be understood.
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError>;

    /// Renews leases: each of them runs for its [`Renewal::lease`] from now. One round trip for all.
    ///
    /// The answers are in the order of the renewals. A lease that has run out but was not taken
    /// over is renewed like any other.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`]; leases may then have been renewed or not.
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, StoreError>;

    /// Finishes a record: status, answer and `completed_at` are written, `steps` dropped. The TTL
    /// is not extended. The record's owner may finish it even after its lease has run out, as long
    /// as nobody has taken it over; repeating a completion changes nothing and succeeds.
    ///
    /// # Errors
    ///
    /// [`StoreError::LeaseLost`] if the record has another owner or is gone;
    /// [`StoreError::Unavailable`] if it is not known whether it was finished;
    /// [`StoreError::Full`] if there is no room for the answer: the record goes on running.
    async fn complete(&self, id: &RecordId, owner: Uuid, answer: &Answer)
    -> Result<(), StoreError>;

    /// Frees the key: the running record is removed.
    ///
    /// # Errors
    ///
    /// [`StoreError::LeaseLost`] if the record has another owner, is finished, or is gone;
    /// [`StoreError::Unavailable`] if it is not known whether it was freed.
    async fn release(&self, id: &RecordId, owner: Uuid) -> Result<(), StoreError>;

    /// Keeps the results of durable steps with a running record, replacing what was kept before.
    ///
    /// # Errors
    ///
    /// As [`Store::release`]; [`StoreError::Full`] if there is no room for them.
    async fn save_steps(&self, id: &RecordId, owner: Uuid, steps: &Bytes)
    -> Result<(), StoreError>;

    /// Takes abandoned records for reconciliation: live, running, lease run out, and of one of the
    /// query's handlers. Each gets the query's owner and lease; the attempt is not counted up.
    /// No record is given to two callers. The oldest lease comes first.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`]. An unreadable record is passed over.
    async fn take_abandoned(&self, query: &AbandonedQuery) -> Result<Vec<Record>, StoreError>;

    /// Removes at most `limit` expired records and says how many were removed. Fewer than `limit`:
    /// nothing is left to remove for now. Records of unknown status or format are removed like any.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`].
    async fn purge_expired(&self, limit: u32) -> Result<u64, StoreError>;

    /// Reads one live record, for the operator.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`], [`StoreError::Unreadable`].
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError>;

    /// Lists live records, or those of [`ListQuery::which`], in an order of the store's own, for the
    /// operator. The answers are read without headers and body where the store can leave them out.
    /// Unreadable records are passed over. Fewer than the limit: there are no more.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`].
    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>, StoreError>;

    /// Removes a record whatever its state, for the operator: the next request with its key runs.
    /// Says whether there was a live one. This also heals an unreadable record.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`].
    async fn forget(&self, id: &RecordId) -> Result<bool, StoreError>;

    /// Resolves when the record may have been finished or freed, by this process or another: a hint
    /// that lets a waiting duplicate look at once. It may come too often, late, or never; whoever
    /// waits also polls. A store without notifications keeps the default, which never resolves.
    async fn changed(&self, _id: &RecordId) {
        std::future::pending().await
    }

    /// Short name of the kind of store, such as `sqlite`, for logs and metrics.
    fn name(&self) -> &'static str;

    /// Whether expired records take up room until [`Store::purge_expired`] is called. False for a
    /// store that removes them by itself.
    fn needs_purging(&self) -> bool {
        true
    }
}

/// A claim: one caller's wish to be the one that runs.
#[derive(Debug, Clone)]
pub struct Claim {
    /// What is claimed.
    pub id: RecordId,
    /// Fingerprint of the request, 64 hexadecimal digits.
    pub fingerprint: String,
    /// An older spelling of the same fingerprint (under the previous HMAC key) that also counts as
    /// equal when a standing record is taken over.
    pub also_accepted: Option<String>,
    /// Route pattern and handler, at most 255 bytes.
    pub route: String,
    /// Fencing token, new for every claim and kept when the same claim is repeated.
    pub owner: Uuid,
    /// How long the record lives, from now if it begins now.
    pub ttl: Duration,
    /// How long the claim stands without renewal.
    pub lease: Duration,
    /// Whether an abandoned record may be taken over.
    pub takeover: Takeover,
}

impl Claim {
    /// Whether a record with this fingerprint is of the same request.
    pub fn accepts(&self, fingerprint: &str) -> bool {
        fingerprint == self.fingerprint || Some(fingerprint) == self.also_accepted.as_deref()
    }
}

/// Whether a claim may take over an abandoned record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Takeover {
    /// Never: report it as it stands.
    Never,
    /// If the lease has run out and the fingerprint is equal.
    Abandoned,
}

/// What became of a claim.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Claimed {
    /// The caller owns the record and runs.
    Won {
        /// How many times the operation has now been started, from 1.
        attempt: u32,
        /// What the attempts before this one kept with [`Store::save_steps`].
        steps: Option<Bytes>,
    },
    /// A live record stands there; it is not the caller's.
    ///
    /// While it runs, a store that would have to ask twice may tell its times up to a second too
    /// early, by bounds for the server's clock; but never that a lease runs that may have run out.
    /// [`Store::get`] is exact.
    Standing(Box<Record>),
}

/// One lease to renew.
#[derive(Debug, Clone)]
pub struct Renewal {
    /// The record.
    pub id: RecordId,
    /// The fencing token it was claimed with.
    pub owner: Uuid,
    /// How long the lease is to run from now; zero ends it.
    pub lease: Duration,
}

/// What became of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewed {
    /// The lease runs on.
    Held,
    /// The record has another owner, is finished, or is gone.
    Lost,
}

/// Which abandoned records to take, see [`Store::take_abandoned`].
#[derive(Debug, Clone)]
pub struct AbandonedQuery {
    /// Names of handlers: the part of [`Record::route`] after the last space.
    pub handlers: Vec<String>,
    /// Fencing token for all that are taken.
    pub owner: Uuid,
    /// Lease for all that are taken.
    pub lease: Duration,
    /// At most so many.
    pub limit: u32,
}

/// Which records to list, see [`Store::list`].
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    /// Start after this record (the last of the page before).
    pub after: Option<RecordId>,
    /// At most so many.
    pub limit: u32,
    /// All of them, or some only.
    pub which: Which,
}

/// A choice among live records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Which {
    /// All of them.
    #[default]
    All,
    /// Those that are running and whose lease has run out.
    Abandoned,
}

/// Why a store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store could not be reached, refused, or did not answer in time. Whether the call was
    /// carried out is not known.
    #[error("the store is unavailable: {context}")]
    Unavailable {
        /// What was being done.
        context: String,
        /// The driver's error.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// There is no room, and nothing that may be removed to make some. Nothing was written.
    #[error("the store is full of running claims")]
    Full,
    /// The caller no longer owns the record: another attempt has taken it over, an operator has
    /// resolved it, or it is gone. Nothing was written.
    #[error("the lease is lost: the record has another owner or is gone")]
    LeaseLost,
    /// The database refused a transaction in favour of another one (serialization failure,
    /// deadlock). It was rolled back; the same request can succeed when it is repeated.
    #[error("the transaction was refused in favour of another one: {context}")]
    Conflict {
        /// What was being done.
        context: String,
        /// The driver's error.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The record cannot be understood.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

impl StoreError {
    /// An [`StoreError::Unavailable`] caused by a driver's error.
    pub fn unavailable(
        context: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        StoreError::Unavailable {
            context: context.into(),
            source: Some(source.into()),
        }
    }
}

impl fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.name())
    }
}
