use crate::app::{Running, start};
use idem_runtime::{
    record::{Answer, Record, State},
    store::{Claim, ListQuery, MemoryStore, Store, Takeover},
    testing::{Fault, FaultStore, Method, Occasion},
};
use serde_json::json;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use uuid::Uuid;

async fn faulty() -> (FaultStore, Running) {
    let store = FaultStore::new(MemoryStore::new());
    let app = start(Arc::new(store.clone())).await;
    (store, app)
}

/// Asks until the answer is none that says "later".
async fn settled(app: &Running, path: &str, key: &str) -> crate::app::Answer {
    for _ in 0..200 {
        let answer = app.post(path, key, "a").await;
        if answer.replayed || answer.status == 201 {
            return answer;
        }
        assert!([409, 503].contains(&answer.status), "{answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the key {key} never settled")
}

// I4, A6: each call, failed before and after its effect.
#[actix_web::test]
async fn a_failing_call_never_makes_a_second_run_nor_a_stuck_key() {
    let cells = [
        (Method::Claim, "/orders"),
        (Method::Complete, "/orders"),
        (Method::Release, "/releasing"),
    ];
    for (method, path) in cells {
        for fault in [
            Fault::FailBefore,
            Fault::FailAfter,
            Fault::HangBefore,
            Fault::HangAfter,
        ] {
            for times in [1, 2] {
                let (store, app) = faulty().await;
                store.script(method, Occasion::Next(times), fault);
                let cell = format!("{method:?} {fault:?} × {times}");
                let first = app.post(path, "k1", "a").await;
                if path == "/releasing" {
                    assert_eq!(first.status, 503, "{cell}");
                    continue;
                }
                assert!([201, 503].contains(&first.status), "{cell}: {first:?}");
                let retry = settled(&app, path, "k1").await;
                if first.status == 201 {
                    assert_eq!(retry.location, first.location, "{cell}");
                    assert!(retry.replayed, "{cell}");
                }
                assert_eq!(app.probe.runs(), 1, "{cell}");
                app.stop().await;
            }
        }
    }
}

// I1, A11
#[actix_web::test]
async fn an_unreachable_store_is_503_and_runs_nothing() {
    let (store, app) = faulty().await;
    store.script_all(Occasion::Always, Fault::FailBefore);
    let refused = app.post("/orders", "k1", "a").await;
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (503, "store-unavailable")
    );
    assert!(refused.retry_after.is_some());
    assert_eq!(app.probe.runs(), 0);
    store.heal();
    assert_eq!(settled(&app, "/orders", "k1").await.status, 201);
    assert_eq!(app.probe.runs(), 1);
    app.stop().await;
}

#[actix_web::test]
async fn a_store_that_hangs_is_503_within_its_budget() {
    let (store, app) = faulty().await;
    store.script_all(Occasion::Always, Fault::HangBefore);
    let began = std::time::Instant::now();
    let refused = app.post("/orders", "k1", "a").await;
    assert_eq!(refused.problem(), "store-unavailable");
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    app.stop().await;
}

// I8
#[actix_web::test]
async fn a_route_may_run_without_its_store() {
    let (store, app) = faulty().await;
    store.script_all(Occasion::Always, Fault::FailBefore);
    let answer = app.post("/lenient", "k1", "a").await;
    assert_eq!((answer.status, answer.replayed), (201, false));
    assert_eq!(app.probe.runs(), 1);
    app.stop().await;
}

#[actix_web::test]
async fn without_its_store_a_handler_can_still_make_others_recognise_a_repeat() {
    let (store, app) = faulty().await;
    store.script_all(Occasion::Always, Fault::FailBefore);
    let unprotected = app.post("/lenient", "k1", "a").await;
    store.heal();
    let protected = app.post("/lenient", "k1", "a").await;
    assert!(!protected.replayed, "{protected:?}");
    assert_eq!(unprotected.body, protected.body);
    let seen: serde_json::Value = serde_json::from_str(&unprotected.body).unwrap();
    assert_eq!(
        (&seen["key"], &seen["step"]),
        (&json!("k1"), &json!("charged"))
    );
    app.stop().await;
}

// I3, B4: the result cannot be saved at once
#[actix_web::test]
async fn an_answer_that_could_not_be_saved_is_sent_and_saved_later() {
    let (store, app) = faulty().await;
    store.script(Method::Complete, Occasion::Next(5), Fault::FailBefore);
    let first = app.post("/orders", "k1", "a").await;
    assert_eq!(first.status, 201);
    let retry = settled(&app, "/orders", "k1").await;
    assert_eq!((retry.replayed, &retry.location), (true, &first.location));
    assert_eq!(app.probe.runs(), 1);
    app.stop().await;
}

