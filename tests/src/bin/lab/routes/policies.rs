//! The routes that differ in their policy and take the body as bytes.

use super::{posted, safe};
use crate::{
    handler::{Job, Outcome},
    reconciler::look_into_the_journal,
};
use actix_web::web::{self, Bytes};
use idem_runtime::idempotent;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config
        .service(posted("/default", default))
        .service(
            safe("/default/{id}", default_item)
                .route(web::patch().to(default_item))
                .route(web::put().to(default_item)),
        )
        .service(posted("/required", required))
        .service(posted("/uuid", uuid))
        .service(posted("/wait", wait))
        .service(posted("/rerun", rerun))
        .service(posted("/hold", hold))
        .service(posted("/reconcile", reconcile))
        .service(posted("/steps", steps))
        .service(posted("/release-5xx", release_5xx))
        .service(posted("/store-5xx", store_5xx))
        .service(posted("/mismatch-409", mismatch_409))
        .service(posted("/tenant", tenant))
        .service(posted("/global", global))
        .service(posted("/short", short))
        .service(posted("/ignore", ignore))
        .service(posted("/raw", raw))
        .service(posted("/small", small))
        .service(posted("/plain", plain).route(web::get().to(plain)));
}

#[idempotent(scope = "user", ttl = "24h")]
async fn default(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

#[idempotent(scope = "user", ttl = "24h")]
async fn default_item(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

#[idempotent(scope = "user", ttl = "24h", required)]
async fn required(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

#[idempotent(scope = "user", ttl = "24h", key_format = "uuid")]
async fn uuid(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

#[idempotent(scope = "user", ttl = "24h", wait = "5s")]
async fn wait(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

#[idempotent(scope = "user", ttl = "24h", abandoned = "rerun")]
async fn rerun(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

#[idempotent(scope = "user", ttl = "24h", abandoned = "hold")]
async fn hold(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

#[idempotent(scope = "user", ttl = "24h", reconcile = look_into_the_journal)]
async fn reconcile(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

/// Runs again when its owner has died: that is when steps matter.
#[idempotent(scope = "user", ttl = "24h", abandoned = "rerun")]
async fn steps(job: Job, body: Bytes) -> Outcome {
    job.run_in_steps(&body).await
}

#[idempotent(scope = "user", ttl = "24h", server_error = "release")]
async fn release_5xx(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

#[idempotent(scope = "user", ttl = "24h", server_error = "keep")]
async fn store_5xx(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

#[idempotent(scope = "user", ttl = "24h", mismatch = 409)]
async fn mismatch_409(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

#[idempotent(scope = "tenant:user", ttl = "24h")]
async fn tenant(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

#[idempotent(scope = "global", ttl = "24h")]
async fn global(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

#[idempotent(scope = "user", ttl = "1s")]
async fn short(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

#[idempotent(scope = "user", ttl = "24h", ignore = ["/client_ts"])]
async fn ignore(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

#[idempotent(scope = "user", ttl = "24h", fingerprint = "raw")]
async fn raw(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

#[idempotent(
    scope = "user",
    ttl = "24h",
    max_body = "64KiB",
    max_response = "64KiB"
)]
async fn small(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}

/// No idempotency at all.
async fn plain(job: Job, body: Bytes) -> Outcome {
    job.run(&body).await
}
