use crate::app::start;
use idem_runtime::{
    store::MemoryStore,
    testing::{CountingStore, Fault, FaultStore, Method, Occasion},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

#[actix_web::test]
async fn a_waiting_duplicate_gets_the_answer_as_soon_as_it_is_there() {
    let store = CountingStore::new(MemoryStore::new());
    let app = start(Arc::new(store.clone())).await;
    let first = app.post("/waiting", "k1", "a");
    let others = async {
        app.probe.started.acquire().await.unwrap().forget();
        let duplicates =
            futures_util::future::join_all((0..5).map(|_| app.post("/waiting", "k1", "a")));
        let finish = async {
            tokio::time::sleep(Duration::from_millis(700)).await;
            let reused = app.post("/waiting", "k1", "b").await;
            assert_eq!(reused.status, 422, "a reused key does not wait");
            app.probe.gate.add_permits(1);
        };
        let began = Instant::now();
        let (duplicates, ()) = tokio::join!(duplicates, finish);
        (duplicates, began.elapsed())
    };
    let (first, (duplicates, took)) = tokio::join!(first, others);
    for duplicate in duplicates {
        assert_eq!((duplicate.status, duplicate.replayed), (201, true));
        assert_eq!(duplicate.location, first.location);
    }
    assert!(
        took < Duration::from_millis(1500),
        "woken, not polled to the end: {took:?}"
    );
    assert_eq!(app.probe.runs(), 1);
    assert!(
        store.calls(Method::Claim) <= 2 + 5 * 10,
        "{}",
        store.total()
    );
    app.stop().await;
}

#[actix_web::test]
async fn a_waiter_gives_up_at_its_deadline_after_at_most_ten_calls() {
    let store = CountingStore::new(MemoryStore::new());
    let app = start(Arc::new(store.clone())).await;
    let first = app.post("/waiting", "k1", "a");
    let duplicate = async {
        app.probe.started.acquire().await.unwrap().forget();
        store.reset();
        let began = Instant::now();
        let duplicate = app.post("/waiting", "k1", "a").await;
        let took = began.elapsed();
        assert!(store.calls(Method::Claim) <= 10, "{}", store.total());
        app.probe.gate.add_permits(1);
        (duplicate, took)
    };
    let (_, (duplicate, took)) = tokio::join!(first, duplicate);
    assert_eq!(duplicate.problem(), "in-progress");
    assert!(
        took >= Duration::from_secs(2) && took < Duration::from_secs(4),
        "{took:?}"
    );
    app.stop().await;
}

#[actix_web::test]
async fn a_waiter_survives_a_store_that_fails_now_and_then() {
    let store = FaultStore::new(MemoryStore::new());
    let app = start(Arc::new(store.clone())).await;
    let first = app.post("/waiting", "k1", "a");
    let duplicate = async {
        app.probe.started.acquire().await.unwrap().forget();
        store.script(Method::Claim, Occasion::Nth(3), Fault::FailBefore);
        store.script(Method::Claim, Occasion::Nth(4), Fault::FailBefore);
        let duplicate = app.post("/waiting", "k1", "a");
        let finish = async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            app.probe.gate.add_permits(1);
        };
        tokio::join!(duplicate, finish).0
    };
    let (first, duplicate) = tokio::join!(first, duplicate);
    assert_eq!(
        (duplicate.replayed, duplicate.location),
        (true, first.location)
    );
    app.stop().await;
}
