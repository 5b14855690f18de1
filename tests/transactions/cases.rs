//! What holds on every database.

use crate::shop::{Options, Shop, servers};
use idem_tests::harness::{each, transactional};
use std::time::Duration;

#[actix_web::test]
async fn rows_and_answer_are_one_commit() {
    each(transactional(), async |store| {
        let shop = Shop::open(store).await;
        let first = shop.post("ok", Some("k1"), "a").await;
        assert_eq!(first, (201, false, "a".to_owned()));
        assert_eq!(
            shop.post("ok", Some("k1"), "a").await,
            (201, true, "a".to_owned())
        );
        assert_eq!(shop.post("ok", Some("k1"), "b").await.0, 422);
        assert_eq!(shop.orders().await, ["a"]);
        assert_eq!((shop.runs(), shop.records().await), (1, 1));
    })
    .await;
}

#[actix_web::test]
async fn a_kept_failure_rolls_the_writes_back_and_keeps_the_answer() {
    each(transactional(), async |store| {
        let shop = Shop::open(store).await;
        let failures = [
            ("declined", 402),
            ("kept", 500),
            ("kept-error", 500),
            ("unknown", 404),
        ];
        for (what, status) in failures {
            let first = shop.post(what, Some(what), "a").await;
            assert_eq!((first.0, first.1), (status, false), "{what}");
            let retry = shop.post(what, Some(what), "a").await;
            assert_eq!(retry, (status, true, first.2), "{what}");
        }
        assert_eq!(shop.orders().await, Vec::<String>::new());
        assert_eq!((shop.runs(), shop.records().await), (4, 4));
    })
    .await;
}

#[actix_web::test]
async fn what_fails_otherwise_leaves_neither_rows_nor_a_record() {
    each(transactional(), async |store| {
        let shop = Shop::open(store).await;
        let failures = [
            ("broken", 500),
            ("panic", 500),
            ("released", 201),
            ("released-error", 402),
        ];
        for (what, status) in failures {
            for _ in 0..2 {
                let answer = shop.post(what, Some(what), "a").await;
                assert_eq!((answer.0, answer.1), (status, false), "{what}");
            }
        }
        assert_eq!(shop.orders().await, Vec::<String>::new());
        assert_eq!((shop.runs(), shop.records().await), (8, 0));
        assert_eq!(
            shop.post("ok", Some("k"), "a").await.0,
            201,
            "the connection is usable again"
        );
    })
    .await;
}

#[actix_web::test]
async fn a_duplicate_of_an_open_transaction_is_told_so_at_once() {
    each(transactional(), async |store| {
        let shop = Shop::open(store).await;
        let first = shop.post("gated", Some("k1"), "a");
        let others = async {
            shop.gate.wait_for_a_start().await;
            let began = std::time::Instant::now();
            let duplicate = shop.post("gated", Some("k1"), "a").await;
            let reused = shop.post("gated", Some("k1"), "b").await;
            assert!(
                began.elapsed() < Duration::from_millis(900),
                "{:?}",
                began.elapsed()
            );
            shop.gate.open.add_permits(1);
            (duplicate.0, reused.0)
        };
        let (first, others) = tokio::join!(first, others);
        assert_eq!((first.0, others), (201, (409, 422)));
        assert_eq!(shop.orders().await, ["a"]);
    })
    .await;
}

