//! The table of orders that transactional handlers write to, on each kind of database.

use crate::answers::Failure;
use idem_tests::stores::Database;
use serde::Serialize;
use sqlx::{Connection as _, MySqlConnection, PgConnection, SqliteConnection};
use std::time::Duration;

// Statements are not kept prepared: behind a pooler, the next one may get to another server process.

/// Rows listed at most.
const MOST: i64 = 100_000;
/// Several labs that start at once may get into each other's way while one makes the table.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(200);

const CREATE: &str = "CREATE TABLE IF NOT EXISTS lab_orders (\
    id BIGINT NOT NULL PRIMARY KEY, \
    user_name VARCHAR(255) NOT NULL, \
    body_sha256 CHAR(64) NOT NULL)";
const INSERT: &str = "INSERT INTO lab_orders (id, user_name, body_sha256) VALUES (?, ?, ?)";
const INSERT_POSTGRES: &str =
    "INSERT INTO lab_orders (id, user_name, body_sha256) VALUES ($1, $2, $3)";
const SELECT: &str = "SELECT id, user_name, body_sha256 FROM lab_orders ORDER BY id LIMIT ?";
const SELECT_POSTGRES: &str =
    "SELECT id, user_name, body_sha256 FROM lab_orders ORDER BY id LIMIT $1";

/// A row.
#[derive(Debug, Serialize)]
pub(crate) struct Order {
    pub(crate) id: i64,
    pub(crate) user_name: String,
    pub(crate) body_sha256: String,
}

/// Makes the table where it is missing.
pub(crate) async fn create_table(database: &Database) -> Result<(), String> {
    let mut tries = 0;
    loop {
        tries += 1;
        let created = match database {
            Database::None => return Ok(()),
            Database::Sqlite(pool) => sqlx::raw_sql(CREATE).execute(pool).await.map(drop),
            Database::Postgres(pool) => sqlx::raw_sql(CREATE).execute(pool).await.map(drop),
            Database::MySql(pool) => sqlx::raw_sql(CREATE).execute(pool).await.map(drop),
        };
        match created {
            Ok(()) => return Ok(()),
            Err(_) if tries < TRIES => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(format!("the table lab_orders cannot be made: {error}")),
        }
    }
}

/// All rows.
pub(crate) async fn list(database: &Database) -> Result<Vec<Order>, sqlx::Error> {
    let rows: Vec<(i64, String, String)> = match database {
        Database::None => Vec::new(),
        Database::Sqlite(pool) => sqlx::query_as(SELECT).bind(MOST).fetch_all(pool).await?,
        Database::Postgres(pool) => {
            let rows = sqlx::query_as(SELECT_POSTGRES);
            let rows = rows.bind(MOST).persistent(false);
            rows.fetch_all(pool).await?
        }
        Database::MySql(pool) => sqlx::query_as(SELECT).bind(MOST).fetch_all(pool).await?,
    };
    let order = |(id, user_name, body_sha256)| Order {
        id,
        user_name,
        body_sha256,
    };
    Ok(rows.into_iter().map(order).collect())
}

/// A connection with an open transaction that takes an order.
pub(crate) trait Enter {
    /// Writes the row.
    async fn enter(&mut self, order: &Order) -> Result<(), Failure>;

    /// Begins another transaction inside and does not end it.
    async fn leave_open(&mut self) -> Result<(), Failure>;
}

/// The same on each kind of connection.
macro_rules! enter {
    ($($connection:ty: $insert:expr;)*) => {$(
        impl Enter for $connection {
            async fn enter(&mut self, order: &Order) -> Result<(), Failure> {
                let entered = sqlx::query($insert)
                    .persistent(false)
                    .bind(order.id)
                    .bind(&order.user_name)
                    .bind(&order.body_sha256)
                    .execute(self)
                    .await;
                entered.map(drop).map_err(|error| Failure::row(&error))
            }

            async fn leave_open(&mut self) -> Result<(), Failure> {
                let inner = self.begin().await.map_err(|error| Failure::row(&error))?;
                std::mem::forget(inner);
                Ok(())
            }
        }
    )*};
}

enter! {
    SqliteConnection: INSERT;
    MySqlConnection: INSERT;
    PgConnection: INSERT_POSTGRES;
}
