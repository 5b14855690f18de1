//! The process dies with work in flight (`kill -9`, abort).

use crate::{LAB, settled};
use idem_tests::harness::{
    Call, Lab, Site, assert_replay, durable, eventually, scaled, transactional,
};
use reqwest::{Method, StatusCode};
use std::time::Duration;
use tokio::time::sleep;

/// The lease of these tests: long enough for a restart within it.
const LEASE: Duration = Duration::from_secs(4);
const FLAGS: &[&str] = &["--lease", "4s"];

/// Starts a request, kills the lab in the middle of its handler, and starts another lab.
async fn killed_midway(site: &mut Site, path: &str, key: &str) -> Call {
    let order = site.post(path).key(key).json("{}");
    let dying = {
        let order = order.clone().delay_ms(60_000);
        tokio::spawn(async move { order.try_send().await })
    };
    site.journal.wait_for("start", key).await;
    site.restart(FLAGS).await;
    assert!(
        dying.await.unwrap().is_err(),
        "the lab was to die before it answers"
    );
    order.at(site.address())
}

#[tokio::test]
async fn a_route_that_reruns_runs_again_after_the_lease() {
    // B12, C1, C5
    Site::on_these(durable(), LAB, FLAGS, async |mut site| {
        let order = killed_midway(&mut site, "/rerun", "k").await;
        let early = order.send().await;
        early.assert_problem(409, "in-progress");
        let after: u64 = early.text("retry-after").parse().unwrap();
        assert!((1..=LEASE.as_secs()).contains(&after), "{after}");
        let again = settled(&order).await;
        again.assert_created();
        assert!(!again.body.is_empty());
        assert_eq!(again.json()["attempt"], 2);
        let starts = site.journal.of("start", "k");
        assert_eq!(starts.len(), 2);
        let waited = Duration::from_millis(starts[1].at_ms - starts[0].at_ms);
        // The claim was made a little before the first line was written.
        assert!(waited >= LEASE - Duration::from_millis(500), "{waited:?}");
        assert!(waited <= LEASE + Duration::from_secs(4), "{waited:?}");
        assert_eq!(starts[0].downstream_key, starts[1].downstream_key);
        assert_replay(&again, &order.send().await);
    })
    .await;
}

#[tokio::test]
async fn a_route_that_holds_says_so_until_an_operator_resolves_it() {
    // C1, C3
    Site::on_these(durable(), LAB, FLAGS, async |mut site| {
        let order = killed_midway(&mut site, "/default", "k").await;
        order.send().await.assert_problem(409, "in-progress");
        let held = settled(&order).await;
        held.assert_problem(409, "outcome-unknown");
        assert_eq!(held.json()["retryable"], false);
        assert_eq!(held.header("retry-after"), None);
        order
            .clone()
            .json("[]")
            .send()
            .await
            .assert_problem(422, "key-reused");
        assert_eq!(site.journal.of("start", "k").len(), 1);
        let records = site.records().await;
        assert_eq!(records.len(), 1);
        assert_eq!(records[0]["state"], "ABANDONED");
        let path = format!("/lab/records/{}", records[0]["digest"].as_str().unwrap());
        let forgotten = site.call(Method::DELETE, &path).send().await;
        assert_eq!(forgotten.status, StatusCode::NO_CONTENT);
        order.send().await.assert_created();
    })
    .await;
}

#[tokio::test]
async fn a_lease_of_an_hour_is_kept_for_an_hour_and_freed_by_hand() {
    // C3
    let flags = ["--lease", "1h"];
    Site::on_these(durable(), LAB, &flags, async |mut site| {
        let order = site.post("/rerun").key("k").json("{}");
        let dying = order.clone().delay_ms(60_000);
        let dying = tokio::spawn(async move { dying.try_send().await });
        site.journal.wait_for("start", "k").await;
        site.restart(&flags).await;
        let _ = dying.await;
        let order = order.at(site.address());
        sleep(scaled(Duration::from_secs(2), Duration::from_secs(10))).await;
        order.send().await.assert_problem(409, "in-progress");
        let records = site.records().await;
        let left = records[0]["lease_left_ms"].as_u64().unwrap();
        assert!(left > 3_500_000, "{left} ms");
        let path = format!("/lab/records/{}", records[0]["digest"].as_str().unwrap());
        site.call(Method::DELETE, &path).send().await;
        order.send().await.assert_created();
    })
    .await;
}