// A4
#[actix_web::test]
async fn an_answer_is_not_sent_before_it_is_saved() {
    let (store, app) = faulty().await;
    store.script(
        Method::Complete,
        Occasion::Always,
        Fault::DelayBefore(Duration::from_millis(300)),
    );
    let first = app.post("/orders", "k1", "a").await;
    let retry = app.post("/orders", "k1", "a").await;
    assert_eq!((first.status, retry.replayed), (201, true));
    assert_eq!(app.probe.runs(), 1);
    app.stop().await;
}

// C13
#[actix_web::test]
async fn one_failed_renewal_loses_nothing() {
    let store = FaultStore::new(MemoryStore::new());
    let app = crate::app::start_with(Arc::new(store.clone()), |builder| {
        builder.lease(Duration::from_millis(300))
    })
    .await;
    store.script(Method::Renew, Occasion::Nth(1), Fault::FailBefore);
    let first = app.post("/gated", "k1", "a");
    let finish = async {
        app.probe.started.acquire().await.unwrap().forget();
        tokio::time::sleep(Duration::from_millis(900)).await;
        let duplicate = app.post("/gated", "k1", "a").await;
        app.probe.gate.add_permits(1);
        duplicate
    };
    let (first, duplicate) = tokio::join!(first, finish);
    assert_eq!(
        (first.status, duplicate.problem().as_str()),
        (201, "in-progress")
    );
    app.stop().await;
}

#[actix_web::test]
async fn a_full_store_refuses_new_keys_and_keeps_running_ones() {
    let (store, app) = faulty().await;
    store.script(Method::Claim, Occasion::Next(2), Fault::Full);
    let refused = app.post("/orders", "k1", "a").await;
    assert_eq!(refused.problem(), "store-unavailable");
    assert_eq!(app.probe.runs(), 0);
    app.stop().await;
}

// The lease cannot be renewed, but the owner is here and has the answer.
#[actix_web::test]
async fn a_duplicate_of_an_answer_that_waits_for_the_store_is_told_to_come_back() {
    let store = FaultStore::new(MemoryStore::new());
    let app = crate::app::start_with(Arc::new(store.clone()), |builder| {
        builder.lease(Duration::from_millis(100))
    })
    .await;
    store.script(Method::Complete, Occasion::Always, Fault::FailBefore);
    store.script(Method::Renew, Occasion::Always, Fault::FailBefore);
    let first = app.post("/orders", "k1", "a").await;
    assert_eq!(first.status, 201);
    tokio::time::sleep(Duration::from_millis(400)).await;
    let duplicate = app.post("/orders", "k1", "a").await;
    assert_eq!(
        duplicate.problem(),
        "in-progress",
        "the outcome is known here"
    );
    store.heal();
    let retry = settled(&app, "/orders", "k1").await;
    assert_eq!((retry.replayed, retry.location), (true, first.location));
    assert_eq!(app.probe.runs(), 1);
    app.stop().await;
}

/// Frees the key of the request that runs, behind its owner.
async fn free_behind_its_owner(store: &FaultStore, app: &Running) -> Record {
    app.probe.started.acquire().await.unwrap().forget();
    let query = ListQuery {
        limit: 1,
        ..ListQuery::default()
    };
    let record = store.list(&query).await.unwrap().remove(0);
    store.release(&record.id, record.owner).await.unwrap();
    record
}

/// Another claim of what this record was of.
fn another_claim(record: &Record) -> Claim {
    Claim {
        id: record.id.clone(),
        fingerprint: record.fingerprint.clone(),
        also_accepted: None,
        route: record.route.clone(),
        owner: Uuid::new_v4(),
        ttl: Duration::from_secs(60),
        lease: Duration::from_secs(60),
        takeover: Takeover::Never,
    }
}

#[actix_web::test]
async fn a_fenced_attempt_that_cannot_read_the_winner_s_answer_does_not_give_its_own() {
    let (store, app) = faulty().await;
    let first = app.post("/gated", "k1", "a");
    let taken_over = async {
        let record = free_behind_its_owner(&store, &app).await;
        store.claim(&another_claim(&record)).await.unwrap();
        store.script(Method::Get, Occasion::Next(1), Fault::FailBefore);
        app.probe.gate.add_permits(1);
    };
    let (first, ()) = tokio::join!(first, taken_over);
    assert_eq!(
        (first.status, first.problem().as_str()),
        (503, "store-unavailable")
    );
    app.stop().await;
}

