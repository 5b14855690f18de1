//! A record ends with its TTL, whether anybody sweeps or not.

use crate::LAB;
use idem_tests::{
    harness::{Connection, Site, assert_replay, eventually, scaled},
    services::{Store, is_selected},
};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

#[tokio::test]
async fn an_expired_record_is_as_if_it_were_not_there() {
    // G2
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/short").key("k").json("{}");
        // The TTL counts from the claim, which is after this moment and before the next.
        let before = Instant::now();
        let first = order.send().await;
        let after = Instant::now();
        first.assert_created();
        sleep_until(before + Duration::from_millis(400)).await;
        let again = order.send().await;
        if before.elapsed() < Duration::from_millis(1000) {
            assert_replay(&first, &again);
            // A replay does not put the end off.
            sleep_until(after + Duration::from_millis(1100)).await;
            let fresh = order.json("[]").send().await;
            fresh.assert_created();
            assert_ne!(fresh.id(), first.id());
        } else {
            panic!("this machine is too slow for a TTL of a second");
        }
    })
    .await;
}

#[tokio::test]
async fn the_sweeper_removes_what_has_expired() {
    Site::on_each(LAB, &["--sweep", "200ms"], async |site| {
        for index in 0..20 {
            let order = site.post("/short").key(&format!("k{index}")).json("{}");
            order.send().await.assert_created();
        }
        eventually("an empty store", async || {
            site.records().await.is_empty().then_some(())
        })
        .await;
        if site.store() != Store::Redis && site.store() != Store::RedisCluster {
            // Memory and Redis drop records by themselves as well.
            sleep(Duration::from_millis(300)).await;
        }
        let log = site.lab.log();
        assert!(!log.contains("could not be removed"), "{log}");
    })
    .await;
}

#[tokio::test]
async fn the_memory_store_keeps_nothing_of_keys_that_are_never_asked_for_again() {
    // G5
    if !is_selected(Store::Memory) {
        return;
    }
    let keys = scaled(20_000, 200_000);
    let flags = ["--memory-records", "300000"];
    Site::on_these(vec![Store::Memory], LAB, &flags, async |site| {
        // Whatever the process needs in any case, it has after this.
        write(&site, "warm", keys / 10).await;
        emptied(&site).await;
        let before = site.lab.resident_bytes();
        write(&site, "k", keys).await;
        emptied(&site).await;
        let grown = site.lab.resident_bytes().saturating_sub(before);
        assert!(grown < 10 << 20, "grown by {grown} bytes");
        assert_eq!(site.journal.all_effects(), keys / 10 + keys);
    })
    .await;
}

async fn emptied(site: &Site) {
    eventually("an empty store", async || {
        (site.metric("idempotency_records").await == 0.0).then_some(())
    })
    .await;
}

/// POSTs so many keys to `/short` over a few connections.
async fn write(site: &Site, prefix: &str, keys: usize) {
    const CONNECTIONS: usize = 4;
    let writers = (0..CONNECTIONS).map(|writer| async move {
        let mut connection = Connection::open(site.address()).await;
        for index in (writer..keys).step_by(CONNECTIONS) {
            let key = format!("{prefix}{index}");
            let headers: [(&str, &[u8]); 1] = [("Idempotency-Key", key.as_bytes())];
            let request = site.raw_post("/short", &headers, b"");
            connection.send(&request).await.unwrap();
            assert_eq!(connection.reply().await.status, 201);
        }
    });
    futures_util::future::join_all(writers).await;
}
