//! Several processes on one store.

use crate::LAB;
use futures_util::future::join_all;
use idem_tests::harness::{Call, Lab, Reply, Site, assert_replay, durable, scaled};
use std::{collections::HashSet, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{sync::Barrier, time::Instant};

const DUPLICATES: usize = 20;

/// Three more labs, and the addresses of all four.
async fn four(site: &Site, flags: &[&str]) -> (Vec<Lab>, Vec<SocketAddr>) {
    let others = join_all((0..3).map(|_| site.another(flags))).await;
    let mut addresses = vec![site.address()];
    addresses.extend(others.iter().map(Lab::address));
    (others, addresses)
}

/// Sends the same request to each of these processes in turn, all at the same moment.
async fn burst(call: &Call, addresses: &[SocketAddr]) -> Vec<Reply> {
    let barrier = Arc::new(Barrier::new(DUPLICATES));
    let tasks = (0..DUPLICATES).map(|index| {
        let call = call.clone().at(addresses[index % addresses.len()]);
        let barrier = Arc::clone(&barrier);
        tokio::spawn(async move {
            barrier.wait().await;
            call.send().await
        })
    });
    join_all(tasks)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

#[tokio::test]
async fn duplicates_spread_over_four_processes_have_one_effect_and_one_answer() {
    let keys = scaled(20, 200);
    Site::on_these(durable(), LAB, &[], async |site| {
        let (_others, addresses) = four(&site, &[]).await;
        let mut replies = 0;
        for index in 0..keys {
            let key = format!("k{index}");
            let order = site.post("/default").key(&key).json("{}").delay_ms(20);
            let mut firsts = 0;
            let mut bodies = HashSet::new();
            for reply in burst(&order, &addresses).await {
                replies += 1;
                if reply.status == 201 {
                    firsts += usize::from(!reply.is_replay());
                    bodies.insert(reply.body);
                } else {
                    reply.assert_problem(409, "in-progress");
                }
            }
            assert_eq!(firsts, 1, "{key}");
            for address in &addresses {
                let again = order.clone().at(*address).send().await;
                assert!(again.is_replay(), "{key}: {again:?}");
                bodies.insert(again.body);
            }
            assert_eq!(bodies.len(), 1, "{key}: {bodies:?}");
        }
        assert_eq!(replies, keys * DUPLICATES);
        assert_eq!(site.journal.all_effects(), keys);
    })
    .await;
}

#[tokio::test]
async fn a_client_sent_from_one_process_to_the_next_gets_one_answer() {
    // A7
    Site::on_these(durable(), LAB, &[], async |site| {
        let (_others, addresses) = four(&site, &[]).await;
        let order = site.post("/default").key("k").json("{}");
        let first = order.send().await;
        first.assert_created();
        for turn in 1..12 {
            let order = order.clone().at(addresses[turn % addresses.len()]);
            assert_replay(&first, &order.send().await);
        }
        assert_eq!(site.journal.effects("k"), 1);
    })
    .await;
}

#[tokio::test]
async fn those_who_wait_elsewhere_are_answered_within_a_second_and_a_reused_key_at_once() {
    // I10
    Site::on_these(durable(), LAB, &[], async |site| {
        let (_others, addresses) = four(&site, &[]).await;
        let order = site.post("/wait").key("k").json("{}");
        let first = order.clone().delay_ms(2000).spawn();
        site.journal.wait_for("start", "k").await;
        let waiters: Vec<_> = addresses[1..]
            .iter()
            .map(|address| {
                let waiter = order.clone().at(*address);
                tokio::spawn(async move { (waiter.send().await, Instant::now()) })
            })
            .collect();
        let begun = Instant::now();
        for address in &addresses {
            let reused = order.clone().json("[]").at(*address).send().await;
            reused.assert_problem(422, "key-reused");
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert!(
            !first.is_finished(),
            "the machine is too slow for this test"
        );
        let first = first.await.unwrap();
        let answered = Instant::now();
        for waiter in waiters {
            let (reply, at) = waiter.await.unwrap();
            assert_replay(&first, &reply);
            let late = at.saturating_duration_since(answered);
            assert!(late <= Duration::from_secs(1), "{late:?}");
        }
        assert_eq!(site.journal.of("start", "k").len(), 1);
    })
    .await;
}
