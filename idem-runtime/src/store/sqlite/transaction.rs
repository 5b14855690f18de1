//! Transactions that the application writes in, with a claim among its writes.
//!
//! SQLite has one writer at a time: a transaction holds the file's write lock from its begin to its
//! end, so transactions of one process take turns, in the order in which they came.

use super::{
    SqliteStore,
    connection::{PATIENCE, is_busy},
    job::{Operation, Trouble},
    operations::{Complete, Look, Take},
};
use crate::{
    fail_points::point,
    record::{Answer, RecordId},
    store::{
        Begun, Claim, Claimed, Connection, OpenTransaction, Store, StoreError, TransactionalStore,
    },
};
use async_trait::async_trait;
use sqlx::{
    Sqlite, SqliteConnection, SqlitePool, Transaction,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions},
};
use std::{any::Any, time::Instant};
use uuid::Uuid;

/// The connection that transactions take turns on, opened when it is first needed.
pub(super) fn turn(options: SqliteConnectOptions) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(1)
        // The caller's time budget is shorter.
        .acquire_timeout(PATIENCE)
        // Both would need tasks of a runtime that may not outlive the store.
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_lazy_with(options)
}

/// Waits for its turn, and opens a transaction that has the write lock.
async fn begin(turn: &SqlitePool) -> Result<Open, StoreError> {
    let since = Instant::now();
    loop {
        match point!("sqlite.begin", turn.begin_with("BEGIN IMMEDIATE")).await {
            Ok(transaction) => {
                return Ok(Open {
                    transaction,
                    claim: None,
                });
            }
            Err(error) if is_busy(&error) && since.elapsed() < PATIENCE => {
                tokio::task::yield_now().await;
            }
            Err(error) => return Err(StoreError::unavailable("beginning a transaction", error)),
        }
    }
}

/// An open transaction; sqlx rolls it back when it is dropped.
struct Open {
    transaction: Transaction<'static, Sqlite>,
    claim: Option<(RecordId, Uuid)>,
}

/// Where the handler's own writes begin.
const MARK: &str = "SAVEPOINT idem_claimed";
const BACK_TO_MARK: &str = "ROLLBACK TO idem_claimed";

impl Open {
    async fn run(&mut self, statement: &'static str) -> Result<(), StoreError> {
        let run = sqlx::query(statement).execute(&mut *self.transaction);
        point!("sqlite.savepoint", run)
            .await
            .map(drop)
            .map_err(|error| StoreError::unavailable(statement, error))
    }

    async fn carry_out<O: Operation>(&mut self, operation: O) -> Result<O::Output, StoreError> {
        let done = operation.carry_out(&mut self.transaction);
        let done = point!("sqlite.statement", done).await;
        done.map_err(|trouble| match trouble {
            Trouble::Own(error) => error,
            Trouble::Statement(error) | Trouble::Connection(error) => {
                StoreError::unavailable(O::CONTEXT, error)
            }
        })
    }

    async fn finish(mut self, answer: &Answer) -> Result<(), StoreError> {
        if let Some((id, owner)) = self.claim.take() {
            let answer = answer.clone();
            self.carry_out(Complete { id, owner, answer }).await?;
        }
        let committed = point!("sqlite.commit", self.transaction.commit()).await;
        committed.map_err(|error| StoreError::unavailable("committing", error))
    }

    async fn abandon(self) {
        if let Err(error) = point!("sqlite.rollback", self.transaction.rollback()).await {
            // Without a commit nothing has happened.
            tracing::warn!(%error, "a transaction was not rolled back properly");
        }
    }
}

#[async_trait]
impl OpenTransaction<SqliteConnection> for Open {
    fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.transaction
    }

    async fn commit(self: Box<Self>, answer: &Answer) -> Result<(), StoreError> {
        self.finish(answer).await
    }

    async fn keep_answer_only(mut self: Box<Self>, answer: &Answer) -> Result<(), StoreError> {
        if self.claim.is_none() {
            self.abandon().await;
            return Ok(());
        }
        self.run(BACK_TO_MARK).await?;
        self.finish(answer).await
    }

    async fn rollback(self: Box<Self>) {
        self.abandon().await;
    }
}

#[async_trait]
impl TransactionalStore<SqliteConnection> for SqliteStore {
    async fn begin(&self) -> Result<Box<dyn OpenTransaction<SqliteConnection>>, StoreError> {
        Ok(Box::new(begin(&self.shared.turn).await?))
    }

    async fn begin_claimed(&self, claim: &Claim) -> Result<Begun<SqliteConnection>, StoreError> {
        // What stands there, and is to be left standing, is answered without the write lock.
        let look = self.read(Look(claim.clone()));
        if let Some(Claimed::Standing(record)) = point!("sqlite.look", look).await? {
            return Ok(Begun::Standing(record));
        }
        let mut open = begin(&self.shared.turn).await?;
        match open.carry_out(Take(claim.clone())).await {
            Ok(Claimed::Won { attempt, .. }) => {
                open.run(MARK).await?;
                open.claim = Some((claim.id.clone(), claim.owner));
                let transaction = Box::new(open);
                Ok(Begun::Won {
                    transaction,
                    attempt,
                })
            }
            Ok(Claimed::Standing(record)) => {
                open.abandon().await;
                Ok(Begun::Standing(record))
            }
            Err(error) => {
                open.abandon().await;
                Err(error)
            }
        }
    }
}

impl Connection for SqliteConnection {
    const DATABASE: &'static str = "SQLite";

    fn store(store: &dyn Store) -> Option<&dyn TransactionalStore<SqliteConnection>> {
        let store = (store as &dyn Any).downcast_ref::<SqliteStore>()?;
        Some(store)
    }
}