#[actix_web::test]
async fn a_client_that_leaves_does_not_undo_the_commit() {
    each(transactional(), async |store| {
        let shop = Shop::open(store).await;
        let leaving = shop.post("gated", Some("k1"), "a");
        assert!(
            tokio::time::timeout(Duration::from_millis(300), leaving)
                .await
                .is_err()
        );
        shop.gate.open.add_permits(1);
        let retry = loop {
            let answer = shop.post("gated", Some("k1"), "a").await;
            if answer.0 != 409 {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert_eq!(retry, (201, true, "a".to_owned()));
        assert_eq!((shop.orders().await.len(), shop.runs()), (1, 1));
    })
    .await;
}

#[actix_web::test]
async fn savepoints_work_inside_the_transaction() {
    each(transactional(), async |store| {
        let shop = Shop::open(store).await;
        assert_eq!(shop.post("nested", Some("k1"), "a").await.0, 201);
        assert_eq!(shop.orders().await, ["a", "a nested"]);
    })
    .await;
}

#[actix_web::test]
async fn without_a_key_it_is_an_ordinary_transaction() {
    each(transactional(), async |store| {
        let shop = Shop::open(store).await;
        assert_eq!(
            shop.post("ok", None, "a").await,
            (201, false, "a".to_owned())
        );
        assert_eq!(shop.post("declined", None, "b").await.0, 402);
        assert_eq!(shop.post("broken", None, "c").await.0, 500);
        assert_eq!(shop.orders().await, ["a"]);
        assert_eq!(shop.records().await, 0);
    })
    .await;
}

#[actix_web::test]
async fn an_answer_over_the_limit_is_committed_as_a_tombstone() {
    each(transactional(), async |store| {
        let shop = Shop::open(store).await;
        let first = shop.post("large", Some("k1"), "a").await;
        assert_eq!((first.0, first.2.len()), (200, 2 << 20));
        assert_eq!(shop.post("large", Some("k1"), "a").await.0, 409);
        assert_eq!((shop.orders().await.len(), shop.runs()), (1, 1));
    })
    .await;
}

#[actix_web::test]
async fn distinct_keys_take_turns_and_all_commit() {
    each(transactional(), async |store| {
        let shop = Shop::open(store).await;
        let posts = (0..40).map(|n| {
            let shop = &shop;
            async move {
                shop.post("ok", Some(&format!("k{n}")), &format!("order {n:02}"))
                    .await
                    .0
            }
        });
        let statuses = futures_util::future::join_all(posts).await;
        assert!(statuses.iter().all(|status| *status == 201), "{statuses:?}");
        assert_eq!((shop.orders().await.len(), shop.records().await), (40, 40));
    })
    .await;
}

#[actix_web::test]
async fn an_inner_transaction_that_was_left_open_is_rolled_back_and_the_outer_one_commits() {
    each(servers(), async |store| {
        let shop = Shop::open(store).await;
        assert_eq!(shop.post("forgotten", Some("k1"), "a").await.0, 201);
        assert_eq!(shop.orders().await, ["a"]);
        assert!(shop.post("forgotten", Some("k1"), "a").await.1);
        shop.expect_free_connections().await;
    })
    .await;
}

// L8
#[actix_web::test]
async fn handlers_that_fail_with_an_open_transaction_give_their_connections_back() {
    each(transactional(), async |store| {
        let shop = Shop::open(store).await;
        let posts = (0..200).map(|n| {
            let shop = &shop;
            async move { shop.post("broken", Some(&format!("k{n}")), "a").await.0 }
        });
        let statuses = futures_util::future::join_all(posts).await;
        // The orders have one id, so that they wait for each other: some may run out of time.
        assert!(
            statuses.iter().all(|status| matches!(status, 500 | 503)),
            "{statuses:?}"
        );
        assert!(statuses.contains(&500));
        shop.expect_free_connections().await;
        assert_eq!(shop.post("ok", Some("k"), "a").await.0, 201);
        assert_eq!(shop.records().await, 1);
    })
    .await;
}

#[actix_web::test]
async fn a_pool_of_one_serves_transactional_requests_and_their_duplicates() {
    each(servers(), async |store| {
        let options = Options {
            connections: 1,
            ..Options::default()
        };
        let shop = Shop::with(store, &options).await;
        let first = shop.post("gated", Some("k1"), "a");
        let duplicate = async {
            shop.gate.wait_for_a_start().await;
            let duplicate = shop.post("gated", Some("k1"), "a").await.0;
            shop.gate.open.add_permits(1);
            duplicate
        };
        let (first, duplicate) = tokio::join!(first, duplicate);
        assert_eq!((first.0, duplicate), (201, 409));
        assert!(shop.post("gated", Some("k1"), "a").await.1);
        shop.expect_free_connections().await;
    })
    .await;
}

// L5
#[actix_web::test]
async fn a_request_that_gets_no_connection_in_time_is_told_so_and_leaves_the_key_free() {
    each(servers(), async |store| {
        let options = Options {
            connections: 1,
            store_timeout: Duration::from_millis(300),
            ..Options::default()
        };
        let shop = Shop::with(store, &options).await;
        let first = shop.post("gated", Some("k1"), "a");
        let other = async {
            shop.gate.wait_for_a_start().await;
            let began = std::time::Instant::now();
            let other = shop.post("ok", Some("k2"), "b").await.0;
            assert!(
                began.elapsed() < Duration::from_secs(2),
                "{:?}",
                began.elapsed()
            );
            shop.gate.open.add_permits(1);
            other
        };
        let (first, other) = tokio::join!(first, other);
        assert_eq!((first.0, other), (201, 503));
        let retry = shop.post("ok", Some("k2"), "b").await;
        assert_eq!((retry.0, retry.1), (201, false));
        assert_eq!(shop.orders().await, ["a", "b"]);
    })
    .await;
}
