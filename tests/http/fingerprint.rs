//! What counts as the same request.

use crate::LAB;
use idem_tests::harness::{Call, Reply, Site, assert_replay};
use std::time::{Duration, Instant};

/// What becomes of a second request with the same key.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    Same,
    Other,
}
use Then::{Other, Same};

async fn assert_then(first: &Call, second: &Call, then: Then, what: &str) -> Reply {
    let one = first.send().await;
    assert_eq!(one.status, 201, "{what}: {one:?}");
    assert!(!one.is_replay(), "{what}: {one:?}");
    let two = second.send().await;
    match then {
        Same => {
            assert!(two.is_replay(), "{what}: {two:?}");
            assert_replay(&one, &two);
        }
        Other => {
            assert_eq!(
                two.problem().as_deref(),
                Some("key-reused"),
                "{what}: {two:?}"
            );
            two.assert_problem(422, "key-reused");
        }
    }
    two
}

/// Two JSON texts under one key on one route.
async fn assert_json(site: &Site, path: &str, pairs: &[(&str, &str, Then)]) {
    for (index, (one, two, then)) in pairs.iter().enumerate() {
        let order = site.post(path).key(&format!("json-{index}"));
        let what = format!("{path}: {one} and {two}");
        let (first, second) = (
            order.clone().json((*one).to_owned()),
            order.json((*two).to_owned()),
        );
        assert_then(&first, &second, *then, &what).await;
    }
}

