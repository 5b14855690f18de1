//! The conformance suite on every store, and what each store promises beyond it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod redis;

use async_trait::async_trait;
use idem_runtime::{
    store::{MemoryStore, Store},
    testing::conformance::{self, Factory},
};
use std::sync::Arc;

struct Memory;

#[async_trait]
impl Factory for Memory {
    async fn fresh(&self) -> Arc<dyn Store> {
        Arc::new(MemoryStore::new())
    }
}

conformance::tests!(memory, Memory);
