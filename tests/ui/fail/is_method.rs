use actix_web::{HttpResponse, web};
use idem_runtime::idempotent;

struct Orders;

impl Orders {
    #[idempotent(scope = "user", ttl = "24h")]
    async fn create(&self, order: web::Json<u32>) -> HttpResponse {
        HttpResponse::Created().json(order.0)
    }
}

fn main() {
    let _ = Orders::create;
}
