//! A record as the one string value that stands at its Redis key.
//!
//! A head of fixed length, which the scripts read and write without touching the rest, then the
//! texts, then either the answer or the steps. All numbers are big-endian. `record.lua` has the same
//! layout; the byte before the status is its version.

use super::clock::Bounds;
use crate::record::{Answer, FORMAT, Record, RecordId, Row, Status, StoreTime, Unreadable, millis};
use crate::store::Claim;
use bytes::{Buf, BufMut, Bytes};
use uuid::Uuid;

/// Length of the head.
pub(super) const HEAD: usize = 104;
/// What every value begins with: the name and the version of the layout.
const MAGIC: &[u8; 5] = b"idem\x01";
/// The length of a part that is not there.
const NONE: u32 = u32::MAX;
/// What bounds for a clock may be apart, in milliseconds.
const ODD: i64 = 1000;
/// Texts after the head: fingerprint, scope, key, request path, route.
const TEXTS: usize = 5;

/// The letter in the head that stands for a status: the first of its name.
pub(super) fn letter(status: Status) -> u8 {
    status.as_str().as_bytes().first().copied().unwrap_or(0)
}

/// The value that a claim proposes, and after how many milliseconds its key expires.
///
/// It holds no time: only the server knows it. Until a script fills the times in, they follow from
/// the key's expiry, which is set by the very command that wins the claim. But it holds the earliest
/// end of the lease, if the server's clock stands at `earliest` or later: for those who meet the
/// record and are not told its expiry.
pub(super) fn proposal(claim: &Claim, earliest: Option<i64>) -> (Vec<u8>, i64) {
    let ttl = millis(claim.ttl);
    // An expiry of zero is an error to Redis; a lease of a millisecond is as good as none.
    let lease = millis(claim.lease).max(1);
    let texts: [&str; TEXTS] = [
        &claim.fingerprint,
        claim.id.scope(),
        claim.id.key(),
        claim.id.request_path(),
        &claim.route,
    ];
    let mut value = Vec::with_capacity(HEAD + texts.iter().map(|text| text.len()).sum::<usize>());
    value.put_slice(MAGIC);
    value.put_u8(letter(Status::Processing));
    value.put_i16(FORMAT);
    value.put_slice(claim.owner.as_bytes());
    value.put_i32(1);
    let locked_until = earliest.map_or(0, |now| now.saturating_add(lease));
    for time in [0, locked_until, 0, ttl, lease] {
        value.put_i64(time);
    }
    value.put_i32(0);
    for text in texts {
        value.put_u32(length(text.as_bytes()));
    }
    for _absent in ["headers", "body", "steps"] {
        value.put_u32(NONE);
    }
    for text in texts {
        value.put_slice(text.as_bytes());
    }
    (value, ttl.max(lease))
}

/// An answer as `complete.lua` takes it: length of the headers, length of the body, both together.
pub(super) fn answer(answer: &Answer) -> (u32, u32, Vec<u8>) {
    let headers = answer.headers_column();
    let body = answer.body_column();
    let mut tail = headers.clone().unwrap_or_default();
    tail.extend_from_slice(body.unwrap_or_default());
    (
        headers.as_deref().map_or(NONE, length),
        body.map_or(NONE, length),
        tail,
    )
}

fn length(part: &[u8]) -> u32 {
    u32::try_from(part.len()).unwrap_or(NONE)
}

/// A value taken apart. Nothing is believed of it yet but its layout.
#[derive(Debug)]
pub(super) struct Value {
    status: u8,
    format: i16,
    pub(super) owner: Uuid,
    attempt: i32,
    created_at: i64,
    locked_until: i64,
    completed_at: i64,
    ttl: i64,
    lease: i64,
    code: i32,
    fingerprint: String,
    pub(super) id: RecordId,
    route: String,
    headers: Option<Vec<u8>>,
    body: Option<Bytes>,
    steps: Option<Bytes>,
}

/// The moments of the store's clock that are not in the value itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// The clock when it was read.
    pub(super) now: i64,
    /// When the key expires; negative if it does not.
    pub(super) expiry: i64,
}

/// How much of a value was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of it.
    Whole,
    /// Head and texts, without answer and steps.
    Texts,
}

