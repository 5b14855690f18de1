//! Taking a key, and finding it taken.

use super::bench::*;
use crate::{
    record::Answer,
    store::{Claim, Claimed, Store},
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

pub(super) async fn an_absent_key_is_won(bench: &Bench) -> Result<(), Failure> {
    ensure!(
        bench.win(&claim("k")).await? == FIRST,
        "a first claim should be attempt 1 and have no steps"
    );
    Ok(())
}

pub(super) async fn a_running_record_stands(bench: &Bench) -> Result<(), Failure> {
    let first = Claim {
        fingerprint: fingerprint('b'),
        route: format!("POST /orders {}", "r".repeat(242)),
        ttl: LONG * 3,
        lease: LONG * 2,
        ..claim("k")
    };
    bench.win(&first).await?;
    let record = bench.find(&claim("k")).await?;
    ensure!(record.id == first.id, "the record has another identity");
    ensure!(
        record.fingerprint == first.fingerprint,
        "the fingerprint is not the owner's"
    );
    ensure!(record.owner == first.owner, "the owner is not the owner");
    ensure!(record.attempt == 1, "the attempt is {}", record.attempt);
    ensure!(
        record.route == first.route,
        "the route is {:?}",
        record.route
    );
    ensure!(record.steps.is_none(), "it has steps that nobody kept");
    ensure!(
        near(record.now, record.created_at),
        "the time of reading is far from the time of the claim a moment ago"
    );
    ensure!(
        record.expires_at == record.created_at.after(first.ttl),
        "the record does not expire one TTL after its creation"
    );
    ensure!(
        lease_end(&record)? == record.created_at.after(first.lease),
        "the lease does not end one lease after the creation"
    );
    Ok(())
}

pub(super) async fn a_finished_record_stands(bench: &Bench) -> Result<(), Failure> {
    let first = claim("k");
    bench.finish(&first, &answer("done")).await?;
    let record = bench
        .find(&Claim {
            fingerprint: fingerprint('f'),
            ..claim("k")
        })
        .await?;
    ensure!(
        record.fingerprint == first.fingerprint,
        "completion lost the fingerprint"
    );
    ensure!(record.owner == first.owner, "completion changed the owner");
    ensure!(record.attempt == 1, "completion changed the attempt");
    ensure!(
        matches!(record.state, crate::record::State::Finished { completed_at, .. }
            if completed_at >= record.created_at && near(completed_at, record.created_at)),
        "the moment of completion is wrong: {:?}, created at {:?}",
        record.state,
        record.created_at
    );
    ensure!(
        answer_of(record)? == answer("done"),
        "the answer is another"
    );
    Ok(())
}

pub(super) async fn a_standing_record_is_not_changed(bench: &Bench) -> Result<(), Failure> {
    let first = claim("k");
    bench.win(&first).await?;
    let before = bench.standing(&first.id).await?;
    for other in [
        Claim {
            ttl: LONG * 9,
            lease: LONG * 9,
            route: "POST /other other::handler".to_owned(),
            fingerprint: fingerprint('9'),
            ..claim("k")
        },
        taker("k"),
    ] {
        bench.find(&other).await?;
    }
    let after = bench.standing(&first.id).await?;
    ensure!(
        (
            &before.fingerprint,
            &before.state,
            before.created_at,
            before.expires_at,
            before.owner,
            before.attempt,
            &before.route
        ) == (
            &after.fingerprint,
            &after.state,
            after.created_at,
            after.expires_at,
            after.owner,
            after.attempt,
            &after.route
        ),
        "claims that did not win changed the record"
    );
    Ok(())
}

pub(super) async fn a_claim_repeated_by_its_owner_is_won_unchanged(
    bench: &Bench,
) -> Result<(), Failure> {
    let first = claim("k");
    bench.win(&first).await?;
    let before = bench.standing(&first.id).await?;
    bench
        .store
        .save_steps(&first.id, first.owner, &Bytes::from_static(b"paid"))
        .await?;
    let again = bench
        .win(&Claim {
            ttl: LONG * 5,
            lease: LONG * 5,
            ..first.clone()
        })
        .await?;
    ensure!(
        again.attempt == 1,
        "the repeat is attempt {}",
        again.attempt
    );
    ensure!(
        again.steps.as_deref() == Some(b"paid"),
        "the repeat does not see the steps"
    );
    let after = bench.standing(&first.id).await?;
    ensure!(
        (before.expires_at, before.created_at, before.state)
            == (after.expires_at, after.created_at, after.state),
        "repeating the claim changed the record"
    );
    Ok(())
}

pub(super) async fn an_owner_s_claim_after_completion_stands(bench: &Bench) -> Result<(), Failure> {
    let first = claim("k");
    bench.finish(&first, &answer("done")).await?;
    let record = bench.find(&first).await?;
    ensure!(
        answer_of(record)? == answer("done"),
        "the answer is another"
    );
    Ok(())
}

pub(super) async fn another_handle_sees_the_claim(bench: &Bench) -> Result<(), Failure> {
    let other = bench.another().await;
    let first = claim("k");
    bench.win(&first).await?;
    let record = standing(other.claim(&claim("k")).await?)?;
    ensure!(record.owner == first.owner, "it sees another owner");
    // Owners are tokens, not connections: whoever has the token may finish.
    other
        .complete(&first.id, first.owner, &answer("there"))
        .await?;
    let record = bench.find(&claim("k")).await?;
    ensure!(
        answer_of(record)? == answer("there"),
        "the answer is another"
    );
    Ok(())
}

pub(super) async fn simultaneous_claims_have_one_winner(bench: &Bench) -> Result<(), Failure> {
    let stores = [Arc::clone(&bench.store), bench.another().await];
    for round in 0..30 {
        let key = format!("round-{round}");
        let ended = race_claims(&stores, (0..20).map(|_| claim(&key))).await?;
        let (winner, won) = one_winner(ended)?;
        ensure!(won == FIRST, "the winner is not attempt 1");
        let record = bench.standing(&winner.id).await?;
        ensure!(
            record.owner == winner.owner,
            "the record is not the winner's"
        );
    }
    Ok(())
}

pub(super) async fn simultaneous_repeats_of_one_claim_all_win(
    bench: &Bench,
) -> Result<(), Failure> {
    let stores = [Arc::clone(&bench.store), bench.another().await];
    for round in 0..10 {
        let one = claim(&format!("round-{round}"));
        let ended = race_claims(&stores, std::iter::repeat_n(one, 8)).await?;
        for (_, claimed) in ended {
            ensure!(
                won(claimed)? == FIRST,
                "a repeat was counted as another attempt"
            );
        }
    }
    Ok(())
}

pub(super) async fn many_keys_at_once(bench: &Bench) -> Result<(), Failure> {
    async fn life(store: Arc<dyn Store>, key: String) -> Result<Answer, Failure> {
        let first = claim(&key);
        won(store.claim(&first).await?)?;
        store
            .complete(&first.id, first.owner, &answer(&key))
            .await?;
        answer_of(standing(store.claim(&claim(&key)).await?)?)
    }
    let stores = [Arc::clone(&bench.store), bench.another().await];
    let calls = (0..100)
        .map(|n| life(Arc::clone(&stores[n % 2]), format!("key-{n}")))
        .collect();
    for (n, replayed) in race(calls).await?.into_iter().enumerate() {
        ensure!(
            replayed? == answer(&format!("key-{n}")),
            "key-{n} was answered with another key's answer"
        );
    }
    Ok(())
}

pub(super) async fn dropped_calls_leave_the_store_usable(bench: &Bench) -> Result<(), Failure> {
    for round in 0..60_u64 {
        let dropped = claim(&format!("round-{round}"));
        // Dropped before it is polled a second time, or some microseconds later, or after its end.
        let _ = tokio::time::timeout(
            Duration::from_micros(round * 20),
            bench.store.claim(&dropped),
        )
        .await;
        ensure!(
            bench.win(&dropped).await? == FIRST,
            "the repeat of a dropped claim should be won as attempt 1"
        );
        let _ = tokio::time::timeout(
            Duration::from_micros(round * 20),
            bench
                .store
                .complete(&dropped.id, dropped.owner, &answer("late")),
        )
        .await;
        bench
            .store
            .complete(&dropped.id, dropped.owner, &answer("late"))
            .await?;
        let record = bench.find(&claim(&format!("round-{round}"))).await?;
        ensure!(
            answer_of(record)? == answer("late"),
            "the answer is another"
        );
    }
    Ok(())
}

pub(super) async fn a_lease_and_ttl_of_nothing_still_end(bench: &Bench) -> Result<(), Failure> {
    for (n, nothing) in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_millis(1),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("k{n}");
        bench
            .win(&Claim {
                ttl: nothing,
                lease: nothing,
                ..claim(&key)
            })
            .await?;
        wait_out().await;
        ensure!(
            bench.win(&claim(&key)).await? == FIRST,
            "after a claim of {nothing:?} the key should be as new"
        );
        // A lease of nothing under a long TTL.
        let key = format!("lease{n}");
        bench
            .win(&Claim {
                lease: nothing,
                ..claim(&key)
            })
            .await?;
        wait_out().await;
        let record = bench.find(&claim(&key)).await?;
        ensure!(
            lease_end(&record)? <= record.now,
            "a lease of {nothing:?} still runs"
        );
        ensure!(
            bench.win(&taker(&key)).await?.attempt == 2,
            "a lease of {nothing:?} should be taken over"
        );
    }
    Ok(())
}

pub(super) async fn a_lease_and_ttl_beyond_measure_stand(bench: &Bench) -> Result<(), Failure> {
    bench
        .win(&Claim {
            ttl: Duration::MAX,
            lease: Duration::MAX,
            ..claim("k")
        })
        .await?;
    let record = bench.find(&taker("k")).await?;
    let year = Duration::from_secs(60 * 60 * 24 * 365);
    ensure!(
        record.expires_at.since(record.now) > year,
        "the longest TTL is {:?}",
        record.expires_at.since(record.now)
    );
    ensure!(
        lease_end(&record)?.since(record.now) > year,
        "the longest lease is {:?}",
        lease_end(&record)?.since(record.now)
    );
    let claimed = bench.store.claim(&taker("k")).await?;
    ensure!(
        matches!(claimed, Claimed::Standing(_)),
        "it was taken over at once"
    );
    Ok(())
}
