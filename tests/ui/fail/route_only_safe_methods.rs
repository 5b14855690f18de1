use actix_web::{App, HttpResponse, route};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
#[route("/orders", method = "GET", method = "HEAD")]
async fn list_orders() -> HttpResponse {
    HttpResponse::Ok().finish()
}

fn main() {
    let _ = App::new().service(list_orders);
}
