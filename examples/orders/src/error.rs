//! The service's own errors, as problems (RFC 9457) of types of its own. Those of the idempotency
//! contract begin with `urn:idempotency:`, so a client can tell a business 409 from a running request.

use actix_web::{
    HttpResponse, ResponseError,
    error::JsonPayloadError,
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE},
    },
    web,
};
use idem_runtime::record::StoredResponse;
use serde_json::{Value, json};

const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request was not fulfilled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// No token, or one that nobody has.
    #[error("Send `Authorization: Bearer` and a token.")]
    Unauthorized,
    /// The body is not what it should be.
    #[error("{0}")]
    InvalidBody(#[from] JsonPayloadError),
    /// The order names something that is not sold.
    #[error("There is no item {0}.")]
    UnknownItem(i64),
    /// The amount is not what the items cost.
    #[error("The items cost {expected}.")]
    AmountMismatch {
        /// What they cost.
        expected: i64,
    },
    /// There is not enough left of an item.
    #[error("There is not enough of item {0} in stock.")]
    InsufficientStock(i64),
    /// The gateway refused the charge.
    #[error("The payment was declined; nothing was charged.")]
    PaymentDeclined,
    /// The gateway gave no answer and nothing was charged.
    #[error("The payment gateway does not answer; nothing was charged. Retry later.")]
    PaymentUnavailable,
    /// The gateway did not say whether it charged.
    #[error(
        "The payment gateway did not answer, so it is not known whether the charge was made. The same key will not charge again: it gets this answer. Ask the shop what became of the payment."
    )]
    PaymentUnknown,
    /// The key stood for something else, so long ago that its record is gone.
    #[error("This key was used for another request before; nothing was done. Use a new key.")]
    KeyUsedBefore,
    /// There is no such order, or it is somebody else's.
    #[error("There is no such order.")]
    OrderNotFound,
    /// The database failed. The cause is for the log, not for the client.
    #[error("The request failed.")]
    Database(#[from] sqlx::Error),
}

impl ApiError {
    fn slug(&self) -> &'static str {
        match self {
            ApiError::Unauthorized => "unauthorized",
            ApiError::InvalidBody(_) => "invalid-body",
            ApiError::UnknownItem(_) => "unknown-item",
            ApiError::AmountMismatch { .. } => "amount-mismatch",
            ApiError::InsufficientStock(_) => "insufficient-stock",
            ApiError::PaymentDeclined => "payment-declined",
            ApiError::PaymentUnavailable => "payment-unavailable",
            ApiError::PaymentUnknown => "payment-unknown",
            ApiError::KeyUsedBefore => "key-used-before",
            ApiError::OrderNotFound => "order-not-found",
            ApiError::Database(_) => "internal",
        }
    }

    fn problem(&self) -> Value {
        json!({
            "type": format!("urn:orders:{}", self.slug()),
            "title": self.slug().replace('-', " "),
            "status": self.status_code().as_u16(),
            "detail": self.to_string(),
        })
    }

    /// The answer of this error, for a record.
    pub(crate) fn stored(&self) -> StoredResponse {
        StoredResponse::new(self.status_code().as_u16())
            .header(CONTENT_TYPE.as_str(), PROBLEM_JSON)
            .header(CACHE_CONTROL.as_str(), "no-store")
            .body(self.problem().to_string())
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        match self {
            ApiError::Unauthorized => StatusCode::UNAUTHORIZED,
            ApiError::InvalidBody(error) => error.status_code(),
            ApiError::UnknownItem(_) | ApiError::AmountMismatch { .. } => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            ApiError::InsufficientStock(_) | ApiError::KeyUsedBefore => StatusCode::CONFLICT,
            ApiError::PaymentDeclined => StatusCode::PAYMENT_REQUIRED,
            ApiError::PaymentUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::PaymentUnknown => StatusCode::BAD_GATEWAY,
            ApiError::OrderNotFound => StatusCode::NOT_FOUND,
            ApiError::Database(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn error_response(&self) -> HttpResponse {
        if let ApiError::Database(error) = self {
            tracing::error!("the database failed: {error}");
        }
        let mut response = HttpResponse::build(self.status_code());
        response
            .content_type(PROBLEM_JSON)
            .insert_header((CACHE_CONTROL, "no-store"));
        if matches!(self, ApiError::Unauthorized) {
            response.insert_header((WWW_AUTHENTICATE, "Bearer"));
        }
        response.json(self.problem())
    }
}

/// Makes actix's own extractors answer like the rest of the API.
pub fn answer_in_problem_json(config: &mut web::ServiceConfig) {
    config
        .app_data(web::JsonConfig::default().error_handler(|error, _| ApiError::from(error).into()))
        .app_data(web::PathConfig::default().error_handler(|_, _| ApiError::OrderNotFound.into()));
}
