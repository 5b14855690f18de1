//! A record as it stands in memory: a few allocations, no more than it needs.

use crate::{
    record::{Answer, FORMAT, Record, RecordId, Row, Status, StoreTime, Unreadable, handler_of},
    store::{Claim, Claimed},
};
use bytes::Bytes;
use uuid::Uuid;

/// Allowance, in bytes, for the structures around one record.
const RECORD: usize = 384;

/// A record.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) hash: u64,
    text: Text,
    pub(super) life: Life,
    pub(super) created_at: StoreTime,
    pub(super) expires_at: StoreTime,
    pub(super) owner: Uuid,
    pub(super) attempt: u32,
    /// Unique; a finished record's says when it was finished among the others.
    pub(super) sequence: u64,
}

/// Where a record stands.
#[derive(Debug)]
pub(super) enum Life {
    Running {
        locked_until: StoreTime,
        steps: Option<Bytes>,
    },
    Finished {
        completed_at: StoreTime,
        answer: Packed,
    },
}

impl Entry {
    pub(super) fn new(claim: &Claim, hash: u64, sequence: u64, now: StoreTime) -> Self {
        Entry {
            hash,
            text: Text::new(claim),
            life: Life::Running {
                locked_until: now.after(claim.lease),
                steps: None,
            },
            created_at: now,
            expires_at: now.after(claim.ttl),
            owner: claim.owner,
            attempt: 1,
            sequence,
        }
    }

    pub(super) fn is_named(&self, id: &RecordId) -> bool {
        let [scope, key, path, ..] = self.text.parts();
        scope == id.scope() && key == id.key() && path == id.request_path()
    }

    pub(super) fn id(&self) -> RecordId {
        let [scope, key, path, ..] = self.text.parts();
        RecordId::new(scope, key, path)
    }

    pub(super) fn fingerprint(&self) -> &str {
        self.text.parts()[4]
    }

    /// The part of the route after the last space.
    pub(super) fn handler(&self) -> &str {
        handler_of(self.text.parts()[3])
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.life, Life::Running { .. })
    }

    /// The end of the lease; a finished record has none and answers with a moment in its past.
    pub(super) fn end_of_lease(&self) -> StoreTime {
        match self.life {
            Life::Running { locked_until, .. } => locked_until,
            Life::Finished { .. } => self.created_at,
        }
    }

    /// The moment from which it is as if it were not there.
    pub(super) fn end(&self) -> StoreTime {
        self.expires_at.max(self.end_of_lease())
    }

    pub(super) fn is_live(&self, now: StoreTime) -> bool {
        now < self.end()
    }

    /// Live, running, and the lease has run out.
    pub(super) fn is_abandoned(&self, now: StoreTime) -> bool {
        self.is_running() && self.end_of_lease() <= now && now < self.expires_at
    }

    /// Starts the lease anew. A finished record has none.
    pub(super) fn lock_until(&mut self, end: StoreTime) {
        if let Life::Running { locked_until, .. } = &mut self.life {
            *locked_until = end;
        }
    }

    fn steps(&self) -> Option<&Bytes> {
        match &self.life {
            Life::Running { steps, .. } => steps.as_ref(),
            Life::Finished { .. } => None,
        }
    }

    pub(super) fn won(&self) -> Claimed {
        Claimed::Won {
            attempt: self.attempt,
            steps: self.steps().cloned(),
        }
    }

    /// The record, understood by the same rules as one from a table.
    pub(super) fn record(&self, now: StoreTime) -> Result<Record, Unreadable> {
        Record::decode(self.id(), self.row(now, Packed::headers, Packed::body))
    }

    /// The record without its answer's headers and body.
    pub(super) fn summary(&self, now: StoreTime) -> Result<Record, Unreadable> {
        let row = self.row(now, |answer| answer.headers().map(|_| Vec::new()), |_| None);
        Record::decode(self.id(), row)
    }

    fn row(
        &self,
        now: StoreTime,
        headers: impl FnOnce(&Packed) -> Option<Vec<u8>>,
        body: impl FnOnce(&Packed) -> Option<Bytes>,
    ) -> Row {
        let (status, completed_at, answer) = match &self.life {
            Life::Running { .. } => (Status::Processing, None, None),
            Life::Finished {
                completed_at,
                answer,
            } => (
                Status::of_response(answer.code),
                Some(*completed_at),
                Some(answer),
            ),
        };
        let [_, _, _, route, fingerprint] = self.text.parts();
        Row {
            request_hash: fingerprint.to_owned(),
            status: status.as_str().to_owned(),
            response_code: answer.map(|answer| i32::from(answer.code)),
            response_headers: answer.and_then(headers),
            response_body: answer.and_then(body),
            created_at: self.created_at,
            locked_until: self.end_of_lease(),
            completed_at,
            expires_at: self.expires_at,
            owner: self.owner,
            attempt: i32::try_from(self.attempt).unwrap_or(i32::MAX),
            route: route.to_owned(),
            format: FORMAT,
            steps: self.steps().cloned(),
            now,
        }
    }

    /// What it counts for against the bound in bytes.
    pub(super) fn cost(&self) -> usize {
        let contents = match &self.life {
            Life::Running { steps, .. } => steps.as_ref().map_or(0, Bytes::len),
            Life::Finished { answer, .. } => answer.bytes.len(),
        };
        self.cost_without_contents() + contents
    }

    /// The same without steps and answer.
    pub(super) fn cost_without_contents(&self) -> usize {
        RECORD + self.text.whole.len()
    }
}

