//! Calls on their way to a connection.

use super::connection::is_of_one_statement;
use crate::{record::Unreadable, store::StoreError};
use async_trait::async_trait;
use sqlx::SqliteConnection;
use std::sync::Arc;
use tokio::sync::oneshot;

/// One call: what is done on the connection.
#[async_trait]
pub(super) trait Operation: Send + Sync + 'static {
    /// What the caller gets.
    type Output: Send;

    /// What is being done, for the error if it fails.
    const CONTEXT: &'static str;

    /// Whether it makes the caller an owner. Such a call is not carried out for a caller that has
    /// gone: nobody would do the work.
    const FOR_THE_CALLER_ALONE: bool = false;

    /// Bytes that it is going to write, roughly.
    fn size(&self) -> usize {
        1024
    }

    /// Does it.
    async fn carry_out(&self, connection: &mut SqliteConnection) -> Result<Self::Output, Trouble>;
}

/// Why an operation did not succeed.
pub(super) enum Trouble {
    /// It was refused. Others on the same transaction are not concerned.
    Own(StoreError),
    /// A statement of its failed, and nothing else with it.
    Statement(sqlx::Error),
    /// The connection or the transaction cannot be relied on any more.
    Connection(sqlx::Error),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Trouble::Own(error)
    }
}

impl From<Unreadable> for Trouble {
    fn from(error: Unreadable) -> Self {
        Trouble::Own(error.into())
    }
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Self {
        if is_of_one_statement(&error) {
            Trouble::Statement(error)
        } else {
            Trouble::Connection(error)
        }
    }
}

/// A call that waits in a queue, whatever it is.
#[async_trait]
pub(super) trait Job: Send {
    /// Whether it is still to be carried out.
    fn is_wanted(&self) -> bool;

    /// See [`Operation::size`].
    fn size(&self) -> usize;

    /// Carries it out and keeps the result. An error is one of the connection's.
    async fn carry_out(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error>;

    /// Answers the caller: with the result, or with the reason why there is none.
    fn settle(self: Box<Self>, failure: Option<&Failure>);
}

/// Why none of the calls of a group was carried out, or not for sure.
#[derive(Clone)]
pub(super) enum Failure {
    /// A statement or the commit failed.
    Sql(Arc<sqlx::Error>),
    /// The file could not be opened again.
    Closed(Arc<StoreError>),
}

impl Failure {
    fn of(&self, context: &str) -> StoreError {
        match self {
            Failure::Sql(error) if error.to_string().contains("no such table: idempotency") => {
                StoreError::unavailable(
                    format!(
                        "{context}: the schema is not applied; call SqliteStore::migrate, \
                         or put SqliteStore::SCHEMA into your migrations"
                    ),
                    Arc::clone(error),
                )
            }
            Failure::Sql(error) => StoreError::unavailable(context, Arc::clone(error)),
            Failure::Closed(error) => StoreError::unavailable(context, Arc::clone(error)),
        }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Failure::Sql(Arc::new(error))
    }
}

/// An operation and the way back to its caller.
pub(super) struct Queued<O: Operation> {
    operation: O,
    reply: oneshot::Sender<Result<O::Output, StoreError>>,
    result: Option<Result<O::Output, StoreError>>,
}

impl<O: Operation> Queued<O> {
    pub(super) fn new(operation: O) -> (Self, oneshot::Receiver<Result<O::Output, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        let queued = Queued {
            operation,
            reply,
            result: None,
        };
        (queued, answer)
    }
}

#[async_trait]
impl<O: Operation> Job for Queued<O> {
    fn is_wanted(&self) -> bool {
        !(O::FOR_THE_CALLER_ALONE && self.reply.is_closed())
    }

    fn size(&self) -> usize {
        self.operation.size()
    }

    async fn carry_out(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        self.result = Some(match self.operation.carry_out(connection).await {
            Ok(output) => Ok(output),
            Err(Trouble::Own(error)) => Err(error),
            Err(Trouble::Statement(error)) => Err(StoreError::unavailable(O::CONTEXT, error)),
            Err(Trouble::Connection(error)) => return Err(error),
        });
        Ok(())
    }

    fn settle(self: Box<Self>, failure: Option<&Failure>) {
        let answer = match (failure, self.result) {
            (None, Some(result)) => result,
            (None, None) => Err(super::gone()),
            (Some(failure), _) => Err(failure.of(O::CONTEXT)),
        };
        // A caller that has gone asks again, or does not care.
        let _ = self.reply.send(answer);
    }
}
