//! The record: what a store keeps for one idempotency key, in one scope, on one endpoint.
//!
//! Every store keeps the same columns under the same names. [`Row`] is the record as it stands in
//! the store, [`Record`] the same after it has been understood; [`Record::decode`] is the one place
//! that decides what cannot be understood.

use bytes::{BufMut, Bytes};
use sha2::{Digest, Sha256};
use std::{fmt, sync::Arc, time::Duration};
use uuid::Uuid;

/// Version of the fingerprint and of the response encoding that this release writes (`format`).
///
/// A record of a newer format is never guessed at: it is reported as [`Unreadable`].
pub const FORMAT: i16 = 1;

/// Longest `scope` in bytes.
pub const MAX_SCOPE: usize = 128;
/// Longest `request_path` in bytes.
pub const MAX_REQUEST_PATH: usize = 255;
/// Longest `route` in bytes.
pub const MAX_ROUTE: usize = 255;

/// The identity of a record and the primary key of every store: it is what decides a race.
///
/// All three parts are compared as bytes. A clone is another handle on the same text: whoever keeps
/// a claim alive, saves its outcome or waits for it holds one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId(Arc<Parts>);

#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Parts {
    scope: String,
    key: String,
    request_path: String,
}

impl RecordId {
    /// Puts an identity together.
    ///
    /// The parts are taken as they are: whoever calls has bounded them to what the columns hold
    /// (128, 255 and 255 bytes), as the engine does.
    pub fn new(
        scope: impl Into<String>,
        key: impl Into<String>,
        request_path: impl Into<String>,
    ) -> Self {
        Self(Arc::new(Parts {
            scope: scope.into(),
            key: key.into(),
            request_path: request_path.into(),
        }))
    }

    /// Who owns the key (`scope`), at most 128 bytes.
    pub fn scope(&self) -> &str {
        &self.0.scope
    }

    /// The idempotency key (`idempotency_key`), 1–255 visible ASCII characters and spaces.
    /// It is a secret of its owner: do not log it, log [`RecordId::digest`].
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// Method and normalised path, such as `POST /api/v1/orders` (`request_path`), at most 255 bytes.
    pub fn request_path(&self) -> &str {
        &self.0.request_path
    }

    /// A short hexadecimal digest of the whole identity: what log lines and problems name instead
    /// of the key.
    pub fn digest(&self) -> String {
        let hash = self.hash("record");
        hash.iter()
            .take(6)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// SHA-256 of the identity under a purpose, every part preceded by its length, so that no two
    /// identities run together.
    pub(crate) fn hash(&self, purpose: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        for part in [purpose, self.scope(), self.key(), self.request_path()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        hash.finalize().into()
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordId")
            .field("digest", &self.digest())
            .field("request_path", &self.request_path())
            .finish_non_exhaustive()
    }
}

/// A moment by the store's clock, in milliseconds since the Unix epoch.
///
/// Ownership is only ever decided by comparing two of these from the same store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreTime(pub i64);

impl StoreTime {
    /// How long after `earlier` this moment is; zero if it is not after it.
    pub fn since(self, earlier: StoreTime) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// This moment and `duration` more, as far as the type reaches.
    pub fn after(self, duration: Duration) -> StoreTime {
        StoreTime(self.0.saturating_add(millis(duration)))
    }
}

/// A duration in whole milliseconds for a store's clock, rounded up so that a short lease never
/// becomes none, and bounded far above any lease or TTL so that adding it to a time cannot overflow.
pub fn millis(duration: Duration) -> i64 {
    const LONGEST: i64 = 1000 * 60 * 60 * 24 * 365 * 100;
    let rounded = duration.as_nanos().div_ceil(1_000_000);
    i64::try_from(rounded).unwrap_or(LONGEST).min(LONGEST)
}

/// Where a record stands (`status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Claimed; the handler runs, or ran when its owner died.
    Processing,
    /// Finished with a status below 400.
    Completed,
    /// Finished with a status of 400 or more.
    Failed,
}

impl Status {
    /// The text in the `status` column.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Processing => "PROCESSING",
            Status::Completed => "COMPLETED",
            Status::Failed => "FAILED",
        }
    }

    /// The status with which a record ends for a response of this HTTP status.
    pub fn of_response(code: u16) -> Status {
        if code < 400 {
            Status::Completed
        } else {
            Status::Failed
        }
    }

    fn parse(text: &str) -> Option<Status> {
        [Status::Processing, Status::Completed, Status::Failed]
            .into_iter()
            .find(|status| status.as_str() == text)
    }
}

