//! Several instances of the application on one database.

use crate::shop::{Instance, Options, Shop, servers};
use idem_tests::harness::{each, transactional};
use std::time::{Duration, Instant};

#[actix_web::test]
async fn a_duplicate_on_another_instance_is_told_at_once_and_holds_no_connection() {
    each(servers(), async |store| {
        let shop = Shop::open(store).await;
        let single = Options {
            connections: 1,
            ..Options::default()
        };
        let other = Instance::open(&shop.place, &single).await;
        let first = shop.post("gated", Some("k1"), "a");
        let others = async {
            shop.gate.wait_for_a_start().await;
            let began = Instant::now();
            // A reused key cannot be told from a duplicate yet: its record is not visible.
            for body in ["a", "b", "a"] {
                assert_eq!(other.post("gated", Some("k1"), body).await.0, 409, "{body}");
            }
            assert!(
                began.elapsed() < Duration::from_secs(2),
                "{:?}",
                began.elapsed()
            );
            assert_eq!(other.post("ok", Some("k2"), "c").await.0, 201);
            other.expect_free_connections().await;
            shop.gate.open.add_permits(1);
        };
        let (first, ()) = tokio::join!(first, others);
        assert_eq!(first, (201, false, "a".to_owned()));
        assert_eq!(
            other.post("gated", Some("k1"), "a").await,
            (201, true, "a".to_owned())
        );
        assert_eq!(other.post("gated", Some("k1"), "b").await.0, 422);
        assert_eq!(shop.orders().await, ["a", "c"]);
    })
    .await;
}

#[actix_web::test]
async fn of_simultaneous_duplicates_on_two_instances_one_runs() {
    each(transactional(), async |store| {
        let shop = Shop::open(store).await;
        let other = Instance::open(&shop.place, &Options::default()).await;
        for key in 0..50 {
            let (key, body) = (format!("k{key}"), format!("order {key:02}"));
            let posts = (0..20).map(|n| {
                let instance = if n % 2 == 0 { &shop.instance } else { &other };
                instance.post("slow", Some(&key), &body)
            });
            for reply in futures_util::future::join_all(posts).await {
                assert!(matches!(reply.0, 201 | 409), "{key}: {reply:?}");
            }
            let late = other.post("slow", Some(&key), &body).await;
            assert_eq!(late, (201, true, body), "{key}");
        }
        assert_eq!((shop.orders().await.len(), shop.records().await), (50, 50));
        assert_eq!(shop.runs() + other.runs(), 50);
    })
    .await;
}

// L3: of racing inserts of a new key, the first fails and rolls back.
#[actix_web::test]
async fn duplicates_of_a_request_that_fails_meet_no_deadlock() {
    each(servers(), async |store| {
        let shop = Shop::open(store).await;
        let other = Instance::open(&shop.place, &Options::default()).await;
        for key in 0..30 {
            let key = format!("k{key}");
            let posts = (0..20).map(|n| {
                let instance = if n % 2 == 0 { &shop.instance } else { &other };
                instance.post("broken", Some(&key), &key)
            });
            for reply in futures_util::future::join_all(posts).await {
                assert!(matches!(reply.0, 500 | 409), "{key}: {reply:?}");
            }
        }
        assert_eq!((shop.orders().await.len(), shop.records().await), (0, 0));
        shop.expect_free_connections().await;
        other.expect_free_connections().await;
    })
    .await;
}

/// What a process that is stopped and goes on later is to the others: silent for longer than its
/// lease, its transaction open.
#[actix_web::test]
async fn an_owner_that_was_silent_beyond_its_lease_cannot_commit_and_does_not_keep_the_key() {
    each(servers(), async |store| {
        let options = Options {
            lease: Duration::from_secs(1),
            ..Options::default()
        };
        let shop = Shop::with(store, &options).await;
        let other = Instance::open(&shop.place, &options).await;
        other.gate.open.add_permits(1);
        let first = shop.post("gated", Some("k1"), "a");
        let second = async {
            shop.gate.wait_for_a_start().await;
            let began = Instant::now();
            let reply = loop {
                let reply = other.post("gated", Some("k1"), "a").await;
                if reply.0 != 409 {
                    break reply;
                }
                assert!(
                    began.elapsed() < Duration::from_secs(10),
                    "the key is still taken"
                );
                tokio::time::sleep(Duration::from_millis(50)).await;
            };
            let took = began.elapsed();
            assert!(took > Duration::from_millis(500), "{took:?}");
            assert!(took < Duration::from_secs(4), "{took:?}");
            shop.gate.open.add_permits(1);
            reply
        };
        let (first, second) = tokio::join!(first, second);
        assert_eq!(second, (201, false, "a".to_owned()));
        assert_eq!(first.0, 503, "{first:?}");
        assert_eq!(shop.orders().await, ["a"]);
        assert!(shop.post("gated", Some("k1"), "a").await.1);
        shop.expect_free_connections().await;
    })
    .await;
}
