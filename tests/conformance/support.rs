//! What the tests of the stores on a server share.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use idem_runtime::{
    record::{Answer, RecordId, StoredResponse},
    store::{Claim, Claimed, Store, Takeover},
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
                let finding = case.check(factory).await.err()?;
                Some(format!("- {case:?}\n  {finding}"))
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
