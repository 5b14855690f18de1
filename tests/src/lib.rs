//! What the lab and the suites that drive it have in common.
//!
//! Labels beside tests, such as `// P22` or `// I2`, number the known faults of idempotency layers that
//! the suites were written against: a letter for the kind of fault, a number for the fault. Whoever
//! changes a test that has one keeps what it shows.

pub mod harness;
pub mod services;
pub mod stores;
