#![forbid(unsafe_code)]

use actix_web::{App, HttpResponse, post};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
#[post("/orders")]
async fn create_order() -> HttpResponse {
    let number: u32 = unsafe { core::mem::zeroed() };
    HttpResponse::Created().json(number)
}

fn main() {
    let _ = App::new().service(create_order);
}
