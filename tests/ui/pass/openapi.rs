use actix_web::{App, HttpResponse, post, web};
use idem_runtime::idempotent;
use utoipa::OpenApi;

#[utoipa::path(responses((status = 201)))]
#[idempotent(scope = "user", ttl = "24h")]
#[post("/a")]
async fn above(order: web::Json<u32>) -> HttpResponse {
    HttpResponse::Created().json(order.0)
}

#[idempotent(scope = "user", ttl = "24h")]
#[utoipa::path(request_body = u32, responses((status = 201)))]
#[post("/b")]
async fn below(order: web::Json<u32>) -> HttpResponse {
    HttpResponse::Created().json(order.0)
}

#[idempotent(scope = "user", ttl = "24h")]
#[post("/c")]
#[utoipa::path(post, path = "/c", responses((status = 201)))]
async fn lowest(order: web::Json<u32>) -> HttpResponse {
    HttpResponse::Created().json(order.0)
}

#[derive(OpenApi)]
#[openapi(paths(above, below))]
struct Api;

fn main() {
    let paths = Api::openapi().paths.paths;
    // Above, it sees the user's arguments and finds the body by itself.
    for path in ["/a", "/b"] {
        let operation = paths[path].post.as_ref().expect("POST is described");
        assert!(operation.request_body.is_some(), "{path}");
    }
    let _ = App::new().service(above).service(below).service(lowest);
}
