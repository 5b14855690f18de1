use actix_web::{App, HttpResponse, post, web};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
#[post("/orders")]
async fn create_order<T: serde::Serialize>(order: web::Json<T>) -> HttpResponse {
    HttpResponse::Created().json(order.0)
}

fn main() {
    let _ = App::new().service(create_order);
}
