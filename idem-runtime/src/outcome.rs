//! A handler's own word on its outcome, over every rule about statuses.
//!
//! It is a mark on the response, so an error type says it where it makes its response, and every
//! `Err` and `?` that leads to this error carries it, on leased and on transactional routes:
//!
//! ```
//! use actix_web::{HttpResponse, ResponseError, http::StatusCode};
//! use idem_runtime::outcome;
//! # use std::fmt;
//!
//! #[derive(Debug)]
//! enum ApiError {
//!     CardDeclined,
//!     GatewayUnreachable,
//!     Internal,
//! }
//! # impl fmt::Display for ApiError {
//! #     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{self:?}") }
//! # }
//!
//! impl ResponseError for ApiError {
//!     fn status_code(&self) -> StatusCode {
//!         match self {
//!             ApiError::CardDeclined => StatusCode::PAYMENT_REQUIRED,
//!             ApiError::GatewayUnreachable => StatusCode::SERVICE_UNAVAILABLE,
//!             ApiError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
//!         }
//!     }
//!
//!     fn error_response(&self) -> HttpResponse {
//!         let response = HttpResponse::build(self.status_code()).body(self.to_string());
//!         match self {
//!             // The bank has spoken: a retry gets the same answer.
//!             ApiError::CardDeclined => outcome::keep(response),
//!             // No connection was made, so nothing was charged: a retry runs.
//!             ApiError::GatewayUnreachable => outcome::release(response),
//!             // Whatever the route says of a 500.
//!             ApiError::Internal => response,
//!         }
//!     }
//! }
//!
//! async fn pay() -> Result<HttpResponse, ApiError> {
//!     Err(ApiError::CardDeclined)
//! }
//! ```
//!
//! An error of somebody else's is given the mark where it is met, with [`release_error`] and
//! [`keep_error`].

use actix_web::{Error, HttpResponse, ResponseError, body::MessageBody, http::StatusCode};
use std::{error::Error as StdError, fmt};

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

/// [`release`] for an error: its response is sent, the key is freed, and a retry runs anew.
///
/// The response is the one that the error makes. What the error says of itself is overruled.
///
/// ```
/// use actix_web::{HttpResponse, error::ErrorBadGateway};
/// use idem_runtime::outcome;
/// # async fn reserve() -> Result<String, std::io::Error> { Ok("r1".to_owned()) }
///
/// async fn order() -> actix_web::Result<HttpResponse> {
///     // The warehouse says so if it could not be reached: nothing is reserved.
///     let reserved = reserve()
///         .await
///         .map_err(|error| outcome::release_error(ErrorBadGateway(error)))?;
///     Ok(HttpResponse::Created().body(reserved))
/// }
/// ```
pub fn release_error(error: impl Into<Error>) -> Error {
    say_of(error.into(), Verdict::Release)
}

/// [`keep`] for an error: its response is kept and replayed whatever its status.
///
/// The response is the one that the error makes. What the error says of itself is overruled.
///
/// ```
/// use actix_web::{HttpResponse, error::ErrorTooManyRequests};
/// use idem_runtime::outcome;
/// # fn quota() -> Result<(), String> { Ok(()) }
///
/// async fn enlist() -> actix_web::Result<HttpResponse> {
///     quota().map_err(|error| outcome::keep_error(ErrorTooManyRequests(error)))?;
///     Ok(HttpResponse::Created().finish())
/// }
/// ```
pub fn keep_error(error: impl Into<Error>) -> Error {
    say_of(error.into(), Verdict::Keep)
}

/// An error whose response carries a verdict.
struct Said {
    error: Error,
    verdict: Verdict,
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl ResponseError for Said {
    fn status_code(&self) -> StatusCode {
        self.error.as_response_error().status_code()
    }

    fn error_response(&self) -> HttpResponse {
        say(self.error.error_response(), self.verdict)
    }
}

/// An error as a 500 that keeps its cause, for handlers that return `actix_web::Error`.
///
/// That type hides what it is made of. On a transactional route the toolkit looks for the reason of a
/// failure: a statement that the database has refused in favour of another transaction (a deadlock, a
/// serialization failure) makes the answer a 503 that says to retry. It looks along the sources of the
/// handler's error, so an error type of the application's own needs nothing but a `source()`. Nothing
/// of the cause is sent to the client.
///
/// ```standalone_crate
/// # #[cfg(feature = "postgres")]
/// # mod example {
/// use actix_web::{HttpResponse, post};
/// use idem_runtime::{idempotent, outcome};
/// use sqlx::PgConnection;
///
/// #[idempotent(scope = "user", ttl = "24h", transaction = tx)]
/// #[post("/api/v1/orders")]
/// async fn create_order(tx: &mut PgConnection) -> actix_web::Result<HttpResponse> {
///     sqlx::query("UPDATE stock SET pieces = pieces - 1")
///         .execute(tx)
///         .await
///         .map_err(outcome::internal_error)?;
///     Ok(HttpResponse::Created().finish())
/// }
/// # }
/// ```
pub fn internal_error(cause: impl StdError + 'static) -> Error {
    Internal(Box::new(cause)).into()
}

/// A 500 that can be asked for its cause.
#[derive(Debug)]
struct Internal(Box<dyn StdError>);

impl fmt::Display for Internal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl ResponseError for Internal {
    fn error_response(&self) -> HttpResponse {
        HttpResponse::InternalServerError().body("Internal Server Error")
    }
}

/// The cause of an error that was made here.
pub(crate) fn cause(error: &Error) -> Option<&(dyn StdError + 'static)> {
    if let Some(said) = error.as_error::<Said>() {
        return Some(&said.error);
    }
    let internal = error.as_error::<Internal>()?;
    Some(&*internal.0)
}

fn say_of(error: Error, verdict: Verdict) -> Error {
    Said { error, verdict }.into()
}

fn say<B>(mut response: HttpResponse<B>, verdict: Verdict) -> HttpResponse<B> {
    response.extensions_mut().insert(verdict);
    response
}

pub(crate) fn verdict<B>(response: &HttpResponse<B>) -> Option<Verdict> {
    response.extensions().get::<Verdict>().copied()
}
