//! Taking over what an owner has abandoned.

use super::bench::*;
use crate::store::{Claim, Claimed, Renewed, StoreError, Takeover};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// A claim whose lease has run out once [`wait_out`] is over.
fn short_lease(key: &str) -> Claim {
    Claim {
        lease: SHORT,
        ..claim(key)
    }
}

pub(super) async fn a_running_lease_is_not_taken_over(bench: &Bench) -> Result<(), Failure> {
    let first = claim("k");
    bench.win(&first).await?;
    let record = bench.find(&taker("k")).await?;
    ensure!(record.owner == first.owner, "the owner changed");
    Ok(())
}

pub(super) async fn an_abandoned_record_is_taken_over(bench: &Bench) -> Result<(), Failure> {
    let first = short_lease("k");
    bench.win(&first).await?;
    bench
        .store
        .save_steps(&first.id, first.owner, &Bytes::from_static(b"charged"))
        .await?;
    let before = bench.standing(&first.id).await?;
    let mut previous = before.clone();
    for attempt in 2..=4 {
        wait_out().await;
        let next = Claim {
            lease: if attempt == 4 { LONG } else { SHORT },
            ttl: LONG * 7,
            route: "POST /renamed shop::renamed".to_owned(),
            ..taker("k")
        };
        let won = bench.win(&next).await?;
        ensure!(
            won.attempt == attempt,
            "takeover {attempt} was counted as attempt {}",
            won.attempt
        );
        ensure!(
            won.steps.as_deref() == Some(b"charged"),
            "the steps were lost in the takeover"
        );
        let record = bench.standing(&first.id).await?;
        ensure!(record.owner == next.owner, "the owner is not the new one");
        ensure!(
            record.attempt == attempt,
            "the record's attempt is {}",
            record.attempt
        );
        ensure!(
            record.created_at == before.created_at && record.expires_at == before.expires_at,
            "the takeover moved the creation or the expiry"
        );
        ensure!(
            record.fingerprint == before.fingerprint && record.route == before.route,
            "the takeover changed the fingerprint or the route"
        );
        ensure!(
            lease_end(&record)? > lease_end(&previous)?,
            "the takeover did not start the lease anew"
        );
        previous = record;
    }
    Ok(())
}

pub(super) async fn never_means_never(bench: &Bench) -> Result<(), Failure> {
    let first = short_lease("k");
    bench.win(&first).await?;
    wait_out().await;
    let record = bench
        .find(&Claim {
            takeover: Takeover::Never,
            ..claim("k")
        })
        .await?;
    ensure!(
        lease_end(&record)? <= record.now,
        "the lease should have run out"
    );
    ensure!(
        record.owner == first.owner && record.attempt == 1,
        "the record changed"
    );
    Ok(())
}

pub(super) async fn a_lease_renewed_for_no_time_has_ended(bench: &Bench) -> Result<(), Failure> {
    let first = claim("k");
    bench.win(&first).await?;
    let steps = Bytes::from_static(b"charged");
    bench
        .store
        .save_steps(&first.id, first.owner, &steps)
        .await?;
    ensure!(
        bench.renew(&first.id, first.owner, Duration::ZERO).await? == Renewed::Held,
        "the renewal was lost"
    );
    wait_out().await;
    let won = bench.win(&taker("k")).await?;
    ensure!(
        won.attempt == 2 && won.steps == Some(steps),
        "the next attempt has {won:?}"
    );
    Ok(())
}

pub(super) async fn another_fingerprint_takes_nothing_over(bench: &Bench) -> Result<(), Failure> {
    let first = short_lease("k");
    bench.win(&first).await?;
    wait_out().await;
    for (fingerprint, also_accepted) in [
        (fingerprint('b'), None),
        (fingerprint('b'), Some(fingerprint('c'))),
        (fingerprint('A'), None),
    ] {
        let record = bench
            .find(&Claim {
                fingerprint,
                also_accepted,
                ..taker("k")
            })
            .await?;
        ensure!(
            record.owner == first.owner && record.attempt == 1,
            "the record changed"
        );
    }
    Ok(())
}

pub(super) async fn the_older_fingerprint_takes_over(bench: &Bench) -> Result<(), Failure> {
    bench.win(&short_lease("k")).await?;
    wait_out().await;
    let won = bench
        .win(&Claim {
            fingerprint: fingerprint('b'),
            also_accepted: Some(fingerprint('a')),
            ..taker("k")
        })
        .await?;
    ensure!(won.attempt == 2, "it is attempt {}", won.attempt);
    Ok(())
}

pub(super) async fn a_finished_record_is_not_taken_over(bench: &Bench) -> Result<(), Failure> {
    bench.finish(&short_lease("k"), &answer("done")).await?;
    wait_out().await;
    let record = bench.find(&taker("k")).await?;
    ensure!(
        answer_of(record)? == answer("done"),
        "the answer is another"
    );
    Ok(())
}

pub(super) async fn a_repeated_takeover_counts_once(bench: &Bench) -> Result<(), Failure> {
    bench.win(&short_lease("k")).await?;
    wait_out().await;
    let next = taker("k");
    for _ in 0..3 {
        let won = bench.win(&next).await?;
        ensure!(won.attempt == 2, "it is attempt {}", won.attempt);
    }
    Ok(())
}

