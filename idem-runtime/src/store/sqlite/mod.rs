//! A store in a SQLite file.

mod connection;
mod job;
mod operations;
mod reader;
mod row;
mod transaction;
mod writer;

use crate::{
    record::{Answer, Record, RecordId},
    store::{AbandonedQuery, Claim, Claimed, ListQuery, Renewal, Renewed, Store, StoreError},
};
use async_trait::async_trait;
use bytes::Bytes;
use connection::Database;
pub(super) use connection::is_busy_code;
use job::{Job, Operation, Queued};
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
};
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

/// Calls that may wait for the file; further ones wait for their place.
const QUEUE: usize = 1024;

/// Records kept in a SQLite file, which may be the one that the application keeps its own data in.
///
/// The file is in WAL mode and a record is on the disk before a call answers (`synchronous =
/// FULL`): it survives `kill -9` and a power cut. Calls that wait at the same time share one
/// transaction and so one fsync. Calls that write nothing, such as replays, neither take SQLite's
/// write lock nor wait for it.
///
/// A call waits for its turn when the application writes to the same file, as long as the engine
/// lets it; it never answers `database is locked`. Several processes of one machine may share a
/// file. A network file system is no place for one: SQLite's locks cannot be relied on there.
///
/// A transactional route has the write lock from its claim to its commit, for as long as its handler
/// takes. Transactions of one process take turns; whoever else wants to write waits, within its time
/// budget. A duplicate from another process does so too, where it would be told 409 at once on a
/// database server, and nothing ends the transaction of a process that is only stopped.
///
/// The clock is the machine's, read inside SQLite.
///
/// A clone is another handle on the same connections. They are served by a thread of the store's
/// own and not by the runtime that it was made on, so that it can be used from any runtime; they
/// are closed when the last handle is dropped, or with [`SqliteStore::close`].
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    /// For transactions, which have a connection of their own.
    turn: SqlitePool,
    lanes: Mutex<Option<Lanes>>,
    /// Closed when the thread has ended.
    ended: watch::Receiver<()>,
}

/// The ways to the two connections.
#[derive(Clone)]
struct Lanes {
    reads: mpsc::Sender<Box<dyn Job>>,
    writes: mpsc::Sender<Box<dyn Job>>,
}

impl SqliteStore {
    /// The schema, with comments, for an application's own migrations.
    pub const SCHEMA: &str = include_str!("schema.sql");

    /// Opens a file, creates it if there is none, and applies the schema.
    ///
    /// It takes a URL, `sqlite:orders.db` or `sqlite:///var/lib/shop/orders.db`, or a plain path.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if the file cannot be opened or written, is no database, or is
    /// in memory: a database in memory is lost with its connection; take a
    /// [`MemoryStore`](super::MemoryStore) for that.
    pub async fn connect(database: &str) -> Result<Self, StoreError> {
        let options = connection::options(database)?.create_if_missing(true);
        let store = Self::open(options).await?;
        store.migrate().await?;
        Ok(store)
    }

    /// Uses the file of a pool of the application's, over connections of the store's own that are
    /// opened with the pool's options. The schema is not applied: either the application's
    /// migrations contain it ([`SqliteStore::SCHEMA`]), or call [`SqliteStore::migrate`].
    ///
    /// The file is put into WAL mode if it is not. A pool whose options name another journal mode
    /// would try to undo that with every connection it opens, and fail: leave it unset, or name WAL.
    ///
    /// # Errors
    ///
    /// As [`SqliteStore::connect`].
    pub async fn from_pool(pool: SqlitePool) -> Result<Self, StoreError> {
        Self::open(SqliteConnectOptions::clone(&pool.connect_options())).await
    }

    /// Applies the schema where it is missing. Any number of processes may do so at once.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if the file cannot be written.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.write(operations::Migrate).await
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Closes the connections once the calls under way are done. Every later call, also over other
    /// handles, is [`StoreError::Unavailable`].
    pub async fn close(&self) {
        drop(self.lanes().take());
        self.shared.turn.close().await;
        let mut ended = self.shared.ended.clone();
        // It only ever changes by being closed.
        while ended.changed().await.is_ok() {}
    }

    async fn open(options: SqliteConnectOptions) -> Result<Self, StoreError> {
        let path = options.get_filename().to_path_buf();
        let database = Database::new(options);
        let turn = transaction::turn(database.writer_options());
        let (reads, reads_queue) = mpsc::channel(QUEUE);
        let (writes, writes_queue) = mpsc::channel(QUEUE);
        let (opened, outcome) = oneshot::channel();
        let (running, ended) = watch::channel(());
        thread::Builder::new()
            .name("idem-sqlite".to_owned())
            .spawn(move || {
                serve(database, reads_queue, writes_queue, opened);
                drop(running);
            })
            .map_err(|error| StoreError::unavailable("starting the store's thread", error))?;
        outcome.await.unwrap_or_else(|_| Err(gone()))?;
        Ok(Self {
            shared: Arc::new(Shared {
                path,
                turn,
                lanes: Mutex::new(Some(Lanes { reads, writes })),
                ended,
            }),
        })
    }

    fn lanes(&self) -> std::sync::MutexGuard<'_, Option<Lanes>> {
        self.shared
            .lanes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn read<O: Operation>(&self, operation: O) -> Result<O::Output, StoreError> {
        self.call(operation, |lanes| &lanes.reads).await
    }

