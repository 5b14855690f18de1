//! Orders, stock and payments in SQLite.

use crate::{
    auth::AuthUser,
    cashier::Due,
    error::ApiError,
    gateway::Receipt,
    model::{Charge, Item, NewOrder, Order, PaymentMade, UnknownCurrency},
};
use serde::de::DeserializeOwned;
use sqlx::{
    Error, FromRow, Row, SqliteConnection, SqlitePool,
    error::BoxDynError,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow},
};
use std::{collections::HashMap, path::Path, time::Duration};
use uuid::Uuid;

/// How long a transaction waits for the file while somebody else writes to it.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How many of the newest orders a list shows.
const PAGE: i64 = 100;

/// Orders, stock and payments.
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

    /// [`place`] in a transaction of its own, unless this very order stands under `charge_key`.
    ///
    /// # Errors
    ///
    /// [`ApiError::KeyUsedBefore`] if another order does, and those of [`place`]. Nothing is
    /// written then.
    pub async fn place(
        &self,
        user: &AuthUser,
        order: &NewOrder,
        charge_key: Uuid,
    ) -> Result<i64, ApiError> {
        // IMMEDIATE waits for its turn to write. A transaction that reads first and wants to write
        // later can be refused with "database is locked", however long it is willing to wait.
        let mut tx = self.writer.begin_with("BEGIN IMMEDIATE").await?;
        let order_id = match placed_under(&mut tx, charge_key).await? {
            Some(order_id) if is_same(&mut tx, order_id, order).await? => order_id,
            Some(_) => return Err(ApiError::KeyUsedBefore),
            None => place(&mut tx, user, order, charge_key).await?,
        };
        tx.commit().await?;
        Ok(order_id)
    }

    /// The order whose charge has this key.
    ///
    /// # Errors
    ///
    /// The database's.
    pub async fn placed_under(&self, charge_key: Uuid) -> Result<Option<i64>, Error> {
        placed_under(&mut *self.readers.acquire().await?, charge_key).await
    }

    /// The oldest orders whose charge is not settled, as many as `most`.
    ///
    /// # Errors
    ///
    /// The database's.
    pub async fn due(&self, most: usize) -> Result<Vec<Due>, Error> {
        sqlx::query_as(
            "SELECT id, amount, currency, charge_key FROM orders
             WHERE status = 'pending' ORDER BY id LIMIT ?",
        )
        .bind(i64::try_from(most).unwrap_or(i64::MAX))
        .fetch_all(&self.readers)
        .await
    }

    /// Whether the charge of an order is not settled.
    ///
    /// # Errors
    ///
    /// The database's.
    pub async fn is_pending(&self, order_id: i64) -> Result<bool, Error> {
        sqlx::query_scalar("SELECT count(*) FROM orders WHERE id = ? AND status = 'pending'")
            .bind(order_id)
            .fetch_one(&self.readers)
            .await
            .map(|pending: i64| pending > 0)
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
    pub async fn decline(&self, order_id: i64) -> Result<(), Error> {
        let mut tx = self.writer.begin_with("BEGIN IMMEDIATE").await?;
        let ended = sqlx::query(
            "UPDATE orders SET status = 'declined' WHERE id = ? AND status = 'pending'",
        )
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

    /// Enters a further payment that the gateway has carried out; the same one if it stands there.
    ///
    /// # Errors
    ///
    /// The database's.
    pub async fn enter_payment(
        &self,
        charge_key: Uuid,
        charge: &Charge,
        receipt: &Receipt,
    ) -> Result<PaymentMade, Error> {
        // The update changes nothing; without one, nothing would be returned.
        let payment_id = sqlx::query_scalar(
            "INSERT INTO payments (order_id, amount, charge_key, charge_id) VALUES (?, ?, ?, ?)
             ON CONFLICT (charge_key) DO UPDATE SET charge_id = excluded.charge_id
             RETURNING id",
        )
        .bind(charge.order_id)
        .bind(charge.amount)
        .bind(charge_key.to_string())
        .bind(&receipt.charge_id)
        .fetch_one(&self.writer)
        .await?;
        Ok(PaymentMade {
            payment_id,
            order_id: charge.order_id,
            amount: charge.amount,
            charge_id: receipt.charge_id.clone(),
        })
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

/// Reserves stock and enters the order as `pending`, in the transaction of whoever calls.
///
/// # Errors
///
/// [`ApiError::UnknownItem`], [`ApiError::InsufficientStock`], [`ApiError::AmountMismatch`]; or the
/// database's. The transaction must be rolled back then.
pub async fn place(
    tx: &mut SqliteConnection,
    user: &AuthUser,
    order: &NewOrder,
    charge_key: Uuid,
) -> Result<i64, ApiError> {
    let mut total = 0;
    for item in order.items() {
        total += reserve(tx, item).await?;
    }
    if total != order.amount() {
        return Err(ApiError::AmountMismatch { expected: total });
    }
    Ok(enter(tx, user, order, charge_key).await?)
}

async fn placed_under(tx: &mut SqliteConnection, charge_key: Uuid) -> Result<Option<i64>, Error> {
    sqlx::query_scalar("SELECT id FROM orders WHERE charge_key = ?")
        .bind(charge_key.to_string())
        .fetch_optional(tx)
        .await
}

/// Whether an order that stands is what is ordered now.
async fn is_same(
    tx: &mut SqliteConnection,
    order_id: i64,
    order: &NewOrder,
) -> Result<bool, Error> {
    let (currency, amount): (String, i64) =
        sqlx::query_as("SELECT currency, amount FROM orders WHERE id = ?")
            .bind(order_id)
            .fetch_one(&mut *tx)
            .await?;
    let standing: Vec<(i64, u32)> =
        sqlx::query_as("SELECT item_id, quantity FROM order_items WHERE order_id = ?")
            .bind(order_id)
            .fetch_all(tx)
            .await?;
    let standing: HashMap<_, _> = standing.into_iter().collect();
    let items = order.items().iter().map(|item| (item.id, item.quantity));
    Ok(currency == order.currency().as_str()
        && amount == order.amount()
        && standing == items.collect())
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
        Ok(Order {
            order_id: row.try_get("id")?,
            status: row.try_get("status")?,
            items: from_json(row, "items")?,
            currency: row.try_get("currency")?,
            amount: row.try_get("amount")?,
            payments: from_json(row, "payments")?,
            created_at: row.try_get("created_at")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for Due {
    fn from_row(row: &SqliteRow) -> Result<Due, Error> {
        let decode = |error: BoxDynError| Error::Decode(error);
        let currency: String = row.try_get("currency")?;
        let charge_key: String = row.try_get("charge_key")?;
        Ok(Due {
            charge_key: charge_key
                .parse()
                .map_err(|error: uuid::Error| decode(error.into()))?,
            charge: Charge::price(
                row.try_get("id")?,
                row.try_get("amount")?,
                currency
                    .parse()
                    .map_err(|error: UnknownCurrency| decode(error.into()))?,
            ),
        })
    }
}

fn from_json<T: DeserializeOwned>(row: &SqliteRow, column: &str) -> Result<T, Error> {
    let text: String = row.try_get(column)?;
    serde_json::from_str(&text).map_err(|error| Error::Decode(error.into()))
}
