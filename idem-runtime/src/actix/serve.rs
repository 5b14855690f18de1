//! Shutting down without losing work.

use crate::actix::config::Idempotency;
use actix_web::dev::Server;
use std::{io, time::Duration};

/// How long a shutdown waits for requests in flight where the builder does not say.
pub const DEFAULT_DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// What connections get for their last answers if draining has taken the whole limit.
const LAST_WORDS: Duration = Duration::from_millis(500);

impl Idempotency {
    /// Runs a server until SIGTERM or SIGINT (Ctrl-C), then drains it: no new connection is
    /// accepted, every request in flight is finished and saved, also those whose client has left,
    /// and only then the server stops. All of it takes no longer than the builder's `drain_limit`. Requests that arrive on open connections meanwhile are
    /// served, and the connections closed after them. (With `bind_auto_h2c` actix waits for the
    /// first bytes of each connection: one that has sent none makes the stop take the whole limit.)
    ///
    /// This is needed because a worker of actix ends as soon as it has no connection left, and with
    /// it the request of a client that reset its connection. The server must not handle signals
    /// itself:
    ///
    /// ```no_run
    /// # use actix_web::{App, HttpServer};
    /// # async fn serve(idempotency: idem_runtime::Idempotency) -> std::io::Result<()> {
    /// let app = { let idempotency = idempotency.clone(); move || App::new().app_data(idempotency.clone()) };
    /// idempotency
    ///     .serve(HttpServer::new(app).bind("127.0.0.1:8080")?.disable_signals().run())
    ///     .await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the server, and of installing the signal handlers.
    pub async fn serve(&self, server: Server) -> io::Result<()> {
        let mut signal = Termination::listen()?;
        let handle = server.handle();
        let mut server = std::pin::pin!(server);
        let shutdown = async {
            signal.received().await;
            let deadline = tokio::time::Instant::now() + self.shared().drain_limit;
            handle.pause().await;
            self.drain().await;
            deadline
        };
        let deadline = tokio::select! {
            ended = &mut server => return ended,
            deadline = shutdown => deadline.max(tokio::time::Instant::now() + LAST_WORDS),
        };
        // Everything is saved; what connections still have to send may take what is left of the
        // limit, and no longer.
        let stopping = handle.stop(true);
        tokio::time::timeout_at(deadline, async { tokio::join!(server, stopping).0 })
            .await
            .unwrap_or(Ok(()))
    }

    /// Waits until no request is in flight, or for the builder's `drain_limit`, and from then on
    /// refuses protected requests with 503 `shutting-down`. Says how many requests were left.
    ///
    /// For programs that cannot use [`Idempotency::serve`]: stop accepting, drain, stop the server.
    pub async fn drain(&self) -> usize {
        let shared = self.shared();
        let left = shared.in_flight.drain(shared.drain_limit).await;
        if left > 0 {
            tracing::error!(
                left,
                "shutting down with requests in flight: the drain limit has passed"
            );
        }
        left
    }

    /// How many requests are between claim and saved result in this process, and how many saved
    /// results wait for the store.
    pub fn in_flight(&self) -> usize {
        self.shared().in_flight.count()
    }
}

#[cfg(unix)]
struct Termination {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Termination {
    fn listen() -> io::Result<Termination> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Termination {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Termination;

#[cfg(not(unix))]
impl Termination {
    fn listen() -> io::Result<Termination> {
        Ok(Termination)
    }

    async fn received(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
