//! Records that are lost behind the store's back, and memory that is full.

use super::*;
use idem_runtime::store::{Renewal, Renewed, StoreError};
use idem_tests::services::OwnServers;
use std::{
    io,
    sync::{Mutex, PoisonError},
};
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&log).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

async fn set(url: &str, setting: &str, value: &str) {
    let _: () = redis::cmd("CONFIG")
        .arg("SET")
        .arg(setting)
        .arg(value)
        .query_async(&mut plain(url).await)
        .await
        .unwrap();
}

// I13
#[tokio::test]
async fn a_server_that_may_lose_records_is_warned_of() {
    if !all_selected(&[Engine::Redis]) {
        return;
    }
    let servers = OwnServers::start(&["redis"]);
    let url = servers.url(Engine::Redis);
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    RedisStore::connect(url).await.unwrap();
    assert!(!log.text().contains("WARN"), "{}", log.text());
    for policy in ["allkeys-lru", "volatile-ttl"] {
        set(url, "maxmemory-policy", policy).await;
        RedisStore::connect(url).await.unwrap();
        let warned = log.text();
        let warned = warned.lines().last().unwrap();
        assert!(
            warned.contains("WARN") && warned.contains(policy),
            "{warned}"
        );
    }
    set(url, "maxmemory-policy", "noeviction").await;
    set(url, "appendonly", "no").await;
    let store = RedisStore::connect(url).await.unwrap();
    let warned = log.text();
    let warned = warned.lines().last().unwrap();
    assert!(
        warned.contains("WARN") && warned.contains("appendonly"),
        "{warned}"
    );

    // Once, at the start.
    let lines = log.text().lines().count();
    store.claim(&claim("k")).await.unwrap();
    store.claim(&claim("k")).await.unwrap();
    assert_eq!(log.text().lines().count(), lines);
}

#[tokio::test]
async fn a_server_that_does_not_let_itself_be_checked_is_used() {
    if !all_selected(&[Engine::Redis]) {
        return;
    }
    let servers = OwnServers::start(&["redis"]);
    let url = servers.url(Engine::Redis);
    let mut connection = plain(url).await;
    let _: () = redis::cmd("ACL")
        .arg("SETUSER")
        .arg("app")
        .arg("on")
        .arg(">secret")
        .arg("~*")
        .arg("+@all")
        .arg("-info")
        .arg("-config")
        .query_async(&mut connection)
        .await
        .unwrap();
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let as_app = url.replace("redis://", "redis://app:secret@");
    let store = RedisStore::connect(&as_app).await.unwrap();
    assert!(
        log.text().contains("could not be checked"),
        "{}",
        log.text()
    );
    assert!(is_won(&store.claim(&claim("k")).await.unwrap()));
}

// I13
#[tokio::test]
async fn after_all_data_is_lost_a_claim_begins_anew() {
    if !all_selected(&[Engine::Redis]) {
        return;
    }
    let servers = OwnServers::start(&["redis"]);
    let url = servers.url(Engine::Redis);
    let store = RedisStore::connect(url).await.unwrap();
    let (finished, running) = (claim("finished"), claim("running"));
    for claim in [&finished, &running] {
        store.claim(claim).await.unwrap();
    }
    store
        .complete(&finished.id, finished.owner, &answer())
        .await
        .unwrap();
    let mut connection = plain(url).await;
    let _: () = redis::cmd("FLUSHALL")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert!(store.get(&finished.id).await.unwrap().is_none());
    let late = store.complete(&running.id, running.owner, &answer()).await;
    assert!(matches!(late, Err(StoreError::LeaseLost)), "{late:?}");
    for key in ["finished", "running"] {
        assert!(is_won(&store.claim(&claim(key)).await.unwrap()), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgot_the_scripts_is_told_them_again() {
    if !all_selected(&[Engine::Redis, Engine::RedisCluster]) {
        return;
    }
    for store in [node().await, cluster().await] {
        let running = claim("k");
        store.claim(&running).await.unwrap();
        let nodes = if store.name() == "redis" {
            vec![url(Engine::Redis)]
        } else {
            cluster_nodes()
        };
        for round in 0..3 {
            for node in &nodes {
                let _: () = redis::cmd("SCRIPT")
                    .arg("FLUSH")
                    .query_async(&mut plain(node).await)
                    .await
                    .unwrap();
            }
            match round {
                0 => drop(standing(store.claim(&claim("k")).await.unwrap())),
                1 => store
                    .complete(&running.id, running.owner, &answer())
                    .await
                    .unwrap(),
                _ => assert!(store.get(&running.id).await.unwrap().is_some()),
            }
        }
    }
}

#[tokio::test]
async fn a_full_server_takes_no_new_claim_and_finishes_what_has_begun() {
    if !all_selected(&[Engine::Redis]) {
        return;
    }
    let servers = OwnServers::start(&["redis"]);
    let url = servers.url(Engine::Redis);
    let store = RedisStore::connect(url).await.unwrap();
    let (finished, running) = (claim("finished"), claim("running"));
    let abandoned = Claim {
        lease: Duration::from_millis(1),
        ..claim("abandoned")
    };
    for claim in [&finished, &running, &abandoned] {
        store.claim(claim).await.unwrap();
    }
    store
        .complete(&finished.id, finished.owner, &answer())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    set(url, "maxmemory", "1").await;

    let new = store.claim(&claim("new")).await;
    assert!(matches!(new, Err(StoreError::Full)), "{new:?}");
    standing(store.claim(&claim("finished")).await.unwrap());
    standing(store.claim(&claim("running")).await.unwrap());
    assert!(is_won(&store.claim(&claim("abandoned")).await.unwrap()));
    let renewal = Renewal {
        id: running.id.clone(),
        owner: running.owner,
        lease: HOUR,
    };
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [Renewed::Held]);
    let steps = Bytes::from_static(b"steps");
    store
        .save_steps(&running.id, running.owner, &steps)
        .await
        .unwrap();
    store
        .complete(&running.id, running.owner, &answer())
        .await
        .unwrap();
    assert!(store.get(&running.id).await.unwrap().is_some());

    set(url, "maxmemory", "0").await;
    assert!(is_won(&store.claim(&claim("new")).await.unwrap()));
}
