//! What an operator sees: metrics, records, policies, callers to be turned away.

use crate::{callers::Revoked, orders};
use actix_web::{
    HttpResponse, Responder,
    error::{ErrorNotFound, ErrorServiceUnavailable},
    web,
};
use idem_runtime::{
    Idempotency,
    record::{Answer, Record, State, Status},
    store::{ListQuery, StoreError, Which},
};
use idem_tests::stores::{Database, Entries};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};

/// Records asked of the store at one time.
const PAGE: u32 = 500;
/// Records listed at most.
const MOST: usize = 10_000;

pub(crate) fn configure(config: &mut web::ServiceConfig) {
    config
        .route("/lab/revoke/{user}", web::post().to(revoke))
        .route("/lab/orders", web::get().to(rows))
        .route("/lab/records", web::get().to(records))
        .route("/lab/records/abandoned", web::get().to(abandoned))
        .route("/lab/records/{digest}", web::delete().to(forget))
        .route("/lab/policies", web::get().to(policies))
        .route("/metrics", web::get().to(metrics));
}

async fn revoke(user: web::Path<String>, revoked: web::Data<Revoked>) -> impl Responder {
    revoked.add(user.into_inner());
    HttpResponse::NoContent()
}

/// The rows that transactional handlers wrote.
async fn rows(database: web::Data<Database>) -> actix_web::Result<HttpResponse> {
    let rows = orders::list(&database).await.map_err(|error| {
        tracing::error!("the orders cannot be read: {error}");
        ErrorServiceUnavailable("the orders cannot be read")
    })?;
    Ok(HttpResponse::Ok().json(rows))
}

async fn metrics(handle: web::Data<PrometheusHandle>, entries: web::Data<Entries>) -> HttpResponse {
    if let Some(count) = entries.count() {
        metrics::gauge!("idempotency_records").set(count as f64);
    }
    HttpResponse::Ok()
        .content_type("text/plain; version=0.0.4; charset=utf-8")
        .body(handle.render())
}

async fn records(idempotency: web::Data<Idempotency>) -> actix_web::Result<HttpResponse> {
    table(&idempotency, Which::All).await
}

async fn abandoned(idempotency: web::Data<Idempotency>) -> actix_web::Result<HttpResponse> {
    table(&idempotency, Which::Abandoned).await
}

async fn table(idempotency: &Idempotency, which: Which) -> actix_web::Result<HttpResponse> {
    let records = list(idempotency, which).await.map_err(unavailable)?;
    let listed: Vec<Value> = records.iter().map(listed).collect();
    Ok(HttpResponse::Ok().json(listed))
}

/// Forgets the record whose digest this is: the next request with its key runs.
async fn forget(
    digest: web::Path<String>,
    idempotency: web::Data<Idempotency>,
) -> actix_web::Result<HttpResponse> {
    let records = list(&idempotency, Which::All).await.map_err(unavailable)?;
    let record = records
        .iter()
        .find(|record| record.id.digest() == *digest)
        .ok_or_else(|| ErrorNotFound("no such record"))?;
    let forgotten = idempotency.store().forget(&record.id).await;
    match forgotten.map_err(unavailable)? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(ErrorNotFound("no such record")),
    }
}

async fn policies(idempotency: web::Data<Idempotency>) -> impl Responder {
    let policies: Vec<Value> = idempotency
        .policies()
        .into_iter()
        .map(|route| {
            let policy = route.policy;
            json!({
                "handler": route.handler,
                "scope": policy.scope.to_string(),
                "ttl_ms": policy.ttl.as_millis(),
                "lease_ms": policy.lease.as_millis(),
                "required": policy.required,
                "header": policy.header,
                "mismatch": format!("{:?}", policy.mismatch),
                "abandoned": format!("{:?}", policy.abandoned),
                "server_error": format!("{:?}", policy.server_error),
                "max_body": policy.max_body,
                "max_response": policy.max_response,
            })
        })
        .collect();
    HttpResponse::Ok().json(policies)
}

fn unavailable(error: StoreError) -> actix_web::Error {
    tracing::error!("the store cannot be read: {error}");
    ErrorServiceUnavailable("the store cannot be read")
}

async fn list(idempotency: &Idempotency, which: Which) -> Result<Vec<Record>, StoreError> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let query = ListQuery {
            after: records.last().map(|record| record.id.clone()),
            limit: PAGE,
            which,
        };
        let page = idempotency.store().list(&query).await?;
        let whole = page.len() == PAGE as usize;
        records.extend(page);
        if !whole || records.len() >= MOST {
            return Ok(records);
        }
    }
}

/// A record without anything of the caller's but who they are: neither key nor body.
fn listed(record: &Record) -> Value {
    let (route, handler) = record.route.rsplit_once(' ').unwrap_or((&record.route, ""));
    let (state, code, retained, lease_left) = match &record.state {
        State::Running { locked_until } => {
            let left = locked_until.since(record.now);
            let state = if left.is_zero() {
                "ABANDONED"
            } else {
                Status::Processing.as_str()
            };
            (state, None, None, Some(left.as_millis()))
        }
        State::Finished { answer, .. } => (
            Status::of_response(answer.code()).as_str(),
            Some(answer.code()),
            Some(matches!(answer, Answer::Kept(_))),
            None,
        ),
        _ => ("UNKNOWN", None, None, None),
    };
    json!({
        "digest": record.id.digest(),
        "route": route,
        "handler": handler,
        "scope": record.id.scope(),
        "path": record.id.request_path(),
        "state": state,
        "code": code,
        "retained": retained,
        "age_ms": record.now.since(record.created_at).as_millis(),
        "expires_in_ms": record.expires_at.since(record.now).as_millis(),
        "lease_left_ms": lease_left,
        "attempt": record.attempt,
    })
}
