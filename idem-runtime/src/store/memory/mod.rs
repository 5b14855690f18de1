//! A store in this process's memory.

mod entry;
mod shard;
mod sweep;

use crate::{
    record::{Answer, Record, RecordId, StoreTime},
    store::{
        AbandonedQuery, Claim, Claimed, ListQuery, Renewal, Renewed, Store, StoreError, Takeover,
        Which,
    },
};
use async_trait::async_trait;
use bytes::Bytes;
use entry::{Entry, Life, Packed};
use shard::{Name, Shard};
use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use uuid::Uuid;

/// So many locks share the records out: claims of different keys seldom meet at one.
const SHARDS: usize = 32;

/// Records kept in this process's memory: for tests, and for services that are one process and may
/// forget when it ends.
///
/// **One process only.** Two processes with a memory store each run an operation twice, and a
/// restart forgets every key: a retry after it runs again.
///
/// # Bounds
///
/// It is bounded by the number of records and by bytes (their text, steps and answers, and an
/// allowance for the structures around them). Where there is no room, records that have expired
/// go first, then **finished records, in the order they were finished**: their keys are then as
/// new before their TTL is over. Running records are never removed before they expire, nor are
/// abandoned ones, which are all that holds a second run back; if nothing else is left, a claim is
/// refused with [`StoreError::Full`]. An answer or steps for which there is no room are refused
/// in the same way and the record goes on running.
///
/// Expired records are removed by a thread of the store's own, within about a second, with no
/// need of [`Store::purge_expired`]. The thread lives while there are records.
///
/// A clone is another handle on the same records.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    inner: Arc<Inner>,
}

impl MemoryStore {
    /// Records that a store holds unless told otherwise.
    pub const DEFAULT_RECORDS: usize = 100_000;
    /// Bytes that a store holds unless told otherwise: 256 MiB.
    pub const DEFAULT_BYTES: usize = 256 * 1024 * 1024;

    /// An empty store of [`MemoryStore::DEFAULT_RECORDS`] and [`MemoryStore::DEFAULT_BYTES`].
    pub fn new() -> Self {
        Self::with_capacity(Self::DEFAULT_RECORDS, Self::DEFAULT_BYTES)
    }

    /// An empty store of at most so many records and bytes. Nothing is set aside in advance.
    pub fn with_capacity(records: usize, bytes: usize) -> Self {
        Self {
            inner: Arc::new(Inner {
                shards: std::array::from_fn(|_| Mutex::default()),
                hasher: RandomState::new(),
                clock: Clock::start(),
                room: Room {
                    records: Gauge::up_to(records),
                    bytes: Gauge::up_to(bytes),
                },
                sequence: AtomicU64::new(0),
                sweeper: sweep::Sweeper::default(),
            }),
        }
    }

    /// How many records it holds, expired ones that are not removed yet included.
    pub fn len(&self) -> usize {
        self.inner.room.records.used()
    }

    /// Whether it holds no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes it counts against its bound.
    pub fn bytes(&self) -> usize {
        self.inner.room.bytes.used()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct Inner {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    clock: Clock,
    room: Room,
    /// Numbers every event that an order is kept of.
    sequence: AtomicU64,
    sweeper: sweep::Sweeper,
}

/// The store's clock: it runs with the monotonic clock, so that no adjustment of the system's time
/// ends a lease, and starts at the system's time, so that its moments can be read by people.
#[derive(Debug)]
struct Clock {
    start: Instant,
    epoch_millis: i64,
}

impl Clock {
    fn start() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock {
            start: Instant::now(),
            epoch_millis: epoch
                .ok()
                .and_then(|epoch| i64::try_from(epoch.as_millis()).ok())
                .unwrap_or(0),
        }
    }

    fn now(&self) -> StoreTime {
        let elapsed = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        StoreTime(self.epoch_millis.saturating_add(elapsed))
    }
}

/// What the store may use, and what it uses.
#[derive(Debug)]
struct Room {
    records: Gauge,
    bytes: Gauge,
}

#[derive(Debug)]
struct Gauge {
    used: AtomicUsize,
    most: usize,
}

impl Gauge {
    fn up_to(most: usize) -> Self {
        Gauge {
            used: AtomicUsize::new(0),
            most,
        }
    }

