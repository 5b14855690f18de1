//! What the SQLite store promises beyond the suite.

use crate::support::{HOUR, answer, answer_of, assert_won, claim, finish, id, standing};
use idem_runtime::{
    record::RecordId,
    store::{AbandonedQuery, Claim, ListQuery, SqliteStore, Store, StoreError, Takeover},
};
use sqlx::{
    ConnectOptions, Connection, Row, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions},
};
use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tempfile::TempDir;
use uuid::Uuid;

/// A file in a directory of its own, and the store in it.
struct Bench {
    directory: TempDir,
    store: SqliteStore,
}

impl Bench {
    async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let store = SqliteStore::connect(text(&directory.path().join("test.db")))
            .await
            .unwrap();
        Bench { directory, store }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("test.db")
    }

    /// A connection of the application's.
    async fn application(&self) -> SqliteConnection {
        application_options(&self.path()).connect().await.unwrap()
    }

    /// Changes a record behind the store's back.
    async fn tamper(&self, key: &str, assignment: &str) {
        let mut connection = self.application().await;
        let statement =
            format!("UPDATE idempotency_records SET {assignment} WHERE idempotency_key = ?");
        let changed = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(key.to_owned())
            .execute(&mut connection)
            .await
            .unwrap();
        assert_eq!(changed.rows_affected(), 1);
    }

    /// How many transactions were committed to the WAL file: frames that say how large the
    /// database is after them, see <https://sqlite.org/fileformat2.html#the_write_ahead_log>.
    fn commits(&self) -> usize {
        let wal = std::fs::read(self.directory.path().join("test.db-wal")).unwrap();
        let word = |at: usize| u32::from_be_bytes(wal[at..at + 4].try_into().unwrap());
        let (page, salt) = (word(8) as usize, word(16));
        let frames = (32..wal.len()).step_by(24 + page);
        frames
            .take_while(|at| word(at + 8) == salt)
            .filter(|at| word(at + 4) != 0)
            .count()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn application_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(Duration::from_secs(20))
}

async fn execute(connection: &mut SqliteConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(connection).await.unwrap();
}

async fn data_version(connection: &mut SqliteConnection) -> i64 {
    let row = sqlx::query("PRAGMA data_version")
        .fetch_one(connection)
        .await
        .unwrap();
    row.get(0)
}

async fn within<T>(limit: Duration, call: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, call)
        .await
        .expect("it should have answered by now")
}

fn is_unavailable<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unavailable { .. }))
}

/// An error with its causes.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut sentence = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        sentence.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    sentence
}

#[tokio::test]
async fn what_does_not_win_writes_nothing() {
    let bench = Bench::new().await;
    finish(&bench.store, "finished", "done").await;
    let running = claim("running");
    bench.store.claim(&running).await.unwrap();
    let mut watcher = bench.application().await;
    let version = data_version(&mut watcher).await;
    let commits = bench.commits();
    for _ in 0..50 {
        let other = Claim {
            fingerprint: "b".repeat(64),
            takeover: Takeover::Abandoned,
            ..claim("finished")
        };
        standing(bench.store.claim(&other).await.unwrap());
        standing(bench.store.claim(&claim("running")).await.unwrap());
        assert_won(&bench.store.claim(&running).await.unwrap());
        bench.store.get(&running.id).await.unwrap();
        let nobody = Uuid::new_v4();
        let lost = bench
            .store
            .complete(&running.id, nobody, &answer("x"))
            .await;
        assert!(matches!(lost, Err(StoreError::LeaseLost)));
        assert_eq!(bench.store.purge_expired(10).await.unwrap(), 0);
    }
    assert_eq!(data_version(&mut watcher).await, version);
    assert_eq!(bench.commits(), commits);
    bench.store.claim(&claim("another")).await.unwrap();
    assert_ne!(
        data_version(&mut watcher).await,
        version,
        "the watcher should see what is written"
    );
    assert!(bench.commits() > commits);
}

#[tokio::test]
async fn replays_do_not_wait_for_the_write_lock_and_claims_do() {
    let bench = Bench::new().await;
    finish(&bench.store, "finished", "done").await;
    let mut application = bench.application().await;
    execute(&mut application, "BEGIN IMMEDIATE").await;
    let retry = claim("finished");
    let replayed = within(Duration::from_secs(5), bench.store.claim(&retry)).await;
    let record = standing(replayed.unwrap());
    assert_eq!(answer_of(record), Some(answer("done")));
    let waiting = {
        let store = bench.store.clone();
        tokio::spawn(async move { store.claim(&claim("new")).await })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished(), "the lock is held");
    execute(&mut application, "COMMIT").await;
    let claimed = within(Duration::from_secs(10), waiting).await.unwrap();
    assert_won(&claimed.unwrap());
}

