//! Somebody is asked what became of an operation whose process died.

use crate::{LAB, settled};
use futures_util::{StreamExt, future::join_all, stream};
use idem_runtime::{
    record::{Record, RecordId},
    store::{Claim, Claimed, ListQuery, Store, Takeover},
};
use idem_tests::{
    harness::{Lab, Site, durable, eventually, scaled},
    stores::{self, Request},
};
use reqwest::Method;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::sleep;
use uuid::Uuid;

const FLAGS: &[&str] = &["--lease", "1s"];

#[tokio::test]
async fn what_took_effect_is_completed_and_what_did_not_is_freed() {
    // C1
    Site::on_these(durable(), LAB, FLAGS, async |mut site| {
        for (crash, effect) in [("after-effect", true), ("before-effect", false)] {
            let order = site.post("/reconcile").key(crash).json("{}");
            assert!(order.clone().crash(crash).try_send().await.is_err());
            site.restart(FLAGS).await;
            let begun = Instant::now();
            let order = order.at(site.address());
            let answer = settled(&order).await;
            assert!(
                begun.elapsed() < Duration::from_secs(6),
                "{:?}",
                begun.elapsed()
            );
            if effect {
                assert_eq!(answer.status, 200, "{answer:?}");
                assert_eq!(&answer.body[..], b"{\"reconciled\":true}");
                assert_eq!(answer.text("content-type"), "application/json");
                assert!(answer.is_replay());
                order
                    .clone()
                    .json("[]")
                    .send()
                    .await
                    .assert_problem(422, "key-reused");
            } else {
                answer.assert_created();
            }
            assert_eq!(site.journal.effects(crash), 1, "{crash}");
        }
    })
    .await;
}

#[tokio::test]
async fn of_several_processes_one_asks() {
    Site::on_these(durable(), LAB, FLAGS, async |mut site| {
        let keys: Vec<String> = (0..6).map(|index| format!("k{index}")).collect();
        let dying: Vec<_> = keys
            .iter()
            .map(|key| {
                let order = site.post("/reconcile").key(key).json("{}").delay_ms(60_000);
                tokio::spawn(async move { order.try_send().await })
            })
            .collect();
        for key in &keys {
            site.journal.wait_for("start", key).await;
        }
        site.restart(FLAGS).await;
        for call in dying {
            let _ = call.await;
        }
        let others = [site.another(FLAGS).await, site.another(FLAGS).await];
        for key in &keys {
            let order = site.post("/reconcile").key(key).json("{}");
            settled(&order).await.assert_created();
            assert_eq!(site.journal.effects(key), 1, "{key}");
        }
        let told = || -> usize {
            let labs = others.iter().chain([&site.lab]);
            labs.map(|lab| lab.log().matches("abandoned record reconciled").count())
                .sum()
        };
        eventually("all log lines", async || {
            (told() >= keys.len()).then_some(())
        })
        .await;
        assert_eq!(told(), keys.len());
    })
    .await;
}

/// The store of a site, opened beside its labs.
async fn store_of(site: &Site) -> Arc<dyn Store> {
    let request = Request {
        key_prefix: Some(format!("{}:", site.place().name())),
        ..Request::of(site.place().url())
    };
    stores::open(&request).await.unwrap().store
}

/// A record as a handler of another name has left it behind, for the same request as `like`.
async fn orphan(store: &dyn Store, like: &Record, key: &str) -> RecordId {
    let claim = Claim {
        id: RecordId::new(like.id.scope(), key, like.id.request_path()),
        fingerprint: like.fingerprint.clone(),
        also_accepted: None,
        route: "POST /reconcile shop::renamed".to_owned(),
        owner: Uuid::new_v4(),
        ttl: Duration::from_secs(3600),
        lease: Duration::ZERO,
        takeover: Takeover::Never,
    };
    let claimed = store.claim(&claim).await.unwrap();
    assert!(matches!(claimed, Claimed::Won { .. }), "{claimed:?}");
    claim.id
}

