use actix_web::{App, HttpResponse, post, web};
use idem_runtime::idempotent;

fn digest(body: &[u8]) -> Vec<u8> {
    body.to_vec()
}

#[idempotent(scope = "user", ttl = "24h", fingerprint = digest)]
#[post("/orders")]
async fn create_order(order: web::Json<u32>) -> HttpResponse {
    HttpResponse::Created().json(order.0)
}

fn main() {
    let _ = App::new().service(create_order);
}
