//! What traffic feels while the sweeper removes a million expired records.
//!
//! ```sh
//! tests/services/up postgres mysql -- \
//!     cargo bench -p idem-runtime --features postgres,mysql,sqlite --bench purge
//! ```
//!
//! First requests (claim and completion) come at a steady rate, whether or not those before are done;
//! the time of each counts from when it was due. First without anything to remove, then while the
//! sweeper of an `Idempotency` works. SQLite is always measured, in a temporary file; PostgreSQL and
//! MySQL where their variable is set, in a table of its own that is dropped afterwards.
//! `IDEM_BENCH_RECORDS` (default 1000000), `IDEM_BENCH_RATE` (default 100 requests a second).

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use idem_runtime::{
    Idempotency,
    record::{Answer, RecordId, StoredResponse},
    store::{Claim, Claimed, MySqlStore, PostgresStore, SqliteStore, Store, Takeover},
};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, SqliteConnection};
use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use uuid::Uuid;

const DROP: &str = "DROP TABLE IF EXISTS idem_bench_purged";
const TABLE: &str = "idem_bench_purged";
/// How long traffic without a purge is measured.
const IDLE: Duration = Duration::from_secs(15);
/// When a purge has not come to its end by then, something is wrong.
const PATIENCE: Duration = Duration::from_secs(1800);

fn setting(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

fn records() -> u64 {
    setting("IDEM_BENCH_RECORDS", 1_000_000)
}

#[tokio::main]
async fn main() {
    if let Ok(url) = env::var("IDEM_TEST_POSTGRES_URL") {
        postgres(&url).await;
    }
    if let Ok(url) = env::var("IDEM_TEST_MYSQL_URL") {
        mysql(&url).await;
    }
    sqlite().await;
}

/// Columns and values of an expired record, but for its key.
const COLUMNS: &str = "scope, idempotency_key, request_path, request_hash, status, response_code, \
    response_headers, response_body, created_at, locked_until, completed_at, expires_at, owner, \
    attempt, route, format";

/// How many expired records are left, by the database's own count.
macro_rules! left {
    ($connection:ty, $url:expr, $table:expr, $now:expr) => {
        async || {
            let mut connection = <$connection>::connect($url).await.unwrap();
            let sql = format!(
                "SELECT count(*) FROM {} WHERE expires_at < {}",
                $table, $now
            );
            let left = sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql));
            left.fetch_one(&mut connection).await.unwrap()
        }
    };
}

async fn postgres(url: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(DROP).execute(&mut connection).await.unwrap();
    let store = PostgresStore::builder()
        .table(TABLE)
        .connect(url)
        .await
        .unwrap();
    let fill = format!(
        "INSERT INTO {TABLE} ({COLUMNS}) SELECT 'user:' || n % 1000, gen_random_uuid()::text, \
         'POST /orders', repeat('a', 64), 'COMPLETED', 201, ''::bytea, \
         decode(repeat('78', 512), 'hex'), now() - interval '2 days', now() - interval '2 days', \
         now() - interval '2 days', now() - interval '1 day' - n * interval '1 ms', \
         gen_random_uuid(), 1, 'POST /orders shop::create_order', 1 \
         FROM generate_series(1, {}) AS n",
        records()
    );
    let filled = async move {
        sqlx::raw_sql(AssertSqlSafe(fill))
            .execute(&mut connection)
            .await
            .unwrap();
        for settle in [format!("VACUUM ANALYZE {TABLE}"), "CHECKPOINT".to_owned()] {
            sqlx::raw_sql(AssertSqlSafe(settle))
                .execute(&mut connection)
                .await
                .unwrap();
        }
        let sql = format!("SELECT pg_total_relation_size('{TABLE}')");
        let size: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_one(&mut connection)
            .await
            .unwrap();
        tell_size("postgres", size);
    };
    let left = left!(PgConnection, url, TABLE, "now()");
    measure("postgres", Arc::new(store), filled, left).await;
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(DROP).execute(&mut connection).await.unwrap();
}

