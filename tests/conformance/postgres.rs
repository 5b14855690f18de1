//! PostgreSQL.

use crate::servers::*;
use idem_runtime::{
    store::{Claimed, PostgresStore, PostgresStoreBuilder, Store, StoreError},
    testing::conformance::Factory,
};
use idem_tests::{
    harness::eventually,
    services::{Fresh, Store::Postgres, fresh_postgres},
};
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::Barrier, task::JoinSet};
use uuid::Uuid;

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

/// A pool as an application has it.
async fn pool(url: &str, connections: u32, setting: &'static str) -> PgPool {
    PgPoolOptions::new()
        .max_connections(connections)
        .after_connect(move |connection, _| {
            Box::pin(async move {
                sqlx::raw_sql(setting).execute(connection).await?;
                Ok(())
            })
        })
        .connect(url)
        .await
        .unwrap()
}

async fn ask<T>(url: &str, sql: &'static str) -> T
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
{
    let mut connection = PgConnection::connect(url).await.unwrap();
    let answer: (T,) = sqlx::query_as(sql)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    answer.0
}

#[test]
fn no_time_zone_of_a_session_has_a_say() {
    on(Postgres, async {
        let place = fresh_postgres().await;
        let east = pool(place.url(), 1, "SET TimeZone = 'Asia/Tokyo'").await;
        let west = pool(place.url(), 1, "SET TimeZone = 'America/Los_Angeles'").await;
        let east = PostgresStore::from_pool(east).await.unwrap();
        let west = PostgresStore::from_pool(west).await.unwrap();
        across_time_zones(&east, &west).await;
    });
}

#[test]
fn instances_that_start_together_on_an_empty_database_all_get_ready() {
    on(Postgres, async {
        for through_pooler in [false, true] {
            let place = fresh_postgres().await;
            let url = match through_pooler {
                true => place.pgbouncer_url(),
                false => place.url().to_owned(),
            };
            let barrier = Arc::new(Barrier::new(4));
            let mut starts = JoinSet::new();
            for _ in 0..4 {
                let (url, barrier) = (url.clone(), Arc::clone(&barrier));
                starts.spawn(async move {
                    barrier.wait().await;
                    small().table("app.records").connect(&url).await
                });
            }
            while let Some(store) = starts.join_next().await {
                finish(
                    &store.unwrap().unwrap(),
                    &claim(&Uuid::new_v4().to_string()),
                )
                .await;
            }
            let locks: i64 = ask(
                place.url(),
                "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
                 WHERE l.locktype = 'advisory' AND d.datname = current_database()",
            )
            .await;
            assert_eq!(locks, 0, "advisory locks were left");
        }
    });
}

#[test]
fn an_instance_that_dies_while_migrating_leaves_nothing_half_done() {
    on(Postgres, async {
        for through_pooler in [false, true] {
            let place = fresh_postgres().await;
            let url = match through_pooler {
                true => place.pgbouncer_url(),
                false => place.url().to_owned(),
            };
            // Cut at growing distances from the start: before, in and after the transaction.
            for round in 0..60_u64 {
                let cut =
                    tokio::time::timeout(Duration::from_micros(round * 400), small().connect(&url));
                let finished = cut.await.is_ok();
                let (table, indexes): (bool, i64) = {
                    let mut connection = PgConnection::connect(place.url()).await.unwrap();
                    sqlx::query_as(
                        "SELECT to_regclass('idempotency_records') IS NOT NULL, \
                         (SELECT count(*) FROM pg_indexes WHERE tablename = 'idempotency_records')",
                    )
                    .fetch_one(&mut connection)
                    .await
                    .unwrap()
                };
                assert_eq!(indexes, if table { 3 } else { 0 }, "half a schema");
                assert!(table || !finished, "ready without a table");
                if table && round % 2 == 0 {
                    execute(place.url(), "DROP TABLE idempotency_records").await;
                }
            }
            let started = Instant::now();
            let store = small().connect(&url).await.unwrap();
            finish(&store, &claim("k")).await;
            assert!(started.elapsed() < Duration::from_secs(10));
        }
    });
}

#[test]
fn a_migration_that_is_frozen_half_way_does_not_stop_the_others() {
    on(Postgres, async {
        let place = fresh_postgres().await;
        // What the store does first, by a process that is then stopped.
        let mut frozen = PgConnection::connect(place.url()).await.unwrap();
        sqlx::raw_sql(
            "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '10s'; \
             SELECT pg_advisory_xact_lock(1768187245); CREATE TABLE half (id int)",
        )
        .execute(&mut frozen)
        .await
        .unwrap();
        let store = small().connect(place.url()).await.unwrap();
        finish(&store, &claim("k")).await;
        let half: bool = ask(place.url(), "SELECT to_regclass('half') IS NOT NULL").await;
        assert!(!half, "the frozen migration was not rolled back");
    });
}

#[test]
fn a_schema_of_a_later_release_is_refused_with_a_sentence() {
    on(Postgres, async {
        let place = fresh_postgres().await;
        let store = small().connect(place.url()).await.unwrap();
        execute(
            place.url(),
            "COMMENT ON TABLE idempotency_records IS 'Idempotency records, schema 2'",
        )
        .await;
        for migrate in [true, false] {
            let error = small()
                .migrate(migrate)
                .connect(place.url())
                .await
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("schema 2") && error.contains("upgrade"),
                "{error}"
            );
        }
        // A running instance of this release goes on.
        finish(&store, &claim("k")).await;
    });
}