/// How a finished record is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The whole response: replayed byte for byte.
    Kept(StoredResponse),
    /// A tombstone: the handler ran and answered, but its response was over the size limit or an
    /// event stream. It is never run again and cannot be replayed.
    Tombstone {
        /// HTTP status of the response that was sent.
        code: u16,
    },
}

impl Answer {
    /// HTTP status of the answer (`response_code`).
    pub fn code(&self) -> u16 {
        match self {
            Answer::Kept(response) => response.code,
            Answer::Tombstone { code } => *code,
        }
    }

    /// The `response_headers` column: the encoded headers, or nothing for a tombstone. It is this
    /// column that tells a tombstone from a response without headers.
    pub fn headers_column(&self) -> Option<Vec<u8>> {
        match self {
            Answer::Kept(response) => Some(encode_headers(&response.headers)),
            Answer::Tombstone { .. } => None,
        }
    }

    /// The `response_body` column: nothing for a tombstone or a response without any body.
    pub fn body_column(&self) -> Option<&[u8]> {
        match self {
            Answer::Kept(response) => response.body.as_deref(),
            Answer::Tombstone { .. } => None,
        }
    }
}

/// A response as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// HTTP status.
    pub code: u16,
    /// Header fields in order, duplicates kept, values as bytes.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body. `None` is a response that has no body at all (such as 204), `Some` of no bytes an
    /// empty one (`Content-Length: 0`).
    pub body: Option<Bytes>,
}

impl StoredResponse {
    /// A response of this HTTP status, without headers and body.
    pub fn new(code: u16) -> StoredResponse {
        StoredResponse {
            code,
            headers: Vec::new(),
            body: None,
        }
    }

    /// Adds a header field.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> StoredResponse {
        self.headers
            .push((name.into().to_ascii_lowercase(), value.into()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> StoredResponse {
        self.body = Some(body.into());
        self
    }

    /// Sets a JSON body and its `Content-Type`.
    ///
    /// # Errors
    ///
    /// If `value` cannot be written as JSON.
    pub fn json(self, value: &impl serde::Serialize) -> Result<StoredResponse, serde_json::Error> {
        let body = serde_json::to_vec(value)?;
        Ok(self.header("content-type", "application/json").body(body))
    }
}

/// A record as its columns stand in a store, before anything is believed of them.
#[derive(Debug, Clone)]
pub struct Row {
    /// `request_hash`: the fingerprint, 64 hexadecimal digits.
    pub request_hash: String,
    /// `status`.
    pub status: String,
    /// `response_code`.
    pub response_code: Option<i32>,
    /// `response_headers`, see [`Answer::headers_column`].
    pub response_headers: Option<Vec<u8>>,
    /// `response_body`.
    pub response_body: Option<Bytes>,
    /// `created_at`: the first claim.
    pub created_at: StoreTime,
    /// `locked_until`: end of the lease.
    pub locked_until: StoreTime,
    /// `completed_at`.
    pub completed_at: Option<StoreTime>,
    /// `expires_at`: end of the TTL, which counts from the first claim.
    pub expires_at: StoreTime,
    /// `owner`: the fencing token.
    pub owner: Uuid,
    /// `attempt`, from 1.
    pub attempt: i32,
    /// `route`.
    pub route: String,
    /// `format`.
    pub format: i16,
    /// `steps`: results of durable steps of this operation, opaque to the store.
    pub steps: Option<Bytes>,
    /// The store's clock at the moment of reading.
    pub now: StoreTime,
}

/// A record that has been understood.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Record {
    /// Its identity.
    pub id: RecordId,
    /// The fingerprint of the request that claimed it, 64 hexadecimal digits.
    pub fingerprint: String,
    /// Where it stands.
    pub state: State,
    /// The first claim.
    pub created_at: StoreTime,
    /// End of the TTL.
    pub expires_at: StoreTime,
    /// The fencing token of its latest owner.
    pub owner: Uuid,
    /// How many times the operation has been started, from 1.
    pub attempt: u32,
    /// Route pattern and handler, for the reconciler and the operator.
    pub route: String,
    /// Results of durable steps, opaque to the store.
    pub steps: Option<Bytes>,
    /// The store's clock at the moment of reading.
    pub now: StoreTime,
}

/// Where a record stands, with what is known only there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Claimed and not finished.
    Running {
        /// End of the lease. In the past: the owner has died, or cannot reach the store.
        locked_until: StoreTime,
    },
    /// Finished.
    Finished {
        /// Moment of the completion.
        completed_at: StoreTime,
        /// What a retry is answered with.
        answer: Answer,
    },
}

