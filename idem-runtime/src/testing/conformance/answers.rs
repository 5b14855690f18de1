//! The answer comes back as it was kept.

use super::bench::*;
use crate::record::{Answer, StoredResponse};
use bytes::Bytes;

/// Keeps each answer under a key of its own and gets it back, from a claim and from a read.
async fn all_come_back(bench: &Bench, answers: &[Answer]) -> Result<(), Failure> {
    let other = bench.another().await;
    for (n, kept) in answers.iter().enumerate() {
        let first = claim(&format!("answer-{n}"));
        bench.finish(&first, kept).await?;
        let replayed = answer_of(bench.standing(&first.id).await?)?;
        ensure!(replayed == *kept, "{}", difference(kept, &replayed));
        let Some(read) = other.get(&first.id).await? else {
            return Err(Failure::new("the record is not read"));
        };
        let read = answer_of(read)?;
        ensure!(read == *kept, "read: {}", difference(kept, &read));
    }
    Ok(())
}

/// Says where two answers differ without printing megabytes.
fn difference(kept: &Answer, back: &Answer) -> String {
    match (kept, back) {
        (Answer::Kept(kept), Answer::Kept(back)) if kept.body != back.body => {
            let shown = |body: &Option<Bytes>| match body {
                None => "no body".to_owned(),
                Some(body) => format!("a body of {} bytes", body.len()),
            };
            format!(
                "{} came back as {}, or with other bytes",
                shown(&kept.body),
                shown(&back.body)
            )
        }
        (Answer::Kept(kept), Answer::Kept(back)) => format!(
            "{} with {:?} came back as {} with {:?}",
            kept.code, kept.headers, back.code, back.headers
        ),
        (Answer::Kept(_), Answer::Tombstone { code }) => {
            format!("a response came back as a tombstone of {code}")
        }
        (Answer::Tombstone { code }, back) => {
            format!(
                "a tombstone of {code} came back as one of {}, or as a response",
                back.code()
            )
        }
    }
}

fn response(code: u16, headers: &[(&str, &[u8])], body: Option<Vec<u8>>) -> Answer {
    Answer::Kept(StoredResponse {
        code,
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.to_vec()))
            .collect(),
        body: body.map(Bytes::from),
    })
}

pub(super) async fn every_byte_is_kept(bench: &Bench) -> Result<(), Failure> {
    let every: Vec<u8> = (0..=255).collect();
    let mut answers = vec![
        response(200, &[], Some(every.clone())),
        response(200, &[], Some(every.into_iter().rev().collect())),
        response(200, &[], Some(vec![0])),
        response(200, &[], Some(b"\0\0\0".to_vec())),
        response(200, &[], Some(b"null".to_vec())),
        response(200, &[], Some(b"{\"b\": 1,  \"a\": 1.0}\n".to_vec())),
        response(200, &[], Some(b"\\x00 \\' '; -- \"".to_vec())),
    ];
    for byte in [0x7f, 0x80, 0xc0, 0xff] {
        answers.push(response(200, &[], Some(vec![byte; 3])));
    }
    all_come_back(bench, &answers).await
}

pub(super) async fn no_body_is_not_an_empty_body(bench: &Bench) -> Result<(), Failure> {
    let fields: &[(&str, &[u8])] = &[("etag", b"\"1\"")];
    all_come_back(
        bench,
        &[
            response(204, fields, None),
            response(200, fields, Some(Vec::new())),
            response(204, &[], None),
            response(200, &[], Some(Vec::new())),
        ],
    )
    .await
}

pub(super) async fn a_megabyte_of_wide_characters_is_kept(bench: &Bench) -> Result<(), Failure> {
    const MEBIBYTE: usize = 1024 * 1024;
    // 11 bytes a round, so that characters lie across every even border.
    let mut text = String::with_capacity(MEBIBYTE + 11);
    while text.len() < MEBIBYTE {
        text.push_str("語🦀文a");
    }
    all_come_back(bench, &[response(200, &[], Some(text.into_bytes()))]).await
}

pub(super) async fn headers_keep_order_duplicates_and_bytes(bench: &Bench) -> Result<(), Failure> {
    let every: Vec<u8> = (0..=255).collect();
    let long = vec![b'v'; 20_000];
    all_come_back(
        bench,
        &[response(
            201,
            &[
                ("location", b"/orders/1"),
                ("link", b"</b>; rel=b"),
                ("content-type", b"text/csv; charset=utf-8"),
                ("link", b"</a>; rel=a"),
                ("link", b"</b>; rel=b"),
                ("x-empty", b""),
                ("x-bytes", &every),
                ("x-long", &long),
                ("a-last", b"1"),
            ],
            Some(b"ok".to_vec()),
        )],
    )
    .await
}

pub(super) async fn a_tombstone_is_kept(bench: &Bench) -> Result<(), Failure> {
    all_come_back(
        bench,
        &[
            Answer::Tombstone { code: 200 },
            Answer::Tombstone { code: 500 },
            response(200, &[], None),
            response(200, &[], Some(Vec::new())),
        ],
    )
    .await
}

pub(super) async fn every_status_is_kept(bench: &Bench) -> Result<(), Failure> {
    let answers: Vec<_> = [
        100, 200, 201, 204, 299, 301, 303, 304, 399, 400, 401, 404, 409, 422, 429, 499, 500, 503,
        504, 599, 999,
    ]
    .into_iter()
    .map(|code| response(code, &[("x-code", code.to_string().as_bytes())], None))
    .collect();
    all_come_back(bench, &answers).await
}