#[tokio::test]
async fn what_the_process_did_when_it_died_decides_nothing_and_the_record_everything() {
    // I2
    let rounds = scaled(2, 50);
    Site::on_these(durable(), LAB, &["--lease", "1s"], async |mut site| {
        for round in 0..rounds {
            for (crash, effects) in [
                ("before-effect", 0),
                ("after-effect", 1),
                ("after-commit", 1),
            ] {
                let key = format!("{crash}-{round}");
                let order = site.post("/default").key(&key).json("{}");
                assert!(
                    order.clone().crash(crash).try_send().await.is_err(),
                    "{crash}"
                );
                let status = site.lab.ended(Duration::from_secs(10)).await;
                assert!(!status.success(), "{crash}");
                site.restart(&["--lease", "1s"]).await;
                let again = settled(&order.at(site.address())).await;
                assert_eq!(site.journal.effects(&key), effects, "{crash}");
                assert_eq!(site.journal.of("start", &key).len(), 1, "{crash}");
                if crash == "after-commit" {
                    assert_eq!(again.status, 201, "{again:?}");
                    assert!(again.is_replay());
                } else {
                    again.assert_problem(409, "outcome-unknown");
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_transaction_that_dies_with_its_process_has_never_been() {
    // C1, I2
    let rounds = scaled(2, 50);
    Site::on_these(
        transactional(),
        LAB,
        &["--lease", "1s"],
        async |mut site| {
            for round in 0..rounds {
                for crash in ["before-effect", "after-effect", "after-commit"] {
                    let key = format!("{crash}-{round}");
                    let before = site.orders().await.len();
                    let order = site.post("/transactional").key(&key).json("{}");
                    assert!(
                        order.clone().crash(crash).try_send().await.is_err(),
                        "{crash}"
                    );
                    site.restart(&["--lease", "1s"]).await;
                    let again = settled(&order.at(site.address())).await;
                    assert_eq!(again.status, 201, "{crash}: {again:?}");
                    assert_eq!(again.is_replay(), crash == "after-commit", "{crash}");
                    let orders = site.orders().await;
                    assert_eq!(orders.len(), before + 1, "{crash}");
                    assert!(orders.contains(&again.id()), "{crash}");
                }
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_process_that_is_killed_under_load_leaves_no_key_with_two_effects() {
    const CLIENTS: usize = 8;
    let rounds = scaled(3, 20);
    Site::on_these(durable(), LAB, &["--lease", "1s"], async |mut site| {
        let mut keys = Vec::new();
        for round in 0..rounds {
            let answered = under_load_until_killed(&mut site, round, CLIENTS).await;
            site.restart(&["--lease", "1s"]).await;
            keys.extend(answered);
        }
        assert!(!keys.is_empty(), "nothing was sent");
        for (key, seen) in keys {
            let again = settled(&site.post("/default").key(&key).json("{}")).await;
            let effects = site.journal.effects(&key);
            assert!(effects <= 1, "{key}: {effects} effects");
            if again.status == 201 {
                assert_eq!(effects, 1, "{key}");
            } else {
                again.assert_problem(409, "outcome-unknown");
            }
            if let Some(id) = seen {
                assert_eq!(again.id(), id, "{key}: another answer than before");
            }
        }
    })
    .await;
}

/// Sends requests one after the other from some clients, kills the lab at a random moment, and says
/// which keys were sent and with which id they were answered.
async fn under_load_until_killed(
    site: &mut Site,
    round: usize,
    clients: usize,
) -> Vec<(String, Option<u64>)> {
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let order = site.post("/default").json("{}").delay_ms(10);
            tokio::spawn(async move {
                let mut sent = Vec::new();
                loop {
                    let key = format!("load-{round}-{client}-{}", sent.len());
                    match order.clone().key(&key).try_send().await {
                        Ok(reply) => sent.push((key, Some(reply.id()))),
                        Err(_) => {
                            sent.push((key, None));
                            return sent;
                        }
                    }
                }
            })
        })
        .collect();
    sleep(Duration::from_millis(rand::random_range(100..600))).await;
    site.lab.kill();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    all
}

#[tokio::test]
async fn several_processes_started_at_once_on_an_empty_store_all_get_ready() {
    // I11
    Site::on_these(durable(), LAB, &[], async |site| {
        let labs: Vec<Lab> =
            futures_util::future::join_all((0..4).map(|_| site.another(&[]))).await;
        let order = site.post("/default").key("k").json("{}");
        let first = order.send().await;
        for lab in &labs {
            assert_replay(&first, &order.clone().at(lab.address()).send().await);
        }
        eventually("one effect", async || {
            (site.journal.effects("k") == 1).then_some(())
        })
        .await;
    })
    .await;
}
