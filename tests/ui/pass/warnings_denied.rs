#![deny(
    warnings,
    clippy::all,
    missing_docs,
    unused_qualifications,
    rust_2018_idioms
)]
#![deny(
    let_underscore_drop,
    single_use_lifetimes,
    unit_bindings,
    unused_lifetimes,
    variant_size_differences
)]
#![forbid(unsafe_code)]
//! A crate that is strict with itself.

use actix_web::{App, HttpResponse, post, web};
use idem_runtime::idempotent;

/// Documented, and visible outside.
#[idempotent(scope = "tenant:user", ttl = "24h", required, lease = "1s", release_on = [429])]
#[post("/orders")]
pub async fn create_order(order: web::Json<u32>) -> HttpResponse {
    HttpResponse::Created().json(order.0)
}

#[post("/others")]
#[idempotent(scope = "global", ttl = "24h")]
async fn create_other() -> HttpResponse {
    HttpResponse::Created().finish()
}

fn main() {
    drop(App::new().service(create_order).service(create_other));
}
