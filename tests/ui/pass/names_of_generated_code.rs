#![deny(warnings)]
#![allow(non_snake_case)]

use actix_web::{App, HttpRequest, post, web};
use idem_runtime::idempotent;

#[idempotent(scope = "user", ttl = "24h")]
#[post("/orders")]
async fn run(
    __request: HttpRequest,
    __payload: web::Bytes,
    __arg0: web::Path<u32>,
    __arg3: web::Data<u8>,
    run: web::Data<u16>,
) -> String {
    format!("{__request:?}{__payload:?}{__arg0}{__arg3:?}{run:?}")
}

static __ROUTE: u8 = 7;

#[post("/others")]
#[idempotent(scope = "user", ttl = "24h")]
async fn submit(__arg1: HttpRequest, __arg0: web::Path<u8>) -> String {
    format!("{__arg1:?}{}", *__arg0 + __ROUTE)
}

fn main() {
    let _ = App::new().service(run).service(submit);
}
