//! The stores against the suite that states what a store must do, and what each engine alone must
//! stand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod mysql;
mod postgres;
mod support;