async fn mysql(url: &str) {
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    sqlx::raw_sql(DROP).execute(&mut connection).await.unwrap();
    let store = MySqlStore::builder()
        .table(TABLE)
        .connect(url)
        .await
        .unwrap();
    let filled = async move {
        // In pieces: a statement that inserts a million rows is rolled back whole, or held in memory.
        let piece = 20_000;
        for start in (1..=records()).step_by(piece) {
            let end = (start + piece as u64 - 1).min(records());
            let sql = format!(
                "INSERT INTO {TABLE} ({COLUMNS}) \
                 WITH RECURSIVE s AS (SELECT {start} AS n UNION ALL SELECT n + 1 FROM s WHERE n < {end}) \
                 SELECT CONCAT('user:', n % 1000), UUID(), 'POST /orders', REPEAT('a', 64), \
                 'COMPLETED', 201, '', REPEAT('x', 512), UTC_TIMESTAMP(6) - INTERVAL 2 DAY, \
                 UTC_TIMESTAMP(6) - INTERVAL 2 DAY, UTC_TIMESTAMP(6) - INTERVAL 2 DAY, \
                 UTC_TIMESTAMP(6) - INTERVAL 1 DAY - INTERVAL n SECOND, \
                 UNHEX(REPLACE(UUID(), '-', '')), 1, 'POST /orders shop::create_order', 1 FROM s"
            );
            sqlx::raw_sql("SET max_recursive_iterations = 1000000")
                .execute(&mut connection)
                .await
                .unwrap();
            sqlx::raw_sql(AssertSqlSafe(sql))
                .execute(&mut connection)
                .await
                .unwrap();
        }
        let sql = format!("ANALYZE TABLE {TABLE}");
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut connection)
            .await
            .unwrap();
        let size: i64 = sqlx::query_scalar(
            "SELECT CAST(data_length + index_length AS SIGNED) FROM information_schema.tables \
             WHERE table_schema = DATABASE() AND table_name = ?",
        )
        .bind(TABLE)
        .fetch_one(&mut connection)
        .await
        .unwrap();
        tell_size("mysql", size);
    };
    let left = left!(MySqlConnection, url, TABLE, "UTC_TIMESTAMP(6)");
    measure("mysql", Arc::new(store), filled, left).await;
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    sqlx::raw_sql(DROP).execute(&mut connection).await.unwrap();
}

async fn sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.db");
    let file = file.to_str().unwrap().to_owned();
    let store = SqliteStore::connect(&file).await.unwrap();
    let url = format!("sqlite:{file}");
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let now = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";
    let fill = format!(
        "INSERT INTO idempotency_records ({COLUMNS}) \
         WITH RECURSIVE s AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM s WHERE n < {}) \
         SELECT 'user:' || n % 1000, lower(hex(randomblob(16))), 'POST /orders', \
         lower(hex(randomblob(32))), 'COMPLETED', 201, x'', randomblob(512), {now} - 200000000, \
         {now} - 200000000, {now} - 200000000, {now} - 100000000 - n, randomblob(16), 1, \
         'POST /orders shop::create_order', 1 FROM s",
        records()
    );
    let filled = async move {
        sqlx::raw_sql(AssertSqlSafe(fill))
            .execute(&mut connection)
            .await
            .unwrap();
        let size: i64 = sqlx::query_scalar(
            "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap();
        tell_size("sqlite", size);
    };
    let left = left!(SqliteConnection, &url, "idempotency_records", now);
    measure("sqlite", Arc::new(store), filled, left).await;
}

fn tell_size(engine: &str, bytes: i64) {
    println!(
        "{engine:<9} {:.0} bytes for each record with an answer of 512 bytes, indexes included",
        bytes as f64 / records() as f64
    );
}

