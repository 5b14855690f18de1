//! What the lab and the suites that drive it have in common.

pub mod harness;
pub mod services;
pub mod stores;
