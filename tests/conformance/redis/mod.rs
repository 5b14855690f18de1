//! Redis and Redis Cluster: the suite, and what only they promise.

mod atomic;
mod failover;
mod loss;
mod outage;
mod unreadable;

use crate::servers::{on, suite};
use async_trait::async_trait;
use bytes::Bytes;
use idem_runtime::{
    record::{Answer, Record, RecordId, StoredResponse},
    store::{
        Claim, Claimed, Store, Takeover,
        redis::{RedisOptions, RedisStore},
    },
    testing::conformance::Factory,
};
use idem_tests::services::{Store as Engine, fresh_redis, is_selected, url};
use redis::aio::MultiplexedConnection;
use std::{any::Any, sync::Arc, time::Duration};
use uuid::Uuid;

const HOUR: Duration = Duration::from_secs(3600);

struct Node;
struct Cluster;

/// The records of one test, among those of all other tests on the server.
fn options(engine: Engine) -> RedisOptions {
    RedisOptions::new()
        .prefix(format!("{}:", fresh_redis(engine).name()))
        // The other tests' keys are walked as well.
        .scan_keys(1_000_000)
}

async fn node() -> RedisStore {
    options(Engine::Redis)
        .connect(&url(Engine::Redis))
        .await
        .unwrap()
}

async fn cluster() -> RedisStore {
    clustered(options(Engine::RedisCluster)).await
}

async fn clustered(options: RedisOptions) -> RedisStore {
    options.connect(&url(Engine::RedisCluster)).await.unwrap()
}

/// Addresses of nodes of the shared cluster, one by one.
fn cluster_nodes() -> Vec<String> {
    let url = url(Engine::RedisCluster);
    let nodes = url.trim_start_matches("redis-cluster://").split(',');
    nodes.map(|node| format!("redis://{node}")).collect()
}

/// A plain connection, to look at the server from outside.
async fn plain(url: &str) -> MultiplexedConnection {
    redis::Client::open(url)
        .unwrap()
        .get_multiplexed_async_connection()
        .await
        .unwrap()
}

fn id(key: &str) -> RecordId {
    RecordId::new("alice", key, "POST /orders")
}

/// A claim by a new owner: an hour's TTL and lease, takes over what is abandoned.
fn claim(key: &str) -> Claim {
    Claim {
        id: id(key),
        fingerprint: "a".repeat(64),
        also_accepted: None,
        route: "POST /orders shop::create_order".to_owned(),
        owner: Uuid::new_v4(),
        ttl: HOUR,
        lease: HOUR,
        takeover: Takeover::Abandoned,
    }
}

fn answer() -> Answer {
    Answer::Kept(StoredResponse {
        code: 201,
        headers: vec![("location".to_owned(), b"/orders/1".to_vec())],
        body: Some(Bytes::from_static(b"{}")),
    })
}

fn is_won(claimed: &Claimed) -> bool {
    matches!(claimed, Claimed::Won { .. })
}

fn standing(claimed: Claimed) -> Record {
    match claimed {
        Claimed::Standing(record) => *record,
        other => panic!("a record should stand there: {other:?}"),
    }
}

fn prefix_of(store: &Arc<dyn Store>) -> &str {
    let store: &RedisStore = (&**store as &dyn Any).downcast_ref().unwrap();
    store.prefix()
}

#[async_trait]
impl Factory for Node {
    async fn fresh(&self) -> Arc<dyn Store> {
        Arc::new(node().await)
    }

    async fn reopen(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        let options = options(Engine::Redis).prefix(prefix_of(store));
        Arc::new(options.connect(&url(Engine::Redis)).await.unwrap())
    }
}

#[async_trait]
impl Factory for Cluster {
    async fn fresh(&self) -> Arc<dyn Store> {
        Arc::new(cluster().await)
    }

    async fn reopen(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(clustered(options(Engine::RedisCluster).prefix(prefix_of(store))).await)
    }
}

/// Whether this run is about these engines, for the tests that need all of them.
fn all_selected(engines: &[Engine]) -> bool {
    engines.iter().all(|engine| is_selected(*engine))
}

#[test]
fn the_suite_passes_on_a_node() {
    on(Engine::Redis, suite(|| Node));
}

#[test]
fn the_suite_passes_on_a_cluster() {
    on(Engine::RedisCluster, suite(|| Cluster));
}
