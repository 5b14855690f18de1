//! An open transaction on a pooled connection.

use super::Connections;
use crate::fail_points::point;
use sqlx::{Database, SqlStr, pool::PoolConnection};
use sqlx_core::transaction::TransactionManager as _;

/// A connection out of the pool for one transaction.
///
/// The transaction is the driver's own, so that a nested `begin()` on the connection makes a
/// savepoint. The connection goes back to the pool only with [`Session::give_back`]. Dropped before
/// that, in whatever state, it is closed, with which the server rolls back: a `begin()` whose future
/// is dropped would otherwise leave a transaction open on a connection that goes back.
pub(in crate::store) struct Session<DB: Database> {
    connection: PoolConnection<DB>,
    at_rest: bool,
}

impl<DB: Database> Session<DB> {
    pub(in crate::store) async fn acquire(
        connections: &Connections<DB>,
    ) -> Result<Self, sqlx::Error> {
        Ok(Self {
            connection: point!("session.acquire", connections.acquire()).await?,
            at_rest: false,
        })
    }

    /// Begins with this statement, which has to leave a transaction open.
    pub(in crate::store) async fn begin(&mut self, statement: SqlStr) -> Result<(), sqlx::Error> {
        let begun = DB::TransactionManager::begin(&mut self.connection, Some(statement));
        point!("session.begin", begun).await
    }

    pub(in crate::store) fn connection(&mut self) -> &mut DB::Connection {
        &mut self.connection
    }

    /// Rolls back what a handler has begun inside the transaction and neither committed nor dropped:
    /// the driver would otherwise take the transaction's end for that of the inner one.
    pub(in crate::store) async fn end_inner(&mut self) -> Result<(), sqlx::Error> {
        while DB::TransactionManager::get_transaction_depth(&self.connection) > 1 {
            let inner = DB::TransactionManager::rollback(&mut self.connection);
            point!("session.end_inner", inner).await?;
        }
        Ok(())
    }

    pub(in crate::store) async fn commit(&mut self) -> Result<(), sqlx::Error> {
        self.end_inner().await?;
        let committed = DB::TransactionManager::commit(&mut self.connection);
        point!("session.commit", committed).await
    }

    pub(in crate::store) async fn rollback(&mut self) -> Result<(), sqlx::Error> {
        self.end_inner().await?;
        let ended = DB::TransactionManager::rollback(&mut self.connection);
        point!("session.rollback", ended).await
    }

    /// Gives the connection back after the transaction has come to its end.
    pub(in crate::store) fn give_back(mut self) {
        self.at_rest = true;
    }
}

impl<DB: Database> Drop for Session<DB> {
    fn drop(&mut self) {
        if !self.at_rest {
            self.connection.close_on_drop();
        }
    }
}
