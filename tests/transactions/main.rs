//! One commit for claim, business writes and answer, on every database that a store is there for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cases;
mod contract;
mod dropped;
mod instances;
mod mysql;
mod postgres;
mod refused;
mod shop;
mod startup;
