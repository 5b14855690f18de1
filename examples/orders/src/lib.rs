//! An order service whose retries are safe: the program to run first and to copy from.
//!
//! Start reading in [`handlers`]: a handler is plain actix code under one attribute. [`server`]
//! puts the service together, and that is all the idempotency there is; the rest is a shop.
//! [`leased`] has the order's handler for records that stand in another database than the orders.

pub mod auth;
pub mod cashier;
pub mod demo;
pub mod error;
pub mod gateway;
pub mod handlers;
pub mod leased;
pub mod model;
mod records;
pub mod server;
pub mod store;
