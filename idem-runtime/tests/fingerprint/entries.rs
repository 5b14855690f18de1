//! What must hold of any bytes at all: the entry functions that the seeds of the corpus, their
//! mutations, and a fuzzer (`tests/fuzz` of the repository) are given to.

use bytes::Bytes;
use idem_runtime::{
    fingerprint::{FingerprintError, Mode, Options, RequestParts, fingerprint},
    key::{IdempotencyKey, MAX_KEY_BYTES},
    record::{Answer, FORMAT, Record, RecordId, Row, State, Status, StoreTime},
};
use uuid::Uuid;

use super::model;

/// A key that was read, written quoted, is read again as the same key.
pub(crate) fn key(bytes: &[u8]) {
    if let Ok(Some(key)) = IdempotencyKey::parse([bytes]) {
        assert!((1..=MAX_KEY_BYTES).contains(&key.as_str().len()));
        let quoted = format!(
            "\"{}\"",
            key.as_str().replace('\\', "\\\\").replace('"', "\\\"")
        );
        assert_eq!(IdempotencyKey::parse([quoted.as_bytes()]), Ok(Some(key)));
    }
}

/// A document is insensitive to white space exactly if the model can read it.
pub(crate) fn json(bytes: &[u8]) {
    let of = |body: &[u8]| {
        let parts = RequestParts::new("POST", "/", body).content_type(Some(b"application/json"));
        fingerprint(&parts, &Options::default())
    };
    let canonical = of(bytes) == of(&[bytes, b"\n"].concat());
    assert_eq!(canonical, model::parse(bytes).is_some());
}

/// Media types and codings that [`body`] chooses from.
const TYPES: [&str; 8] = [
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=b",
    "multipart/mixed; boundary=\"a b\"",
    "text/plain; charset=utf-16",
    "application/merge-patch+json; charset=utf-8",
    "application/octet-stream",
    "",
];
const CODINGS: [&[&[u8]]; 8] = [
    &[],
    &[b"gzip"],
    &[b"deflate"],
    &[b"br"],
    &[b"zstd"],
    &[b"gzip, br"],
    &[b"identity", b"x-gzip"],
    &[b"unheard-of"],
];
/// So small that a few bytes can unfold to more.
const MOST_DECODED: usize = 4096;

/// A body of any type in any coding: the first byte chooses the type, the second the coding. It has
/// one fingerprint, or is refused for what it unfolds to, which only a compressed one can be.
pub(crate) fn body(bytes: &[u8]) {
    let [kind, coding, body @ ..] = bytes else {
        return;
    };
    let content_type = TYPES[usize::from(*kind) % TYPES.len()];
    let codings = CODINGS[usize::from(*coding) % CODINGS.len()];
    let parts = RequestParts::new("POST", "/orders", body)
        .content_type(Some(content_type.as_bytes()).filter(|value| !value.is_empty()))
        .content_encoding(codings.iter().copied());
    let options = Options::default()
        .max_decoded(MOST_DECODED)
        .ignore(&["/a", "/*/b", "/c/0"]);
    let once = fingerprint(&parts, &options);
    assert_eq!(once, fingerprint(&parts, &options));
    if let Err(error) = once {
        let limit = MOST_DECODED;
        assert_eq!(error, FingerprintError::DecodedTooLarge { limit });
        assert!(!codings.is_empty());
    }
    let raw = options.mode(Mode::Raw);
    let raw_once = fingerprint(&parts, &raw).expect("nothing is decoded");
    assert_ne!(once, Ok(raw_once));
    let mut elsewhere = parts.clone();
    elsewhere.path = "/refunds";
    assert_ne!(fingerprint(&elsewhere, &raw), Ok(raw_once));
}

/// Columns of a record, taken from the bytes: status, code, format, attempt, what is there, a byte
/// of the hash, then the headers, of which those of a response are kept as they are.
///
/// A row is understood or refused, and what is understood was written so: encoded again it gives
/// the same columns.
pub(crate) fn record(bytes: &[u8]) {
    let Some((head, encoded)) = bytes.split_first_chunk::<13>() else {
        return;
    };
    let [status, c0, c1, c2, c3, f0, f1, a0, a1, a2, a3, there, hash] = *head;
    let status = match status {
        b'P' => Status::Processing.as_str().to_owned(),
        b'C' => Status::Completed.as_str().to_owned(),
        b'F' => Status::Failed.as_str().to_owned(),
        other => char::from(other).to_string(),
    };
    let part = |bit: u8| (there & bit != 0).then_some(encoded);
    let row = Row {
        request_hash: char::from(hash).to_string().repeat(64),
        status,
        response_code: (there & 1 != 0).then_some(i32::from_be_bytes([c0, c1, c2, c3])),
        response_headers: part(2).map(<[u8]>::to_vec),
        response_body: part(4).map(Bytes::copy_from_slice),
        created_at: StoreTime(i64::from(c0) - 128),
        locked_until: StoreTime(i64::MAX),
        completed_at: (there & 8 != 0).then_some(StoreTime(i64::MIN)),
        expires_at: StoreTime(i64::from(c1)),
        owner: Uuid::from_u128(u128::from(c2)),
        attempt: i32::from_be_bytes([a0, a1, a2, a3]),
        route: "POST /orders".to_owned(),
        format: i16::from_be_bytes([f0, f1]),
        steps: part(16).map(Bytes::copy_from_slice),
        now: StoreTime(0),
    };
    let before = row.clone();
    let id = RecordId::new("alice", "k", "POST /orders");
    let Ok(record) = Record::decode(id, row) else {
        return;
    };
    assert_eq!(before.format, FORMAT);
    assert!(record.attempt > 0);
    match record.state {
        State::Running { .. } => assert_eq!(before.status, "PROCESSING"),
        State::Finished { answer, .. } => {
            assert_eq!(Status::of_response(answer.code()).as_str(), before.status);
            assert_eq!(Some(i32::from(answer.code())), before.response_code);
            assert_eq!(answer.headers_column(), before.response_headers);
            if let Answer::Kept(_) = answer {
                assert_eq!(answer.body_column(), before.response_body.as_deref());
            }
        }
        // A state of a later release, which this one would not have understood.
        _ => unreachable!("an unknown state"),
    }
}
