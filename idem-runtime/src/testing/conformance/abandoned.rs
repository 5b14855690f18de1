//! Taking abandoned records for reconciliation.

use super::bench::*;
use crate::store::{AbandonedQuery, Claim, Renewed, Takeover};
use bytes::Bytes;
use std::{collections::HashSet, sync::Arc, time::Duration};
use uuid::Uuid;

const HANDLER: &str = "shop::create_order";

fn query(limit: u32) -> AbandonedQuery {
    AbandonedQuery {
        handlers: vec![HANDLER.to_owned()],
        owner: Uuid::new_v4(),
        lease: LONG,
        limit,
    }
}

fn abandoned(key: &str) -> Claim {
    Claim {
        lease: SHORT,
        ..claim(key)
    }
}

async fn keys_taken(bench: &Bench, query: &AbandonedQuery) -> Result<Vec<String>, Failure> {
    Ok(bench
        .store
        .take_abandoned(query)
        .await?
        .iter()
        .map(|record| record.id.key().to_owned())
        .collect())
}

pub(super) async fn only_lapsed_running_live_records_are_taken(
    bench: &Bench,
) -> Result<(), Failure> {
    bench.win(&abandoned("lapsed")).await?;
    bench.win(&claim("running")).await?;
    bench
        .finish(&abandoned("finished"), &answer("done"))
        .await?;
    bench
        .win(&Claim {
            ttl: SHORT,
            ..abandoned("expired")
        })
        .await?;
    bench
        .win(&Claim {
            ttl: SHORT,
            ..claim("running past its TTL")
        })
        .await?;
    let released = abandoned("released");
    bench.win(&released).await?;
    bench.store.release(&released.id, released.owner).await?;
    wait_out().await;
    let taken = keys_taken(bench, &query(100)).await?;
    ensure!(taken == ["lapsed"], "{taken:?} were taken");
    let taken = keys_taken(bench, &query(100)).await?;
    ensure!(
        taken.is_empty(),
        "{taken:?} were taken although their new lease runs"
    );
    Ok(())
}

pub(super) async fn only_the_named_handlers_records_are_taken(
    bench: &Bench,
) -> Result<(), Failure> {
    for (key, route) in [
        ("exact", "POST /orders shop::create_order"),
        ("other route", "PUT /orders/{id} shop::create_order"),
        ("spaces", "POST /a b shop::create_order"),
        ("longer", "POST /orders shop::create_order_v2"),
        ("prefixed", "POST /orders workshop::create_order"),
        ("case", "POST /orders shop::Create_order"),
        ("pattern", "POST /orders shop::createXorder"),
        ("other", "POST /orders shop::refund"),
        ("in the path", "POST shop::create_order shop::refund"),
        ("second", "POST /orders shop::cancel"),
    ] {
        bench
            .win(&Claim {
                route: route.to_owned(),
                ..abandoned(key)
            })
            .await?;
    }
    wait_out().await;
    for handlers in [
        vec![],
        vec!["nobody".to_owned()],
        vec!["%".to_owned(), String::new()],
    ] {
        let taken = keys_taken(
            bench,
            &AbandonedQuery {
                handlers: handlers.clone(),
                ..query(100)
            },
        )
        .await?;
        ensure!(taken.is_empty(), "{taken:?} were taken for {handlers:?}");
    }
    let mut taken = keys_taken(
        bench,
        &AbandonedQuery {
            handlers: vec![HANDLER.to_owned(), "shop::cancel".to_owned()],
            ..query(100)
        },
    )
    .await?;
    taken.sort();
    ensure!(
        taken == ["exact", "other route", "second", "spaces"],
        "{taken:?} were taken"
    );
    Ok(())
}

pub(super) async fn the_oldest_lease_is_taken_first(bench: &Bench) -> Result<(), Failure> {
    // Claimed in another order than their leases end.
    let leases = [("d", 40), ("a", 10), ("c", 30), ("e", 50), ("b", 20)];
    for (key, _) in leases {
        bench.win(&claim(key)).await?;
    }
    // Renewed together: all of these leases count from one moment.
    let mut renewals = Vec::new();
    for (key, lease) in leases {
        renewals.push(crate::store::Renewal {
            id: id(key),
            owner: bench.standing(&id(key)).await?.owner,
            lease: Duration::from_millis(lease),
        });
    }
    let answers = bench.store.renew(&renewals).await?;
    ensure!(
        answers.iter().all(|answer| *answer == Renewed::Held),
        "the leases could not be renewed"
    );
    wait_out().await;
    for expected in [&["a", "b"][..], &["c", "d"], &["e"], &[]] {
        let taken = keys_taken(bench, &query(2)).await?;
        ensure!(
            taken == expected,
            "with a limit of 2, {taken:?} were taken instead of {expected:?}"
        );
    }
    Ok(())
}

