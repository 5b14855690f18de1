//! Being told that another process has settled a record.

use super::statement::{Sending, Statement, Value, channel};
use crate::{record::RecordId, store::sql::TableName, waiters::Waiters};
use sqlx::{
    Acquire as _,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use std::{
    collections::HashSet,
    fmt::{self, Write as _},
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::Notify,
    task::AbortHandle,
    time::{sleep, timeout},
};

/// How long the server may take for anything that is asked on the connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bounds of the pause before the connection is opened again, which doubles.
const PAUSES: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(30);

/// Listens for notifications on a connection of its own, from the first time that somebody waits.
pub(super) struct Listener {
    shared: Arc<Shared>,
    /// Where it runs: not on whichever of the application's runtimes somebody waits first.
    runtime: Handle,
    task: OnceLock<AbortHandle>,
}

struct Shared {
    options: PgConnectOptions,
    channel: String,
    wait: Statement,
    /// Who waits, by the tokens of their records.
    waiters: Arc<Waiters<String>>,
    /// Records that the database does not know to be waited for yet.
    unmarked: Mutex<HashSet<RecordId>>,
    wake: Notify,
}

/// What a notification says: which record was settled, without saying its key.
pub(super) fn token(id: &RecordId) -> String {
    let mut token = String::with_capacity(32);
    for byte in &id.hash("settled")[..16] {
        // Writing to a string cannot fail.
        let _ = write!(token, "{byte:02x}");
    }
    token
}

impl Listener {
    /// A listener for a table, which connects with these options. Must be called within a runtime.
    pub(super) fn new(options: PgConnectOptions, table: &TableName, wait: Statement) -> Self {
        Self {
            shared: Arc::new(Shared {
                options,
                channel: channel(table),
                wait,
                waiters: Arc::default(),
                unmarked: Mutex::default(),
                wake: Notify::new(),
            }),
            runtime: Handle::current(),
            task: OnceLock::new(),
        }
    }

    /// Resolves when this record is settled, if that is heard.
    pub(super) async fn changed(&self, id: &RecordId) {
        let mut waiter = self.shared.waiters.wait_for(&token(id));
        self.shared.unmarked().insert(id.clone());
        self.shared.wake.notify_one();
        self.task.get_or_init(|| {
            let shared = Arc::clone(&self.shared);
            self.runtime.spawn(shared.listen_for_ever()).abort_handle()
        });
        waiter.settled().await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl Shared {
    fn unmarked(&self) -> MutexGuard<'_, HashSet<RecordId>> {
        self.unmarked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn listen_for_ever(self: Arc<Self>) {
        let mut pause = *PAUSES.start();
        loop {
            let error = match timeout(PATIENCE, self.connect()).await {
                Ok(Ok(listener)) => {
                    pause = *PAUSES.start();
                    self.listen(listener).await
                }
                Ok(Err(error)) => error,
                Err(_) => sqlx::Error::PoolTimedOut,
            };
            tracing::warn!(
                store = "postgres",
                %error,
                "no notifications for now: duplicates that wait for another process look from time to time"
            );
            sleep(pause).await;
            pause = (pause * 2).min(*PAUSES.end());
            // For nobody, no connection is opened.
            self.forget_who_left();
            while self.waiters.is_empty() {
                self.wake.notified().await;
            }
        }
    }

    async fn connect(&self) -> Result<PgListener, sqlx::Error> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .acquire_timeout(PATIENCE)
            .connect_lazy_with(self.options.clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        listener.listen(&self.channel).await?;
        Ok(listener)
    }

    /// Tells those who wait what is heard, until the connection is lost.
    async fn listen(&self, mut listener: PgListener) -> sqlx::Error {
        loop {
            tokio::select! {
                heard = listener.try_recv() => match heard {
                    Ok(Some(notification)) => self.waiters.settled(notification.payload()),
                    Ok(None) => return sqlx::Error::Io(std::io::ErrorKind::UnexpectedEof.into()),
                    Err(error) => return error,
                },
                () = self.wake.notified() => {
                    if let Err(error) = self.mark(&mut listener).await {
                        return error;
                    }
                }
            }
        }
    }

    /// Notes in the database which records are waited for.
    async fn mark(&self, listener: &mut PgListener) -> Result<(), sqlx::Error> {
        self.forget_who_left();
        let ids: Vec<RecordId> = self.unmarked().drain().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let values = [
            Value::Texts(ids.iter().map(RecordId::scope).collect()),
            Value::Texts(ids.iter().map(RecordId::key).collect()),
            Value::Texts(ids.iter().map(RecordId::request_path).collect()),
        ];
        let connection = listener.acquire().await?;
        let marking = self.wait.run(connection, Sending::Prepared, &values);
        match timeout(PATIENCE, marking).await {
            // Refused, such as for the sake of another transaction: they look from time to time.
            Ok(Ok(_) | Err(sqlx::Error::Database(_))) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(sqlx::Error::PoolTimedOut),
        }
    }

    fn forget_who_left(&self) {
        self.unmarked()
            .retain(|id| self.waiters.waits_for(&token(id)));
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("channel", &self.shared.channel)
            .finish_non_exhaustive()
    }
}
