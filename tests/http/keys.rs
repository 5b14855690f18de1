//! What is a key, and which keys are the same.

use crate::LAB;
use idem_tests::harness::{Site, assert_replay};

/// Sends a key's header lines by hand, any bytes.
async fn send_lines(site: &Site, path: &str, lines: &[&[u8]]) -> idem_tests::harness::RawReply {
    let mut headers: Vec<(&str, &[u8])> = vec![("Content-Type", b"application/json")];
    headers.extend(lines.iter().map(|line| ("Idempotency-Key", *line)));
    let mut connection = site.post_by_hand(path, &headers).await;
    connection.reply().await
}

#[tokio::test]
async fn a_key_may_be_bare_or_a_structured_string() {
    // K1, P1, P2, P6
    Site::on_each(LAB, &[], async |site| {
        for (one, two, same) in [
            (
                "8e03978e-40d5-43e8-bc93-6894a57f9324",
                "\"8e03978e-40d5-43e8-bc93-6894a57f9324\"",
                true,
            ),
            ("k1", "\"k1\"", true),
            ("k2", "  k2  ", true),
            ("\"k3\"", "\"k3\";foo=1", true),
            (r#""a\"b\\c""#, r#""a\"b\\c""#, true),
            ("\"two words\"", "\"two words\"", true),
            ("AbC1", "aBc1", false),
            ("\"x\"", "\"x \"", false),
        ] {
            let first = send_lines(&site, "/default", &[one.as_bytes()]).await;
            assert_eq!(first.status, 201, "{one}");
            assert!(!first.is_replay(), "{one}");
            let again = send_lines(&site, "/default", &[two.as_bytes()]).await;
            assert_eq!(again.status, 201, "{two}");
            assert_eq!(again.is_replay(), same, "{one} and {two}");
        }
        assert_eq!(
            site.journal.effects(r#"a"b\c"#),
            1,
            "the key is what the string means"
        );
        // The name of the header is the same in any case; another name is another header.
        let headers: [(&str, &[u8]); 2] = [
            ("IDEMPOTENCY-key", b"k1"),
            ("Content-Type", b"application/json"),
        ];
        let mut connection = site.post_by_hand("/default", &headers).await;
        assert!(connection.reply().await.is_replay());
    })
    .await;
}

#[tokio::test]
async fn what_is_no_key_is_refused_and_nothing_runs() {
    // J4, K3, K8, P2, P3, P4
    let (fits, too_long, far_too_long) = ("k".repeat(255), "k".repeat(256), random_text(4096));
    let malformed: Vec<Vec<&[u8]>> = vec![
        vec![b"\"abc"],
        vec![b"\"abc\\"],
        vec![b"\"abc\\\""],
        vec![b"\"a\\bc\""],
        vec![b"'abc'"],
        vec![b"\"a\", \"b\""],
        vec![b"a, b"],
        vec![b"a b"],
        vec![b"\"\""],
        vec![b"\"   \""],
        vec![b""],
        vec![b"   "],
        vec![b"\xff"],
        vec![b"\"\xff\""],
        vec!["ключ".as_bytes()],
        vec![b"a\tb"],
        vec![b"\"a\tb\""],
        vec![b"k", b"k"],
        vec![b"k", b"other"],
        vec![b"\"k\"", b""],
        vec![too_long.as_bytes()],
        vec![far_too_long.as_bytes()],
    ];
    Site::on_each(LAB, &[], async |site| {
        for path in ["/default", "/required", "/uuid"] {
            for lines in &malformed {
                let reply = send_lines(&site, path, lines).await;
                assert_eq!(reply.status, 400, "{path} {lines:?}: {reply:?}");
                let problem = reply.problem();
                assert_eq!(problem.as_deref(), Some("key-invalid"), "{path} {lines:?}");
            }
        }
        // A bare line feed ends the header: what is left of the key is unbalanced.
        let reply = send_lines(&site, "/default", &[b"\"a\nb: c\""]).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(site.journal.lines().is_empty(), "something ran");
        assert!(site.records().await.is_empty());
        for key in ["k", fits.as_str()] {
            let order = site.post("/default").key(key).json("{}");
            let first = order.send().await;
            first.assert_created();
            assert_replay(&first, &order.send().await);
        }
        assert!(!site.lab.log().contains("panicked"));
    })
    .await;
}

#[tokio::test]
async fn without_a_key_every_request_runs_unless_the_route_requires_one() {
    // K5, M6, P5
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/default").json("{}");
        let (one, two) = (order.send().await, order.send().await);
        one.assert_created();
        two.assert_created();
        assert_ne!(one.id(), two.id());
        let underscore = order.header("idempotency_key", "k");
        underscore.send().await.assert_created();
        underscore.send().await.assert_created();
        let chunked = format!(
            "POST /default HTTP/1.1\r\nHost: lab\r\nAuthorization: {}\r\nTrailer: Idempotency-Key\r\n\
             Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\nIdempotency-Key: k\r\n\r\n",
            site.token("alice")
        );
        for _ in 0..2 {
            let mut connection = site.connect().await;
            connection.send(chunked.as_bytes()).await.unwrap();
            let reply = connection.reply().await;
            // A server that takes no trailers may say so; it must not take the key from one.
            assert!(matches!(reply.status, 201 | 400), "{reply:?}");
            assert!(!reply.is_replay());
        }
        assert!(site.records().await.is_empty(), "something is stored");
        let lines = site.journal.lines();
        assert!(lines.iter().all(|line| line.key.is_none()), "{lines:?}");
        let missing = site.post("/required").json("{}").send().await;
        missing.assert_problem(400, "key-missing");
        let detail = missing.json()["detail"].to_string();
        assert!(detail.contains("Idempotency-Key: 9b1deb4d"), "{detail}");
        assert_eq!(site.journal.lines().len(), lines.len(), "the handler ran");
        site.post("/uuid").json("{}").send().await.assert_created();
    })
    .await;
}

#[tokio::test]
async fn a_route_may_insist_on_uuids() {
    Site::on_each(LAB, &[], async |site| {
        for key in [
            "k",
            "9b1deb4d3b7d4bad9bdd2b0d7b3dcb6d",
            "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6",
        ] {
            site.post("/uuid")
                .key(key)
                .json("{}")
                .send()
                .await
                .assert_problem(400, "key-invalid");
        }
        for key in [
            "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d",
            "9B1DEB4D-3B7D-4BAD-9BDD-2B0D7B3DCB6E",
        ] {
            let order = site.post("/uuid").key(key).json("{}");
            let first = order.send().await;
            first.assert_created();
            assert_replay(&first, &order.send().await);
        }
    })
    .await;
}

#[tokio::test]
async fn keys_are_compared_byte_by_byte() {
    // K6
    Site::on_each(LAB, &[], async |site| {
        let keys = [
            "AbC1",
            "aBc1",
            "abc1",
            "abc1_",
            "abc%",
            "abc1 x",
            "'; DROP TABLE x; --",
        ];
        for key in keys {
            let quoted = format!("\"{key}\"");
            site.post("/default")
                .key(&quoted)
                .json("{}")
                .send()
                .await
                .assert_created();
        }
        for key in keys {
            assert_eq!(site.journal.effects(key), 1, "{key}");
        }
    })
    .await;
}

/// Visible text that no store can shorten.
fn random_text(length: usize) -> String {
    (0..length)
        .map(|_| char::from(rand::random_range(b'a'..=b'z')))
        .collect()
}
