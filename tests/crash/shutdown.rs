//! SIGTERM with work in flight.

use crate::{LAB, settled};
use futures_util::{StreamExt, future::join_all, stream};
use idem_tests::{
    harness::{Call, Reply, Site, durable, request, scaled},
    services::Store,
};
use nix::sys::signal::Signal;
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// How long the lab may take to end.
const LIMIT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn work_in_flight_is_finished_and_its_answer_found_after_the_restart() {
    // B11
    const AT_ONCE: usize = 10;
    let rounds = scaled(2, 10);
    Site::on_each(LAB, &[], async |mut site| {
        for round in 0..rounds {
            let orders: Vec<_> = (0..AT_ONCE)
                .map(|index| {
                    let key = format!("k{round}-{index}");
                    (site.post("/default").key(&key).json("{}"), key)
                })
                .collect();
            let running: Vec<_> = orders
                .iter()
                .map(|(order, _)| {
                    let order = order.clone().delay_ms(1000);
                    tokio::spawn(async move { order.try_send().await })
                })
                .collect();
            for (_, key) in &orders {
                site.journal.wait_for("start", key).await;
            }
            site.lab.signal(Signal::SIGTERM);
            let replies: Vec<_> = join_all(running)
                .await
                .into_iter()
                .map(Result::unwrap)
                .collect();
            let status = site.lab.ended(LIMIT).await;
            assert_eq!(status.code(), Some(0));
            for ((_, key), reply) in orders.iter().zip(&replies) {
                assert_eq!(site.journal.of("end", key).len(), 1, "{key}");
                if let Ok(reply) = reply {
                    reply.assert_created();
                }
            }
            site.restart(&[]).await;
            if site.store() == Store::Memory {
                continue;
            }
            for ((order, key), reply) in orders.into_iter().zip(replies) {
                let again = order.at(site.address()).send().await;
                assert_eq!(again.status, 201, "{again:?}");
                assert!(again.is_replay(), "{again:?}");
                if let Ok(reply) = reply {
                    assert_eq!(again.body, reply.body);
                }
                assert_eq!(site.journal.effects(&key), 1);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn work_whose_client_has_left_is_finished_too() {
    // B11
    Site::on_each(LAB, &[], async |mut site| {
        for (index, respond) in ["status:200", "stream:100", "panic"]
            .into_iter()
            .enumerate()
        {
            let key = format!("k{index}");
            let headers: [(&str, &[u8]); 4] = [
                ("Idempotency-Key", key.as_bytes()),
                ("Content-Type", b"application/json"),
                ("X-Lab-Delay-Ms", b"1000"),
                ("X-Lab-Respond", respond.as_bytes()),
            ];
            let connection = site.post_by_hand("/default", &headers).await;
            site.journal.wait_for("start", &key).await;
            connection.reset();
            // The server learns of it before the signal.
            sleep(Duration::from_millis(100)).await;
            let told = Instant::now();
            site.lab.signal(Signal::SIGTERM);
            assert_eq!(site.lab.ended(LIMIT).await.code(), Some(0));
            assert!(told.elapsed() < LIMIT);
            assert_eq!(site.journal.effects(&key), 1, "{respond}");
            site.restart(&[]).await;
            if site.store() != Store::Memory {
                let again = site.post("/default").key(&key).json("{}").send().await;
                assert!(again.is_replay(), "{respond}: {again:?}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn what_takes_longer_than_the_limit_is_cut_off_and_held() {
    Site::on_these(durable(), LAB, &["--lease", "1s"], async |mut site| {
        let order = site.post("/default").key("k").json("{}");
        let cut_off = order.clone().delay_ms(60_000).spawn();
        site.journal.wait_for("start", "k").await;
        site.lab.signal(Signal::SIGTERM);
        // It waits for as long as it may, and then it ends.
        let slack = Duration::from_secs(5);
        assert_eq!(site.lab.ended(LIMIT + slack).await.code(), Some(0));
        drop(cut_off);
        site.restart(&["--lease", "1s"]).await;
        let order = order.at(site.address());
        settled(&order).await.assert_problem(409, "outcome-unknown");
    })
    .await;
}

#[tokio::test]
async fn without_work_the_process_ends_at_once() {
    Site::on_each(LAB, &[], async |mut site| {
        site.post("/default")
            .key("k")
            .json("{}")
            .send()
            .await
            .assert_created();
        let idle = site.connect().await;
        site.lab.signal(Signal::SIGTERM);
        assert_eq!(site.lab.ended(LIMIT).await.code(), Some(0));
        drop(idle);
    })
    .await;
}

#[tokio::test]
async fn a_client_that_stops_reading_does_not_hold_up_the_end() {
    Site::on_each(LAB, &[], async |mut site| {
        let headers: [(&str, &[u8]); 2] = [
            ("Idempotency-Key", b"k"),
            ("X-Lab-Respond", b"stream:200000"),
        ];
        let connection = site.post_by_hand("/default", &headers).await;
        site.journal.wait_for("end", "k").await;
        // Enough for what the sockets take; then the stream stands still.
        sleep(Duration::from_millis(500)).await;
        let told = Instant::now();
        site.lab.signal(Signal::SIGTERM);
        assert_eq!(site.lab.ended(LIMIT).await.code(), Some(0));
        assert!(
            told.elapsed() < Duration::from_secs(12),
            "{:?}",
            told.elapsed()
        );
        drop(connection);
    })
    .await;
}

#[tokio::test]
async fn sigterm_under_load_loses_no_accepted_request() {
    // B11
    let rounds = scaled(2, 100);
    Site::on_each(LAB, &[], async |mut site| {
        let (mut accepted, mut others) = (0, 0);
        for round in 0..rounds {
            let sent = match round % 2 {
                0 => under_load_until_terminated(&mut site, round).await,
                _ => deserted_and_terminated(&mut site, round).await,
            };
            let lines = site.journal.lines();
            let of = |phase: &str| -> HashSet<String> {
                let lines = lines.iter().filter(|line| line.phase == phase);
                lines.filter_map(|line| line.key.clone()).collect()
            };
            let started = of("start");
            let lost: Vec<_> = started.difference(&of("end")).cloned().collect();
            assert!(lost.is_empty(), "begun and not finished: {lost:?}");
            let run = sent.iter().filter(|sent| started.contains(&sent.key));
            let run = run.count();
            accepted += run;
            others += sent.len() - run;
            site.restart(&[]).await;
            if site.store() == Store::Memory {
                continue;
            }
            let this = &site;
            stream::iter(&sent)
                .for_each_concurrent(8, |Sent { call, key, seen }| {
                    let started = started.contains(key);
                    async move {
                        let again = call.clone().at(this.address()).send().await;
                        assert_eq!(again.status, 201, "{key}: {again:?}");
                        assert_eq!(again.is_replay(), started, "{key}: {again:?}");
                        if let Some(seen) = seen {
                            assert!(started, "{key}: answered without a run: {seen:?}");
                            assert_eq!(again.body, seen.body, "{key}");
                        }
                    }
                })
                .await;
            let mut effects: HashMap<String, usize> = HashMap::new();
            for line in site.journal.lines() {
                if line.phase == "effect" {
                    *effects.entry(line.key.unwrap()).or_default() += 1;
                }
            }
            let mut rows = 0;
            for Sent { key, .. } in &sent {
                assert_eq!(effects.get(key), Some(&1), "{key}");
                rows += usize::from(key.starts_with("row"));
            }
            if rows > 0 {
                assert_eq!(site.orders_of(&format!("round{round}")).await, rows);
            }
        }
        eprintln!(
            "{}: {rounds} rounds, {accepted} accepted requests, {others} others",
            site.store()
        );
    })
    .await;
}

/// A request of a round, and its answer if that has come.
struct Sent {
    call: Call,
    key: String,
    seen: Option<Reply>,
}

const CLIENTS: usize = 8;

/// Where the requests of a client go, and what its keys begin with.
fn aim(site: &Site, client: usize) -> (&'static str, &'static str) {
    let sql = matches!(site.store(), Store::Sqlite | Store::Postgres | Store::MySql);
    match client % 2 {
        1 if sql => ("/transactional", "row"),
        _ => ("/default", "line"),
    }
}

/// Sends requests one after the other from some clients, and SIGTERM at a random moment.
async fn under_load_until_terminated(site: &mut Site, round: usize) -> Vec<Sent> {
    let user = format!("round{round}");
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (path, kind) = aim(site, client);
            let order = site.post(path).user(&user).json("{}");
            tokio::spawn(async move {
                let mut sent = Vec::new();
                loop {
                    let key = format!("{kind}-{round}-{client}-{}", sent.len());
                    let call = order.clone().key(&key);
                    let slow = call.clone().delay_ms(rand::random_range(0..60));
                    let answer = slow.try_send().await.ok();
                    let refused = answer.as_ref().is_none_or(|reply| reply.status == 503);
                    let seen = answer.filter(|reply| reply.status == 201);
                    sent.push(Sent { call, key, seen });
                    if refused {
                        return sent;
                    }
                }
            })
        })
        .collect();
    sleep(Duration::from_millis(rand::random_range(50..400))).await;
    terminated(site).await;
    join_all(clients)
        .await
        .into_iter()
        .flat_map(Result::unwrap)
        .collect()
}

/// Sends a request from each of some clients, lets all of them reset their connections at a random
/// moment, and then SIGTERM: no connection keeps the server from ending.
async fn deserted_and_terminated(site: &mut Site, round: usize) -> Vec<Sent> {
    let user = format!("round{round}");
    let token = site.token(&user);
    let (mut sent, mut connections) = (Vec::new(), Vec::new());
    for client in 0..CLIENTS {
        let (path, kind) = aim(site, client);
        let key = format!("{kind}-{round}-{client}");
        let delay = rand::random_range(0..600).to_string();
        let headers: [(&str, &[u8]); 4] = [
            ("Authorization", token.as_bytes()),
            ("Idempotency-Key", key.as_bytes()),
            ("Content-Type", b"application/json"),
            ("X-Lab-Delay-Ms", delay.as_bytes()),
        ];
        let mut connection = site.connect().await;
        let post = request("POST", path, &headers, b"{}");
        connection.send(&post).await.unwrap();
        connections.push(connection);
        let call = site.post(path).user(&user).key(&key).json("{}");
        let seen = None;
        sent.push(Sent { call, key, seen });
    }
    sleep(Duration::from_millis(rand::random_range(20..200))).await;
    for connection in connections {
        connection.reset();
    }
    // The server learns of it before the signal.
    sleep(Duration::from_millis(50)).await;
    terminated(site).await;
    sent
}

async fn terminated(site: &mut Site) {
    let told = Instant::now();
    site.lab.signal(Signal::SIGTERM);
    let status = site.lab.ended(LIMIT).await;
    assert_eq!(status.code(), Some(0), "{}", site.lab.log());
    assert!(told.elapsed() < LIMIT);
}
