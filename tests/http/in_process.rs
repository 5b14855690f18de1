//! What needs an application of its own: other configurations, return types, middleware.

use actix_web::{
    App, Either, Error, HttpRequest, HttpResponse, Responder,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    error::InternalError,
    http::StatusCode,
    middleware::{Next, from_fn},
    web::{self, Bytes, Json},
};
use idem_runtime::idempotent;
use idem_tests::{
    harness::{Connection, InProcess, RawReply, each, request, scaled},
    services::selected,
};
use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};

async fn post(app: &InProcess, path: &str, key: Option<&str>, body: &str) -> RawReply {
    post_as(app, path, key, "application/json", body).await
}

async fn post_as(
    app: &InProcess,
    path: &str,
    key: Option<&str>,
    content_type: &str,
    body: &str,
) -> RawReply {
    let mut headers: Vec<(&str, &[u8])> = vec![
        ("Authorization", b"alice"),
        ("Content-Type", content_type.as_bytes()),
    ];
    headers.extend(key.map(|key| ("Idempotency-Key", key.as_bytes())));
    let mut connection = Connection::open(app.address).await;
    connection
        .send(&request("POST", path, &headers, body.as_bytes()))
        .await
        .unwrap();
    connection.reply().await
}

/// A handler with the attribute and the same without, for each way to take a body.
macro_rules! takers {
    ($($annotated:ident, $bare:ident: $body:ty;)+) => {
        $(
            #[idempotent(scope = "user", ttl = "24h")]
            async fn $annotated(_body: $body) -> HttpResponse {
                HttpResponse::Created().finish()
            }

            async fn $bare(_body: $body) -> HttpResponse {
                HttpResponse::Created().finish()
            }
        )+

        fn takers(config: &mut web::ServiceConfig) {
            $(
                config
                    .route(concat!("/annotated/", stringify!($annotated)), web::post().to($annotated))
                    .route(concat!("/bare/", stringify!($annotated)), web::post().to($bare));
            )+
        }
    };
}

takers! {
    json, bare_json: Json<serde_json::Value>;
    form, bare_form: web::Form<Vec<(String, String)>>;
    bytes, bare_bytes: Bytes;
    text, bare_text: String;
    either, bare_either: Either<Json<serde_json::Value>, web::Form<Vec<(String, String)>>>;
    result, bare_result: Result<Json<serde_json::Value>, Error>;
}

#[tokio::test]
async fn the_applications_own_limits_and_error_handlers_stay_in_force() {
    // J3
    let long = "x".repeat(2048);
    let long_json = format!("{{\"a\":\"{long}\"}}");
    let long_form = format!("a={long}");
    let (is_json, is_form, is_text) = (
        "application/json",
        "application/x-www-form-urlencoded",
        "text/plain",
    );
    // Each with the status that the application's own rules give it.
    let cases: &[(&str, &str, &str, u16)] = &[
        ("json", is_json, &long_json, 418),
        ("json", is_json, "{", 418),
        ("json", is_json, "", 418),
        ("json", is_text, "{}", 418),
        ("json", is_json, "{}", 201),
        ("form", is_form, &long_form, 421),
        ("form", is_json, "a=1", 421),
        ("form", is_form, "a=1", 201),
        ("bytes", is_text, &long, 413),
        ("bytes", is_json, "short", 201),
        ("bytes", is_text, "short", 201),
        ("text", is_text, &long, 413),
        ("text", is_text, "short", 201),
        ("either", is_form, "a=1", 201),
        ("either", is_json, "{}", 201),
        ("either", is_json, "{", 418),
        // A handler that takes the error for a value answers itself.
        ("result", is_json, "{", 201),
    ];
    each(selected(), async |store| {
        let (builder, place) = InProcess::configuration(store).await;
        let idempotency = builder.build().unwrap();
        let app = InProcess::serve(place, move || {
            let mine = |status: StatusCode, error: String| {
                HttpResponse::build(status).body(format!("mine: {error}"))
            };
            let json = web::JsonConfig::default()
                .limit(1024)
                .error_handler(move |error, _| {
                    let answer = mine(StatusCode::IM_A_TEAPOT, error.to_string());
                    InternalError::from_response(error, answer).into()
                });
            let form = web::FormConfig::default()
                .limit(1024)
                .error_handler(move |error, _| {
                    let answer = mine(StatusCode::MISDIRECTED_REQUEST, error.to_string());
                    InternalError::from_response(error, answer).into()
                });
            App::new()
                .app_data(idempotency.clone())
                .app_data(json)
                .app_data(form)
                .app_data(web::PayloadConfig::new(1024))
                .configure(takers)
        });
        for (number, (taker, content_type, body, status)) in cases.iter().enumerate() {
            let key = format!("k{number}");
            let ask = async |path: &str, key: Option<&str>| {
                post_as(&app, &format!("{path}/{taker}"), key, content_type, body).await
            };
            let bare = ask("/bare", None).await;
            let annotated = ask("/annotated", Some(&key)).await;
            let what = format!("{taker} {content_type} {body:.20}");
            assert_eq!(bare.status, *status, "{what}: {bare:?}");
            assert_eq!(
                (annotated.status, &annotated.body),
                (bare.status, &bare.body),
                "{what}"
            );
            // A refusal leaves the key unspent, so it is no replay either.
            let again = ask("/annotated", Some(&key)).await;
            assert_eq!(
                (again.status, &again.body),
                (bare.status, &bare.body),
                "{what}"
            );
            assert_eq!(again.is_replay(), *status == 201, "{what}");
        }
    })
    .await;
}

