//! SIGTERM with work in flight.

use crate::LAB;
use futures_util::future::join_all;
use idem_tests::{
    harness::{Site, scaled},
    services::Store,
};
use nix::sys::signal::Signal;
use std::time::Duration;
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
            let mut connection = site.connect().await;
            connection
                .send(&site.raw_post("/default", &headers, b"{}"))
                .await
                .unwrap();
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
        let mut connection = site.connect().await;
        connection
            .send(&site.raw_post("/default", &headers, b"{}"))
            .await
            .unwrap();
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
