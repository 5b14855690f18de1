extern crate idem_runtime as idem;

use actix_web::{App, post, web};

#[idem::idempotent(scope = "user", ttl = "24h", crate = ::idem)]
#[post("/orders")]
async fn create_order(id: web::Path<u8>) -> String {
    id.to_string()
}

mod reexports {
    pub mod toolkit {
        pub use idem_runtime::__private;
        pub use idem_runtime::*;
    }
}

#[reexports::toolkit::idempotent(scope = "user", ttl = "24h", crate = crate::reexports::toolkit)]
#[post("/others")]
async fn create_other(id: web::Path<u8>) -> String {
    id.to_string()
}

fn main() {
    let _ = App::new().service(create_order).service(create_other);
}
