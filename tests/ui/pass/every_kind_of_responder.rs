use actix_web::{App, Either, HttpResponse, Responder, http::StatusCode, web};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
async fn nameless() -> impl Responder {
    HttpResponse::Ok()
}

#[idempotent(scope = "user", ttl = "24h")]
async fn fallible_nameless(fail: web::Path<bool>) -> Result<impl Responder, actix_web::Error> {
    if *fail {
        Err(actix_web::error::ErrorConflict("taken"))?;
    }
    Ok("done")
}

#[idempotent(scope = "user", ttl = "24h")]
async fn text() -> &'static str {
    "done"
}

#[idempotent(scope = "user", ttl = "24h")]
async fn json() -> web::Json<u32> {
    web::Json(1)
}

#[idempotent(scope = "user", ttl = "24h")]
async fn with_status() -> (String, StatusCode) {
    (String::new(), StatusCode::CREATED)
}

#[idempotent(scope = "user", ttl = "24h")]
async fn one_or_other() -> Either<HttpResponse, Option<String>> {
    Either::Right(None)
}

fn main() {
    let _ = App::new()
        .route("/a", web::post().to(nameless))
        .route("/b", web::post().to(fallible_nameless))
        .route("/c", web::post().to(text))
        .route("/d", web::post().to(json))
        .route("/e", web::post().to(with_status))
        .route("/f", web::post().to(one_or_other));
}
