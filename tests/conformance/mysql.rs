//! MySQL and MariaDB.

use crate::servers::*;
use idem_runtime::{
    store::{Claimed, MySqlStore, MySqlStoreBuilder, Store, StoreError},
    testing::conformance::Factory,
};
use idem_tests::services::{Store::MySql, fresh_mysql};
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, MySqlPool, mysql::MySqlPoolOptions};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::Barrier, task::JoinSet};
use uuid::Uuid;

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

/// Runs statements on a connection of their own.
async fn execute(url: &str, sql: impl Into<String>) {
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.into()))
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

/// A pool as an application has it.
async fn pool(url: &str, connections: u32, setting: &'static str) -> MySqlPool {
    MySqlPoolOptions::new()
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

/// The status of the only record, seen from a connection of its own.
async fn status_of(url: &str, key: &str) -> Option<String> {
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    sqlx::query_scalar("SELECT status FROM idempotency_records WHERE idempotency_key = ?")
        .bind(key.as_bytes())
        .fetch_optional(&mut connection)
        .await
        .unwrap()
}

async fn count(url: &str) -> i64 {
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    sqlx::query_scalar("SELECT COUNT(*) FROM idempotency_records")
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

#[test]
fn no_time_zone_of_a_session_has_a_say() {
    on(MySql, async {
        let place = fresh_mysql().await;
        let east = pool(place.url(), 1, "SET time_zone = '+09:00'").await;
        let west = pool(place.url(), 1, "SET time_zone = '-08:00'").await;
        let east = MySqlStore::from_pool(east).await.unwrap();
        let west = MySqlStore::from_pool(west).await.unwrap();
        across_time_zones(&east, &west).await;
    });
}

#[test]
fn instances_that_start_together_on_an_empty_database_all_get_ready() {
    on(MySql, async {
        let place = fresh_mysql().await;
        let barrier = Arc::new(Barrier::new(4));
        let mut starts = JoinSet::new();
        for _ in 0..4 {
            let (url, barrier) = (place.url().to_owned(), Arc::clone(&barrier));
            starts.spawn(async move {
                barrier.wait().await;
                small().connect(&url).await
            });
        }
        while let Some(store) = starts.join_next().await {
            finish(
                &store.unwrap().unwrap(),
                &claim(&Uuid::new_v4().to_string()),
            )
            .await;
        }
        // In a database that is missing, too.
        let elsewhere = format!("{}_more.records", &place.name()[..30]);
        let store = small()
            .table(&elsewhere)
            .connect(place.url())
            .await
            .unwrap();
        finish(&store, &claim("k")).await;
        let database = elsewhere.split('.').next().unwrap();
        execute(place.url(), format!("DROP DATABASE {database}")).await;
    });
}

#[test]
fn an_instance_that_dies_while_migrating_leaves_nothing_half_done() {
    on(MySql, async {
        let place = fresh_mysql().await;
        for round in 0..40_u64 {
            let connecting = small().connect(place.url());
            let _ = tokio::time::timeout(Duration::from_micros(round * 500), connecting).await;
            if round % 2 == 0 {
                execute(place.url(), "DROP TABLE IF EXISTS idempotency_records").await;
            }
        }
        let started = Instant::now();
        let store = small().connect(place.url()).await.unwrap();
        finish(&store, &claim("k")).await;
        assert!(started.elapsed() < Duration::from_secs(10));
        let mut connection = MySqlConnection::connect(place.url()).await.unwrap();
        let indexes: i64 = sqlx::query_scalar(
            "SELECT COUNT(DISTINCT index_name) FROM information_schema.statistics \
             WHERE table_schema = DATABASE()",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap();
        assert_eq!(indexes, 3);
    });
}

#[test]
fn a_schema_of_a_later_release_is_refused_with_a_sentence() {
    on(MySql, async {
        let place = fresh_mysql().await;
        let missing = small().migrate(false).connect(place.url()).await;
        let error = missing.unwrap_err().to_string();
        assert!(error.contains("does not exist"), "{error}");
        let store = small().connect(place.url()).await.unwrap();
        execute(
            place.url(),
            "ALTER TABLE idempotency_records COMMENT = 'Idempotency records, schema 2'",
        )
        .await;
        for migrate in [true, false] {
            let newer = small().migrate(migrate).connect(place.url()).await;
            let error = newer.unwrap_err().to_string();
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
fn a_session_without_autocommit_is_refused_with_a_sentence() {
    on(MySql, async {
        let place = fresh_mysql().await;
        let pool = pool(place.url(), 1, "SET autocommit = 0").await;
        let error = MySqlStore::from_pool(pool).await.unwrap_err().to_string();
        assert!(error.contains("autocommit"), "{error}");
    });
}

#[test]
fn a_damaged_record_is_reported_and_left_alone() {
    on(MySql, async {
        let place = fresh_mysql().await;
        let store = small().connect(place.url()).await.unwrap();
        execute(
            place.url(),
            "ALTER TABLE idempotency_records MODIFY status VARCHAR(32), \
             MODIFY request_hash CHAR(64), MODIFY owner BINARY(16), \
             MODIFY created_at DATETIME(6), MODIFY locked_until DATETIME(6), \
             MODIFY expires_at DATETIME(6), MODIFY attempt INT, MODIFY route VARBINARY(255), \
             MODIFY format SMALLINT",
        )
        .await;
        finish(&store, &claim("a-sound")).await;
        finish(&store, &claim("z-sound")).await;
        for damage in [
            "status = NULL",
            "status = 'DONE'",
            "status = 'processing'",
            "request_hash = NULL",
            "request_hash = 'garbage'",
            "owner = NULL",
            "created_at = NULL",
            "locked_until = NULL",
            "expires_at = NULL",
            "attempt = NULL",
            "attempt = 0",
            "route = NULL",
            "route = x'ff20ff'",
            "format = NULL",
            "format = 99",
            "status = 'COMPLETED', response_code = NULL",
            "status = 'COMPLETED', response_code = 500",
            "status = 'COMPLETED', response_code = 200, response_headers = x'00000009ff'",
        ] {
            let first = claim("damaged");
            assert!(is_won(&store.claim(&first).await.unwrap()));
            let sql = format!(
                "UPDATE idempotency_records SET locked_until = UTC_TIMESTAMP() - INTERVAL 1 SECOND \
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
    on(MySql, async {
        let place = fresh_mysql().await;
        let store = small().connect(place.url()).await.unwrap();
        finish(&store, &claim("k")).await;
        execute(
            place.url(),
            "ALTER TABLE idempotency_records MODIFY attempt DOUBLE NOT NULL",
        )
        .await;
        let error = store.claim(&claim("k")).await.unwrap_err();
        assert!(matches!(error, StoreError::Unreadable(_)), "{error:?}");
    });
}

#[test]
fn a_first_request_takes_two_statements_and_a_replay_two_that_write_nothing() {
    const TIMES: u64 = 25;
    /// What the session has done so far: statements by kind, rows changed and removed.
    async fn read(pool: &MySqlPool) -> BTreeMap<String, u64> {
        let rows: Vec<(String, String)> = sqlx::query_as(
            "SHOW SESSION STATUS WHERE Variable_name IN ('Com_insert', 'Com_select', 'Com_update', \
             'Com_delete', 'Com_set_option', 'Com_begin', 'Handler_update', 'Handler_delete')",
        )
        .fetch_all(pool)
        .await
        .unwrap();
        rows.into_iter()
            .map(|(name, value)| (name, value.parse().unwrap()))
            .filter(|(_, value)| *value > 0)
            .collect()
    }
    async fn measure(pool: &MySqlPool, work: impl AsyncFnOnce()) -> BTreeMap<String, u64> {
        let before = read(pool).await;
        work().await;
        let mut after = read(pool).await;
        for (name, value) in before {
            *after.entry(name).or_default() -= value;
        }
        after.retain(|_, value| *value > 0);
        after
    }
    fn counts(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
        counts
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect()
    }
    on(MySql, async {
        let place = fresh_mysql().await;
        let pool = pool(place.url(), 1, "SET @x = 1").await;
        let store = MySqlStore::from_pool(pool.clone()).await.unwrap();
        finish(&store, &claim("warm")).await;
        let first = measure(&pool, async || {
            for n in 0..TIMES {
                finish(&store, &claim(&format!("k{n}"))).await;
            }
        })
        .await;
        // Before each write MySQL is asked whether the pool's owner left a transaction open, which
        // MariaDB's writes find out in passing.
        let version: String = sqlx::query_scalar("SELECT VERSION()")
            .fetch_one(&pool)
            .await
            .unwrap();
        let questions = u64::from(!version.contains("MariaDB"));
        let expected = |pairs: &[(&str, u64)], writes: u64| {
            let mut expected = counts(pairs);
            expected.insert("Com_set_option".to_owned(), questions * writes);
            expected.retain(|_, value| *value > 0);
            expected
        };
        let settled = [
            ("Com_insert", TIMES),
            ("Com_update", TIMES),
            ("Handler_update", TIMES),
        ];
        assert_eq!(first, expected(&settled, 2 * TIMES));
        let replay = measure(&pool, async || {
            for n in 0..TIMES {
                let seen = store.claim(&claim(&format!("k{n}"))).await.unwrap();
                assert!(matches!(seen, Claimed::Standing(_)), "{seen:?}");
            }
        })
        .await;
        let replayed = [("Com_insert", TIMES), ("Com_select", TIMES)];
        assert_eq!(replay, expected(&replayed, TIMES));
        assert_eq!(count(place.url()).await, i64::try_from(TIMES).unwrap() + 1);
    });
}

#[test]
fn dropped_calls_leave_no_connection_and_no_transaction_behind() {
    on(MySql, async {
        let place = fresh_mysql().await;
        let pool = pool(place.url(), 1, "SET @x = 1").await;
        let store = MySqlStore::from_pool(pool.clone()).await.unwrap();
        drop_calls(&store, 300).await;
        finish(&store, &claim("clean")).await;
        let status = status_of(place.url(), "clean").await;
        assert_eq!(status.as_deref(), Some("COMPLETED"));
        assert_eq!(pool.size(), 1);
    });
}

#[test]
fn a_transaction_that_somebody_left_open_on_the_pool_takes_no_claim_with_it() {
    on(MySql, async {
        let place = fresh_mysql().await;
        let pool = pool(place.url(), 1, "SET @x = 1").await;
        let store = MySqlStore::from_pool(pool.clone()).await.unwrap();
        for leak in ["BEGIN", "START TRANSACTION WITH CONSISTENT SNAPSHOT"] {
            let claim = claim(&Uuid::new_v4().to_string());
            // What a `begin()` leaves behind whose future is dropped.
            sqlx::raw_sql(leak).execute(&pool).await.unwrap();
            assert!(is_won(&store.claim(&claim).await.unwrap()), "{leak}");
            sqlx::raw_sql(leak).execute(&pool).await.unwrap();
            store
                .complete(&claim.id, claim.owner, &answer("done"))
                .await
                .unwrap();
            let status = status_of(place.url(), claim.id.key()).await;
            assert_eq!(status.as_deref(), Some("COMPLETED"), "{leak}");
        }
    });
}

#[test]
fn a_pool_of_one_serves_many_and_a_pool_that_is_held_is_reported_in_time() {
    // L1
    on(MySql, async {
        let place = fresh_mysql().await;
        let patience = Duration::from_millis(300);
        let options = MySqlPoolOptions::new().max_connections(1);
        let options = options.acquire_timeout(Duration::from_secs(20));
        let shared = options.clone().connect(place.url()).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(MySqlStore::from_pool(shared).await.unwrap());
        race_for_new_keys(&store, 4).await;

        let options = options.acquire_timeout(patience);
        let held = options.connect(place.url()).await.unwrap();
        let store = MySqlStore::from_pool(held.clone()).await.unwrap();
        let holder = held.acquire().await.unwrap();
        starve(&store, patience).await;
        drop(holder);
        finish(&store, &claim("fed")).await;
    });
}

#[test]
fn connections_that_the_server_has_cut_are_replaced_within_the_call() {
    on(MySql, async {
        let place = fresh_mysql().await;
        let store = MySqlStore::connect(place.url()).await.unwrap();
        for round in 0..5 {
            let (a, b) = (claim(&format!("a{round}")), claim(&format!("b{round}")));
            tokio::join!(finish(&store, &a), finish(&store, &b));
            let mut killer = MySqlConnection::connect(place.url()).await.unwrap();
            let sessions: Vec<u64> = sqlx::query_scalar(
                "SELECT CAST(id AS UNSIGNED) FROM information_schema.processlist \
                 WHERE db = DATABASE() AND id <> CONNECTION_ID()",
            )
            .fetch_all(&mut killer)
            .await
            .unwrap();
            assert!(!sessions.is_empty());
            for session in sessions {
                let sql = AssertSqlSafe(format!("KILL {session}"));
                sqlx::raw_sql(sql).execute(&mut killer).await.unwrap();
            }
            finish(&store, &claim(&format!("c{round}"))).await;
        }
    });
}

#[test]
fn racing_claims_get_no_error_at_any_isolation_level() {
    on(MySql, async {
        for setting in [
            "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        ] {
            let place = fresh_mysql().await;
            let pool = pool(place.url(), 12, setting).await;
            let store: Arc<dyn Store> = Arc::new(MySqlStore::from_pool(pool).await.unwrap());
            race_for_new_keys(&store, 50).await;
        }
    });
}

#[test]
fn claims_that_wait_for_an_insert_that_is_rolled_back_get_no_error() {
    on(MySql, async {
        let place = fresh_mysql().await;
        let pool = pool(place.url(), 12, "SET @x = 1").await;
        let store: Arc<dyn Store> = Arc::new(MySqlStore::from_pool(pool).await.unwrap());
        for round in 0..10 {
            let key = format!("k{round}");
            // The first to insert: InnoDB hands the row's lock to all that wait, which then stand in
            // each other's way, and resolves it by rolling all but one back (error 1213).
            let mut first = MySqlConnection::connect(place.url()).await.unwrap();
            sqlx::raw_sql(AssertSqlSafe(format!(
                "BEGIN; INSERT INTO idempotency_records VALUES ('user:alice', '{key}', \
                 'POST /orders', REPEAT('a', 64), 'PROCESSING', NULL, NULL, NULL, \
                 UTC_TIMESTAMP(), UTC_TIMESTAMP(), NULL, UTC_TIMESTAMP() + INTERVAL 1 HOUR, \
                 REPEAT('o', 16), 1, 'r', 1, NULL)"
            )))
            .execute(&mut first)
            .await
            .unwrap();
            let mut claims = JoinSet::new();
            for _ in 0..10 {
                let (store, claim) = (Arc::clone(&store), claim(&key));
                claims.spawn(async move { store.claim(&claim).await });
            }
            let mut watcher = MySqlConnection::connect(place.url()).await.unwrap();
            // The server's table of transactions may show fewer than there are, and MySQL's refuses
            // to show statements with binary parameters: then what stands in line after a while has
            // to do.
            let patience = Instant::now() + Duration::from_secs(3);
            while Instant::now() < patience {
                let waiting: i64 = sqlx::query_scalar(
                    "SELECT COUNT(*) FROM information_schema.innodb_trx t \
                     JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
                     WHERE p.db = DATABASE() AND t.trx_state = 'LOCK WAIT'",
                )
                .fetch_one(&mut watcher)
                .await
                .unwrap_or(0);
                if waiting >= 10 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            sqlx::raw_sql("ROLLBACK").execute(&mut first).await.unwrap();
            let mut won = 0;
            while let Some(claimed) = claims.join_next().await {
                won += usize::from(is_won(&claimed.unwrap().unwrap()));
            }
            assert_eq!(won, 1);
        }
    });
}

#[test]
fn expired_records_are_removed_in_batches_by_several_at_once() {
    on(MySql, async {
        let place = fresh_mysql().await;
        let store = small().connect(place.url()).await.unwrap();
        let mut values = Vec::new();
        for n in 0..3000 {
            let status = ["PROCESSING", "NEWER", "COMPLETED", "COMPLETED"][n % 4];
            values.push(format!(
                "('user:{}', 'k{n}', 'POST /orders', REPEAT('a', 64), '{status}', NULL, NULL, NULL, \
                 '2020-01-01', '2020-01-01', NULL, '2020-01-02', REPEAT('o', 16), 1, 'r', {}, NULL)",
                n % 50,
                1 + n % 2
            ));
        }
        let sql = format!(
            "INSERT INTO idempotency_records VALUES {}",
            values.join(", ")
        );
        execute(place.url(), sql).await;
        finish(&store, &claim("live")).await;
        let other = small().connect(place.url()).await.unwrap();
        let (removed, greatest) = purge_with_two(&store, &other, 700).await;
        assert_eq!((removed, greatest), (3000, 700));
        assert_eq!(count(place.url()).await, 1);
    });
}
