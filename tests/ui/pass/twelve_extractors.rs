use actix_web::{App, HttpRequest, HttpResponse, post, web};
use idem_runtime::idempotent;

#[allow(clippy::too_many_arguments)]
#[idempotent(scope = "user", ttl = "24h")]
#[post("/orders/{id}")]
async fn create_order(
    a: HttpRequest,
    b: web::Path<u32>,
    c: web::Query<Vec<(String, String)>>,
    d: web::Data<u8>,
    e: web::Data<u16>,
    f: web::Data<u32>,
    g: web::Data<u64>,
    h: web::Data<i8>,
    i: web::Data<i16>,
    j: Option<web::Data<i32>>,
    k: Result<web::Data<i64>, actix_web::Error>,
    l: web::Json<String>,
) -> HttpResponse {
    let _ = (a, b, c, d, e, f, g, h, i, j, k);
    HttpResponse::Created().json(l.0)
}

fn main() {
    let _ = App::new().service(create_order);
}
