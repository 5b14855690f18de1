//! Durable steps outlive the attempt that made them.

use crate::{LAB, settled};
use idem_tests::harness::{Site, assert_replay, durable};
use nix::sys::signal::Signal;
use std::time::Duration;

#[tokio::test]
async fn a_finished_step_is_not_run_again_by_the_next_attempt() {
    let flags = ["--lease", "1s"];
    Site::on_these(durable(), LAB, &flags, async |mut site| {
        for (crash, reserved, charged) in [
            ("before-effect", 1, 1),
            ("between-steps", 1, 1),
            ("after-effect", 1, 1),
        ] {
            let order = site.post("/steps").key(crash).json("{}");
            assert!(order.clone().crash(crash).try_send().await.is_err());
            site.restart(&flags).await;
            let again = settled(&order.at(site.address())).await;
            again.assert_created();
            assert_eq!(again.json()["attempt"], 2, "{crash}");
            assert_eq!(
                site.journal.of("step:reserve", crash).len(),
                reserved,
                "{crash}"
            );
            assert_eq!(
                site.journal.of("step:charge", crash).len(),
                charged,
                "{crash}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn an_owner_that_wakes_up_after_a_takeover_runs_no_step() {
    // C8
    let flags = ["--lease", "1s"];
    Site::on_these(durable(), LAB, &flags, async |site| {
        let other = site.another(&flags).await;
        let order = site.post("/steps").key("k").json("{}");
        // It stands still before the first step, which it would begin when it wakes up.
        let frozen = order.clone().delay_ms(2000).spawn();
        site.journal.wait_for("start", "k").await;
        site.lab.signal(Signal::SIGSTOP);
        let second = settled(&order.clone().at(other.address())).await;
        second.assert_created();
        assert_eq!(second.json()["attempt"], 2);
        site.lab.signal(Signal::SIGCONT);
        assert_replay(&second, &frozen.await.unwrap());
        for phase in ["step:reserve", "step:charge", "effect"] {
            assert_eq!(site.journal.of(phase, "k").len(), 1, "{phase}");
        }
        site.lab.logged("a step was not run").await;
    })
    .await;
}

#[tokio::test]
async fn an_owner_that_wakes_up_unnoticed_runs_its_steps() {
    let flags = ["--lease", "1s"];
    Site::on_these(durable(), LAB, &flags, async |site| {
        let order = site.post("/steps").key("k").json("{}");
        let frozen = order.clone().delay_ms(2000).spawn();
        site.journal.wait_for("start", "k").await;
        site.lab.signal(Signal::SIGSTOP);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        site.lab.signal(Signal::SIGCONT);
        frozen.await.unwrap().assert_created();
        for phase in ["start", "step:reserve", "step:charge", "effect"] {
            assert_eq!(site.journal.of(phase, "k").len(), 1, "{phase}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_step_whose_result_cannot_be_saved_at_once_is_saved_later_and_not_run_again() {
    let failing = ["--fail", "save-steps=3", "--lease", "5s"];
    Site::on_these(durable(), LAB, &failing, async |site| {
        let order = site.post("/steps").key("k").json("{}");
        let first = order.send().await;
        first.assert_created();
        assert_eq!(first.json()["attempt"], 1);
        for step in ["step:reserve", "step:charge"] {
            assert_eq!(site.journal.of(step, "k").len(), 1, "{step}");
        }
        assert_replay(&first, &order.send().await);
    })
    .await;
}