#[tokio::test]
async fn a_claim_whose_caller_has_gone_is_not_made() {
    let bench = Bench::new().await;
    let mut application = bench.application().await;
    execute(&mut application, "BEGIN IMMEDIATE").await;
    let impatient = claim("dropped");
    let dropped = tokio::time::timeout(Duration::from_millis(300), bench.store.claim(&impatient));
    assert!(dropped.await.is_err(), "the lock is held");
    execute(&mut application, "COMMIT").await;
    // Behind it in the same queue.
    bench.store.claim(&claim("next")).await.unwrap();
    assert!(bench.store.get(&id("dropped")).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_together_share_a_commit() {
    let bench = Bench::new().await;
    let mut application = bench.application().await;
    execute(&mut application, "BEGIN IMMEDIATE").await;
    let before = bench.commits();
    let calls: Vec<_> = (0..200)
        .map(|n| {
            let store = bench.store.clone();
            tokio::spawn(async move { store.claim(&claim(&format!("k{n}"))).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    execute(&mut application, "COMMIT").await;
    for call in calls {
        assert_won(&call.await.unwrap().unwrap());
    }
    let commits = bench.commits() - before;
    assert!(
        (1..=5).contains(&commits),
        "200 claims that waited together were {commits} commits"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_call_does_not_concern_its_neighbours() {
    let bench = Bench::new().await;
    let mut application = bench.application().await;
    execute(&mut application, "BEGIN IMMEDIATE").await;
    let calls: Vec<_> = (0..40)
        .map(|n| {
            let store = bench.store.clone();
            // Every fourth is longer than its column.
            let scope = "s".repeat(if n % 4 == 0 { 200 } else { 20 });
            let claim = Claim {
                id: RecordId::new(scope, format!("k{n}"), "POST /orders"),
                ..claim("")
            };
            tokio::spawn(async move {
                let claimed = store.claim(&claim).await;
                (claim, claimed)
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    execute(&mut application, "COMMIT").await;
    for (n, call) in calls.into_iter().enumerate() {
        let (claim, claimed) = call.await.unwrap();
        let there = bench.store.get(&claim.id).await.unwrap().is_some();
        if n % 4 == 0 {
            assert!(is_unavailable(&claimed), "{claimed:?}");
            assert!(!there);
        } else {
            assert_won(&claimed.unwrap());
            assert!(there);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_commit_fails_the_whole_group_and_the_next_one_succeeds() {
    let bench = Bench::new().await;
    let mut application = bench.application().await;
    // A foreign key that is checked at the commit and cannot hold.
    execute(
        &mut application,
        "CREATE TABLE parents (id INTEGER PRIMARY KEY);
         CREATE TABLE orphans (
             parent INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED
         );
         CREATE TRIGGER orphan AFTER INSERT ON idempotency_records
             WHEN NEW.idempotency_key = 'orphan'
             BEGIN INSERT INTO orphans (parent) VALUES (7); END;
         BEGIN IMMEDIATE",
    )
    .await;
    let calls: Vec<_> = (0..20)
        .map(|n| {
            let store = bench.store.clone();
            let key = if n == 10 {
                "orphan".to_owned()
            } else {
                format!("k{n}")
            };
            tokio::spawn(async move { (key.clone(), store.claim(&claim(&key)).await) })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    execute(&mut application, "COMMIT").await;
    let mut failed = 0;
    for call in calls {
        let (key, claimed) = call.await.unwrap();
        let there = bench.store.get(&id(&key)).await.unwrap().is_some();
        match claimed {
            Ok(claimed) => {
                assert_won(&claimed);
                assert!(there, "{key} was answered as won and is not there");
            }
            Err(error) => {
                failed += 1;
                assert!(!there, "{key} failed ({error}) and is there");
            }
        }
    }
    assert!(failed > 10, "the group of {failed} was to fail as one");
    finish(&bench.store, "next", "works").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_taken_away_costs_no_answer_its_record() {
    let bench = Bench::new().await;
    let mut application = bench.application().await;
    // Rolls back the whole transaction and not the statement alone.
    execute(
        &mut application,
        "CREATE TRIGGER bomb BEFORE INSERT ON idempotency_records
             WHEN NEW.idempotency_key = 'bomb'
             BEGIN SELECT RAISE(ROLLBACK, 'boom'); END;
         BEGIN IMMEDIATE",
    )
    .await;
    let calls: Vec<_> = (0..20)
        .map(|n| {
            let store = bench.store.clone();
            let key = if n == 10 {
                "bomb".to_owned()
            } else {
                format!("k{n}")
            };
            tokio::spawn(async move { (key.clone(), store.claim(&claim(&key)).await) })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    execute(&mut application, "COMMIT").await;
    for call in calls {
        let (key, claimed) = call.await.unwrap();
        if let Ok(claimed) = claimed {
            assert_won(&claimed);
            let read = bench.store.get(&id(&key)).await.unwrap();
            assert!(read.is_some(), "{key} was won and is not there");
        }
    }
    finish(&bench.store, "next", "works").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_application_writes_to_the_same_file_under_load() {
    const WORKERS: usize = 50;
    const TIME: Duration = Duration::from_secs(10);
    let bench = Bench::new().await;
    let pool = SqlitePoolOptions::new()
        .max_connections(10)
        .acquire_timeout(Duration::from_secs(30))
        .connect_with(application_options(&bench.path()))
        .await
        .unwrap();
    sqlx::raw_sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, key TEXT NOT NULL)")
        .execute(&pool)
        .await
        .unwrap();
    let store = SqliteStore::from_pool(pool.clone()).await.unwrap();
    let next = Arc::new(AtomicU64::new(0));
    let until = Instant::now() + TIME;
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (store, pool, next) = (store.clone(), pool.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                let mut longest = Duration::ZERO;
                while Instant::now() < until {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let key = format!("key-{}", n - n % 10 % 9 / 8);
                    let claim = claim(&key);
                    let since = Instant::now();
                    let claimed = store.claim(&claim).await.unwrap();
                    longest = longest.max(since.elapsed());
                    if !matches!(claimed, idem_runtime::store::Claimed::Won { .. }) {
                        continue;
                    }
                    sqlx::query("INSERT INTO orders (key) VALUES (?)")
                        .bind(key)
                        .execute(&pool)
                        .await
                        .unwrap();
                    let since = Instant::now();
                    let completed = store
                        .complete(&claim.id, claim.owner, &answer("done"))
                        .await;
                    completed.unwrap();
                    longest = longest.max(since.elapsed());
                }
                longest
            })
        })
        .collect();
    let mut longest = Duration::ZERO;
    for worker in workers {
        longest = longest.max(worker.await.unwrap());
    }
    let row = sqlx::query("SELECT count(*), count(DISTINCT key) FROM orders")
        .fetch_one(&pool)
        .await
        .unwrap();
    let (orders, keys): (i64, i64) = (row.get(0), row.get(1));
    println!(
        "{orders} orders in {TIME:?}, {} requests, longest call {longest:?}",
        next.load(Ordering::Relaxed)
    );
    assert!(orders > 0);
    assert_eq!(orders, keys, "a key was run twice");
}

/// The process that is killed by the next test.
#[test]
#[ignore = "runs for ever: it is the victim of the test after it"]
fn victim() {
    let path = std::env::var("VICTIM_DATABASE").expect("VICTIM_DATABASE names its file");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::connect(&path).await.unwrap();
        let workers: Vec<tokio::task::JoinHandle<()>> = (0..8)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move {
                    loop {
                        let claim = claim(&Uuid::new_v4().to_string());
                        let key = claim.id.key();
                        store.claim(&claim).await.unwrap();
                        println!("claimed {key}");
                        let completed = store.complete(&claim.id, claim.owner, &answer(key)).await;
                        completed.unwrap();
                        println!("completed {key}");
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.await.unwrap();
        }
    });
}

#[tokio::test]
async fn what_was_answered_survives_kill_dash_nine() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("test.db");
    let mut answered = 0;
    for round in 0..8_u64 {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sqlite_file::victim", "--ignored", "--nocapture"])
            .env("VICTIM_DATABASE", &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let first = lines
            .by_ref()
            .map(Result::unwrap)
            .find(|line| line.contains("claimed "))
            .expect("the victim claims something");
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30 + 37 * round));
            victim.kill().unwrap();
            victim.wait().unwrap();
        });
        // The last line may be cut off.
        let heard: Vec<String> = std::iter::once(first)
            .chain(lines.map_while(Result::ok))
            .collect();
        killer.join().unwrap();
        let store = SqliteStore::connect(text(&path)).await.unwrap();
        for line in &heard[..heard.len() - 1] {
            let Some((what, key)) = line.split_once(' ').filter(|(_, key)| key.len() == 36) else {
                continue;
            };
            let record = store.get(&id(key)).await.unwrap();
            let record = record.unwrap_or_else(|| panic!("round {round}: {line}, and it is gone"));
            if what == "completed" {
                assert_eq!(answer_of(record), Some(answer(key)), "round {round}");
                answered += 1;
            }
        }
        store.close().await;
    }
    assert!(answered > 50, "{answered} completions were checked");
}

#[tokio::test]
async fn a_corrupt_record_is_unreadable_until_it_is_forgotten() {
    let bench = Bench::new().await;
    for (n, (what, damage)) in [
        ("status", "status = 'GARBAGE'"),
        ("status", "status = ''"),
        ("format", "format = 2"),
        ("format", "format = 99999999999"),
        ("request_hash", "request_hash = 'garbage'"),
        ("response_code", "response_code = NULL"),
        ("response_code", "response_code = 99999999999"),
        ("contradicts", "response_code = 500"),
        ("response_headers", "response_headers = x'00'"),
        ("attempt", "attempt = 0"),
        ("attempt", "attempt = -99999999999"),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("k{n}");
        finish(&bench.store, &key, "done").await;
        bench.tamper(&key, damage).await;
        let next = Claim {
            takeover: Takeover::Abandoned,
            ..claim(&key)
        };
        match bench.store.claim(&next).await {
            Err(StoreError::Unreadable(error)) => {
                let error = error.to_string();
                assert!(error.contains(what), "{damage}: {error}");
                assert!(error.contains(&next.id.digest()), "{damage}: {error}");
            }
            other => panic!("{damage}: {other:?}"),
        }
        let read = bench.store.get(&next.id).await;
        assert!(matches!(read, Err(StoreError::Unreadable(_))), "{read:?}");
        assert!(bench.store.forget(&next.id).await.unwrap());
        assert_won(&bench.store.claim(&next).await.unwrap());
    }
}

#[tokio::test]
async fn a_corrupt_record_goes_when_it_expires() {
    let bench = Bench::new().await;
    for key in ["replaced", "purged"] {
        finish(&bench.store, key, "done").await;
        bench
            .tamper(
                key,
                "status = 'GARBAGE', format = 9, attempt = 0, expires_at = 1",
            )
            .await;
        assert!(bench.store.get(&id(key)).await.unwrap().is_none());
    }
    assert_won(&bench.store.claim(&claim("replaced")).await.unwrap());
    assert_eq!(bench.store.purge_expired(10).await.unwrap(), 1);
}

#[tokio::test]
async fn corrupt_records_are_passed_over() {
    let bench = Bench::new().await;
    let lapsed = |key: &str| Claim {
        lease: Duration::ZERO,
        ..claim(key)
    };
    for n in 0..6 {
        bench.store.claim(&lapsed(&format!("k{n}"))).await.unwrap();
    }
    bench.tamper("k0", "request_hash = 'garbage'").await;
    bench.tamper("k1", "format = 2").await;
    bench.tamper("k2", "attempt = 0").await;
    let keys = |records: &[idem_runtime::record::Record]| -> Vec<String> {
        records
            .iter()
            .map(|record| record.id.key().to_owned())
            .collect()
    };
    let listed = bench
        .store
        .list(&ListQuery {
            limit: 2,
            ..ListQuery::default()
        })
        .await
        .unwrap();
    assert_eq!(keys(&listed), ["k3", "k4"], "a page is filled up");
    let taken = bench
        .store
        .take_abandoned(&AbandonedQuery {
            handlers: vec!["shop::create_order".to_owned()],
            owner: Uuid::new_v4(),
            lease: HOUR,
            limit: 2,
        })
        .await
        .unwrap();
    assert_eq!(taken.len(), 2);
    assert!(
        keys(&taken).iter().all(|key| key.as_str() >= "k3"),
        "{:?} were taken",
        keys(&taken)
    );
    // A record of another format is not taken over either, whatever its fingerprint.
    let next = Claim {
        takeover: Takeover::Abandoned,
        ..claim("k1")
    };
    let claimed = bench.store.claim(&next).await;
    assert!(
        matches!(claimed, Err(StoreError::Unreadable(_))),
        "{claimed:?}"
    );
}

#[tokio::test]
async fn what_is_no_file_of_sqlite_s_is_refused_with_a_sentence() {
    let directory = TempDir::new().unwrap();
    let garbage = directory.path().join("garbage.db");
    std::fs::write(&garbage, vec![b'x'; 10_000]).unwrap();
    let missing = directory.path().join("missing/test.db");
    for (database, sentence) in [
        ("sqlite::memory:", "MemoryStore"),
        (":memory:", "MemoryStore"),
        ("sqlite:file.db?mode=memory", "MemoryStore"),
        ("postgres://localhost/shop", "sqlite:"),
        (text(&garbage), "not a database"),
        (text(&missing), "unable to open"),
    ] {
        let error = SqliteStore::connect(database).await.unwrap_err();
        let error = in_full(&error);
        assert!(error.contains(sentence), "{database}: {error}");
    }
    let pool = SqlitePoolOptions::new()
        .connect_with(SqliteConnectOptions::new().in_memory(true))
        .await
        .unwrap();
    let error = SqliteStore::from_pool(pool).await.unwrap_err();
    assert!(error.to_string().contains("MemoryStore"), "{error}");
}

#[tokio::test]
async fn a_url_and_a_path_name_the_same_file() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("odd name?.db");
    let store = SqliteStore::connect(text(&path)).await.unwrap();
    finish(&store, "k", "done").await;
    assert!(path.exists());
    let plain = directory.path().join("plain.db");
    for url in [
        format!("sqlite:{}", text(&plain)),
        format!("sqlite://{}", text(&plain)),
    ] {
        let store = SqliteStore::connect(&url).await.unwrap();
        assert_eq!(store.path(), plain);
    }
}

#[tokio::test]
async fn the_application_s_pool_leads_to_its_file() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("test.db");
    // A file that has a rollback journal until the store comes.
    let options = application_options(&path);
    let creator = options
        .clone()
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Delete);
    creator.connect().await.unwrap().close().await.unwrap();
    let pool = SqlitePoolOptions::new()
        .connect_with(options)
        .await
        .unwrap();
    let store = SqliteStore::from_pool(pool.clone()).await.unwrap();
    let error = store.claim(&claim("k")).await.unwrap_err();
    assert!(error.to_string().contains("migrate"), "{error}");
    store.migrate().await.unwrap();
    store.migrate().await.unwrap();
    finish(&store, "k", "done").await;
    let row = sqlx::query("SELECT status, response_body, hex(owner) FROM idempotency_records")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(row.get::<String, _>(0), "COMPLETED");
    assert_eq!(row.get::<Vec<u8>, _>(1), b"done");
    assert_eq!(row.get::<String, _>(2).len(), 32);
    let row = sqlx::query("PRAGMA journal_mode")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(row.get::<String, _>(0), "wal");
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_that_start_at_once_all_start() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("test.db");
    let starts: Vec<_> = (0..8)
        .map(|n| {
            let path = path.clone();
            tokio::spawn(async move {
                let store = SqliteStore::connect(text(&path)).await.unwrap();
                store.claim(&claim(&format!("k{n}"))).await.unwrap();
            })
        })
        .collect();
    for start in starts {
        start.await.unwrap();
    }
}

#[test]
fn the_store_outlives_the_runtime_it_was_made_on() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let bench = first.block_on(Bench::new());
    first.block_on(finish(&bench.store, "k", "done"));
    drop(first);
    runtime().block_on(async {
        let retry = claim("k");
        let replayed = within(Duration::from_secs(5), bench.store.claim(&retry)).await;
        let record = standing(replayed.unwrap());
        assert_eq!(answer_of(record), Some(answer("done")));
        finish(&bench.store, "another", "done").await;
    });
}

#[tokio::test]
async fn a_closed_store_says_so_and_has_kept_everything() {
    let bench = Bench::new().await;
    let handle = bench.store.clone();
    finish(&bench.store, "k", "done").await;
    within(Duration::from_secs(10), bench.store.close()).await;
    for call in [
        handle.claim(&claim("k")).await,
        handle.claim(&claim("new")).await,
    ] {
        assert!(is_unavailable(&call), "{call:?}");
        assert!(call.unwrap_err().to_string().contains("closed"));
    }
    assert!(is_unavailable(&handle.purge_expired(1).await));
    // Closed properly, SQLite needs no WAL file any more.
    assert!(!bench.directory.path().join("test.db-wal").exists());
    let again = SqliteStore::connect(text(&bench.path())).await.unwrap();
    let record = standing(again.claim(&claim("k")).await.unwrap());
    assert_eq!(answer_of(record), Some(answer("done")));
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_file() {
    let bench = Bench::new().await;
    finish(&bench.store, "k", "done").await;
    let wal = bench.directory.path().join("test.db-wal");
    assert!(wal.exists());
    let Bench { directory, store } = bench;
    drop(store);
    within(Duration::from_secs(10), async {
        while wal.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    drop(directory);
}