#[test]
fn without_migration_the_table_must_be_there_and_needs_no_right_to_create() {
    on(Postgres, async {
        let place = fresh_postgres().await;
        let store = small().migrate(false).connect(place.url()).await;
        let error = store.unwrap_err().to_string();
        assert!(error.contains("does not exist"), "{error}");
        drop(small().connect(place.url()).await.unwrap());
        let role = place.name();
        execute(
            place.url(),
            format!(
                "CREATE ROLE {role} LOGIN PASSWORD 'x'; REVOKE CREATE ON SCHEMA public FROM PUBLIC; \
                 GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_records TO {role}"
            ),
        )
        .await;
        let options: PgConnectOptions = place.url().parse().unwrap();
        let restricted = options.username(role).password("x");
        let pool = PgPoolOptions::new().connect_lazy_with(restricted);
        let store = PostgresStore::from_pool(pool).await.unwrap();
        finish(&store, &claim("k")).await;
        store.pool().close().await;
        execute(
            place.url(),
            format!("DROP OWNED BY {role}; DROP ROLE {role}"),
        )
        .await;
    });
}

#[test]
fn a_damaged_record_is_reported_and_left_alone() {
    on(Postgres, async {
        let place = fresh_postgres().await;
        let store = small().connect(place.url()).await.unwrap();
        execute(
            place.url(),
            "ALTER TABLE idempotency_records ALTER status DROP NOT NULL, \
             ALTER request_hash DROP NOT NULL, ALTER owner DROP NOT NULL, \
             ALTER created_at DROP NOT NULL, ALTER locked_until DROP NOT NULL, \
             ALTER expires_at DROP NOT NULL, ALTER attempt DROP NOT NULL, \
             ALTER route DROP NOT NULL, ALTER format DROP NOT NULL",
        )
        .await;
        finish(&store, &claim("a-sound")).await;
        finish(&store, &claim("z-sound")).await;
        for damage in [
            "status = NULL",
            "status = 'DONE'",
            "status = ''",
            "request_hash = NULL",
            "request_hash = 'garbage'",
            "owner = NULL",
            "created_at = NULL",
            "created_at = '-infinity'",
            "locked_until = NULL",
            "locked_until = 'infinity'",
            "expires_at = NULL",
            "expires_at = 'infinity'",
            "attempt = NULL",
            "attempt = 0",
            "route = NULL",
            "format = NULL",
            "format = 99",
            "status = 'COMPLETED', response_code = NULL",
            "status = 'COMPLETED', response_code = 500",
            "status = 'COMPLETED', response_code = 200, response_headers = '\\x00000009ff'",
        ] {
            let first = claim("damaged");
            assert!(is_won(&store.claim(&first).await.unwrap()));
            let sql = format!(
                "UPDATE idempotency_records SET locked_until = now() - interval '1 s' \
                 WHERE idempotency_key = 'damaged'; \
                 UPDATE idempotency_records SET {damage} WHERE idempotency_key = 'damaged'"
            );
            execute(place.url(), sql).await;
            damaged(&store, "damaged", damage).await;
        }
    });
}

#[test]
fn a_column_of_another_type_is_no_panic() {
    on(Postgres, async {
        let place = fresh_postgres().await;
        let store = small().connect(place.url()).await.unwrap();
        finish(&store, &claim("k")).await;
        execute(
            place.url(),
            "ALTER TABLE idempotency_records ALTER response_body TYPE text \
             USING encode(response_body, 'escape')",
        )
        .await;
        let error = store.claim(&claim("k")).await.unwrap_err();
        assert!(matches!(error, StoreError::Unreadable(_)), "{error:?}");
    });
}

