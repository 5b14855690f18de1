#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::record::StoredResponse;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn claim(key: &str) -> Claim {
    Claim {
        id: RecordId::new("alice", key, "POST /orders"),
        fingerprint: "a".repeat(64),
        also_accepted: None,
        route: "POST /orders shop::create_order".to_owned(),
        owner: Uuid::new_v4(),
        ttl: HOUR,
        lease: HOUR,
        takeover: Takeover::Never,
    }
}

fn answer(bytes: usize) -> Answer {
    Answer::Kept(StoredResponse {
        code: 200,
        headers: vec![("content-type".to_owned(), b"text/plain".to_vec())],
        body: Some(Bytes::from(vec![b'x'; bytes])),
    })
}

/// Calls of this store never wait, so that they need no runtime.
fn now<T>(call: impl Future<Output = T>) -> T {
    let mut call = std::pin::pin!(call);
    match call
        .as_mut()
        .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => panic!("a call waited"),
    }
}

fn run(store: &MemoryStore, key: &str) -> Claim {
    let claim = claim(key);
    let claimed = now(store.claim(&claim)).unwrap();
    assert!(matches!(claimed, Claimed::Won { .. }), "{key} stands");
    claim
}

fn finish(store: &MemoryStore, key: &str, bytes: usize) {
    let claim = run(store, key);
    now(store.complete(&claim.id, claim.owner, &answer(bytes))).unwrap();
}

fn holds(store: &MemoryStore, key: &str) -> bool {
    now(store.get(&claim(key).id)).unwrap().is_some()
}

#[test]
fn finished_records_go_first_finished_first() {
    let store = MemoryStore::with_capacity(4, usize::MAX);
    let slow = run(&store, "claimed first, finished last");
    finish(&store, "second", 1);
    finish(&store, "third", 1);
    now(store.complete(&slow.id, slow.owner, &answer(1))).unwrap();
    run(&store, "running");
    for (next, gone) in [
        ("n1", "second"),
        ("n2", "third"),
        ("n3", "claimed first, finished last"),
    ] {
        assert!(holds(&store, gone));
        run(&store, next);
        assert!(!holds(&store, gone), "{gone} should have made room");
        assert_eq!(store.len(), 4);
    }
    assert!(holds(&store, "running"));
}

#[test]
fn running_records_are_never_removed_but_expire() {
    let store = MemoryStore::with_capacity(3, usize::MAX);
    run(&store, "running");
    let abandoned = Claim {
        lease: Duration::ZERO,
        ..claim("abandoned")
    };
    now(store.claim(&abandoned)).unwrap();
    let ending = Claim {
        lease: Duration::ZERO,
        ttl: Duration::from_millis(300),
        ..claim("ending")
    };
    now(store.claim(&ending)).unwrap();
    let refused = now(store.claim(&claim("more")));
    assert!(matches!(refused, Err(StoreError::Full)), "{refused:?}");
    assert!(!holds(&store, "more"));
    // What stands is still found when the store is full.
    assert!(matches!(
        now(store.claim(&claim("running"))),
        Ok(Claimed::Standing(_))
    ));
    std::thread::sleep(Duration::from_millis(400));
    run(&store, "more");
    assert!(holds(&store, "running") && holds(&store, "abandoned") && holds(&store, "more"));
}

/// The bound is met before another call removes the record that has expired, and that record is gone
/// when this one looks for something to remove.
#[test]
fn what_others_remove_meanwhile_is_room_as_well() {
    let store = MemoryStore::with_capacity(1, usize::MAX);
    for round in 0..500 {
        let short = Claim {
            lease: Duration::ZERO,
            ttl: Duration::from_millis(1),
            ..claim("short")
        };
        now(store.claim(&short)).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        // A turnstile that does not sleep: the two must begin within a microsecond.
        let arrived = AtomicUsize::new(0);
        let together = || {
            arrived.fetch_add(1, Ordering::SeqCst);
            while arrived.load(Ordering::SeqCst) < 2 {
                std::hint::spin_loop();
            }
        };
        let id = std::thread::scope(|scope| {
            scope.spawn(|| {
                together();
                // At another moment of the claim each time.
                for _ in 0..round % 100 {
                    std::hint::spin_loop();
                }
                now(store.purge_expired(1)).unwrap();
            });
            together();
            run(&store, &format!("next {round}")).id
        });
        assert!(now(store.forget(&id)).unwrap());
    }
}

#[test]
fn bytes_are_bounded_and_counted_back() {
    const MOST: usize = 100_000;
    let store = MemoryStore::with_capacity(1000, MOST);
    for n in 0..100 {
        finish(&store, &format!("k{n}"), 10_000);
        assert!(store.bytes() <= MOST);
    }
    assert!(holds(&store, "k99") && !holds(&store, "k80"));
    assert!((5..10).contains(&store.len()), "{} are left", store.len());
    for n in 0..100 {
        now(store.forget(&claim(&format!("k{n}")).id)).unwrap();
    }
    assert_eq!((store.len(), store.bytes()), (0, 0));
}

#[test]
fn an_answer_without_room_leaves_the_record_running() {
    let store = MemoryStore::with_capacity(10, 20_000);
    finish(&store, "old", 10);
    let big = run(&store, "big");
    let refused = now(store.complete(&big.id, big.owner, &answer(1_000_000)));
    assert!(matches!(refused, Err(StoreError::Full)), "{refused:?}");
    assert!(
        holds(&store, "old"),
        "nothing is removed for an answer that can never fit"
    );
    let refused = now(store.save_steps(&big.id, big.owner, &Bytes::from(vec![0; 1_000_000])));
    assert!(matches!(refused, Err(StoreError::Full)), "{refused:?}");
    let steps = Bytes::from(vec![0; 15_000]);
    now(store.save_steps(&big.id, big.owner, &steps)).unwrap();
    // The steps go as the answer comes.
    now(store.complete(&big.id, big.owner, &answer(15_000))).unwrap();
    assert!(store.bytes() <= 20_000);
}

#[test]
fn a_body_does_not_hold_on_to_the_buffer_it_was_cut_from() {
    let store = MemoryStore::new();
    let claim = run(&store, "k");
    let buffer = Bytes::from(vec![b'x'; 1_000_000]);
    let answer = Answer::Kept(StoredResponse {
        code: 200,
        headers: Vec::new(),
        body: Some(buffer.slice(..3)),
    });
    now(store.complete(&claim.id, claim.owner, &answer)).unwrap();
    drop(answer);
    assert!(buffer.is_unique());
}

#[test]
fn what_expires_leaves_by_itself_and_the_thread_with_it() {
    let store = MemoryStore::new();
    for round in 0..2 {
        for n in 0..1000 {
            let short = Claim {
                ttl: Duration::from_millis(100),
                lease: Duration::from_millis(100),
                ..claim(&format!("{round}-{n}"))
            };
            now(store.claim(&short)).unwrap();
        }
        assert!(!store.is_empty());
        for _ in 0..100 {
            if store.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!((store.len(), store.bytes()), (0, 0), "in round {round}");
    }
}

#[test]
fn dropping_the_store_frees_it_while_the_thread_sleeps() {
    let store = MemoryStore::new();
    run(&store, "k");
    let weak = Arc::downgrade(&store.inner);
    drop(store);
    for _ in 0..100 {
        if weak.upgrade().is_none() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the thread keeps the store alive");
}