/// Scope, key, path, route and fingerprint in one piece.
#[derive(Debug)]
struct Text {
    whole: Box<str>,
    /// Where each but the last ends.
    ends: [u32; 4],
}

impl Text {
    fn new(claim: &Claim) -> Self {
        let parts = [
            claim.id.scope(),
            claim.id.key(),
            claim.id.request_path(),
            &claim.route,
            &claim.fingerprint,
        ];
        let mut whole = String::with_capacity(parts.iter().map(|part| part.len()).sum());
        let mut ends = [0; 4];
        for (n, part) in parts.into_iter().enumerate() {
            whole.push_str(part);
            if let Some(end) = ends.get_mut(n) {
                *end = u32::try_from(whole.len()).unwrap_or(u32::MAX);
            }
        }
        Text {
            whole: whole.into(),
            ends,
        }
    }

    fn parts(&self) -> [&str; 5] {
        let [scope, key, path, route] = self.ends.map(|end| end as usize);
        [
            &self.whole[..scope],
            &self.whole[scope..key],
            &self.whole[key..path],
            &self.whole[path..route],
            &self.whole[route..],
        ]
    }
}

/// An answer in one piece: the encoded headers, then the body.
///
/// It is a copy. The body that was handed over may be a slice of a much larger buffer, which would
/// be kept with it and not counted.
#[derive(Debug)]
pub(super) struct Packed {
    code: u16,
    /// Where the headers end. None is a tombstone.
    headers: Option<usize>,
    has_body: bool,
    bytes: Bytes,
}

impl Packed {
    pub(super) fn new(answer: &Answer) -> Self {
        let headers = answer.headers_column();
        let body = answer.body_column();
        let parts = [headers.as_deref(), body].map(Option::unwrap_or_default);
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        Packed {
            code: answer.code(),
            headers: headers.as_ref().map(Vec::len),
            has_body: body.is_some(),
            bytes: bytes.into(),
        }
    }

    /// Bytes that it takes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn headers(&self) -> Option<Vec<u8>> {
        Some(self.bytes.slice(..self.headers?).to_vec())
    }

    fn body(&self) -> Option<Bytes> {
        self.has_body
            .then(|| self.bytes.slice(self.headers.unwrap_or(0)..))
    }
}
