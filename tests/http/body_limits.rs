//! Bodies that are too large are refused without being taken in.

use crate::LAB;
use flate2::{Compression, write::GzEncoder};
use futures_util::future::join_all;
use idem_tests::{
    harness::{Connection, RawReply, Site, assert_replay, scaled},
    services::{Store, is_selected},
};
use std::io::Write;

const MIB: usize = 1 << 20;

fn head(site: &Site, path: &str, framing: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: lab\r\nAuthorization: {}\r\nIdempotency-Key: k\r\n\
         Content-Type: application/octet-stream\r\n{framing}\r\n\r\n",
        site.token("alice")
    )
    .into_bytes()
}

/// Sends chunks until the server answers or `most` bytes are sent; how many were.
async fn chunks(connection: &mut Connection, most: usize) -> (usize, RawReply) {
    let chunk = [b"4000\r\n".to_vec(), vec![b'x'; 0x4000], b"\r\n".to_vec()].concat();
    let mut sent = 0;
    while sent < most && connection.send(&chunk).await.is_ok() {
        sent += 0x4000;
    }
    let _ = connection.send(b"0\r\n\r\n").await;
    (sent, connection.reply().await)
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_it_is_read() {
    // J2
    Site::on_each(LAB, &[], async |site| {
        // Announced: the answer comes although not one byte of the body is sent.
        let mut connection = site.connect().await;
        let announced = head(&site, "/default", "Content-Length: 2097152");
        connection.send(&announced).await.unwrap();
        let reply = connection.reply().await;
        assert_eq!(reply.status, 413);
        assert_eq!(reply.problem().as_deref(), Some("body-too-large"));
        // Not announced: the answer comes when the limit is passed.
        let mut connection = site.connect().await;
        let chunked = head(&site, "/default", "Transfer-Encoding: chunked");
        connection.send(&chunked).await.unwrap();
        let (_, reply) = chunks(&mut connection, 2 * MIB).await;
        assert_eq!(reply.status, 413);
        assert_eq!(reply.problem().as_deref(), Some("body-too-large"));
        assert!(site.records().await.is_empty(), "a claim is left");
        assert!(site.journal.lines().is_empty(), "the handler ran");
        // The limit itself is within it.
        let small = site
            .post("/small")
            .key("fits")
            .body("text/plain", vec![b'x'; 65_536]);
        let first = small.send().await;
        first.assert_created();
        assert_replay(&first, &small.send().await);
        let over = small.key("over").body("text/plain", vec![b'x'; 65_537]);
        let refused = over.send().await;
        refused.assert_problem(413, "body-too-large");
        let detail = refused.json()["detail"].to_string();
        assert!(detail.contains("at most 65536 bytes"), "{detail}");
        // Without a key the limit is not the toolkit's.
        over.without_key().send().await.assert_created();
    })
    .await;
}

#[tokio::test]
async fn many_bodies_over_the_limit_take_no_room() {
    // J2
    Site::on_each(LAB, &[], async |site| {
        let before = site.lab.resident_bytes();
        let hundred = (0..100).map(|_| async {
            let mut connection = site.connect().await;
            let announced = head(&site, "/default", "Content-Length: 1073741824");
            connection.send(&announced).await.unwrap();
            // What of the body is under way when the answer comes is not kept either.
            for _ in 0..8 {
                if connection.send(&[b'x'; 0x4000]).await.is_err() {
                    break;
                }
            }
            assert_eq!(connection.reply().await.status, 413);
        });
        join_all(hundred).await;
        let grown = site.lab.resident_bytes().saturating_sub(before);
        assert!(grown < 64 << 20, "grown by {grown} bytes");
    })
    .await;
}

#[tokio::test]
async fn a_compressed_body_is_bounded_by_what_it_unfolds_to() {
    // P22, M1
    let gzip = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let bomb = gzip(&vec![0; 200 * MIB]);
    assert!(bomb.len() < MIB);
    Site::on_each(LAB, &[], async |site| {
        for path in ["/default", "/payload", "/small"] {
            let before = site.lab.peak_bytes();
            let order = site
                .post(path)
                .key("bomb")
                .header("content-encoding", "gzip");
            let reply = order
                .body("application/octet-stream", bomb.clone())
                .send()
                .await;
            reply.assert_problem(413, "body-too-large");
            let grown = site.lab.peak_bytes().saturating_sub(before);
            assert!(grown < 64 << 20, "{path}: grown by {grown} bytes");
        }
        assert!(site.records().await.is_empty());
        assert!(site.journal.lines().is_empty());
        // Compressed or not, it is the same request with the same content.
        let order = site.post("/default").key("k").json(r#"{"a":1}"#);
        let first = order.send().await;
        let compressed = order
            .header("content-encoding", "gzip")
            .json(gzip(r#"{"a":1}"#.as_bytes()));
        assert_replay(&first, &compressed.send().await);
    })
    .await;
}

#[tokio::test]
async fn a_body_that_breaks_off_claims_nothing() {
    // P23
    Site::on_each(LAB, &[], async |site| {
        for (path, framing) in [
            ("/default", "Content-Length: 100"),
            ("/payload", "Content-Length: 100"),
            ("/default", "Transfer-Encoding: chunked"),
        ] {
            let mut connection = site.connect().await;
            let mut bytes = head(&site, path, framing);
            bytes.extend_from_slice(b"5\r\n{\"a\":");
            connection.send(&bytes).await.unwrap();
            connection.finish_sending().await;
            // Whether there is an answer to nobody is the server's choice.
            if let Ok(reply) = connection.try_reply().await {
                assert!(reply.status >= 400, "{path} {framing}: {reply:?}");
            }
        }
        assert!(site.records().await.is_empty());
        assert!(site.journal.lines().is_empty());
        site.post("/default")
            .key("k")
            .json("{}")
            .send()
            .await
            .assert_created();
    })
    .await;
}

#[tokio::test]
async fn the_memory_store_is_bounded_in_bytes() {
    // J5
    if !is_selected(Store::Memory) {
        return;
    }
    // The store takes 256 MiB, so some of the first must go.
    let keys = scaled(350, 1000);
    Site::on_these(vec![Store::Memory], LAB, &[], async |site| {
        let running = site
            .post("/default")
            .key("running")
            .json("{}")
            .delay_ms(8000);
        let running = running.spawn();
        site.journal.wait_for("start", "running").await;
        let order = |key: usize| site.post("/default").key(&format!("k{key}")).json("{}");
        for key in 0..keys {
            let reply = order(key).respond("large:1048576").send().await;
            assert_eq!(reply.status, 200);
        }
        let resident = site.lab.resident_bytes();
        assert!(resident < 450 << 20, "{resident} bytes");
        assert!(
            order(keys - 1).send().await.is_replay(),
            "the last is there"
        );
        order(0).send().await.assert_created();
        // What runs is never removed.
        let duplicate = site.post("/default").key("running").json("{}");
        if !running.is_finished() {
            let reply = duplicate.send().await;
            assert!(reply.is_replay() || reply.problem().as_deref() == Some("in-progress"));
        }
        running.await.unwrap().assert_created();
        assert_eq!(site.journal.effects("running"), 1);
    })
    .await;
}
