use actix_web::HttpResponse;
use idem_runtime::idempotent;

#[idempotent(
    scope = "global",
    ttl = "500ms",
    key_format = "any",
    abandoned = "hold",
    mismatch = 400
)]
async fn a() -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[idempotent(
    scope = "user",
    ttl = "7d",
    server_error = "keep",
    on_store_error = "refuse",
    mismatch = 422
)]
async fn b() -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[idempotent(scope = "user", ttl = "7d", fingerprint = "raw", release_on = [], max_response = 0)]
async fn c() -> HttpResponse {
    HttpResponse::Ok().finish()
}

fn main() {
    let _ = (a, b, c);
}
