//! What an application can change about replays and problems, and its middleware around them.

use actix_web::{
    App, Error, HttpMessage, HttpRequest, HttpResponse, HttpResponseBuilder,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method, StatusCode,
        header::{HeaderName, HeaderValue},
    },
    middleware::{Next, from_fn},
    web,
};
use idem_runtime::{
    Idempotency, IdempotencyBuilder, ProblemKind, idempotent,
    record::{Answer, State},
    store::ListQuery,
};
use idem_tests::{
    harness::{Connection, InProcess, RawReply, each, request},
    services::{Store, selected},
};
use std::sync::atomic::{AtomicU32, Ordering};

#[idempotent(scope = "user", ttl = "24h")]
async fn create(_body: String) -> HttpResponse {
    HttpResponse::Created()
        .insert_header(("location", "/orders/7"))
        .insert_header(("x-request-id", "first"))
        .insert_header(("x-secret", "first"))
        .insert_header(("x-replayed", "by nobody"))
        .insert_header(("access-control-allow-origin", "https://first.example"))
        .insert_header(("set-cookie", "session=first"))
        .body("created")
}

/// What stands under the only key of the store.
async fn kept(idempotency: &Idempotency) -> Answer {
    let store = idempotency.store();
    let all = ListQuery {
        after: None,
        limit: 10,
        ..ListQuery::default()
    };
    let listed = store.list(&all).await.unwrap();
    assert_eq!(listed.len(), 1);
    let record = store.get(&listed[0].id).await.unwrap().unwrap();
    match record.state {
        State::Finished { answer, .. } => answer,
        other => panic!("{other:?}"),
    }
}

async fn application(
    store: Store,
    options: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
) -> (InProcess, Idempotency) {
    let (builder, place) = InProcess::configuration(store).await;
    let idempotency = options(builder).build().unwrap();
    let app = InProcess::serve(place, {
        let idempotency = idempotency.clone();
        move || {
            App::new()
                .app_data(idempotency.clone())
                .route("/orders", web::post().to(create))
                .route("/orders", web::route().method(Method::OPTIONS).to(create))
                .wrap(from_fn(middleware))
        }
    });
    (app, idempotency)
}

static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// As applications have it around everything: numbers the requests, and tells browsers who may ask
/// for what (the CORS protocol of the Fetch standard).
async fn middleware(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let Some(origin) = request.headers().get("origin").cloned() else {
        return next
            .call(request)
            .await
            .map(ServiceResponse::map_into_boxed_body);
    };
    let asked = request
        .headers()
        .get("access-control-request-headers")
        .cloned();
    let is_preflight = request.method() == Method::OPTIONS && asked.is_some();
    let mut answered = if is_preflight {
        let mut allowed = HttpResponseBuilder::new(StatusCode::NO_CONTENT);
        allowed.insert_header(("access-control-allow-headers", asked.unwrap()));
        request
            .into_response(allowed.finish())
            .map_into_boxed_body()
    } else {
        next.call(request).await?.map_into_boxed_body()
    };
    let number = REQUESTS.fetch_add(1, Ordering::SeqCst).to_string();
    let fields = answered.headers_mut();
    let mut set = |name: &'static str, value: HeaderValue| {
        fields.insert(HeaderName::from_static(name), value);
    };
    set("x-request-id", HeaderValue::try_from(number).unwrap());
    set("access-control-allow-origin", origin);
    let exposed = HeaderValue::from_static("idempotent-replayed, retry-after");
    set("access-control-expose-headers", exposed);
    Ok(answered)
}

async fn ask(app: &InProcess, method: &str, body: &str, more: &[(&str, &[u8])]) -> RawReply {
    let mut headers: Vec<(&str, &[u8])> = vec![
        ("Authorization", b"alice"),
        ("Idempotency-Key", b"k"),
        ("Content-Type", b"text/plain"),
    ];
    headers.extend_from_slice(more);
    let mut connection = Connection::open(app.address).await;
    let request = request(method, "/orders", &headers, body.as_bytes());
    connection.send(&request).await.unwrap();
    connection.reply().await
}

async fn post(app: &InProcess, body: &str) -> RawReply {
    ask(app, "POST", body, &[]).await
}

#[tokio::test]
async fn a_hook_touches_up_replays_and_nothing_else() {
    // M12
    each(selected(), async |store| {
        let (app, idempotency) = application(store, |builder| {
            builder.on_replay(|response, request: &HttpRequest| {
                let fields = response.headers_mut();
                let now = HeaderValue::from_static("now");
                fields.insert(HeaderName::from_static("x-replayed-at"), now);
                fields.remove("location");
                if request.headers().contains_key("x-break") {
                    panic!("the hook breaks, as a test");
                }
                // What the request carries is there to be looked at.
                request.extensions_mut().insert("seen");
            })
        })
        .await;
        let first = post(&app, "body").await;
        assert_eq!(first.header("x-replayed-at"), None);
        assert_eq!(first.header("location"), Some("/orders/7"));
        let before = kept(&idempotency).await;
        for breaks in [false, true, false] {
            let more: &[(&str, &[u8])] = if breaks { &[("X-Break", b"1")] } else { &[] };
            let again = ask(&app, "POST", "body", more).await;
            assert!(again.is_replay(), "{again:?}");
            assert_eq!((again.status, &again.body), (201, &first.body));
            assert_eq!(again.header("x-replayed-at"), Some("now"));
            assert_eq!(again.header("location"), None);
        }
        assert_eq!(kept(&idempotency).await, before, "the record has changed");
        // A problem is no replay.
        let reused = post(&app, "another").await;
        assert_eq!(reused.status, 422);
        assert_eq!(reused.header("x-replayed-at"), None);
    })
    .await;
}

