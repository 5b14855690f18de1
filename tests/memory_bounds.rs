//! The memory store gives its memory back. A test binary of its own: it measures the process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use idem_runtime::{
    record::{Answer, RecordId, StoredResponse},
    store::{Claim, MemoryStore, Store, Takeover},
};
use std::time::{Duration, Instant};
use uuid::Uuid;

const KEYS: usize = 200_000;
const WORKERS: usize = 4;
const TTL: Duration = Duration::from_secs(1);
const MOST_GROWTH: usize = 10 * 1024 * 1024;

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes: usize = line
        .and_then(|line| line.split_whitespace().nth(1))
        .and_then(|number| number.parse().ok())
        .unwrap();
    kilobytes * 1024
}

async fn run(store: &MemoryStore, key: String) {
    let claim = Claim {
        id: RecordId::new("alice", key, "POST /api/v1/orders"),
        fingerprint: "a".repeat(64),
        also_accepted: None,
        route: "POST /api/v1/orders shop::create_order".to_owned(),
        owner: Uuid::new_v4(),
        ttl: TTL,
        lease: TTL,
        takeover: Takeover::Never,
    };
    let answer = Answer::Kept(StoredResponse {
        code: 201,
        headers: vec![("content-type".to_owned(), b"application/json".to_vec())],
        body: Some(Bytes::from(vec![b'x'; 300])),
    });
    store.claim(&claim).await.unwrap();
    store
        .complete(&claim.id, claim.owner, &answer)
        .await
        .unwrap();
}

#[test]
fn two_hundred_thousand_keys_leave_nothing_behind() {
    let store = MemoryStore::new();
    let work = |keys: std::ops::Range<usize>| {
        std::thread::scope(|scope| {
            for worker in 0..WORKERS {
                let (store, keys) = (&store, keys.clone());
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .build()
                        .unwrap();
                    for n in keys.filter(|n| n % WORKERS == worker) {
                        runtime.block_on(run(store, format!("key-{n}")));
                    }
                });
            }
        });
    };
    // Threads, runtimes and the store's own structures are there before the measuring begins.
    work(KEYS..KEYS + 1000);
    let before = resident();
    work(0..KEYS);
    let peak = resident();
    let since = Instant::now();
    let mut after = resident();
    while (!store.is_empty() || after > before + MOST_GROWTH)
        && since.elapsed() < Duration::from_secs(5)
    {
        std::thread::sleep(Duration::from_millis(50));
        after = resident();
    }
    assert_eq!((store.len(), store.bytes()), (0, 0));
    println!("resident bytes: {before} before, {peak} then, {after} after");
    assert!(
        after < before + MOST_GROWTH,
        "{} bytes are left of {KEYS} keys (at the end of the work: {})",
        after - before,
        peak - before
    );
}
