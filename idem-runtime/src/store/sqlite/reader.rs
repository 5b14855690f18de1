//! The one connection that reads: no call here waits for a writer.

use super::{
    connection::Database,
    job::{Failure, Job},
};
use sqlx::SqliteConnection;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Serves the queue until it is closed and empty, and hands the connection back.
pub(super) async fn run(
    database: &Database,
    connection: SqliteConnection,
    mut queue: mpsc::Receiver<Box<dyn Job>>,
) -> Option<SqliteConnection> {
    let mut connection = Some(connection);
    while let Some(mut job) = queue.recv().await {
        if !job.is_wanted() {
            continue;
        }
        let outcome = match connection.take() {
            Some(open) => Ok(open),
            None => database
                .open_reader()
                .await
                .map_err(|error| Failure::Closed(Arc::new(error))),
        };
        let outcome = match outcome {
            Ok(mut open) => match job.carry_out(&mut open).await {
                Ok(()) => {
                    connection = Some(open);
                    Ok(())
                }
                // The next call gets a new connection.
                Err(error) => Err(Failure::from(error)),
            },
            Err(failure) => Err(failure),
        };
        job.settle(outcome.as_ref().err());
    }
    connection
}