pub(super) async fn simultaneous_takeovers_have_one_winner(bench: &Bench) -> Result<(), Failure> {
    let stores = [Arc::clone(&bench.store), bench.another().await];
    let keys: Vec<_> = (0..20).map(|round| format!("round-{round}")).collect();
    for key in &keys {
        bench.win(&short_lease(key)).await?;
    }
    wait_out().await;
    for key in &keys {
        let ended = race_claims(&stores, (0..20).map(|_| taker(key))).await?;
        let (_, won) = one_winner(ended)?;
        ensure!(won.attempt == 2, "the winner's attempt is {}", won.attempt);
    }
    Ok(())
}

/// Claims with a lease of a moment, which has run out when this returns.
async fn abandoned_rounds(bench: &Bench) -> Result<Vec<Claim>, Failure> {
    let mut rounds = Vec::new();
    for round in 0..30 {
        let late = Claim {
            lease: Duration::from_millis(1),
            ..claim(&format!("round-{round}"))
        };
        bench.win(&late).await?;
        rounds.push(late);
    }
    wait_out().await;
    Ok(rounds)
}

/// What the late owner and the taker saw, called at the same moment.
async fn late_against_taker<T, F>(
    bench: &Bench,
    late: F,
    key: &str,
) -> Result<(T, Claim, Claimed), Failure>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    enum Side<T> {
        Late(T),
        Taker(Result<Claimed, StoreError>),
    }
    let taker = taker(key);
    let other = bench.another().await;
    let claim = taker.clone();
    let calls: Vec<std::pin::Pin<Box<dyn Future<Output = Side<T>> + Send>>> = vec![
        Box::pin(async move { Side::Late(late.await) }),
        Box::pin(async move { Side::Taker(other.claim(&claim).await) }),
    ];
    let (mut saw, mut claimed) = (None, None);
    for side in race(calls).await? {
        match side {
            Side::Late(result) => saw = Some(result),
            Side::Taker(result) => claimed = Some(result?),
        }
    }
    match (saw, claimed) {
        (Some(saw), Some(claimed)) => Ok((saw, taker, claimed)),
        _ => Err(Failure::new("one side of the race was lost")),
    }
}

pub(super) async fn completion_and_takeover_exclude_each_other(
    bench: &Bench,
) -> Result<(), Failure> {
    for late in abandoned_rounds(bench).await? {
        let store = Arc::clone(&bench.store);
        let (id, owner) = (late.id.clone(), late.owner);
        let (completed, taker, claimed) = late_against_taker(
            bench,
            async move { store.complete(&id, owner, &answer("late")).await },
            late.id.key(),
        )
        .await?;
        let record = bench.standing(&late.id).await?;
        match (completed, claimed) {
            (Ok(()), Claimed::Standing(seen)) => {
                ensure!(
                    answer_of(*seen)? == answer("late") && answer_of(record)? == answer("late"),
                    "the completion that won is not what stands there"
                );
            }
            (Err(StoreError::LeaseLost), Claimed::Won { attempt: 2, .. }) => {
                lease_end(&record)?;
                ensure!(record.owner == taker.owner, "the taker is not the owner");
            }
            (completed, claimed) => {
                return Err(Failure::new(format!(
                    "completion: {completed:?}, takeover: {claimed:?}"
                )));
            }
        }
    }
    Ok(())
}

pub(super) async fn renewal_and_takeover_exclude_each_other(bench: &Bench) -> Result<(), Failure> {
    for late in abandoned_rounds(bench).await? {
        let store = Arc::clone(&bench.store);
        let renewal = crate::store::Renewal {
            id: late.id.clone(),
            owner: late.owner,
            lease: LONG,
        };
        let (renewed, taker, claimed) = late_against_taker(
            bench,
            async move { store.renew(&[renewal]).await },
            late.id.key(),
        )
        .await?;
        let owner = bench.standing(&late.id).await?.owner;
        match (renewed?.as_slice(), claimed) {
            ([Renewed::Held], Claimed::Standing(_)) => {
                ensure!(owner == late.owner, "the renewed owner is not the owner");
            }
            ([Renewed::Lost], Claimed::Won { attempt: 2, .. }) => {
                ensure!(owner == taker.owner, "the taker is not the owner");
            }
            (renewed, claimed) => {
                return Err(Failure::new(format!(
                    "renewal: {renewed:?}, takeover: {claimed:?}"
                )));
            }
        }
    }
    Ok(())
}

pub(super) async fn release_and_takeover_exclude_each_other(bench: &Bench) -> Result<(), Failure> {
    for late in abandoned_rounds(bench).await? {
        let store = Arc::clone(&bench.store);
        let (id, owner) = (late.id.clone(), late.owner);
        let (released, taker, claimed) = late_against_taker(
            bench,
            async move { store.release(&id, owner).await },
            late.id.key(),
        )
        .await?;
        let expected = match released {
            Ok(()) => 1,
            Err(StoreError::LeaseLost) => 2,
            Err(error) => return Err(error.into()),
        };
        let won = won(claimed)?;
        ensure!(
            won.attempt == expected,
            "the claim should be attempt {expected}, it is attempt {}",
            won.attempt
        );
        let record = bench.standing(&late.id).await?;
        ensure!(record.owner == taker.owner, "the taker is not the owner");
    }
    Ok(())
}
