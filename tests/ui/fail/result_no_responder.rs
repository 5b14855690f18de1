use actix_web::{App, post, web};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
#[post("/orders")]
async fn create_order(order: web::Json<u32>) -> u32 {
    order.0
}

fn main() {
    let _ = App::new().service(create_order);
}
