//! The routes that differ in how they take the body.

use super::posted;
use crate::{
    answers::Failure,
    handler::{Job, Outcome},
};
use actix_multipart::Multipart;
use actix_web::{
    Error, FromRequest, HttpRequest,
    dev::Payload,
    error::{ErrorPayloadTooLarge, PayloadError},
    web::{self, Bytes, BytesMut},
};
use futures_util::{Stream, StreamExt, future::LocalBoxFuture, stream};
use idem_runtime::idempotent;
use serde_json::Value;
use std::pin::Pin;

/// Largest body that `/json` keeps beside its value.
const MOST_JSON: usize = 8 << 20;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config
        .service(posted("/json", json))
        .service(posted("/form", form))
        .service(posted("/multipart", multipart))
        .service(posted("/text", text))
        .service(posted("/payload", payload));
}

#[idempotent(scope = "user", ttl = "24h")]
async fn json(job: Job, body: JsonAndBytes) -> Outcome {
    let JsonAndBytes { value: _, bytes } = body;
    job.run(&bytes).await
}

#[idempotent(scope = "user", ttl = "24h")]
async fn form(job: Job, pairs: web::Form<Vec<(String, String)>>) -> Outcome {
    let encoded = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs.iter())
        .finish();
    job.run(encoded.as_bytes()).await
}

/// The contents of all parts, one after the other.
#[idempotent(scope = "user", ttl = "24h")]
async fn multipart(job: Job, mut parts: Multipart) -> Outcome {
    let mut contents = BytesMut::new();
    while let Some(part) = parts.next().await {
        let mut part = part.map_err(|error| Failure::body(&error))?;
        while let Some(chunk) = part.next().await {
            contents.extend_from_slice(&chunk.map_err(|error| Failure::body(&error))?);
        }
    }
    job.run(&contents).await
}

#[idempotent(scope = "user", ttl = "24h")]
async fn text(job: Job, text: String) -> Outcome {
    job.run(text.as_bytes()).await
}

#[idempotent(scope = "user", ttl = "24h")]
async fn payload(job: Job, mut body: web::Payload) -> Outcome {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = body.next().await {
        bytes.extend_from_slice(&chunk.map_err(|error| Failure::body(&error))?);
    }
    job.run(&bytes).await
}

/// A JSON value as `web::Json` extracts it, and the bytes it was extracted from.
struct JsonAndBytes {
    #[allow(dead_code)] // extracted for its checks
    value: Value,
    bytes: Bytes,
}

impl FromRequest for JsonAndBytes {
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<JsonAndBytes, Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, mut payload) = (request.clone(), payload.take());
        Box::pin(async move {
            let mut received = BytesMut::new();
            while let Some(chunk) = payload.next().await {
                received.extend_from_slice(&chunk?);
                if received.len() > MOST_JSON {
                    return Err(ErrorPayloadTooLarge("the body is too large"));
                }
            }
            let bytes = received.freeze();
            let again: Pin<Box<dyn Stream<Item = Result<Bytes, PayloadError>>>> =
                Box::pin(stream::iter([Ok(bytes.clone())]));
            let value =
                web::Json::<Value>::from_request(&request, &mut Payload::from(again)).await?;
            Ok(JsonAndBytes {
                value: value.into_inner(),
                bytes,
            })
        })
    }
}