#[actix_web::test]
async fn an_answer_whose_key_was_freed_is_saved_whatever_call_fails_on_the_way() {
    // Calls of the attempt's own that fail, one after the other; the first two `complete`s are those
    // under the claim that is gone.
    let none: &[(Method, u64)] = &[];
    for (failing, sent) in [
        (none, true),
        (&[(Method::Complete, 1)], true),
        (&[(Method::Complete, 1), (Method::Complete, 2)], true),
        (&[(Method::Complete, 1), (Method::Claim, 1)], true),
        (&[(Method::Complete, 1), (Method::Complete, 3)], true),
        // Who has the key now is not known.
        (&[(Method::Claim, 1)], false),
        (&[(Method::Complete, 2)], false),
    ] {
        for fault in [Fault::FailBefore, Fault::FailAfter] {
            let cell = format!("{failing:?} {fault:?}");
            let (store, app) = faulty().await;
            let first = app.post("/gated", "k1", "a");
            let freed = async {
                free_behind_its_owner(&store, &app).await;
                for (method, nth) in failing {
                    store.script(*method, Occasion::Nth(*nth), fault);
                }
                // One run, not more.
                app.probe.gate.add_permits(1);
            };
            let (first, ()) = tokio::join!(first, freed);
            if sent {
                assert_eq!(first.status, 201, "{cell}: {first:?}");
            } else {
                assert!([201, 409, 503].contains(&first.status), "{cell}: {first:?}");
            }
            saved(&store, &cell).await;
            let retry = settled(&app, "/gated", "k1").await;
            assert_eq!((retry.status, retry.replayed), (201, true), "{cell}");
            assert_eq!(retry.body, "order 1", "{cell}");
            app.stop().await;
        }
    }
}

/// Waits until the one record is finished.
async fn saved(store: &FaultStore, cell: &str) {
    let query = ListQuery {
        limit: 1,
        ..ListQuery::default()
    };
    for _ in 0..200 {
        let records = store.list(&query).await.unwrap();
        if let [
            Record {
                state: State::Finished { .. },
                ..
            },
        ] = &records[..]
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{cell}: never saved");
}

#[actix_web::test]
async fn an_answer_whose_key_another_holds_is_saved_when_that_one_frees_it() {
    let (store, app) = faulty().await;
    let first = app.post("/gated", "k1", "a");
    let held = async {
        let record = free_behind_its_owner(&store, &app).await;
        let other = another_claim(&record);
        store.claim(&other).await.unwrap();
        app.probe.gate.add_permits(1);
        other
    };
    let (first, other) = tokio::join!(first, held);
    assert_eq!(first.problem(), "in-progress", "the other may yet finish");
    store.release(&other.id, other.owner).await.unwrap();
    saved(&store, "freed").await;
    let retry = app.post("/gated", "k1", "a").await;
    assert_eq!((retry.replayed, retry.body.as_str()), (true, "order 1"));
    app.stop().await;
}

#[actix_web::test]
async fn nobody_is_asked_about_an_owner_that_is_still_at_work_in_the_same_process() {
    let store = FaultStore::new(MemoryStore::new());
    let app = crate::app::start_with(Arc::new(store.clone()), |builder| {
        builder
            .lease(Duration::from_millis(200))
            .reconcile_every(Duration::from_millis(50))
    })
    .await;
    // As in an outage after which the records are looked for before the leases are renewed.
    store.script(Method::Renew, Occasion::Always, Fault::FailBefore);
    let first = app.post("/asked", "k1", "a");
    let taken = async {
        app.probe.started.acquire().await.unwrap().forget();
        let query = ListQuery {
            limit: 1,
            ..ListQuery::default()
        };
        let owner = store.list(&query).await.unwrap()[0].owner;
        for _ in 0..200 {
            if store.list(&query).await.unwrap()[0].owner != owner {
                app.probe.gate.add_permits(1);
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the reconciler never took the record");
    };
    let (first, ()) = tokio::join!(first, taken);
    assert_eq!((first.status, first.body.as_str()), (201, "order 1"));
    let retry = settled(&app, "/asked", "k1").await;
    assert_eq!((retry.replayed, retry.body), (true, first.body));
    assert_eq!(app.probe.asked.load(Ordering::SeqCst), 0);
    app.stop().await;
}

#[actix_web::test]
async fn an_answer_that_waits_for_the_store_does_not_touch_what_another_attempt_has_saved() {
    let (store, app) = faulty().await;
    let first = app.post("/gated", "k1", "a");
    let taken_over = async {
        let record = free_behind_its_owner(&store, &app).await;
        let winner = another_claim(&record);
        store.claim(&winner).await.unwrap();
        let answer = Answer::Tombstone { code: 202 };
        store
            .complete(&winner.id, winner.owner, &answer)
            .await
            .unwrap();
        store.script(Method::Complete, Occasion::Next(1), Fault::FailBefore);
        app.probe.gate.add_permits(1);
        winner
    };
    let (first, winner) = tokio::join!(first, taken_over);
    assert_eq!(first.status, 201, "nobody could know better: {first:?}");
    let left = app.idempotency.drain().await;
    assert_eq!(left, 0, "in the background");
    app.stop().await;
    let record = store.get(&winner.id).await.unwrap().unwrap();
    assert_eq!(record.owner, winner.owner);
    assert!(
        matches!(
            record.state,
            State::Finished {
                answer: Answer::Tombstone { code: 202 },
                ..
            }
        ),
        "{record:?}"
    );
}
