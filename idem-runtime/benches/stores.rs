//! What a store costs on top of its engine: first requests (claim and completion) and replays, through
//! the store and bare through the same driver: the very statements on PostgreSQL, the very command and
//! script on Redis, plain statements to the same end on MySQL.
//!
//! ```sh
//! tests/services/up postgres mysql redis redis-cluster -- \
//!     cargo bench -p idem-runtime --features postgres,mysql,redis --bench stores
//! ```
//!
//! Each engine whose variable is set is measured: PostgreSQL and MySQL in a table of its own that is
//! dropped afterwards, Redis under a prefix of its own, whose keys live for a minute. The two ways take
//! short turns, one right after the other, and what counts is the middle one of the ratios of such
//! pairs: what else the machine does falls on both. `IDEM_BENCH_PAIRS` (default 15) is their number,
//! `IDEM_BENCH_MILLIS` (default 400) the length of one turn, `IDEM_BENCH_CLIENTS` (default 8) the number
//! of simultaneous callers.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use idem_runtime::{
    record::{Answer, RecordId, StoredResponse},
    store::{
        Claim, Claimed, MySqlStore, PostgresStore, RedisStore, Store, Takeover, redis::RedisOptions,
    },
};
use redis::{
    Client, Cmd, FromRedisValue, IntoConnectionInfo, RedisResult, aio::ConnectionManager,
    cluster::ClusterClient, io::tcp::TcpSettings,
};
use sqlx::{
    AssertSqlSafe, MySqlPool, PgPool, Row,
    mysql::MySqlPoolOptions,
    postgres::{PgPoolOptions, PgRow},
};
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
const HEADERS: &[u8] = b"content-type: application/json";
const BODY: &[u8] = &[b'x'; 512];
/// Short, so that what is left behind in Redis does not stay for long.
const TTL: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(30);
const ROUTE: &str = "POST /orders shop::create_order";

#[tokio::main]
async fn main() {
    let mut measured = false;
    if let Ok(url) = env::var("IDEM_TEST_POSTGRES_URL") {
        postgres(&url).await;
        measured = true;
    }
    if let Ok(url) = env::var("IDEM_TEST_MYSQL_URL") {
        mysql(&url).await;
        measured = true;
    }
    if let Ok(url) = env::var("IDEM_TEST_REDIS_URL") {
        redis_node(&url).await;
        measured = true;
    }
    if let Ok(url) = env::var("IDEM_TEST_REDIS_CLUSTER") {
        redis_cluster(&url).await;
        measured = true;
    }
    assert!(
        measured,
        "set IDEM_TEST_POSTGRES_URL, IDEM_TEST_MYSQL_URL, IDEM_TEST_REDIS_URL or \
         IDEM_TEST_REDIS_CLUSTER to the address of a server"
    );
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
    let length = Duration::from_millis(setting("IDEM_BENCH_MILLIS", 400));
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
    let first = {
        let store = Arc::clone(store);
        move |n| {
            let store = Arc::clone(&store);
            async move { first_request(&*store, format!("s{n}")).await }
        }
    };
    in_turns(engine, "first request", bare_first, first).await;

    for n in 0..100 {
        first_request(&**store, format!("replayed{n}")).await;
    }
    let store = Arc::clone(store);
    let again = move |n| {
        let store = Arc::clone(&store);
        async move { replay(&*store, format!("replayed{}", n % 100)).await }
    };
    in_turns(engine, "replay", bare_replay, again).await;
}

/// Measures the two ways in pairs of turns, each pair in the other order than the one before.
async fn in_turns<Bare, Through, B, T>(engine: &str, what: &str, bare: Bare, through: Through)
where
    Bare: Fn(u64) -> B + Clone + Send + Sync + 'static,
    Through: Fn(u64) -> T + Clone + Send + Sync + 'static,
    B: Future<Output = ()> + Send,
    T: Future<Output = ()> + Send,
{
    // Statements are prepared, caches filled.
    rate(bare.clone()).await;
    rate(through.clone()).await;
    let pairs = setting("IDEM_BENCH_PAIRS", 15);
    let (mut bares, mut stores, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let (bare, store) = if pair % 2 == 0 {
            let bare = rate(bare.clone()).await;
            (bare, rate(through.clone()).await)
        } else {
            let store = rate(through.clone()).await;
            (rate(bare.clone()).await, store)
        };
        bares.push(bare);
        stores.push(store);
        ratios.push(store / bare);
    }
    println!(
        "{engine:<13} {what:<14} bare {:>7.0}/s   store {:>7.0}/s   ratio {:.2} ({:.2} to {:.2})",
        quantile(&mut bares, 0.5),
        quantile(&mut stores, 0.5),
        quantile(&mut ratios, 0.5),
        quantile(&mut ratios, 0.25),
        quantile(&mut ratios, 0.75),
    );
}