#[tokio::test]
async fn what_a_handler_that_is_gone_has_left_behind_is_told_of_once_and_held() {
    let flags = ["--lease", "1s", "--orphans", "200ms"];
    Site::on_these(durable(), LAB, &flags, async |site| {
        let order = site.post("/reconcile").key("like").json("{}");
        order.send().await.assert_created();
        let store = store_of(&site).await;
        let query = ListQuery {
            limit: 10,
            ..ListQuery::default()
        };
        let like = store.list(&query).await.unwrap().remove(0);
        let mut orphans = Vec::new();
        for key in ["k1", "k2"] {
            let id = orphan(&*store, &like, key).await;
            // The second is found in a later round, so that the first could be told of again.
            let line = site.lab.logged(&id.digest()).await;
            assert!(
                line.contains("WARN") && line.contains("POST /reconcile shop::renamed"),
                "{line}"
            );
            orphans.push(id);
        }
        for id in &orphans {
            // Not "in progress", for nobody works on it.
            let retry = order.clone().key(id.key()).send().await;
            retry.assert_problem(409, "outcome-unknown");
        }
        let listed = site
            .call(Method::GET, "/lab/records/abandoned")
            .send()
            .await;
        let listed = listed.json();
        let mut digests: Vec<_> = listed.as_array().unwrap().iter().collect();
        digests.retain(|record| record["state"] == "ABANDONED");
        assert_eq!(digests.len(), orphans.len(), "{listed}");
        assert_eq!(site.metric("idempotency_orphaned_total").await, 2.0);
        let log = site.lab.log();
        for id in &orphans {
            let told = |line: &&str| line.contains("WARN") && line.contains(&id.digest());
            assert_eq!(log.lines().filter(told).count(), 1, "{log}");
        }
    })
    .await;
}

/// How long any number of keys may take.
const ALL: Duration = Duration::from_secs(240);

/// Leaves keys behind whose process has died, and starts four new ones with these flags; half of
/// the keys, the first ones, after their effect.
async fn four_after_a_death(site: &mut Site, keys: &[String], flags: &[&str]) -> Vec<Lab> {
    // What it would save, it does not come to save; nor does it ask about its own keys, where a busy
    // machine renews their leases too late.
    #[rustfmt::skip]
    let idle = [
        "--slow-complete", "1h",
        "--store-timeout", "10m",
        "--reconcile-every", "1h",
    ];
    let dying = [FLAGS, &idle].concat();
    site.restart(&dying).await;
    let done = keys.len() / 2;
    let mut calls = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let delay = if index < done { 0 } else { 3_600_000 };
        let order = site.post("/reconcile").key(key).json("{}").delay_ms(delay);
        calls.push(tokio::spawn(async move { order.try_send().await }));
        // Not more at once than are taken in.
        sleep(Duration::from_millis(2)).await;
    }
    let deadline = Instant::now() + ALL;
    loop {
        let lines = site.journal.lines();
        let of = |phase| lines.iter().filter(|line| line.phase == phase).count();
        if of("end") == done && of("start") == keys.len() {
            break;
        }
        assert!(Instant::now() < deadline, "{} have begun", of("start"));
        sleep(Duration::from_millis(50)).await;
    }
    site.restart(flags).await;
    for call in calls {
        let _ = call.await;
    }
    join_all((0..3).map(|_| site.another(flags))).await
}

/// When each key was asked about, in order.
fn asked(site: &Site) -> HashMap<String, Vec<u64>> {
    let mut asked: HashMap<String, Vec<u64>> = HashMap::new();
    for line in site.journal.lines() {
        if line.phase == "asked" {
            asked.entry(line.key.unwrap()).or_default().push(line.at_ms);
        }
    }
    asked
}