impl Value {
    /// Takes a value apart; says in a sentence why it cannot. One whose identity is `expected` shares
    /// that one.
    pub(super) fn parse(
        value: &Bytes,
        extent: Extent,
        expected: Option<&RecordId>,
    ) -> Result<Value, String> {
        let garbage = || "its value is not one of this store's".to_owned();
        let mut rest: &[u8] = value;
        if rest.len() < HEAD {
            return Err(garbage());
        }
        let (magic, head) = rest.split_at(MAGIC.len());
        if magic[..4] != MAGIC[..4] {
            return Err(garbage());
        }
        if magic != MAGIC {
            return Err(format!("its value has the unknown layout {}", magic[4]));
        }
        rest = head;
        let status = rest.get_u8();
        let format = rest.get_i16();
        let owner = Uuid::from_u128(rest.get_u128());
        let attempt = rest.get_i32();
        let [created_at, locked_until, completed_at, ttl, lease] =
            std::array::from_fn(|_| rest.get_i64());
        let code = rest.get_i32();
        let texts: [u32; TEXTS] = std::array::from_fn(|_| rest.get_u32());
        let tail: [u32; 3] = std::array::from_fn(|_| rest.get_u32());

        let mut take = |length: u32| {
            let (part, others) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            rest = others;
            Some(part)
        };
        let mut text = |length| {
            let bytes = take(length).ok_or_else(garbage)?;
            std::str::from_utf8(bytes).map_err(|_| garbage())
        };
        let fingerprint = text(texts[0])?.to_owned();
        let (scope, key, path) = (text(texts[1])?, text(texts[2])?, text(texts[3])?);
        let id = match expected {
            Some(id) if (id.scope(), id.key(), id.request_path()) == (scope, key, path) => {
                id.clone()
            }
            _ => RecordId::new(scope, key, path),
        };
        let route = text(texts[4])?.to_owned();
        let mut part = |length: u32| match (length, extent) {
            (NONE, _) => Ok(None),
            (_, Extent::Texts) => Ok(Some(&[][..])),
            (length, Extent::Whole) => take(length).map(Some).ok_or_else(garbage),
        };
        let headers = part(tail[0])?.map(Vec::from);
        let body = part(tail[1])?.map(|part| value.slice_ref(part));
        let steps = part(tail[2])?.map(|part| value.slice_ref(part));
        if !rest.is_empty() {
            return Err(garbage());
        }
        Ok(Value {
            status,
            format,
            owner,
            attempt,
            created_at,
            locked_until,
            completed_at,
            ttl,
            lease,
            code,
            fingerprint,
            id,
            route,
            headers,
            body,
            steps,
        })
    }

    /// Whether a head, read on its own, is that of a running record.
    pub(super) fn head_is_running(head: &[u8]) -> bool {
        head.starts_with(MAGIC) && head.get(MAGIC.len()) == Some(&letter(Status::Processing))
    }

    /// Whether the record is claimed and not finished.
    pub(super) fn is_running(&self) -> bool {
        self.status == letter(Status::Processing)
    }

    /// What can be told of a running record whose lease has certainly not run out, by bounds for the
    /// server's clock; nothing of any other.
    pub(super) fn certainly_leased(&self, clock: Bounds) -> Option<Moment> {
        let left = self.locked_until.saturating_sub(clock.earliest);
        // More than a whole lease is left: some clock was set, and what the record says is worth nothing.
        if clock.latest >= self.locked_until || left > self.lease.saturating_add(ODD) {
            return None;
        }
        let created_at = self.locked_until.saturating_sub(self.lease);
        Some(Moment {
            now: clock.latest,
            expiry: created_at.saturating_add(self.ttl.max(self.lease)),
        })
    }

    /// When a finished record was finished and when it expires, by the store's clock.
    pub(super) fn finished_span(&self) -> (i64, i64) {
        (self.completed_at, self.created_at.saturating_add(self.ttl))
    }

    /// What a won claim is told: the attempt, and the steps kept by those before it.
    pub(super) fn won(self) -> Result<(u32, Option<Bytes>), Unreadable> {
        let attempt = u32::try_from(self.attempt)
            .ok()
            .filter(|attempt| *attempt > 0)
            .ok_or_else(|| {
                unreadable(&self.id, "its attempt is not a positive number".to_owned())
            })?;
        Ok((attempt, self.steps))
    }

    /// Understands the record.
    pub(super) fn into_record(self, moment: Moment) -> Result<Record, Unreadable> {
        let (created_at, locked_until) = if self.created_at != 0 {
            (self.created_at, self.locked_until)
        } else if moment.expiry < 0 {
            return Err(unreadable(&self.id, "its key has no expiry".to_owned()));
        } else {
            let created_at = moment.expiry.saturating_sub(self.ttl.max(self.lease));
            (created_at, created_at.saturating_add(self.lease))
        };
        let status = [Status::Processing, Status::Completed, Status::Failed]
            .into_iter()
            .find(|status| letter(*status) == self.status)
            .map_or_else(
                || char::from(self.status).to_string(),
                |status| status.as_str().to_owned(),
            );
        let row = Row {
            request_hash: self.fingerprint,
            status,
            response_code: (self.code != 0).then_some(self.code),
            response_headers: self.headers,
            response_body: self.body,
            created_at: StoreTime(created_at),
            locked_until: StoreTime(locked_until),
            completed_at: (self.completed_at != 0).then_some(StoreTime(self.completed_at)),
            expires_at: StoreTime(created_at.saturating_add(self.ttl)),
            owner: self.owner,
            attempt: self.attempt,
            route: self.route,
            format: self.format,
            steps: self.steps,
            now: StoreTime(moment.now),
        };
        Record::decode(self.id, row)
    }
}

