//! The client goes before the answer comes: the work is finished and its answer kept.

use crate::LAB;
use idem_tests::harness::{Reply, Site, assert_replay, eventually};

/// The answer to a retry as soon as it is no longer "in progress".
async fn settled(call: &idem_tests::harness::Call) -> Reply {
    eventually("a settled key", async || {
        let reply = call.send().await;
        (reply.problem().as_deref() != Some("in-progress")).then_some(reply)
    })
    .await
}

#[tokio::test]
async fn a_client_that_closes_its_side_does_not_stop_the_work() {
    // B1
    Site::on_each(LAB, &[], async |site| {
        let headers: [(&str, &[u8]); 3] = [
            ("Idempotency-Key", b"k"),
            ("Content-Type", b"application/json"),
            ("X-Lab-Delay-Ms", b"500"),
        ];
        let mut connection = site.post_by_hand("/default", &headers).await;
        connection.finish_sending().await;
        // What this client sees is the server's choice; what a retry sees is not.
        let seen = connection.try_reply().await.ok();
        let order = site.post("/default").key("k").json("{}");
        let again = settled(&order).await;
        assert!(again.is_replay(), "{again:?}");
        assert_eq!(again.status, 201);
        if let Some(seen) = seen.filter(|seen| seen.status == 201) {
            assert_eq!(seen.body, again.body);
        }
        assert_eq!(site.journal.effects("k"), 1);
    })
    .await;
}

#[tokio::test]
async fn a_client_that_resets_gets_its_order_on_the_retry() {
    // B2
    Site::on_each(LAB, &[], async |site| {
        let headers: [(&str, &[u8]); 3] = [
            ("Idempotency-Key", b"k"),
            ("Content-Type", b"application/json"),
            ("X-Lab-Delay-Ms", b"1500"),
        ];
        let connection = site.post_by_hand("/default", &headers).await;
        site.journal.wait_for("start", "k").await;
        connection.reset();
        let order = site.post("/default").key("k").json("{}");
        let early = order.send().await;
        early.assert_problem(409, "in-progress");
        assert!(early.text("retry-after").parse::<u64>().unwrap() >= 1);
        let again = settled(&order).await;
        assert!(again.is_replay(), "{again:?}");
        assert_eq!(again.status, 201);
        assert_eq!(site.journal.effects("k"), 1);
        assert_replay_of_itself(&order, &again).await;
    })
    .await;
}

#[tokio::test]
async fn a_client_that_resets_while_its_answer_is_saved_finds_it_saved() {
    // B4
    Site::on_each(LAB, &["--slow-complete", "700ms"], async |site| {
        let headers: [(&str, &[u8]); 2] = [
            ("Idempotency-Key", b"k"),
            ("Content-Type", b"application/json"),
        ];
        let connection = site.post_by_hand("/default", &headers).await;
        site.journal.wait_for("end", "k").await;
        connection.reset();
        let again = settled(&site.post("/default").key("k").json("{}")).await;
        assert!(again.is_replay(), "{again:?}");
        assert_eq!(again.status, 201);
        assert_eq!(site.journal.effects("k"), 1);
    })
    .await;
}

#[tokio::test]
async fn a_panic_after_the_client_has_left_is_logged_and_settles_the_key() {
    // B5
    Site::on_each(LAB, &[], async |site| {
        let headers: [(&str, &[u8]); 4] = [
            ("Idempotency-Key", b"very-secret-key"),
            ("Content-Type", b"application/json"),
            ("X-Lab-Delay-Ms", b"500"),
            ("X-Lab-Respond", b"panic"),
        ];
        let connection = site.post_by_hand("/default", &headers).await;
        site.journal.wait_for("start", "very-secret-key").await;
        connection.reset();
        let again = settled(&site.post("/default").key("very-secret-key").json("{}")).await;
        assert_eq!(again.status, 500);
        assert!(again.is_replay(), "{again:?}");
        let line = site
            .lab
            .logged("panicked: the request asked for a panic")
            .await;
        assert!(line.contains("handler=") && line.contains("key="), "{line}");
        let log = site.lab.log();
        assert!(
            !log.contains("very-secret-key"),
            "the key is in the log: {log}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_stream_is_kept_whole_when_its_client_leaves() {
    // E7 for a client that has gone
    Site::on_each(LAB, &[], async |site| {
        let headers: [(&str, &[u8]); 4] = [
            ("Idempotency-Key", b"k"),
            ("Content-Type", b"application/json"),
            ("X-Lab-Delay-Ms", b"300"),
            ("X-Lab-Respond", b"stream:40"),
        ];
        let connection = site.post_by_hand("/default", &headers).await;
        site.journal.wait_for("start", "k").await;
        connection.reset();
        let again = settled(&site.post("/default").key("k").json("{}")).await;
        assert!(again.is_replay(), "{again:?}");
        assert_eq!(again.body.len(), 40 * 1024);
    })
    .await;
}

async fn assert_replay_of_itself(order: &idem_tests::harness::Call, again: &Reply) {
    let mut first = again.clone();
    first.headers.remove("idempotent-replayed");
    assert_replay(&first, &order.send().await);
}
