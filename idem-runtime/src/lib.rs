// The page that a reader of the repository sees first is the crate's, and its code is compiled. It
// shows the SQLite store, so without that feature it could not be.
//
// The pages are read in the repository, too, where their links lead to files. Of two definitions of a
// link the first one counts: those given here, before a page, are for readers of this documentation.
#![cfg_attr(
    feature = "sqlite",
    doc = "[guarantees]: crate::guarantees",
    doc = "[scaling]: crate::scaling",
    doc = "[MIT]: https://spdx.org/licenses/MIT.html",
    doc = "[Apache 2.0]: https://spdx.org/licenses/Apache-2.0.html",
    doc = "",
    doc = include_str!("../README.md")
)]
#![cfg_attr(
    not(feature = "sqlite"),
    doc = "The `Idempotency-Key` contract for actix-web handlers."
)]

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod actix;
mod at_work;
mod context;
mod drain;
mod engine;
#[cfg(feature = "fail-points")]
#[doc(hidden)]
pub mod fail_points;
/// Without the feature `fail-points` an await is an await.
#[cfg(not(feature = "fail-points"))]
mod fail_points {
    macro_rules! point {
        ($name:literal, $future:expr) => {
            $future
        };
    }
    pub(crate) use point;
}
pub mod fingerprint;
#[doc = "[drain_limit]: crate::IdempotencyBuilder::drain_limit"]
#[doc = "[downstream_key]: crate::Context::downstream_key"]
#[doc = "[lease_lost]: crate::Context::lease_lost"]
#[doc = "[memory]: crate::store::MemoryStore"]
#[doc = "[reconcile_patience]: crate::IdempotencyBuilder::reconcile_patience"]
#[doc = "[step]: crate::Context::step"]
#[doc = ""]
#[doc = include_str!("guarantees.md")]
pub mod guarantees {}
pub mod key;
mod lease;
mod orphans;
pub mod outcome;
mod panics;
mod path;
pub mod policy;
mod problem;
mod reconcile;
pub mod record;
mod registry;
mod repair;
#[doc = include_str!("scaling.md")]
pub mod scaling {}
mod scope;
mod steps;
pub mod store;
mod sweeper;
#[cfg(feature = "testing")]
pub mod testing;
mod transaction;
mod waiters;

pub use actix::config::{
    BuildError, DEFAULT_MARKER, DEFAULT_ORPHANS_PERIOD, DEFAULT_RECONCILE_PERIOD,
    DEFAULT_STORE_TIMEOUT, DEFAULT_SWEEP_PERIOD, Idempotency, IdempotencyBuilder, RoutePolicy,
};
pub use actix::serve::DEFAULT_DRAIN_LIMIT;
pub use context::Context;
#[doc = "[internal_error]: crate::outcome::internal_error"]
#[doc = "[release]: crate::outcome::release"]
#[doc = ""]
#[doc = include_str!("idempotent.md")]
pub use idem_macros::idempotent;
pub use problem::{Problem, ProblemKind};
pub use reconcile::{Abandoned, DEFAULT_RECONCILE_PATIENCE, Resolution};
pub use scope::{Principal, ScopeValue};
pub use steps::StepError;
