#![deny(warnings)]

use actix_web::{App, HttpRequest, post, web};
use idem_runtime::idempotent;

#[derive(serde::Deserialize)]
struct Order {
    id: u32,
    note: String,
}

#[idempotent(scope = "user", ttl = "24h")]
#[post("/orders")]
async fn create_order(
    _: HttpRequest,
    mut page: web::Path<u32>,
    web::Json(Order { id, mut note }): web::Json<Order>,
    (ref first, second): (web::Data<u8>, web::Data<u16>),
) -> String {
    *page += id;
    note.push('!');
    format!("{page}{note}{first:?}{second:?}")
}

fn main() {
    let _ = App::new().service(create_order);
}
