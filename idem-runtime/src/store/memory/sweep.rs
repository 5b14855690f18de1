//! The thread that removes expired records when nobody calls.

use super::{Inner, lock};
use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// How long an expired record may go on taking up room.
const PERIOD: Duration = Duration::from_millis(200);
/// How many are removed in one go while claims of the same shard wait.
const AT_ONCE: usize = 256;

/// Whether the thread runs.
///
/// A thread and not a task: a task ends with the runtime it was spawned on, and an actix worker's
/// runtime is not the program's.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    running: AtomicBool,
}

impl Sweeper {
    /// Starts the thread unless it runs. Called after each record that was added.
    pub(super) fn see_to(inner: &Arc<Inner>) {
        let running = &inner.sweeper.running;
        if running.load(Ordering::SeqCst) || running.swap(true, Ordering::SeqCst) {
            return;
        }
        let weak = Arc::downgrade(inner);
        let spawned = thread::Builder::new()
            .name("idem-memory".to_owned())
            .spawn(move || sweep_while_needed(&weak));
        if let Err(error) = spawned {
            running.store(false, Ordering::SeqCst);
            tracing::warn!(%error, "no thread for expired records: they are removed by later claims alone");
        }
    }
}

/// Ends with the store, and when the store is empty.
fn sweep_while_needed(store: &Weak<Inner>) {
    loop {
        thread::sleep(PERIOD);
        let Some(inner) = store.upgrade() else {
            return;
        };
        for shard in &inner.shards {
            while inner.sweep(&mut lock(shard), inner.clock.now(), AT_ONCE) == AT_ONCE {}
            lock(shard).shrink();
        }
        if inner.room.records.used() == 0 {
            let running = &inner.sweeper.running;
            running.store(false, Ordering::SeqCst);
            // A record added before that line counted on this thread: go on for it, unless a later
            // one has started the next thread.
            if inner.room.records.used() == 0 || running.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }
}
