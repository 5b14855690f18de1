//! The contract of the stores' own calls: what a claim in a transaction finds, and what becomes of it.

use crate::shop::Database;
use bytes::Bytes;
use idem_runtime::{
    record::{Answer, RecordId, State, StoredResponse},
    store::{
        Begun, Claim, Claimed, Connection, MySqlStore, OpenTransaction, PostgresStore, SqliteStore,
        Store, StoreError, Takeover,
    },
};
use idem_tests::{
    harness::{each, transactional},
    services::{self, Fresh, Store as Kind},
};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

pub(crate) async fn open(place: &Fresh) -> Arc<dyn Store> {
    match place.store() {
        Kind::Sqlite => Arc::new(SqliteStore::connect(place.url()).await.unwrap()),
        Kind::Postgres => Arc::new(
            PostgresStore::builder()
                .table("kept_records")
                .connect(place.url())
                .await
                .unwrap(),
        ),
        _ => Arc::new(
            MySqlStore::builder()
                .table("kept_records")
                .connect(place.url())
                .await
                .unwrap(),
        ),
    }
}

fn claim(key: &str, fingerprint: &str) -> Claim {
    Claim {
        id: RecordId::new("user:alice", key, "POST /orders"),
        fingerprint: fingerprint.repeat(32),
        also_accepted: None,
        route: "POST /orders shop::create_order".to_owned(),
        owner: Uuid::new_v4(),
        ttl: Duration::from_secs(3600),
        lease: Duration::from_secs(30),
        takeover: Takeover::Abandoned,
    }
}

fn answer(code: u16) -> Answer {
    let mut response = StoredResponse::new(code);
    response.body = Some(Bytes::from_static(b"answer"));
    Answer::Kept(response)
}

async fn begin<C: Connection>(store: &Arc<dyn Store>, claim: &Claim) -> Begun<C> {
    let transactions = C::store(&**store).expect("a store of this kind");
    let begun = transactions.begin_claimed(claim);
    let begun = tokio::time::timeout(Duration::from_secs(10), begun).await;
    begun.expect("it does not wait").unwrap()
}

async fn win<C: Connection>(
    store: &Arc<dyn Store>,
    claim: &Claim,
) -> (Box<dyn OpenTransaction<C>>, u32) {
    match begin::<C>(store, claim).await {
        Begun::Won {
            transaction,
            attempt,
        } => (transaction, attempt),
        Begun::Running => panic!("running"),
        Begun::Standing(record) => panic!("{record:?}"),
        _ => unreachable!(),
    }
}

