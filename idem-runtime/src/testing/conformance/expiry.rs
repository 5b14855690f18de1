//! The end of the TTL.

use super::bench::*;
use crate::store::{Claim, Renewed, Takeover};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// A claim with a short TTL. The long lease keeps it live until it is finished, on any machine.
fn short_ttl(key: &str) -> Claim {
    Claim {
        ttl: SHORT,
        ..claim(key)
    }
}

pub(super) async fn a_finished_record_expires(bench: &Bench) -> Result<(), Failure> {
    for (key, next) in [("never", claim("never")), ("abandoned", taker("abandoned"))] {
        let old = short_ttl(key);
        bench.finish(&old, &answer("old")).await?;
        wait_out().await;
        ensure!(
            bench.store.get(&old.id).await?.is_none(),
            "an expired record is still read"
        );
        let next = Claim {
            fingerprint: fingerprint('b'),
            ..next
        };
        ensure!(
            bench.win(&next).await? == FIRST,
            "the claim of an expired record should be attempt 1"
        );
        let record = bench.standing(&next.id).await?;
        lease_end(&record)?;
        ensure!(
            record.owner == next.owner && record.fingerprint == next.fingerprint,
            "the record is still the expired one"
        );
        ensure!(
            is_lost(
                &bench
                    .store
                    .complete(&old.id, old.owner, &answer("old"))
                    .await
            ),
            "the expired record's owner completed its successor"
        );
    }
    Ok(())
}

pub(super) async fn an_abandoned_record_expires(bench: &Bench) -> Result<(), Failure> {
    for (n, takeover) in [Takeover::Never, Takeover::Abandoned]
        .into_iter()
        .enumerate()
    {
        let old = Claim {
            lease: SHORT,
            ..short_ttl(&format!("k{n}"))
        };
        bench.win(&old).await?;
        wait_out().await;
        ensure!(
            bench.store.get(&old.id).await?.is_none(),
            "an expired record is still read"
        );
        let next = Claim {
            fingerprint: fingerprint('b'),
            takeover,
            owner: uuid::Uuid::new_v4(),
            ttl: LONG,
            lease: LONG,
            ..old.clone()
        };
        ensure!(
            bench.win(&next).await? == FIRST,
            "the claim of an expired record should be attempt 1"
        );
        let record = bench.standing(&next.id).await?;
        ensure!(
            record.created_at.after(LONG) == record.expires_at && record.attempt == 1,
            "the record is not a new one"
        );
        ensure!(
            bench.renew(&old.id, old.owner, LONG).await? == Renewed::Lost,
            "the expired record's owner still holds the key"
        );
    }
    Ok(())
}

pub(super) async fn a_running_lease_outlives_the_ttl(bench: &Bench) -> Result<(), Failure> {
    let working = short_ttl("k");
    bench.win(&working).await?;
    bench
        .store
        .save_steps(&working.id, working.owner, &Bytes::from_static(b"half"))
        .await?;
    wait_out().await;
    for other in [claim("k"), taker("k")] {
        let record = bench.find(&other).await?;
        ensure!(record.expires_at <= record.now, "the TTL is not over");
        ensure!(
            record.owner == working.owner && lease_end(&record)? > record.now,
            "the running record changed"
        );
    }
    ensure!(
        bench.win(&working).await?.steps.as_deref() == Some(b"half"),
        "the owner's repeated claim began a new record"
    );
    ensure!(
        bench.store.get(&working.id).await?.is_some(),
        "a running record is not read"
    );
    ensure!(
        bench.renew(&working.id, working.owner, LONG * 2).await? == Renewed::Held,
        "the lease cannot be renewed after the TTL"
    );
    bench
        .store
        .complete(&working.id, working.owner, &answer("at last"))
        .await?;
    wait_out().await;
    ensure!(
        bench.win(&claim("k")).await? == FIRST,
        "finished after its TTL, the record should be as if it were not there"
    );
    Ok(())
}

pub(super) async fn simultaneous_claims_of_an_expired_record_have_one_winner(
    bench: &Bench,
) -> Result<(), Failure> {
    let stores = [Arc::clone(&bench.store), bench.another().await];
    let keys: Vec<_> = (0..20).map(|round| format!("round-{round}")).collect();
    for (n, key) in keys.iter().enumerate() {
        let old = Claim {
            ttl: Duration::from_millis(1),
            lease: if n % 2 == 0 { LONG } else { SHORT },
            ..claim(key)
        };
        bench.win(&old).await?;
        if n % 2 == 0 {
            bench
                .store
                .complete(&old.id, old.owner, &answer("old"))
                .await?;
        }
    }
    wait_out().await;
    for key in &keys {
        let claims = (0..20).map(|n| if n % 2 == 0 { claim(key) } else { taker(key) });
        let (winner, won) = one_winner(race_claims(&stores, claims).await?)?;
        ensure!(won == FIRST, "the winner should be attempt 1");
        ensure!(
            bench.standing(&winner.id).await?.owner == winner.owner,
            "the record is not the winner's"
        );
    }
    Ok(())
}

