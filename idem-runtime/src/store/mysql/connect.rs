//! Opening the store: the pool, the server behind it, and the table.

use super::{MySqlStore, Statements, Value};
use crate::{
    record::RecordId,
    store::{
        Store as _, StoreError,
        sql::{
            Checkout, Connections, DEFAULT_TABLE, OwnPool, SCHEMA_VERSION, TableName, newer_schema,
            no_table, own_pool_methods, reach, refused, schema_version,
        },
    },
};
use sqlx::{
    AssertSqlSafe, MySql, MySqlConnection, MySqlPool, Row as _,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
};
use std::{str::FromStr as _, sync::Arc};

/// Below this, answers of the default greatest size (1 MiB) may not fit into a packet.
const SMALL_PACKET: i64 = 2 * 1024 * 1024;

/// How a write makes sure that it commits by itself, and not inside a transaction that somebody else
/// has left open on a connection of a shared pool. (A `begin()` whose future is dropped does that:
/// the driver does not know that its BEGIN was carried out, and the connection goes back.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// MariaDB has a variable for it, which the statements ask for in passing.
    Variable,
    /// MySQL has none, but refuses to change the kind of a transaction inside one: one more round
    /// trip, paid where the pool is the application's.
    Statement,
    /// MySQL, and the pool is the store's own: nobody else begins a transaction on it.
    Needless,
}

impl Guard {
    /// Goes with the conditions of a conditional write.
    pub(super) fn condition(self) -> &'static str {
        match self {
            Guard::Variable => "AND @@in_transaction = 0",
            Guard::Needless | Guard::Statement => "",
        }
    }

    /// The status of a record that begins. NULL is refused by the column.
    pub(super) fn processing(self) -> &'static str {
        match self {
            Guard::Variable => "IF(@@in_transaction = 0, 'PROCESSING', NULL)",
            Guard::Needless | Guard::Statement => "'PROCESSING'",
        }
    }

    /// Whether an error of this number says that a transaction is open.
    pub(super) fn found_open_transaction(self, number: u16) -> bool {
        match self {
            // ER_BAD_NULL_ERROR
            Guard::Variable => number == 1048,
            // ER_CANT_CHANGE_TX_CHARACTERISTICS
            Guard::Statement => number == 1568,
            Guard::Needless => false,
        }
    }

    pub(super) async fn before(self, connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        if self == Guard::Statement {
            // Concerns the next transaction only, and says what is the default.
            sqlx::raw_sql("SET TRANSACTION READ WRITE")
                .execute(connection)
                .await?;
        }
        Ok(())
    }

    /// Whether a conditional write that found nothing did so for the sake of an open transaction.
    pub(super) async fn is_inside(
        self,
        connection: &mut MySqlConnection,
    ) -> Result<bool, sqlx::Error> {
        if self != Guard::Variable {
            return Ok(false);
        }
        let row = sqlx::raw_sql("SELECT CAST(@@in_transaction AS SIGNED) AS inside")
            .fetch_one(connection)
            .await?;
        Ok(row.try_get::<i64, _>("inside")? != 0)
    }
}

/// Options of a [`MySqlStore`].
#[derive(Debug, Clone)]
#[must_use]
pub struct MySqlStoreBuilder {
    table: String,
    migrate: bool,
    own_pool: OwnPool<MySqlPoolOptions>,
}

impl Default for MySqlStoreBuilder {
    fn default() -> Self {
        Self {
            table: DEFAULT_TABLE.to_owned(),
            migrate: true,
            own_pool: OwnPool::default(),
        }
    }
}

impl MySqlStoreBuilder {
    /// The table, `table` or `database.table`: ASCII letters, digits and underscores. Default:
    /// `idempotency_records`.
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// Whether to create the table (and its database) where it is missing, and to bring an older
    /// one up to date. Default: yes. It is one atomic statement: several instances may start at
    /// once, and one may die in the middle. An up-to-date table is not touched and needs no right
    /// to create anything.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    own_pool_methods!(MySqlPoolOptions);

    /// Connects to the database of a URL with a pool of the store's own.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if the URL or the table's name cannot be understood, the server
    /// cannot be reached, or the table is missing and cannot be created, or is of a later release.
    pub async fn connect(self, url: &str) -> Result<MySqlStore, StoreError> {
        let options = MySqlConnectOptions::from_str(url)
            .map_err(|error| StoreError::unavailable("understanding the MySQL URL", error))?;
        // The pool would tell of any trouble that it timed out, and of none what it was.
        let reached = reach(&options).await;
        drop(
            reached.map_err(|error| {
                StoreError::unavailable("connecting to the MySQL server", error)
            })?,
        );
        let pool = self.own_pool.options().connect_lazy_with(options);
        self.open(pool, true).await
    }