    // Sequentially consistent, because the sweeper's thread ends on what it reads here.
    fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    /// Takes so much, or nothing if that would be too much.
    fn take(&self, amount: usize) -> bool {
        self.used
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| {
                used.checked_add(amount).filter(|sum| *sum <= self.most)
            })
            .is_ok()
    }

    fn give(&self, amount: usize) {
        self.used.fetch_sub(amount, Ordering::SeqCst);
    }
}

impl Inner {
    fn name<'i>(&self, id: &'i RecordId) -> Name<'i> {
        Name {
            id,
            hash: self.hasher.hash_one(id),
        }
    }

    fn shard(&self, name: Name<'_>) -> MutexGuard<'_, Shard> {
        let shard = usize::try_from(name.hash % SHARDS as u64).unwrap_or(0);
        lock(&self.shards[shard])
    }

    fn next(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Removes a record and gives its room back.
    fn remove(&self, shard: &mut Shard, name: Name<'_>) {
        if let Some(entry) = shard.remove(name) {
            self.gave_up(&entry);
        }
    }

    fn gave_up(&self, entry: &Entry) {
        self.room.bytes.give(entry.cost());
        self.room.records.give(1);
    }

    /// Removes at most `limit` records of a shard that are no longer live.
    fn sweep(&self, shard: &mut Shard, now: StoreTime, limit: usize) -> usize {
        let mut removed = 0;
        while removed < limit {
            let Some(entry) = shard.remove_ended(now) else {
                break;
            };
            self.gave_up(&entry);
            removed += 1;
        }
        removed
    }

    /// Makes some room: by removing what has expired, else the record finished first. No lock may be
    /// held.
    ///
    /// Where there is nothing to remove, the caller tries once more before that is the end: another
    /// thread may have removed it since the caller found no room.
    fn make_room(&self, looked: &mut Looked) -> Result<(), StoreError> {
        if looked.in_vain {
            return Err(StoreError::Full);
        }
        looked.in_vain = !self.remove_something();
        Ok(())
    }

    /// Says whether there was anything to remove.
    fn remove_something(&self) -> bool {
        const AT_ONCE: usize = 64;
        let mut oldest: Option<(u64, &Mutex<Shard>)> = None;
        let now = self.clock.now();
        for mutex in &self.shards {
            let mut shard = lock(mutex);
            if self.sweep(&mut shard, now, AT_ONCE) > 0 {
                return true;
            }
            if let Some(finished) = shard.first_finished()
                && oldest.is_none_or(|(sequence, _)| finished < sequence)
            {
                oldest = Some((finished, mutex));
            }
        }
        let Some((_, mutex)) = oldest else {
            return false;
        };
        // Somebody else may have removed it by now: then there is room all the same.
        if let Some(entry) = lock(mutex).remove_first_finished() {
            self.gave_up(&entry);
        }
        true
    }

    /// Takes so many more bytes for a record of this shard, or says to [`Inner::make_room`].
    fn has_room(&self, bytes: usize) -> Result<bool, StoreError> {
        if bytes > self.room.bytes.most {
            return Err(StoreError::Full);
        }
        Ok(self.room.bytes.take(bytes))
    }

    /// Does `change` to a running record that is `owner`'s, which is going to cost `bytes` more.
    /// Unless it is running, `otherwise` decides.
    fn change_owned(
        &self,
        id: &RecordId,
        owner: Uuid,
        cost: impl Fn(&Entry) -> usize,
        otherwise: Result<(), StoreError>,
        change: impl FnOnce(&mut Entry),
    ) -> Result<(), StoreError> {
        let name = self.name(id);
        let mut looked = Looked::default();
        loop {
            let mut shard = self.shard(name);
            let Some(entry) = shard.get(name).filter(|entry| entry.owner == owner) else {
                return Err(StoreError::LeaseLost);
            };
            if !entry.is_running() {
                return otherwise;
            }
            let (before, after) = (entry.cost(), cost(entry));
            if self.has_room(after.saturating_sub(before))? {
                shard.change(name, change);
                self.room.bytes.give(before.saturating_sub(after));
                return Ok(());
            }
            drop(shard);
            self.make_room(&mut looked)?;
        }
    }
}

/// What a call that has no room has found so far.
#[derive(Debug, Default)]
struct Looked {
    /// That there is nothing to remove.
    in_vain: bool,
}

/// A shard is whole between any two statements that can panic (there are none but for lack of
/// memory), so that a poisoned lock says nothing about it.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Store for MemoryStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let inner = &self.inner;
        let name = inner.name(&claim.id);
        let mut looked = Looked::default();
        loop {
            let mut shard = inner.shard(name);
            let now = inner.clock.now();
            match shard.get(name) {
                Some(entry) if entry.is_live(now) => {
                    if entry.is_running() && entry.owner == claim.owner {
                        return Ok(entry.won());
                    }
                    if !may_take_over(entry, claim, now) {
                        return Ok(Claimed::Standing(Box::new(entry.record(now)?)));
                    }
                    let won = shard.change(name, |entry| {
                        entry.owner = claim.owner;
                        entry.attempt = entry.attempt.saturating_add(1);
                        entry.lock_until(now.after(claim.lease));
                        entry.won()
                    });
                    return won.ok_or(StoreError::LeaseLost);
                }
                Some(_) => {
                    inner.remove(&mut shard, name);
                }
                None => {}
            }
            let entry = Entry::new(claim, name.hash, inner.next(), now);
            if inner.room.records.take(1) {
                match inner.has_room(entry.cost()) {
                    Ok(true) => {
                        let won = entry.won();
                        shard.insert(entry);
                        // Two out for one in: without any help the store does not grow for ever.
                        inner.sweep(&mut shard, now, 2);
                        drop(shard);
                        sweep::Sweeper::see_to(inner);
                        return Ok(won);
                    }
                    Ok(false) => inner.room.records.give(1),
                    Err(full) => {
                        inner.room.records.give(1);
                        return Err(full);
                    }
                }
            }
            drop(shard);
            inner.make_room(&mut looked)?;
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, StoreError> {
        let renew = |renewal: &Renewal| {
            let name = self.inner.name(&renewal.id);
            let mut shard = self.inner.shard(name);
            let now = self.inner.clock.now();
            match shard.get(name) {
                Some(entry) if entry.is_running() && entry.owner == renewal.owner => {
                    shard.change(name, |entry| entry.lock_until(now.after(renewal.lease)));
                    Renewed::Held
                }
                _ => Renewed::Lost,
            }
        };
        Ok(renewals.iter().map(renew).collect())
    }

    async fn complete(
        &self,
        id: &RecordId,
        owner: Uuid,
        answer: &Answer,
    ) -> Result<(), StoreError> {
        let inner = &self.inner;
        let kept = Packed::new(answer);
        let size = kept.len();
        inner.change_owned(
            id,
            owner,
            |entry| entry.cost_without_contents() + size,
            Ok(()),
            |entry| {
                entry.sequence = inner.next();
                entry.life = Life::Finished {
                    completed_at: inner.clock.now(),
                    answer: kept,
                };
            },
        )
    }

    async fn release(&self, id: &RecordId, owner: Uuid) -> Result<(), StoreError> {
        let name = self.inner.name(id);
        let mut shard = self.inner.shard(name);
        match shard.get(name) {
            Some(entry) if entry.is_running() && entry.owner == owner => {
                self.inner.remove(&mut shard, name);
                Ok(())
            }
            _ => Err(StoreError::LeaseLost),
        }
    }

    async fn save_steps(
        &self,
        id: &RecordId,
        owner: Uuid,
        steps: &Bytes,
    ) -> Result<(), StoreError> {
        let kept = Bytes::copy_from_slice(steps);
        self.inner.change_owned(
            id,
            owner,
            |entry| entry.cost_without_contents() + steps.len(),
            Err(StoreError::LeaseLost),
            |entry| {
                if let Life::Running { steps, .. } = &mut entry.life {
                    *steps = Some(kept);
                }
            },
        )
    }

    async fn take_abandoned(&self, query: &AbandonedQuery) -> Result<Vec<Record>, StoreError> {
        let inner = &self.inner;
        let mut found: Vec<(StoreTime, RecordId)> = Vec::new();
        for shard in &inner.shards {
            let shard = lock(shard);
            let now = inner.clock.now();
            found.extend(
                shard
                    .running()
                    .filter(|entry| entry.is_abandoned(now) && is_of(entry, &query.handlers))
                    .map(|entry| (entry.end_of_lease(), entry.id())),
            );
        }
        found.sort_unstable();
        let mut taken = Vec::new();
        for (_, id) in found {
            if taken.len() >= query.limit as usize {
                break;
            }
            // Another caller may have been here since: look again, under the lock.
            let name = inner.name(&id);
            let mut shard = inner.shard(name);
            let now = inner.clock.now();
            if shard.get(name).is_some_and(|entry| entry.is_abandoned(now)) {
                let record = shard.change(name, |entry| {
                    entry.owner = query.owner;
                    entry.lock_until(now.after(query.lease));
                    entry.record(now)
                });
                taken.extend(record.transpose()?);
            }
        }
        Ok(taken)
    }

    async fn purge_expired(&self, limit: u32) -> Result<u64, StoreError> {
        let mut removed = 0;
        for shard in &self.inner.shards {
            let mut shard = lock(shard);
            let (now, left) = (self.inner.clock.now(), limit as usize - removed);
            removed += self.inner.sweep(&mut shard, now, left);
        }
        Ok(removed as u64)
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let name = self.inner.name(id);
        let shard = self.inner.shard(name);
        let now = self.inner.clock.now();
        let entry = shard.get(name).filter(|entry| entry.is_live(now));
        Ok(entry.map(|entry| entry.record(now)).transpose()?)
    }

    /// In the order of the identities' bytes: scope, key, path.
    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>, StoreError> {
        let is_wanted = |entry: &Entry, now| match query.which {
            Which::All => entry.is_live(now),
            Which::Abandoned => entry.is_abandoned(now),
        };
        let mut ids: Vec<RecordId> = Vec::new();
        for shard in &self.inner.shards {
            let shard = lock(shard);
            let now = self.inner.clock.now();
            ids.extend(
                shard
                    .entries()
                    .filter(|entry| is_wanted(entry, now))
                    .map(Entry::id)
                    .filter(|id| Some(id) > query.after.as_ref()),
            );
        }
        ids.sort_unstable();
        let records = ids.iter().filter_map(|id| {
            let name = self.inner.name(id);
            let shard = self.inner.shard(name);
            let now = self.inner.clock.now();
            let entry = shard.get(name).filter(|entry| is_wanted(entry, now))?;
            entry.summary(now).ok()
        });
        Ok(records.take(query.limit as usize).collect())
    }

    async fn forget(&self, id: &RecordId) -> Result<bool, StoreError> {
        let name = self.inner.name(id);
        let mut shard = self.inner.shard(name);
        let was_live = shard
            .get(name)
            .is_some_and(|entry| entry.is_live(self.inner.clock.now()));
        self.inner.remove(&mut shard, name);
        Ok(was_live)
    }

    fn name(&self) -> &'static str {
        "memory"
    }

    fn needs_purging(&self) -> bool {
        false
    }
}

fn may_take_over(entry: &Entry, claim: &Claim, now: StoreTime) -> bool {
    claim.takeover == Takeover::Abandoned
        && entry.is_abandoned(now)
        && claim.accepts(entry.fingerprint())
}

/// Whether the record is of one of these handlers.
fn is_of(entry: &Entry, handlers: &[String]) -> bool {
    let handler = entry.handler();
    !handler.is_empty() && handlers.iter().any(|name| name == handler)
}

#[cfg(test)]
mod tests;
