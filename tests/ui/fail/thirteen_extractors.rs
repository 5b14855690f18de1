use actix_web::{App, HttpResponse, post, web};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
#[post("/orders")]
async fn create_order(
    a: web::Data<u8>,
    b: web::Data<u8>,
    c: web::Data<u8>,
    d: web::Data<u8>,
    e: web::Data<u8>,
    f: web::Data<u8>,
    g: web::Data<u8>,
    h: web::Data<u8>,
    i: web::Data<u8>,
    j: web::Data<u8>,
    k: web::Data<u8>,
    l: web::Data<u8>,
    order: web::Json<u32>,
) -> HttpResponse {
    let _ = (a, b, c, d, e, f, g, h, i, j, k, l);
    HttpResponse::Created().json(order.0)
}

fn main() {
    let _ = App::new().service(create_order);
}
