//! The toolkit's own answers.

use crate::LAB;
use idem_tests::harness::{Reply, Site};
use reqwest::Method;
use std::collections::{HashMap, HashSet};

/// One of every problem that can be had without breaking the store.
async fn collected(site: &Site) -> HashMap<String, Reply> {
    let order = site.post("/default").key("k").json("{}");
    let running = order.clone().delay_ms(1500).spawn();
    site.journal.wait_for("start", "k").await;
    let mut replies = vec![
        order.send().await,
        order.clone().json("[]").send().await,
        order.clone().header("idempotency-key", "\"").send().await,
        site.post("/required").send().await,
        site.post("/uuid").key("no-uuid").send().await,
        site.post("/tenant").key("k").send().await,
        site.post("/small")
            .key("k")
            .body("text/plain", vec![b'x'; 70_000])
            .send()
            .await,
        site.post("/default")
            .key("panic")
            .respond("panic")
            .send()
            .await,
    ];
    running.await.unwrap().assert_created();
    let streamed = site.post("/default").key("sse").json("{}");
    streamed.clone().respond("sse").send().await;
    replies.push(streamed.send().await);
    let mut problems = HashMap::new();
    for reply in replies {
        let slug = reply
            .problem()
            .unwrap_or_else(|| panic!("no problem: {reply:?}"));
        problems.insert(slug, reply);
    }
    problems
}

#[tokio::test]
async fn problems_are_machine_readable_and_told_apart() {
    // H7, O1, P19
    Site::on_each(LAB, &[], async |site| {
        let problems = collected(&site).await;
        let mut slugs: Vec<_> = problems.keys().map(String::as_str).collect();
        slugs.sort_unstable();
        assert_eq!(
            slugs,
            [
                "body-too-large",
                "handler-panicked",
                "in-progress",
                "key-invalid",
                "key-missing",
                "key-reused",
                "response-not-retained",
                "scope-unresolved",
            ]
        );
        let mut titles = HashSet::new();
        for (slug, reply) in &problems {
            let json = reply.json();
            assert_eq!(json["status"], reply.status.as_u16(), "{slug}");
            assert!(
                titles.insert(json["title"].as_str().unwrap().to_owned()),
                "{slug}"
            );
            assert!(
                json["detail"]
                    .as_str()
                    .is_some_and(|detail| !detail.is_empty()),
                "{slug}"
            );
            assert_eq!(reply.text("cache-control"), "no-store", "{slug}");
            let retryable = slug == "in-progress";
            assert_eq!(json["retryable"], retryable, "{slug}");
            let after = reply
                .header("retry-after")
                .map(|_| reply.text("retry-after"));
            match after {
                Some(seconds) => assert!(seconds.parse::<u64>().unwrap() >= 1, "{slug}"),
                None => assert!(!retryable, "{slug}"),
            }
        }
        // The application's own refusals of the same statuses are no such problems.
        for status in [409, 422] {
            let respond = format!("status:{status}");
            let business = site
                .post("/default")
                .key(&respond)
                .respond(&respond)
                .send()
                .await;
            assert_eq!(business.status.as_u16(), status);
            assert_eq!(business.problem(), None);
        }
    })
    .await;
}

#[tokio::test]
async fn retry_after_stays_within_the_lease() {
    // O1, G4
    Site::on_each(LAB, &["--lease", "2s"], async |site| {
        let order = site.post("/default").key("k").json("{}");
        let running = order.clone().delay_ms(3500).spawn();
        site.journal.wait_for("start", "k").await;
        let mut seen = Vec::new();
        while !running.is_finished() {
            let reply = order.send().await;
            if reply.status == 409 {
                let after: u64 = reply.text("retry-after").parse().unwrap();
                assert!((1..=2).contains(&after), "{after}");
                seen.push(after);
            }
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        }
        assert!(seen.contains(&1) && seen.contains(&2), "{seen:?}");
    })
    .await;
}

#[tokio::test]
async fn the_policy_of_every_route_can_be_listed() {
    // P20
    Site::on_each(LAB, &["--lease", "7s"], async |site| {
        let listed = site.call(Method::GET, "/lab/policies").send().await.json();
        let policies = listed.as_array().unwrap();
        let of = |name: &str| {
            let found = policies.iter().find(|policy| {
                policy["handler"]
                    .as_str()
                    .unwrap()
                    .ends_with(&format!("::{name}"))
            });
            found.unwrap_or_else(|| panic!("no {name} in {policies:?}"))
        };
        assert_eq!(of("default")["scope"], "user");
        assert_eq!(of("default")["ttl_ms"], 86_400_000);
        assert_eq!(of("default")["lease_ms"], 7000);
        assert_eq!(of("default")["required"], false);
        assert_eq!(of("required")["required"], true);
        assert_eq!(of("tenant")["scope"], "tenant:user");
        assert_eq!(of("global")["scope"], "global");
        assert_eq!(of("short")["ttl_ms"], 1000);
        assert_eq!(of("small")["max_body"], 65_536);
    })
    .await;
}

#[tokio::test]
async fn every_outcome_is_counted_once_and_no_label_names_a_key() {
    // N1
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/default").key("very-secret-key").json("{}");
        let running = order.clone().delay_ms(1000).spawn();
        site.journal.wait_for("start", "very-secret-key").await;
        order.send().await.assert_problem(409, "in-progress");
        running.await.unwrap().assert_created();
        assert!(order.send().await.is_replay());
        order
            .json("[]")
            .send()
            .await
            .assert_problem(422, "key-reused");
        for outcome in ["executed", "in_progress", "replayed", "key_reused"] {
            let name = format!("idempotency_requests_total{{outcome=\"{outcome}\"}}");
            assert_eq!(site.metric(&name).await, 1.0, "{outcome}");
        }
        let metrics = site.call(Method::GET, "/metrics").send().await;
        assert!(!String::from_utf8_lossy(&metrics.body).contains("secret"));
        assert!(!site.lab.log().contains("very-secret-key"));
    })
    .await;
}
