//! Many who wait for one key that is freed again and again.

use actix_web::{App, HttpResponse, web};
use idem_runtime::{
    Idempotency, idempotent, outcome,
    testing::{CountingStore, Method},
};
use idem_tests::{
    harness::{Connection, InProcess, RawReply, each, request, scaled},
    services::{self, selected},
    stores,
};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

const WAIT: Duration = Duration::from_millis(200);
const CLIENTS: usize = 20;
/// Twenty of these, one after the other, last far longer than anybody may wait.
const HANDLER: Duration = Duration::from_millis(200);
/// What a busy machine adds.
const SLACK: Duration = Duration::from_secs(2);
/// The most store calls that one who waits may make.
const MOST_CALLS: u64 = 10;

#[idempotent(scope = "user", ttl = "24h", wait = "200ms")]
async fn always_fails() -> HttpResponse {
    sleep(HANDLER).await;
    outcome::release(HttpResponse::ServiceUnavailable().finish())
}

async fn post(app: &InProcess) -> (RawReply, Duration) {
    let headers: [(&str, &[u8]); 2] = [("Authorization", b"alice"), ("Idempotency-Key", b"k")];
    let begun = Instant::now();
    let mut connection = Connection::open(app.address).await;
    let sent = request("POST", "/", &headers, b"");
    connection.send(&sent).await.unwrap();
    (connection.reply().await, begun.elapsed())
}

#[tokio::test]
async fn who_waits_where_others_come_and_go_keeps_to_the_deadline_and_asks_at_most_ten_times() {
    // C15
    let rounds = scaled(5, 50);
    each(selected(), async |store| {
        let place = services::fresh(store).await;
        let asked = stores::Request {
            key_prefix: Some(format!("{}:", place.name())),
            ..stores::Request::of(place.url())
        };
        let counted = CountingStore::over(stores::open(&asked).await.unwrap().store);
        let idempotency = Idempotency::builder_on(Arc::new(counted.clone()))
            .scope("user", |_: actix_web::HttpRequest| Some("alice".to_owned()))
            .build()
            .unwrap();
        let app = InProcess::serve(place, move || {
            App::new()
                .app_data(idempotency.clone())
                .route("/", web::post().to(always_fails))
        });
        let app = &app;
        let clients = (0..CLIENTS).map(|_| async move {
            let mut times = Vec::new();
            for _ in 0..rounds {
                let (reply, took) = post(app).await;
                match reply.status {
                    503 => assert_eq!(reply.problem(), None, "{reply:?}"),
                    _ => assert_eq!(reply.problem().as_deref(), Some("in-progress"), "{reply:?}"),
                }
                times.push(took);
            }
            times
        });
        let all = futures_util::future::join_all(clients).await;
        let mut times: Vec<_> = all.into_iter().flatten().collect();
        times.sort();
        let (most, last) = (times[times.len() * 9 / 10], times[times.len() - 1]);
        // Nobody waits for a turn that does not come: that would be 4 s for the last.
        let longest = WAIT + HANDLER + SLACK;
        assert!(
            most <= longest,
            "{most:?} is the ninth of ten, {last:?} the longest"
        );
        let requests = u64::try_from(times.len()).unwrap();
        let calls = counted.calls(Method::Claim);
        assert!(
            calls <= requests * MOST_CALLS,
            "{calls} for {requests} requests"
        );
    })
    .await;
}
