//! A process that stands still beyond its lease, and comes back.

use crate::{LAB, settled};
use futures_util::future::join_all;
use idem_tests::{
    harness::{Site, assert_replay, durable, eventually, transactional},
    services::{Store, is_selected},
};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

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
        tokio::time::sleep(Duration::from_millis(1500)).await;
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
        let stopped = Instant::now();
        let second = settled(&order.clone().at(other.address())).await;
        second.assert_created();
        // The lease, and what a busy machine adds.
        let taken = stopped.elapsed();
        assert!(taken < Duration::from_secs(4), "{taken:?}");
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

#[tokio::test]
async fn everything_that_an_old_owner_tries_after_a_takeover_is_refused_and_logged() {
    // C8
    struct Try {
        what: &'static str,
        path: &'static str,
        respond: &'static str,
        delay_ms: u64,
        refused: &'static str,
    }
    let outcome = "the outcome of this attempt is refused";
    let tries = [
        Try {
            what: "completion",
            path: "/rerun",
            respond: "status:201",
            delay_ms: 2000,
            refused: outcome,
        },
        Try {
            what: "release",
            path: "/rerun",
            respond: "release:503",
            delay_ms: 2000,
            refused: outcome,
        },
        Try {
            what: "renewal",
            path: "/rerun",
            respond: "status:201",
            delay_ms: 8000,
            refused: "was taken over or resolved",
        },
        Try {
            what: "step",
            path: "/steps",
            respond: "status:201",
            delay_ms: 4000,
            refused: outcome,
        },
    ];
    Site::on_these(durable(), LAB, &["--lease", "1s"], async |site| {
        let other = site.another(&["--lease", "1s"]).await;
        let mut frozen = Vec::new();
        for one in &tries {
            // A user for each, by which its record is found.
            let order = site.post(one.path).user(one.what).key(one.what).json("{}");
            let slow = order.clone().respond(one.respond).delay_ms(one.delay_ms);
            frozen.push((order, slow.spawn(), one));
        }
        for (_, _, one) in &frozen {
            site.journal.wait_for("start", one.what).await;
        }
        site.lab.signal(Signal::SIGSTOP);
        let taken = frozen.iter().map(async |(order, _, one)| {
            let second = settled(&order.clone().at(other.address())).await;
            second.assert_created();
            assert_eq!(second.json()["attempt"], 2, "{}", one.what);
            second
        });
        let taken = join_all(taken).await;
        site.lab.signal(Signal::SIGCONT);
        let records = site.records().await;
        for ((order, first, one), second) in frozen.into_iter().zip(taken) {
            let record = records.iter().find(|record| {
                let scope = record["scope"].as_str().unwrap();
                scope.starts_with(&format!("{}-", one.what))
            });
            let digest = record.unwrap()["digest"].as_str().unwrap();
            eventually((one.what, digest), async || {
                let log = site.lab.log();
                let mut lines = log.lines();
                lines
                    .any(|line| {
                        line.contains("lease lost")
                            && line.contains(one.refused)
                            && line.contains(digest)
                    })
                    .then_some(())
            })
            .await;
            if one.what == "renewal" {
                assert!(!first.is_finished(), "its handler is still at work");
            }
            // Its client gets the answer that stands.
            assert_replay(&second, &first.await.unwrap());
            assert_replay(&second, &order.send().await);
            assert_eq!(site.journal.of("start", one.what).len(), 2);
        }
        // The old owner could not go on from a step whose result is not its own to save.
        site.lab.logged("a step failed").await;
        assert_eq!(site.journal.of("end", "step").len(), 1);
        // What the new owner saved of its own steps still stands.
        assert!(site.journal.of("step:charge", "step").len() <= 2);
    })
    .await;
}

