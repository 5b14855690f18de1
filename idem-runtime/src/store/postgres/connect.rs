//! Opening the store: the pool, what is between it and the server, and the table.

use super::{Outcome, PostgresStore, Statements, Value, listener::Listener};
use crate::{
    record::RecordId,
    store::{
        Store as _, StoreError,
        sql::{
            Checkout, Connections, DEFAULT_TABLE, OwnPool, REACHED_WITHIN, SCHEMA_VERSION,
            TableName, newer_schema, no_table, own_pool_methods, reach, refused, schema_version,
            silent,
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
};
use uuid::Uuid;

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
    listen_on: Option<String>,
    own_pool: OwnPool<PgPoolOptions>,
}

impl Default for PostgresStoreBuilder {
    fn default() -> Self {
        Self {
            table: DEFAULT_TABLE.to_owned(),
            migrate: true,
            prepared: None,
            listen_on: None,
            own_pool: OwnPool::default(),
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

    /// Where the one connection goes that listens for notifications, so that a duplicate which waits
    /// for a request of another process is answered at once. Default: where the pool's go, or nowhere
    /// if there is a pooler, which would give the connection to somebody else. The address must lead
    /// past any pooler, to the same database.
    pub fn listen_on(mut self, url: impl Into<String>) -> Self {
        self.listen_on = Some(url.into());
        self
    }

    own_pool_methods!(PgPoolOptions);

    /// Connects to the database of a URL with a pool of the store's own.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if the URL or the table's name cannot be understood, the server
    /// cannot be reached, or the table is missing and cannot be created, or is of a later release.
    pub async fn connect(self, url: &str) -> Result<PostgresStore, StoreError> {
        let mut options = options_of(url)?;
        let found = Server::look(&options)
            .await
            .map_err(|error| StoreError::unavailable("connecting to the Postgres server", error))?;
        let prepared = found.prepared(self.prepared);
        if !prepared {
            // Statements then hold keys and answers: not for the log.
            options = options.disable_statement_logging();
        }
        let pool = self.own_pool.options().connect_lazy_with(options);
        self.open(pool, true, &found, prepared).await
    }

    /// Uses the application's pool.
    ///
    /// # Errors
    ///
    /// As [`PostgresStoreBuilder::connect`].
    pub async fn from_pool(self, pool: PgPool) -> Result<PostgresStore, StoreError> {
        // One connection more than the application has may be one too many: not the pool's fault.
        let found = Server::look(&pool.connect_options()).await;
        let found = found.unwrap_or(Server::UNKNOWN);
        let prepared = found.prepared(self.prepared);
        self.open(pool, false, &found, prepared).await
    }

    async fn open(
        self,
        pool: PgPool,
        own: bool,
        found: &Server,
        prepared: bool,
    ) -> Result<PostgresStore, StoreError> {
        let table = TableName::parse(&self.table)?;
        let statements = Arc::new(Statements::for_table(&table));
        let past_the_pooler = match &self.listen_on {
            Some(url) => Some(options_of(url)?),
            None if found.direct => Some(PgConnectOptions::clone(&pool.connect_options())),
            None => None,
        };
        let listener =
            past_the_pooler.map(|options| Listener::new(options, &table, statements.wait.clone()));
        let store = PostgresStore {
            statements,
            table,
            connections: Connections::new(pool),
            inline: AtomicBool::new(!prepared),
            suspicious: AtomicBool::new(!own),
            finds_open_transactions: found.finds_open_transactions,
            listener,
        };
        if self.migrate {
            store.migrate().await?;
        } else if store.present_version().await?.is_none() {
            return Err(no_table(&store.table));
        }
        // Names every column: a table that lacks one is found out now, not by the first request.
        store.get(&RecordId::new("", "", "")).await?;
        let nobody = || Value::Texts(Vec::new());
        store
            .run(&store.statements.wait, &[nobody(), nobody(), nobody()])
            .await?;
        Ok(store)
    }
}

/// What answers at the other end of a connection.
struct Server {
    /// Whether it is the server itself.
    direct: bool,
    finds_open_transactions: bool,
}

impl Server {
    /// Takes nothing for granted.
    const UNKNOWN: Server = Server {
        direct: false,
        finds_open_transactions: true,
    };

    /// Tells a server from a pooler: a setting that is given when the connection begins is there
    /// on the connection's own server session. A pooler refuses it, or drops it, for its server
    /// sessions belong to nobody.
    async fn look(options: &PgConnectOptions) -> Result<Self, sqlx::Error> {
        let token = Uuid::new_v4().simple().to_string();
        let probed = options.clone().options([("idem.probe", &token)]);
        let mut connection = match reach(&probed).await {
            Err(sqlx::Error::Database(_)) => reach(options).await?,
            reached => reached?,
        };
        let asking = Self::ask(&mut connection, &token);
        match tokio::time::timeout(REACHED_WITHIN, asking).await {
            Ok(found) => found,
            Err(_) => Err(silent()),
        }
    }

    /// Whether the session has the setting; and whether the server dates a statement that is sent
    /// whole and its transaction the same, as PostgreSQL does.
    async fn ask(connection: &mut PgConnection, token: &str) -> Result<Self, sqlx::Error> {
        let row = sqlx::raw_sql(
            "SELECT current_setting('idem.probe', true) AS token, \
             now() = statement_timestamp() AS alone",
        )
        .fetch_one(connection)
        .await?;
        let found: Option<String> = row.try_get("token")?;
        Ok(Self {
            direct: found.as_deref() == Some(token),
            finds_open_transactions: row.try_get("alone")?,
        })
    }

    fn prepared(&self, wish: Option<bool>) -> bool {
        if !self.direct && wish.is_none() {
            tracing::info!(
                store = "postgres",
                "this is not a direct connection to a server: doing without prepared statements"
            );
        }
        wish.unwrap_or(self.direct)
    }
}

fn options_of(url: &str) -> Result<PgConnectOptions, StoreError> {
    PgConnectOptions::from_str(url)
        .map_err(|error| StoreError::unavailable("understanding the Postgres URL", error))
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
        let values = [Value::Text(&table)];
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
        let mut checkout = Checkout::from(&self.connections).await?;
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
