//! The conformance suite on every store, and what each store promises beyond it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod factories;
mod model;
mod mysql;
mod postgres;
mod redis;
mod servers;
mod sqlite_file;
mod support;

use factories::{Memory, Sqlite};
use idem_runtime::{store::Store, testing::conformance};
use std::sync::Arc;

conformance::tests!(memory, Memory);
conformance::tests!(sqlite, Sqlite::new());

model::tests!(memory_follows_the_model, Memory, 300);
model::tests!(sqlite_follows_the_model, Sqlite::new(), 60);

/// There is no store to be had from it.
struct Broken;

#[async_trait::async_trait]
impl conformance::Factory for Broken {
    async fn fresh(&self) -> Arc<dyn Store> {
        panic!("no database at 127.0.0.1:1")
    }
}

#[tokio::test]
async fn a_run_reports_every_case_that_failed() {
    let run = tokio::spawn(conformance::run(Broken)).await;
    let panic = run.unwrap_err().into_panic();
    let report = panic.downcast_ref::<String>().unwrap();
    let all = conformance::cases();
    assert!(
        report.starts_with(&format!("{0} of {0} cases failed", all.len())),
        "{report}"
    );
    for case in all {
        let line = format!(
            "- {}: {}\n  it panicked: no database at 127.0.0.1:1",
            case.name(),
            case.sentence()
        );
        assert!(report.contains(&line), "{line}\nis not in\n{report}");
    }
}
