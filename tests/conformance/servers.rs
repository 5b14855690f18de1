//! What the tests of the stores on a server share.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use idem_runtime::{
    record::{Answer, RecordId, StoredResponse},
    store::{AbandonedQuery, Claim, Claimed, ListQuery, Store, StoreError, Takeover},
    testing::conformance::{self, Factory},
};
use idem_tests::services::{self, Fresh};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use uuid::Uuid;

/// A runtime on which races are races, and a test that a run about other stores leaves out.
pub(crate) fn on(store: services::Store, test: impl Future<Output = ()>) {
    if !services::is_selected(store) {
        return;
    }
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

/// Tries every case of the suite, a few at a time and each with a factory of its own, so that the
/// databases of one are gone before the next. Reports all that failed.
pub(crate) async fn suite<F: Factory>(factory: impl Fn() -> F) {
    let failures: Vec<String> = stream::iter(conformance::cases())
        .map(|case| {
            let factory: Arc<dyn Factory> = Arc::new(factory());
            async move {
                let finding = case.check(Arc::clone(&factory)).await.err();
                // Its databases go with it, which blocks the thread. On a thread of the runtime that
                // could last for a minute: the server waits for connections that are just logging
                // in, and the client's half of the login may be queued on that very thread.
                tokio::task::spawn_blocking(move || drop(factory))
                    .await
                    .unwrap();
                Some(format!("- {case:?}\n  {}", finding?))
            }
        })
        .buffer_unordered(4)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(
        failures.is_empty(),
        "{} of {} cases failed:\n{}",
        failures.len(),
        conformance::cases().len(),
        failures.join("\n")
    );
}

/// The databases of a factory's stores, kept until the case is over.
#[derive(Default)]
pub(crate) struct Places(Mutex<Vec<(Arc<dyn Store>, Fresh)>>);

impl Places {
    pub(crate) fn keep(&self, store: &Arc<dyn Store>, place: Fresh) {
        self.0.lock().unwrap().push((Arc::clone(store), place));
    }

    /// What `find` makes of the place of this store.
    pub(crate) fn of(&self, store: &Arc<dyn Store>, find: impl Fn(&Fresh) -> String) -> String {
        let places = self.0.lock().unwrap();
        let (_, place) = places
            .iter()
            .find(|(kept, _)| Arc::ptr_eq(kept, store))
            .expect("a store of this factory");
        find(place)
    }
}

pub(crate) fn id(key: &str) -> RecordId {
    RecordId::new("user:alice", key, "POST /orders")
}

pub(crate) fn claim(key: &str) -> Claim {
    Claim {
        id: id(key),
        fingerprint: "ab".repeat(32),
        also_accepted: None,
        route: "POST /orders shop::create_order".to_owned(),
        owner: Uuid::new_v4(),
        ttl: Duration::from_secs(3600),
        lease: Duration::from_secs(600),
        takeover: Takeover::Never,
    }
}

pub(crate) fn answer(body: &str) -> Answer {
    Answer::Kept(StoredResponse {
        code: 201,
        headers: vec![("content-type".to_owned(), b"text/plain".to_vec())],
        body: Some(Bytes::copy_from_slice(body.as_bytes())),
    })
}

pub(crate) fn is_won(claimed: &Claimed) -> bool {
    matches!(claimed, Claimed::Won { .. })
}

/// Claims and finishes a record.
pub(crate) async fn finish(store: &dyn Store, claim: &Claim) {
    let claimed = store.claim(claim).await.unwrap();
    assert!(is_won(&claimed), "{claimed:?}");
    let answer = answer("done");
    store
        .complete(&claim.id, claim.owner, &answer)
        .await
        .unwrap();
}

/// Drops `rounds` calls after growing numbers of microseconds, so that each await of a call is among
/// the places where one is dropped, and then claims a key on what is left.
pub(crate) async fn drop_calls(store: &dyn Store, rounds: u64) {
    for round in 0..rounds {
        let claim = claim(&format!("dropped-{round}"));
        let patience = Duration::from_micros(round * 13 % 2500);
        let called = tokio::time::timeout(patience, async {
            store.claim(&claim).await.unwrap();
            let answer = answer("done");
            store
                .complete(&claim.id, claim.owner, &answer)
                .await
                .unwrap();
        });
        // Carried out or not.
        let _ = called.await;
    }
}

/// Every call in turn while all connections are held elsewhere: refused, and not late.
pub(crate) async fn starve(store: &dyn Store, acquire_timeout: Duration) {
    let claim = claim("starved");
    let started = std::time::Instant::now();
    let error = store.claim(&claim).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    let error = store.complete(&claim.id, claim.owner, &answer("x")).await;
    let error = error.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    let took = started.elapsed();
    assert!(took >= acquire_timeout, "{took:?}");
    assert!(
        took < acquire_timeout * 2 + Duration::from_secs(2),
        "{took:?}"
    );
}

/// Racing claims for one new key, again and again; in every second round the winner gives the key
/// back, so that the next claim meets the remains of a removed record.
pub(crate) async fn race_for_new_keys(store: &Arc<dyn Store>, rounds: usize) {
    for round in 0..rounds {
        let barrier = Arc::new(tokio::sync::Barrier::new(30));
        let mut claims = tokio::task::JoinSet::new();
        for _ in 0..30 {
            let (store, barrier) = (Arc::clone(store), Arc::clone(&barrier));
            let claim = claim(&format!("raced-{}", round / 2));
            claims.spawn(async move {
                barrier.wait().await;
                (claim.owner, store.claim(&claim).await)
            });
        }
        let mut winners = Vec::new();
        while let Some(claimed) = claims.join_next().await {
            let (owner, claimed) = claimed.unwrap();
            if is_won(&claimed.unwrap()) {
                winners.push(owner);
            }
        }
        let [winner] = winners[..] else {
            panic!("round {round}: {} claims won", winners.len());
        };
        let id = id(&format!("raced-{}", round / 2));
        if round % 2 == 0 {
            store.release(&id, winner).await.unwrap();
        } else {
            store.complete(&id, winner, &answer("done")).await.unwrap();
        }
    }
}

/// A record that one handle has claimed, seen by another whose session is in another time zone.
pub(crate) async fn across_time_zones(one: &dyn Store, other: &dyn Store) {
    // G3
    for (key, writer, reader) in [("a", one, other), ("b", other, one)] {
        let lasting = claim(key);
        finish(writer, &lasting).await;
        let short = Claim {
            ttl: Duration::from_millis(300),
            lease: Duration::from_millis(300),
            ..claim(&format!("{key}-short"))
        };
        finish(writer, &short).await;
        let seen = reader.claim(&claim(key)).await.unwrap();
        let Claimed::Standing(record) = seen else {
            panic!("a live record is taken for an expired one: {seen:?}");
        };
        let age = record.now.since(record.created_at);
        assert!(age < Duration::from_secs(60), "age {age:?}");
        let left = record.expires_at.since(record.now);
        assert!(
            left <= lasting.ttl && left > lasting.ttl - Duration::from_secs(60),
            "{left:?}"
        );
        tokio::time::sleep(Duration::from_millis(900)).await;
        let again = Claim {
            owner: Uuid::new_v4(),
            ..short
        };
        let seen = reader.claim(&again).await.unwrap();
        assert!(
            is_won(&seen),
            "an expired record is taken for a live one: {seen:?}"
        );
    }
}

/// A record that somebody has damaged: reported, left alone, passed over, and healed by removal.
pub(crate) async fn damaged(store: &dyn Store, key: &str, what: &str) {
    let retry = Claim {
        takeover: Takeover::Abandoned,
        ..claim(key)
    };
    for _ in 0..2 {
        let error = store.claim(&retry).await.expect_err(what);
        let StoreError::Unreadable(unreadable) = &error else {
            panic!("{what}: {error:?}");
        };
        assert_eq!(unreadable.record, id(key).digest(), "{what}");
        let error = store.get(&id(key)).await.expect_err(what);
        assert!(
            matches!(error, StoreError::Unreadable(_)),
            "{what}: {error:?}"
        );
    }
    let query = AbandonedQuery {
        handlers: vec!["shop::create_order".to_owned()],
        owner: Uuid::new_v4(),
        lease: Duration::from_secs(60),
        limit: 100,
    };
    let taken = store.take_abandoned(&query).await.unwrap();
    assert!(taken.is_empty(), "{what}: {taken:?}");
    let error = store.claim(&retry).await.expect_err(what);
    assert!(
        matches!(error, StoreError::Unreadable(_)),
        "{what}: {error:?}"
    );
    let all = ListQuery {
        limit: 2,
        ..ListQuery::default()
    };
    let listed = store.list(&all).await.unwrap();
    // A list does not read the headers, so damage to them alone does not keep a record out of it.
    if !what.contains("response_headers") {
        let keys: Vec<_> = listed.iter().map(|record| record.id.key()).collect();
        assert_eq!(keys, ["a-sound", "z-sound"], "{what}");
    }
    assert!(store.forget(&id(key)).await.unwrap(), "{what}");
    assert!(is_won(&store.claim(&retry).await.unwrap()), "{what}");
    store.release(&retry.id, retry.owner).await.unwrap();
}

/// Removes everything that has expired with two instances at once, and says how many records that
/// were, and the greatest batch.
pub(crate) async fn purge_with_two(one: &dyn Store, other: &dyn Store, limit: u32) -> (u64, u64) {
    // G7
    async fn purge(store: &dyn Store, limit: u32) -> (u64, u64) {
        let (mut total, mut greatest) = (0, 0);
        loop {
            let removed = store.purge_expired(limit).await.unwrap();
            total += removed;
            greatest = greatest.max(removed);
            if removed < u64::from(limit) {
                return (total, greatest);
            }
        }
    }
    let ((one, a), (other, b)) = tokio::join!(purge(one, limit), purge(other, limit));
    (one + other, a.max(b))
}
