use actix_web::{App, HttpRequest, HttpResponse, post};
use idem_runtime::idempotent;

#[idempotent(
    scope = "tenant:user",
    ttl = "1h 30m",
    required,
    key_format = "uuid",
    header = "X-Request-Key",
    lease = "45s",
    abandoned = "rerun",
    mismatch = 409,
    server_error = "release",
    release_on = [429, 503],
    fingerprint = "canonical",
    ignore = ["/client_ts", "/items/*/trace"],
    headers = ["Accept-Version"],
    max_body = "64KiB",
    max_response = 1_000,
    on_store_error = "run",
)]
#[post("/orders")]
async fn create_order(_request: HttpRequest) -> HttpResponse {
    HttpResponse::Created().finish()
}

fn main() {
    let _ = App::new().service(create_order);
}
