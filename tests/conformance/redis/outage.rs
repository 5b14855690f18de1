//! Servers that are not there, die, or say nothing.

use super::*;
use idem_runtime::store::StoreError;
use idem_tests::{harness::unshared_address, services::OwnServers};
use nix::sys::signal::Signal;
use std::{error::Error, time::Instant};

/// What the engine gives a store before it counts it as unavailable.
const BUDGET: Duration = Duration::from_secs(2);

async fn fails_in_time(store: &RedisStore, key: &str) -> StoreError {
    let began = Instant::now();
    let claimed = store.claim(&claim(key)).await;
    let took = began.elapsed();
    assert!(took < BUDGET, "the claim took {took:?}");
    match claimed {
        Err(error @ StoreError::Unavailable { .. }) => error,
        other => panic!("the claim should fail: {other:?}"),
    }
}

async fn works_again(store: &RedisStore) {
    let began = Instant::now();
    while let Err(error) = store.claim(&claim("again")).await {
        assert!(began.elapsed() < Duration::from_secs(10), "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

// I1
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_server_is_unavailable_and_its_return_is_noticed() {
    if !all_selected(&[Engine::Redis]) {
        return;
    }
    let servers = OwnServers::start(&["redis"]);
    let store = RedisStore::connect(servers.url(Engine::Redis))
        .await
        .unwrap();
    let (finished, running) = (claim("finished"), claim("running"));
    for claim in [&finished, &running] {
        store.claim(claim).await.unwrap();
    }
    store
        .complete(&finished.id, finished.owner, &answer())
        .await
        .unwrap();
    servers.kill("redis");
    for n in 0..5 {
        let error = fails_in_time(&store, &format!("k{n}")).await;
        assert!(error.source().is_some(), "{error} has no cause");
    }
    servers.restart("redis");
    works_again(&store).await;
    // The append-only file kept them.
    standing(store.claim(&claim("finished")).await.unwrap());
    let record = standing(store.claim(&claim("running")).await.unwrap());
    assert_eq!(record.owner, running.owner);
    store
        .complete(&running.id, running.owner, &answer())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_is_unavailable_and_its_return_is_noticed() {
    if !all_selected(&[Engine::Redis]) {
        return;
    }
    let servers = OwnServers::start(&["redis"]);
    let store = RedisStore::connect(servers.url(Engine::Redis))
        .await
        .unwrap();
    store.claim(&claim("k")).await.unwrap();
    servers.signal("redis", Signal::SIGSTOP);
    let repeated = claim("unknown");
    let began = Instant::now();
    let claimed = store.claim(&repeated).await;
    assert!(matches!(claimed, Err(StoreError::Unavailable { .. })));
    assert!(began.elapsed() < BUDGET, "{:?}", began.elapsed());
    servers.signal("redis", Signal::SIGCONT);
    works_again(&store).await;
    // Whether the unanswered claim was made is not known; repeated, it is won either way.
    assert!(is_won(&store.claim(&repeated).await.unwrap()));
}

#[tokio::test]
async fn a_server_that_became_a_replica_is_unavailable_until_it_is_master_again() {
    if !all_selected(&[Engine::Redis]) {
        return;
    }
    let servers = OwnServers::start(&["redis"]);
    let url = servers.url(Engine::Redis);
    let store = RedisStore::connect(url).await.unwrap();
    let replicate = async |host: &str, port: &str| {
        let _: () = redis::cmd("REPLICAOF")
            .arg(host)
            .arg(port)
            .query_async(&mut plain(url).await)
            .await
            .unwrap();
    };
    replicate("127.0.0.1", "1").await;
    let error = fails_in_time(&store, "k").await;
    assert!(
        format!("{:?}", error.source()).contains("ReadOnly"),
        "{error:?}"
    );
    let refused = RedisStore::connect(url).await.unwrap_err();
    assert!(refused.to_string().contains("replica"), "{refused}");
    replicate("NO", "ONE").await;
    works_again(&store).await;
}

#[tokio::test]
async fn nobody_there_is_said_at_once() {
    let began = Instant::now();
    let free = std::net::TcpListener::bind(unshared_address()).unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    for error in [
        RedisStore::connect(&format!("redis://{address}"))
            .await
            .unwrap_err(),
        RedisStore::connect_cluster([address.to_string()])
            .await
            .unwrap_err(),
        RedisStore::connect("http://not-redis").await.unwrap_err(),
    ] {
        assert!(error.source().is_some(), "{error} has no cause");
    }
    assert!(began.elapsed() < BUDGET * 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_cluster_node_is_not_taken_for_a_single_one() {
    if !all_selected(&[Engine::RedisCluster]) {
        return;
    }
    let error = RedisStore::connect(&cluster_nodes()[0]).await.unwrap_err();
    assert!(error.to_string().contains("connect_cluster"), "{error}");
}
