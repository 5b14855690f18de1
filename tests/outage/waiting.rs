//! Duplicates that wait for a request of another process: told at once where the engine can tell, and
//! right on time without.

use crate::{LAB, SLACK, hang_up, line::on_each_relay};
use futures_util::future::join_all;
use idem_tests::{
    harness::{Call, Fault, Reply, Site, assert_replay, durable},
    services::{self, Store},
};
use std::time::Duration;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

/// The pause between two looks of one who has waited for two seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The selected stores whose engine can tell others that a record is settled.
fn telling() -> Vec<Store> {
    let mut stores = services::selected();
    stores.retain(|store| matches!(store, Store::Postgres | Store::Redis | Store::RedisCluster));
    stores
}

/// Sends it in a task of its own, and notes when the answer came.
fn timed(call: Call) -> JoinHandle<(Reply, Instant)> {
    tokio::spawn(async move { (call.send().await, Instant::now()) })
}

/// A request that takes this long, and a duplicate of it that waits in another process: by how much
/// its answer came after the first one's.
async fn lateness(site: &Site, elsewhere: &Call, key: &str, takes: u64) -> Duration {
    let order = site.post("/wait").key(key).json("{}");
    let first = timed(order.delay_ms(takes));
    site.journal.wait_for("start", key).await;
    let waiter = timed(elsewhere.clone().key(key));
    let (first, answered) = first.await.unwrap();
    let (again, told) = waiter.await.unwrap();
    assert_replay(&first, &again);
    told.saturating_duration_since(answered)
}

#[tokio::test]
async fn who_waits_elsewhere_is_told_and_does_not_have_to_look() {
    // I10
    Site::on_these(telling(), LAB, &[], async |site| {
        let other = site.another(&[]).await;
        let elsewhere = site.post("/wait").json("{}").at(other.address());
        // Over all of a pause, so that looking would be late by half of one on average.
        let late = join_all((0..8).map(|nth| {
            let (site, elsewhere) = (&site, &elsewhere);
            async move { lateness(site, elsewhere, &format!("k{nth}"), 2000 + nth * 125).await }
        }))
        .await;
        let mean = late.iter().sum::<Duration>() / 8;
        assert!(mean < LONGEST_PAUSE / 4, "{mean:?} on average: {late:?}");
    })
    .await;
}

#[tokio::test]
async fn who_waits_for_a_key_that_is_freed_elsewhere_is_told_and_runs() {
    Site::on_these(telling(), LAB, &[], async |site| {
        let other = site.another(&[]).await;
        let late = join_all((0..4).map(|nth| {
            let (site, other) = (&site, &other);
            async move {
                let key = format!("k{nth}");
                let order = site.post("/wait").key(&key).json("{}");
                let takes = 2000 + nth * 250;
                let first = timed(order.clone().delay_ms(takes).respond("release:503"));
                site.journal.wait_for("start", &key).await;
                let waiter = timed(order.at(other.address()));
                let (first, answered) = first.await.unwrap();
                assert_eq!(first.status, 503);
                let (second, told) = waiter.await.unwrap();
                second.assert_created();
                assert_eq!(site.journal.effects(&key), 1);
                told.saturating_duration_since(answered)
            }
        }))
        .await;
        let mean = late.iter().sum::<Duration>() / 4;
        assert!(mean < LONGEST_PAUSE / 4, "{mean:?} on average: {late:?}");
    })
    .await;
}

#[tokio::test]
async fn who_waits_is_answered_although_the_line_that_would_tell_breaks_again_and_again() {
    // I10
    on_each_relay(&[], async |proxy, mut site| {
        // The one that works does so past the relay, so that only those who wait are disturbed.
        let working = site.another_past_the_relay(&[]).await;
        let order = site.post("/wait").json("{}");
        let pairs: Vec<_> = (0..4)
            .map(|nth| {
                let order = order.clone().key(&format!("k{nth}"));
                let first = order.clone().at(working.address());
                (order, timed(first.delay_ms(1500 + nth * 250)))
            })
            .collect();
        for nth in 0..4 {
            site.journal.wait_for("start", &format!("k{nth}")).await;
        }
        let waiters: Vec<_> = pairs
            .iter()
            .map(|(order, _)| timed(order.clone()))
            .collect();
        let cutting = async {
            for _ in 0..10 {
                sleep(Duration::from_millis(220)).await;
                proxy.fail(Fault::Cut);
            }
        };
        let answers = join_all(pairs.into_iter().map(|(_, first)| first));
        let (firsts, ()) = tokio::join!(answers, cutting);
        for (first, waiter) in firsts.into_iter().zip(waiters) {
            let (first, answered) = first.unwrap();
            let (again, told) = waiter.await.unwrap();
            assert_replay(&first, &again);
            let late = told.saturating_duration_since(answered);
            assert!(late < LONGEST_PAUSE + SLACK, "{late:?}");
        }
        hang_up([&mut site.lab]).await;
    })
    .await;
}

#[tokio::test]
async fn those_who_wait_hold_no_connection() {
    Site::on_these(durable(), LAB, &["--pool", "1"], async |site| {
        let other = site.another(&["--pool", "1"]).await;
        let order = site.post("/wait").json("{}");
        let firsts: Vec<_> = (0..3)
            .map(|nth| timed(order.clone().key(&format!("k{nth}")).delay_ms(4000)))
            .collect();
        for nth in 0..3 {
            site.journal.wait_for("start", &format!("k{nth}")).await;
        }
        let waiters: Vec<_> = (0..3)
            .map(|nth| timed(order.clone().key(&format!("k{nth}")).at(other.address())))
            .collect();
        // By then they have all asked, and wait.
        sleep(Duration::from_millis(300)).await;
        let begun = Instant::now();
        for nth in 0..3 {
            let call = order.clone().at(other.address());
            call.clone()
                .key(&format!("other{nth}"))
                .send()
                .await
                .assert_created();
            let reused = call.key(&format!("k{nth}")).json("[]").send().await;
            reused.assert_problem(422, "key-reused");
        }
        let took = begun.elapsed();
        let all_waited = firsts.iter().all(|first| !first.is_finished());
        assert!(
            all_waited,
            "the machine is too slow for this test: {took:?}"
        );
        for (first, waiter) in firsts.into_iter().zip(waiters) {
            assert_replay(&first.await.unwrap().0, &waiter.await.unwrap().0);
        }
    })
    .await;
}
