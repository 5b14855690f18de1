//! Duplicates that wait for the running request.

use crate::LAB;
use idem_tests::harness::{Site, assert_replay, durable};
use std::time::{Duration, Instant};

#[tokio::test]
async fn duplicates_wait_and_all_get_the_first_answer() {
    // A1 for a route that waits
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/wait").key("k").json("{}");
        let first = order.clone().delay_ms(1000).spawn();
        site.journal.wait_for("start", "k").await;
        let others: Vec<_> = (0..10).map(|_| order.spawn()).collect();
        let reused = order.clone().json("[]").send().await;
        reused.assert_problem(422, "key-reused");
        assert!(
            !first.is_finished(),
            "a reused key was to be answered at once"
        );
        let first = first.await.unwrap();
        let answered = Instant::now();
        for other in others {
            assert_replay(&first, &other.await.unwrap());
        }
        // They are woken, not left to their deadline.
        assert!(
            answered.elapsed() < Duration::from_secs(2),
            "{:?}",
            answered.elapsed()
        );
        assert_eq!(site.journal.of("start", "k").len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_waiter_in_another_process_is_answered_long_before_its_deadline() {
    // I10
    Site::on_these(durable(), LAB, &[], async |site| {
        let other = site.another(&[]).await;
        let order = site.post("/wait").key("k").json("{}");
        let first = order.clone().delay_ms(1000).spawn();
        site.journal.wait_for("start", "k").await;
        let waiter = order.clone().at(other.address()).spawn();
        let first = first.await.unwrap();
        let answered = Instant::now();
        assert_replay(&first, &waiter.await.unwrap());
        assert!(
            answered.elapsed() < Duration::from_millis(2500),
            "{:?}",
            answered.elapsed()
        );
    })
    .await;
}

#[tokio::test]
async fn a_waiter_gives_up_at_its_deadline_and_runs_if_the_key_is_freed() {
    // C15
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/wait").key("slow").json("{}");
        let slow = order.clone().delay_ms(8000).spawn();
        site.journal.wait_for("start", "slow").await;
        let begun = Instant::now();
        order.send().await.assert_problem(409, "in-progress");
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_millis(4500), "{waited:?}");
        assert!(waited <= Duration::from_millis(7500), "{waited:?}");
        assert_replay(&slow.await.unwrap(), &order.send().await);

        let order = site.post("/wait").key("freed").json("{}");
        let released = order.clone().delay_ms(1000).respond("release:503").spawn();
        site.journal.wait_for("start", "freed").await;
        let waiter = order.send().await;
        assert_eq!(released.await.unwrap().status, 503);
        waiter.assert_created();
        assert_eq!(site.journal.effects("freed"), 1);
    })
    .await;
}
