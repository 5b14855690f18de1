//! PostgreSQL.

use crate::support::*;
use idem_runtime::{
    store::{PostgresStore, PostgresStoreBuilder, Store},
    testing::conformance::Factory,
};
use idem_tests::services::{Fresh, Store::Postgres, fresh_postgres};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, postgres::PgPoolOptions};
use std::sync::Arc;

/// A way for the suite to have the store.
#[derive(Default)]
struct Stores {
    places: Places,
    through_pooler: bool,
    partitioned: bool,
    /// A setting of the sessions, such as their isolation level.
    setting: Option<&'static str>,
    table: Option<&'static str>,
}

impl Stores {
    fn address(&self, place: &Fresh) -> String {
        if self.through_pooler {
            place.pgbouncer_url()
        } else {
            place.url().to_owned()
        }
    }

    async fn open(&self, url: &str) -> Arc<dyn Store> {
        let mut builder = small();
        if let Some(table) = self.table {
            builder = builder.table(table);
        }
        let store = match self.setting {
            None => builder.connect(url).await,
            Some(setting) => {
                let pool = PgPoolOptions::new().max_connections(4);
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

fn small() -> PostgresStoreBuilder {
    PostgresStore::builder().pool_options(PgPoolOptions::new().max_connections(4))
}

/// Runs statements on a connection of their own.
async fn execute(url: &str, sql: impl Into<String>) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.into()))
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

#[async_trait::async_trait]
impl Factory for Stores {
    async fn fresh(&self) -> Arc<dyn Store> {
        let place = fresh_postgres().await;
        if self.partitioned {
            let schema =
                include_str!("../../idem-runtime/src/store/postgres/schema_partitioned.sql");
            execute(place.url(), schema).await;
        }
        let store = self.open(&self.address(&place)).await;
        self.places.keep(&store, place);
        store
    }

    async fn reopen(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        let url = self.places.of(store, |place| self.address(place));
        self.open(&url).await
    }
}

#[test]
fn the_suite_passes() {
    on(Postgres, suite(Stores::default));
}

#[test]
fn the_suite_passes_through_a_pooler_in_transaction_mode() {
    on(
        Postgres,
        suite(|| Stores {
            through_pooler: true,
            ..Stores::default()
        }),
    );
}

#[test]
fn the_suite_passes_on_a_partitioned_table() {
    on(
        Postgres,
        suite(|| Stores {
            partitioned: true,
            ..Stores::default()
        }),
    );
}

#[test]
fn the_suite_passes_at_serializable_in_a_table_of_a_schema() {
    on(
        Postgres,
        suite(|| Stores {
            setting: Some(
                "SET default_transaction_isolation = 'serializable'; SET TimeZone = 'Asia/Tokyo'",
            ),
            table: Some("Shop.Idempotency"),
            ..Stores::default()
        }),
    );
}
