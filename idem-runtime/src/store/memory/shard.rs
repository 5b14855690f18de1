//! Records and the orders that are kept of them, under one lock.

use super::entry::Entry;
use crate::record::{RecordId, StoreTime};
use hashbrown::HashTable;
use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, VecDeque},
};

/// An identity and its hash, which is computed once for each call.
#[derive(Clone, Copy)]
pub(super) struct Name<'i> {
    pub(super) id: &'i RecordId,
    pub(super) hash: u64,
}

/// The number of a slot. A shard never comes near so many records.
type Slot = u32;

/// The records of one lock.
///
/// Records are numbered, so that the orders hold numbers and not names: a record costs a few
/// hundred bytes and not a thousand. The orders of ends and of finished records are only ever added
/// to at a claim's or an outcome's expense; a place in them that is no longer right is passed over
/// when its turn comes, and all such places are removed before they are as many as the records.
#[derive(Debug, Default)]
pub(super) struct Shard {
    slots: Vec<Option<Box<Entry>>>,
    free: Vec<Slot>,
    /// With their hashes.
    names: HashTable<(u64, Slot)>,
    running: BTreeSet<Slot>,
    /// By the moment at which they end, the earliest first. Right if the record in the slot has
    /// ended by then.
    ends: BinaryHeap<Reverse<(StoreTime, Slot)>>,
    /// By [`Entry::sequence`]. Right if the record in the slot has it.
    finished: VecDeque<(u64, Slot)>,
}

