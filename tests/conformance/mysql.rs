//! MySQL and MariaDB.

use crate::support::*;
use idem_runtime::{
    store::{MySqlStore, MySqlStoreBuilder, Store},
    testing::conformance::Factory,
};
use idem_tests::services::{Store::MySql, fresh_mysql};
use sqlx::mysql::MySqlPoolOptions;
use std::sync::Arc;

/// A way for the suite to have the store.
#[derive(Default)]
struct Stores {
    places: Places,
    /// A setting of the sessions, such as their isolation level.
    setting: Option<&'static str>,
    table: Option<&'static str>,
}

impl Stores {
    async fn open(&self, url: &str) -> Arc<dyn Store> {
        let mut builder = small();
        if let Some(table) = self.table {
            builder = builder.table(table);
        }
        let store = match self.setting {
            None => builder.connect(url).await,
            Some(setting) => {
                let pool = MySqlPoolOptions::new().max_connections(4);
                let pool = pool.after_connect(move |connection, _| {
                    Box::pin(async move {
                        sqlx::raw_sql(setting).execute(connection).await?;
                        Ok(())
                    })
                });
                builder.from_pool(pool.connect_lazy(url).unwrap()).await
            }
        };
        Arc::new(store.unwrap())
    }
}

fn small() -> MySqlStoreBuilder {
    MySqlStore::builder().pool_options(MySqlPoolOptions::new().max_connections(4))
}

#[async_trait::async_trait]
impl Factory for Stores {
    async fn fresh(&self) -> Arc<dyn Store> {
        let place = fresh_mysql().await;
        let store = self.open(place.url()).await;
        self.places.keep(&store, place);
        store
    }

    async fn reopen(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        let url = self.places.of(store, |place| place.url().to_owned());
        self.open(&url).await
    }
}

#[test]
fn the_suite_passes() {
    on(MySql, suite(Stores::default));
}

#[test]
fn the_suite_passes_at_serializable_with_a_prefixed_table() {
    on(
        MySql,
        suite(|| Stores {
            setting: Some(
                "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE; SET SESSION time_zone = '-08:00'",
            ),
            table: Some("Shop_Idempotency"),
            ..Stores::default()
        }),
    );
}

#[test]
fn the_suite_passes_at_read_committed_without_strict_mode() {
    on(
        MySql,
        suite(|| Stores {
            setting: Some(
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                 SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES', time_zone = '+09:00'",
            ),
            ..Stores::default()
        }),
    );
}
