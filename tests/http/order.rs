//! The order in which a request is checked.

use crate::LAB;
use idem_tests::harness::{Site, assert_replay};

#[tokio::test]
async fn a_refusal_before_the_handler_leaves_the_key_unspent() {
    Site::on_each(LAB, &[], async |site| {
        let json = site.post("/json").key("k").json(r#"{"a":1}"#);
        // Syntax of the key first, then the caller, the body, the extractors.
        let both = json.clone().header("idempotency-key", "\"").json("{");
        both.send().await.assert_problem(400, "key-invalid");
        assert_eq!(json.clone().json("{").send().await.status, 400);
        let unknown_knob = json.clone().respond("nonsense").send().await;
        assert_eq!(unknown_knob.status, 400);
        assert_eq!(unknown_knob.problem(), None);
        let wrong_type = json.clone().body("text/plain", "{}").send().await;
        assert!(wrong_type.status.is_client_error() && wrong_type.problem().is_none());
        assert!(site.records().await.is_empty());
        let first = json.send().await;
        first.assert_created();
        // The extractors come before the record: a retry that they refuse gets their answer.
        assert_eq!(json.clone().respond("nonsense").send().await.status, 400);
        assert_replay(&first, &json.send().await);
    })
    .await;
}

#[tokio::test]
async fn in_progress_is_an_answer_to_the_moment_and_is_not_kept() {
    // P9
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/default").key("k").json("{}");
        let running = order.clone().delay_ms(1000).spawn();
        site.journal.wait_for("start", "k").await;
        order.send().await.assert_problem(409, "in-progress");
        let first = running.await.unwrap();
        assert_replay(&first, &order.send().await);
    })
    .await;
}

#[tokio::test]
async fn a_connection_serves_on_after_every_kind_of_answer() {
    Site::on_each(LAB, &[], async |site| {
        let mut connection = site.connect().await;
        let mut all = Vec::new();
        let keys: [&[u8]; 5] = [b"a", b"a", b"\"", b"b", b"b"];
        for key in keys {
            let headers: [(&str, &[u8]); 2] =
                [("Idempotency-Key", key), ("Content-Type", b"text/plain")];
            all.extend_from_slice(&site.raw_post("/default", &headers, b"body"));
        }
        // All at once: pipelined.
        connection.send(&all).await.unwrap();
        let mut replays = Vec::new();
        for _ in keys {
            let reply = connection.reply().await;
            replays.push((reply.status, reply.is_replay()));
        }
        assert_eq!(
            replays,
            [
                (201, false),
                (201, true),
                (400, false),
                (201, false),
                (201, true)
            ]
        );
    })
    .await;
}

#[tokio::test]
async fn a_client_that_waits_for_leave_to_send_its_body_gets_it_first_and_again() {
    // Expect: 100-continue (RFC 9110, section 10.1.1)
    Site::on_each(LAB, &[], async |site| {
        let mut connection = site.connect().await;
        let head = |path: &str, key: &str, length: usize| {
            format!(
                "POST {path} HTTP/1.1\r\nHost: lab\r\nAuthorization: {}\r\n\
                 Idempotency-Key: {key}\r\nContent-Type: text/plain\r\n\
                 Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n",
                site.token("alice")
            )
        };
        // Extractors that take the body, and one that leaves it to the handler.
        for path in ["/default", "/payload"] {
            let mut bodies = Vec::new();
            for turn in 0..2 {
                connection
                    .send(head(path, "k", 4).as_bytes())
                    .await
                    .unwrap();
                let leave = connection.reply().await;
                assert_eq!(leave.status, 100, "{path} {turn}");
                connection.send(b"body").await.unwrap();
                let answer = connection.reply().await;
                assert_eq!(answer.status, 201, "{path} {turn}");
                assert_eq!(answer.is_replay(), turn == 1, "{path}");
                bodies.push(answer.body);
            }
            assert_eq!(bodies[0], bodies[1], "{path}");
            assert_eq!(
                site.journal.effects("k"),
                if path == "/default" { 1 } else { 2 }
            );
        }
        // Whoever asks for leave to send too much, or under no key, is told before it sends.
        for (key, length, status) in [("large", 2 << 20, 413), ("\"", 4, 400)] {
            let mut connection = site.connect().await;
            connection
                .send(head("/default", key, length).as_bytes())
                .await
                .unwrap();
            let mut answer = connection.reply().await;
            if answer.status == 100 {
                answer = connection.reply().await;
            }
            assert_eq!(answer.status, status);
        }
        assert_eq!(site.journal.all_effects(), 2);
    })
    .await;
}