impl Record {
    /// Name of the handler: the part of `route` after the last space.
    pub fn handler(&self) -> &str {
        handler_of(&self.route)
    }

    /// Whether it is claimed and not finished.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Understands a row.
    ///
    /// # Errors
    ///
    /// [`Unreadable`] where a column holds what no release of this crate writes, or the record is
    /// of a newer format. The record is then left untouched and its handler is not run.
    pub fn decode(id: RecordId, row: Row) -> Result<Record, Unreadable> {
        let unreadable = |reason: String| Unreadable {
            record: id.digest(),
            reason,
        };
        if row.format != FORMAT {
            return Err(unreadable(format!(
                "its format is {}, this release reads {FORMAT}",
                row.format
            )));
        }
        let status = Status::parse(&row.status)
            .ok_or_else(|| unreadable("its status is none of the known ones".to_owned()))?;
        if row.request_hash.len() != 64 || !row.request_hash.bytes().all(|b| b.is_ascii_hexdigit())
        {
            return Err(unreadable(
                "its request_hash is not 64 hexadecimal digits".to_owned(),
            ));
        }
        let state = match status {
            Status::Processing => State::Running {
                locked_until: row.locked_until,
            },
            Status::Completed | Status::Failed => {
                let code = row
                    .response_code
                    .and_then(|code| u16::try_from(code).ok())
                    .filter(|code| (100..=999).contains(code))
                    .ok_or_else(|| {
                        unreadable("its response_code is not an HTTP status".to_owned())
                    })?;
                if Status::of_response(code) != status {
                    return Err(unreadable(
                        "its status contradicts its response_code".to_owned(),
                    ));
                }
                let answer = match row.response_headers {
                    None => Answer::Tombstone { code },
                    Some(encoded) => Answer::Kept(StoredResponse {
                        code,
                        headers: decode_headers(&encoded).ok_or_else(|| {
                            unreadable("its response_headers cannot be decoded".to_owned())
                        })?,
                        body: row.response_body,
                    }),
                };
                State::Finished {
                    completed_at: row.completed_at.unwrap_or(row.created_at),
                    answer,
                }
            }
        };
        let attempt = u32::try_from(row.attempt)
            .ok()
            .filter(|attempt| *attempt > 0)
            .ok_or_else(|| unreadable("its attempt is not a positive number".to_owned()))?;
        Ok(Record {
            id,
            fingerprint: row.request_hash,
            state,
            created_at: row.created_at,
            expires_at: row.expires_at,
            owner: row.owner,
            attempt,
            route: row.route,
            steps: row.steps,
            now: row.now,
        })
    }
}

/// Name of the handler in a `route`.
pub(crate) fn handler_of(route: &str) -> &str {
    route.rsplit(' ').next().unwrap_or_default()
}

