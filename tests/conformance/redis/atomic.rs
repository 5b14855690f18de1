//! What is sent: one atomic command or script for each call, and never a key without an expiry.

use super::*;
use futures_util::{StreamExt, future::join_all};
use idem_runtime::store::{AbandonedQuery, ListQuery, Renewal, Renewed};
use idem_tests::services::OwnServers;
use std::collections::BTreeMap;

/// All keys of a store on the single node, each with the milliseconds it has left.
async fn keys(store: &RedisStore, connection: &mut MultiplexedConnection) -> Vec<(String, i64)> {
    let pattern = format!("{}*", store.prefix());
    let names: Vec<String> = redis::cmd("KEYS")
        .arg(pattern)
        .query_async(connection)
        .await
        .unwrap();
    let mut keys = Vec::new();
    for name in names {
        let left = redis::cmd("PTTL")
            .arg(&name)
            .query_async(connection)
            .await
            .unwrap();
        keys.push((name, left));
    }
    keys
}

// C12
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_claims_are_a_thousand_atomic_commands() {
    if !all_selected(&[Engine::Redis]) {
        return;
    }
    const CLAIMS: usize = 1000;
    let store = node().await;
    let client = redis::Client::open(url(Engine::Redis)).unwrap();
    let mut seen = client
        .get_async_monitor()
        .await
        .unwrap()
        .into_on_message::<String>();
    let claims: Vec<_> = (0..CLAIMS).map(|n| claim(&format!("k{n}"))).collect();
    let claimed = join_all(claims.iter().map(|claim| store.claim(claim))).await;
    assert!(claimed.iter().all(|c| is_won(c.as_ref().unwrap())));

    let mut last = plain(&url(Engine::Redis)).await;
    let end = format!("{}end", store.prefix());
    let _: () = redis::cmd("ECHO")
        .arg(&end)
        .query_async(&mut last)
        .await
        .unwrap();
    let mut commands = 0;
    loop {
        let line = seen.next().await.unwrap();
        if line.contains(&end) {
            break;
        }
        if line.contains(store.prefix()) {
            commands += 1;
            let atomic = line.contains("\"SET\"") && line.contains("\"NX\" \"GET\" \"PX\"");
            assert!(atomic, "a claim sent something else: {line}");
        }
    }
    assert_eq!(commands, CLAIMS);

    let keys = keys(&store, &mut last).await;
    assert_eq!(keys.len(), CLAIMS);
    for (key, left) in keys {
        assert!(left > 0, "{key} has no expiry: {left}");
    }
}

