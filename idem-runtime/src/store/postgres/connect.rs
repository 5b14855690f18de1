//! Opening the store: the pool, what is between it and the server, and the table.

use super::{Outcome, PostgresStore, Statements};
use crate::{
    record::RecordId,
    store::{
        Store as _, StoreError,
        sql::{
            Checkout, SCHEMA_VERSION, TableName, newer_schema, no_table, refused, schema_version,
        },
    },
};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, PgConnection, PgPool, Row as _,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{
    str::FromStr as _,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use uuid::Uuid;

/// How long the store's own pool waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the connection that looks for a pooler may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Key of the advisory lock under which one instance at a time migrates: `idem` in ASCII. It is
/// held by a transaction and goes with it.
const MIGRATION_LOCK: i64 = 0x6964_656d;

/// Options of a [`PostgresStore`].
#[derive(Debug, Clone)]
#[must_use]
pub struct PostgresStoreBuilder {
    table: String,
    migrate: bool,
    prepared: Option<bool>,
    pool_options: Option<PgPoolOptions>,
}

impl Default for PostgresStoreBuilder {
    fn default() -> Self {
        Self {
            table: crate::store::sql::DEFAULT_TABLE.to_owned(),
            migrate: true,
            prepared: None,
            pool_options: None,
        }
    }
}

impl PostgresStoreBuilder {
    /// The table, `table` or `schema.table`: ASCII letters, digits and underscores. It is written
    /// quoted, so case counts. Default: `idempotency_records`.
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// Whether to create the table (and its schema) where it is missing, and to bring an older one
    /// up to date. Default: yes. It is done in one transaction, under a lock that goes with it:
    /// several instances may start at once, and one may die in the middle. An up-to-date table is
    /// not touched and needs no right to create anything.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Whether to use prepared statements. Default: found out by one short connection of its own,
    /// which tells a server from a pooler in front of it. Say `true` behind a pooler that keeps them
    /// for its clients (PgBouncer 1.21 and later with `max_prepared_statements`) or that keeps a
    /// server connection for each client (session mode); they save the server's planning.
    pub fn prepared_statements(mut self, prepared: bool) -> Self {
        self.prepared = Some(prepared);
        self
    }

    /// Options of the pool that [`PostgresStoreBuilder::connect`] opens. Default: sqlx's, with an
    /// acquire timeout of five seconds.
    pub fn pool_options(mut self, options: PgPoolOptions) -> Self {
        self.pool_options = Some(options);
        self
    }

    /// Connects to the database of a URL with a pool of the store's own.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if the URL or the table's name cannot be understood, the server
    /// cannot be reached, or the table is missing and cannot be created, or is of a later release.
    pub async fn connect(self, url: &str) -> Result<PostgresStore, StoreError> {
        let mut options = PgConnectOptions::from_str(url)
            .map_err(|error| StoreError::unavailable("understanding the Postgres URL", error))?;
        let found = Server::look(&options, self.prepared).await;
        if !found.prepared {
            // Statements then hold keys and answers: not for the log.
            options = options.disable_statement_logging();
        }
        let pool_options = self
            .pool_options
            .clone()
            .unwrap_or_else(|| PgPoolOptions::new().acquire_timeout(ACQUIRE_TIMEOUT));
        self.open(pool_options.connect_lazy_with(options), &found)
            .await
    }

    /// Uses the application's pool.
    ///
    /// # Errors
    ///
    /// As [`PostgresStoreBuilder::connect`].
    pub async fn from_pool(self, pool: PgPool) -> Result<PostgresStore, StoreError> {
        let found = Server::look(&pool.connect_options(), self.prepared).await;
        self.open(pool, &found).await
    }

    async fn open(self, pool: PgPool, found: &Server) -> Result<PostgresStore, StoreError> {
        let table = TableName::parse(&self.table)?;
        let store = PostgresStore {
            statements: Arc::new(Statements::for_table(&table)),
            table,
            pool,
            inline: AtomicBool::new(!found.prepared),
            finds_open_transactions: found.finds_open_transactions,
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

/// What answers at the other end of a connection.
struct Server {
    prepared: bool,
    finds_open_transactions: bool,
}

impl Server {
    /// Tells a server from a pooler: a setting that is given when the connection begins is there
    /// on the connection's own server session. A pooler refuses it, or drops it, for its server
    /// sessions belong to nobody.
    async fn look(options: &PgConnectOptions, prepared: Option<bool>) -> Self {
        let token = Uuid::new_v4().simple().to_string();
        let probed = options.clone().options([("idem.probe", &token)]);
        let looked = tokio::time::timeout(PROBE_TIMEOUT, async {
            let mut connection = probed.connect().await?;
            Self::ask(&mut connection, &token).await
        })
        .await;
        let (direct, finds_open_transactions) = match looked {
            Ok(Ok(found)) => found,
            _ => (false, true),
        };
        if !direct && prepared.is_none() {
            tracing::info!(
                store = "postgres",
                "this is not a direct connection to a server: doing without prepared statements"
            );
        }
        Self {
            prepared: prepared.unwrap_or(direct),
            finds_open_transactions,
        }
    }

    /// Whether the session has the setting; and whether the server dates a statement that is sent
    /// whole and its transaction the same, as PostgreSQL does.
    async fn ask(connection: &mut PgConnection, token: &str) -> Result<(bool, bool), sqlx::Error> {
        let row = sqlx::raw_sql(
            "SELECT current_setting('idem.probe', true) AS token, \
             now() = statement_timestamp() AS alone",
        )
        .fetch_one(connection)
        .await?;
        let found: Option<String> = row.try_get("token")?;
        Ok((found.as_deref() == Some(token), row.try_get("alone")?))
    }
}

impl PostgresStore {
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
        let table = self.table.quoted('"');
        let values = [super::Value::Text(&table)];
        let Outcome { rows, .. } = self.run(&self.statements.table, &values).await?;
        let row = rows
            .first()
            .ok_or_else(|| refused("looking for the table"))?;
        let read = |error| StoreError::unavailable("looking for the table", error);
        if !row.try_get::<bool, _>("present").map_err(read)? {
            return Ok(None);
        }
        let marker: Option<String> = row.try_get("marker").map_err(read)?;
        match schema_version(marker.as_deref()) {
            version if version > SCHEMA_VERSION => Err(newer_schema(&self.table, version)),
            version => Ok(Some(version)),
        }
    }

    /// All or nothing, one instance at a time. The connection is closed if this is dropped or fails
    /// half-way, which rolls everything back and frees the lock; and if this process is frozen
    /// half-way, the server ends the transaction after a while, so that the others get on.
    async fn create(&self) -> Result<(), sqlx::Error> {
        let mut checkout = Checkout::from(&self.pool).await?;
        let connection = checkout.connection()?;
        sqlx::raw_sql(AssertSqlSafe(format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; \
             SET LOCAL idle_in_transaction_session_timeout = '10s'; \
             SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"
        )))
        .execute(&mut *connection)
        .await?;
        // Another instance may have been faster, and may have been of a later release.
        let name = self.table.quoted('"');
        let present: bool = sqlx::raw_sql(AssertSqlSafe(format!(
            "SELECT to_regclass('{name}') IS NOT NULL AS present"
        )))
        .fetch_one(&mut *connection)
        .await?
        .try_get("present")?;
        if !present {
            if let Some(schema) = self.quoted_schema() {
                let present: bool = sqlx::raw_sql(AssertSqlSafe(format!(
                    "SELECT to_regnamespace('{schema}') IS NOT NULL AS present"
                )))
                .fetch_one(&mut *connection)
                .await?
                .try_get("present")?;
                if !present {
                    let sql = format!("CREATE SCHEMA {schema}");
                    sqlx::raw_sql(AssertSqlSafe(sql))
                        .execute(&mut *connection)
                        .await?;
                }
            }
            let schema = self.table.compose(include_str!("schema.sql"), '"');
            sqlx::raw_sql(AssertSqlSafe(schema))
                .execute(&mut *connection)
                .await?;
        }
        sqlx::raw_sql("COMMIT").execute(&mut *connection).await?;
        checkout.give_back();
        Ok(())
    }

    fn quoted_schema(&self) -> Option<String> {
        self.table.schema().map(|schema| format!("\"{schema}\""))
    }
}
