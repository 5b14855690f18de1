use std::{future::Future, pin::Pin};

use actix_web::{App, HttpResponse, post};
use idem_runtime::{Abandoned, Resolution, idempotent};

mod gateway {
    use super::*;

    pub async fn ask(_: Abandoned) -> Resolution {
        Resolution::Pending
    }
}

fn boxed(_: Abandoned) -> Pin<Box<dyn Future<Output = Resolution> + Send>> {
    Box::pin(async { Resolution::Pending })
}

async fn any<T: Send>(_: T) -> Resolution {
    Resolution::Release
}

#[idempotent(scope = "user", ttl = "24h", reconcile = gateway::ask)]
#[post("/a")]
async fn a() -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[idempotent(scope = "user", ttl = "24h", reconcile = boxed)]
#[post("/b")]
async fn b() -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[idempotent(scope = "user", ttl = "24h", reconcile = any)]
#[post("/c")]
async fn c() -> HttpResponse {
    HttpResponse::Ok().finish()
}

fn main() {
    let _ = App::new().service(a).service(b).service(c);
}
