//! What an owner may do with its record, and nobody else.

use super::bench::*;
use crate::{
    record::RecordId,
    store::{Claim, Renewal, Renewed},
};
use bytes::Bytes;
use uuid::Uuid;

/// Tries everything that needs ownership, without having it.
async fn all_is_lost(bench: &Bench, id: &RecordId, owner: Uuid) -> Result<(), Failure> {
    let store = &bench.store;
    ensure!(
        is_lost(&store.complete(id, owner, &answer("not mine")).await),
        "completing should be a lost lease"
    );
    ensure!(
        is_lost(&store.release(id, owner).await),
        "releasing should be a lost lease"
    );
    ensure!(
        is_lost(
            &store
                .save_steps(id, owner, &Bytes::from_static(b"not mine"))
                .await
        ),
        "keeping steps should be a lost lease"
    );
    ensure!(
        bench.renew(id, owner, LONG * 9).await? == Renewed::Lost,
        "the renewal should be lost"
    );
    Ok(())
}

pub(super) async fn an_old_owner_can_do_nothing(bench: &Bench) -> Result<(), Failure> {
    let old = Claim {
        lease: SHORT,
        ..claim("k")
    };
    bench.win(&old).await?;
    wait_out().await;
    let new = taker("k");
    bench.win(&new).await?;
    let before = bench.standing(&old.id).await?;
    all_is_lost(bench, &old.id, old.owner).await?;
    let after = bench.standing(&old.id).await?;
    ensure!(
        (before.state, before.owner, before.steps) == (after.state, after.owner, after.steps),
        "the old owner changed the record"
    );
    bench
        .store
        .complete(&new.id, new.owner, &answer("new"))
        .await?;
    all_is_lost(bench, &old.id, old.owner).await?;
    let record = bench.standing(&old.id).await?;
    ensure!(
        answer_of(record)? == answer("new"),
        "the old owner changed the answer"
    );
    Ok(())
}

pub(super) async fn a_stranger_can_do_nothing(bench: &Bench) -> Result<(), Failure> {
    let first = claim("k");
    bench.win(&first).await?;
    let neighbour = claim("neighbour");
    bench.win(&neighbour).await?;
    all_is_lost(bench, &first.id, Uuid::new_v4()).await?;
    all_is_lost(bench, &first.id, neighbour.owner).await?;
    all_is_lost(bench, &first.id, Uuid::nil()).await?;
    let record = bench.standing(&first.id).await?;
    lease_end(&record)?;
    ensure!(
        record.owner == first.owner && record.steps.is_none(),
        "a stranger changed the record"
    );
    Ok(())
}

pub(super) async fn nothing_can_be_done_to_an_absent_record(bench: &Bench) -> Result<(), Failure> {
    all_is_lost(bench, &id("never"), Uuid::new_v4()).await?;
    let released = claim("released");
    bench.win(&released).await?;
    bench.store.release(&released.id, released.owner).await?;
    all_is_lost(bench, &released.id, released.owner).await?;
    ensure!(
        bench.store.get(&released.id).await?.is_none(),
        "what was done to an absent record made one"
    );
    Ok(())
}

pub(super) async fn a_late_owner_completes(bench: &Bench) -> Result<(), Failure> {
    let late = Claim {
        lease: SHORT,
        ..claim("k")
    };
    bench.win(&late).await?;
    wait_out().await;
    bench
        .store
        .complete(&late.id, late.owner, &answer("late"))
        .await?;
    let record = bench.find(&taker("k")).await?;
    ensure!(
        answer_of(record)? == answer("late"),
        "the answer is another"
    );
    Ok(())
}

pub(super) async fn a_late_owner_releases_and_keeps_steps(bench: &Bench) -> Result<(), Failure> {
    let late = Claim {
        lease: SHORT,
        ..claim("k")
    };
    bench.win(&late).await?;
    wait_out().await;
    bench
        .store
        .save_steps(&late.id, late.owner, &Bytes::from_static(b"late"))
        .await?;
    let record = bench.find(&claim("k")).await?;
    ensure!(
        record.steps.as_deref() == Some(b"late"),
        "the steps were not kept"
    );
    ensure!(
        lease_end(&record)? <= record.now,
        "keeping steps renewed the lease"
    );
    bench.store.release(&late.id, late.owner).await?;
    ensure!(
        bench.win(&claim("k")).await? == FIRST,
        "the released key should be as new"
    );
    Ok(())
}

