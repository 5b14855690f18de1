// Modules of the names of the crates that generated code needs.
use ::actix_web::{App, web};
use ::idem_runtime::idempotent;

mod idem_runtime {}
mod inventory {}
mod actix_web {}
mod core {}
mod std {}

#[idempotent(scope = "user", ttl = "24h")]
async fn create_order(id: web::Path<u8>) -> String {
    id.to_string()
}

fn main() {
    let _ = App::new().route("/", web::post().to(create_order));
}
