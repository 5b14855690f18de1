//! An order service whose retries are safe: the program to run first and to copy from.
//!
//! Start reading in [`handlers`]: a handler is plain actix code under one attribute. [`server`]
//! puts the service together, and that is all the idempotency there is; the rest is a shop.

pub mod auth;
pub mod demo;
pub mod error;
pub mod gateway;
pub mod handlers;
pub mod model;
pub mod server;
pub mod store;
