use actix_web::{App, HttpResponse, post, web};
use idem_runtime::idempotent;

fn main() {
    struct Local;

    #[idempotent(scope = "user", ttl = "24h")]
    #[post("/orders")]
    async fn create_order(_state: web::Data<Local>) -> HttpResponse {
        HttpResponse::Created().finish()
    }

    let _ = App::new().service(create_order);
}
