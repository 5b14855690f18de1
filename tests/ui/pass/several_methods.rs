use actix_web::{App, HttpResponse, route, routes};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
#[route("/a", method = "POST", method = "PUT", method = "GET")]
async fn route_below() -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[route("/b", method = "POST", method = "PUT")]
#[idempotent(scope = "user", ttl = "24h")]
async fn route_above() -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[idempotent(scope = "user", ttl = "24h")]
#[routes]
#[get("/c")]
#[post("/c")]
async fn routes_below() -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[routes]
#[post("/d")]
#[patch("/e")]
#[idempotent(scope = "user", ttl = "24h")]
async fn routes_above() -> HttpResponse {
    HttpResponse::Ok().finish()
}

fn main() {
    let _ = App::new()
        .service(route_below)
        .service(route_above)
        .service(routes_below)
        .service(routes_above);
}
