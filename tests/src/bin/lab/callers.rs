//! Who calls, and who may no longer.

use actix_web::{
    Error, FromRequest, HttpMessage, HttpRequest, HttpResponse,
    body::{EitherBody, MessageBody},
    dev::{Payload, ServiceRequest, ServiceResponse},
    error::ErrorUnauthorized,
    http::header,
    middleware::Next,
    web,
};
use std::{
    collections::HashSet,
    future::{Ready, ready},
    sync::{PoisonError, RwLock},
};

/// The caller of a request, as its token says: `USER` or `USER@TENANT`.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) user: String,
    pub(crate) tenant: Option<String>,
}

impl Caller {
    fn of(request: &ServiceRequest) -> Option<Caller> {
        let mut lines = request.headers().get_all(header::AUTHORIZATION);
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return None;
        };
        let text = std::str::from_utf8(line.as_bytes()).ok()?;
        let (scheme, token) = text.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") || token.contains(char::is_whitespace) {
            return None;
        }
        let (user, tenant) = match token.split_once('@') {
            Some((user, tenant)) => (user, Some(tenant)),
            None => (token, None),
        };
        let malformed = user.is_empty() || tenant.is_some_and(|t| t.is_empty() || t.contains('@'));
        (!malformed).then(|| Caller {
            user: user.to_owned(),
            tenant: tenant.map(str::to_owned),
        })
    }
}

/// Users whose tokens this process no longer takes.
#[derive(Debug, Default)]
pub(crate) struct Revoked(RwLock<HashSet<String>>);

impl Revoked {
    pub(crate) fn add(&self, user: String) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(user);
    }

    fn contains(&self, user: &str) -> bool {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(user)
    }
}

/// Turns callers away before anything else happens, and leaves the others in the request for
/// [`Caller`] to be extracted. The operator's routes are open.
pub(crate) async fn authenticate<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let operator = request.path().starts_with("/lab/") || request.path() == "/metrics";
    if !operator {
        let known = Caller::of(&request).filter(|caller| {
            request
                .app_data::<web::Data<Revoked>>()
                .is_none_or(|revoked| !revoked.contains(&caller.user))
        });
        let Some(caller) = known else {
            let answer = HttpResponse::Unauthorized()
                .insert_header((header::WWW_AUTHENTICATE, "Bearer"))
                .json(serde_json::json!({"error": "unauthorized"}));
            return Ok(request.into_response(answer).map_into_right_body());
        };
        request.extensions_mut().insert(caller);
    }
    Ok(next.call(request).await?.map_into_left_body())
}

impl FromRequest for Caller {
    type Error = Error;
    type Future = Ready<Result<Caller, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let caller = request.extensions().get::<Caller>().cloned();
        ready(caller.ok_or_else(|| ErrorUnauthorized("unauthorized")))
    }
}