// C2
#[tokio::test]
async fn no_call_leaves_a_key_without_an_expiry() {
    if !all_selected(&[Engine::Redis]) {
        return;
    }
    let store = node().await;
    let mut connection = plain(&url(Engine::Redis)).await;
    let mut check = async |after: &str, expected: std::ops::Range<i64>| {
        let keys = keys(&store, &mut connection).await;
        let [(_, left)] = keys[..] else {
            panic!("{} keys after {after}", keys.len())
        };
        let millis = expected.start * 1000 - 10_000..expected.end * 1000;
        assert!(millis.contains(&left), "after {after} {left} ms are left");
    };
    let short = Claim {
        lease: Duration::from_millis(1),
        ..claim("k")
    };
    store.claim(&short).await.unwrap();
    check("a claim", 3600..3601).await;

    let steps = Bytes::from_static(b"steps");
    store
        .save_steps(&short.id, short.owner, &steps)
        .await
        .unwrap();
    check("keeping steps", 3600..3601).await;

    let renewal = Renewal {
        id: short.id.clone(),
        owner: short.owner,
        lease: HOUR * 2,
    };
    let renewed = store.renew(std::slice::from_ref(&renewal)).await.unwrap();
    assert_eq!(renewed, [Renewed::Held]);
    check("a lease beyond the TTL", 7200..7201).await;

    let renewal = Renewal {
        lease: Duration::from_millis(1),
        ..renewal
    };
    store.renew(&[renewal]).await.unwrap();
    check("a lease within the TTL", 3600..3601).await;

    // The lease of a millisecond runs out.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let query = AbandonedQuery {
        handlers: vec!["shop::create_order".to_owned()],
        owner: Uuid::new_v4(),
        lease: Duration::from_millis(1),
        limit: 1,
    };
    assert_eq!(store.take_abandoned(&query).await.unwrap().len(), 1);
    check("being taken for reconciliation", 3600..3601).await;

    // And so does the next.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let taker = claim("k");
    assert!(is_won(&store.claim(&taker).await.unwrap()));
    check("a takeover", 3600..3601).await;

    store
        .complete(&taker.id, taker.owner, &answer())
        .await
        .unwrap();
    check("completion", 3600..3601).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn round_trips_are_as_documented() {
    if !all_selected(&[Engine::Redis]) {
        return;
    }
    let servers = OwnServers::start(&["redis"]);
    let url = servers.url(Engine::Redis);
    let store = RedisStore::connect(url).await.unwrap();
    let mut connection = plain(url).await;
    // What scripts call inside counts as well, so what came over the wire is told by MONITOR.
    let mut seen = redis::Client::open(url)
        .unwrap()
        .get_async_monitor()
        .await
        .unwrap()
        .into_on_message::<String>();
    let mut sent = async || {
        let mark = Uuid::new_v4().to_string();
        let _: () = redis::cmd("ECHO")
            .arg(&mark)
            .query_async(&mut connection)
            .await
            .unwrap();
        let mut commands = Vec::new();
        loop {
            let line = seen.next().await.unwrap();
            if line.contains(&mark) {
                return commands;
            }
            // A script's own commands come from "lua".
            if !line.contains(" lua] ") {
                let command = line.split('"').nth(1).unwrap();
                commands.push(command.to_owned());
            }
        }
    };
    // Once for all: the first call of each script carries its text.
    let warm = claim("warm");
    store.claim(&warm).await.unwrap();
    store.claim(&claim("warm")).await.unwrap();
    store
        .save_steps(&warm.id, warm.owner, &Bytes::new())
        .await
        .unwrap();
    let renewal = |claim: &Claim| Renewal {
        id: claim.id.clone(),
        owner: claim.owner,
        lease: HOUR,
    };
    store.renew(&[renewal(&warm)]).await.unwrap();
    store
        .complete(&warm.id, warm.owner, &answer())
        .await
        .unwrap();
    store.get(&warm.id).await.unwrap();
    assert!(store.release(&warm.id, warm.owner).await.is_err());
    sent().await;

    let first = claim("k");
    store.claim(&first).await.unwrap();
    assert_eq!(sent().await, ["SET"], "a first claim");
    store.claim(&claim("k")).await.unwrap();
    assert_eq!(sent().await, ["SET"], "a claim of a running key");
    for (key, expected) in [
        ("lapsed", &["SET", "EVALSHA", "EVAL"][..]),
        ("lapsed too", &["SET", "EVALSHA"]),
    ] {
        let lapsed = Claim {
            lease: Duration::from_millis(1),
            ..claim(key)
        };
        store.claim(&lapsed).await.unwrap();
        sent().await;
        // The lease runs out.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(is_won(&store.claim(&claim(key)).await.unwrap()));
        assert_eq!(sent().await, expected, "a claim of an abandoned key");
    }
    store.renew(&[renewal(&first)]).await.unwrap();
    assert_eq!(sent().await, ["EVALSHA"], "a renewal");
    let steps = Bytes::from_static(b"x");
    store
        .save_steps(&first.id, first.owner, &steps)
        .await
        .unwrap();
    assert_eq!(sent().await, ["EVALSHA"], "keeping steps");
    store
        .complete(&first.id, first.owner, &answer())
        .await
        .unwrap();
    assert_eq!(sent().await, ["EVALSHA"], "a completion");
    let replay = standing(store.claim(&claim("k")).await.unwrap());
    assert!(replay.now >= replay.created_at && replay.now < replay.expires_at);
    assert_eq!(sent().await, ["SET"], "a claim of a finished key");
    store.get(&first.id).await.unwrap();
    assert_eq!(sent().await, ["EVALSHA"], "a read");
    store.forget(&first.id).await.unwrap();
    assert_eq!(sent().await, ["UNLINK"], "forgetting");
    let released = claim("released");
    store.claim(&released).await.unwrap();
    store.release(&released.id, released.owner).await.unwrap();
    assert_eq!(sent().await, ["SET", "EVALSHA"], "a claim and a release");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_writes_nothing() {
    if !all_selected(&[Engine::Redis]) {
        return;
    }
    let servers = OwnServers::start(&["redis"]);
    let url = servers.url(Engine::Redis);
    let store = RedisStore::connect(url).await.unwrap();
    let first = claim("k");
    store.claim(&first).await.unwrap();
    let changes = async || {
        let info: String = redis::cmd("INFO")
            .arg("persistence")
            .query_async(&mut plain(url).await)
            .await
            .unwrap();
        let line = info.lines().find(|l| l.starts_with("rdb_changes_since"));
        line.unwrap().to_owned()
    };
    let before = changes().await;
    for _ in 0..10 {
        standing(store.claim(&claim("k")).await.unwrap());
    }
    assert_eq!(changes().await, before, "conflicts wrote something");
    store
        .complete(&first.id, first.owner, &answer())
        .await
        .unwrap();
    let before = changes().await;
    for _ in 0..10 {
        standing(store.claim(&claim("k")).await.unwrap());
    }
    store.list(&all()).await.unwrap();
    store.get(&first.id).await.unwrap();
    assert_eq!(changes().await, before, "replays wrote something");
}

fn all() -> ListQuery {
    ListQuery {
        limit: 1000,
        ..ListQuery::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_spread_over_the_masters() {
    if !all_selected(&[Engine::RedisCluster]) {
        return;
    }
    const RECORDS: usize = 600;
    let store = cluster().await;
    let claims: Vec<_> = (0..RECORDS).map(|n| claim(&format!("k{n}"))).collect();
    for claimed in join_all(claims.iter().map(|claim| store.claim(claim))).await {
        assert!(is_won(&claimed.unwrap()));
    }
    let mut by_slot = BTreeMap::new();
    for claim in &claims {
        let slot: u16 = redis::cmd("CLUSTER")
            .arg("KEYSLOT")
            .arg(store.key(&claim.id))
            .query_async(&mut plain(&cluster_nodes()[0]).await)
            .await
            .unwrap();
        *by_slot.entry(slot / 5462).or_insert(0) += 1;
    }
    assert_eq!(by_slot.len(), 3, "{by_slot:?}");
    for (third, records) in by_slot {
        let share = RECORDS / 3;
        assert!(
            (share / 2..share * 2).contains(&records),
            "third {third} of the slots has {records} of {RECORDS} records"
        );
    }
    assert_eq!(store.list(&all()).await.unwrap().len(), RECORDS);
}

#[tokio::test]
async fn a_connection_of_the_application_is_used() {
    if !all_selected(&[Engine::Redis, Engine::RedisCluster]) {
        return;
    }
    let client = redis::Client::open(url(Engine::Redis)).unwrap();
    let manager = client.get_connection_manager().await.unwrap();
    let store = options(Engine::Redis).on(manager).await.unwrap();
    assert!(is_won(&store.claim(&claim("k")).await.unwrap()));

    let cluster = redis::cluster::ClusterClient::new(cluster_nodes())
        .unwrap()
        .get_async_connection()
        .await
        .unwrap();
    let store = options(Engine::RedisCluster).on(cluster).await.unwrap();
    assert!(is_won(&store.claim(&claim("k")).await.unwrap()));
    assert_eq!(store.name(), "redis-cluster");
}

#[tokio::test]
async fn stores_of_two_prefixes_are_two_stores() {
    if !all_selected(&[Engine::Redis]) {
        return;
    }
    // The pattern of the first would match the second's keys if it were not escaped.
    let base = fresh_redis(Engine::Redis).name().to_owned();
    let (one, other) = (format!("{base}-?*[a]:"), format!("{base}-xyza:"));
    let url = url(Engine::Redis);
    let one = options(Engine::Redis)
        .prefix(one)
        .connect(&url)
        .await
        .unwrap();
    let other = options(Engine::Redis)
        .prefix(other)
        .connect(&url)
        .await
        .unwrap();
    assert!(is_won(&one.claim(&claim("k")).await.unwrap()));
    assert!(is_won(&other.claim(&claim("k")).await.unwrap()));
    assert_eq!(one.list(&all()).await.unwrap().len(), 1);
}
