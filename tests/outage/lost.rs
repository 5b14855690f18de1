//! The link breaks at a store call, before or after the call has had its effect.

use crate::{
    BUDGET, BUDGET_FLAG, SLACK,
    line::{Line, behind_a_relay, breakable, on_each_line, on_each_relay},
    logged, recovered,
};
use idem_tests::{
    harness::{Fault, Moment, Site, assert_replay},
    services::Store,
};
use sha2::{Digest, Sha256};
use std::time::Duration;
use tokio::time::Instant;

const LEASE: Duration = Duration::from_secs(3);

/// Every way in which a call's link breaks.
const CELLS: [(Moment, Fault); 6] = [
    (Moment::Before, Fault::Cut),
    (Moment::Before, Fault::Down),
    (Moment::Before, Fault::Freeze),
    (Moment::After(1), Fault::Cut),
    (Moment::After(1), Fault::Down),
    (Moment::After(1), Fault::Freeze),
];

fn flags() -> Vec<&'static str> {
    [&BUDGET_FLAG[..], &["--lease", "3s"]].concat()
}

fn hex_digest(body: &str) -> String {
    let digest = Sha256::digest(body);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that are in any call about a key, and in none about others.
fn about(site: &Site, key: &str) -> Vec<u8> {
    match site.store() {
        // Names of keys hold a digest only; but nothing else is under way on this site.
        Store::Redis => site.place().name().as_bytes().to_vec(),
        _ => key.as_bytes().to_vec(),
    }
}

#[tokio::test]
async fn a_claim_whose_link_breaks_is_answered_and_leaves_the_key_usable() {
    // A6, I4
    on_each_relay(&flags(), async |proxy, site| {
        for (index, (moment, fault)) in CELLS.into_iter().enumerate() {
            let cell = format!("{moment:?} {fault:?}");
            let key = format!("claimed-{index}");
            let order = site.post("/default").key(&key).json("{}");
            // A claim holds the key as it is, on every store.
            proxy.trap(key.as_bytes(), moment, fault);
            let begun = Instant::now();
            let first = order.send().await;
            assert!(begun.elapsed() < BUDGET + SLACK, "{cell}: {first:?}");
            assert_eq!(proxy.sprung(), index + 1, "{cell}");
            proxy.heal();
            let answer = if first.status == 503 {
                first.assert_problem(503, "store-unavailable");
                assert_eq!(site.journal.of("start", &key).len(), 0, "{cell}");
                let second = recovered(&order, LEASE).await;
                second.assert_created();
                second
            } else {
                first.assert_created();
                first
            };
            assert_replay(&answer, &recovered(&order, LEASE).await);
            assert_eq!(site.journal.effects(&key), 1, "{cell}");
            assert_eq!(site.journal.of("start", &key).len(), 1, "{cell}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_answer_whose_saving_breaks_off_reaches_its_client_and_every_retry() {
    // I3, I4
    on_each_relay(&flags(), async |proxy, site| {
        for (index, (moment, fault)) in CELLS.into_iter().enumerate() {
            let cell = format!("{moment:?} {fault:?}");
            let key = format!("saved-{index}");
            let body = format!("[{index}]");
            let order = site.post("/default").key(&key).json(body.clone());
            // What the lab answers with: it is in the calls that save this answer and in no other.
            proxy.trap(hex_digest(&body), moment, fault);
            let begun = Instant::now();
            let first = order.send().await;
            assert!(begun.elapsed() < BUDGET + SLACK, "{cell}: {first:?}");
            assert_eq!(proxy.sprung(), index + 1, "{cell}");
            first.assert_created();
            proxy.heal();
            assert_replay(&first, &recovered(&order, LEASE).await);
            assert_eq!(site.journal.effects(&key), 1, "{cell}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_release_whose_link_breaks_frees_the_key_all_the_same() {
    // I4
    on_each_relay(&flags(), async |proxy, site| {
        for (index, (moment, fault)) in CELLS.into_iter().enumerate() {
            let cell = format!("{moment:?} {fault:?}");
            let key = format!("released-{index}");
            let order = site.post("/default").key(&key).json("{}");
            let running = order.clone().respond("release:503").delay_ms(400).spawn();
            site.journal.wait_for("start", &key).await;
            proxy.trap(about(&site, &key), moment, fault);
            let first = running.await.unwrap();
            assert_eq!(first.status, 503, "{cell}: {first:?}");
            assert_eq!(first.problem(), None, "{cell}: the handler's own answer");
            assert_eq!(proxy.sprung(), index + 1, "{cell}");
            proxy.heal();
            let again = recovered(&order, LEASE).await;
            again.assert_created();
            assert_replay(&again, &order.send().await);
            assert_eq!(site.journal.effects(&key), 1, "{cell}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_renewal_whose_link_breaks_is_made_up_for() {
    // I4
    on_each_relay(&flags(), async |proxy, site| {
        for (index, (moment, fault)) in
            [(Moment::Before, Fault::Cut), (Moment::After(1), Fault::Cut)]
                .into_iter()
                .enumerate()
        {
            let cell = format!("{moment:?} {fault:?}");
            let key = format!("renewed-{index}");
            let order = site.post("/rerun").key(&key).json("{}");
            let running = order.clone().delay_ms(4000).spawn();
            site.journal.wait_for("start", &key).await;
            proxy.trap(about(&site, &key), moment, fault);
            let first = running.await.unwrap();
            first.assert_created();
            assert_eq!(first.json()["attempt"], 1, "{cell}");
            assert_eq!(proxy.sprung(), index + 1, "{cell}");
            assert_replay(&first, &recovered(&order, LEASE).await);
            assert_eq!(site.journal.effects(&key), 1, "{cell}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_store_that_goes_while_a_handler_runs_costs_nobody_an_answer() {
    // I3, N5
    on_each_line(breakable(), &flags(), async |mut line, site| {
        for (round, frozen) in [(1, false), (2, true)] {
            let key = format!("k-{frozen}");
            let order = site.post("/default").key(&key).json("{}");
            let begun = Instant::now();
            let running = order.clone().delay_ms(600).spawn();
            site.journal.wait_for("start", &key).await;
            if frozen {
                line.freeze().await;
            } else {
                line.cut().await;
            }
            let first = running.await.unwrap();
            let took = begun.elapsed();
            first.assert_created();
            assert!(
                took < Duration::from_millis(600) + BUDGET + SLACK,
                "{took:?}"
            );
            let failure = logged(&site.lab, "the outcome could not be saved", round).await;
            // What was tried, and what came of it.
            let cause = failure.split_once("error=").expect("a cause").1;
            assert!(failure.contains("ERROR"), "{failure}");
            assert!(cause.len() > 20, "no cause in {failure}");
            if !frozen && site.store() != Store::Sqlite {
                assert!(cause.contains(": "), "no driver's error in {failure}");
            }
            line.heal().await;
            assert_replay(&first, &recovered(&order, LEASE).await);
            assert_eq!(site.journal.effects(&key), 1);
            assert_eq!(site.journal.of("start", &key).len(), 1);
        }
    })
    .await;
}

#[tokio::test]
async fn a_commit_whose_link_breaks_is_whole_or_has_never_been() {
    // A6, I4
    let mut stores = behind_a_relay();
    stores.retain(|store| *store != Store::Redis);
    on_each_line(stores, &flags(), async |line, site| {
        let Line::Relay(proxy) = line else {
            unreachable!("a store with one server is behind a relay")
        };
        for (index, (moment, fault)) in CELLS.into_iter().enumerate() {
            let cell = format!("{moment:?} {fault:?}");
            let user = format!("u{index}");
            let order = site.post("/transactional").user(&user).key("k").json("{}");
            proxy.trap(b"COMMIT".as_slice(), moment, fault);
            let begun = Instant::now();
            let first = order.send().await;
            assert!(begun.elapsed() < BUDGET + SLACK, "{cell}: {first:?}");
            first.assert_problem(503, "store-unavailable");
            let detail = first.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains("not known"), "{cell}: {detail}");
            assert_eq!(proxy.sprung(), index + 1, "{cell}");
            proxy.heal();
            let answer = recovered(&order, LEASE).await;
            assert_eq!(answer.status, 201, "{cell}: {answer:?}");
            match (moment, fault) {
                // It gets through when the link thaws, if the database has not ended it before.
                (Moment::Before, Fault::Freeze) => {}
                (Moment::Before, _) => answer.assert_created(),
                (Moment::After(_), _) => assert!(answer.is_replay(), "{cell}: {answer:?}"),
            }
            assert_eq!(order.send().await.body, answer.body, "{cell}");
            assert_eq!(site.orders_of(&user).await, 1, "{cell}");
        }
    })
    .await;
}
