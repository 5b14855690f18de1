//! A process that stands still beyond its lease, and comes back.

use crate::{LAB, settled};
use idem_tests::{
    harness::{Site, assert_replay, durable, eventually, transactional},
    services::Store,
};
use nix::sys::signal::Signal;

#[tokio::test]
async fn an_owner_that_wakes_up_after_a_takeover_changes_nothing() {
    // C8
    Site::on_these(durable(), LAB, &["--lease", "1s"], async |site| {
        let other = site.another(&["--lease", "1s"]).await;
        let order = site.post("/rerun").key("k").json("{}");
        let frozen = order.clone().delay_ms(1500).spawn();
        site.journal.wait_for("start", "k").await;
        site.lab.signal(Signal::SIGSTOP);
        let elsewhere = order.clone().at(other.address());
        let second = settled(&elsewhere).await;
        second.assert_created();
        assert_eq!(second.json()["attempt"], 2);
        site.lab.signal(Signal::SIGCONT);
        // Its client gets the answer that stands, not a second one.
        assert_replay(&second, &frozen.await.unwrap());
        assert_replay(&second, &elsewhere.send().await);
        assert_replay(&second, &order.send().await);
        site.lab.logged("lease lost").await;
    })
    .await;
}

#[tokio::test]
async fn an_owner_that_wakes_up_unnoticed_finishes_its_work() {
    // C13
    Site::on_these(durable(), LAB, &["--lease", "1s"], async |site| {
        let order = site.post("/rerun").key("k").json("{}");
        let frozen = order.clone().delay_ms(1000).spawn();
        site.journal.wait_for("start", "k").await;
        site.lab.signal(Signal::SIGSTOP);
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        site.lab.signal(Signal::SIGCONT);
        let first = frozen.await.unwrap();
        first.assert_created();
        assert_replay(&first, &order.send().await);
        assert_eq!(site.journal.of("start", "k").len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_transaction_whose_owner_stands_still_is_ended_by_the_database() {
    // C8. A SQLite file has no server that could end it.
    let mut servers = transactional();
    servers.retain(|store| *store != Store::Sqlite);
    Site::on_these(servers, LAB, &["--lease", "1s"], async |site| {
        let other = site.another(&["--lease", "1s"]).await;
        let order = site.post("/transactional").key("k").json("{}");
        let frozen = order.clone().delay_ms(1500).spawn();
        site.journal.wait_for("effect", "k").await;
        site.lab.signal(Signal::SIGSTOP);
        let second = settled(&order.clone().at(other.address())).await;
        second.assert_created();
        site.lab.signal(Signal::SIGCONT);
        frozen
            .await
            .unwrap()
            .assert_problem(503, "store-unavailable");
        assert_replay(&second, &order.send().await);
        assert_eq!(site.orders().await, [second.id()]);
        eventually("a log line", async || {
            let log = site.lab.log();
            log.contains("a transaction could not be committed")
                .then_some(())
        })
        .await;
    })
    .await;
}