#[idempotent(scope = "user", ttl = "24h")]
async fn with_fields() -> HttpResponse {
    let mut response = HttpResponse::Ok();
    for (name, value) in KEPT.iter().chain(OF_THE_EXCHANGE) {
        response.append_header((*name, *value));
    }
    response.body("text")
}

/// Fields that say something of the answer.
const KEPT: &[(&str, &str)] = &[
    ("content-disposition", "attachment; filename=\"a, b.csv\""),
    ("content-language", "de, en"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-own", "first"),
    ("x-own", "second"),
];

/// Fields that say something of the one exchange they came in.
const OF_THE_EXCHANGE: &[(&str, &str)] = &[
    ("connection", "x-hop"),
    ("x-hop", "1"),
    ("keep-alive", "timeout=5"),
    ("set-cookie", "a=1"),
    ("www-authenticate", "Bearer"),
    ("x-request-id", "1"),
    ("traceparent", "00-1-1-01"),
    ("ratelimit-remaining", "1"),
    ("x-ratelimit-remaining", "1"),
    ("server-timing", "db;dur=53"),
    ("access-control-allow-origin", "https://first.example"),
];

#[tokio::test]
async fn fields_of_the_one_exchange_are_left_out_of_replays() {
    // P16
    each(selected(), async |store| {
        let (builder, place) = InProcess::configuration(store).await;
        let idempotency = builder.build().unwrap();
        let app = InProcess::serve(place, move || {
            App::new()
                .app_data(idempotency.clone())
                .route("/", web::post().to(with_fields))
        });
        let first = post(&app, "/", Some("k"), "").await;
        let again = post(&app, "/", Some("k"), "").await;
        assert!(again.is_replay());
        let values = |reply: &RawReply, name: &str| -> Vec<Vec<u8>> {
            let fields = reply.headers.iter();
            let mut values: Vec<_> = fields
                .filter(|(known, _)| known == name)
                .map(|(_, value)| value.clone())
                .collect();
            values.sort();
            values
        };
        for (name, _) in KEPT {
            assert!(!values(&first, name).is_empty(), "{name}");
            assert_eq!(values(&again, name), values(&first, name), "{name}");
        }
        for (name, _) in OF_THE_EXCHANGE {
            assert!(values(&again, name).is_empty(), "{name}: {again:?}");
        }
        assert_eq!(values(&again, "date").len(), 1);
    })
    .await;
}

static LATE_RUNS: AtomicU32 = AtomicU32::new(0);

#[idempotent(scope = "user", ttl = "24h")]
async fn late(request: HttpRequest) -> impl Responder {
    sleep(Duration::from_millis(900)).await;
    LATE_RUNS.fetch_add(1, Ordering::SeqCst);
    let query = request.query_string().to_owned();
    HttpResponse::Ok()
        .content_type("text/csv; charset=utf-8")
        .body(format!("a,b\n{query},2\n"))
}

/// A timeout around the application, as a gateway has it.
async fn impatient(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    match timeout(Duration::from_millis(300), next.call(request)).await {
        Ok(answer) => answer.map(ServiceResponse::map_into_boxed_body),
        Err(_) => Err(InternalError::new("late", StatusCode::GATEWAY_TIMEOUT).into()),
    }
}

#[tokio::test]
async fn an_outer_timeout_does_not_touch_the_work_nor_its_answer() {
    // B9
    let before = LATE_RUNS.load(Ordering::SeqCst);
    let stores = selected();
    each(stores.clone(), async |store| {
        let (builder, place) = InProcess::configuration(store).await;
        let idempotency = builder.build().unwrap();
        let app = InProcess::serve(place, move || {
            App::new()
                .app_data(idempotency.clone())
                .route("/late", web::post().to(late))
                .wrap(from_fn(impatient))
        });
        assert_eq!(post(&app, "/late", Some("k"), "").await.status, 504);
        let deadline = Instant::now() + Duration::from_secs(20);
        let again = loop {
            let again = post(&app, "/late", Some("k"), "").await;
            if again.status == 200 {
                break again;
            }
            assert_eq!(again.problem().as_deref(), Some("in-progress"));
            assert!(Instant::now() < deadline);
            sleep(Duration::from_millis(100)).await;
        };
        assert!(again.is_replay());
        assert_eq!(
            again.header("content-type"),
            Some("text/csv; charset=utf-8")
        );
        assert_eq!(again.body, b"a,b\n,2\n");
    })
    .await;
    let runs = LATE_RUNS.load(Ordering::SeqCst) - before;
    assert_eq!(runs as usize, stores.len());
}

/// Whether the handler below is running for a store, and whether it ever ran twice at once.
#[derive(Default)]
struct Overlap {
    running: AtomicBool,
    runs: AtomicU32,
    overlaps: AtomicU32,
}

#[idempotent(scope = "user", ttl = "50ms")]
async fn exclusive(overlap: web::Data<Overlap>) -> HttpResponse {
    if overlap.running.swap(true, Ordering::SeqCst) {
        overlap.overlaps.fetch_add(1, Ordering::SeqCst);
    }
    overlap.runs.fetch_add(1, Ordering::SeqCst);
    sleep(Duration::from_millis(20)).await;
    overlap.running.store(false, Ordering::SeqCst);
    HttpResponse::Created().finish()
}

#[tokio::test]
async fn a_key_that_expires_again_and_again_never_runs_twice_at_once() {
    // A5
    let length = scaled(Duration::from_secs(3), Duration::from_secs(30));
    each(selected(), async |store| {
        let (builder, place) = InProcess::configuration(store).await;
        let idempotency = builder.build().unwrap();
        let overlap = web::Data::new(Overlap::default());
        let data = overlap.clone();
        let app = InProcess::serve(place, move || {
            App::new()
                .app_data(idempotency.clone())
                .app_data(data.clone())
                .route("/exclusive", web::post().to(exclusive))
        });
        let until = Instant::now() + length;
        let hammers = (0..8).map(|_| async {
            while Instant::now() < until {
                let reply = post(&app, "/exclusive", Some("k"), "").await;
                let running = reply.problem().as_deref() == Some("in-progress");
                assert!(reply.status == 201 || running, "{reply:?}");
            }
        });
        futures_util::future::join_all(hammers).await;
        assert_eq!(overlap.overlaps.load(Ordering::SeqCst), 0);
        let runs = overlap.runs.load(Ordering::SeqCst);
        assert!(runs > 5, "only {runs} runs: this tested nothing");
        // A run holds the key for the 50 ms that its answer lives.
        assert!(
            u128::from(runs) <= length.as_millis() / 50 + 1,
            "{runs} runs"
        );
    })
    .await;
}
