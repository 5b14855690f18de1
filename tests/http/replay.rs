//! A replay is the first answer, byte for byte, and says that it is one.

use crate::LAB;
use flate2::read::GzDecoder;
use idem_tests::harness::{Connection, Reply, Site, assert_replay, scaled};
use reqwest::Method;
use std::{io::Read, time::Instant};
use tokio::time::Duration;

#[tokio::test]
async fn status_type_and_body_are_those_of_the_first_answer() {
    // E1, E6, E7, E9, E10, E14, E16, H6
    Site::on_each(LAB, &[], async |site| {
        for (respond, status, content_type) in [
            ("csv", 200, Some("text/csv; charset=utf-8")),
            ("null", 200, Some("application/json")),
            ("bytes256", 200, Some("image/png")),
            ("status:202", 202, Some("application/json")),
            ("empty", 204, None),
            ("status:303", 303, Some("application/json")),
            ("err:402", 402, Some("application/json")),
            ("stream:3", 200, Some("application/octet-stream")),
            // A little under 1 MiB of characters that take three and four bytes.
            ("utf8:340000", 200, Some("text/plain; charset=utf-8")),
        ] {
            let order = site.post("/default").key(respond).json("{}");
            let first = order.clone().respond(respond).send().await;
            assert_eq!(first.status.as_u16(), status, "{respond}");
            assert_eq!(
                first.header("content-type"),
                content_type.map(str::as_bytes),
                "{respond}"
            );
            let again = order.send().await;
            assert_eq!(again.status, first.status, "{respond}");
            assert_eq!(again.body, first.body, "{respond}");
            assert_eq!(
                again.header("content-type"),
                first.header("content-type"),
                "{respond}"
            );
            assert_eq!(
                again.header("location"),
                first.header("location"),
                "{respond}"
            );
            assert!(again.is_replay() && !first.is_replay(), "{respond}");
            assert!(!again.body.is_empty() || respond == "empty", "{respond}");
        }
        let order = site.post("/default").key("empty");
        let empty = order.json("{}").send().await;
        assert!(empty.body.is_empty());
        assert!(
            matches!(empty.header("content-length"), None | Some(b"0")),
            "{empty:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn headers_of_the_answer_are_replayed_and_those_of_the_moment_are_not() {
    // E2, E12, P16
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/default").key("k").json("{}");
        let first = order.clone().respond("headers").send().await;
        let again = order.send().await;
        assert_replay(&first, &again);
        for name in ["etag", "location", "cache-control", "x-bytes"] {
            assert!(first.header(name).is_some(), "{name}");
            assert_eq!(again.header(name), first.header(name), "{name}");
        }
        let links = |reply: &Reply| -> Vec<Vec<u8>> {
            let values = reply.headers.get_all("link").iter();
            values.map(|value| value.as_bytes().to_vec()).collect()
        };
        assert_eq!(links(&first).len(), 2);
        assert_eq!(links(&again), links(&first));
        let expected: Vec<u8> = (0x80..=0xff).collect();
        assert_eq!(again.header("x-bytes"), Some(expected.as_slice()));
        for name in ["set-cookie", "x-request-id"] {
            assert!(first.header(name).is_some(), "{name}");
            assert_eq!(again.header(name), None, "{name}");
        }
        assert!(
            again.header("date").is_some(),
            "the date is that of the replay"
        );
    })
    .await;
}

#[tokio::test]
async fn a_replay_is_not_negotiated_again() {
    // E4
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/default").key("k").json("{}");
        let first = order
            .clone()
            .header("accept", "application/json")
            .send()
            .await;
        let again = order.header("accept", "image/png").send().await;
        assert_replay(&first, &again);
    })
    .await;
}