pub(super) async fn a_completion_is_repeated_in_vain(bench: &Bench) -> Result<(), Failure> {
    let first = claim("k");
    bench.finish(&first, &answer("first")).await?;
    let before = bench.standing(&first.id).await?;
    for body in ["first", "second"] {
        bench
            .store
            .complete(&first.id, first.owner, &answer(body))
            .await?;
    }
    let after = bench.standing(&first.id).await?;
    ensure!(
        (before.state, before.expires_at) == (after.state.clone(), after.expires_at),
        "repeating the completion changed the record"
    );
    ensure!(
        answer_of(after)? == answer("first"),
        "the first answer did not stay"
    );
    ensure!(
        is_lost(
            &bench
                .store
                .complete(&first.id, Uuid::new_v4(), &answer("first"))
                .await
        ),
        "the completion of a finished record by another owner should be a lost lease"
    );
    Ok(())
}

pub(super) async fn a_released_key_is_free(bench: &Bench) -> Result<(), Failure> {
    let first = claim("k");
    bench.win(&first).await?;
    bench
        .store
        .save_steps(&first.id, first.owner, &Bytes::from_static(b"old"))
        .await?;
    bench.store.release(&first.id, first.owner).await?;
    ensure!(
        bench.store.get(&first.id).await?.is_none(),
        "a released record is still there"
    );
    let next = Claim {
        fingerprint: fingerprint('b'),
        ..claim("k")
    };
    ensure!(
        bench.win(&next).await? == FIRST,
        "the claim after a release should be attempt 1 and have no steps"
    );
    ensure!(
        bench.standing(&next.id).await?.fingerprint == next.fingerprint,
        "the fingerprint is the released record's"
    );
    all_is_lost(bench, &first.id, first.owner).await
}

pub(super) async fn a_finished_record_is_not_released(bench: &Bench) -> Result<(), Failure> {
    let first = claim("k");
    bench.finish(&first, &answer("done")).await?;
    ensure!(
        is_lost(&bench.store.release(&first.id, first.owner).await),
        "releasing a finished record should be a lost lease"
    );
    ensure!(
        is_lost(
            &bench
                .store
                .save_steps(&first.id, first.owner, &Bytes::from_static(b"x"))
                .await
        ),
        "keeping steps of a finished record should be a lost lease"
    );
    ensure!(
        bench.renew(&first.id, first.owner, LONG).await? == Renewed::Lost,
        "renewing a finished record should be lost"
    );
    let record = bench.standing(&first.id).await?;
    ensure!(record.steps.is_none(), "a finished record got steps");
    ensure!(
        answer_of(record)? == answer("done"),
        "the answer is another"
    );
    Ok(())
}

pub(super) async fn leases_are_renewed_in_order(bench: &Bench) -> Result<(), Failure> {
    let claims: Vec<_> = (0..4).map(|n| claim(&format!("k{n}"))).collect();
    for claim in &claims {
        bench.win(claim).await?;
    }
    bench
        .store
        .complete(&claims[2].id, claims[2].owner, &answer("done"))
        .await?;
    let mut renewals: Vec<_> = claims
        .iter()
        .map(|claim| Renewal {
            id: claim.id.clone(),
            owner: claim.owner,
            lease: LONG * 2,
        })
        .collect();
    renewals[1].owner = Uuid::new_v4();
    renewals.push(Renewal {
        id: id("absent"),
        owner: Uuid::new_v4(),
        lease: LONG,
    });
    let expected = [
        Renewed::Held,
        Renewed::Lost,
        Renewed::Lost,
        Renewed::Held,
        Renewed::Lost,
    ];
    let answers = bench.store.renew(&renewals).await?;
    ensure!(answers == expected, "the answers are {answers:?}");
    renewals.reverse();
    let mut answers = bench.store.renew(&renewals).await?;
    answers.reverse();
    ensure!(
        answers == expected,
        "the answers to the same batch backwards are {answers:?} (turned round)"
    );
    ensure!(
        bench.store.renew(&[]).await?.is_empty(),
        "no renewals should have no answers"
    );
    let record = bench.standing(&claims[1].id).await?;
    ensure!(
        lease_end(&record)? == record.created_at.after(LONG),
        "a lost renewal moved the lease"
    );
    Ok(())
}

