use actix_web::{App, HttpResponse, post};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
#[post("/orders")]
async fn create_order(order: impl actix_web::FromRequest) -> HttpResponse {
    let _ = order;
    HttpResponse::Created().finish()
}

fn main() {
    let _ = App::new().service(create_order);
}