#[tokio::test]
async fn four_processes_ask_once_about_each_of_many_keys_and_resolve_each_once() {
    let count = scaled(40, 1000);
    let flags = [FLAGS, &["--reconcile-every", "200ms"]].concat();
    Site::on_these(durable(), LAB, FLAGS, async |mut site| {
        let keys: Vec<String> = (0..count).map(|index| format!("k{index}")).collect();
        let others = four_after_a_death(&mut site, &keys, &flags).await;
        let begun = Instant::now();
        let resolved = || -> usize {
            let labs = others.iter().chain([&site.lab]);
            labs.map(|lab| lab.log().matches("abandoned record reconciled").count())
                .sum()
        };
        while resolved() < keys.len() {
            assert!(begun.elapsed() < ALL, "{} are resolved", resolved());
            sleep(Duration::from_millis(50)).await;
        }
        let took = begun.elapsed();
        // Whoever would ask again, would do so now.
        sleep(Duration::from_millis(500)).await;
        assert_eq!(resolved(), keys.len());
        let asked = asked(&site);
        assert_eq!(asked.len(), keys.len());
        assert!(asked.values().all(|times| times.len() == 1), "{asked:?}");
        stream::iter(keys.iter().enumerate())
            .for_each_concurrent(16, |(index, key)| {
                let order = site.post("/reconcile").key(key).json("{}");
                async move {
                    let answer = order.send().await;
                    if index < count / 2 {
                        assert!(answer.is_replay(), "{key}: {answer:?}");
                        assert_eq!(&answer.body[..], b"{\"reconciled\":true}", "{key}");
                    } else {
                        answer.assert_created();
                    }
                }
            })
            .await;
        let lines = site.journal.lines();
        let mut effects: HashMap<&str, usize> = HashMap::new();
        for line in lines.iter().filter(|line| line.phase == "effect") {
            *effects.entry(line.key.as_deref().unwrap()).or_default() += 1;
        }
        assert_eq!(effects.len(), keys.len());
        assert!(effects.values().all(|count| *count == 1), "{effects:?}");
        eprintln!(
            "{}: {count} abandoned keys resolved once each, after {took:?}",
            site.store()
        );
    })
    .await;
}

#[tokio::test]
async fn four_processes_ask_about_a_pending_key_once_in_a_round() {
    let count = scaled(10, 200);
    let flags = [FLAGS, &["--reconcile-every", "100ms"]].concat();
    let undecided = [&flags[..], &["--undecided"]].concat();
    Site::on_these(durable(), LAB, FLAGS, async |mut site| {
        let keys: Vec<String> = (0..count).map(|index| format!("k{index}")).collect();
        let others = four_after_a_death(&mut site, &keys, &undecided).await;
        let begun = Instant::now();
        // Twice each: the pauses are as long as the key is old.
        loop {
            let asked = asked(&site);
            if asked.len() == count && asked.values().all(|times| times.len() >= 2) {
                break;
            }
            assert!(begun.elapsed() < ALL, "{asked:?}");
            sleep(Duration::from_millis(100)).await;
        }
        for (key, times) in asked(&site) {
            for pair in times.windows(2) {
                let pause = pair[1].saturating_sub(pair[0]);
                assert!(pause >= 900, "{key} was asked about again after {pause} ms");
            }
        }
        // Until it is known, nothing runs and nothing is answered.
        let order = site.post("/reconcile").key("k0").json("{}");
        order.send().await.assert_problem(409, "in-progress");
        drop(others);
        site.restart(&flags).await;
        let order = order.at(site.address());
        let answer = loop {
            let answer = order.send().await;
            if answer.problem().as_deref() != Some("in-progress") {
                break answer;
            }
            assert!(begun.elapsed() < ALL, "{answer:?}");
            sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(&answer.body[..], b"{\"reconciled\":true}");
        assert_eq!(site.journal.effects("k0"), 1);
    })
    .await;
}

#[tokio::test]
async fn what_the_function_has_said_and_could_not_be_saved_is_asked_again() {
    let patience = ["--reconcile-patience", "500ms"];
    let failing = ["--fail", "complete=1", "--fail", "release=1"];
    let flags = [FLAGS, &patience, &failing].concat();
    Site::on_these(durable(), LAB, FLAGS, async |mut site| {
        for (crash, effect) in [("after-effect", true), ("before-effect", false)] {
            let order = site.post("/reconcile").key(crash).json("{}");
            assert!(order.clone().crash(crash).try_send().await.is_err());
            site.restart(&flags).await;
            let answer = settled(&order.at(site.address())).await;
            assert_eq!(answer.is_replay(), effect, "{crash}: {answer:?}");
            assert_eq!(site.journal.effects(crash), 1, "{crash}");
            assert_eq!(site.journal.of("asked", crash).len(), 2, "{crash}");
            site.lab
                .logged("the resolution of an abandoned record could not be saved")
                .await;
        }
    })
    .await;
}
