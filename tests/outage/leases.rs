//! Leases that cannot be renewed.

use crate::{BUDGET_FLAG, SLACK, line::on_each_relay, logged, recovered};
use idem_tests::harness::{Fault, assert_replay};
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test]
async fn one_missed_renewal_costs_nobody_the_claim() {
    // C13
    const LEASE: Duration = Duration::from_secs(5);
    let flags = [&BUDGET_FLAG[..], &["--lease", "5s"]].concat();
    on_each_relay(&flags, async |proxy, site| {
        let other = site.another_past_the_relay(&flags).await;
        let order = site.post("/rerun").key("k").json("{}");
        let running = order.clone().delay_ms(7000).spawn();
        site.journal.wait_for("start", "k").await;
        let claimed = Instant::now();
        proxy.fail(Fault::Down);
        logged(&site.lab, "leases could not be renewed", 1).await;
        assert!(
            claimed.elapsed() < LEASE - Duration::from_secs(1),
            "too late to mend it: {:?}",
            claimed.elapsed()
        );
        proxy.heal();
        let elsewhere = order.clone().at(other.address());
        while !running.is_finished() {
            let duplicate = elsewhere.send().await;
            if duplicate.status == 409 {
                duplicate.assert_problem(409, "in-progress");
            } else {
                assert!(duplicate.is_replay(), "{duplicate:?}");
            }
            sleep(Duration::from_millis(200)).await;
        }
        let first = running.await.unwrap();
        first.assert_created();
        assert_eq!(first.json()["attempt"], 1);
        assert_replay(&first, &recovered(&elsewhere, LEASE).await);
        assert_eq!(site.journal.of("start", "k").len(), 1);
        assert!(!site.lab.log().contains("lease lost"), "{}", site.lab.log());
    })
    .await;
}

#[tokio::test]
async fn an_owner_cut_off_for_longer_than_its_lease_finds_its_outcome_refused() {
    // C13
    const LEASE: Duration = Duration::from_secs(1);
    let flags = [&BUDGET_FLAG[..], &["--lease", "1s"]].concat();
    on_each_relay(&flags, async |proxy, site| {
        let other = site.another_past_the_relay(&flags).await;
        for (round, back_in_time) in [(1, true), (2, false)] {
            let key = format!("k-{back_in_time}");
            let order = site.post("/rerun").key(&key).json("{}");
            let cut_off = order.clone().delay_ms(6000).spawn();
            site.journal.wait_for("start", &key).await;
            proxy.fail(Fault::Down);
            let elsewhere = order.clone().at(other.address());
            let second = recovered(&elsewhere, LEASE).await;
            second.assert_created();
            assert_eq!(second.json()["attempt"], 2);
            // The running request is told, so that it can stop.
            logged(&site.lab, "could not be renewed in time", round).await;
            assert!(
                !cut_off.is_finished(),
                "the machine is too slow for this test"
            );
            if back_in_time {
                proxy.heal();
                // Its client gets the answer that stands.
                assert_replay(&second, &cut_off.await.unwrap());
            } else {
                // Nobody can know better: the client gets what its request came to.
                let own = cut_off.await.unwrap();
                own.assert_created();
                proxy.heal();
            }
            let refusal = match back_in_time {
                true => "the outcome of this attempt is refused",
                false => "an answer that was sent could not be saved",
            };
            logged(&site.lab, refusal, 1).await;
            assert_replay(&second, &elsewhere.send().await);
            assert_replay(&second, &recovered(&order, LEASE).await);
            assert_eq!(site.journal.of("start", &key).len(), 2);
        }
    })
    .await;
}

#[tokio::test]
async fn an_answer_whose_key_was_freed_during_an_outage_is_saved_when_that_is_over() {
    // C13
    let flags = ["--lease", "1s", "--reconcile-every", "100ms"];
    let flags = [&BUDGET_FLAG[..], &flags].concat();
    on_each_relay(&flags, async |proxy, site| {
        let other = site.another_past_the_relay(&flags).await;
        let order = site.post("/reconcile").key("k").json("{}");
        let cut_off = order.clone().delay_ms(4000).spawn();
        site.journal.wait_for("start", "k").await;
        proxy.fail(Fault::Down);
        // The function has seen no effect: it says that nothing had happened.
        other.logged("abandoned record reconciled").await;
        assert!(
            !cut_off.is_finished(),
            "the machine is too slow for this test"
        );
        let own = cut_off.await.unwrap();
        own.assert_created();
        proxy.heal();
        logged(&site.lab, "was saved anew", 1).await;
        assert_replay(&own, &order.clone().at(other.address()).send().await);
        assert_replay(&own, &recovered(&order, Duration::from_secs(1)).await);
        assert_eq!(site.journal.of("start", "k").len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_wait_that_loses_the_store_ends_in_time_and_one_that_gets_it_back_is_answered() {
    // C15, I10
    let flags = [&BUDGET_FLAG[..], &["--lease", "10s"]].concat();
    on_each_relay(&flags, async |proxy, site| {
        let owner = site.another_past_the_relay(&flags).await;
        let order = site.post("/wait").key("k").json("{}");
        let first = order.clone().at(owner.address()).delay_ms(2500).spawn();
        site.journal.wait_for("start", "k").await;
        let waiter = order.spawn();
        sleep(Duration::from_millis(500)).await;
        // Notifications and questions are lost for a while.
        proxy.fail(Fault::Down);
        sleep(Duration::from_millis(500)).await;
        proxy.heal();
        let first = first.await.unwrap();
        let answered = Instant::now();
        assert_replay(&first, &waiter.await.unwrap());
        assert!(answered.elapsed() < SLACK, "{:?}", answered.elapsed());

        let order = site.post("/wait").key("l").json("{}");
        let slow = order.clone().at(owner.address()).delay_ms(8000).spawn();
        site.journal.wait_for("start", "l").await;
        let begun = Instant::now();
        let waiter = order.spawn();
        sleep(Duration::from_millis(500)).await;
        proxy.fail(Fault::Down);
        waiter
            .await
            .unwrap()
            .assert_problem(503, "store-unavailable");
        let waited = begun.elapsed();
        assert!(waited < Duration::from_secs(6) + SLACK, "{waited:?}");
        proxy.heal();
        assert_replay(
            &slow.await.unwrap(),
            &recovered(&order, Duration::from_secs(10)).await,
        );
        assert_eq!(site.journal.all_effects(), 2);
    })
    .await;
}
