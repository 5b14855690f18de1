//! Durable steps outlive the attempt that made them.

use crate::{LAB, settled};
use idem_tests::harness::{Site, assert_replay, durable};

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
