//! Opening the file.

use crate::store::StoreError;
use sqlx::{
    ConnectOptions, Connection, Row, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use std::time::{Duration, Instant};

/// How long to go on when others keep the file locked.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How long SQLite waits for the write lock before it says that it is busy. It is asked again at
/// once, until [`PATIENCE`] is over: SQLite looks less and less often the longer it waits, and under
/// a crowd of writers a call that all requests wait for would starve.
const ONE_WAIT: Duration = Duration::from_millis(10);

/// Pages in the log after which a commit copies them into the file, a tenth of SQLite's default: the
/// commit waits for that, and so does all that has come meanwhile. Ten small halts are not noticed
/// where a long one is.
const CHECKPOINT_PAGES: &str = "100";

/// The options for a database that is named by a URL or a path.
pub(super) fn options(database: &str) -> Result<SqliteConnectOptions, StoreError> {
    if database.contains(":memory:") || database.contains("mode=memory") {
        return Err(in_memory());
    }
    if database.starts_with("sqlite:") {
        return database.parse().map_err(|error: sqlx::Error| {
            StoreError::unavailable(format!("understanding {database:?}"), error)
        });
    }
    if let Some((scheme, _)) = database.split_once("://") {
        return Err(StoreError::Unavailable {
            context: format!(
                "{scheme:?} is not a scheme of SQLite's: write sqlite:path/to/file.db, or the path"
            ),
            source: None,
        });
    }
    Ok(SqliteConnectOptions::new().filename(database))
}

fn in_memory() -> StoreError {
    StoreError::Unavailable {
        context:
            "a SQLite database without a path, or in memory, belongs to one connection and is \
                  lost with it: give SqliteStore a file, such as sqlite:records.db, or take a \
                  MemoryStore"
                .to_owned(),
        source: None,
    }
}

/// A database, and how this store opens it.
pub(super) struct Database {
    options: SqliteConnectOptions,
}

impl Database {
    pub(super) fn new(options: SqliteConnectOptions) -> Self {
        let options = options
            .read_only(false)
            .immutable(false)
            .shared_cache(false)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .statement_cache_capacity(32)
            // Values are bound and never shown, but each statement would still be formatted.
            .disable_statement_logging();
        Database { options }
    }

    /// For connections that write.
    pub(super) fn writer_options(&self) -> SqliteConnectOptions {
        let options = self.options.clone().busy_timeout(ONE_WAIT);
        options.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
    }

    pub(super) async fn open_writer(&self) -> Result<SqliteConnection, StoreError> {
        self.open(self.writer_options()).await
    }

    pub(super) async fn open_reader(&self) -> Result<SqliteConnection, StoreError> {
        // Readers never wait for writers in WAL mode, save for a moment of recovery after a crash.
        let options = self.options.clone().busy_timeout(PATIENCE);
        self.open(options.pragma("query_only", "ON")).await
    }

    async fn open(&self, options: SqliteConnectOptions) -> Result<SqliteConnection, StoreError> {
        let failed = |error: sqlx::Error| {
            let path = self.options.get_filename();
            StoreError::unavailable(format!("opening {}", path.display()), error)
        };
        let since = Instant::now();
        let mut connection = loop {
            match options.connect().await {
                Ok(connection) => break connection,
                // Several processes put a new file into WAL mode at once.
                Err(error) if is_busy(&error) && since.elapsed() < PATIENCE => {
                    tokio::time::sleep(ONE_WAIT).await;
                }
                Err(error) => return Err(failed(error)),
            }
        };
        // Empty for a database in memory, whatever options it was opened with.
        let file: Option<String> =
            sqlx::query("SELECT file FROM pragma_database_list WHERE name = 'main'")
                .fetch_one(&mut connection)
                .await
                .and_then(|row| row.try_get(0))
                .map_err(failed)?;
        if file.is_none_or(|file| file.is_empty()) {
            // Nothing is lost if closing fails: it is not used.
            let _ = connection.close().await;
            return Err(in_memory());
        }
        Ok(connection)
    }
}

/// Closes a connection; there is nothing else to be done if that fails.
pub(super) async fn close(connection: SqliteConnection) {
    if let Err(error) = connection.close().await {
        tracing::warn!(%error, "a connection of the SQLite store was not closed properly");
    }
}

/// SQLite's primary result code of an error, see <https://sqlite.org/rescode.html>.
pub(super) fn result_code(error: &sqlx::Error) -> Option<i32> {
    primary(error.as_database_error()?.code().as_deref())
}

fn primary(code: Option<&str>) -> Option<i32> {
    // The low byte of an extended code is the primary one.
    code?.parse::<i32>().ok().map(|code| code & 0xff)
}

/// Another connection has the lock that this one needs; nothing was done.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    error.is_some_and(|error| is_busy_code(error.code().as_deref()))
}

/// The same by the error's code alone.
pub(in crate::store) fn is_busy_code(code: Option<&str>) -> bool {
    const BUSY: i32 = 5;
    const LOCKED: i32 = 6;
    matches!(primary(code), Some(BUSY | LOCKED))
}

/// The statement was refused for what it says or holds; SQLite has undone it and nothing else, and
/// the transaction around it goes on.
pub(super) fn is_of_one_statement(error: &sqlx::Error) -> bool {
    const TOO_BIG: i32 = 18;
    const CONSTRAINT: i32 = 19;
    const MISMATCH: i32 = 20;
    matches!(result_code(error), Some(TOO_BIG | CONSTRAINT | MISMATCH))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    async fn pragma(connection: &mut SqliteConnection, statement: &'static str) -> String {
        let row = sqlx::query(statement).fetch_one(connection).await.unwrap();
        row.try_get(0)
            .or_else(|_| row.try_get::<i64, _>(0).map(|number| number.to_string()))
            .unwrap()
    }

    #[tokio::test]
    async fn the_writer_syncs_every_commit_whatever_the_application_does() {
        const FULL: &str = "2";
        let directory = tempfile::TempDir::new().unwrap();
        let careless = SqliteConnectOptions::new()
            .filename(directory.path().join("test.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Memory)
            .synchronous(SqliteSynchronous::Off);
        let mut writer = Database::new(careless).open_writer().await.unwrap();
        assert_eq!(pragma(&mut writer, "PRAGMA synchronous").await, FULL);
        assert_eq!(pragma(&mut writer, "PRAGMA journal_mode").await, "wal");
    }

    #[tokio::test]
    async fn the_reader_cannot_write() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("test.db");
        let database = Database::new(
            options(path.to_str().unwrap())
                .unwrap()
                .create_if_missing(true),
        );
        let mut reader = database.open_reader().await.unwrap();
        let written = sqlx::query("CREATE TABLE t (a)").execute(&mut reader).await;
        assert!(written.is_err());
    }
}