#[tokio::test]
async fn marker_and_list_of_fields_are_the_applications_choice() {
    // P17
    each(selected(), async |store| {
        let (app, idempotency) = application(store, |builder| {
            builder
                .marker("X-Replayed")
                .keep_header("x-request-id")
                .keep_header("access-control-allow-origin")
                .drop_header("x-secret")
        })
        .await;
        let first = post(&app, "body").await;
        assert_eq!(first.header("x-secret"), Some("first"));
        assert_eq!(first.header("x-replayed"), Some("by nobody"));
        let again = post(&app, "body").await;
        assert_eq!((again.status, &again.body), (201, &first.body));
        let value = |name: &str| again.header(name);
        assert_eq!(value("x-replayed"), Some("true"));
        assert_eq!(value("idempotent-replayed"), None);
        assert_eq!(value("x-request-id"), Some("first"));
        let origin = Some("https://first.example");
        assert_eq!(value("access-control-allow-origin"), origin);
        assert_eq!(value("x-secret"), None);
        assert_eq!(value("set-cookie"), None);
        let Answer::Kept(response) = kept(&idempotency).await else {
            panic!("not kept");
        };
        let kept = response.headers.iter().map(|(name, _)| name.as_str());
        let never = ["x-secret", "set-cookie", "x-replayed"];
        assert!(kept.clone().all(|name| !never.contains(&name)), "{kept:?}");
    })
    .await;
}

#[tokio::test]
async fn a_browser_may_ask_and_reads_the_marker_of_the_answer_to_its_own_origin() {
    // O3, E12
    each(selected(), async |store| {
        let (app, idempotency) = application(store, |builder| builder).await;
        let from = |origin: &'static str| [("Origin", origin.as_bytes())];
        let asks: [(&str, &[u8]); 2] = [
            ("Access-Control-Request-Method", b"POST"),
            ("Access-Control-Request-Headers", b"idempotency-key"),
        ];
        for _ in 0..2 {
            let preflight = [&from("https://one.example")[..], &asks].concat();
            let allowed = ask(&app, "OPTIONS", "", &preflight).await;
            assert_eq!(allowed.status, 204);
            assert!(!allowed.is_replay());
            let names = allowed.header("access-control-allow-headers");
            assert_eq!(names, Some("idempotency-key"));
        }
        // Nor does any other OPTIONS claim the key.
        let options = ask(&app, "OPTIONS", "", &[]).await;
        assert_eq!((options.status, options.is_replay()), (201, false));
        let store = idempotency.store();
        let all = ListQuery {
            after: None,
            limit: 10,
            ..ListQuery::default()
        };
        assert!(store.list(&all).await.unwrap().is_empty());
        let first = ask(&app, "POST", "body", &from("https://one.example")).await;
        let again = ask(&app, "POST", "body", &from("https://two.example")).await;
        let value = |reply: &RawReply, name: &str| {
            let all = reply.headers.iter().filter(|(known, _)| known == name);
            let all: Vec<_> = all.map(|(_, value)| value.clone()).collect();
            assert_eq!(all.len(), 1, "{name}: {reply:?}");
            String::from_utf8(all[0].clone()).unwrap()
        };
        assert!(again.is_replay() && !first.is_replay());
        for (reply, origin) in [
            (&first, "https://one.example"),
            (&again, "https://two.example"),
        ] {
            assert_eq!(value(reply, "access-control-allow-origin"), origin);
            let exposed = value(reply, "access-control-expose-headers");
            assert!(exposed.contains("idempotent-replayed"));
        }
        assert_ne!(value(&first, "x-request-id"), value(&again, "x-request-id"));
        assert_eq!(first.header("set-cookie"), Some("session=first"));
        assert_eq!(again.header("set-cookie"), None);
    })
    .await;
}

#[tokio::test]
async fn problems_speak_the_applications_language() {
    // H7, M6
    each(selected(), async |store| {
        let (app, _) = application(store, |builder| {
            builder
                .required(true)
                .problem_type_base("https://shop.example/problems/")
                .docs_url("https://shop.example/docs")
                .render_problems(|problem, request| {
                    (problem.kind == ProblemKind::KeyReused).then(|| {
                        HttpResponse::build(StatusCode::CONFLICT)
                            .json([request.path(), &problem.detail])
                    })
                })
        })
        .await;
        assert_eq!(post(&app, "body").await.status, 201);
        let own = post(&app, "another").await;
        assert_eq!(own.status, 409);
        assert!(own.body.starts_with(br#"["/orders","#), "{own:?}");
        let mut connection = Connection::open(app.address).await;
        let headers: [(&str, &[u8]); 1] = [("Authorization", b"alice")];
        connection
            .send(&request("POST", "/orders", &headers, b""))
            .await
            .unwrap();
        let missing = connection.reply().await;
        assert_eq!(missing.status, 400);
        let json: serde_json::Value = serde_json::from_slice(&missing.body).unwrap();
        assert_eq!(json["type"], "https://shop.example/problems/key-missing");
        let link = Some("<https://shop.example/docs>; rel=\"describedby\"");
        assert_eq!(missing.header("link"), link);
    })
    .await;
}
