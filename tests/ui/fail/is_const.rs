use actix_web::{App, post};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
#[post("/orders")]
const fn create_order() -> u8 {
    7
}

fn main() {
    let _ = App::new().service(create_order);
}
