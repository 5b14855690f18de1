//! What handlers answer.

use crate::{
    handler::{Outcome, hex},
    knobs::Respond,
};
use actix_web::{
    HttpResponse, ResponseError,
    error::ErrorInternalServerError,
    http::{
        StatusCode,
        header::{self, HeaderName, HeaderValue},
    },
    web::Bytes,
};
use futures_util::stream;
use idem_runtime::outcome;
use serde_json::json;
use std::{fmt, time::Duration};

const EVENTS: u32 = 20;
const EVENT_PERIOD: Duration = Duration::from_millis(100);
const CHUNK: usize = 1024;
/// Whole numbers above this one are not told apart by every JSON reader (RFC 8259, section 6).
const LARGEST_ID: i64 = (1 << 53) - 1;

/// What the usual answer tells about the order.
#[derive(Debug)]
pub(crate) struct Created<'a> {
    pub(crate) id: i64,
    pub(crate) attempt: u32,
    pub(crate) body_sha256: &'a str,
}

/// A handler's failure as an error value.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    message: String,
}

impl Failure {
    pub(crate) fn journal(error: &std::io::Error) -> Failure {
        tracing::error!("the journal cannot be written: {error}");
        Failure {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            message: "journal".to_owned(),
        }
    }

    /// A row that could not be written.
    pub(crate) fn row(error: &dyn fmt::Display) -> Failure {
        tracing::error!("an order cannot be written: {error}");
        Failure {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            message: "row".to_owned(),
        }
    }

    /// A durable step that gave no result.
    pub(crate) fn step(error: &dyn fmt::Display) -> Failure {
        tracing::error!("a step failed: {error}");
        Failure {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            message: "step".to_owned(),
        }
    }

    /// A body that broke off while the handler read it.
    pub(crate) fn body(error: &dyn fmt::Display) -> Failure {
        Failure {
            status: StatusCode::BAD_REQUEST,
            message: format!("body: {error}"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl ResponseError for Failure {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        with_status(self.status, &self.message)
    }
}

pub(crate) fn answer(respond: Respond, order: &Created<'_>) -> Outcome {
    Ok(match respond {
        Respond::Created | Respond::Panic | Respond::Nested => created(order),
        Respond::Status(status) | Respond::NoEffect(status) => with_status(status, "lab"),
        Respond::Fail(status) => {
            return Err(Failure {
                status,
                message: "lab".to_owned(),
            });
        }
        Respond::Release(status) => outcome::release(with_status(status, "lab")),
        Respond::Final(status) => outcome::keep(with_status(status, "lab")),
        Respond::Empty => HttpResponse::NoContent().finish(),
        Respond::Null => HttpResponse::Ok().json(()),
        Respond::Bytes256 => HttpResponse::Ok()
            .content_type("image/png")
            .body((0..=u8::MAX).collect::<Vec<u8>>()),
        Respond::Csv => HttpResponse::Ok()
            .content_type("text/csv; charset=utf-8")
            .body(format!("id,nonce\n{},{}\n", order.id, nonce())),
        Respond::Large(bytes) => HttpResponse::Ok()
            .content_type("application/octet-stream")
            .body(vec![b'x'; bytes]),
        Respond::Utf8(characters) => HttpResponse::Ok()
            .content_type("text/plain; charset=utf-8")
            .body(many_bytes_each(characters)),
        Respond::Stream(chunks) => HttpResponse::Ok()
            .content_type("application/octet-stream")
            .streaming(stream::iter((0..chunks).map(|_| {
                Ok::<_, actix_web::Error>(Bytes::from_static(&[b'x'; CHUNK]))
            }))),
        Respond::Broken(chunks) => HttpResponse::Ok()
            .content_type("application/octet-stream")
            .streaming(stream::iter((0..=chunks).map(move |chunk| {
                if chunk == chunks {
                    return Err(ErrorInternalServerError("the stream breaks off"));
                }
                Ok(Bytes::from_static(&[b'x'; CHUNK]))
            }))),
        Respond::Sse => events(),
        Respond::Headers => headers(order),
    })
}

/// The panic that `X-Lab-Respond: panic` asks for.
#[allow(clippy::panic)]
pub(crate) fn panic_on_demand() -> ! {
    panic!("the request asked for a panic")
}

fn created(order: &Created<'_>) -> HttpResponse {
    let Created {
        id,
        attempt,
        body_sha256,
    } = order;
    HttpResponse::Created()
        .insert_header((header::LOCATION, format!("/orders/{id}")))
        .json(json!({"id": id, "nonce": nonce(), "attempt": attempt, "body_sha256": body_sha256}))
}

fn with_status(status: StatusCode, error: &str) -> HttpResponse {
    let mut answer = HttpResponse::build(status);
    if status.is_redirection() {
        answer.insert_header((header::LOCATION, "/orders/1"));
    }
    // These have no body (RFC 9110, section 6.4.1).
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return answer.finish();
    }
    answer.json(json!({"error": error}))
}

fn headers(order: &Created<'_>) -> HttpResponse {
    let mut answer = created(order);
    let fields = answer.headers_mut();
    let text: [(&str, String); 6] = [
        ("set-cookie", format!("session={}; HttpOnly", nonce())),
        ("x-request-id", nonce()),
        ("etag", format!("\"{}\"", nonce())),
        ("link", "</orders?page=2>; rel=\"next\"".to_owned()),
        ("link", "</orders/schema>; rel=\"describedby\"".to_owned()),
        ("cache-control", "private, max-age=60".to_owned()),
    ];
    for (name, value) in text {
        if let Ok(value) = HeaderValue::try_from(value) {
            fields.append(HeaderName::from_static(name), value);
        }
    }
    let bytes: Vec<u8> = (0x80..=0xff).collect();
    if let Ok(value) = HeaderValue::from_bytes(&bytes) {
        fields.append(HeaderName::from_static("x-bytes"), value);
    }
    answer
}

fn events() -> HttpResponse {
    let events = stream::unfold(0, |sent| async move {
        if sent == EVENTS {
            return None;
        }
        if sent > 0 {
            tokio::time::sleep(EVENT_PERIOD).await;
        }
        let event = Bytes::from(format!("id: {sent}\ndata: {}\n\n", nonce()));
        Some((Ok::<_, actix_web::Error>(event), sent + 1))
    });
    HttpResponse::Ok()
        .content_type("text/event-stream")
        .streaming(events)
}

/// Text that no limit in bytes cuts between two characters.
fn many_bytes_each(characters: usize) -> String {
    (1..=characters)
        .map(|index| if index % 1000 == 0 { '🙂' } else { '€' })
        .collect()
}

/// A number for a new order.
pub(crate) fn random_id() -> i64 {
    rand::random_range(1..=LARGEST_ID)
}

fn nonce() -> String {
    hex(&rand::random::<[u8; 16]>())
}