pub(super) fn unreadable(id: &RecordId, reason: String) -> Unreadable {
    Unreadable {
        record: id.digest(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::entry::redis_value;
    use super::*;
    use crate::{record::State, store::Takeover};
    use proptest::prelude::*;
    use std::time::Duration;

    fn claim(ttl: u64, lease: u64) -> Claim {
        Claim {
            id: RecordId::new("tenant:é", "k 1", "POST /orders"),
            fingerprint: "a".repeat(64),
            also_accepted: None,
            route: "POST /orders shop::create_order".to_owned(),
            owner: Uuid::from_u128(7),
            ttl: Duration::from_millis(ttl),
            lease: Duration::from_millis(lease),
            takeover: Takeover::Never,
        }
    }

    fn first_claim(ttl: u64, lease: u64, claimed_at: i64) -> Record {
        let claim = claim(ttl, lease);
        let (value, px) = proposal(&claim, None);
        let moment = Moment {
            now: claimed_at + 1,
            expiry: claimed_at + px,
        };
        let value = Value::parse(&value.into(), Extent::Whole, None).unwrap();
        assert!(value.is_running());
        assert_eq!(value.id, claim.id);
        value.into_record(moment).unwrap()
    }

    #[test]
    fn the_times_of_a_first_claim_follow_from_its_key_s_expiry() {
        for (ttl, lease) in [(1000, 10), (10, 1000), (500, 500)] {
            let record = first_claim(ttl, lease, 1_000_000);
            assert_eq!(record.created_at, StoreTime(1_000_000), "{ttl} {lease}");
            assert_eq!(record.expires_at, StoreTime(1_000_000 + ttl as i64));
            let State::Running { locked_until } = record.state else {
                unreachable!("a claim's record runs")
            };
            assert_eq!(locked_until, StoreTime(1_000_000 + lease as i64));
            assert_eq!((record.attempt, record.owner), (1, Uuid::from_u128(7)));
        }
    }

    #[test]
    fn a_lease_is_certain_only_while_it_ends_later_than_the_clock_can_stand() {
        let parsed = |earliest| {
            let (value, _) = proposal(&claim(1000, 100), earliest);
            Value::parse(&value.into(), Extent::Whole, None).unwrap()
        };
        let value = parsed(Some(5000));
        let at = |earliest, latest| value.certainly_leased(Bounds { earliest, latest });
        assert_eq!(at(5000, 5099).unwrap().now, 5099);
        assert!(at(5000, 5100).is_none(), "it may have run out");
        assert!(at(3000, 3001).is_none(), "a clock was set");
        let unknown = Bounds {
            earliest: 5000,
            latest: 5001,
        };
        assert!(parsed(None).certainly_leased(unknown).is_none());
        let moment = at(5010, 5020).unwrap();
        let record = value.into_record(moment).unwrap();
        assert_eq!(record.created_at, StoreTime(5000));
        let State::Running { locked_until } = record.state else {
            unreachable!("a claim's record runs")
        };
        assert_eq!(locked_until, StoreTime(5100));
    }

    #[test]
    fn a_lease_of_nothing_still_gives_the_key_an_expiry() {
        assert_eq!(proposal(&claim(0, 0), None).1, 1);
        assert!(proposal(&claim(u64::MAX, u64::MAX), None).1 > 0);
    }

    #[test]
    fn the_seeds_and_what_becomes_of_them_are_understood_or_refused() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/redis");
        let mut seeds = 0;
        for seed in std::fs::read_dir(folder).unwrap() {
            let seed = std::fs::read(seed.unwrap().path()).unwrap();
            redis_value(&seed);
            // Every byte of the head to every extreme, and the value cut at every place.
            for at in 0..seed.len().min(HEAD + 8) {
                for byte in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut changed = seed.clone();
                    changed[at] = byte;
                    redis_value(&changed);
                }
            }
            for length in 0..seed.len() {
                redis_value(&seed[..length]);
            }
            seeds += 1;
        }
        assert!(seeds >= 15, "{folder} holds {seeds}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_apart_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Value::parse(&bytes.into(), Extent::Whole, None);
        }

        #[test]
        fn a_damaged_value_is_taken_apart_or_refused(
            at in 0_usize..250, byte in any::<u8>(), length in 0_usize..300
        ) {
            let (mut value, px) = proposal(&claim(1000, 10), Some(1));
            if let Some(place) = value.get_mut(at) {
                *place = byte;
            }
            value.truncate(length);
            for extent in [Extent::Whole, Extent::Texts] {
                if let Ok(value) = Value::parse(&value.clone().into(), extent, None) {
                    let _ = value.into_record(Moment { now: 0, expiry: px });
                }
            }
        }
    }
}
