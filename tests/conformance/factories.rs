//! How the suite gets fresh stores of each kind.

use async_trait::async_trait;
use idem_runtime::{
    store::{MemoryStore, SqliteStore, Store},
    testing::conformance::Factory,
};
use std::{any::Any, sync::Arc};
use tempfile::TempDir;
use uuid::Uuid;

pub(crate) struct Memory;

#[async_trait]
impl Factory for Memory {
    async fn fresh(&self) -> Arc<dyn Store> {
        Arc::new(MemoryStore::new())
    }
}

pub(crate) struct Sqlite {
    directory: TempDir,
}

impl Sqlite {
    pub(crate) fn new() -> Self {
        Sqlite {
            directory: TempDir::new().expect("a temporary directory"),
        }
    }
}

#[async_trait]
impl Factory for Sqlite {
    async fn fresh(&self) -> Arc<dyn Store> {
        let path = self.directory.path().join(format!("{}.db", Uuid::new_v4()));
        Arc::new(SqliteStore::connect(path.to_str().unwrap()).await.unwrap())
    }

    async fn reopen(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        let store: &dyn Any = &**store;
        let path = store.downcast_ref::<SqliteStore>().unwrap().path();
        Arc::new(SqliteStore::connect(path.to_str().unwrap()).await.unwrap())
    }
}
