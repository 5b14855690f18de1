use actix_web::{App, HttpResponse, get};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
#[get("/orders")]
async fn list_orders() -> HttpResponse {
    HttpResponse::Ok().finish()
}

fn main() {
    let _ = App::new().service(list_orders);
}
