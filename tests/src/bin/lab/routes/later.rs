//! The routes of policies that the toolkit does not have yet: each says so.

use super::posted;
use actix_web::{HttpResponse, web};
use serde_json::json;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config
        .service(posted("/wait", wait))
        .service(posted("/transactional", transactional))
        .service(posted("/reconcile", reconcile))
        .service(posted("/steps", steps));
}

async fn wait() -> HttpResponse {
    not_yet("wait")
}

async fn transactional() -> HttpResponse {
    not_yet("transaction")
}

async fn reconcile() -> HttpResponse {
    not_yet("reconcile")
}

async fn steps() -> HttpResponse {
    not_yet("durable steps")
}

fn not_yet(option: &str) -> HttpResponse {
    HttpResponse::NotImplemented()
        .content_type("application/problem+json")
        .body(
            json!({
                "type": "about:blank",
                "title": "Not Implemented",
                "status": 501,
                "detail": format!("This release of the toolkit has no `{option}`."),
            })
            .to_string(),
        )
}
