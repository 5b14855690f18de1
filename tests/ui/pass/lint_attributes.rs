#![deny(warnings)]

use actix_web::HttpResponse;
use idem_runtime::idempotent;

// Each expectation is fulfilled exactly once, whichever of the two functions it concerns.
#[idempotent(scope = "user", ttl = "24h")]
#[expect(dead_code)]
async fn unused() -> HttpResponse {
    HttpResponse::Created().finish()
}

#[idempotent(scope = "user", ttl = "24h")]
#[expect(unused_variables, unused_mut)]
async fn careless(mut id: actix_web::web::Path<u8>) -> HttpResponse {
    HttpResponse::Created().finish()
}

#[expect(unused_variables)]
#[idempotent(scope = "user", ttl = "24h")]
#[allow(unused_assignments)]
#[warn(unreachable_code)]
async fn careless_above(id: actix_web::web::Path<u8>) -> HttpResponse {
    HttpResponse::Created().finish()
}

#[idempotent(scope = "user", ttl = "24h")]
#[cfg(not(any()))]
#[inline]
#[doc(hidden)]
async fn present() -> HttpResponse {
    HttpResponse::Created().finish()
}

#[idempotent(scope = "user", ttl = "24h")]
#[cfg(any())]
async fn absent(nothing: Missing) -> HttpResponse {}

fn main() {
    let _ = (careless, careless_above, present);
}
