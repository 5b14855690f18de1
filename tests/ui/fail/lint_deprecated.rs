#![deny(deprecated)]

use actix_web::{App, HttpResponse, web};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
#[deprecated = "use version 2"]
async fn create_order() -> HttpResponse {
    HttpResponse::Created().finish()
}

fn main() {
    let _ = App::new().route("/", web::post().to(create_order));
}
