//! What a store costs on top of its engine: first requests (claim and completion) and replays, through
//! the store and as bare statements through the same driver, in turns in the same run.
//!
//! ```sh
//! IDEM_TEST_POSTGRES_URL=… IDEM_TEST_MYSQL_URL=… \
//!     cargo bench -p idem-runtime --features postgres,mysql --bench stores
//! ```
//!
//! Each engine whose variable is set is measured, in a table of its own that is dropped afterwards.
//! `IDEM_BENCH_SECONDS` (default 3) is the length of one turn, `IDEM_BENCH_CLIENTS` (default 8) the
//! number of simultaneous callers.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use idem_runtime::{
    record::{Answer, RecordId, StoredResponse},
    store::{Claim, Claimed, MySqlStore, PostgresStore, Store, Takeover},
};
use sqlx::{MySqlPool, PgPool, mysql::MySqlPoolOptions, postgres::PgPoolOptions};
use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use uuid::Uuid;

const TABLE: &str = "idem_bench_records";
const DROP: &str = "DROP TABLE IF EXISTS idem_bench_records";
const TURNS: usize = 3;
const BODY: &[u8] = &[b'x'; 512];
const ROUTE: &str = "POST /orders shop::create_order";

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut measured = false;
        if let Ok(url) = env::var("IDEM_TEST_POSTGRES_URL") {
            postgres(&url).await;
            measured = true;
        }
        if let Ok(url) = env::var("IDEM_TEST_MYSQL_URL") {
            mysql(&url).await;
            measured = true;
        }
        assert!(
            measured,
            "set IDEM_TEST_POSTGRES_URL or IDEM_TEST_MYSQL_URL to the address of a server"
        );
    });
}

fn setting(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

fn clients() -> u64 {
    setting("IDEM_BENCH_CLIENTS", 8)
}

/// Calls per second, with all clients calling for one turn.
async fn rate<F, Fut>(call: F) -> f64
where
    F: Fn(u64) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send,
{
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let length = Duration::from_secs(setting("IDEM_BENCH_SECONDS", 3));
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..clients() {
        let call = call.clone();
        tasks.spawn(async move {
            let mut calls = 0_u64;
            while started.elapsed() < length {
                call(NEXT.fetch_add(1, Ordering::Relaxed)).await;
                calls += 1;
            }
            calls
        });
    }
    let calls: u64 = tasks.join_all().await.into_iter().sum();
    calls as f64 / started.elapsed().as_secs_f64()
}

/// Measures first requests and replays, bare and through the store, in turns.
async fn compare<First, Replay, F, R>(
    engine: &str,
    store: &Arc<dyn Store>,
    bare_first: First,
    bare_replay: Replay,
) where
    First: Fn(u64) -> F + Clone + Send + Sync + 'static,
    Replay: Fn(u64) -> R + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send,
    R: Future<Output = ()> + Send,
{
    let (mut bare, mut through) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        bare.push(rate(bare_first.clone()).await);
        let store = Arc::clone(store);
        let first = move |n| {
            let store = Arc::clone(&store);
            async move { first_request(&*store, format!("s{n}")).await }
        };
        through.push(rate(first).await);
    }
    report(engine, "first request", &mut bare, &mut through);

    for n in 0..100 {
        first_request(&**store, format!("replayed{n}")).await;
    }
    let (mut bare, mut through) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        bare.push(rate(bare_replay.clone()).await);
        let store = Arc::clone(store);
        let again = move |n| {
            let store = Arc::clone(&store);
            async move { replay(&*store, format!("replayed{}", n % 100)).await }
        };
        through.push(rate(again).await);
    }
    report(engine, "replay", &mut bare, &mut through);
}

fn report(engine: &str, what: &str, bare: &mut [f64], store: &mut [f64]) {
    bare.sort_by(f64::total_cmp);
    store.sort_by(f64::total_cmp);
    let (bare, store) = (bare[bare.len() / 2], store[store.len() / 2]);
    println!(
        "{engine:<9} {what:<14} bare {bare:>8.0}/s   store {store:>8.0}/s   ratio {:.2}",
        store / bare
    );
}

