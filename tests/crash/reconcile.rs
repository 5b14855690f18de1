//! Somebody is asked what became of an operation whose process died.

use crate::{LAB, settled};
use idem_tests::harness::{Site, durable};
use std::time::{Duration, Instant};

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
        let labs = others.iter().chain([&site.lab]);
        let told = labs.map(|lab| lab.log().matches("abandoned record reconciled").count());
        assert_eq!(told.sum::<usize>(), keys.len());
    })
    .await;
}