#[test]
fn a_first_request_takes_two_statements_and_a_replay_one_that_writes_nothing() {
    const TIMES: i64 = 100;
    /// The server plans a statement anew for the first times that a connection executes it.
    const WARMING: i64 = 10;
    /// Transactions committed, rows inserted, and rows changed or left dead, by `work` and by opening
    /// and warming a store for it.
    async fn measure(place: &Fresh, work: impl AsyncFnOnce(&PostgresStore)) -> [i64; 3] {
        async fn read(url: &str) -> [i64; 3] {
            let mut connection = PgConnection::connect(url).await.unwrap();
            // A server process hands its statistics in when it ends.
            eventually("the end of all others", async || {
                let others: i64 = sqlx::query_scalar(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                     AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
                )
                .fetch_one(&mut connection)
                .await
                .unwrap();
                (others == 0).then_some(())
            })
            .await;
            let (commits, inserts, others): (i64, i64, i64) = sqlx::query_as(
                "SELECT xact_commit, t.n_tup_ins, t.n_tup_upd + t.n_tup_del + t.n_dead_tup \
                 FROM pg_stat_database d, pg_stat_user_tables t \
                 WHERE datname = current_database() AND t.relname = 'idempotency_records'",
            )
            .fetch_one(&mut connection)
            .await
            .unwrap();
            [commits, inserts, others]
        }
        let before = read(place.url()).await;
        let options = PgPoolOptions::new().max_connections(1);
        let store = PostgresStore::builder().pool_options(options);
        let store = store.connect(place.url()).await.unwrap();
        for _ in 0..WARMING {
            let warming = claim(&Uuid::new_v4().to_string());
            finish(&store, &warming).await;
            store.claim(&warming).await.unwrap();
        }
        work(&store).await;
        store.pool().close().await;
        let after = read(place.url()).await;
        [0, 1, 2].map(|n| after[n] - before[n])
    }
    on(Postgres, async {
        let place = fresh_postgres().await;
        // Autovacuum's own transactions would be counted too.
        drop(small().connect(place.url()).await.unwrap());
        execute(
            place.url(),
            "ALTER TABLE idempotency_records SET (autovacuum_enabled = off)",
        )
        .await;
        let idle = measure(&place, async |_| ()).await;
        let first = measure(&place, async |store| {
            for n in 0..TIMES {
                finish(store, &claim(&format!("k{n}"))).await;
            }
        })
        .await;
        let replay = measure(&place, async |store| {
            for n in 0..TIMES {
                let seen = store.claim(&claim(&format!("k{n}"))).await.unwrap();
                assert!(matches!(seen, Claimed::Standing(_)), "{seen:?}");
            }
        })
        .await;
        assert_eq!(first[1] - idle[1], TIMES, "rows inserted by first requests");
        assert_eq!(replay[1..], idle[1..], "rows written by replays");
        // Each statement is a transaction. A write whose beginning took the server unusually long is
        // followed by a look at whether it is committed; so are most of the warming ones, now more and
        // now fewer.
        let statements = first[0] - idle[0];
        assert!(
            (2 * (TIMES - WARMING)..=5 * TIMES / 2).contains(&statements),
            "{statements} for {TIMES} requests"
        );
        let statements = replay[0] - idle[0];
        assert!(
            (TIMES - 2 * WARMING..=TIMES + 2 * WARMING).contains(&statements),
            "{statements} for {TIMES} replays"
        );
    });
}

#[test]
fn dropped_calls_leave_no_connection_and_no_transaction_behind() {
    on(Postgres, async {
        let place = fresh_postgres().await;
        let pool = pool(place.url(), 1, "SELECT 1").await;
        let store = PostgresStore::from_pool(pool.clone()).await.unwrap();
        drop_calls(&store, 300).await;
        finish(&store, &claim("clean")).await;
        let visible: i64 = ask(
            place.url(),
            "SELECT count(*) FROM idempotency_records \
             WHERE idempotency_key = 'clean' AND status = 'COMPLETED'",
        )
        .await;
        assert_eq!(visible, 1);
        let open: i64 = ask(
            place.url(),
            "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
        )
        .await;
        assert_eq!(open, 0, "transactions were left open");
        assert_eq!(pool.size(), 1);
    });
}

