//! The toolkit's own answers as HTTP responses.

use crate::{
    actix::config::Shared,
    problem::{Problem, ProblemKind},
};
use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, header},
};
use std::sync::Arc;

/// Base of the problems' `type` where the application has not set one.
pub(crate) const DEFAULT_TYPE_BASE: &str = "urn:idempotency:";

/// Renders a problem in an application's own way; `None` leaves it to the default.
pub(crate) type Renderer =
    Arc<dyn Fn(&Problem, &HttpRequest) -> Option<HttpResponse> + Send + Sync>;

/// How problems look.
#[derive(Clone)]
pub(crate) struct ProblemStyle {
    pub(crate) type_base: String,
    pub(crate) docs_url: Option<String>,
    pub(crate) renderer: Option<Renderer>,
}

impl Default for ProblemStyle {
    fn default() -> Self {
        Self {
            type_base: DEFAULT_TYPE_BASE.to_owned(),
            docs_url: None,
            renderer: None,
        }
    }
}

impl ProblemStyle {
    /// `application/problem+json` (RFC 9457), never stored by a cache.
    pub(crate) fn render(&self, problem: &Problem, request: &HttpRequest) -> HttpResponse {
        if let Some(response) = self
            .renderer
            .as_ref()
            .and_then(|renderer| renderer(problem, request))
        {
            return response;
        }
        let status =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = HttpResponse::build(status);
        response
            .content_type("application/problem+json")
            .insert_header((header::CACHE_CONTROL, "no-store"));
        if let Some(seconds) = problem.retry_after_seconds() {
            response.insert_header((header::RETRY_AFTER, seconds));
        }
        if let Some(url) = &self.docs_url {
            response.append_header((header::LINK, format!("<{url}>; rel=\"describedby\"")));
        }
        let body = serde_json::json!({
            "type": format!("{}{}", self.type_base, problem.kind.slug()),
            "title": problem.kind.title(),
            "status": problem.status,
            "detail": problem.detail,
            "retryable": problem.retryable,
        });
        response.body(body.to_string())
    }
}

/// The answer where there is no configuration to render by.
pub(crate) fn not_configured(request: &HttpRequest, handler: &str) -> HttpResponse {
    tracing::error!(
        handler,
        "no `Idempotency` for this handler in the application's data: add `.app_data(idempotency.clone())` to the `App`"
    );
    ProblemStyle::default().render(&Problem::new(ProblemKind::NotConfigured), request)
}

impl Shared {
    pub(crate) fn problem(&self, problem: &Problem, request: &HttpRequest) -> HttpResponse {
        let mut response = self.problems.render(problem, request);
        if self.in_flight.is_draining() {
            response
                .head_mut()
                .set_connection_type(actix_web::http::ConnectionType::Close);
        }
        response
    }
}
