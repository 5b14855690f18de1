//! What generated code names. Not part of the public interface.
//!
//! Only types that the expansion mentions are here: a trait re-exported from here would show up
//! under this path in the compiler's messages to users.

pub use crate::{
    actix::run::run,
    fingerprint::Mode as FingerprintMode,
    policy::{Abandonment, KeyFormat, Mismatch, OnStoreError, Policy, ServerError},
    reconcile::Reconcile,
    registry::Route,
    scope::{Scope, principal},
};
pub use actix_web::{Error, HttpRequest, HttpResponse, web::Payload};
pub use inventory::submit;

/// Fails to compile at the argument's own type if it is not an extractor.
pub const fn assert_extractor<T: actix_web::FromRequest>() {}

/// Fails to compile at the return type if it is not a responder.
pub const fn assert_responder<T: actix_web::Responder>() {}
