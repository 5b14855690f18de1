//! Records and the orders that are kept of them, under one lock.

use crate::{
    record::{Answer, Record, RecordId, State, StoreTime, StoredResponse},
    store::{Claim, Claimed},
};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use uuid::Uuid;

/// Allowance, in bytes, for the structures around one record.
const RECORD: usize = 512;
/// The same for one header field.
const FIELD: usize = 64;

/// A record.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: Arc<RecordId>,
    pub(super) fingerprint: Box<str>,
    pub(super) route: Box<str>,
    pub(super) life: Life,
    pub(super) created_at: StoreTime,
    pub(super) expires_at: StoreTime,
    pub(super) owner: Uuid,
    pub(super) attempt: u32,
    pub(super) steps: Option<Bytes>,
    /// Unique; a finished record's says when it was finished among the others.
    pub(super) sequence: u64,
}

/// Where a record stands.
#[derive(Debug)]
pub(super) enum Life {
    Running {
        locked_until: StoreTime,
    },
    Finished {
        completed_at: StoreTime,
        answer: Answer,
    },
}

impl Entry {
    pub(super) fn new(claim: &Claim, sequence: u64, now: StoreTime) -> Self {
        Entry {
            id: Arc::new(claim.id.clone()),
            fingerprint: claim.fingerprint.as_str().into(),
            route: claim.route.as_str().into(),
            life: Life::Running {
                locked_until: now.after(claim.lease),
            },
            created_at: now,
            expires_at: now.after(claim.ttl),
            owner: claim.owner,
            attempt: 1,
            steps: None,
            sequence,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.life, Life::Running { .. })
    }

    /// The end of the lease; a finished record has none and answers with its past.
    pub(super) fn end_of_lease(&self) -> StoreTime {
        match self.life {
            Life::Running { locked_until } => locked_until,
            Life::Finished { completed_at, .. } => completed_at.min(self.expires_at),
        }
    }

    /// The moment from which it is as if it were not there.
    fn end(&self) -> StoreTime {
        self.expires_at.max(self.end_of_lease())
    }

    pub(super) fn is_live(&self, now: StoreTime) -> bool {
        now < self.end()
    }

    /// Live, running, and the lease has run out.
    pub(super) fn is_abandoned(&self, now: StoreTime) -> bool {
        self.is_running() && self.end_of_lease() <= now && now < self.expires_at
    }

    pub(super) fn won(&self) -> Claimed {
        Claimed::Won {
            attempt: self.attempt,
            steps: self.steps.clone(),
        }
    }

    pub(super) fn record(&self, now: StoreTime) -> Record {
        self.read(now, Answer::clone)
    }

    /// The record without its answer's headers and body.
    pub(super) fn summary(&self, now: StoreTime) -> Record {
        self.read(now, |answer| match answer {
            Answer::Kept(response) => Answer::Kept(StoredResponse {
                code: response.code,
                headers: Vec::new(),
                body: None,
            }),
            Answer::Tombstone { code } => Answer::Tombstone { code: *code },
        })
    }

    fn read(&self, now: StoreTime, answer_of: impl FnOnce(&Answer) -> Answer) -> Record {
        Record {
            id: RecordId::clone(&self.id),
            fingerprint: self.fingerprint.to_string(),
            state: match &self.life {
                Life::Running { locked_until } => State::Running {
                    locked_until: *locked_until,
                },
                Life::Finished {
                    completed_at,
                    answer,
                } => State::Finished {
                    completed_at: *completed_at,
                    answer: answer_of(answer),
                },
            },
            created_at: self.created_at,
            expires_at: self.expires_at,
            owner: self.owner,
            attempt: self.attempt,
            route: self.route.to_string(),
            steps: self.steps.clone(),
            now,
        }
    }

    /// What it counts for against the bound in bytes.
    pub(super) fn cost(&self) -> usize {
        let contents = match &self.life {
            Life::Running { .. } => self.steps.as_ref().map_or(0, Bytes::len),
            Life::Finished { answer, .. } => answer_cost(answer),
        };
        self.cost_without_contents() + contents
    }

