//! Orders and stock in SQLite.

use crate::{
    auth::AuthUser,
    error::ApiError,
    gateway::Receipt,
    model::{Item, NewOrder, Order, Status},
};
use sqlx::{
    Error, FromRow, Row, SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow},
};
use std::{path::Path, time::Duration};
use uuid::Uuid;

/// How long a transaction waits for the file while somebody else writes to it.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How many of the newest orders a list shows.
const PAGE: i64 = 100;

/// Orders and stock.
///
/// SQLite has one writer at a time. With one connection to write through, transactions of this
/// process line up here, in order, and not at the file's lock, where whoever is lucky goes first.
#[derive(Debug, Clone)]
pub struct OrderStore {
    writer: SqlitePool,
    readers: SqlitePool,
}

impl OrderStore {
    /// Opens the file, creating it and its tables where they are missing.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub async fn open(file: &Path) -> Result<OrderStore, Error> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT);
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_with(options.clone())
            .await?;
        sqlx::raw_sql(include_str!("schema.sql"))
            .execute(&writer)
            .await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(4)
            .connect_with(options)
            .await?;
        Ok(OrderStore { writer, readers })
    }

    /// Reserves stock and enters the order as `pending`, both or neither.
    ///
    /// # Errors
    ///
    /// [`ApiError::UnknownItem`], [`ApiError::InsufficientStock`], [`ApiError::AmountMismatch`]; or
    /// the database's. Nothing is written then.
    pub async fn place(
        &self,
        user: &AuthUser,
        order: &NewOrder,
        charge_key: Uuid,
    ) -> Result<i64, ApiError> {
        // IMMEDIATE waits for its turn to write. A transaction that reads first and wants to write
        // later can be refused with "database is locked", however long it is willing to wait.
        let mut tx = self.writer.begin_with("BEGIN IMMEDIATE").await?;
        let mut total = 0;
        for item in order.items() {
            total += reserve(&mut tx, item).await?;
        }
        if total != order.amount() {
            return Err(ApiError::AmountMismatch { expected: total });
        }
        let order_id = enter(&mut tx, user, order, charge_key).await?;
        tx.commit().await?;
        Ok(order_id)
    }

    /// Enters the gateway's receipt for a pending order.
    ///
    /// # Errors
    ///
    /// The database's.
    pub async fn mark_paid(&self, order_id: i64, receipt: &Receipt) -> Result<(), Error> {
        sqlx::query(
            "UPDATE orders SET status = 'paid', charge_id = ? WHERE id = ? AND status = 'pending'",
        )
        .bind(&receipt.charge_id)
        .bind(order_id)
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    /// Ends a pending order without a payment and frees its stock, both or neither.
    ///
    /// # Errors
    ///
    /// The database's.
    pub async fn cancel(&self, order_id: i64, status: Status) -> Result<(), Error> {
        let mut tx = self.writer.begin_with("BEGIN IMMEDIATE").await?;
        let ended = sqlx::query("UPDATE orders SET status = ? WHERE id = ? AND status = 'pending'")
            .bind(status.as_str())
            .bind(order_id)
            .execute(&mut *tx)
            .await?;
        if ended.rows_affected() == 1 {
            sqlx::query(
                "UPDATE items SET stock = stock + ordered.quantity
                 FROM order_items AS ordered
                 WHERE ordered.order_id = ? AND ordered.item_id = items.id",
            )
            .bind(order_id)
            .execute(&mut *tx)
            .await?;
        }
        tx.commit().await
    }

    /// The newest orders of a user.
    ///
    /// # Errors
    ///
    /// The database's.
    pub async fn list(&self, user: &AuthUser) -> Result<Vec<Order>, Error> {
        sqlx::query_as(concat!(
            include_str!("select_order.sql"),
            " WHERE user_id = ? ORDER BY id DESC LIMIT ?"
        ))
        .bind(&user.id)
        .bind(PAGE)
        .fetch_all(&self.readers)
        .await
    }

    /// An order, if it is the user's.
    ///
    /// # Errors
    ///
    /// The database's.
    pub async fn find(&self, user: &AuthUser, order_id: i64) -> Result<Option<Order>, Error> {
        sqlx::query_as(concat!(
            include_str!("select_order.sql"),
            " WHERE user_id = ? AND id = ?"
        ))
        .bind(&user.id)
        .bind(order_id)
        .fetch_optional(&self.readers)
        .await
    }
}

/// Takes a position out of the stock and says what it costs.
async fn reserve(tx: &mut SqliteConnection, item: &Item) -> Result<i64, ApiError> {
    let quantity = i64::from(item.quantity);
    let price: Option<i64> = sqlx::query_scalar(
        "UPDATE items SET stock = stock - ?1 WHERE id = ?2 AND stock >= ?1 RETURNING price",
    )
    .bind(quantity)
    .bind(item.id)
    .fetch_optional(&mut *tx)
    .await?;
    if let Some(price) = price {
        return Ok(price * quantity);
    }
    let sold: Option<i64> = sqlx::query_scalar("SELECT id FROM items WHERE id = ?")
        .bind(item.id)
        .fetch_optional(tx)
        .await?;
    Err(match sold {
        Some(_) => ApiError::InsufficientStock(item.id),
        None => ApiError::UnknownItem(item.id),
    })
}

async fn enter(
    tx: &mut SqliteConnection,
    user: &AuthUser,
    order: &NewOrder,
    charge_key: Uuid,
) -> Result<i64, Error> {
    let order_id = sqlx::query_scalar(
        "INSERT INTO orders (user_id, status, currency, amount, charge_key)
         VALUES (?, 'pending', ?, ?, ?) RETURNING id",
    )
    .bind(&user.id)
    .bind(order.currency().as_str())
    .bind(order.amount())
    .bind(charge_key.to_string())
    .fetch_one(&mut *tx)
    .await?;
    for item in order.items() {
        sqlx::query("INSERT INTO order_items (order_id, item_id, quantity) VALUES (?, ?, ?)")
            .bind(order_id)
            .bind(item.id)
            .bind(item.quantity)
            .execute(&mut *tx)
            .await?;
    }
    Ok(order_id)
}

impl FromRow<'_, SqliteRow> for Order {
    fn from_row(row: &SqliteRow) -> Result<Order, Error> {
        let items: String = row.try_get("items")?;
        Ok(Order {
            order_id: row.try_get("id")?,
            status: row.try_get("status")?,
            items: serde_json::from_str(&items).map_err(|error| Error::Decode(error.into()))?,
            currency: row.try_get("currency")?,
            amount: row.try_get("amount")?,
            created_at: row.try_get("created_at")?,
        })
    }
}
