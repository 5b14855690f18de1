use actix_web::{App, post, web};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
#[post("/move")]
async fn r#move(r#type: web::Path<String>) -> String {
    r#type.into_inner()
}

#[post("/await")]
#[idempotent(scope = "user", ttl = "24h")]
async fn r#await(r#type: web::Path<String>) -> String {
    r#type.into_inner()
}

fn main() {
    let _ = App::new().service(r#move).service(r#await);
}
