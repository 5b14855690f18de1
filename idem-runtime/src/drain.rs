//! Counting the work in flight, so that a shutdown can wait for all of it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// Requests between claim and saved result, and repairs in the background.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    state: Mutex<State>,
    draining: AtomicBool,
    idle: Notify,
}

#[derive(Debug, Default)]
struct State {
    count: usize,
    closed: bool,
}

/// Counts one piece of work until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket(Arc<InFlight>);

impl InFlight {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits new work, unless everything has been drained and closed.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Ticket> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.count += 1;
        Some(Ticket(Arc::clone(self)))
    }

    /// Admits work that belongs to a request already admitted.
    pub(crate) fn enter_always(self: &Arc<Self>) -> Ticket {
        self.state().count += 1;
        Ticket(Arc::clone(self))
    }

    /// Whether a shutdown has begun: connections should not be kept open any longer.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Waits until nothing is in flight and from then on admits nothing, or until `limit` has
    /// passed, when it closes all the same. Says how much was left.
    pub(crate) async fn drain(&self, limit: Duration) -> usize {
        self.draining.store(true, Ordering::Relaxed);
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            let idle = self.idle.notified();
            let mut idle = std::pin::pin!(idle);
            idle.as_mut().enable();
            {
                let mut state = self.state();
                if state.count == 0 {
                    state.closed = true;
                    return 0;
                }
            }
            if tokio::time::timeout_at(deadline, idle).await.is_err() {
                let mut state = self.state();
                state.closed = true;
                return state.count;
            }
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.state().count
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.count -= 1;
        if state.count == 0 {
            self.0.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_drain_waits_for_every_ticket_and_then_admits_nothing() {
        let in_flight = Arc::new(InFlight::default());
        let ticket = in_flight.enter();
        let drain = tokio::spawn({
            let in_flight = Arc::clone(&in_flight);
            async move { in_flight.drain(Duration::from_secs(60)).await }
        });
        while !in_flight.is_draining() {
            tokio::task::yield_now().await;
        }
        let late = in_flight.enter();
        assert!(late.is_some(), "work is admitted while there is other work");
        drop(ticket);
        drop(late);
        assert_eq!(drain.await.ok(), Some(0));
        assert!(in_flight.enter().is_none());
        drop(in_flight.enter_always());
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_gives_up_at_its_limit() {
        let in_flight = Arc::new(InFlight::default());
        let _ticket = in_flight.enter();
        assert_eq!(in_flight.drain(Duration::from_secs(1)).await, 1);
        assert!(in_flight.enter().is_none());
    }
}