pub(super) async fn a_taken_record_has_a_new_owner(bench: &Bench) -> Result<(), Failure> {
    let old = abandoned("k");
    bench.win(&old).await?;
    bench
        .store
        .save_steps(&old.id, old.owner, &Bytes::from_static(b"charged"))
        .await?;
    let before = bench.standing(&old.id).await?;
    wait_out().await;
    let query = query(10);
    let taken = bench.store.take_abandoned(&query).await?;
    let [record] = &taken[..] else {
        return Err(Failure::new(format!("{} records were taken", taken.len())));
    };
    ensure!(
        record.id == old.id
            && record.fingerprint == old.fingerprint
            && record.route == old.route
            && record.steps.as_deref() == Some(b"charged")
            && record.created_at == before.created_at
            && record.expires_at == before.expires_at,
        "the taken record differs from the abandoned one in more than owner and lease"
    );
    ensure!(
        record.owner == query.owner,
        "the taken record does not show its new owner"
    );
    ensure!(
        record.attempt == 1,
        "reconciliation was counted as attempt {}",
        record.attempt
    );
    ensure!(
        lease_end(record)? > record.now,
        "the taken record's lease does not run"
    );
    let standing = bench.find(&taker("k")).await?;
    ensure!(
        standing.owner == query.owner && standing.attempt == 1 && standing.state == record.state,
        "what stands there is not what was taken"
    );
    ensure!(
        is_lost(
            &bench
                .store
                .complete(&old.id, old.owner, &answer("old"))
                .await
        ) && bench.renew(&old.id, old.owner, LONG).await? == Renewed::Lost,
        "the old owner is not fenced off"
    );
    bench
        .store
        .complete(&old.id, query.owner, &answer("reconciled"))
        .await?;
    let record = bench
        .find(&Claim {
            takeover: Takeover::Abandoned,
            ..claim("k")
        })
        .await?;
    ensure!(
        answer_of(record)? == answer("reconciled"),
        "the answer is another"
    );
    Ok(())
}

pub(super) async fn no_record_is_given_to_two(bench: &Bench) -> Result<(), Failure> {
    const ROUNDS: usize = 10;
    const RECORDS: usize = 60;
    let stores = [Arc::clone(&bench.store), bench.another().await];
    let handler = |round: usize| format!("shop::round_{round}");
    for round in 0..ROUNDS {
        let claims = (0..RECORDS).map(|n| Claim {
            route: format!("POST /orders {}", handler(round)),
            ..abandoned(&format!("round-{round}-{n}"))
        });
        for (_, claimed) in race_claims(&stores, claims).await? {
            won(claimed)?;
        }
    }
    wait_out().await;
    for round in 0..ROUNDS {
        let of_round = |limit| AbandonedQuery {
            handlers: vec![handler(round)],
            ..query(limit)
        };
        // Some ask for a few, some for all.
        let calls = (0..8)
            .map(|n| {
                let store = Arc::clone(&stores[n % 2]);
                let query = of_round(if n < 4 { 100 } else { 7 });
                async move { (query.limit, store.take_abandoned(&query).await) }
            })
            .collect();
        let mut seen = HashSet::new();
        for (limit, taken) in race(calls).await? {
            let taken = taken?;
            ensure!(
                taken.len() <= limit as usize,
                "{} records were taken with a limit of {limit}",
                taken.len()
            );
            for record in taken {
                ensure!(
                    seen.insert(record.id.key().to_owned()),
                    "{:?} was given to two callers",
                    record.id
                );
            }
        }
        // A caller may come away with less while others hold the rest, so ask once more.
        for record in bench.store.take_abandoned(&of_round(100)).await? {
            ensure!(
                seen.insert(record.id.key().to_owned()),
                "{:?} was given twice",
                record.id
            );
        }
        ensure!(
            seen.len() == RECORDS,
            "{} of {RECORDS} records were taken",
            seen.len()
        );
    }
    Ok(())
}
