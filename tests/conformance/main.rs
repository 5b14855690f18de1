//! The conformance suite on every store, and what each store promises beyond it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod factories;

use factories::{Memory, Sqlite};
use idem_runtime::testing::conformance;

conformance::tests!(memory, Memory);
conformance::tests!(sqlite, Sqlite::new());
