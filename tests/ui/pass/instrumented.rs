use actix_web::{App, HttpResponse, post, web};
use idem_runtime::idempotent;

// No `Debug`: an instrumented function that does not skip it would not compile.
#[derive(serde::Deserialize)]
struct Order {
    id: u32,
}

#[idempotent(scope = "user", ttl = "24h")]
#[post("/a")]
#[tracing::instrument(skip(order), fields(id = order.id))]
async fn below(order: web::Json<Order>) -> HttpResponse {
    HttpResponse::Created().json(order.id)
}

#[tracing::instrument(skip(order), fields(id = order.id))]
#[idempotent(scope = "user", ttl = "24h")]
#[post("/b")]
async fn above(order: web::Json<Order>) -> HttpResponse {
    HttpResponse::Created().json(order.id)
}

#[post("/c")]
#[tracing::instrument(skip(order))]
#[idempotent(scope = "user", ttl = "24h")]
async fn between(order: web::Json<Order>) -> HttpResponse {
    HttpResponse::Created().json(order.id)
}

#[post("/d")]
#[idempotent(scope = "user", ttl = "24h")]
#[cfg_attr(all(), tracing::instrument(skip(order)), doc = "Conditional.")]
async fn conditional(order: web::Json<Order>) -> HttpResponse {
    HttpResponse::Created().json(order.id)
}

fn main() {
    let _ = App::new()
        .service(below)
        .service(above)
        .service(between)
        .service(conditional);
}
