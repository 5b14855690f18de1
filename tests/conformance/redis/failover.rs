//! A master of the cluster dies under load and its replica takes over.

use super::*;
use idem_runtime::store::StoreError;
use idem_tests::{harness::eventually, services::OwnServers};
use nix::sys::signal::Signal;
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Instant,
};
use tokio::time::timeout;

fn names() -> impl Iterator<Item = String> {
    (1..=6).map(|n| format!("redis-cluster-{n}"))
}

async fn replication(address: &str) -> String {
    redis::cmd("INFO")
        .arg("replication")
        .query_async(&mut plain(&format!("redis://{address}")).await)
        .await
        .unwrap()
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// Waits until every replica has what its master has.
async fn replicated(servers: &OwnServers) -> Vec<String> {
    let mut masters = Vec::new();
    for name in names() {
        let address = servers.address(&name);
        let info = replication(&address).await;
        if field(&info, "role") != Some("master") {
            continue;
        }
        let goal: u64 = field(&info, "master_repl_offset").unwrap().parse().unwrap();
        eventually((&name, goal), async || {
            let info = replication(&address).await;
            let replica = field(&info, "slave0").expect("the master has a replica");
            let offset = replica
                .split(',')
                .find_map(|part| part.strip_prefix("offset="));
            (offset.unwrap().parse::<u64>().unwrap() >= goal).then_some(())
        })
        .await;
        masters.push(name);
    }
    masters
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_replicated_stands_after_a_master_died() {
    if !all_selected(&[Engine::RedisCluster]) {
        return;
    }
    let patience = Duration::from_secs(2);
    failover(patience, |servers, master| servers.kill(master)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_replicated_stands_after_a_master_fell_silent() {
    if !all_selected(&[Engine::RedisCluster]) {
        return;
    }
    // Its connections stay open and say nothing, which callers who give up before the store itself
    // does must bring to its notice all the same.
    let patience = Duration::from_millis(300);
    failover(patience, |servers, master| {
        servers.signal(master, Signal::SIGSTOP);
    })
    .await;
}

async fn failover(patience: Duration, end: impl Fn(&OwnServers, &str)) {
    const RECORDS: usize = 300;
    let servers = OwnServers::start(&["--cluster-replicas", "redis-cluster"]);
    let store = RedisStore::connect(servers.url(Engine::RedisCluster))
        .await
        .unwrap();
    let claims: Vec<_> = (0..RECORDS).map(|n| claim(&format!("k{n}"))).collect();
    for (n, claim) in claims.iter().enumerate() {
        assert!(is_won(&store.claim(claim).await.unwrap()));
        if n % 2 == 0 {
            store
                .complete(&claim.id, claim.owner, &answer())
                .await
                .unwrap();
        }
    }
    let masters = replicated(&servers).await;
    assert_eq!(masters.len(), 3);

    let stop = Arc::new(AtomicBool::new(false));
    let (won, failed) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let load: Vec<_> = (0..8)
        .map(|task| {
            let (store, stop) = (store.clone(), Arc::clone(&stop));
            let (won, failed) = (Arc::clone(&won), Arc::clone(&failed));
            tokio::spawn(async move {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    let new = claim(&format!("load-{task}-{n}"));
                    match timeout(patience, store.claim(&new)).await {
                        Ok(Ok(claimed)) => {
                            assert!(is_won(&claimed), "a new key was not free");
                            won.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(_) | Ok(Err(StoreError::Unavailable { .. })) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(Err(error)) => panic!("{error}"),
                    }
                    // The pace of the load.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
        })
        .collect();
    eventually("a load", async || {
        (won.load(Ordering::Relaxed) > 100).then_some(())
    })
    .await;
    end(&servers, &masters[0]);

    // All slots are served again: claims of many new keys succeed.
    let began = Instant::now();
    let mut round = 0;
    eventually("a failover", async || {
        round += 1;
        for n in 0..60 {
            let probe = claim(&format!("probe-{round}-{n}"));
            if !matches!(timeout(patience, store.claim(&probe)).await, Ok(Ok(_))) {
                return None;
            }
        }
        Some(())
    })
    .await;
    println!("all slots were served again after {:?}", began.elapsed());
    stop.store(true, Ordering::Relaxed);
    for task in load {
        task.await.unwrap();
    }
    let failed = failed.load(Ordering::Relaxed);
    assert!(failed > 0, "the outage was not noticed by any claim");

    for (n, first) in claims.iter().enumerate() {
        let record = standing(store.claim(&claim(first.id.key())).await.unwrap());
        assert_eq!(record.owner, first.owner, "{n}");
        if n % 2 != 0 {
            store
                .complete(&first.id, first.owner, &answer())
                .await
                .unwrap();
        }
    }
}