#[tokio::test]
async fn json_is_compared_by_its_meaning() {
    // D1, D5, D13, P12, P13, P15
    Site::on_each(LAB, &[], async |site| {
        assert_json(
            &site,
            "/default",
            &[
                (r#"{"a":1,"b":{"x":1,"y":2}}"#, r#"{"b":{"y":2,"x":1},"a":1}"#, Same),
                (r#"{"a":1}"#, "{ \"a\" :\n\t1 }", Same),
                (r#"{"a":"A"}"#, "{\"a\":\"\\u0041\"}", Same),
                (r#"{"a":"/"}"#, r#"{"a":"\/"}"#, Same),
                (r#"{"a":1}"#, r#"{"a":1.0}"#, Same),
                (r#"{"a":100}"#, r#"{"a":1e2}"#, Same),
                (r#"{"a":1000}"#, r#"{"a":1001}"#, Other),
                (r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992}"#, Other),
                (r#"{"a":0.1}"#, r#"{"a":0.1000000000000000055511151231257827}"#, Other),
                (r#"{"a":1e999999999}"#, r#"{"a":1e999999998}"#, Other),
                (r#"[1,2]"#, r#"[2,1]"#, Other),
                (r#"{"a":null}"#, r#"{}"#, Other),
                (r#"{"a":1}"#, r#"{"a":"1"}"#, Other),
                ("{\"a\":\"\u{e9}\"}", "{\"a\":\"e\u{301}\"}", Other),
                (r#"{"a":1,"a":2}"#, r#"{"a":2}"#, Other),
                // From the public vectors of RFC 8785.
                (
                    r#"{"1":{"f":{"f":"hi","F":5},"\n":56.0},"10":{},"":"empty","a":{},"111":[{"e":"yes","E":"no"}],"A":{}}"#,
                    r#"{"":"empty","1":{"\n":56,"f":{"F":5,"f":"hi"}},"10":{},"111":[{"E":"no","e":"yes"}],"A":{},"a":{}}"#,
                    Same,
                ),
                (
                    r#"{"peach":"This sorting order","péché":"is wrong according to French","pêche":"but canonicalization MUST","sin":"ignore locale"}"#,
                    r#"{"sin":"ignore locale","pêche":"but canonicalization MUST","péché":"is wrong according to French","peach":"This sorting order"}"#,
                    Same,
                ),
                (
                    "{\"\\u20ac\":\"Euro Sign\",\"\\r\":\"Carriage Return\",\"\\ufb33\":\"Hebrew\",\"1\":\"One\",\"\\ud83d\\ude00\":\"Smiley\"}",
                    "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"€\":\"Euro Sign\",\"😀\":\"Smiley\",\"\u{fb33}\":\"Hebrew\"}",
                    Same,
                ),
            ],
        )
        .await;
        assert_json(
            &site,
            "/raw",
            &[
                (r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2}"#, Same),
                (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, Other),
                (r#"{"a":1}"#, r#"{"a": 1}"#, Other),
            ],
        )
        .await;
        assert_json(
            &site,
            "/ignore",
            &[
                (r#"{"a":1,"client_ts":1}"#, r#"{"client_ts":2,"a":1}"#, Same),
                (r#"{"a":1,"client_ts":1}"#, r#"{"a":1}"#, Same),
                (r#"{"a":1,"b":{"client_ts":1}}"#, r#"{"a":1,"b":{"client_ts":2}}"#, Other),
                (r#"{"a":1,"client_ts":1}"#, r#"{"a":2,"client_ts":1}"#, Other),
            ],
        )
        .await;
    })
    .await;
}

#[tokio::test]
async fn another_body_is_refused_while_running_and_after_and_never_runs() {
    // D3, F7, P7
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/default").key("k");
        let first = order
            .clone()
            .json(r#"{"amount":31337}"#)
            .delay_ms(1500)
            .spawn();
        site.journal.wait_for("start", "k").await;
        let other = order.clone().json(r#"{"amount":4242}"#);
        let running = other.send().await;
        running.assert_problem(422, "key-reused");
        assert!(!first.is_finished(), "the first was to be still running");
        let first = first.await.unwrap();
        first.assert_created();
        let finished = other.send().await;
        finished.assert_problem(422, "key-reused");
        let own = first.json();
        for told in [&running, &finished] {
            let text = format!("{:?} {}", told.headers, String::from_utf8_lossy(&told.body));
            for secret in [
                "31337",
                &own["id"].to_string(),
                own["nonce"].as_str().unwrap(),
                own["body_sha256"].as_str().unwrap(),
            ] {
                assert!(!text.contains(secret), "{secret} in {text}");
            }
        }
        assert_eq!(site.journal.effects("k"), 1);
        // The route chooses the status; the problem is the same.
        let order = site.post("/mismatch-409").key("k");
        order.clone().json("1").send().await.assert_created();
        order
            .json("2")
            .send()
            .await
            .assert_problem(409, "key-reused");
    })
    .await;
}

#[tokio::test]
async fn the_query_belongs_to_the_request_and_the_callers_headers_do_not() {
    // D7, D15, P10, P11, P14
    Site::on_each(LAB, &[], async |site| {
        let order = |key: &str| site.post("/default").key(key).json(r#"{"a":1}"#);
        let dry = order("query").path("/default?dry_run=1");
        assert_then(&dry, &order("query"), Other, "query").await;
        let other_agent = order("headers")
            .header("user-agent", "another")
            .header("accept", "text/html")
            .header(
                "traceparent",
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            )
            .header("date", "Mon, 30 Nov 2026 14:40:34 GMT");
        assert_then(&order("headers"), &other_agent, Same, "headers").await;
        let rotated = order("token").user("alice@elsewhere");
        assert_then(
            &order("token"),
            &rotated,
            Same,
            "a new token of the same user",
        )
        .await;
        let charset = order("charset").header("content-type", "application/json; charset=utf-8");
        assert_then(&order("charset"), &charset, Same, "charset").await;
        let patch = order("type").header("content-type", "application/merge-patch+json");
        assert_then(&order("type"), &patch, Other, "type").await;
        let put = |path: &str| {
            let call = site.call(reqwest::Method::PUT, path);
            call.key("path").json("{}")
        };
        assert_then(
            &put("/default/a%2fb"),
            &put("/default/%61%2Fb"),
            Same,
            "spelling of the path",
        )
        .await;
        // Without a key nothing else stands in for it.
        let call = site.post("/default").json("{}").header("x-request-id", "7");
        let (one, two) = (call.send().await, call.json("[]").send().await);
        one.assert_created();
        two.assert_created();
    })
    .await;
}

#[tokio::test]
async fn every_type_of_body_has_a_fingerprint() {
    // D10
    Site::on_each(LAB, &[], async |site| {
        let multipart = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n";
        for (index, (content_type, one, other)) in [
            ("text/plain", "one", "other"),
            ("text/plain; charset=iso-8859-1", "one", "other"),
            ("application/octet-stream", "\u{0}\u{1}", "\u{0}\u{2}"),
            ("application/x-www-form-urlencoded", "a=1&b=2", "b=2&a=1"),
            ("multipart/form-data; boundary=b", multipart, "--b--\r\n"),
            ("multipart/form-data", "no boundary", "no boundary either"),
            ("application/json", "{", "{ "),
            ("not a type", "one", "other"),
        ]
        .into_iter()
        .enumerate()
        {
            let order = site.post("/default").key(&format!("type-{index}"));
            let call = order.clone().body(content_type, one);
            assert_then(&call, &call, Same, content_type).await;
            let reused = order.body(content_type, other).send().await;
            reused.assert_problem(422, "key-reused");
        }
        let untyped = site.post("/default").key("untyped");
        assert_then(&untyped, &untyped, Same, "no type, no body").await;
        let empty = site.post("/default").key("empty").json("");
        assert_then(&empty, &empty, Same, "an empty body").await;
    })
    .await;
}

#[tokio::test]
async fn multipart_is_compared_by_its_parts() {
    // D11
    Site::on_each(LAB, &[], async |site| {
        let parts = |boundary: &str, content: &str| {
            format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nhello\r\n\
                 --{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\
                 Content-Type: text/plain\r\n\r\n{content}\r\n--{boundary}--\r\n"
            )
        };
        let order = |path: &str, key: &str, boundary: &str, content: &str| {
            let content_type = format!("multipart/form-data; boundary={boundary}");
            site.post(path).key(key).body(&content_type, parts(boundary, content))
        };
        for path in ["/multipart", "/default"] {
            let first = order(path, "k", "aaaa", "content");
            assert_then(&first, &order(path, "k", "bbbb", "content"), Same, path).await;
            order(path, "k", "cccc", "contenT").send().await.assert_problem(422, "key-reused");
        }
        let first = order("/raw", "k", "aaaa", "content");
        assert_then(&first, &order("/raw", "k", "bbbb", "content"), Other, "/raw").await;
    })
    .await;
}

#[tokio::test]
async fn how_a_body_is_cut_into_chunks_does_not_matter() {
    // P24
    Site::on_each(LAB, &[], async |site| {
        let body = r#"{"amount":1500,"currency":"RUB"}"#;
        let mut text = format!(
            "POST /default HTTP/1.1\r\nHost: lab\r\nAuthorization: {}\r\nIdempotency-Key: k\r\n\
             Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
            site.token("alice")
        );
        for byte in body.chars() {
            text.push_str(&format!("1\r\n{byte}\r\n"));
        }
        text.push_str("0\r\n\r\n");
        let mut connection = site.connect().await;
        connection.send(text.as_bytes()).await.unwrap();
        let first = connection.reply().await;
        assert_eq!(first.status, 201);
        let again = site.post("/default").key("k").json(body).send().await;
        assert!(again.is_replay(), "{again:?}");
        assert_eq!(again.body, first.body);
    })
    .await;
}

#[tokio::test]
async fn hostile_bodies_have_a_stable_fingerprint_and_stall_nothing() {
    // P21
    let members: String = (0..50_000).map(|n| format!("\"m{n}\":{n},")).collect();
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        ("nested", [vec![b'['; 10_000], vec![b']'; 10_000]].concat()),
        ("unclosed", vec![b'{'; 10_000]),
        (
            "digits",
            [b"[".to_vec(), vec![b'7'; 100_000], b"]".to_vec()].concat(),
        ),
        ("exponent", b"[1e999999999]".to_vec()),
        ("tiny exponent", b"[1e-999999999999999999999]".to_vec()),
        ("members", format!("{{{}\"z\":1}}", members).into_bytes()),
        ("invalid UTF-8", b"{\"a\":\"\xff\xfe\"}".to_vec()),
        ("lone surrogate", b"{\"a\":\"\\ud800\"}".to_vec()),
        ("BOM", b"\xef\xbb\xbf{\"a\":1}".to_vec()),
        ("NUL", b"{\"a\":\"\x00\"}".to_vec()),
    ];
    Site::on_each(LAB, &[], async |site| {
        for (index, (what, body)) in bodies.iter().enumerate() {
            let order = site
                .post("/default")
                .key(&format!("hostile-{index}"))
                .json(body.clone());
            let begun = Instant::now();
            assert_then(&order, &order, Same, what).await;
            // Far above what it takes and far below what quadratic work would take.
            assert!(
                begun.elapsed() < Duration::from_secs(5),
                "{what}: {:?}",
                begun.elapsed()
            );
        }
        assert!(!site.lab.log().contains("panicked"), "{}", site.lab.log());
    })
    .await;
}

#[tokio::test]
async fn an_invalid_body_is_the_extractors_business() {
    // P13, H2
    Site::on_each(LAB, &[], async |site| {
        let order = site.post("/json").key("k");
        let refused = order.clone().json("{\"a\":").send().await;
        let bare = order.clone().without_key().json("{\"a\":").send().await;
        assert_eq!(refused.status, 400);
        assert_eq!(refused.problem(), None);
        assert_eq!((refused.status, &refused.body), (bare.status, &bare.body));
        assert!(site.records().await.is_empty(), "the key is spent");
        order.json("{\"a\":1}").send().await.assert_created();
    })
    .await;
}