fn claim(key: String) -> Claim {
    Claim {
        id: RecordId::new("user:alice", key, "POST /orders"),
        fingerprint: "ab".repeat(32),
        also_accepted: None,
        route: ROUTE.to_owned(),
        owner: Uuid::new_v4(),
        ttl: Duration::from_secs(86_400),
        lease: Duration::from_secs(30),
        takeover: Takeover::Never,
    }
}

async fn first_request(store: &dyn Store, key: String) {
    let claim = claim(key);
    let claimed = store.claim(&claim).await.unwrap();
    assert!(matches!(claimed, Claimed::Won { .. }));
    let answer = Answer::Kept(StoredResponse {
        code: 201,
        headers: vec![("content-type".to_owned(), b"application/json".to_vec())],
        body: Some(bytes::Bytes::from_static(BODY)),
    });
    store
        .complete(&claim.id, claim.owner, &answer)
        .await
        .unwrap();
}

async fn replay(store: &dyn Store, key: String) {
    let claimed = store.claim(&claim(key)).await.unwrap();
    assert!(matches!(claimed, Claimed::Standing(_)));
}

async fn postgres(url: &str) {
    let pool = PgPoolOptions::new()
        .max_connections(u32::try_from(clients()).unwrap())
        .connect(url)
        .await
        .unwrap();
    sqlx::raw_sql(DROP).execute(&pool).await.unwrap();
    let store = PostgresStore::builder()
        .table(TABLE)
        .from_pool(pool.clone())
        .await
        .unwrap();
    let store: Arc<dyn Store> = Arc::new(store);

    let bare = pool.clone();
    compare(
        "postgres",
        &store,
        move |n| bare_postgres(bare.clone(), n),
        {
            let pool = pool.clone();
            move |n| bare_postgres_replay(pool.clone(), n)
        },
    )
    .await;
    sqlx::raw_sql(DROP).execute(&pool).await.unwrap();
}

/// One insert that may find the key taken, and one conditional update.
async fn bare_postgres(pool: PgPool, n: u64) {
    let (key, owner) = (format!("b{n}"), Uuid::new_v4().to_string());
    sqlx::query(
        "INSERT INTO idem_bench_records (scope, idempotency_key, request_path, request_hash, status, \
         created_at, locked_until, expires_at, owner, attempt, route, format) \
         VALUES ('user:alice', $1, 'POST /orders', $2, 'PROCESSING', now(), \
         now() + interval '30 s', now() + interval '1 day', $3::text::uuid, 1, $4, 1) \
         ON CONFLICT (scope, idempotency_key, request_path) DO NOTHING RETURNING attempt",
    )
    .bind(&key)
    .bind("ab".repeat(32))
    .bind(&owner)
    .bind(ROUTE)
    .fetch_all(&pool)
    .await
    .unwrap();
    let done = sqlx::query(
        "UPDATE idem_bench_records SET status = 'COMPLETED', response_code = 201, \
         response_headers = $1, response_body = $2, completed_at = now() \
         WHERE scope = 'user:alice' AND idempotency_key = $3 AND request_path = 'POST /orders' \
         AND owner = $4::text::uuid AND status = 'PROCESSING'",
    )
    .bind(b"content-type: application/json".as_slice())
    .bind(BODY)
    .bind(&key)
    .bind(&owner)
    .execute(&pool)
    .await
    .unwrap();
    assert_eq!(done.rows_affected(), 1);
}