pub(super) async fn a_renewal_counts_from_now(bench: &Bench) -> Result<(), Failure> {
    let first = claim("k");
    bench.win(&first).await?;
    let created = bench.standing(&first.id).await?;
    for lease in [LONG * 4, LONG / 4] {
        wait_out().await;
        ensure!(
            bench.renew(&first.id, first.owner, lease).await? == Renewed::Held,
            "the renewal was lost"
        );
        let record = bench.standing(&first.id).await?;
        let end = lease_end(&record)?;
        ensure!(
            end > created.created_at.after(lease) && end <= record.now.after(lease),
            "a lease renewed for {lease:?} runs for {:?}",
            end.since(record.now)
        );
        ensure!(
            record.expires_at == created.expires_at,
            "the renewal moved the expiry"
        );
        ensure!(record.attempt == 1, "the renewal counted an attempt");
    }
    Ok(())
}

pub(super) async fn a_lapsed_lease_is_renewed(bench: &Bench) -> Result<(), Failure> {
    let late = Claim {
        lease: SHORT,
        ..claim("k")
    };
    bench.win(&late).await?;
    wait_out().await;
    ensure!(
        bench.renew(&late.id, late.owner, LONG).await? == Renewed::Held,
        "the renewal was lost"
    );
    let record = bench.find(&taker("k")).await?;
    ensure!(
        record.owner == late.owner && lease_end(&record)? > record.now,
        "the lease does not run"
    );
    Ok(())
}

pub(super) async fn a_big_batch_is_renewed(bench: &Bench) -> Result<(), Failure> {
    const MANY: usize = 1000;
    let claims: Vec<_> = (0..MANY).map(|n| claim(&format!("k{n}"))).collect();
    let renewals: Vec<_> = claims
        .iter()
        .map(|claim| Renewal {
            id: claim.id.clone(),
            owner: claim.owner,
            lease: LONG * 2,
        })
        .collect();
    for batch in claims.chunks(50) {
        let stores = [std::sync::Arc::clone(&bench.store)];
        for (_, claimed) in race_claims(&stores, batch.to_vec()).await? {
            won(claimed)?;
        }
    }
    let answers = bench.store.renew(&renewals).await?;
    ensure!(
        answers.len() == MANY,
        "{MANY} renewals were answered {} times",
        answers.len()
    );
    ensure!(
        answers.iter().all(|answer| *answer == Renewed::Held),
        "some of the renewals were lost"
    );
    Ok(())
}

pub(super) async fn steps_are_kept_and_replaced(bench: &Bench) -> Result<(), Failure> {
    let first = claim("k");
    bench.win(&first).await?;
    let every_byte: Vec<u8> = (0..=255).collect();
    for steps in [&b"one"[..], b"", &every_byte] {
        bench
            .store
            .save_steps(&first.id, first.owner, &Bytes::copy_from_slice(steps))
            .await?;
        let record = bench.standing(&first.id).await?;
        ensure!(
            record.steps.as_deref() == Some(steps),
            "the steps are {:?}",
            record.steps
        );
        let again = bench.win(&first).await?;
        ensure!(
            again.steps.as_deref() == Some(steps),
            "the owner's repeated claim sees the steps {:?}",
            again.steps
        );
    }
    bench
        .store
        .complete(&first.id, first.owner, &answer("done"))
        .await?;
    let record = bench.standing(&first.id).await?;
    ensure!(
        record.steps.is_none(),
        "the completion did not drop the steps"
    );
    Ok(())
}
