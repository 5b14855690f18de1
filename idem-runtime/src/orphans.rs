//! Telling of abandoned records whose handler the program no longer has.
//!
//! A handler that was removed or renamed leaves nobody who would resolve what its last requests have
//! left behind: no retry reaches it, and the reconciler asks the functions that there are. Such a
//! record is left alone, and told of.

use crate::{
    drain::InFlight,
    engine::{Engine, error_chain},
    record::{Record, RecordId},
    registry::routes,
    repair::within,
    store::{ListQuery, Store, StoreError, Which},
};
use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::runtime::Handle;
use uuid::Uuid;

/// Records read by one call.
const PAGE: u32 = 200;
/// Abandoned records read in one round.
const MOST: usize = 10_000;
/// Longest wait for the first look: it is a new release that has lost a handler.
const FIRST_LOOK: Duration = Duration::from_secs(60);
/// How long one call may take. A store that has no index for it walks all its records.
const PATIENCE: Duration = Duration::from_secs(60);

/// Looks every `period` for as long as the engine lives.
pub(crate) fn start(
    engine: &Arc<Engine>,
    in_flight: &Arc<InFlight>,
    period: Duration,
    runtime: &Handle,
) {
    let (engine, in_flight) = (Arc::downgrade(engine), Arc::clone(in_flight));
    let mut watch = Watch {
        known: routes().map(|route| route.name).collect(),
        told: HashSet::new(),
    };
    runtime.spawn(async move {
        let mut pause = period.min(FIRST_LOOK);
        while let Some(store) = after(pause, &engine, &in_flight).await {
            if let Err(error) = watch.look(&*store).await {
                tracing::warn!(
                    error = error_chain(&error),
                    "abandoned records could not be listed"
                );
            }
            pause = period;
        }
    });
}

/// The store after a pause, unless it is over by then.
async fn after(
    pause: Duration,
    engine: &Weak<Engine>,
    in_flight: &InFlight,
) -> Option<Arc<dyn Store>> {
    // Instances that started together must not look together.
    let spread = 0.75 + 0.5 * f64::from(Uuid::new_v4().as_bytes()[0]) / 255.0;
    tokio::time::sleep(pause.mul_f64(spread)).await;
    let engine = engine.upgrade()?;
    (!in_flight.is_draining()).then(|| Arc::clone(engine.store()))
}

struct Watch {
    /// The handlers of the program, served here or not.
    known: HashSet<&'static str>,
    /// Digests of the records that this process has told of and that still stand there.
    told: HashSet<String>,
}

impl Watch {
    /// Tells of every orphaned record once.
    async fn look(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let mut standing = HashSet::new();
        let mut after: Option<RecordId> = None;
        let mut seen = 0;
        loop {
            let query = ListQuery {
                after,
                limit: PAGE,
                which: Which::Abandoned,
            };
            let page = within(PATIENCE, store.list(&query)).await?;
            for record in &page {
                if !self.known.contains(record.handler()) {
                    self.tell(record, &mut standing);
                }
            }
            seen += page.len();
            if page.len() < PAGE as usize || seen >= MOST {
                break;
            }
            after = page.last().map(|record| record.id.clone());
        }
        self.told = standing;
        Ok(())
    }

    fn tell(&mut self, record: &Record, standing: &mut HashSet<String>) {
        let digest = record.id.digest();
        if self.told.insert(digest.clone()) {
            tracing::warn!(
                route = record.route,
                record = digest,
                path = record.id.request_path(),
                attempt = record.attempt,
                age = ?record.now.since(record.created_at),
                "an abandoned record of a handler that this program does not have: nobody will resolve it"
            );
            metrics::counter!("idempotency_orphaned_total").increment(1);
        }
        standing.insert(digest);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::{Claim, MemoryStore, Takeover};

    fn claim(key: &str, handler: &str) -> Claim {
        Claim {
            id: RecordId::new("alice", key, "POST /orders"),
            fingerprint: "a".repeat(64),
            also_accepted: None,
            route: format!("POST /orders {handler}"),
            owner: Uuid::new_v4(),
            ttl: Duration::from_secs(3600),
            lease: Duration::ZERO,
            takeover: Takeover::Never,
        }
    }

    #[tokio::test]
    async fn each_orphan_is_told_of_once_for_as_long_as_it_stands() {
        let store = MemoryStore::new();
        let orphan = claim("k1", "shop::removed");
        for claim in [
            &orphan,
            &claim("k2", "shop::create_order"),
            &claim("k3", "shop::removed"),
        ] {
            store.claim(claim).await.unwrap();
        }
        let running = Claim {
            lease: Duration::from_secs(3600),
            ..claim("k4", "shop::removed")
        };
        store.claim(&running).await.unwrap();
        let mut watch = Watch {
            known: HashSet::from(["shop::create_order"]),
            told: HashSet::new(),
        };
        let digests = |keys: &[&str]| -> HashSet<String> {
            let digest = |key: &&str| claim(key, "").id.digest();
            keys.iter().map(digest).collect()
        };
        for _ in 0..2 {
            watch.look(&store).await.unwrap();
            assert_eq!(watch.told, digests(&["k1", "k3"]));
        }
        store.forget(&orphan.id).await.unwrap();
        watch.look(&store).await.unwrap();
        assert_eq!(watch.told, digests(&["k3"]));
    }

    #[tokio::test]
    async fn more_orphans_than_a_page_holds_are_all_found() {
        let store = MemoryStore::new();
        for n in 0..PAGE * 2 + 1 {
            let orphan = claim(&format!("k{n}"), "shop::removed");
            store.claim(&orphan).await.unwrap();
        }
        let mut watch = Watch {
            known: HashSet::new(),
            told: HashSet::new(),
        };
        watch.look(&store).await.unwrap();
        assert_eq!(watch.told.len(), PAGE as usize * 2 + 1);
    }
}