/// Traffic without a purge, then with one.
async fn measure(
    engine: &str,
    store: Arc<dyn Store>,
    filled: impl Future<Output = ()>,
    left: impl AsyncFn() -> i64,
) {
    filled.await;
    let stop = Arc::new(AtomicBool::new(false));
    let idle = tokio::spawn(traffic(Arc::clone(&store), Arc::clone(&stop)));
    tokio::time::sleep(IDLE).await;
    stop.store(true, Ordering::Relaxed);
    let idle = idle.await.unwrap();

    let stop = Arc::new(AtomicBool::new(false));
    let busy = tokio::spawn(traffic(Arc::clone(&store), Arc::clone(&stop)));
    let begun = Instant::now();
    let sweeping = Idempotency::builder_on(Arc::clone(&store))
        .sweep_every(Some(Duration::from_millis(10)))
        .build()
        .unwrap();
    let took = loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Counting a million rows is a load of its own: the sweeper's next turn is the sign.
        if swept_out(&*store).await {
            break begun.elapsed();
        }
        assert!(begun.elapsed() < PATIENCE, "the purge does not end");
    };
    stop.store(true, Ordering::Relaxed);
    let busy = busy.await.unwrap();
    drop(sweeping);
    assert_eq!(left().await, 0);
    println!(
        "{engine:<9} {} records in {:.0} s   {}   p99 idle {:.1} ms, while purging {:.1} ms: {:.2} times   \
         p50 {:.1} ms, {:.1} ms",
        records(),
        took.as_secs_f64(),
        format_args!("{} requests/s", setting("IDEM_BENCH_RATE", 100)),
        millis(&idle, 0.99),
        millis(&busy, 0.99),
        millis(&busy, 0.99) / millis(&idle, 0.99),
        millis(&idle, 0.5),
        millis(&busy, 0.5),
    );
}

/// Whether next to nothing is left to remove.
async fn swept_out(store: &dyn Store) -> bool {
    store.purge_expired(1).await.unwrap() == 0
}

fn millis(times: &[Duration], which: f64) -> f64 {
    times[(which * (times.len() - 1) as f64).round() as usize].as_secs_f64() * 1000.0
}

/// First requests at a steady rate until told to stop: how long each took from when it was due, in
/// order.
async fn traffic(store: Arc<dyn Store>, stop: Arc<AtomicBool>) -> Vec<Duration> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let every = Duration::from_secs(1) / u32::try_from(setting("IDEM_BENCH_RATE", 100)).unwrap();
    let mut due = Instant::now();
    let mut requests = tokio::task::JoinSet::new();
    while !stop.load(Ordering::Relaxed) {
        due += every;
        tokio::time::sleep_until(due.into()).await;
        let store = Arc::clone(&store);
        let key = format!("traffic{}", NEXT.fetch_add(1, Ordering::Relaxed));
        requests.spawn(async move {
            first_request(&*store, key).await;
            due.elapsed()
        });
    }
    let mut times = requests.join_all().await;
    times.sort();
    times
}

async fn first_request(store: &dyn Store, key: String) {
    let claim = Claim {
        id: RecordId::new("user:alice", key, "POST /orders"),
        fingerprint: "ab".repeat(32),
        also_accepted: None,
        route: "POST /orders shop::create_order".to_owned(),
        owner: Uuid::new_v4(),
        ttl: Duration::from_secs(86_400),
        lease: Duration::from_secs(30),
        takeover: Takeover::Never,
    };
    let claimed = store.claim(&claim).await.unwrap();
    assert!(matches!(claimed, Claimed::Won { .. }));
    let answer = Answer::Kept(StoredResponse {
        code: 201,
        headers: vec![("content-type".to_owned(), b"application/json".to_vec())],
        body: Some(bytes::Bytes::from_static(&[b'x'; 512])),
    });
    store
        .complete(&claim.id, claim.owner, &answer)
        .await
        .unwrap();
}