impl Shard {
    pub(super) fn get(&self, name: Name<'_>) -> Option<&Entry> {
        self.at(self.find(name)?)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().flatten().map(|entry| &**entry)
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &Entry> {
        self.running.iter().filter_map(|slot| self.at(*slot))
    }

    /// Adds a running record where none is.
    pub(super) fn insert(&mut self, entry: Entry) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // Records are bounded far below this by memory itself.
            Slot::try_from(self.slots.len() - 1).unwrap_or(Slot::MAX)
        });
        let hash = entry.hash;
        self.names
            .insert_unique(hash, (hash, slot), |(hash, _)| *hash);
        self.running.insert(slot);
        let end = entry.end();
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some(Box::new(entry));
        }
        self.will_end(slot, end);
    }

    pub(super) fn remove(&mut self, name: Name<'_>) -> Option<Entry> {
        self.remove_at(self.find(name)?)
    }

    /// Changes a record in place, and its standing in the orders with it.
    pub(super) fn change<T>(
        &mut self,
        name: Name<'_>,
        change: impl FnOnce(&mut Entry) -> T,
    ) -> Option<T> {
        let slot = self.find(name)?;
        let entry = self.slots.get_mut(slot as usize)?.as_mut()?;
        let (end, was_running) = (entry.end(), entry.is_running());
        let result = change(entry);
        let (new_end, sequence) = (entry.end(), entry.sequence);
        if was_running && !entry.is_running() {
            self.running.remove(&slot);
            self.has_finished(slot, sequence);
        }
        if new_end != end {
            self.will_end(slot, new_end);
        }
        Some(result)
    }

    /// Removes one record that is no longer live.
    pub(super) fn remove_ended(&mut self, now: StoreTime) -> Option<Entry> {
        while let Some(&Reverse((end, slot))) = self.ends.peek() {
            if now < end {
                return None;
            }
            self.ends.pop();
            if self.at(slot).is_some_and(|entry| !entry.is_live(now)) {
                return self.remove_at(slot);
            }
        }
        None
    }

    /// When the record that was finished first was finished, among all.
    pub(super) fn first_finished(&mut self) -> Option<u64> {
        loop {
            let &(sequence, slot) = self.finished.front()?;
            if self.has(slot, sequence) {
                return Some(sequence);
            }
            self.finished.pop_front();
        }
    }

    pub(super) fn remove_first_finished(&mut self) -> Option<Entry> {
        self.first_finished()?;
        let (_, slot) = self.finished.pop_front()?;
        self.remove_at(slot)
    }

    /// Gives memory back that many more records than there are would need.
    pub(super) fn shrink(&mut self) {
        if self.names.is_empty() {
            // Also the last few bytes: those that lie high up in an allocator's region keep all
            // below them from going back to the system.
            *self = Shard::default();
            return;
        }
        self.tidy();
        if self.names.capacity() > 64 + 4 * self.names.len() {
            self.names
                .shrink_to(2 * self.names.len(), |(hash, _)| *hash);
            self.ends.shrink_to(2 * self.names.len());
            self.finished.shrink_to(2 * self.names.len());
        }
    }

    fn at(&self, slot: Slot) -> Option<&Entry> {
        self.slots.get(slot as usize)?.as_deref()
    }

    fn has(&self, slot: Slot, sequence: u64) -> bool {
        self.at(slot)
            .is_some_and(|entry| entry.sequence == sequence)
    }

    fn find(&self, name: Name<'_>) -> Option<Slot> {
        let found = self.names.find(name.hash, |&(hash, slot)| {
            hash == name.hash && self.at(slot).is_some_and(|entry| entry.is_named(name.id))
        });
        found.map(|(_, slot)| *slot)
    }

    fn remove_at(&mut self, slot: Slot) -> Option<Entry> {
        let entry = self.slots.get_mut(slot as usize)?.take()?;
        if let Ok(named) = self.names.find_entry(entry.hash, |named| named.1 == slot) {
            named.remove();
        }
        self.running.remove(&slot);
        self.free.push(slot);
        Some(*entry)
    }

    fn will_end(&mut self, slot: Slot, end: StoreTime) {
        self.tidy();
        self.ends.push(Reverse((end, slot)));
    }

    fn has_finished(&mut self, slot: Slot, sequence: u64) {
        self.tidy();
        self.finished.push_back((sequence, slot));
    }

    /// Removes the places that are not right from an order that is mostly made of them.
    fn tidy(&mut self) {
        let most = 64 + 2 * self.names.len();
        if self.ends.len() > most {
            let mut ends = std::mem::take(&mut self.ends).into_vec();
            ends.retain(|Reverse((end, slot))| self.at(*slot).is_some_and(|e| e.end() == *end));
            // The same place twice: a record's, and that of one that had its slot before.
            ends.sort_unstable();
            ends.dedup();
            self.ends = ends.into();
        }
        if self.finished.len() > most {
            let mut finished = std::mem::take(&mut self.finished);
            finished.retain(|(sequence, slot)| self.has(*slot, *sequence));
            self.finished = finished;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        record::Answer,
        store::{
            Claim, Takeover,
            memory::entry::{Life, Packed},
        },
    };
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn entry(id: &RecordId, hash: u64, sequence: u64, ttl: Duration) -> Entry {
        let claim = Claim {
            id: id.clone(),
            fingerprint: "a".repeat(64),
            also_accepted: None,
            route: "POST /orders shop::create_order".to_owned(),
            owner: uuid::Uuid::nil(),
            ttl,
            lease: SECOND,
            takeover: Takeover::Never,
        };
        Entry::new(&claim, hash, sequence, StoreTime(0))
    }

    fn ids(count: u64) -> Vec<RecordId> {
        (0..count)
            .map(|n| RecordId::new("alice", format!("k{n}"), "POST /orders"))
            .collect()
    }

    /// A record that was claimed with this number and finished with the next.
    fn finish(shard: &mut Shard, id: &RecordId, sequence: u64, ttl: Duration) {
        let name = Name { id, hash: sequence };
        shard.insert(entry(id, sequence, sequence, ttl));
        shard
            .change(name, |entry| {
                entry.sequence = sequence + 1;
                entry.life = Life::Finished {
                    completed_at: StoreTime(0),
                    answer: Packed::new(&Answer::Tombstone { code: 200 }),
                };
            })
            .unwrap();
    }

    #[test]
    fn records_that_come_and_go_behind_one_that_stays_leave_no_places_behind() {
        let mut shard = Shard::default();
        let ids = ids(2000);
        finish(&mut shard, &ids[0], 0, SECOND * 3600);
        for (n, id) in (1..).zip(&ids[1..]) {
            finish(&mut shard, id, 2 * n, SECOND);
            assert!(shard.remove(Name { id, hash: 2 * n }).unwrap().is_named(id));
            assert!(shard.ends.len() < 80 && shard.finished.len() < 80);
        }
        assert_eq!(shard.first_finished(), Some(1));
        assert!(shard.remove_ended(StoreTime(3_599_999)).is_none());
        assert!(shard.remove_ended(StoreTime(3_600_000)).is_some());
    }

    #[test]
    fn a_record_whose_end_moves_is_removed_at_the_last_one() {
        let mut shard = Shard::default();
        let ids = ids(1);
        let name = Name {
            id: &ids[0],
            hash: 0,
        };
        shard.insert(entry(name.id, 0, 0, SECOND));
        for end in [5000, 9000, 7000] {
            shard.change(name, |entry| entry.lock_until(StoreTime(end)));
        }
        assert!(shard.remove_ended(StoreTime(6999)).is_none());
        assert!(shard.remove_ended(StoreTime(7000)).is_some());
        assert!(shard.remove_ended(StoreTime(9000)).is_none());
    }

    #[test]
    fn a_record_in_the_slot_of_one_that_was_removed_keeps_its_own_places() {
        let mut shard = Shard::default();
        let ids = ids(3);
        finish(&mut shard, &ids[0], 0, SECOND);
        shard.remove(Name {
            id: &ids[0],
            hash: 0,
        });
        finish(&mut shard, &ids[1], 2, SECOND * 2);
        finish(&mut shard, &ids[2], 4, SECOND);
        assert!(
            shard
                .remove_ended(StoreTime(1000))
                .unwrap()
                .is_named(&ids[2])
        );
        assert!(shard.remove_ended(StoreTime(1999)).is_none());
        assert_eq!(shard.first_finished(), Some(3));
        assert!(shard.remove_first_finished().unwrap().is_named(&ids[1]));
        assert_eq!(shard.first_finished(), None);
    }

    #[test]
    fn records_whose_hashes_are_equal_are_kept_apart() {
        let ids = ids(4);
        let name = |n: usize| Name {
            id: &ids[n],
            hash: 7,
        };
        // Removed from each place of the chain, each time with the others left.
        for first in 0..4 {
            let mut shard = Shard::default();
            for (n, id) in ids.iter().enumerate() {
                shard.insert(entry(id, 7, n as u64, SECOND));
            }
            for removed in 0..4 {
                let n = (first + removed) % 4;
                assert!(shard.remove(name(n)).unwrap().is_named(&ids[n]));
                for (other, id) in ids.iter().enumerate() {
                    let gone = (other + 4 - first) % 4 <= removed;
                    let found = shard.get(name(other));
                    assert_eq!(found.is_none(), gone, "{other} after {n}");
                    assert!(found.is_none_or(|entry| entry.is_named(id)));
                }
            }
            assert!(shard.running.is_empty() && shard.names.is_empty());
        }
    }
}
