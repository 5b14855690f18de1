//! What the operator reads and removes.

use super::bench::*;
use crate::{
    record::RecordId,
    store::{Claim, ListQuery, Store, Which},
};
use std::collections::HashSet;

pub(super) async fn a_live_record_is_read(bench: &Bench) -> Result<(), Failure> {
    ensure!(
        bench.store.get(&id("k")).await?.is_none(),
        "a record is read where none was made"
    );
    let first = claim("k");
    bench.win(&first).await?;
    let Some(running) = bench.store.get(&first.id).await? else {
        return Err(Failure::new("a running record is not read"));
    };
    lease_end(&running)?;
    ensure!(
        running.id == first.id
            && running.owner == first.owner
            && running.fingerprint == first.fingerprint
            && running.route == first.route
            && running.attempt == 1,
        "the running record is read differently from how it was claimed"
    );
    bench
        .store
        .complete(&first.id, first.owner, &answer("done"))
        .await?;
    let Some(finished) = bench.store.get(&first.id).await? else {
        return Err(Failure::new("a finished record is not read"));
    };
    ensure!(
        finished.created_at == running.created_at && finished.expires_at == running.expires_at,
        "completion moved the creation or the expiry"
    );
    ensure!(
        answer_of(finished)? == answer("done"),
        "the answer is another"
    );
    Ok(())
}

pub(super) async fn the_list_is_paged(bench: &Bench) -> Result<(), Failure> {
    let mut expected = HashSet::new();
    for scope in ["alice", "Alice", "é", "bob:%"] {
        for key in ["1", "2", "10", "a b", "%"] {
            for path in ["POST /orders", "POST /refunds"] {
                let claim = Claim {
                    id: RecordId::new(scope, key, path),
                    ..claim("")
                };
                bench.win(&claim).await?;
                if key != "10" {
                    bench
                        .store
                        .complete(&claim.id, claim.owner, &answer("done"))
                        .await?;
                }
                expected.insert(claim.id);
            }
        }
    }
    bench
        .finish(
            &Claim {
                ttl: SHORT,
                ..claim("expired")
            },
            &answer("old"),
        )
        .await?;
    let past_ttl = Claim {
        ttl: SHORT,
        ..claim("running past its TTL")
    };
    bench.win(&past_ttl).await?;
    expected.insert(past_ttl.id);
    wait_out().await;

    for limit in [7, 1000] {
        let mut seen = HashSet::new();
        let mut after = None;
        loop {
            let query = ListQuery {
                after,
                limit,
                which: Which::All,
            };
            let page = bench.store.list(&query).await?;
            ensure!(
                page.len() <= limit as usize,
                "a page of at most {limit} has {} records",
                page.len()
            );
            let Some(last) = page.last() else { break };
            after = Some(last.id.clone());
            for record in page {
                ensure!(
                    record.fingerprint == fingerprint('a') && record.attempt == 1,
                    "a listed record is not what was claimed"
                );
                ensure!(
                    expected.contains(&record.id),
                    "{:?} is listed and should not be",
                    (record.id.scope(), record.id.key())
                );
                ensure!(
                    seen.insert(record.id.clone()),
                    "{:?} is listed twice",
                    (record.id.scope(), record.id.key())
                );
            }
        }
        ensure!(
            seen.len() == expected.len(),
            "{} of {} records are listed in pages of {limit}",
            seen.len(),
            expected.len()
        );
    }
    Ok(())
}

pub(super) async fn the_abandoned_are_listed_alone(bench: &Bench) -> Result<(), Failure> {
    let lapsed = |key: &str| Claim {
        lease: SHORT,
        ..claim(key)
    };
    let mut expected = HashSet::new();
    for n in 0..12 {
        let removed = Claim {
            route: "POST /old shop::removed".to_owned(),
            ..lapsed(&format!("of no handler {n}"))
        };
        for claim in [lapsed(&format!("lapsed {n}")), removed] {
            bench.win(&claim).await?;
            expected.insert(claim.id);
        }
        bench.win(&claim(&format!("running {n}"))).await?;
        bench
            .finish(&lapsed(&format!("finished {n}")), &answer("done"))
            .await?;
    }
    for claim in [
        Claim {
            ttl: SHORT,
            ..lapsed("expired")
        },
        Claim {
            ttl: SHORT,
            ..claim("running past its TTL")
        },
    ] {
        bench.win(&claim).await?;
    }
    let released = lapsed("released");
    bench.win(&released).await?;
    bench.store.release(&released.id, released.owner).await?;
    wait_out().await;
    for limit in [5, 1000] {
        let listed = abandoned_in_pages(&*bench.store, limit).await?;
        let seen: HashSet<_> = listed.iter().cloned().collect();
        ensure!(
            seen.len() == listed.len(),
            "of {} listed records some are listed twice",
            listed.len()
        );
        ensure!(
            seen == expected,
            "in pages of {limit}, {:?} are listed and should not be, {:?} are missing",
            seen.difference(&expected)
                .map(RecordId::key)
                .collect::<Vec<_>>(),
            expected
                .difference(&seen)
                .map(RecordId::key)
                .collect::<Vec<_>>()
        );
    }
    // Listing takes nothing: whoever is allowed to can still resolve each of them.
    let first = lapsed("lapsed 0");
    let standing = bench.standing(&first.id).await?;
    bench
        .store
        .complete(&first.id, standing.owner, &answer("late"))
        .await?;
    ensure!(
        !abandoned_in_pages(&*bench.store, 1000)
            .await?
            .contains(&first.id),
        "a record that was finished is still listed as abandoned"
    );
    Ok(())
}

async fn abandoned_in_pages(store: &dyn Store, limit: u32) -> Result<Vec<RecordId>, Failure> {
    let mut listed = Vec::new();
    loop {
        let query = ListQuery {
            after: listed.last().cloned(),
            limit,
            which: Which::Abandoned,
        };
        let page = store.list(&query).await?;
        ensure!(
            page.len() <= limit as usize,
            "a page of at most {limit} has {} records",
            page.len()
        );
        for record in &page {
            ensure!(
                lease_end(record)? <= record.now,
                "a record is listed as abandoned whose lease runs"
            );
        }
        let is_last = page.len() < limit as usize;
        listed.extend(page.into_iter().map(|record| record.id));
        if is_last {
            return Ok(listed);
        }
    }
}

pub(super) async fn a_forgotten_record_is_gone(bench: &Bench) -> Result<(), Failure> {
    ensure!(
        !bench.store.forget(&id("k")).await?,
        "a record that was never there was forgotten"
    );
    let running = claim("running");
    bench.win(&running).await?;
    let finished = claim("finished");
    bench.finish(&finished, &answer("done")).await?;
    for old in [running, finished] {
        let other = Claim {
            fingerprint: fingerprint('b'),
            ..claim(old.id.key())
        };
        ensure!(
            bench.store.forget(&old.id).await?,
            "a record that stands there was not forgotten"
        );
        ensure!(
            bench.store.get(&old.id).await?.is_none(),
            "a forgotten record is still read"
        );
        ensure!(
            is_lost(
                &bench
                    .store
                    .complete(&old.id, old.owner, &answer("late"))
                    .await
            ),
            "the owner of a forgotten record could still complete it"
        );
        ensure!(
            bench.win(&other).await? == FIRST,
            "the key of a forgotten record should be as new"
        );
        ensure!(
            is_lost(
                &bench
                    .store
                    .complete(&old.id, old.owner, &answer("late"))
                    .await
            ),
            "the owner of a forgotten record completed its successor"
        );
    }
    Ok(())
}
