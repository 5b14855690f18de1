use crate::app::{Answer, Running, start, start_with};
use idem_runtime::{
    store::MemoryStore,
    testing::{CountingStore, Method},
};
use std::{sync::Arc, time::Duration};

async fn counting() -> (CountingStore, Running) {
    let store = CountingStore::new(MemoryStore::new());
    let app = start(Arc::new(store.clone())).await;
    (store, app)
}

#[actix_web::test]
async fn a_retry_gets_the_first_answer_and_runs_nothing() {
    let app = start(Arc::new(MemoryStore::new())).await;
    let first = app.post("/orders", "k1", "{}").await;
    assert_eq!((first.status, first.replayed), (201, false));
    let retry = app.post("/orders", "k1", "{}").await;
    assert_eq!(
        retry,
        Answer {
            replayed: true,
            ..first
        }
    );
    assert_eq!(app.probe.runs(), 1);
    app.stop().await;
}

#[actix_web::test]
async fn a_reused_key_is_refused_also_while_the_first_request_runs() {
    let app = start(Arc::new(MemoryStore::new())).await;
    let first = app.post("/gated", "k1", "a");
    let reused = async {
        app.probe.started.acquire().await.unwrap().forget();
        let reused = app.post("/gated", "k1", "b").await;
        let duplicate = app.post("/gated", "k1", "a").await;
        app.probe.gate.add_permits(1);
        (reused, duplicate)
    };
    let (first, (reused, duplicate)) = tokio::join!(first, reused);
    assert_eq!(first.status, 201);
    assert_eq!(
        (reused.status, reused.problem().as_str()),
        (422, "key-reused")
    );
    assert_eq!(
        (duplicate.status, duplicate.problem().as_str()),
        (409, "in-progress")
    );
    assert_eq!(duplicate.retry_after, Some(1));
    let reused = app.post("/gated", "k1", "b").await;
    assert_eq!(
        (reused.status, reused.problem().as_str()),
        (422, "key-reused")
    );
    assert_eq!(app.probe.runs(), 1);
    app.stop().await;
}

/// First two calls, everything else one.
#[actix_web::test]
async fn every_outcome_costs_the_store_calls_it_should() {
    let (store, app) = counting().await;
    let calls = |expected: u64| {
        assert_eq!(store.total(), expected, "{}", store.total());
        store.reset();
    };
    app.post("/orders", "k1", "a").await;
    assert_eq!(store.calls(Method::Claim), 1);
    assert_eq!(store.calls(Method::Complete), 1);
    calls(2);
    assert!(app.post("/orders", "k1", "a").await.replayed);
    calls(1);
    assert_eq!(app.post("/orders", "k1", "b").await.status, 422);
    calls(1);
    assert_eq!(app.post("/releasing", "k1", "a").await.status, 503);
    calls(2);
    assert_eq!(app.post("/large/3000000", "k1", "a").await.status, 200);
    calls(2);
    let tombstone = app.post("/large/3000000", "k1", "a").await;
    assert_eq!(tombstone.problem(), "response-not-retained");
    calls(1);
    let first = app.post("/gated", "k2", "a");
    let duplicate = async {
        app.probe.started.acquire().await.unwrap().forget();
        store.reset();
        let duplicate = app.post("/gated", "k2", "a").await;
        calls(1);
        app.probe.gate.add_permits(1);
        duplicate
    };
    let (_, duplicate) = tokio::join!(first, duplicate);
    assert_eq!(duplicate.problem(), "in-progress");
    store.reset();
    assert_eq!(app.post("/orders", "a, b", "a").await.status, 400);
    calls(0);
    app.stop().await;
}

#[actix_web::test]
async fn a_panic_is_a_problem_that_is_kept() {
    let app = start(Arc::new(MemoryStore::new())).await;
    let first = app.post("/panicking", "k1", "").await;
    assert_eq!(
        (first.status, first.problem().as_str()),
        (500, "handler-panicked")
    );
    assert!(!first.replayed);
    let retry = app.post("/panicking", "k1", "").await;
    assert_eq!(
        retry,
        Answer {
            replayed: true,
            ..first
        }
    );
    assert_eq!(app.probe.runs(), 1);
    app.stop().await;
}

#[actix_web::test]
async fn a_released_key_runs_again() {
    let app = start(Arc::new(MemoryStore::new())).await;
    for run in 1..=3 {
        let answer = app.post("/releasing", "k1", "").await;
        assert_eq!((answer.status, answer.replayed), (503, false));
        assert_eq!(app.probe.runs(), run);
    }
    app.stop().await;
}

/// The detached section outlives its client, and its lease is renewed meanwhile.
#[actix_web::test]
async fn a_client_that_leaves_changes_nothing() {
    let app = start_with(Arc::new(MemoryStore::new()), |builder| {
        builder.lease(Duration::from_millis(150))
    })
    .await;
    let leaving = tokio::time::timeout(Duration::from_millis(600), app.post("/gated", "k1", "a"));
    assert!(
        leaving.await.is_err(),
        "the client leaves while the handler waits"
    );
    let duplicate = app.post("/gated", "k1", "a").await;
    assert_eq!(
        duplicate.problem(),
        "in-progress",
        "four leases have passed and been renewed"
    );
    app.probe.gate.add_permits(1);
    while app.idempotency.in_flight() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let retry = app.post("/gated", "k1", "a").await;
    assert_eq!((retry.status, retry.replayed), (201, true));
    assert_eq!(app.probe.runs(), 1);
    app.stop().await;
}

#[actix_web::test]
async fn draining_waits_for_the_request_of_a_client_that_left_and_then_refuses() {
    let app = start(Arc::new(MemoryStore::new())).await;
    let leaving = tokio::time::timeout(Duration::from_millis(100), app.post("/gated", "k1", "a"));
    assert!(leaving.await.is_err());
    let drain = app.idempotency.drain();
    let finish = async { app.probe.gate.add_permits(1) };
    assert_eq!(tokio::join!(drain, finish).0, 0);
    assert_eq!(app.probe.runs(), 1);
    let refused = app.post("/orders", "k2", "a").await;
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (503, "shutting-down")
    );
    assert_eq!(app.probe.runs(), 1);
    app.stop().await;
}
