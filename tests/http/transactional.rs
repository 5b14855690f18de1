//! Claim, effect and answer in one commit.

use crate::LAB;
use futures_util::future::join_all;
use idem_tests::harness::{Site, assert_replay, transactional};

#[tokio::test]
async fn what_is_committed_is_answered_and_what_failed_has_left_nothing() {
    // C10, H1
    Site::on_these(transactional(), LAB, &[], async |site| {
        let order = site.post("/transactional").key("fine").json("{}");
        let first = order.send().await;
        first.assert_created();
        assert_replay(&first, &order.send().await);
        assert_eq!(site.orders().await, [first.id()]);
        order
            .json("[]")
            .send()
            .await
            .assert_problem(422, "key-reused");
        let mut ids = vec![first.id()];
        for respond in [
            "err:500",
            "status:503",
            "panic",
            "release:400",
            "status:429",
        ] {
            let order = site.post("/transactional").key(respond).json("{}");
            let failed = order.clone().respond(respond).send().await;
            assert!(!failed.status.is_success(), "{respond}");
            assert_eq!(site.orders().await.len(), ids.len(), "{respond} left a row");
            let again = order.send().await;
            again.assert_created();
            ids.push(again.id());
        }
        // A refusal of the handler's own is kept, and its writes are not.
        let order = site.post("/transactional").key("refused").json("{}");
        let refused = order.clone().respond("err:402").send().await;
        assert_replay(&refused, &order.send().await);
        let order = site.post("/transactional").json("{}");
        let without_key = order.send().await;
        without_key.assert_created();
        ids.push(without_key.id());
        order.respond("err:500").send().await;
        let mut committed = site.orders().await;
        committed.sort_unstable();
        ids.sort_unstable();
        assert_eq!(committed, ids);
    })
    .await;
}

#[tokio::test]
async fn duplicates_of_an_open_transaction_are_answered_at_once() {
    // A1, D3
    Site::on_these(transactional(), LAB, &[], async |site| {
        let order = site.post("/transactional").key("k").json("{}");
        let running = order.clone().delay_ms(1500).spawn();
        site.journal.wait_for("start", "k").await;
        for duplicate in join_all((0..10).map(|_| order.send())).await {
            duplicate.assert_problem(409, "in-progress");
        }
        assert!(!running.is_finished(), "the duplicates have waited");
        let first = running.await.unwrap();
        first.assert_created();
        assert_replay(&first, &order.send().await);
        assert_eq!(site.orders().await, [first.id()]);
    })
    .await;
}
