//! Values that no release wrote, or a newer one did: reported, left alone, healed by forgetting.

use super::*;
use idem_runtime::store::{AbandonedQuery, ListQuery, Renewal, Renewed, StoreError};

async fn run<T: redis::FromRedisValue>(command: &[&[u8]]) -> T {
    let mut connection = plain(&url(Engine::Redis)).await;
    let mut built = redis::Cmd::new();
    for argument in command {
        built.arg(argument);
    }
    built.query_async(&mut connection).await.unwrap()
}

/// What a claimed or finished record's value is with some bytes changed.
async fn spoilt(store: &RedisStore, key: &str, at: usize, bytes: &[u8], finish: bool) {
    let claim = claim(key);
    store.claim(&claim).await.unwrap();
    if finish {
        store
            .complete(&claim.id, claim.owner, &answer())
            .await
            .unwrap();
    }
    let name = store.key(&claim.id);
    let at = at.to_string();
    run::<()>(&[b"SETRANGE", name.as_bytes(), at.as_bytes(), bytes]).await;
}

// I9, I12, C17
#[tokio::test]
async fn an_unreadable_value_is_reported_and_left_alone() {
    if !all_selected(&[Engine::Redis]) {
        return;
    }
    let store = node().await;
    let key = |name: &str| store.key(&id(name)).into_bytes();
    let ex = &b"EX"[..];
    run::<()>(&[b"SET", &key("garbage"), b"\xff\x00 garbage", ex, b"600"]).await;
    run::<()>(&[b"SET", &key("long garbage"), &[b'x'; 500], ex, b"600"]).await;
    run::<()>(&[b"SET", &key("empty"), b"", ex, b"600"]).await;
    run::<()>(&[b"HSET", &key("hash"), b"status", b"PROCESSING"]).await;
    run::<()>(&[b"RPUSH", &key("list"), b"1"]).await;
    spoilt(&store, "newer layout", 4, b"\x02", true).await;
    spoilt(&store, "newer format", 6, b"\x00\x02", true).await;
    spoilt(&store, "newer format, running", 6, b"\x00\x02", false).await;
    spoilt(&store, "unknown status", 5, b"Z", false).await;
    spoilt(&store, "unknown status, finished", 5, b"\x00", true).await;
    spoilt(&store, "impossible attempt", 24, &[0xff; 4], false).await;
    spoilt(&store, "impossible code", 68, &[0xff; 4], true).await;
    spoilt(&store, "impossible lengths", 72, &[0xff; 32], true).await;
    spoilt(&store, "another record", 104 + 64, b"A", true).await;
    spoilt(&store, "no text", 104 + 64, b"\xff", false).await;
    // Not one whose lease certainly still runs: it is known to be in progress, whatever its expiry.
    let claim_without_expiry = Claim {
        lease: Duration::from_millis(1),
        ..claim("no expiry")
    };
    store.claim(&claim_without_expiry).await.unwrap();
    run::<()>(&[b"PERSIST", &key("no expiry")]).await;

    for name in [
        "garbage",
        "long garbage",
        "empty",
        "hash",
        "list",
        "newer layout",
        "newer format",
        "newer format, running",
        "unknown status",
        "unknown status, finished",
        "impossible attempt",
        "impossible code",
        "impossible lengths",
        "another record",
        "no text",
        "no expiry",
    ] {
        let before: Vec<u8> = run(&[b"DUMP", &key(name)]).await;
        let claimed = store.claim(&claim(name)).await;
        let Err(StoreError::Unreadable(error)) = &claimed else {
            panic!("{name}: the claim ended with {claimed:?}")
        };
        assert_eq!(error.record, id(name).digest(), "{name}");
        assert!(!error.to_string().contains("garbage"), "{name}: {error}");
        let read = store.get(&id(name)).await;
        assert!(
            matches!(read, Err(StoreError::Unreadable(_))),
            "{name}: reading ended with {read:?}"
        );
        let owner = Uuid::new_v4();
        for result in [
            store.complete(&id(name), owner, &answer()).await,
            store.release(&id(name), owner).await,
            store.save_steps(&id(name), owner, &Bytes::new()).await,
        ] {
            assert!(
                matches!(result, Err(StoreError::LeaseLost)),
                "{name}: {result:?}"
            );
        }
        let renewal = Renewal {
            id: id(name),
            owner,
            lease: HOUR,
        };
        assert_eq!(
            store.renew(&[renewal]).await.unwrap(),
            [Renewed::Lost],
            "{name}"
        );
        let after: Vec<u8> = run(&[b"DUMP", &key(name)]).await;
        assert_eq!(before, after, "{name} was touched");
    }

    let fine = Claim {
        lease: Duration::from_millis(1),
        ..claim("fine")
    };
    store.claim(&fine).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let listed = store
        .list(&ListQuery {
            limit: 100,
            ..ListQuery::default()
        })
        .await
        .unwrap();
    let taken = store
        .take_abandoned(&AbandonedQuery {
            handlers: vec!["shop::create_order".to_owned()],
            owner: Uuid::new_v4(),
            lease: HOUR,
            limit: 100,
        })
        .await
        .unwrap();
    let mut readable: Vec<_> = listed.iter().map(|r| r.id.key().to_owned()).collect();
    readable.retain(|key| key != "Alice");
    assert!(readable.contains(&"fine".to_owned()), "{readable:?}");
    assert_eq!(taken.len(), 1, "{taken:?}");
    assert_eq!(taken[0].id, fine.id);

    for name in [
        "garbage",
        "hash",
        "newer layout",
        "unknown status",
        "no expiry",
    ] {
        assert!(store.forget(&id(name)).await.unwrap(), "{name}");
        assert!(is_won(&store.claim(&claim(name)).await.unwrap()), "{name}");
    }
}

#[tokio::test]
async fn a_page_of_unreadable_records_does_not_end_the_list() {
    if !all_selected(&[Engine::Redis]) {
        return;
    }
    let store = node().await;
    for n in 0..30 {
        let name = format!("k{n}");
        if n % 10 == 0 {
            store.claim(&claim(&name)).await.unwrap();
        } else {
            spoilt(&store, &name, 4, b"\x02", false).await;
        }
    }
    let mut after = None;
    let mut listed = 0;
    loop {
        let page = store
            .list(&ListQuery {
                after,
                limit: 2,
                ..ListQuery::default()
            })
            .await
            .unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        listed += page.len();
    }
    assert_eq!(listed, 3);
}

// G2
#[tokio::test]
async fn a_record_whose_expiry_was_lifted_by_hand_expires_all_the_same() {
    if !all_selected(&[Engine::Redis]) {
        return;
    }
    let store = node().await;
    let short = Claim {
        ttl: Duration::from_millis(300),
        ..claim("k")
    };
    store.claim(&short).await.unwrap();
    store
        .complete(&short.id, short.owner, &answer())
        .await
        .unwrap();
    run::<()>(&[b"PERSIST", store.key(&short.id).as_bytes()]).await;
    standing(store.claim(&claim("k")).await.unwrap());
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(store.get(&short.id).await.unwrap().is_none());
    assert!(is_won(&store.claim(&claim("k")).await.unwrap()));
    let left: i64 = run(&[b"PTTL", store.key(&short.id).as_bytes()]).await;
    assert!(left > 0, "the new record has no expiry");
}
