//! The `Idempotency-Key` contract for actix-web handlers.

pub mod record;
pub mod store;