/// Runs a case on each database with its kind of connection.
macro_rules! on_each_database {
    ($($(#[$about:meta])* $name:ident;)*) => {$(
        $(#[$about])*
        #[actix_web::test]
        async fn $name() {
            each(transactional(), async |kind| {
                let place = services::fresh(kind).await;
                let store = open(&place).await;
                match kind {
                    Kind::Sqlite => on::$name::<sqlx::SqliteConnection>(store).await,
                    Kind::Postgres => on::$name::<sqlx::PgConnection>(store).await,
                    _ => on::$name::<sqlx::MySqlConnection>(store).await,
                }
            })
            .await;
        }
    )*};
}

on_each_database! {
    a_claim_is_there_once_it_is_committed_and_not_before;
    a_claim_that_is_not_committed_has_never_been_there;
    a_failure_is_kept_without_the_writes;
    an_expired_record_is_replaced;
    a_claim_without_a_transaction_is_left_standing_until_its_lease_runs_out;
    what_was_abandoned_is_taken_over_by_the_same_request_only;
    a_rolled_back_takeover_leaves_what_it_found;
    an_answer_is_kept_byte_for_byte;
}

mod on {
    use super::*;

    pub(super) async fn a_claim_is_there_once_it_is_committed_and_not_before<C: Connection>(
        store: Arc<dyn Store>,
    ) {
        let first = claim("k", "aa");
        let (transaction, attempt) = win::<C>(&store, &first).await;
        assert_eq!(attempt, 1);
        assert!(store.get(&first.id).await.unwrap().is_none());
        transaction.commit(&answer(201)).await.unwrap();
        let Begun::Standing(record) = begin::<C>(&store, &claim("k", "bb")).await else {
            panic!("a finished record")
        };
        assert_eq!(record.fingerprint, first.fingerprint);
        let State::Finished { answer: kept, .. } = record.state else {
            panic!("a finished record")
        };
        assert_eq!(kept, answer(201));
    }

    pub(super) async fn a_claim_that_is_not_committed_has_never_been_there<C: Connection>(
        store: Arc<dyn Store>,
    ) {
        let (transaction, _) = win::<C>(&store, &claim("k", "aa")).await;
        transaction.rollback().await;
        let (transaction, attempt) = win::<C>(&store, &claim("k", "bb")).await;
        assert_eq!(attempt, 1);
        drop(transaction);
        // The server learns of it when the connection is closed.
        for _ in 0..100 {
            match begin::<C>(&store, &claim("k", "cc")).await {
                Begun::Won { transaction, .. } => return transaction.rollback().await,
                Begun::Running => tokio::time::sleep(Duration::from_millis(20)).await,
                _ => panic!("nothing was committed"),
            }
        }
        panic!("the key is still taken");
    }

    pub(super) async fn a_failure_is_kept_without_the_writes<C: Connection>(store: Arc<dyn Store>) {
        let first = claim("k", "aa");
        let (transaction, _) = win::<C>(&store, &first).await;
        transaction.keep_answer_only(&answer(402)).await.unwrap();
        let record = store.get(&first.id).await.unwrap().unwrap();
        let State::Finished { answer: kept, .. } = record.state else {
            panic!("a finished record")
        };
        assert_eq!(kept, answer(402));
    }

    pub(super) async fn an_expired_record_is_replaced<C: Connection>(store: Arc<dyn Store>) {
        let mut old = claim("k", "aa");
        (old.ttl, old.lease) = (Duration::from_millis(1), Duration::from_millis(1));
        assert!(matches!(
            store.claim(&old).await.unwrap(),
            Claimed::Won { .. }
        ));
        store
            .complete(&old.id, old.owner, &answer(201))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
        let new = claim("k", "bb");
        let (transaction, attempt) = win::<C>(&store, &new).await;
        assert_eq!(attempt, 1);
        transaction.commit(&answer(200)).await.unwrap();
        let record = store.get(&new.id).await.unwrap().unwrap();
        assert_eq!(
            (record.owner, record.fingerprint),
            (new.owner, new.fingerprint)
        );
        assert!(record.expires_at.since(record.now) > Duration::from_secs(3000));
    }

    pub(super) async fn a_claim_without_a_transaction_is_left_standing_until_its_lease_runs_out<
        C: Connection,
    >(
        store: Arc<dyn Store>,
    ) {
        let first = claim("k", "aa");
        store.claim(&first).await.unwrap();
        let Begun::Standing(record) = begin::<C>(&store, &claim("k", "aa")).await else {
            panic!("a running record")
        };
        assert_eq!(record.owner, first.owner);
    }

    pub(super) async fn what_was_abandoned_is_taken_over_by_the_same_request_only<C: Connection>(
        store: Arc<dyn Store>,
    ) {
        let mut first = claim("k", "aa");
        first.lease = Duration::from_millis(1);
        store.claim(&first).await.unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
        let Begun::Standing(record) = begin::<C>(&store, &claim("k", "bb")).await else {
            panic!("another request")
        };
        assert_eq!(record.owner, first.owner);
        let mut second = claim("k", "cc");
        second.also_accepted = Some(first.fingerprint.clone());
        let (transaction, attempt) = win::<C>(&store, &second).await;
        assert_eq!(attempt, 2);
        transaction.commit(&answer(201)).await.unwrap();
        let record = store.get(&first.id).await.unwrap().unwrap();
        assert_eq!((record.owner, record.attempt), (second.owner, 2));
        let late = store.complete(&first.id, first.owner, &answer(500)).await;
        assert!(matches!(late, Err(StoreError::LeaseLost)), "{late:?}");
    }

    pub(super) async fn a_rolled_back_takeover_leaves_what_it_found<C: Connection>(
        store: Arc<dyn Store>,
    ) {
        let mut first = claim("k", "aa");
        first.lease = Duration::from_millis(1);
        store.claim(&first).await.unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
        let (transaction, _) = win::<C>(&store, &claim("k", "aa")).await;
        transaction.rollback().await;
        let record = store.get(&first.id).await.unwrap().unwrap();
        assert_eq!((record.owner, record.attempt), (first.owner, 1));
    }

    pub(super) async fn an_answer_is_kept_byte_for_byte<C: Connection>(store: Arc<dyn Store>) {
        let bytes: Vec<u8> = (0..=255).collect();
        let first = claim("ключ 'k'", "aa");
        let mut response = StoredResponse::new(200).header("x-bytes", bytes[1..].to_vec());
        response.body = Some(bytes.into());
        let response = Answer::Kept(response);
        let (transaction, _) = win::<C>(&store, &first).await;
        transaction.commit(&response).await.unwrap();
        let record = store.get(&first.id).await.unwrap().unwrap();
        let State::Finished { answer: kept, .. } = record.state else {
            panic!("a finished record")
        };
        assert_eq!(kept, response);
    }
}

/// Of many simultaneous claims one wins, the others are told at once, and they hold nothing.
#[actix_web::test]
async fn of_many_simultaneous_claims_one_wins_and_the_others_hold_nothing() {
    each(crate::shop::servers(), async |kind| {
        let place = services::fresh(kind).await;
        let store = open(&place).await;
        match kind {
            Kind::Postgres => one_wins::<sqlx::PgConnection>(store).await,
            _ => one_wins::<sqlx::MySqlConnection>(store).await,
        }
        let database = Database::connect(kind, place.url()).await;
        assert_eq!(
            database.number("SELECT count(*) FROM kept_records").await,
            50
        );
    })
    .await;
}

async fn one_wins<C: Connection>(store: Arc<dyn Store>) {
    for round in 0..50 {
        let key = format!("k{round}");
        let claims: Vec<_> = (0..8).map(|_| claim(&key, "aa")).collect();
        let begun = claims.iter().map(|claim| begin::<C>(&store, claim));
        let mut winner = None;
        for begun in futures_util::future::join_all(begun).await {
            match begun {
                Begun::Won { transaction, .. } => {
                    assert!(winner.is_none(), "two owners of {key}");
                    winner = Some(transaction);
                }
                Begun::Running => {}
                _ => panic!("nothing is committed yet"),
            }
        }
        let winner = winner.expect("one of them");
        winner.commit(&answer(201)).await.unwrap();
    }
}