pub(super) async fn simultaneous_claims_without_a_ttl_have_one_winner(
    bench: &Bench,
) -> Result<(), Failure> {
    let stores = [Arc::clone(&bench.store), bench.another().await];
    for round in 0..20 {
        let key = format!("round-{round}");
        // Whoever wins is past its TTL before the others are answered, but its lease runs.
        let claims = (0..20).map(|n| Claim {
            ttl: Duration::ZERO,
            ..if n % 2 == 0 { claim(&key) } else { taker(&key) }
        });
        let (_, won) = one_winner(race_claims(&stores, claims).await?)?;
        ensure!(won == FIRST, "the winner should be attempt 1");
    }
    Ok(())
}

pub(super) async fn completion_and_replay_do_not_extend_the_ttl(
    bench: &Bench,
) -> Result<(), Failure> {
    let first = claim("k");
    bench.win(&first).await?;
    let running = bench.standing(&first.id).await?;
    bench
        .store
        .complete(&first.id, first.owner, &answer("done"))
        .await?;
    for _ in 0..5 {
        let replayed = bench
            .find(&Claim {
                ttl: LONG * 9,
                ..claim("k")
            })
            .await?;
        ensure!(
            replayed.expires_at == running.expires_at && replayed.created_at == running.created_at,
            "the creation or the expiry moved"
        );
    }
    Ok(())
}

pub(super) async fn a_released_key_s_next_record_has_its_full_ttl(
    bench: &Bench,
) -> Result<(), Failure> {
    let released = claim("released");
    bench.win(&released).await?;
    bench.store.release(&released.id, released.owner).await?;
    bench.finish(&short_ttl("expired"), &answer("old")).await?;
    wait_out().await;
    for key in ["released", "expired"] {
        let next = Claim {
            ttl: LONG * 2,
            ..claim(key)
        };
        bench.finish(&next, &answer("new")).await?;
        // Whatever was to end the record before this one must not end this one.
        wait_out().await;
        let record = bench.standing(&next.id).await?;
        ensure!(
            record.expires_at == record.created_at.after(LONG * 2)
                && near(record.created_at, record.now),
            "the record after one that was {key} does not have its full TTL"
        );
    }
    Ok(())
}

pub(super) async fn purging_removes_expired_records_in_batches(
    bench: &Bench,
) -> Result<(), Failure> {
    for n in 0..12 {
        let key = format!("k{n}");
        if n % 2 == 0 {
            bench.finish(&short_ttl(&key), &answer("old")).await?;
        } else {
            bench
                .win(&Claim {
                    lease: SHORT,
                    ..short_ttl(&key)
                })
                .await?;
        }
    }
    bench.finish(&claim("live"), &answer("live")).await?;
    wait_out().await;
    let mut batches = Vec::new();
    for _ in 0..4 {
        batches.push(bench.store.purge_expired(5).await?);
    }
    // A store that removes expired records by itself may have left nothing to purge.
    if bench.store.needs_purging() {
        ensure!(
            batches == [5, 5, 2, 0],
            "12 expired records were purged in batches of {batches:?}, the limit being 5"
        );
    } else {
        ensure!(
            batches.iter().all(|removed| *removed <= 5),
            "a batch is over the limit of 5: {batches:?}"
        );
    }
    bench.standing(&id("live")).await?;
    Ok(())
}

pub(super) async fn purging_spares_what_is_live(bench: &Bench) -> Result<(), Failure> {
    bench.win(&claim("running")).await?;
    bench.finish(&claim("finished"), &answer("kept")).await?;
    bench
        .win(&Claim {
            lease: SHORT,
            ..claim("abandoned")
        })
        .await?;
    bench.win(&short_ttl("running past its TTL")).await?;
    wait_out().await;
    let purged = bench.store.purge_expired(1000).await?;
    ensure!(purged == 0, "{purged} live records were purged");
    for key in ["running", "finished", "abandoned", "running past its TTL"] {
        ensure!(
            bench.store.get(&id(key)).await?.is_some(),
            "the {key} record is gone"
        );
    }
    Ok(())
}
