//! A handler's own word on its outcome, said through an error.

use actix_web::{
    App, HttpRequest, HttpResponse, Responder, ResponseError,
    error::{ErrorServiceUnavailable, ErrorTooManyRequests},
    http::StatusCode,
    web,
};
use idem_runtime::{idempotent, outcome};
use idem_tests::{
    harness::{Connection, InProcess, RawReply, each, request},
    services::selected,
};
use std::{
    fmt,
    sync::atomic::{AtomicU32, Ordering},
};

/// An application's error that says itself what its responses mean.
#[derive(Debug, Clone, Copy)]
enum ApiError {
    CardDeclined,
    GatewayUnreachable,
    Internal,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        match self {
            // Released and kept by default: the error says the opposite.
            ApiError::CardDeclined => StatusCode::TOO_MANY_REQUESTS,
            ApiError::GatewayUnreachable => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn error_response(&self) -> HttpResponse {
        let response = HttpResponse::build(self.status_code()).body(self.to_string());
        match self {
            ApiError::CardDeclined => outcome::keep(response),
            ApiError::GatewayUnreachable => outcome::release(response),
            ApiError::Internal => response,
        }
    }
}

fn of_its_own(what: &str) -> Result<HttpResponse, ApiError> {
    match what {
        "kept" => Err(ApiError::CardDeclined),
        "released" => Err(ApiError::GatewayUnreachable),
        _ => Err(ApiError::Internal),
    }
}

/// The same through `?` and into actix's error, and errors that are given the mark on their way.
fn through_others(what: &str) -> actix_web::Result<HttpResponse> {
    Err(match what {
        "kept-error" => outcome::keep_error(ErrorTooManyRequests("a limit")),
        "released-error" => outcome::release_error(ErrorServiceUnavailable("away")),
        "kept-own" => outcome::keep_error(ApiError::Internal),
        "released-own" => outcome::release_error(ApiError::Internal),
        "overruled" => outcome::release_error(ApiError::CardDeclined),
        "overruled-again" => outcome::keep_error(outcome::release_error(ApiError::CardDeclined)),
        other => return Ok(of_its_own(other)?),
    })
}

#[idempotent(scope = "user", ttl = "24h")]
async fn typed(
    what: web::Path<String>,
    runs: web::Data<AtomicU32>,
) -> Result<HttpResponse, ApiError> {
    runs.fetch_add(1, Ordering::SeqCst);
    of_its_own(&what)
}

#[idempotent(scope = "user", ttl = "24h")]
async fn nested(
    what: web::Path<String>,
    runs: web::Data<AtomicU32>,
) -> actix_web::Result<HttpResponse> {
    runs.fetch_add(1, Ordering::SeqCst);
    through_others(&what)
}

#[idempotent(scope = "user", ttl = "24h", server_error = "release")]
async fn releasing(
    what: web::Path<String>,
    runs: web::Data<AtomicU32>,
) -> actix_web::Result<impl Responder> {
    runs.fetch_add(1, Ordering::SeqCst);
    through_others(&what)
}

/// The same handlers without the attribute.
async fn bare(request: HttpRequest, what: web::Path<String>) -> actix_web::Result<HttpResponse> {
    let _ = request;
    through_others(&what)
}

async fn post(app: &InProcess, path: &str) -> RawReply {
    let mut connection = Connection::open(app.address).await;
    let headers: [(&str, &[u8]); 2] = [("Authorization", b"alice"), ("Idempotency-Key", b"k")];
    connection
        .send(&request("POST", path, &headers, b""))
        .await
        .unwrap();
    connection.reply().await
}

#[tokio::test]
async fn an_error_says_itself_whether_its_answer_is_kept_or_the_key_freed() {
    each(selected(), async |store| {
        let (builder, place) = InProcess::configuration(store).await;
        let idempotency = builder.build().unwrap();
        let runs = web::Data::new(AtomicU32::new(0));
        let counted = runs.clone();
        let app = InProcess::serve(place, move || {
            App::new()
                .app_data(idempotency.clone())
                .app_data(counted.clone())
                .route("/typed/{what}", web::post().to(typed))
                .route("/nested/{what}", web::post().to(nested))
                .route("/releasing/{what}", web::post().to(releasing))
                .route("/bare/{what}", web::post().to(bare))
        });
        for (path, kept) in [
            ("/typed/kept", true),
            ("/typed/released", false),
            // Nothing said: as the route says.
            ("/typed/internal", true),
            ("/nested/kept", true),
            ("/nested/released", false),
            ("/nested/internal", true),
            ("/nested/kept-error", true),
            ("/nested/released-error", false),
            ("/nested/kept-own", true),
            ("/nested/released-own", false),
            ("/nested/overruled", false),
            ("/nested/overruled-again", true),
            ("/releasing/kept", true),
            ("/releasing/internal", false),
            ("/releasing/kept-own", true),
        ] {
            let what = path.rsplit('/').next().unwrap_or_default();
            let bare = post(&app, &format!("/bare/{what}")).await;
            runs.store(0, Ordering::SeqCst);
            let first = post(&app, path).await;
            let again = post(&app, path).await;
            for reply in [&first, &again] {
                assert_eq!(
                    (reply.status, &reply.body),
                    (bare.status, &bare.body),
                    "{path}"
                );
            }
            assert!(!first.is_replay(), "{path}");
            assert_eq!(again.is_replay(), kept, "{path}");
            let expected = if kept { 1 } else { 2 };
            assert_eq!(runs.load(Ordering::SeqCst), expected, "{path}");
        }
    })
    .await;
}
