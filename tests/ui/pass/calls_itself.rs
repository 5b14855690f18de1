// The name inside of the body is the user's own function, with the user's own signature.
use actix_web::{App, HttpResponse, post, web};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
#[post("/orders/{n}")]
async fn countdown(n: web::Path<u32>) -> HttpResponse {
    match n.into_inner() {
        0 => HttpResponse::Ok().finish(),
        n => Box::pin(countdown(web::Path::from(n - 1))).await,
    }
}

fn main() {
    let _ = App::new().service(countdown);
}
