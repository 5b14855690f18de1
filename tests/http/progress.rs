//! A key is in progress for as long as its owner works, and no longer.

use crate::LAB;
use idem_tests::harness::{Site, assert_replay};
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test]
async fn a_slow_but_living_owner_keeps_its_key_beyond_the_lease() {
    // C6
    Site::on_each(LAB, &["--lease", "1s"], async |site| {
        let order = site.post("/rerun").key("k").json("{}");
        let first = order.clone().delay_ms(4000).spawn();
        site.journal.wait_for("start", "k").await;
        let mut refused = 0;
        while !first.is_finished() {
            let again = order.send().await;
            if again.status == 201 {
                assert!(again.is_replay(), "a second run: {again:?}");
                break;
            }
            again.assert_problem(409, "in-progress");
            refused += 1;
            sleep(Duration::from_millis(300)).await;
        }
        assert!(
            refused >= 5,
            "only {refused} duplicates met the running request"
        );
        assert_replay(&first.await.unwrap(), &order.send().await);
        assert_eq!(site.journal.of("start", "k").len(), 1);
    })
    .await;
}

#[tokio::test]
async fn an_owner_that_fell_silent_loses_its_key_after_the_lease_and_not_before() {
    // C5, C8: without renewal the owner is silent although it lives.
    let lease = Duration::from_secs(2);
    Site::on_each(
        LAB,
        &["--lease", "2s", "--heartbeat", "off"],
        async |site| {
            let order = site.post("/rerun").key("k").json("{}");
            let silent = order.clone().delay_ms(6000).spawn();
            let claimed = site.journal.wait_for("start", "k").await;
            order.send().await.assert_problem(409, "in-progress");
            let second = loop {
                let reply = order.send().await;
                if reply.status == 201 {
                    break reply;
                }
                reply.assert_problem(409, "in-progress");
                sleep(Duration::from_millis(50)).await;
            };
            second.assert_created();
            assert_eq!(second.json()["attempt"], 2);
            let starts = site.journal.of("start", "k");
            let after = Duration::from_millis(starts[1].at_ms - claimed.at_ms);
            // The claim was made a little before the first line was written.
            assert!(
                after >= lease - Duration::from_millis(500),
                "after {after:?}"
            );
            assert!(after <= lease * 2, "after {after:?}");
            // Both attempts give the same key to whom they call.
            assert_eq!(starts[0].downstream_key, starts[1].downstream_key);
            // The first attempt's outcome is nobody's answer: it gets the one that stands.
            assert_replay(&second, &silent.await.unwrap());
            assert_replay(&second, &order.send().await);
            site.lab.logged("lease lost").await;
        },
    )
    .await;
}

#[tokio::test]
async fn a_silent_owner_on_a_holding_route_leaves_an_unknown_outcome() {
    // C1
    Site::on_each(
        LAB,
        &["--lease", "500ms", "--heartbeat", "off"],
        async |site| {
            for path in ["/default", "/hold"] {
                let order = site.post(path).key("k").json("{}");
                let silent = order.clone().delay_ms(2500).spawn();
                site.journal.wait_for("start", "k").await;
                sleep(Duration::from_millis(700)).await;
                let held = order.send().await;
                held.assert_problem(409, "outcome-unknown");
                assert_eq!(held.json()["retryable"], false);
                assert_eq!(held.header("retry-after"), None);
                // Nobody took the key over, so the owner may still finish.
                let first = silent.await.unwrap();
                first.assert_created();
                assert_replay(&first, &order.send().await);
            }
        },
    )
    .await;
}

#[tokio::test]
async fn every_kind_of_answer_settles_its_key() {
    // C9
    Site::on_each(LAB, &[], async |site| {
        for respond in [
            "status:200",
            "status:303",
            "status:400",
            "status:404",
            "status:409",
            "status:500",
            "err:400",
            "err:500",
            "err:503",
            "no-effect:422",
            "release:503",
            "final:429",
            "panic",
            "empty",
            "null",
            "bytes256",
            "csv",
            "large:1000",
            "stream:3",
            "stream:0",
            "headers",
        ] {
            let key = respond.replace(':', "-");
            let order = site.post("/default").key(&key).json("{}");
            let first = order.clone().respond(respond).send().await;
            let again = order.send().await;
            assert_ne!(again.problem().as_deref(), Some("in-progress"), "{respond}");
            if respond == "release:503" {
                again.assert_created();
            } else {
                assert_replay(&first, &again);
            }
        }
        let broken = site.post("/json").key("broken").json("{");
        assert_eq!(broken.send().await.status, 400);
        broken.json("{}").send().await.assert_created();
    })
    .await;
}

#[tokio::test]
async fn a_panic_is_kept_or_released_as_the_route_says() {
    // C10
    Site::on_each(LAB, &[], async |site| {
        for (path, released) in [
            ("/default", false),
            ("/store-5xx", false),
            ("/release-5xx", true),
        ] {
            let order = site.post(path).key("k").json("{}");
            let first = order.clone().respond("panic").send().await;
            first.assert_problem(500, "handler-panicked");
            assert_eq!(first.json()["retryable"], released, "{path}");
            let again = order.send().await;
            if released {
                again.assert_created();
            } else {
                assert_replay(&first, &again);
            }
        }
    })
    .await;
}