#[tokio::test]
async fn the_marker_is_on_every_replay_and_on_nothing_else() {
    // E14, H9, P17, O6
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/default").key("k").json("{}");
        let sly = order.clone().header("idempotent-replayed", "true");
        let first = sly.send().await;
        first.assert_created();
        assert_replay(&first, &sly.send().await);
        for turn in 0..3 {
            assert_replay(&first, &order.send().await);
            assert_eq!(site.journal.effects("k"), 1, "turn {turn}");
        }
        let failed = site.post("/default").key("failed").json("{}");
        let first = failed.clone().respond("status:500").send().await;
        assert!(!first.is_replay());
        assert!(failed.send().await.is_replay());
        for refused in [
            order.clone().json("[]"),
            order.clone().header("idempotency-key", "\""),
            site.post("/required").json("{}"),
        ] {
            assert!(!refused.send().await.is_replay());
        }
        assert!(!site.post("/default").json("{}").send().await.is_replay());
    })
    .await;
}

#[tokio::test]
async fn compression_is_applied_to_each_answer_as_its_client_accepts_it() {
    // E13
    Site::on_each(LAB, &["--compress"], async |site| {
        let accepts = ["identity", "gzip", "br"];
        for one in accepts {
            for two in accepts {
                let key = format!("{one}-{two}");
                let order = site.post("/default").key(&key).json("{}");
                let first = order
                    .clone()
                    .respond("large:20000")
                    .header("accept-encoding", one)
                    .send()
                    .await;
                let again = order.header("accept-encoding", two).send().await;
                assert!(again.is_replay() && !first.is_replay());
                for (reply, accepted) in [(&first, one), (&again, two)] {
                    let encoding = reply.header("content-encoding").unwrap_or(b"identity");
                    assert_eq!(encoding, accepted.as_bytes(), "{key}");
                    if let Some(length) = reply.header("content-length") {
                        assert_eq!(length, reply.body.len().to_string().as_bytes(), "{key}");
                    }
                    assert_eq!(decoded(reply), vec![b'x'; 20_000], "{key}");
                }
            }
        }
        let order = site.post("/default").key("empty").json("{}");
        let order = order.header("accept-encoding", "gzip");
        for call in [order.clone().respond("empty"), order] {
            let reply = call.send().await;
            assert_eq!(reply.status, 204);
            assert!(reply.body.is_empty());
            assert_eq!(reply.header("content-encoding"), None);
        }
    })
    .await;
}

fn decoded(reply: &Reply) -> Vec<u8> {
    match reply.header("content-encoding") {
        Some(b"gzip") => {
            let mut bytes = Vec::new();
            GzDecoder::new(&reply.body[..])
                .read_to_end(&mut bytes)
                .unwrap();
            bytes
        }
        Some(b"br") => {
            let mut bytes = Vec::new();
            brotli::Decompressor::new(&reply.body[..], 4096)
                .read_to_end(&mut bytes)
                .unwrap();
            bytes
        }
        _ => reply.body.to_vec(),
    }
}

#[tokio::test]
async fn a_long_answer_takes_no_room() {
    // J7
    let chunks = scaled(64_000, 512_000);
    Site::on_each(LAB, &[], async |site| {
        // What one answer takes anyway.
        let order = site.post("/default").key("short").json("{}");
        order.respond("stream:1000").send().await;
        let before = site.lab.peak_bytes();
        let order = site.post("/default").key("long").json("{}");
        let respond = format!("stream:{chunks}");
        let mut answer = order.clone().respond(&respond).sent().send().await.unwrap();
        let mut received = 0;
        while let Some(chunk) = answer.chunk().await.unwrap() {
            received += chunk.len();
        }
        assert_eq!(received, chunks * 1024);
        let grown = site.lab.peak_bytes().saturating_sub(before);
        assert!(grown < 16 << 20, "grown by {grown} bytes");
        order
            .send()
            .await
            .assert_problem(409, "response-not-retained");
    })
    .await;
}

