//! Somebody is asked what became of an operation whose process died.

use crate::{LAB, settled};
use idem_runtime::{
    record::{Record, RecordId},
    store::{Claim, Claimed, ListQuery, Store, Takeover},
};
use idem_tests::{
    harness::{Site, durable, eventually},
    stores::{self, Request},
};
use reqwest::Method;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
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