/// An insert that finds the key taken, united with the read of what stands there.
async fn bare_postgres_replay(pool: PgPool, n: u64) {
    let rows = sqlx::query(
        "WITH won AS (INSERT INTO idem_bench_records (scope, idempotency_key, request_path, \
         request_hash, status, created_at, locked_until, expires_at, owner, attempt, route, format) \
         VALUES ('user:alice', $1, 'POST /orders', $2, 'PROCESSING', now(), \
         now() + interval '30 s', now() + interval '1 day', $3::text::uuid, 1, $4, 1) \
         ON CONFLICT (scope, idempotency_key, request_path) DO NOTHING RETURNING attempt) \
         SELECT request_hash, status, response_code, response_headers, response_body, owner::text, \
         attempt, route, format FROM idem_bench_records \
         WHERE scope = 'user:alice' AND idempotency_key = $1 AND request_path = 'POST /orders'",
    )
    .bind(format!("replayed{}", n % 100))
    .bind("ab".repeat(32))
    .bind(Uuid::new_v4().to_string())
    .bind(ROUTE)
    .fetch_all(&pool)
    .await
    .unwrap();
    assert_eq!(rows.len(), 1);
}

async fn mysql(url: &str) {
    let pool = MySqlPoolOptions::new()
        .max_connections(u32::try_from(clients()).unwrap())
        .test_before_acquire(false)
        .connect(url)
        .await
        .unwrap();
    sqlx::raw_sql(DROP).execute(&pool).await.unwrap();
    let store = MySqlStore::builder()
        .table(TABLE)
        .from_pool(pool.clone())
        .await
        .unwrap();
    let store: Arc<dyn Store> = Arc::new(store);

    let bare = pool.clone();
    compare("mysql", &store, move |n| bare_mysql(bare.clone(), n), {
        let pool = pool.clone();
        move |n| bare_mysql_replay(pool.clone(), n)
    })
    .await;
    sqlx::raw_sql(DROP).execute(&pool).await.unwrap();
}

async fn insert_mysql(pool: &MySqlPool, key: &str, owner: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO idem_bench_records (scope, idempotency_key, request_path, request_hash, status, \
         created_at, locked_until, expires_at, owner, attempt, route, format) \
         VALUES ('user:alice', ?, 'POST /orders', ?, 'PROCESSING', UTC_TIMESTAMP(6), \
         UTC_TIMESTAMP(6) + INTERVAL 30 SECOND, UTC_TIMESTAMP(6) + INTERVAL 1 DAY, ?, 1, ?, 1)",
    )
    .bind(key.as_bytes())
    .bind("ab".repeat(32))
    .bind(owner.as_bytes().as_slice())
    .bind(ROUTE.as_bytes())
    .execute(pool)
    .await
    .map(|_| ())
}

/// One insert and one conditional update.
async fn bare_mysql(pool: MySqlPool, n: u64) {
    let (key, owner) = (format!("b{n}"), Uuid::new_v4());
    insert_mysql(&pool, &key, owner).await.unwrap();
    let done = sqlx::query(
        "UPDATE idem_bench_records SET status = 'COMPLETED', response_code = 201, \
         response_headers = ?, response_body = ?, completed_at = UTC_TIMESTAMP(6) \
         WHERE scope = 'user:alice' AND idempotency_key = ? AND request_path = 'POST /orders' \
         AND owner = ? AND status = 'PROCESSING'",
    )
    .bind(b"content-type: application/json".as_slice())
    .bind(BODY)
    .bind(key.as_bytes())
    .bind(owner.as_bytes().as_slice())
    .execute(&pool)
    .await
    .unwrap();
    assert_eq!(done.rows_affected(), 1);
}

/// An insert that finds the key taken, and the read of what stands there.
async fn bare_mysql_replay(pool: MySqlPool, n: u64) {
    let key = format!("replayed{}", n % 100);
    insert_mysql(&pool, &key, Uuid::new_v4())
        .await
        .expect_err("a duplicate");
    let rows = sqlx::query(
        "SELECT request_hash, status, response_code, response_headers, response_body, owner, attempt, \
         route, format FROM idem_bench_records \
         WHERE scope = 'user:alice' AND idempotency_key = ? AND request_path = 'POST /orders'",
    )
    .bind(key.as_bytes())
    .fetch_all(&pool)
    .await
    .unwrap();
    assert_eq!(rows.len(), 1);
}