#[test]
fn a_transaction_that_somebody_left_open_on_the_pool_takes_no_claim_with_it() {
    on(Postgres, async {
        let place = fresh_postgres().await;
        let pool = pool(place.url(), 1, "SELECT 1").await;
        let store = PostgresStore::from_pool(pool.clone()).await.unwrap();
        for leak in [
            "BEGIN",
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1",
            // Aborted: everything after it is refused.
            "BEGIN; DO $$ BEGIN RAISE 'x'; END $$",
        ] {
            let key = Uuid::new_v4().to_string();
            let claim = claim(&key);
            // What a `begin()` leaves behind whose future is dropped.
            let _ = sqlx::raw_sql(AssertSqlSafe(leak)).execute(&pool).await;
            assert!(is_won(&store.claim(&claim).await.unwrap()), "{leak}");
            let _ = sqlx::raw_sql(AssertSqlSafe(leak)).execute(&pool).await;
            store
                .complete(&claim.id, claim.owner, &answer("done"))
                .await
                .unwrap();
            let mut connection = PgConnection::connect(place.url()).await.unwrap();
            let visible: Option<String> = sqlx::query_scalar(
                "SELECT status::text FROM idempotency_records WHERE idempotency_key = $1",
            )
            .bind(&key)
            .fetch_optional(&mut connection)
            .await
            .unwrap();
            assert_eq!(visible.as_deref(), Some("COMPLETED"), "{leak}");
        }
    });
}

#[test]
fn a_pool_of_one_serves_many_and_a_pool_that_is_held_is_reported_in_time() {
    // L1
    on(Postgres, async {
        let place = fresh_postgres().await;
        let patience = Duration::from_millis(300);
        let options = PgPoolOptions::new().max_connections(1);
        let options = options.acquire_timeout(Duration::from_secs(20));
        let shared = options.clone().connect(place.url()).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(PostgresStore::from_pool(shared).await.unwrap());
        race_for_new_keys(&store, 4).await;

        let options = options.acquire_timeout(patience);
        let held = options.connect(place.url()).await.unwrap();
        let store = PostgresStore::from_pool(held.clone()).await.unwrap();
        let holder = held.acquire().await.unwrap();
        starve(&store, patience).await;
        drop(holder);
        finish(&store, &claim("fed")).await;
    });
}

#[test]
fn connections_that_the_server_has_cut_are_replaced_within_the_call() {
    on(Postgres, async {
        let place = fresh_postgres().await;
        let store = small().connect(place.url()).await.unwrap();
        for round in 0..5 {
            let (a, b) = (claim(&format!("a{round}")), claim(&format!("b{round}")));
            tokio::join!(finish(&store, &a), finish(&store, &b));
            execute(
                place.url(),
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
            .await;
            finish(&store, &claim(&format!("c{round}"))).await;
        }
    });
}

#[test]
fn racing_claims_get_no_error_at_any_isolation_level() {
    on(Postgres, async {
        for setting in [
            "SET default_transaction_isolation = 'read committed'",
            "SET default_transaction_isolation = 'repeatable read'",
            "SET default_transaction_isolation = 'serializable'",
        ] {
            let place = fresh_postgres().await;
            let pool = pool(place.url(), 8, setting).await;
            let store: Arc<dyn Store> = Arc::new(PostgresStore::from_pool(pool).await.unwrap());
            race_for_new_keys(&store, 40).await;
        }
    });
}

#[test]
fn expired_records_are_removed_in_batches_by_several_at_once() {
    on(Postgres, async {
        for partitioned in [false, true] {
            let place = fresh_postgres().await;
            if partitioned {
                execute(
                    place.url(),
                    include_str!("../../idem-runtime/src/store/postgres/schema_partitioned.sql"),
                )
                .await;
            }
            let store = small().connect(place.url()).await.unwrap();
            execute(
                place.url(),
                "INSERT INTO idempotency_records (scope, idempotency_key, request_path, request_hash, \
                 status, created_at, locked_until, expires_at, owner, attempt, route, format) \
                 SELECT 'user:' || n % 50, 'k' || n, 'POST /orders', repeat('a', 64), \
                 CASE n % 10 WHEN 0 THEN 'PROCESSING' WHEN 1 THEN 'NEWER' ELSE 'COMPLETED' END, \
                 now() - interval '2 days', now() - interval '2 days', now() - interval '1 day', \
                 gen_random_uuid(), 1, 'POST /orders shop::create_order', 1 + n % 2 \
                 FROM generate_series(1, 5000) AS n",
            )
            .await;
            finish(&store, &claim("live")).await;
            let other = small().connect(place.url()).await.unwrap();
            // One that a request is just working on is not waited for.
            let mut busy = PgConnection::connect(place.url()).await.unwrap();
            sqlx::raw_sql(
                "BEGIN; SELECT 1 FROM idempotency_records WHERE idempotency_key = 'k7' FOR UPDATE",
            )
            .execute(&mut busy)
            .await
            .unwrap();
            let (removed, greatest) = purge_with_two(&store, &other, 300).await;
            assert_eq!((removed, greatest), (4999, 300));
            drop(busy);
            let left: i64 = ask(place.url(), "SELECT count(*) FROM idempotency_records").await;
            assert_eq!(left, 2);
        }
    });
}
