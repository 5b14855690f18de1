use actix_web::{App, post, web};
use idem_runtime::idempotent;

#[idempotent(
    scope = "tenant::user",
    tll = "24h",
    key_format = "guid",
    release_on = [42],
    max_body = "1M",
    crate = idem_runtime
)]
#[post("/orders")]
fn create_order(&self, order: impl Into<String>) {
    let _ = order;
}

fn main() {
    let _ = App::new().service(create_order);
}
