//! The one connection that writes: calls that wait at the same time share a transaction.

use super::{
    connection::{Database, PATIENCE, close, is_busy, result_code},
    job::{Failure, Job},
};
use sqlx::SqliteConnection;
use std::{sync::Arc, time::Instant};
use tokio::sync::mpsc;

/// Calls in one transaction. More would not save much: an fsync shared by so many costs each of
/// them less than its own statements.
const GROUP: usize = 256;
/// Bytes in one transaction, so that a few large answers do not make all others wait.
const GROUP_BYTES: usize = 4 * 1024 * 1024;

/// Serves the queue until it is closed and empty, and hands the connection back.
pub(super) async fn run(
    database: &Database,
    connection: SqliteConnection,
    mut queue: mpsc::Receiver<Box<dyn Job>>,
) -> Option<SqliteConnection> {
    let mut connection = Some(connection);
    while let Some(first) = queue.recv().await {
        let mut bytes = first.size();
        let mut group = vec![first];
        while group.len() < GROUP && bytes < GROUP_BYTES {
            let Ok(next) = queue.try_recv() else { break };
            bytes += next.size();
            group.push(next);
        }
        let outcome = match reopened(database, connection.take()).await {
            Ok(mut open) => {
                let outcome = carry_out(&mut open, &mut group).await;
                // A connection is kept only if it is known to be outside any transaction.
                if outcome.is_ok() || rolled_back(&mut open).await {
                    connection = Some(open);
                } else {
                    close(open).await;
                }
                outcome
            }
            Err(failure) => Err(failure),
        };
        if let Err(Failure::Sql(error)) = &outcome {
            tracing::warn!(%error, calls = group.len(), "a transaction of the SQLite store failed");
        }
        for job in group {
            job.settle(outcome.as_ref().err());
        }
    }
    connection
}

async fn reopened(
    database: &Database,
    connection: Option<SqliteConnection>,
) -> Result<SqliteConnection, Failure> {
    match connection {
        Some(connection) => Ok(connection),
        None => match database.open_writer().await {
            Ok(connection) => Ok(connection),
            Err(error) => Err(Failure::Closed(Arc::new(error))),
        },
    }
}

/// One transaction for the whole group. On failure none of it is known to have happened.
async fn carry_out(
    connection: &mut SqliteConnection,
    group: &mut Vec<Box<dyn Job>>,
) -> Result<(), Failure> {
    // The write lock first: a transaction that reads and then wants to write fails at once if
    // another one wrote in between, however long it is willing to wait.
    patiently(connection, "BEGIN IMMEDIATE").await?;
    for job in group.iter_mut() {
        // Asked as late as possible: the lock may have been long in coming.
        if job.is_wanted() {
            job.carry_out(connection).await?;
        }
    }
    patiently(connection, "COMMIT").await
}

/// Executes a statement that others may hold up, again and again.
async fn patiently(
    connection: &mut SqliteConnection,
    statement: &'static str,
) -> Result<(), Failure> {
    let since = Instant::now();
    loop {
        match sqlx::query(statement).execute(&mut *connection).await {
            Ok(_) => return Ok(()),
            // SQLite has already waited for a while.
            Err(error) if is_busy(&error) && since.elapsed() < PATIENCE => {
                tokio::task::yield_now().await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether the connection is outside any transaction now.
async fn rolled_back(connection: &mut SqliteConnection) -> bool {
    match sqlx::query("ROLLBACK").execute(&mut *connection).await {
        Ok(_) => true,
        // SQLite has rolled back by itself, or the transaction never began. Any other answer than
        // that there is none means that the connection is of no use.
        Err(error) => {
            result_code(&error) == Some(1) && error.to_string().contains("no transaction is active")
        }
    }
}