    async fn write<O: Operation>(&self, operation: O) -> Result<O::Output, StoreError> {
        self.call(operation, |lanes| &lanes.writes).await
    }

    async fn call<O: Operation>(
        &self,
        operation: O,
        lane: impl Fn(&Lanes) -> &mpsc::Sender<Box<dyn Job>>,
    ) -> Result<O::Output, StoreError> {
        let lane = self.lanes().as_ref().map(|lanes| lane(lanes).clone());
        let lane = lane.ok_or_else(gone)?;
        let (job, answer) = Queued::new(operation);
        lane.send(Box::new(job)).await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// What a call is answered when nobody serves it any more.
fn gone() -> StoreError {
    StoreError::Unavailable {
        context: "the SQLite store is closed".to_owned(),
        source: None,
    }
}

/// The store's thread: two connections, served until the last handle is dropped.
fn serve(
    database: Database,
    reads: mpsc::Receiver<Box<dyn Job>>,
    writes: mpsc::Receiver<Box<dyn Job>>,
    opened: oneshot::Sender<Result<(), StoreError>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let error = StoreError::unavailable("starting the store's runtime", error);
            // Nobody waits for the outcome any more: then there is nobody to tell.
            let _ = opened.send(Err(error));
            return;
        }
    };
    runtime.block_on(async move {
        // The writer first: it is the one that creates the file and puts it into WAL mode.
        let connections = async {
            let writer = database.open_writer().await?;
            let reader = database.open_reader().await?;
            Ok((writer, reader))
        };
        match connections.await {
            Ok((writer, reader)) => {
                if opened.send(Ok(())).is_ok() {
                    let (writer, reader) = tokio::join!(
                        writer::run(&database, writer, writes),
                        reader::run(&database, reader, reads),
                    );
                    // One after the other: SQLite tidies up after the last connection, which two
                    // that close at the same time both are not.
                    for connection in [reader, writer].into_iter().flatten() {
                        connection::close(connection).await;
                    }
                }
            }
            Err(error) => {
                let _ = opened.send(Err(error));
            }
        }
    });
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.shared.path)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        // What stands there, and is to be left standing, is answered without the write lock. What
        // looks free here is decided by the writer, from the beginning.
        match self.read(operations::Look(claim.clone())).await? {
            Some(claimed) => Ok(claimed),
            None => self.write(operations::Take(claim.clone())).await,
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, StoreError> {
        if renewals.is_empty() {
            return Ok(Vec::new());
        }
        self.write(operations::Renew(renewals.to_vec())).await
    }

    async fn complete(
        &self,
        id: &RecordId,
        owner: Uuid,
        answer: &Answer,
    ) -> Result<(), StoreError> {
        let complete = operations::Complete {
            id: id.clone(),
            owner,
            answer: answer.clone(),
        };
        self.write(complete).await
    }

    async fn release(&self, id: &RecordId, owner: Uuid) -> Result<(), StoreError> {
        let id = id.clone();
        self.write(operations::Release { id, owner }).await
    }

    async fn save_steps(
        &self,
        id: &RecordId,
        owner: Uuid,
        steps: &Bytes,
    ) -> Result<(), StoreError> {
        let save = operations::SaveSteps {
            id: id.clone(),
            owner,
            steps: steps.clone(),
        };
        self.write(save).await
    }

    async fn take_abandoned(&self, query: &AbandonedQuery) -> Result<Vec<Record>, StoreError> {
        self.write(operations::TakeAbandoned(query.clone())).await
    }

    async fn purge_expired(&self, limit: u32) -> Result<u64, StoreError> {
        self.write(operations::Purge(limit)).await
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        self.read(operations::Get(id.clone())).await
    }

    /// In the order of the identities' bytes: scope, key, path.
    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>, StoreError> {
        self.read(operations::List(query.clone())).await
    }

    async fn forget(&self, id: &RecordId) -> Result<bool, StoreError> {
        self.write(operations::Forget(id.clone())).await
    }

    fn name(&self) -> &'static str {
        "sqlite"
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{job::Trouble, *};
    use sqlx::SqliteConnection;

    /// Finds its connection broken, having done something to it first.
    struct Break(&'static str);

    #[async_trait]
    impl Operation for Break {
        type Output = ();
        const CONTEXT: &'static str = "breaking the connection";

        async fn carry_out(&self, connection: &mut SqliteConnection) -> Result<(), Trouble> {
            sqlx::raw_sql(self.0).execute(connection).await?;
            Err(Trouble::Connection(sqlx::Error::WorkerCrashed))
        }
    }

    #[tokio::test]
    async fn both_connections_recover() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("test.db");
        let store = SqliteStore::connect(path.to_str().unwrap()).await.unwrap();
        let id = RecordId::new("alice", "k", "POST /orders");
        // Inside its transaction, and with the transaction gone.
        for damage in ["SELECT 1", "COMMIT", "ROLLBACK"] {
            for broken in [
                store.write(Break(damage)).await,
                store.read(Break("SELECT 1")).await,
            ] {
                let error = broken.unwrap_err().to_string();
                assert!(error.contains(Break::CONTEXT), "{error}");
            }
            assert!(!store.forget(&id).await.unwrap());
            assert!(store.get(&id).await.unwrap().is_none());
        }
    }
}
