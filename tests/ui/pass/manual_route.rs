use actix_web::{App, HttpResponse, web};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
async fn create_order(order: web::Json<u32>) -> HttpResponse {
    HttpResponse::Created().json(order.0)
}

#[idempotent(scope = "user", ttl = "24h")]
async fn cancel_order() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

fn main() {
    let _ = App::new()
        .route("/orders", web::post().to(create_order))
        .service(web::resource("/orders/{id}").route(web::delete().to(cancel_order)));
}
