//! The contract, checked inside one process: what each outcome costs in store calls, and what a
//! request meets when a store call fails before or after its effect.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod app;
mod contract;
mod faults;
mod guarantees;
mod pages;
mod startup;
mod waiting;
