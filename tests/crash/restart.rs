//! Records outlive the process.

use crate::LAB;
use idem_tests::{
    harness::{Site, assert_replay, durable},
    services::{Store, is_selected},
};

#[tokio::test]
async fn after_a_restart_the_same_request_replays_and_another_is_refused() {
    // D3, D4, I6
    Site::on_these(durable(), LAB, &[], async |mut site| {
        let order = |site: &Site| site.post("/default").key("k").json(r#"{"a":1,"b":2}"#);
        let first = order(&site).send().await;
        first.assert_created();
        let failed = site.post("/default").key("failed").json("{}");
        let failure = failed.clone().respond("err:503").send().await;
        let stream = site
            .post("/default")
            .key("stream")
            .json("{}")
            .respond("sse");
        stream.send().await;
        site.restart(&[]).await;
        assert_replay(&first, &order(&site).send().await);
        assert_replay(&first, &order(&site).json(r#"{"b":2,"a":1}"#).send().await);
        order(&site)
            .json("{}")
            .send()
            .await
            .assert_problem(422, "key-reused");
        assert_replay(&failure, &failed.at(site.address()).send().await);
        let stream = stream.at(site.address()).send().await;
        stream.assert_problem(409, "response-not-retained");
        assert_eq!(site.journal.effects("k"), 1);
    })
    .await;
}

#[tokio::test]
async fn a_memory_store_forgets_with_its_process() {
    if !is_selected(Store::Memory) {
        return;
    }
    Site::on_these(vec![Store::Memory], LAB, &[], async |mut site| {
        let order = site.post("/default").key("k").json("{}");
        let first = order.send().await;
        assert_replay(&first, &order.send().await);
        site.restart(&[]).await;
        let again = order.at(site.address()).send().await;
        again.assert_created();
        assert_ne!(again.id(), first.id());
        assert_eq!(site.journal.effects("k"), 2);
    })
    .await;
}
