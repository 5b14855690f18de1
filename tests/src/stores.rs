//! Opening a store by its address: the one place that knows which there are.

use idem_runtime::{
    store::{
        MemoryStore, MySqlStore, PostgresStore, SqliteStore, Store, StoreError, redis::RedisOptions,
    },
    testing::{Fault, FaultStore, Method, Occasion},
};
use sqlx::{MySqlPool, PgPool, SqlitePool, postgres::PgPoolOptions, sqlite::SqliteConnectOptions};
use std::{fmt, sync::Arc, time::Duration};

/// Which store to open, and how.
#[derive(Debug, Clone)]
pub struct Request {
    /// `memory:`, `sqlite:PATH`, `postgres://…`, `mysql://…`, `redis://…`, `redis-cluster://…`.
    pub url: String,
    /// Connections to a store that has any.
    pub connections: u32,
    /// Capacity of a memory store.
    pub memory_records: usize,
    /// Pause before every completion; zero: none.
    pub slow_complete: Duration,
    /// Methods whose first so many calls fail and are not carried out.
    pub failing: Vec<(Method, u64)>,
    /// What every key in Redis begins with, if not the default.
    pub key_prefix: Option<String>,
}

impl Request {
    /// The store of this address with everything else as the lab has it by default.
    pub fn of(url: impl Into<String>) -> Request {
        Request {
            url: url.into(),
            connections: 10,
            memory_records: MemoryStore::DEFAULT_RECORDS,
            slow_complete: Duration::ZERO,
            failing: Vec::new(),
            key_prefix: None,
        }
    }
}

/// An open store.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// How many records it holds, where it can tell without being asked over a connection.
    pub entries: Entries,
    /// The database that the records stand in.
    pub database: Database,
}

/// The database of a store, for rows of one's own beside its records.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums)] // whoever uses one has to decide for each
pub enum Database {
    /// The store is no SQL database.
    None,
    /// A SQLite file.
    Sqlite(SqlitePool),
    /// PostgreSQL.
    Postgres(PgPool),
    /// MySQL or MariaDB.
    MySql(MySqlPool),
}

/// Counts the records of a store that lives in this process.
pub struct Entries(Option<Box<dyn Fn() -> usize + Send + Sync>>);

impl Entries {
    /// The number of records, expired ones that still take up room included.
    #[must_use]
    pub fn count(&self) -> Option<usize> {
        self.0.as_ref().map(|count| count())
    }
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entries").field(&self.count()).finish()
    }
}

/// Opens a store, and prepares its schema where it has one.
///
/// # Errors
///
/// A sentence, if the scheme is unknown or the store cannot be reached.
pub async fn open(request: &Request) -> Result<Opened, String> {
    let (scheme, rest) = request
        .url
        .split_once(':')
        .ok_or_else(|| unknown(&request.url))?;
    let mut entries = Entries(None);
    let mut database = Database::None;
    let store: Arc<dyn Store> = match scheme {
        "memory" if !rest.is_empty() => {
            return Err(format!(
                "a memory store has no name or file, so {:?} is none: write memory: without {rest:?}",
                request.url
            ));
        }
        "memory" => {
            let memory =
                MemoryStore::with_capacity(request.memory_records, MemoryStore::DEFAULT_BYTES);
            let counted = memory.clone();
            entries = Entries(Some(Box::new(move || counted.len())));
            Arc::new(memory)
        }
        "sqlite" => {
            let opened = SqliteStore::connect(&request.url).await;
            let opened = opened.map_err(unreachable)?;
            let file = SqliteConnectOptions::new().filename(opened.path());
            database = Database::Sqlite(SqlitePool::connect_lazy_with(file));
            Arc::new(opened)
        }
        "postgres" | "postgresql" => {
            let builder = PostgresStore::builder().max_connections(request.connections);
            let opened = builder.connect(&request.url).await;
            let opened = opened.map_err(unreachable)?;
            // The lab's own rows take connections of their own: one that is lent from the store's pool
            // makes the store look twice.
            let pool = PgPoolOptions::new().max_connections(request.connections);
            let pool = pool.connect_lazy(&request.url);
            database = Database::Postgres(pool.map_err(|error| error.to_string())?);
            Arc::new(opened)
        }
        "mysql" => {
            let builder = MySqlStore::builder().max_connections(request.connections);
            let opened = builder.connect(&request.url).await;
            let opened = opened.map_err(unreachable)?;
            database = Database::MySql(opened.pool().clone());
            Arc::new(opened)
        }
        "redis" | "redis-cluster" => {
            let mut options = RedisOptions::new();
            if let Some(prefix) = &request.key_prefix {
                options = options.prefix(prefix);
            }
            let opened = options.connect(&request.url).await;
            Arc::new(opened.map_err(unreachable)?)
        }
        _ => return Err(unknown(scheme)),
    };
    let store = if request.slow_complete.is_zero() && request.failing.is_empty() {
        store
    } else {
        let faulty = FaultStore::over(store);
        if !request.slow_complete.is_zero() {
            let late = Fault::DelayBefore(request.slow_complete);
            faulty.script(Method::Complete, Occasion::Always, late);
        }
        for (method, count) in &request.failing {
            faulty.script(*method, Occasion::Next(*count), Fault::FailBefore);
        }
        // Transactions would go past what comes between, so there are none.
        database = Database::None;
        Arc::new(faulty)
    };
    Ok(Opened {
        store,
        entries,
        database,
    })
}

fn unknown(scheme: &str) -> String {
    format!(
        "there is no store for {scheme:?}: memory:, sqlite:PATH, postgres://…, mysql://…, redis://… and redis-cluster://… there are"
    )
}

fn unreachable(error: StoreError) -> String {
    let mut sentence = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        sentence.push_str(": ");
        sentence.push_str(&cause.to_string());
        source = cause.source();
    }
    sentence
}