#[tokio::test]
async fn what_the_function_has_said_outlives_an_old_owner_that_wakes_up() {
    let flags = ["--lease", "1s"];
    Site::on_these(durable(), LAB, &flags, async |site| {
        let other = site.another(&flags).await;
        let order = |key: &str| site.post("/reconcile").key(key).json("{}");
        let seen = order("seen").delay_ms(2000).spawn();
        site.journal.wait_for("effect", "seen").await;
        let unseen = order("unseen").delay_ms(4000).spawn();
        site.journal.wait_for("start", "unseen").await;
        site.lab.signal(Signal::SIGSTOP);
        let at_other = |key: &str| order(key).at(other.address());
        let resolved = settled(&at_other("seen")).await;
        assert_eq!(&resolved.body[..], b"{\"reconciled\":true}");
        let again = settled(&at_other("unseen")).await;
        again.assert_created();
        site.lab.signal(Signal::SIGCONT);
        let late = seen.await.unwrap();
        assert!(late.is_replay(), "{late:?}");
        assert_eq!(late.body, resolved.body);
        assert_replay(&again, &unseen.await.unwrap());
        eventually("both outcomes refused", async || {
            let log = site.lab.log();
            let refused = log.matches("the outcome of this attempt is refused");
            (refused.count() == 2).then_some(())
        })
        .await;
        assert_eq!(site.journal.effects("seen"), 1);
        // Nobody can stop it; whoever was called can tell the repeat.
        let both = site.journal.of("effect", "unseen");
        assert_eq!(both.len(), 2);
        assert_eq!(both[0].downstream_key, both[1].downstream_key);
        for key in ["seen", "unseen"] {
            assert_eq!(site.journal.of("asked", key).len(), 1, "{key}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_paused_transaction_keeps_its_file_and_is_committed_once_when_it_goes_on() {
    // A SQLite file has no server that could end it: nobody else writes until it goes on.
    if !is_selected(Store::Sqlite) {
        return;
    }
    let flags = ["--lease", "1s", "--store-timeout", "1s"];
    Site::on_these(vec![Store::Sqlite], LAB, &flags, async |site| {
        let other = site.another(&flags).await;
        let order = site.post("/transactional").key("k").json("{}");
        let frozen = order.clone().delay_ms(1000).spawn();
        site.journal.wait_for("effect", "k").await;
        site.lab.signal(Signal::SIGSTOP);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            let meanwhile = order.clone().at(other.address()).send().await;
            meanwhile.assert_problem(503, "store-unavailable");
        }
        site.lab.signal(Signal::SIGCONT);
        let first = frozen.await.unwrap();
        first.assert_created();
        let elsewhere = order.at(other.address());
        let replay = eventually("a replay", async || {
            let reply = elsewhere.send().await;
            (reply.status == 201).then_some(reply)
        });
        assert_replay(&first, &replay.await);
        assert_eq!(site.orders().await, [first.id()]);
    })
    .await;
}

#[tokio::test]
async fn a_stream_of_an_old_owner_breaks_off_and_is_not_taken_for_an_answer() {
    let flags = ["--lease", "1s"];
    Site::on_these(durable(), LAB, &flags, async |site| {
        let other = site.another(&flags).await;
        for stream in ["stream:5", "stream:2000"] {
            let order = site.post("/rerun").key(stream).json("{}");
            let frozen = order.clone().delay_ms(1500).respond(stream);
            let frozen = tokio::spawn(async move { frozen.try_send().await });
            site.journal.wait_for("start", stream).await;
            site.lab.signal(Signal::SIGSTOP);
            let second = settled(&order.clone().at(other.address())).await;
            second.assert_created();
            site.lab.signal(Signal::SIGCONT);
            let own = frozen.await.unwrap();
            assert!(own.is_err(), "a whole body: {own:?}");
            assert_replay(&second, &order.send().await);
        }
    })
    .await;
}

#[tokio::test]
async fn an_old_owner_whose_key_was_freed_saves_what_it_has_done() {
    let flags = ["--lease", "1s", "--reconcile-every", "100ms"];
    Site::on_these(durable(), LAB, &flags, async |site| {
        let other = site.another(&flags).await;
        let order = site.post("/reconcile").key("k").json("{}");
        let frozen = order.clone().delay_ms(1500).spawn();
        site.journal.wait_for("start", "k").await;
        site.lab.signal(Signal::SIGSTOP);
        // The function has seen no effect: it says that nothing had happened.
        other.logged("abandoned record reconciled").await;
        site.lab.signal(Signal::SIGCONT);
        let own = frozen.await.unwrap();
        own.assert_created();
        assert_replay(&own, &order.clone().at(other.address()).send().await);
        assert_replay(&own, &order.send().await);
        assert_eq!(site.journal.effects("k"), 1);
    })
    .await;
}

#[tokio::test]
async fn a_transaction_that_the_database_has_ended_is_503_whatever_its_handler_makes_of_it() {
    let mut stores = transactional();
    stores.retain(|store| *store != Store::Sqlite);
    Site::on_these(stores, LAB, &["--lease", "1s"], async |site| {
        let order = site.post("/transactional").key("k").json("{}");
        // It finds its connection gone when it comes to write.
        let slow = order.clone().delay_ms(5000).send().await;
        slow.assert_problem(503, "store-unavailable");
        let retry = order.send().await;
        retry.assert_created();
        assert_eq!(site.orders().await, [retry.id()]);
    })
    .await;
}
