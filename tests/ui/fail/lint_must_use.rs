#![deny(unused_must_use)]

use actix_web::{FromRequest, HttpResponse, dev::Payload, test::TestRequest, web};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
#[must_use = "it holds the order's number"]
async fn create_order() -> HttpResponse {
    HttpResponse::Created().finish()
}

async fn forgets_the_answer() {
    let request = TestRequest::default().to_http_request();
    if let Ok(payload) = web::Payload::from_request(&request, &mut Payload::None).await {
        create_order(request, payload).await;
    }
}

fn main() {
    let _ = forgets_the_answer;
}
