//! Which records are one, and which are not.

use super::bench::*;
use crate::{
    record::{MAX_REQUEST_PATH, MAX_SCOPE, RecordId},
    store::Claim,
};

/// Claims all, each with an answer of its own, and finds each with its own answer.
async fn all_differ(bench: &Bench, ids: &[RecordId]) -> Result<(), Failure> {
    let mut claims = Vec::new();
    for (n, id) in ids.iter().enumerate() {
        let claim = Claim {
            id: id.clone(),
            ..claim("")
        };
        bench.win(&claim).await.map_err(|failure| {
            Failure::new(format!("{} is taken for another: {failure}", show(id)))
        })?;
        bench
            .store
            .complete(&claim.id, claim.owner, &answer(&n.to_string()))
            .await?;
        claims.push(claim);
    }
    for (n, id) in ids.iter().enumerate() {
        let record = bench.standing(id).await?;
        ensure!(
            record.id == *id && record.owner == claims[n].owner,
            "{} is answered with the record of {}",
            show(id),
            show(&record.id)
        );
        ensure!(
            answer_of(record)? == answer(&n.to_string()),
            "{} has another's answer",
            show(id)
        );
        let read = bench.store.get(id).await?;
        ensure!(
            read.is_some_and(|record| record.owner == claims[n].owner),
            "{} is read as another",
            show(id)
        );
    }
    // Removing one leaves the others.
    for (n, id) in ids.iter().enumerate() {
        ensure!(
            bench.store.forget(id).await?,
            "{} was removed together with another",
            show(id)
        );
        for other in &ids[n + 1..] {
            ensure!(
                bench.store.get(other).await?.is_some(),
                "forgetting {} removed {}",
                show(id),
                show(other)
            );
        }
    }
    Ok(())
}

fn show(id: &RecordId) -> String {
    format!("{:?}", (id.scope(), id.key(), id.request_path()))
}

pub(super) async fn every_part_counts(bench: &Bench) -> Result<(), Failure> {
    all_differ(
        bench,
        &[
            RecordId::new("alice", "k", "POST /orders"),
            RecordId::new("bob", "k", "POST /orders"),
            RecordId::new("alice", "l", "POST /orders"),
            RecordId::new("alice", "k", "POST /refunds"),
            RecordId::new("alice", "k", "PUT /orders"),
            // The same letters with the borders elsewhere, and the marks that join parts.
            RecordId::new("ali", "cek", "POST /orders"),
            RecordId::new("alicek", "POST", " /orders"),
            RecordId::new("alice", "kPOST", " /orders"),
            RecordId::new("alice:k", "POST /orders", "x"),
            RecordId::new("alice", "k:POST /orders", "x"),
            RecordId::new("alice|k", "k", "POST /orders"),
            RecordId::new("alice", "k|k", "POST /orders"),
            RecordId::new("alice", "{k}", "POST /orders"),
            RecordId::new("{alice}", "k", "POST /orders"),
        ],
    )
    .await
}

pub(super) async fn text_is_compared_as_bytes(bench: &Bench) -> Result<(), Failure> {
    let mut ids = Vec::new();
    for scope in [
        "alice", "Alice", "ALICE", "e", "é", "e\u{301}", "E", "É", "ss", "ß", "alice ", " alice",
        "%", "_", "al%", "alic_", "ali\\ce", "ali'ce", "ali\"ce", "日本", "🦀",
    ] {
        ids.push(RecordId::new(scope, "k", "POST /orders"));
    }
    for key in [
        "AbC1", "aBc1", "abc1", "abc1 ", "abc1  ", " abc1", "abc%", "abc_", "%", "_", "*", "?",
        "[a-z]", "a\\b", "a'b", "a\"b", "0", "00", "1", "1.0", "1e0", "-1", "NULL", "null",
    ] {
        ids.push(RecordId::new("keys", key, "POST /orders"));
    }
    for path in [
        "POST /Orders",
        "POST /orders",
        "POST /orders ",
        "POST /orders/",
        "POST /orders/%41",
        "POST /orders/_1",
    ] {
        ids.push(RecordId::new("paths", "k", path));
    }
    all_differ(bench, &ids).await
}

pub(super) async fn the_longest_parts_fit(bench: &Bench) -> Result<(), Failure> {
    const MAX_KEY: usize = 255;
    /// `length` bytes that do not compress to nothing, with a last byte of choice.
    fn long(length: usize, last: char) -> String {
        let mut text: String = (0..length - 1)
            .map(|n| char::from(b'a' + (n * n % 26) as u8))
            .collect();
        text.push(last);
        text
    }
    let (scope, key, path) = (
        long(MAX_SCOPE, 'x'),
        long(MAX_KEY, 'x'),
        long(MAX_REQUEST_PATH, 'x'),
    );
    all_differ(
        bench,
        &[
            RecordId::new(&scope, &key, &path),
            RecordId::new(long(MAX_SCOPE, 'y'), &key, &path),
            RecordId::new(&scope, long(MAX_KEY, 'y'), &path),
            RecordId::new(&scope, &key, long(MAX_REQUEST_PATH, 'y')),
            RecordId::new(&scope[1..], &key, &path),
            RecordId::new(&scope, &key[1..], &path),
            RecordId::new("é".repeat(MAX_SCOPE / 2), &key, &path),
            RecordId::new("e".repeat(MAX_SCOPE), &key, &path),
        ],
    )
    .await
}
