//! One annotated application for all cases, and a client for it.

use actix_web::{
    App, HttpRequest, HttpResponse, HttpServer, Responder,
    dev::ServerHandle,
    post,
    web::{self, Bytes},
};
use idem_runtime::{
    Abandoned, Context, Idempotency, IdempotencyBuilder, Resolution, idempotent, outcome,
    store::Store,
};
use serde_json::json;
use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Semaphore;

/// What handlers count and wait for.
#[derive(Clone)]
pub(crate) struct Probe {
    pub(crate) runs: Arc<AtomicUsize>,
    pub(crate) panics: Arc<AtomicUsize>,
    /// Handlers of `/gated` take a permit before they answer.
    pub(crate) gate: Arc<Semaphore>,
    /// And give one when they have started.
    pub(crate) started: Arc<Semaphore>,
    /// How often somebody was asked about `/asked`.
    pub(crate) asked: Arc<AtomicUsize>,
}

impl Probe {
    fn new() -> Probe {
        Probe {
            runs: Arc::default(),
            panics: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
            started: Arc::new(Semaphore::new(0)),
            asked: Arc::default(),
        }
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

fn answer(probe: &Probe) -> HttpResponse {
    let run = probe.runs.fetch_add(1, Ordering::SeqCst) + 1;
    HttpResponse::Created()
        .insert_header(("location", format!("/orders/{run}")))
        .body(format!("order {run}"))
}

#[idempotent(scope = "user", ttl = "1h")]
#[post("/orders")]
async fn create(probe: web::Data<Probe>, _body: Bytes) -> impl Responder {
    answer(&probe)
}

#[idempotent(scope = "user", ttl = "1h", on_store_error = "run")]
#[post("/lenient")]
async fn lenient(probe: web::Data<Probe>, context: Context, _body: Bytes) -> impl Responder {
    probe.runs.fetch_add(1, Ordering::SeqCst);
    let step: Result<String, _> = context
        .step("charge", async || Ok::<_, Infallible>("charged".to_owned()))
        .await;
    HttpResponse::Created().json(json!({
        "key": context.key().map(|key| key.as_str()),
        "downstream_key": context.downstream_key("charge").to_string(),
        "step": step.ok(),
    }))
}

#[idempotent(scope = "user", ttl = "1h")]
#[post("/gated")]
async fn gated(probe: web::Data<Probe>, _body: Bytes) -> impl Responder {
    probe.started.add_permits(1);
    probe.gate.acquire().await.unwrap().forget();
    answer(&probe)
}

/// Like `/gated`; of what is abandoned it says that nothing has happened.
#[idempotent(scope = "user", ttl = "1h", reconcile = nothing_has_happened)]
#[post("/asked")]
async fn asked(probe: web::Data<Probe>, _body: Bytes) -> impl Responder {
    probe.started.add_permits(1);
    probe.gate.acquire().await.unwrap().forget();
    answer(&probe)
}

async fn nothing_has_happened(abandoned: Abandoned) -> Resolution {
    let probe: &Probe = abandoned.value().expect("the probe");
    probe.asked.fetch_add(1, Ordering::SeqCst);
    Resolution::Release
}

#[idempotent(scope = "user", ttl = "1h", wait = "2s")]
#[post("/waiting")]
async fn waiting(probe: web::Data<Probe>, _body: Bytes) -> impl Responder {
    probe.started.add_permits(1);
    probe.gate.acquire().await.unwrap().forget();
    answer(&probe)
}

#[idempotent(scope = "user", ttl = "1h")]
#[post("/releasing")]
async fn releasing(probe: web::Data<Probe>, _body: Bytes) -> impl Responder {
    answer(&probe);
    outcome::release(HttpResponse::ServiceUnavailable().finish())
}

#[idempotent(scope = "user", ttl = "1h")]
#[post("/panicking")]
async fn panicking(probe: web::Data<Probe>, context: Context) -> HttpResponse {
    answer(&probe);
    assert_eq!(context.attempt(), 1);
    probe.panics.fetch_add(1, Ordering::SeqCst);
    panic!("as the test wants it")
}

#[idempotent(scope = "user", ttl = "1h")]
#[post("/large/{bytes}")]
async fn large(probe: web::Data<Probe>, bytes: web::Path<usize>) -> impl Responder {
    answer(&probe);
    "x".repeat(*bytes)
}

/// A running application and what is known about it.
pub(crate) struct Running {
    pub(crate) probe: Probe,
    pub(crate) address: SocketAddr,
    client: reqwest::Client,
    server: ServerHandle,
    pub(crate) idempotency: Idempotency,
}

/// Starts the application on a store, with two workers.
pub(crate) async fn start(store: Arc<dyn Store>) -> Running {
    start_with(store, |builder| builder).await
}

pub(crate) async fn start_with(
    store: Arc<dyn Store>,
    configure: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
) -> Running {
    let probe = Probe::new();
    let builder = Idempotency::builder_on(store)
        .scope("user", |request: HttpRequest| {
            Some(request.headers().get("x-user")?.to_str().ok()?.to_owned())
        })
        .reconcile_with(probe.clone())
        .store_timeout(Duration::from_secs(1));
    let idempotency = configure(builder)
        .build()
        .expect("the configuration is valid");
    let server = HttpServer::new({
        let (probe, idempotency) = (probe.clone(), idempotency.clone());
        move || {
            App::new()
                .app_data(idempotency.clone())
                .app_data(web::Data::new(probe.clone()))
                .service(create)
                .service(lenient)
                .service(gated)
                .service(asked)
                .service(waiting)
                .service(releasing)
                .service(panicking)
                .service(large)
        }
    })
    .workers(2)
    .disable_signals()
    .bind("127.0.0.1:0")
    .expect("a loopback port is free");
    let address = server.addrs()[0];
    let server = server.run();
    let handle = server.handle();
    actix_web::rt::spawn(server);
    Running {
        probe,
        address,
        client: reqwest::Client::new(),
        server: handle,
        idempotency,
    }
}

/// An answer, read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) replayed: bool,
    pub(crate) location: Option<String>,
    pub(crate) retry_after: Option<u64>,
    pub(crate) body: String,
}

impl Answer {
    /// The last part of a problem's `type`.
    pub(crate) fn problem(&self) -> String {
        let body: serde_json::Value =
            serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("a problem: {self:?}"));
        assert_eq!(
            body["status"], self.status,
            "the status member equals the status line"
        );
        body["type"]
            .as_str()
            .unwrap()
            .rsplit(':')
            .next()
            .unwrap()
            .to_owned()
    }
}

impl Running {
    pub(crate) async fn post(&self, path: &str, key: &str, body: &str) -> Answer {
        self.try_post(path, key, body)
            .await
            .expect("the server answers")
    }

    pub(crate) async fn try_post(
        &self,
        path: &str,
        key: &str,
        body: &str,
    ) -> reqwest::Result<Answer> {
        let response = self
            .client
            .post(format!("http://{}{path}", self.address))
            .header("x-user", "alice")
            .header("idempotency-key", key)
            .body(body.to_owned())
            .send()
            .await?;
        let header = |name: &str| {
            response
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        Ok(Answer {
            status: response.status().as_u16(),
            replayed: header("idempotent-replayed").is_some(),
            location: header("location"),
            retry_after: header("retry-after").map(|seconds| seconds.parse().unwrap()),
            body: response.text().await?,
        })
    }

    pub(crate) async fn stop(self) {
        self.server.stop(false).await;
    }
}
