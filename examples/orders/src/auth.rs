//! Who is calling.

use crate::error::ApiError;
use actix_web::{FromRequest, HttpRequest, dev::Payload, http::header::AUTHORIZATION};
use std::future::{Ready, ready};

/// Tokens and the accounts they belong to. A real service looks them up, hashed.
const DEMO_USERS: &[(&str, &str)] = &[("sec_token_xyz", "alice"), ("sec_token_abc", "bob")];

/// The authenticated caller; an extractor, refused with 401.
///
/// It is also the owner of idempotency keys (the scope `user`): `id` names the account and stays
/// the same between retries, while a token may be renewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthUser {
    /// The account.
    pub id: String,
}

impl FromRequest for AuthUser {
    type Error = ApiError;
    type Future = Ready<Result<AuthUser, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(authenticate(request).ok_or(ApiError::Unauthorized))
    }
}

fn authenticate(request: &HttpRequest) -> Option<AuthUser> {
    let credentials = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, given) = credentials.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (_, account) = DEMO_USERS.iter().find(|(token, _)| *token == given)?;
    Some(AuthUser {
        id: (*account).to_owned(),
    })
}
