//! The same behaviour on every store.

use crate::services::{self, Store};
use futures_util::{FutureExt, future::join_all};
use std::{env, panic::AssertUnwindSafe};

/// The variable that asks for the full numbers of every load test instead of those that fit into a
/// run on every change.
const SCALE_VARIABLE: &str = "IDEM_TEST_SCALE";

/// Whether this run is about the full numbers.
///
/// # Panics
///
/// If the variable holds anything but `full`.
#[must_use]
pub fn full_scale() -> bool {
    match env::var(SCALE_VARIABLE) {
        Err(env::VarError::NotPresent) => false,
        Ok(scale) if scale == "full" => true,
        other => panic!("{SCALE_VARIABLE} may be `full`, not {other:?}"),
    }
}

/// `usual`, or `full` when this run is about the full numbers.
#[must_use]
pub fn scaled<T>(usual: T, full: T) -> T {
    if full_scale() { full } else { usual }
}

/// The selected stores whose records outlive a process and can be shared by several.
///
/// # Panics
///
/// As [`services::selected`].
#[must_use]
pub fn durable() -> Vec<Store> {
    let mut stores = services::selected();
    stores.retain(|store| *store != Store::Memory);
    stores
}

/// The selected stores that claim, effect and answer can be one commit on.
///
/// # Panics
///
/// As [`services::selected`].
#[must_use]
pub fn transactional() -> Vec<Store> {
    let mut stores = services::selected();
    stores.retain(|store| matches!(store, Store::Sqlite | Store::Postgres | Store::MySql));
    stores
}

/// Runs a behaviour on each of these stores at the same time, and says on which of them it failed.
///
/// # Panics
///
/// If it failed on any.
pub async fn each(stores: Vec<Store>, behaviour: impl AsyncFn(Store)) {
    let runs = stores.into_iter().map(|store| {
        let run = AssertUnwindSafe(behaviour(store)).catch_unwind();
        async move { (store, run.await.is_ok()) }
    });
    let failed: Vec<_> = join_all(runs)
        .await
        .into_iter()
        .filter(|(_, passed)| !passed)
        .map(|(store, _)| store.to_string())
        .collect();
    assert!(
        failed.is_empty(),
        "failed on {}, see the panics above",
        failed.join(", ")
    );
}
