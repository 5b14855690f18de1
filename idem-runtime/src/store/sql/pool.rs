//! Connections: reaching the server, the store's own pool, and one connection for one statement.

use futures_util::future::BoxFuture;
use sqlx::{
    ConnectOptions, Connection, Database, Pool,
    pool::{PoolConnection, PoolConnectionMetadata, PoolOptions},
};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{Instant, sleep, timeout_at},
};

/// How long a server may take to be reached when a store is opened.
pub(in crate::store) const REACHED_WITHIN: Duration = Duration::from_secs(5);
/// Pause before a server that is not up yet is tried again.
const NOT_UP_YET: Duration = Duration::from_millis(100);
/// A connection that has been idle for so long is tested before it is used.
const TEST_AFTER: Duration = Duration::from_secs(1);

/// What the pool is to be like that a builder opens for its store.
#[derive(Debug, Clone)]
pub(in crate::store) struct OwnPool<O> {
    pub(in crate::store) max_connections: u32,
    pub(in crate::store) acquire_timeout: Duration,
    /// In the place of all others.
    pub(in crate::store) options: Option<O>,
}

impl<O> Default for OwnPool<O> {
    fn default() -> Self {
        Self {
            // sqlx's default.
            max_connections: 10,
            acquire_timeout: Duration::from_secs(5),
            options: None,
        }
    }
}

impl<DB: Database> OwnPool<PoolOptions<DB>> {
    pub(in crate::store) fn options(&self) -> PoolOptions<DB> {
        self.options.clone().unwrap_or_else(|| {
            PoolOptions::new()
                .max_connections(self.max_connections)
                .acquire_timeout(self.acquire_timeout)
                .test_before_acquire(false)
                .before_acquire(|connection, metadata| Box::pin(test_if_idle(connection, metadata)))
        })
    }
}

/// The methods of a store's builder that say what its `own_pool` is to be like.
macro_rules! own_pool_methods {
    ($options:ty) => {
        /// How many connections the pool has at most that [`connect`](Self::connect) opens.
        /// Default: 10.
        pub fn max_connections(mut self, connections: u32) -> Self {
            self.own_pool.max_connections = connections;
            self
        }

        /// How long that pool waits for a connection. Default: five seconds. The time budget of a
        /// store call holds beside it; a connection that takes longer than the budget to open is
        /// there for a later call.
        pub fn acquire_timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.own_pool.acquire_timeout = timeout;
            self
        }

        /// Other options for the pool that [`connect`](Self::connect) opens, taken as they are in
        /// the place of its own. Its own test a connection before use only if it has been idle for a
        /// second: sqlx's default tests it before each use, which is a round trip.
        pub fn pool_options(mut self, options: $options) -> Self {
            self.own_pool.options = Some(options);
            self
        }
    };
}
pub(in crate::store) use own_pool_methods;

/// Tests a connection before use if it may be gone.
async fn test_if_idle<C: Connection>(
    connection: &mut C,
    metadata: PoolConnectionMetadata,
) -> Result<bool, sqlx::Error> {
    if metadata.idle_for < TEST_AFTER {
        return Ok(true);
    }
    connection.ping().await.map(|()| true)
}

/// Connects without a pool, which would keep the reason of a failure to itself. A server that is just
/// being started is waited for.
pub(in crate::store) async fn reach<O, C>(options: &O) -> Result<C, sqlx::Error>
where
    O: ConnectOptions<Connection = C>,
    C: Connection,
{
    let deadline = Instant::now() + REACHED_WITHIN;
    let mut refused = None;
    loop {
        let error = match timeout_at(deadline, options.connect()).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            // Cut off in the middle of one more try, a server that has refused all others is not silent.
            Err(_) => return Err(refused.unwrap_or_else(silent)),
        };
        let not_up_yet = match &error {
            sqlx::Error::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
            sqlx::Error::Database(error) => error.is_transient_in_connect_phase(),
            _ => false,
        };
        if !not_up_yet || Instant::now() + NOT_UP_YET >= deadline {
            return Err(error);
        }
        refused = Some(error);
        sleep(NOT_UP_YET).await;
    }
}

/// The error for a server that says nothing.
pub(in crate::store) fn silent() -> sqlx::Error {
    let sentence = format!("no answer within {} s", REACHED_WITHIN.as_secs());
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, sentence))
}

/// A pool whose connections come to be however impatient its borrowers are.
///
/// A borrower gives up when its time budget is spent, and what it was about to open is lost with it:
/// where opening takes longer than that, no connection would ever be opened. So it goes on in a task of
/// its own and is there for the next borrower.
#[derive(Debug)]
pub(in crate::store) struct Connections<DB: Database> {
    pool: Pool<DB>,
    /// How many may go on: as many as the pool has room for. (Some only wait for their turn.)
    left_behind: Arc<Semaphore>,
}

impl<DB: Database> Connections<DB> {
    pub(in crate::store) fn new(pool: Pool<DB>) -> Self {
        let room = usize::try_from(pool.options().get_max_connections()).unwrap_or(1);
        Self {
            pool,
            left_behind: Arc::new(Semaphore::new(room.min(Semaphore::MAX_PERMITS))),
        }
    }

    pub(in crate::store) fn pool(&self) -> &Pool<DB> {
        &self.pool
    }

    pub(in crate::store) async fn acquire(&self) -> Result<PoolConnection<DB>, sqlx::Error> {
        let acquiring = Box::pin(self.pool.acquire());
        Acquiring(Some(acquiring), &self.left_behind).await
    }
}

type Opening<DB> = BoxFuture<'static, Result<PoolConnection<DB>, sqlx::Error>>;

/// A connection on its way, until this is dropped or it is there.
struct Acquiring<'a, DB: Database>(Option<Opening<DB>>, &'a Arc<Semaphore>);

impl<DB: Database> Future for Acquiring<'_, DB> {
    type Output = Result<PoolConnection<DB>, sqlx::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(opening) = self.0.as_mut() else {
            return Poll::Ready(Err(sqlx::Error::PoolClosed));
        };
        let polled = opening.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<DB: Database> Drop for Acquiring<'_, DB> {
    fn drop(&mut self) {
        let Some(opening) = self.0.take() else { return };
        let place = Arc::clone(self.1).try_acquire_owned();
        if let (Ok(place), Ok(runtime)) = (place, Handle::try_current()) {
            runtime.spawn(async move {
                // Dropped, it goes to the pool.
                drop(opening.await);
                drop(place);
            });
        }
    }
}

/// A connection out of the pool for one statement.
///
/// It goes back only when the statement has come to its end. Dropped before that (the caller's
/// future was dropped, the network failed), it is closed: a connection with half an answer on the
/// wire is nothing to hand to the next borrower, and the pool opens another in its place.
pub(in crate::store) struct Checkout<DB: Database>(Option<PoolConnection<DB>>);

impl<DB: Database> Checkout<DB> {
    pub(in crate::store) async fn from(connections: &Connections<DB>) -> Result<Self, sqlx::Error> {
        Ok(Self(Some(connections.acquire().await?)))
    }

    pub(in crate::store) fn connection(&mut self) -> Result<&mut DB::Connection, sqlx::Error> {
        self.0.as_deref_mut().ok_or(sqlx::Error::PoolClosed)
    }

    /// Gives the connection back after a statement that came to its end.
    pub(in crate::store) fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl<DB: Database> Drop for Checkout<DB> {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}