/// A record that cannot be understood: corrupt, or written by a newer release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {record} cannot be read: {reason}")]
pub struct Unreadable {
    /// [`RecordId::digest`] of the record.
    pub record: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Header fields as they are kept: for each field the length and bytes of the name, then of the
/// value, lengths as 32-bit big-endian numbers.
fn encode_headers(headers: &[(String, Vec<u8>)]) -> Vec<u8> {
    let sizes = headers
        .iter()
        .map(|(name, value)| 8 + name.len() + value.len());
    let mut out = Vec::with_capacity(sizes.sum());
    for (name, value) in headers {
        for part in [name.as_bytes(), value] {
            out.put_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
            out.put_slice(part);
        }
    }
    out
}

fn decode_headers(mut encoded: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    fn part<'a>(encoded: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (length, rest) = encoded.split_first_chunk::<4>()?;
        let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        *encoded = rest;
        Some(part)
    }
    let mut headers = Vec::new();
    while !encoded.is_empty() {
        let name = std::str::from_utf8(part(&mut encoded)?).ok()?.to_owned();
        headers.push((name, part(&mut encoded)?.to_vec()));
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn finished_row() -> Row {
        let answer = Answer::Kept(StoredResponse {
            code: 201,
            headers: vec![
                ("location".to_owned(), b"/orders/1".to_vec()),
                ("x-bytes".to_owned(), vec![0x80, 0xff]),
                ("link".to_owned(), b"<a>".to_vec()),
                ("link".to_owned(), b"<b>".to_vec()),
            ],
            body: Some(Bytes::from_static(b"{}")),
        });
        Row {
            request_hash: "a".repeat(64),
            status: "COMPLETED".to_owned(),
            response_code: Some(201),
            response_headers: answer.headers_column(),
            response_body: Some(Bytes::from_static(b"{}")),
            created_at: StoreTime(0),
            locked_until: StoreTime(10),
            completed_at: Some(StoreTime(5)),
            expires_at: StoreTime(100),
            owner: Uuid::nil(),
            attempt: 1,
            route: "POST /orders".to_owned(),
            format: FORMAT,
            steps: None,
            now: StoreTime(7),
        }
    }

    fn decode(change: impl FnOnce(&mut Row)) -> Result<Record, Unreadable> {
        let mut row = finished_row();
        change(&mut row);
        Record::decode(RecordId::new("alice", "k1", "POST /orders"), row)
    }

    #[test]
    fn headers_keep_order_duplicates_and_bytes() {
        let record = decode(|_| ()).unwrap();
        let State::Finished {
            answer: Answer::Kept(response),
            ..
        } = record.state
        else {
            unreachable!("the row is finished and kept")
        };
        let names: Vec<_> = response
            .headers
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["location", "x-bytes", "link", "link"]);
        assert_eq!(response.headers[1].1, [0x80, 0xff]);
    }

    #[test]
    fn what_no_release_writes_is_unreadable() {
        type Change = fn(&mut Row);
        let changes: [(&str, Change); 8] = [
            ("status", |row| row.status = "DONE".to_owned()),
            ("status", |row| row.status = String::new()),
            ("format", |row| row.format = FORMAT + 1),
            ("response_code", |row| row.response_code = None),
            ("contradicts", |row| row.response_code = Some(500)),
            ("response_headers", |row| {
                row.response_headers = Some(vec![0, 0, 0, 9, b'x'])
            }),
            ("attempt", |row| row.attempt = 0),
            ("request_hash", |row| {
                row.request_hash = "garbage".to_owned()
            }),
        ];
        for (what, change) in changes {
            let error = decode(change).unwrap_err();
            assert!(error.to_string().contains(what), "{what}: {error}");
        }
    }

    #[test]
    fn no_headers_column_is_a_tombstone_and_no_headers_is_not() {
        let tombstone = decode(|row| row.response_headers = None).unwrap();
        assert!(matches!(
            tombstone.state,
            State::Finished {
                answer: Answer::Tombstone { code: 201 },
                ..
            }
        ));
        let bare = decode(|row| row.response_headers = Some(Vec::new())).unwrap();
        assert!(matches!(
            bare.state,
            State::Finished {
                answer: Answer::Kept(_),
                ..
            }
        ));
    }

    #[test]
    fn identities_do_not_run_together() {
        let ids = [
            RecordId::new("a", "bc", "d"),
            RecordId::new("ab", "c", "d"),
            RecordId::new("a", "b", "cd"),
        ];
        assert_ne!(ids[0].hash("x"), ids[1].hash("x"));
        assert_ne!(ids[0].hash("x"), ids[2].hash("x"));
        assert_ne!(ids[0].hash("x"), ids[0].hash("y"));
    }

    #[test]
    fn debug_output_does_not_hold_the_key() {
        let id = RecordId::new("alice", "top-secret-key", "POST /orders");
        assert!(!format!("{id:?}").contains("top-secret-key"));
    }

    #[test]
    fn durations_round_up_and_never_overflow() {
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::from_millis(1500)), 1500);
        assert!(StoreTime(0).after(Duration::MAX) > StoreTime(0));
        assert_eq!(StoreTime(5).since(StoreTime(9)), Duration::ZERO);
    }
}
