//! The routes of policies that the lab cannot offer yet: each says so.

use super::posted;
use actix_web::{HttpResponse, web};
use serde_json::json;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(posted("/transactional", transactional));
}

async fn transactional() -> HttpResponse {
    not_yet("transaction")
}

fn not_yet(option: &str) -> HttpResponse {
    HttpResponse::NotImplemented()
        .content_type("application/problem+json")
        .body(
            json!({
                "type": "about:blank",
                "title": "Not Implemented",
                "status": 501,
                "detail": format!("This release of the lab has no route with `{option}`."),
            })
            .to_string(),
        )
}
