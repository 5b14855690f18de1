#![deny(dead_code)]

use actix_web::{HttpResponse, web};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
async fn create_order(order: web::Json<u32>) -> HttpResponse {
    HttpResponse::Created().json(order.0)
}

fn main() {}