#[tokio::test]
async fn event_streams_and_long_streams_pass_live_and_are_not_retained() {
    // J6, J7
    Site::on_each(LAB, &[], async |site| {
        let events = site.post("/default").key("sse").json("{}");
        let sent = Instant::now();
        let mut answer = events.clone().respond("sse").sent().send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(answer.chunk().await.unwrap().is_some());
        // The whole takes two seconds.
        assert!(
            sent.elapsed() < Duration::from_millis(1000),
            "{:?}",
            sent.elapsed()
        );
        // The record is a tombstone from the beginning, so nothing runs twice meanwhile.
        events
            .send()
            .await
            .assert_problem(409, "response-not-retained");
        let mut rest = 0;
        while let Some(chunk) = answer.chunk().await.unwrap() {
            rest += chunk.len();
        }
        assert!(rest > 0);
        events
            .send()
            .await
            .assert_problem(409, "response-not-retained");

        let long = site.post("/default").key("long").json("{}");
        let first = long.clone().respond("stream:3000").send().await;
        assert_eq!(first.body.len(), 3000 * 1024);
        long.send()
            .await
            .assert_problem(409, "response-not-retained");

        let large = site.post("/small").key("large").json("{}");
        let first = large.clone().respond("large:65537").send().await;
        assert_eq!(first.body.len(), 65_537);
        assert_eq!(first.text("content-length"), "65537");
        large
            .send()
            .await
            .assert_problem(409, "response-not-retained");
        let fits = site.post("/small").key("fits").json("{}");
        let first = fits.clone().respond("large:65536").send().await;
        assert_replay(&first, &fits.send().await);
        for key in ["sse", "long", "large", "fits"] {
            assert_eq!(site.journal.effects(key), 1, "{key}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_of_http_1_0_never_gets_chunks() {
    // P18
    Site::on_each(LAB, &[], async |site| {
        let token = site.token("alice");
        let ask = async |path: &str, key: &str, respond: &str| {
            let text = format!(
                "POST {path} HTTP/1.0\r\nAuthorization: {token}\r\nIdempotency-Key: {key}\r\n\
                 X-Lab-Respond: {respond}\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx"
            );
            let mut connection = Connection::open(site.address()).await;
            connection.send(text.as_bytes()).await.unwrap();
            let reply = connection.reply().await;
            assert_eq!(
                reply.header("transfer-encoding"),
                None,
                "{path} {key} {respond}"
            );
            reply
        };
        for (respond, length) in [("csv", None), ("stream:3", Some(3072)), ("sse", None)] {
            let first = ask("/default", respond, respond).await;
            let again = ask("/default", respond, respond).await;
            if let Some(length) = length {
                assert_eq!(first.body.len(), length);
            }
            if respond == "sse" {
                assert_eq!(again.problem().as_deref(), Some("response-not-retained"));
            } else {
                assert_eq!(again.body, first.body);
                assert!(again.is_replay());
            }
        }
        let refused = ask("/default", "\"", "csv").await;
        assert_eq!(refused.problem().as_deref(), Some("key-invalid"));
    })
    .await;
}

#[tokio::test]
async fn safe_methods_never_claim_nor_replay() {
    // O3
    Site::on_each(LAB, &[], async |site| {
        for method in [Method::HEAD, Method::OPTIONS] {
            let safe = site.call(method.clone(), "/required").key("k");
            for _ in 0..2 {
                let reply = safe.send().await;
                assert!(!reply.is_replay(), "{method}");
                assert!(reply.status.is_success(), "{method} {reply:?}");
            }
            // Not even a key that is none is looked at.
            let reply = safe.header("idempotency-key", "\"").send().await;
            assert!(reply.status.is_success(), "{method} {reply:?}");
        }
        assert!(site.records().await.is_empty());
        assert_eq!(site.call(Method::GET, "/plain").send().await.status, 201);
        site.post("/required")
            .key("k")
            .send()
            .await
            .assert_created();
    })
    .await;
}
