//! What must hold of any bytes at a key: the entry function that the seeds of the corpus, their
//! mutations, and a fuzzer (`tests/fuzz` of the repository) are given to.

use super::codec::{Extent, HEAD, Moment, Value, answer};
use crate::record::State;
use bytes::Bytes;

/// A value is understood or refused. What is understood was written so: its answer, encoded again,
/// is the end of the value, and its texts are where they were.
pub(crate) fn redis_value(bytes: &[u8]) {
    let moment = Moment {
        now: 1_000,
        expiry: 2_000,
    };
    let _ = Value::head_is_running(bytes);
    let parse = |extent| Value::parse(&Bytes::copy_from_slice(bytes), extent, None);
    if let Ok(value) = parse(Extent::Texts) {
        let _ = (value.is_running(), value.finished_span());
        let _ = value.into_record(moment);
    }
    let Ok(value) = parse(Extent::Whole) else {
        return;
    };
    assert!(bytes.len() >= HEAD);
    let id = value.id.clone();
    let _ = parse(Extent::Whole).map(Value::won);
    let Ok(record) = value.into_record(moment) else {
        return;
    };
    assert_eq!(record.id, id);
    let texts = [
        &record.fingerprint,
        id.scope(),
        id.key(),
        id.request_path(),
        &record.route,
    ]
    .concat();
    assert!(bytes[HEAD..].starts_with(texts.as_bytes()));
    if let (State::Finished { answer: kept, .. }, None) = (&record.state, &record.steps) {
        let (_, _, tail) = answer(kept);
        // A tombstone's body is not looked at: none is written.
        if kept.headers_column().is_some() {
            assert_eq!(bytes[HEAD + texts.len()..], tail[..]);
        }
    }
}
