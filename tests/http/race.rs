//! Simultaneous requests with one key: one of them runs.

use crate::LAB;
use futures_util::future::join_all;
use idem_tests::harness::{Call, Reply, Site, assert_replay, durable, scaled};
use std::{collections::HashSet, sync::Arc};
use tokio::sync::Barrier;

/// Sends the same request so many times at the same moment.
async fn burst(call: &Call, times: usize) -> Vec<Reply> {
    let barrier = Arc::new(Barrier::new(times));
    let tasks = (0..times).map(|_| {
        let (call, barrier) = (call.clone(), Arc::clone(&barrier));
        tokio::spawn(async move {
            barrier.wait().await;
            call.send().await
        })
    });
    join_all(tasks)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

/// Every answer is the one order, a replay of it, or the advice to come back for it.
fn assert_one_order(replies: &[Reply]) -> &Reply {
    let (created, refused): (Vec<_>, Vec<_>) = replies
        .iter()
        .partition(|reply| reply.status.as_u16() == 201);
    for reply in refused {
        reply.assert_problem(409, "in-progress");
    }
    let ids: HashSet<_> = created.iter().map(|reply| reply.id()).collect();
    assert_eq!(ids.len(), 1, "{created:?}");
    let mut first = created.iter().filter(|reply| !reply.is_replay());
    let first_answer = first.next().expect("one that is no replay");
    assert!(first.next().is_none(), "two that are no replays");
    first_answer
}

#[tokio::test]
async fn of_twenty_at_once_one_runs_and_nineteen_are_told_to_come_back() {
    // A1, A10
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/default").key("k").json("{}").delay_ms(300);
        let replies = burst(&order, 20).await;
        let first = assert_one_order(&replies);
        assert_eq!(site.journal.effects("k"), 1);
        assert_eq!(site.journal.of("start", "k").len(), 1);
        assert_replay(first, &order.send().await);
    })
    .await;
}

#[tokio::test]
async fn bursts_on_fresh_keys_have_one_effect_each_and_no_server_error() {
    // A2
    let keys = scaled(20, 200);
    Site::on_each(LAB, &["--workers", "4"], async |site| {
        for index in 0..keys {
            let key = format!("k{index}");
            let order = site.post("/default").key(&key).json("{}");
            assert_one_order(&burst(&order, 20).await);
        }
        assert_eq!(site.journal.all_effects(), keys);
    })
    .await;
}

#[tokio::test]
async fn the_key_is_held_until_the_answer_is_durable() {
    // A4
    Site::on_each(LAB, &["--slow-complete", "600ms"], async |site| {
        let order = site.post("/default").key("k").json("{}");
        let first = order.spawn();
        site.journal.wait_for("end", "k").await;
        order.send().await.assert_problem(409, "in-progress");
        let first = first.await.unwrap();
        first.assert_created();
        assert_replay(&first, &order.send().await);
        assert_eq!(site.journal.effects("k"), 1);
    })
    .await;
}

#[tokio::test]
async fn two_processes_on_one_store_have_one_history() {
    // A7
    Site::on_these(durable(), LAB, &[], async |site| {
        let other = site.another(&[]).await;
        let order = site.post("/default").key("k").json("{}");
        let first = order.send().await;
        first.assert_created();
        for turn in 0..9 {
            let again = match turn % 2 {
                0 => order.clone().at(other.address()).send().await,
                _ => order.send().await,
            };
            assert_replay(&first, &again);
        }
        assert_eq!(site.journal.effects("k"), 1);
        // And of a race between the two.
        let order = site.post("/default").key("race").json("{}").delay_ms(200);
        let elsewhere = order.clone().at(other.address());
        let (mut here, there) = tokio::join!(burst(&order, 10), burst(&elsewhere, 10));
        here.extend(there);
        assert_one_order(&here);
        assert_eq!(site.journal.effects("race"), 1);
    })
    .await;
}

#[tokio::test]
async fn different_keys_run_side_by_side() {
    // P8, O9
    Site::on_each(LAB, &[], async |site| {
        let order = |key: &str| site.post("/default").key(key).json(r#"{"order":7}"#);
        let (one, two) = tokio::join!(order("k1").spawn(), order("k2").spawn());
        let (one, two) = (one.unwrap(), two.unwrap());
        one.assert_created();
        two.assert_created();
        assert_ne!(one.id(), two.id());
        assert_eq!(site.journal.all_effects(), 2);
    })
    .await;
}
