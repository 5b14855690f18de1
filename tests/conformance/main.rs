//! The conformance suite on every store, and what each store promises beyond it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod factories;
mod model;
mod mysql;
mod postgres;
mod servers;
mod sqlite_file;
mod support;

use factories::{Memory, Sqlite};
use idem_runtime::testing::conformance;

conformance::tests!(memory, Memory);
conformance::tests!(sqlite, Sqlite::new());

model::tests!(memory_follows_the_model, Memory, 300);
model::tests!(sqlite_follows_the_model, Sqlite::new(), 60);