    /// Uses the application's pool.
    ///
    /// # Errors
    ///
    /// As [`MySqlStoreBuilder::connect`].
    pub async fn from_pool(self, pool: MySqlPool) -> Result<MySqlStore, StoreError> {
        self.open(pool, false).await
    }

    async fn open(self, pool: MySqlPool, own: bool) -> Result<MySqlStore, StoreError> {
        let table = TableName::parse(&self.table)?;
        let connections = Connections::new(pool);
        let guard = look(&connections, own).await?;
        let store = MySqlStore {
            statements: Arc::new(Statements::new(&table, guard)),
            table,
            connections,
            guard,
        };
        if self.migrate {
            store.migrate().await?;
        } else if store.present_version().await?.is_none() {
            return Err(no_table(&store.table));
        }
        // Names every column: a table that lacks one is found out now, not by the first request.
        store.get(&RecordId::new("", "", "")).await?;
        Ok(store)
    }
}

/// Looks which server this is, and whether its settings can be worked with.
async fn look(pool: &Connections<MySql>, own: bool) -> Result<Guard, StoreError> {
    let failed = |error| StoreError::unavailable("connecting to the MySQL server", error);
    let mut checkout = Checkout::from(pool).await.map_err(failed)?;
    let connection = checkout.connection().map_err(failed)?;
    let row = sqlx::raw_sql(
        "SELECT CAST(VERSION() AS BINARY) AS version, \
         CAST(@@autocommit AS SIGNED) AS autocommit, \
         CAST(@@max_allowed_packet AS SIGNED) AS packet",
    )
    .fetch_one(connection)
    .await
    .map_err(failed)?;
    checkout.give_back();
    let version: Vec<u8> = row.try_get("version").map_err(failed)?;
    let autocommit: i64 = row.try_get("autocommit").map_err(failed)?;
    let packet: i64 = row.try_get("packet").map_err(failed)?;
    if autocommit == 0 {
        return Err(refused(
            "autocommit is off on this MySQL connection, and a claim has to be committed when its \
             statement ends: give the store a pool with autocommit on",
        ));
    }
    if packet < SMALL_PACKET {
        tracing::warn!(
            store = "mysql",
            max_allowed_packet = packet,
            "max_allowed_packet is small: answers that do not fit cannot be kept"
        );
    }
    let is_mariadb = String::from_utf8_lossy(&version).contains("MariaDB");
    Ok(match (is_mariadb, own) {
        (true, _) => Guard::Variable,
        (false, false) => Guard::Statement,
        (false, true) => Guard::Needless,
    })
}

impl MySqlStore {
    /// Creates the table where it is missing, and brings an older one up to date.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if that fails (nothing is then left half-done), or if the table
    /// is of a later release.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        if self.present_version().await? == Some(SCHEMA_VERSION) {
            return Ok(());
        }
        self.create()
            .await
            .map_err(|error| StoreError::unavailable("migrating the table", error))?;
        match self.present_version().await? {
            Some(_) => Ok(()),
            None => Err(no_table(&self.table)),
        }
    }

    /// The schema's version, if the table is there.
    async fn present_version(&self) -> Result<Option<u32>, StoreError> {
        let values = [
            Value::Bytes(self.table.schema().map(str::as_bytes)),
            Value::text(self.table.table()),
        ];
        let rows = self.read(self.statements.table.sendable(), &values).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let marker = super::text(row, "marker")
            .map_err(|error| StoreError::unavailable("looking for the table", error))?;
        match schema_version(marker.as_deref()) {
            version if version > SCHEMA_VERSION => Err(newer_schema(&self.table, version)),
            version => Ok(Some(version)),
        }
    }

    async fn create(&self) -> Result<(), sqlx::Error> {
        let mut checkout = Checkout::from(&self.connections).await?;
        let connection = checkout.connection()?;
        if let Some(database) = self.table.schema() {
            let present =
                sqlx::query("SELECT 1 FROM information_schema.schemata WHERE schema_name = ?")
                    .bind(database)
                    .fetch_optional(&mut *connection)
                    .await?;
            if present.is_none() {
                let sql = format!("CREATE DATABASE IF NOT EXISTS `{database}`");
                sqlx::raw_sql(AssertSqlSafe(sql))
                    .execute(&mut *connection)
                    .await?;
            }
        }
        let schema = self.table.compose(include_str!("schema.sql"), '`');
        sqlx::raw_sql(AssertSqlSafe(schema))
            .execute(&mut *connection)
            .await?;
        checkout.give_back();
        Ok(())
    }
}
