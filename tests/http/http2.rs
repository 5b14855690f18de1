//! The contract over HTTP/2 without TLS, where a stream is what a connection is to HTTP/1.

use crate::LAB;
use bytes::Bytes;
use h2::{
    Reason, SendStream,
    client::{ResponseFuture, SendRequest, handshake},
};
use http::{HeaderMap, Request};
use idem_tests::harness::{PATIENCE, Reply, Site, assert_replay, eventually};
use std::net::SocketAddr;
use tokio::{net::TcpStream, task::JoinHandle, time::timeout};

const JSON: &str = r#"{"a":1}"#;

/// A connection.
struct Http2 {
    address: SocketAddr,
    requests: SendRequest<Bytes>,
    connection: JoinHandle<()>,
}

impl Http2 {
    async fn open(address: SocketAddr) -> Http2 {
        let stream = TcpStream::connect(address).await.unwrap();
        let (requests, connection) = handshake(stream).await.unwrap();
        let connection = tokio::spawn(async move {
            // It ends with the test, or because the test ends it.
            let _ = connection.await;
        });
        Http2 {
            address,
            requests,
            connection,
        }
    }

    /// A POST of alice's to `path` with these fields.
    fn post(&self, site: &Site, path: &str, fields: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::post(format!("http://{}{path}", self.address))
            .header("authorization", site.token("alice"))
            .header("content-type", "application/json");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    async fn begin(&self, request: Request<()>, ends: bool) -> (ResponseFuture, SendStream<Bytes>) {
        let mut requests = self.requests.clone().ready().await.unwrap();
        requests.send_request(request, ends).unwrap()
    }

    async fn ask(&self, request: Request<()>, body: impl Into<Bytes>) -> Reply {
        let (answer, mut sending) = self.begin(request, false).await;
        sending.send_data(body.into(), true).unwrap();
        reply(answer).await
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

async fn reply(answer: ResponseFuture) -> Reply {
    let receive = async {
        let (head, mut body) = answer.await.unwrap().into_parts();
        let mut bytes = Vec::new();
        while let Some(chunk) = body.data().await {
            let chunk = chunk.unwrap();
            body.flow_control().release_capacity(chunk.len()).unwrap();
            bytes.extend_from_slice(&chunk);
        }
        Reply {
            status: head.status,
            headers: head.headers,
            body: bytes.into(),
        }
    };
    timeout(PATIENCE, receive).await.expect("an answer in time")
}

#[tokio::test]
async fn the_first_answer_is_replayed_whatever_version_it_was_made_in() {
    Site::on_each(LAB, &["--h2c"], async |site| {
        let http2 = Http2::open(site.address()).await;
        for (respond, kept) in [
            ("status:201", true),
            ("headers", true),
            ("bytes256", true),
            ("empty", true),
            ("null", true),
            ("large:300000", true),
            ("stream:200", true),
            ("err:402", true),
            ("panic", true),
            ("sse", false),
        ] {
            let key = ["h2-", respond].concat();
            let ask = async |how: &[(&str, &str)]| {
                let fields = [&[("idempotency-key", key.as_str())], how].concat();
                http2
                    .ask(http2.post(&site, "/default", &fields), JSON)
                    .await
            };
            let first = ask(&[("x-lab-respond", respond)]).await;
            let again = ask(&[]).await;
            let older = site.post("/default").key(&key).json(JSON).send().await;
            if kept {
                assert_replay(&first, &again);
                assert_replay(&first, &older);
            } else {
                again.assert_problem(409, "response-not-retained");
                older.assert_problem(409, "response-not-retained");
                continue;
            }
            assert_eq!(site.journal.effects(&key), 1, "{respond}");
            // And the other way round.
            let key = ["h1-", respond].concat();
            let call = site.post("/default").key(&key).json(JSON);
            let first = call.respond(respond).send().await;
            let fields = [("idempotency-key", key.as_str())];
            let again = http2
                .ask(http2.post(&site, "/default", &fields), JSON)
                .await;
            assert_replay(&first, &again);
            assert_eq!(site.journal.effects(&key), 1, "{respond}");
        }
        let without = http2.post(&site, "/default", &[]);
        http2.ask(without, JSON).await.assert_created();
    })
    .await;
}

#[tokio::test]
async fn streams_of_one_connection_are_requests_of_their_own() {
    Site::on_each(LAB, &["--h2c"], async |site| {
        let http2 = Http2::open(site.address()).await;
        let fields = [("idempotency-key", "k"), ("x-lab-delay-ms", "1500")];
        let (running, mut body) = http2
            .begin(http2.post(&site, "/default", &fields), false)
            .await;
        body.send_data(JSON.into(), true).unwrap();
        site.journal.wait_for("start", "k").await;
        let post = || http2.post(&site, "/default", &[("idempotency-key", "k")]);
        let busy = http2.ask(post(), JSON).await;
        busy.assert_problem(409, "in-progress");
        assert!(busy.text("retry-after").parse::<u64>().unwrap() >= 1);
        let other = http2.ask(post(), "{}").await;
        other.assert_problem(422, "key-reused");
        let first = reply(running).await;
        first.assert_created();
        assert_replay(&first, &http2.ask(post(), JSON).await);
        // Many at once under one key.
        let twenty = (0..20).map(|_| async {
            let fields = [("idempotency-key", "race"), ("x-lab-delay-ms", "100")];
            http2.ask(http2.post(&site, "/wait", &fields), JSON).await
        });
        let all = futures_util::future::join_all(twenty).await;
        let first = all.iter().find(|reply| !reply.is_replay()).unwrap();
        first.assert_created();
        assert!(all.iter().all(|reply| reply.body == first.body), "{all:?}");
        assert_eq!(site.journal.effects("race"), 1);
        // What is no key is no key in any version.
        for (wrong, slug) in [
            ("\"", "key-invalid"),
            ("a, b", "key-invalid"),
            ("", "key-invalid"),
        ] {
            let request = http2.post(&site, "/default", &[("idempotency-key", wrong)]);
            http2.ask(request, JSON).await.assert_problem(400, slug);
        }
        let twice = [("idempotency-key", "a"), ("idempotency-key", "a")];
        let request = http2.post(&site, "/default", &twice);
        http2
            .ask(request, JSON)
            .await
            .assert_problem(400, "key-invalid");
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_its_client_resets_is_finished_all_the_same() {
    // B2
    Site::on_each(LAB, &["--h2c"], async |site| {
        for (turn, ends_connection) in [false, true].into_iter().enumerate() {
            let key = format!("k{turn}");
            let http2 = Http2::open(site.address()).await;
            let fields = [("idempotency-key", key.as_str()), ("x-lab-delay-ms", "600")];
            let request = http2.post(&site, "/default", &fields);
            let (running, mut body) = http2.begin(request, false).await;
            body.send_data(JSON.into(), true).unwrap();
            site.journal.wait_for("start", &key).await;
            if ends_connection {
                drop(http2);
            } else {
                body.send_reset(Reason::CANCEL);
            }
            drop(running);
            let order = site.post("/default").key(&key).json(JSON);
            order.send().await.assert_problem(409, "in-progress");
            site.journal.wait_for("end", &key).await;
            let again = eventually(&key, async || {
                let again = order.send().await;
                again.is_replay().then_some(again)
            })
            .await;
            assert_eq!(again.status, 201);
            assert_eq!(site.journal.effects(&key), 1);
        }
        // In the middle of the answer, which is longer than the window.
        let http2 = Http2::open(site.address()).await;
        let fields = [
            ("idempotency-key", "answer"),
            ("x-lab-respond", "stream:900"),
        ];
        let request = http2.post(&site, "/default", &fields);
        let (answer, mut body) = http2.begin(request, false).await;
        body.send_data(JSON.into(), true).unwrap();
        let mut received = timeout(PATIENCE, answer)
            .await
            .unwrap()
            .unwrap()
            .into_body();
        assert!(received.data().await.is_some());
        body.send_reset(Reason::CANCEL);
        drop(received);
        let order = site.post("/default").key("answer").json(JSON);
        let again = eventually("the rest", async || {
            let again = order.send().await;
            again.is_replay().then_some(again)
        })
        .await;
        assert_eq!(again.body.len(), 900 * 1024);
        assert_eq!(site.journal.effects("answer"), 1);
    })
    .await;
}

#[tokio::test]
async fn bodies_are_limited_and_must_be_whole() {
    // J2, P5, P23
    Site::on_each(LAB, &["--h2c"], async |site| {
        let http2 = Http2::open(site.address()).await;
        let fields = |length: &'static str| {
            let all = [("idempotency-key", "k"), ("content-length", length)];
            all[..if length.is_empty() { 1 } else { 2 }].to_vec()
        };
        // Announced: refused although not one byte of it is sent.
        let request = http2.post(&site, "/default", &fields("2097152"));
        let (answer, body) = http2.begin(request, false).await;
        reply(answer).await.assert_problem(413, "body-too-large");
        drop(body);
        // Not announced: refused when the limit is passed.
        let request = http2.post(&site, "/default", &fields(""));
        let (answer, mut body) = http2.begin(request, false).await;
        for _ in 0..128 {
            // The server may end the stream at any of them.
            if body.send_data(vec![b'x'; 0x4000].into(), false).is_err() {
                break;
            }
        }
        reply(answer).await.assert_problem(413, "body-too-large");
        // Given up in the middle.
        let request = http2.post(&site, "/default", &fields(""));
        let (answer, mut body) = http2.begin(request, false).await;
        body.send_data("{\"a\":".into(), false).unwrap();
        body.send_reset(Reason::CANCEL);
        assert!(timeout(PATIENCE, answer).await.unwrap().is_err());
        assert!(site.records().await.is_empty(), "a claim is left");
        assert!(site.journal.lines().is_empty(), "the handler ran");
        // In pieces and at the limit it is a body like any other.
        let request = http2.post(&site, "/default", &fields(""));
        let (answer, mut body) = http2.begin(request, false).await;
        let whole = vec![b' '; 1 << 20];
        for piece in whole.chunks(10_000) {
            body.send_data(piece.to_vec().into(), false).unwrap();
        }
        body.send_data(Bytes::new(), true).unwrap();
        let first = reply(answer).await;
        first.assert_created();
        let again = site.post("/default").key("k").json(whole).send().await;
        assert_replay(&first, &again);
        // A key in the trailer comes too late to be one.
        let (answer, mut body) = http2.begin(http2.post(&site, "/default", &[]), false).await;
        body.send_data(JSON.into(), false).unwrap();
        let mut trailer = HeaderMap::new();
        trailer.insert("idempotency-key", "late".parse().unwrap());
        body.send_trailers(trailer).unwrap();
        reply(answer).await.assert_created();
        assert_eq!(site.records().await.len(), 1);
    })
    .await;
}
