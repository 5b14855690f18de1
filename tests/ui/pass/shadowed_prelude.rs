#![allow(dead_code, non_camel_case_types)]

use actix_web::{App, post, web};
use idem_runtime::idempotent;

struct Result;
struct Option;
struct Ok;
struct Err;
struct Some;
struct None;
struct Box;
struct String;
struct Policy;
struct Route;
struct Scope;
struct HttpResponse;
struct HttpRequest;
struct Error;
struct u16;
struct u32;
struct u64;
struct usize;
struct str;
mod core {}
mod std {}
mod idem_runtime_private {}

#[idempotent(scope = "user", ttl = "24h", lease = "1s", release_on = [425], headers = ["X-A"], max_body = 1)]
#[post("/orders")]
async fn create_order(id: web::Path<u8>) -> &'static [::core::primitive::u8] {
    let _ = id;
    &[]
}

fn main() {
    let _ = App::new().service(create_order);
}