    /// The same without steps and answer.
    pub(super) fn cost_without_contents(&self) -> usize {
        RECORD
            + self.id.scope().len()
            + self.id.key().len()
            + self.id.request_path().len()
            + self.fingerprint.len()
            + self.route.len()
    }
}

/// What an answer counts for.
pub(super) fn answer_cost(answer: &Answer) -> usize {
    match answer {
        Answer::Kept(response) => {
            let headers = response.headers.iter();
            headers
                .map(|(name, value)| FIELD + name.len() + value.len())
                .sum::<usize>()
                + response.body.as_ref().map_or(0, Bytes::len)
        }
        Answer::Tombstone { .. } => 0,
    }
}

/// The records of one lock.
#[derive(Debug, Default)]
pub(super) struct Shard {
    records: HashMap<Arc<RecordId>, Entry>,
    /// By the moment at which they end.
    ends: BTreeMap<(StoreTime, u64), Arc<RecordId>>,
    running: BTreeMap<u64, Arc<RecordId>>,
    finished: BTreeMap<u64, Arc<RecordId>>,
}

impl Shard {
    pub(super) fn get(&self, id: &RecordId) -> Option<&Entry> {
        self.records.get(id)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.records.values()
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &Entry> {
        self.running.values().filter_map(|id| self.records.get(id))
    }

    /// Adds a record where none is.
    pub(super) fn insert(&mut self, entry: Entry) {
        self.index(&entry);
        self.records.insert(Arc::clone(&entry.id), entry);
    }

    pub(super) fn remove(&mut self, id: &RecordId) -> Option<Entry> {
        let entry = self.records.remove(id)?;
        self.unindex(entry.end(), entry.sequence);
        Some(entry)
    }

    /// Changes a record in place, and its standing in the orders with it.
    pub(super) fn change<T>(
        &mut self,
        id: &RecordId,
        change: impl FnOnce(&mut Entry) -> T,
    ) -> Option<T> {
        let entry = self.records.get_mut(id)?;
        let standing = |entry: &Entry| (entry.end(), entry.sequence, entry.is_running());
        let before = standing(entry);
        let result = change(entry);
        let after = standing(entry);
        if before != after {
            let id = Arc::clone(&entry.id);
            self.unindex(before.0, before.1);
            self.index_at(id, after.0, after.1, after.2);
        }
        Some(result)
    }

    /// Removes one record that is no longer live.
    pub(super) fn remove_ended(&mut self, now: StoreTime) -> Option<Entry> {
        let (&(end, _), id) = self.ends.first_key_value()?;
        if now < end {
            return None;
        }
        let id = Arc::clone(id);
        self.remove(&id)
    }

    /// When the record that was finished first was finished, among all.
    pub(super) fn first_finished(&self) -> Option<u64> {
        self.finished.keys().next().copied()
    }

    pub(super) fn remove_first_finished(&mut self) -> Option<Entry> {
        let id = Arc::clone(self.finished.values().next()?);
        self.remove(&id)
    }

    /// Gives memory back that many more records than there are would need.
    pub(super) fn shrink(&mut self) {
        if self.records.capacity() > 64 + 4 * self.records.len() {
            self.records.shrink_to(2 * self.records.len());
        }
    }

    fn index(&mut self, entry: &Entry) {
        self.index_at(
            Arc::clone(&entry.id),
            entry.end(),
            entry.sequence,
            entry.is_running(),
        );
    }

    fn index_at(&mut self, id: Arc<RecordId>, end: StoreTime, sequence: u64, running: bool) {
        let order = if running {
            &mut self.running
        } else {
            &mut self.finished
        };
        order.insert(sequence, Arc::clone(&id));
        self.ends.insert((end, sequence), id);
    }

    fn unindex(&mut self, end: StoreTime, sequence: u64) {
        self.ends.remove(&(end, sequence));
        if self.running.remove(&sequence).is_none() {
            self.finished.remove(&sequence);
        }
    }
}