fn quantile(values: &mut [f64], which: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(which * (values.len() - 1) as f64).round() as usize]
}

fn claim(key: String) -> Claim {
    Claim {
        id: RecordId::new("user:alice", key, "POST /orders"),
        fingerprint: "ab".repeat(32),
        also_accepted: None,
        route: ROUTE.to_owned(),
        owner: Uuid::new_v4(),
        ttl: TTL,
        lease: LEASE,
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

    let statements = Statements {
        pool: pool.clone(),
        claim: statement(include_str!("../src/store/postgres/claim.sql")),
        complete: statement(include_str!("../src/store/postgres/complete.sql")),
    };
    let again = statements.clone();
    compare(
        "postgres",
        &store,
        move |n| bare_postgres(statements.clone(), n),
        move |n| bare_postgres_replay(again.clone(), n),
    )
    .await;
    sqlx::raw_sql(DROP).execute(&pool).await.unwrap();
}

/// What the store sends to PostgreSQL.
#[derive(Clone)]
struct Statements {
    pool: PgPool,
    claim: Arc<str>,
    complete: Arc<str>,
}

fn statement(sql: &str) -> Arc<str> {
    sql.replace("{record}", include_str!("../src/store/postgres/record.sql"))
        .replace("{gap}", include_str!("../src/store/postgres/gap.sql"))
        .replace("{channel}", "'nobody_listens'")
        .replace("idempotency_records", TABLE)
        .into()
}

/// The statement that claims, or reads what stands there.
async fn bare_claim_postgres(statements: &Statements, key: &str, owner: &str) -> PgRow {
    sqlx::query(AssertSqlSafe(Arc::clone(&statements.claim)))
        .bind("user:alice")
        .bind(key)
        .bind("POST /orders")
        .bind("ab".repeat(32))
        .bind(owner)
        .bind(TTL.as_millis() as i64)
        .bind(LEASE.as_millis() as i64)
        .bind(ROUTE)
        .bind(1_i64)
        .fetch_one(&statements.pool)
        .await
        .unwrap()
}

/// The statement that claims, and the one that finishes.
async fn bare_postgres(statements: Statements, n: u64) {
    let (key, owner) = (format!("b{n}"), Uuid::new_v4().to_string());
    let claimed = bare_claim_postgres(&statements, &key, &owner).await;
    assert!(claimed.get::<bool, _>("won"));
    let done = sqlx::query(AssertSqlSafe(Arc::clone(&statements.complete)))
        .bind("user:alice")
        .bind(key)
        .bind("POST /orders")
        .bind(owner)
        .bind("token")
        .bind("COMPLETED")
        .bind(201_i64)
        .bind(HEADERS)
        .bind(BODY)
        .fetch_all(&statements.pool)
        .await
        .unwrap();
    assert_eq!(done.len(), 1);
}

async fn bare_postgres_replay(statements: Statements, n: u64) {
    let (key, owner) = (format!("replayed{}", n % 100), Uuid::new_v4().to_string());
    let standing = bare_claim_postgres(&statements, &key, &owner).await;
    assert!(!standing.get::<bool, _>("won"));
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
    .bind(HEADERS)
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

/// A connection of either kind, for bare commands.
#[derive(Clone)]
enum Bare {
    Node(ConnectionManager),
    Cluster(redis::cluster_async::ClusterConnection),
}

impl Bare {
    async fn run<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        match self {
            Bare::Node(node) => command.query_async(node).await,
            Bare::Cluster(cluster) => command.query_async(cluster).await,
        }
    }
}

fn prefix() -> String {
    format!("idem-bench-{}:", Uuid::new_v4().simple())
}

/// As the store sets them: without it, the kernel gathers small commands into fewer packets, at the
/// cost of a wait for acknowledgements on any network that is longer than this one.
fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

async fn redis_node(url: &str) {
    let info = url.into_connection_info().unwrap();
    let client = Client::open(info.set_tcp_settings(tcp())).unwrap();
    let bare = Bare::Node(client.get_connection_manager().await.unwrap());
    let store = RedisOptions::new().prefix(prefix()).connect(url).await;
    redis(store.unwrap(), bare, "redis").await;
}

async fn redis_cluster(url: &str) {
    let nodes = url
        .trim_start_matches("redis-cluster://")
        .trim_end_matches('/')
        .split(',');
    let client = ClusterClient::builder(nodes.map(|node| format!("redis://{node}")))
        .tcp_settings(tcp())
        .build()
        .unwrap();
    let bare = Bare::Cluster(client.get_async_connection().await.unwrap());
    let store = RedisOptions::new().prefix(prefix()).connect(url).await;
    redis(store.unwrap(), bare, "redis-cluster").await;
}

async fn redis(store: RedisStore, bare: Bare, engine: &str) {
    let prefix = store.prefix().to_owned();
    first_request(&store, "sized".to_owned()).await;
    let mut command = redis::cmd("MEMORY");
    let sized = store.key(&claim("sized".to_owned()).id);
    let bytes: u64 = bare
        .clone()
        .run(command.arg("USAGE").arg(sized))
        .await
        .unwrap();
    println!(
        "{engine:<13} {bytes} bytes of memory for a record with an answer of {} bytes",
        BODY.len()
    );
    let running = claim("running".to_owned());
    store.claim(&running).await.unwrap();
    let value = redis::cmd("GET").arg(store.key(&running.id)).to_owned();
    let value: Vec<u8> = bare.clone().run(&value).await.unwrap();
    let value: Arc<[u8]> = value.into();
    let store: Arc<dyn Store> = Arc::new(store);
    // As long as a record's key.
    let key = move |n: String| format!("{prefix}bare{n:0>60}");
    let digest = load(&mut bare.clone()).await;
    for n in 0..100 {
        let n = format!("replayed{n}");
        bare_redis(bare.clone(), key(n), &value, digest.clone()).await;
    }
    let (first, first_key, first_value) = (bare.clone(), key.clone(), Arc::clone(&value));
    let bare_first = move |n: u64| {
        let (first, digest) = (first.clone(), digest.clone());
        let (key, value) = (first_key(n.to_string()), Arc::clone(&first_value));
        async move { bare_redis(first, key, &value, digest).await }
    };
    let bare_again = move |n: u64| {
        let (bare, value) = (bare.clone(), Arc::clone(&value));
        let key = key(format!("replayed{}", n % 100));
        async move { bare_redis_replay(bare, key, &value).await }
    };
    compare(engine, &store, bare_first, bare_again).await;
}

/// What the store runs to finish a record.
const SCRIPT: &str = concat!(
    "#!lua flags=allow-oom\n",
    include_str!("../src/store/redis/record.lua"),
    include_str!("../src/store/redis/complete.lua")
);

async fn load(connection: &mut Bare) -> String {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(SCRIPT);
    connection.run(&command).await.unwrap()
}

/// The value of a running record, with another owner.
fn bare_claim(key: &str, value: &[u8], owner: Uuid) -> Cmd {
    let mut value = value.to_vec();
    value[8..24].copy_from_slice(owner.as_bytes());
    let mut command = redis::cmd("SET");
    command
        .arg(key)
        .arg(value)
        .arg("NX")
        .arg("GET")
        .arg("PX")
        .arg(TTL.as_millis() as u64);
    command
}

/// One command that claims and reads, and one script that finishes.
async fn bare_redis(mut connection: Bare, key: String, value: &[u8], digest: String) {
    let owner = Uuid::new_v4();
    let claim = bare_claim(&key, value, owner);
    let standing: Option<Vec<u8>> = connection.run(&claim).await.unwrap();
    assert!(standing.is_none());
    let mut command = redis::cmd("EVALSHA");
    command.arg(digest).arg(1).arg(key).arg(owner.as_bytes());
    command.arg("C").arg(201).arg(HEADERS.len()).arg(BODY.len());
    command.arg([HEADERS, BODY].concat());
    let (done, _clock): (bool, i64) = connection.run(&command).await.unwrap();
    assert!(done);
}

async fn bare_redis_replay(mut connection: Bare, key: String, value: &[u8]) {
    let claim = bare_claim(&key, value, Uuid::new_v4());
    let standing: Option<Vec<u8>> = connection.run(&claim).await.unwrap();
    assert!(standing.is_some_and(|value| value.len() > BODY.len()));
}
