//! Claim, business writes and answer in one commit: for stores whose records stand in the same
//! database as the application's data.

use crate::{
    record::{Answer, Record},
    store::{Claim, Store, StoreError},
};
use async_trait::async_trait;

/// A store that can claim inside a transaction on a connection of type `C`.
///
/// The claim is part of the transaction: until it commits, nothing of it is visible to others, and
/// if it does not commit, nothing of it has ever been there.
#[async_trait]
pub trait TransactionalStore<C>: Store {
    /// Opens a transaction without a claim, for a request without a key.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`].
    async fn begin(&self) -> Result<Box<dyn OpenTransaction<C>>, StoreError>;

    /// Opens a transaction and takes the key in it, or reports who has it. Never waits for another
    /// transaction that has taken the key, and holds no connection unless the key was taken.
    ///
    /// The key is taken if no live record stands there, or if what stands there was abandoned: a
    /// transactional route commits its claim together with its answer, so whatever is still running
    /// after its lease has left nothing behind. The database itself ends a transaction whose owner
    /// is silent for longer than [`Claim::lease`], where it can.
    ///
    /// # Errors
    ///
    /// As [`Store::claim`]; after an error nothing was claimed.
    async fn begin_claimed(&self, claim: &Claim) -> Result<Begun<C>, StoreError>;
}

/// What became of a claim inside a transaction.
#[non_exhaustive]
pub enum Begun<C> {
    /// The caller owns the key for as long as the transaction is open.
    Won {
        /// The transaction, with the claim in it.
        transaction: Box<dyn OpenTransaction<C>>,
        /// How many times the operation has now been started, from 1.
        attempt: u32,
    },
    /// Another transaction that has not ended yet has taken the key. Its record, and so its
    /// fingerprint, is not visible.
    Running,
    /// A live record stands there.
    Standing(Box<Record>),
}

/// An open transaction, with or without a claim in it. Dropping it rolls everything back.
#[async_trait]
pub trait OpenTransaction<C>: Send {
    /// The connection the handler works on.
    fn connection(&mut self) -> &mut C;

    /// Whether the database has refused a statement of the handler's in favour of another transaction,
    /// or has ended the transaction itself, as far as it can be asked for that once the handler is
    /// done. The default cannot: then the error tells that the handler has returned, if it does.
    async fn is_refused(&mut self) -> bool {
        false
    }

    /// Finishes the record, if there is a claim, and commits.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if the database refused the commit in favour of another
    /// transaction, [`StoreError::LeaseLost`] if the claim is not the caller's any more: everything
    /// is rolled back. [`StoreError::Unavailable`]: rolled back or, if the answer to the commit
    /// itself got lost, perhaps committed as a whole.
    async fn commit(self: Box<Self>, answer: &Answer) -> Result<(), StoreError>;

    /// Rolls back what the handler has written, and finishes the record, if there is a claim.
    ///
    /// # Errors
    ///
    /// As [`OpenTransaction::commit`].
    async fn keep_answer_only(self: Box<Self>, answer: &Answer) -> Result<(), StoreError>;

    /// Rolls everything back: the key is free.
    async fn rollback(self: Box<Self>);
}

/// A database connection that a handler can name in `transaction = …`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a connection that a transaction can be opened on",
    note = "use `&mut sqlx::SqliteConnection`, `&mut sqlx::PgConnection` or `&mut sqlx::MySqlConnection` (with the feature of that store)"
)]
pub trait Connection: Sized + Send + 'static {
    /// The database, for messages.
    const DATABASE: &'static str;

    /// The store, if its records stand in a database of this kind.
    fn store(store: &dyn Store) -> Option<&dyn TransactionalStore<Self>>;
}
