//! A handler's own word on its outcome, over every rule about statuses.

use actix_web::{HttpResponse, body::MessageBody};

/// What the handler said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Release,
    Keep,
}

/// Nothing happened: the response is sent, the key is freed, and a retry runs anew.
///
/// ```
/// use actix_web::{HttpResponse, Responder};
/// use idem_runtime::outcome;
///
/// async fn reserve() -> impl Responder {
///     // The warehouse refused before anything was reserved.
///     outcome::release(HttpResponse::ServiceUnavailable().finish())
/// }
/// ```
pub fn release<B: MessageBody>(response: HttpResponse<B>) -> HttpResponse<B> {
    say(response, Verdict::Release)
}

/// This is final: the response is kept and replayed whatever its status.
///
/// ```
/// use actix_web::{HttpResponse, Responder};
/// use idem_runtime::outcome;
///
/// async fn enlist() -> impl Responder {
///     // Too many orders this month is an answer, not a reason to try again.
///     outcome::keep(HttpResponse::TooManyRequests().finish())
/// }
/// ```
pub fn keep<B: MessageBody>(response: HttpResponse<B>) -> HttpResponse<B> {
    say(response, Verdict::Keep)
}

fn say<B>(mut response: HttpResponse<B>, verdict: Verdict) -> HttpResponse<B> {
    response.extensions_mut().insert(verdict);
    response
}

pub(crate) fn verdict<B>(response: &HttpResponse<B>) -> Option<Verdict> {
    response.extensions().get::<Verdict>().copied()
}
