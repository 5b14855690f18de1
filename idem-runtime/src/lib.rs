//! The `Idempotency-Key` contract for actix-web handlers.

pub mod fingerprint;
pub mod key;
pub mod record;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
