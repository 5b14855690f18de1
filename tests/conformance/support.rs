//! What the tests of single stores are written with.

use bytes::Bytes;
use idem_runtime::{
    record::{Answer, Record, RecordId, State, StoredResponse},
    store::{Claim, Claimed, Store, Takeover},
};
use std::time::Duration;
use uuid::Uuid;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn id(key: &str) -> RecordId {
    RecordId::new("alice", key, "POST /orders")
}

/// A claim by a new owner: an hour's TTL and lease, no takeover.
pub(crate) fn claim(key: &str) -> Claim {
    Claim {
        id: id(key),
        fingerprint: "a".repeat(64),
        also_accepted: None,
        route: "POST /orders shop::create_order".to_owned(),
        owner: Uuid::new_v4(),
        ttl: HOUR,
        lease: HOUR,
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

#[track_caller]
pub(crate) fn assert_won(claimed: &Claimed) {
    assert!(matches!(claimed, Claimed::Won { .. }), "{claimed:?}");
}

#[track_caller]
pub(crate) fn standing(claimed: Claimed) -> Record {
    match claimed {
        Claimed::Standing(record) => *record,
        won => panic!("a record should stand there: {won:?}"),
    }
}

pub(crate) fn answer_of(record: Record) -> Option<Answer> {
    match record.state {
        State::Finished { answer, .. } => Some(answer),
        _ => None,
    }
}

/// Claims, wins and finishes.
pub(crate) async fn finish(store: &dyn Store, key: &str, body: &str) -> Claim {
    let claim = claim(key);
    assert_won(&store.claim(&claim).await.unwrap());
    store
        .complete(&claim.id, claim.owner, &answer(body))
        .await
        .unwrap();
    claim
}
