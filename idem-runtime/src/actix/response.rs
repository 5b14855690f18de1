//! Responses on their way into a record and out of it.

use crate::{fail_points::point, panics::panic_message, record::StoredResponse};
use actix_web::{
    HttpResponse,
    body::{BodySize, BoxBody, MessageBody},
    http::{
        StatusCode,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
    web::{Bytes, BytesMut},
};
use futures_util::FutureExt;
use std::{
    collections::HashSet,
    error::Error,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::sync::mpsc;

type BoxError = Box<dyn Error>;

/// Fields that belong to one exchange and are wrong in any other: they are not kept.
const NOT_KEPT: &[&str] = &[
    // of the message's framing and connection (RFC 9110, section 7.6.1)
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    // of the moment
    "date",
    // secrets and challenges of the first caller
    "set-cookie",
    "www-authenticate",
    "proxy-authenticate",
    "authentication-info",
    "proxy-authentication-info",
    // identities of the first request
    "request-id",
    "x-request-id",
    "x-correlation-id",
    "x-trace-id",
    "traceresponse",
    "traceparent",
    "tracestate",
    "server-timing",
    // counters
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

/// Cross-origin permissions answer one `Origin`; the application's middleware adds the current ones.
const NOT_KEPT_PREFIX: &str = "access-control-";

/// Which response headers are kept, and how a replay is marked.
#[derive(Debug, Clone)]
pub(crate) struct ReplayRules {
    pub(crate) marker: HeaderName,
    dropped: HashSet<HeaderName>,
    kept: HashSet<HeaderName>,
}

impl ReplayRules {
    pub(crate) fn new(marker: HeaderName) -> ReplayRules {
        ReplayRules {
            marker,
            dropped: NOT_KEPT
                .iter()
                .map(|name| HeaderName::from_static(name))
                .collect(),
            kept: HashSet::new(),
        }
    }

    pub(crate) fn drop_header(&mut self, name: HeaderName) {
        self.kept.remove(&name);
        self.dropped.insert(name);
    }

    pub(crate) fn keep_header(&mut self, name: HeaderName) {
        self.dropped.remove(&name);
        self.kept.insert(name);
    }

    fn keeps(&self, name: &HeaderName, named_by_connection: &[String]) -> bool {
        if *name == self.marker || self.dropped.contains(name) {
            return false;
        }
        self.kept.contains(name)
            || !(name.as_str().starts_with(NOT_KEPT_PREFIX)
                || named_by_connection
                    .iter()
                    .any(|named| named == name.as_str()))
    }

    fn kept_headers(&self, status: StatusCode, headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
        let named_by_connection: Vec<String> = headers
            .get_all(header::CONNECTION)
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(|name| name.trim().to_ascii_lowercase())
            .collect();
        headers
            .iter()
            .filter(|(name, _)| {
                self.keeps(name, &named_by_connection)
                    || is_of_the_representation(status, name) && **name != self.marker
            })
            .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
            .collect()
    }

    /// A response as it is kept, with `body` for its body.
    pub(crate) fn stored<B>(
        &self,
        response: &HttpResponse<B>,
        body: Option<Bytes>,
    ) -> StoredResponse {
        StoredResponse {
            code: response.status().as_u16(),
            headers: self.kept_headers(response.status(), response.headers()),
            body,
        }
    }

    /// A kept response, marked as a replay. `None` if it holds what no HTTP response can.
    pub(crate) fn replay(&self, stored: StoredResponse) -> Option<HttpResponse> {
        let mut response = HttpResponse::with_body(
            StatusCode::from_u16(stored.code).ok()?,
            match stored.body {
                Some(bytes) => BoxBody::new(bytes),
                None => BoxBody::new(actix_web::body::None::new()),
            },
        );
        for (name, value) in stored.headers {
            response.headers_mut().append(
                HeaderName::try_from(name).ok()?,
                HeaderValue::from_maybe_shared(Bytes::from(value)).ok()?,
            );
        }
        response
            .headers_mut()
            .insert(self.marker.clone(), HeaderValue::from_static("true"));
        Some(response)
    }
}

/// The length that a 304 names is not that of its own content, of which it has none, but that of
/// what the client has already (RFC 9110, section 8.6).
fn is_of_the_representation(status: StatusCode, name: &HeaderName) -> bool {
    status == StatusCode::NOT_MODIFIED && *name == header::CONTENT_LENGTH
}

/// How the body of a response can be kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Retention {
    /// Whole, before its first byte is sent.
    Whole,
    /// While it passes live, up to the limit.
    WhilePassing,
    /// Not at all.
    Never,
}

impl Retention {
    pub(crate) fn of(response: &HttpResponse, limit: usize) -> Retention {
        match response.body().size() {
            BodySize::None => Retention::Whole,
            BodySize::Sized(size) if size <= limit as u64 => Retention::Whole,
            BodySize::Sized(_) => Retention::Never,
            // An event stream may never end, and its worth is in the moment (WHATWG HTML, 9.2).
            BodySize::Stream if is_event_stream(response) => Retention::Never,
            BodySize::Stream => Retention::WhilePassing,
        }
    }
}

fn is_event_stream(response: &HttpResponse) -> bool {
    response
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// The next chunk of a body. A panic is an error of the body's: were it let through, the client
/// would take what it has for a whole answer, and nobody would settle the claim.
pub(crate) async fn next_chunk(body: &mut BoxBody) -> Option<Result<Bytes, BoxError>> {
    let chunk = std::future::poll_fn(|cx| body.as_pin_mut().poll_next(cx));
    let chunk = AssertUnwindSafe(chunk).catch_unwind();
    match point!("body.chunk", chunk).await {
        Ok(chunk) => chunk,
        Err(panic) => {
            let message = panic_message(&*panic);
            Some(Err(format!("the body panicked: {message}").into()))
        }
    }
}

/// A body read as far as it may be kept.
pub(crate) enum Collected {
    /// All of it; `None` where there is no body at all.
    Whole(Option<Bytes>),
    /// More than the limit, or a stream that is not kept: what was read, and the rest.
    TooLarge {
        size: BodySize,
        read: Bytes,
        rest: BoxBody,
    },
    /// It broke off: what was read, and why there is no more.
    Broken {
        size: BodySize,
        read: Bytes,
        error: BoxError,
    },
}

impl Collected {
    /// A body that is not to be kept: nothing of it is read.
    pub(crate) fn left(body: BoxBody) -> Collected {
        Collected::TooLarge {
            size: body.size(),
            read: Bytes::new(),
            rest: body,
        }
    }
}

/// Reads a body up to `limit` bytes.
pub(crate) async fn collect(mut body: BoxBody, limit: usize) -> Collected {
    let size = body.size();
    if size == BodySize::None {
        return Collected::Whole(None);
    }
    body = match body.try_into_bytes() {
        Ok(bytes) => return Collected::Whole(Some(bytes)),
        Err(body) => body,
    };
    // What the client will take for the end, whatever comes after it.
    let announced = match size {
        BodySize::Sized(size) => usize::try_from(size).ok(),
        BodySize::None | BodySize::Stream => None,
    };
    let mut read = BytesMut::new();
    while announced.is_none_or(|announced| read.len() < announced) {
        let error = match next_chunk(&mut body).await {
            None if announced.is_none() => break,
            None => Some(TOO_SHORT.into()),
            Some(Ok(chunk)) => {
                read.extend_from_slice(&chunk);
                None
            }
            Some(Err(error)) => Some(error),
        };
        if let Some(error) = error {
            return Collected::Broken {
                size,
                read: read.freeze(),
                error,
            };
        }
        if let Some(announced) = announced {
            read.truncate(announced);
        }
        if read.len() > limit {
            return Collected::TooLarge {
                size,
                read: read.freeze(),
                rest: body,
            };
        }
    }
    Collected::Whole(Some(read.freeze()))
}

const TOO_SHORT: &str = "the body ended before its announced length";

/// Passes a body on, up to its first error, for as long as somebody receives it.
pub(crate) async fn pass(mut body: BoxBody, client: LiveSender) {
    while let Some(chunk) = next_chunk(&mut body).await {
        let broken = chunk.is_err();
        if point!("body.pass", client.send(chunk)).await.is_err() || broken {
            return;
        }
    }
}

/// A body whose chunks arrive from the section that keeps them.
pub(crate) struct LiveBody {
    chunks: mpsc::Receiver<Result<Bytes, BoxError>>,
    size: BodySize,
}

/// The sending end of a [`LiveBody`].
pub(crate) type LiveSender = mpsc::Sender<Result<Bytes, BoxError>>;

impl LiveBody {
    /// A body and the end it is fed through; dropping the sender ends the body.
    pub(crate) fn new(size: BodySize) -> (LiveSender, LiveBody) {
        // One chunk ahead: the client's pace is the handler's, as without the attribute.
        let (sender, chunks) = mpsc::channel(1);
        (sender, LiveBody { chunks, size })
    }
}

impl MessageBody for LiveBody {
    type Error = BoxError;

    fn size(&self) -> BodySize {
        self.size
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BoxError>>> {
        self.chunks.poll_recv(cx)
    }
}
