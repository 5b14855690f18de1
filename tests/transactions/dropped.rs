//! Requests and calls that are given up half-way, on a pool of one connection.

use crate::shop::{Database, Options, Shop, StorePool, servers};
use idem_runtime::{
    record::{Answer, RecordId},
    store::{Begun, Claim, Connection, Store, Takeover},
};
use idem_tests::{
    harness::{each, transactional},
    services::Store as Kind,
};
use rand::RngExt as _;
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

fn at_most(micros: u64) -> Duration {
    Duration::from_micros(rand::rng().random_range(0..micros))
}

// B6, B7, B8
#[actix_web::test]
async fn clients_that_leave_at_any_moment_do_no_harm_to_the_next() {
    each(transactional(), async |store| {
        let options = Options {
            connections: 1,
            ..Options::default()
        };
        let shop = Shop::with(store, &options).await;
        for n in 0..300 {
            let (key, body) = (format!("k{n}"), format!("{n}"));
            let post = shop.post("ok", Some(&key), &body);
            let _ = tokio::time::timeout(at_most(20_000), post).await;
        }
        let clean = shop.post("ok", Some("clean"), "clean").await;
        assert_eq!((clean.0, clean.1), (201, false));
        let elsewhere = Database::connect(store, shop.place.url()).await;
        let seen = elsewhere
            .texts("SELECT id FROM orders WHERE id = 'clean'")
            .await;
        assert_eq!(seen, ["clean"]);
        shop.expect_free_connections().await;
    })
    .await;
}

/// The calls themselves are given up: by a time budget that runs out, or a worker that goes down.
#[actix_web::test]
async fn calls_that_are_dropped_at_any_await_do_no_harm_to_the_next() {
    each(servers(), async |kind| {
        let options = Options {
            connections: 1,
            ..Options::default()
        };
        let shop = Shop::with(kind, &options).await;
        let store = Arc::clone(shop.idempotency.store());
        match kind {
            Kind::Postgres => drop_calls::<sqlx::PgConnection>(&store).await,
            _ => drop_calls::<sqlx::MySqlConnection>(&store).await,
        }
        let clean = shop.post("ok", Some("clean"), "clean").await;
        assert_eq!((clean.0, clean.1), (201, false));
        assert_eq!(shop.orders().await, ["clean"]);
        shop.expect_free_connections().await;
        if let StorePool::MySql(pool) = &shop.store_pool {
            let autocommit: i64 = sqlx::query_scalar("SELECT CAST(@@autocommit AS SIGNED)")
                .fetch_one(pool)
                .await
                .unwrap();
            assert_eq!(autocommit, 1);
        }
    })
    .await;
}

async fn drop_calls<C: Connection>(store: &Arc<dyn Store>) {
    let transactions = C::store(&**store).unwrap();
    for n in 0..300 {
        let claim = Claim {
            id: RecordId::new("user:alice", format!("k{n}"), "POST /orders"),
            fingerprint: "ab".repeat(32),
            also_accepted: None,
            route: "POST /orders shop::create_order".to_owned(),
            owner: Uuid::new_v4(),
            ttl: Duration::from_secs(3600),
            lease: Duration::from_secs(30),
            takeover: Takeover::Abandoned,
        };
        let call = async {
            if n % 3 == 0 {
                let open = transactions.begin().await.unwrap();
                return open.commit(&Answer::Tombstone { code: 200 }).await.unwrap();
            }
            let Begun::Won { transaction, .. } = transactions.begin_claimed(&claim).await.unwrap()
            else {
                panic!("nobody else has this key")
            };
            match n % 2 {
                0 => transaction.rollback().await,
                _ => {
                    let answer = Answer::Tombstone { code: 201 };
                    transaction.commit(&answer).await.unwrap();
                }
            }
        };
        let _ = tokio::time::timeout(at_most(8_000), call).await;
    }
}
