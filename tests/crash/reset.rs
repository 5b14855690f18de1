//! Clients that reset their connection at any moment.

use crate::{LAB, settled};
use futures_util::{StreamExt, stream};
use idem_tests::harness::{Site, scaled};
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test]
async fn a_reset_at_a_random_moment_leaves_one_effect_and_its_answer() {
    // B2, B6
    const AT_ONCE: usize = 10;
    let rounds = scaled(60, 300);
    Site::on_each(LAB, &["--pool", "1"], async |site| {
        let site = &site;
        stream::iter(0..rounds)
            .for_each_concurrent(AT_ONCE, |round| async move {
                let key = format!("k{round}");
                let headers: [(&str, &[u8]); 3] = [
                    ("Idempotency-Key", key.as_bytes()),
                    ("Content-Type", b"application/json"),
                    ("X-Lab-Delay-Ms", b"20"),
                ];
                let mut connection = site.connect().await;
                let request = site.raw_post("/default", &headers, br#"{"a":1}"#);
                connection.send(&request).await.unwrap();
                sleep(Duration::from_micros(rand::random_range(0..40_000))).await;
                connection.reset();
                let order = site.post("/default").key(&key).json(r#"{"a":1}"#);
                let answer = settled(&order).await;
                assert_eq!(answer.status, 201, "{answer:?}");
                let again = order.send().await;
                assert!(again.is_replay(), "{again:?}");
                assert_eq!(again.body, answer.body);
                assert_eq!(site.journal.effects(&key), 1, "{key}");
            })
            .await;
        let log = site.lab.log();
        assert!(!log.contains("ERROR"), "{log}");
    })
    .await;
}
