//! The lab keeps its own promises: a suite on a broken instrument proves nothing.

use crate::LAB;
use idem_tests::{
    harness::{Site, transactional},
    services::selected,
};
use reqwest::{Method, StatusCode};
use std::process::{Command, Stdio};

#[test]
fn what_the_lab_cannot_do_is_one_line_and_exit_2() {
    for (flags, said, lab) in [
        (&["--no-such-flag"][..], "--no-such-flag"),
        (&["--store", "mongodb://localhost"], "mongodb"),
        (&["--store", "nothing"], "nothing"),
        (&["--store", "memory:x"], "write memory: without \"x\""),
        (
            &["--store", "sqlite:/no/such/folder/records.db"],
            "unavailable",
        ),
        (&["--lease", "soon"], "--lease"),
        // C2: a lease of nothing is not taken for "none given".
        (&["--lease", "0"], "too short"),
        (&["--heartbeat", "maybe"], "--heartbeat"),
        (&["--bind", "203.0.113.1:1"], "203.0.113.1:1"),
        (&["--journal", "/no/such/folder/journal"], "journal"),
        (&["--store", "postgres://u:p@127.0.0.1:1/db"], "refused"),
        (&["--store", "mysql://u:p@127.0.0.1:1/db"], "refused"),
        (&["--store", "redis://127.0.0.1:1/"], "refused"),
        (&["--store", "redis-cluster://127.0.0.1:1"], "refused"),
    ]
    // A server that is not there is waited for, so all at once.
    .map(|(flags, said)| {
        let lab = Command::new(LAB)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        (flags, said, lab.unwrap())
    }) {
        let ended = lab.wait_with_output().unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{flags:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{flags:?}: {error}");
        assert!(error.contains(said), "{flags:?}: {error}");
        assert!(ended.stdout.is_empty(), "{flags:?}");
    }
}

#[tokio::test]
async fn a_store_without_transactions_is_said_to_have_none() {
    let mut stores = selected();
    stores.retain(|store| !transactional().contains(store));
    Site::on_these(stores, LAB, &[], async |site| {
        let reply = site.post("/transactional").key("k").send().await;
        assert_eq!(reply.status, StatusCode::NOT_IMPLEMENTED);
        assert_eq!(reply.json()["status"], 501);
        assert!(site.orders().await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn the_journal_tells_every_phase_of_a_run() {
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/tenant").user("alice@acme").key("k");
        let reply = order.json(r#"{"a":1}"#).send().await;
        reply.assert_created();
        let lines = site.journal.lines();
        let phases: Vec<_> = lines.iter().map(|line| line.phase.as_str()).collect();
        assert_eq!(phases, ["start", "effect", "end"]);
        for line in &lines {
            assert_eq!(line.run, lines[0].run);
            assert_eq!(line.route, "POST /tenant");
            assert_eq!(line.tenant.as_deref(), Some("acme"));
            assert_eq!(line.key.as_deref(), Some("k"));
            assert_eq!(line.attempt, 1);
            assert_eq!(line.body_sha256, reply.json()["body_sha256"]);
            assert!(uuid::Uuid::parse_str(&line.downstream_key).is_ok());
        }
    })
    .await;
}

#[tokio::test]
async fn callers_without_a_proper_token_are_turned_away() {
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/default").key("k");
        for token in [
            "Bearer",
            "Bearer ",
            "Bearer @acme",
            "Bearer a@",
            "Bearer a@b@c",
            "Basic a",
            "a",
        ] {
            let reply = order.clone().header("authorization", token).send().await;
            assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{token:?}");
        }
        // Before anything else: not even a malformed key is looked at.
        let reply = order
            .clone()
            .anonymous()
            .header("idempotency-key", "\"")
            .send()
            .await;
        assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
        let reply = order.anonymous().path("/no/such/path").send().await;
        assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
        assert!(site.journal.lines().is_empty());
    })
    .await;
}

#[tokio::test]
async fn bodies_reach_their_extractor_byte_for_byte() {
    // M1, for what the lab has a route for.
    Site::on_each(LAB, &[], async |site| {
        for (path, content_type, body) in [
            ("/json", "application/json", r#"{"b":1,  "a":[1.0]}"#),
            (
                "/form",
                "application/x-www-form-urlencoded",
                "b=1&a=x%2By&a=z",
            ),
            ("/text", "text/plain; charset=utf-8", "ключ €"),
            ("/payload", "application/octet-stream", "anything"),
            ("/default", "application/octet-stream", "anything"),
        ] {
            let order = site.post(path).body(content_type, body);
            let bare = order.send().await;
            let protected = order.key("k").send().await;
            bare.assert_created();
            protected.assert_created();
            let expected = sha256(body.as_bytes());
            assert_eq!(bare.json()["body_sha256"], expected, "{path} without a key");
            assert_eq!(
                protected.json()["body_sha256"],
                expected,
                "{path} with a key"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn the_operator_sees_records_without_keys_and_bodies_and_can_forget_one() {
    // C3, N2: an operator frees one key.
    Site::on_each(LAB, &[], async |site| {
        let order = site
            .post("/default")
            .key("very-secret-key")
            .json(r#"{"card":"4111"}"#);
        let first = order.send().await;
        first.assert_created();
        let listed = site.call(Method::GET, "/lab/records").send().await;
        let text = String::from_utf8(listed.body.to_vec()).unwrap();
        assert!(
            !text.contains("very-secret-key") && !text.contains("4111"),
            "{text}"
        );
        let records = site.records().await;
        assert_eq!(records.len(), 1);
        assert_eq!(records[0]["route"], "POST /default");
        assert_eq!(records[0]["state"], "COMPLETED");
        assert_eq!(records[0]["attempt"], 1);
        let path = format!("/lab/records/{}", records[0]["digest"].as_str().unwrap());
        let forget = site.call(Method::DELETE, &path);
        assert_eq!(forget.send().await.status, StatusCode::NO_CONTENT);
        assert_eq!(forget.send().await.status, StatusCode::NOT_FOUND);
        let again = order.send().await;
        again.assert_created();
        assert_ne!(again.id(), first.id());
    })
    .await;
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    let hash = sha2::Sha256::digest(bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
