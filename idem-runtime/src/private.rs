//! What generated code names. Not part of the public interface.
//!
//! Only types that the expansion mentions are here: a trait re-exported from here would show up
//! under this path in the compiler's messages to users.

pub use crate::{
    actix::{conflict::Finished, run::run, tx::run_in_transaction},
    fingerprint::Mode as FingerprintMode,
    policy::{Abandonment, KeyFormat, Mismatch, OnStoreError, Policy, ServerError},
    reconcile::{Reconcile, reconcile},
    registry::Route,
    scope::{Scope, principal},
};
pub use actix_web::{Error, HttpRequest, HttpResponse, web::Payload};
pub use inventory::submit;

/// Fails to compile at the argument's own type if it is not an extractor.
pub const fn assert_extractor<T: actix_web::FromRequest>() {}

/// Fails to compile at the return type if it is not a responder.
pub const fn assert_responder<T: actix_web::Responder>() {}

/// Fails to compile at the argument's own type if no transaction can be opened on it.
pub const fn assert_connection<C: crate::store::Connection>() {}

/// The check that a store's records stand in a database with connections of type `C`.
pub fn transactions<C: crate::store::Connection>(
    store: &dyn crate::store::Store,
) -> Result<(), &'static str> {
    C::store(store).map(drop).ok_or(C::DATABASE)
}
