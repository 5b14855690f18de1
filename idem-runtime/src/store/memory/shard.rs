//! Records and the orders that are kept of them, under one lock.

use super::entry::Entry;
use crate::record::{RecordId, StoreTime};
use std::collections::{BTreeMap, BTreeSet, HashMap};

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
/// hundred bytes and not a thousand.
#[derive(Debug, Default)]
pub(super) struct Shard {
    slots: Vec<Option<Box<Entry>>>,
    free: Vec<Slot>,
    /// By hash: the first of the records with it. The others, if there ever are any, follow
    /// [`Entry::next`].
    names: HashMap<u64, Slot>,
    /// By the moment at which they end.
    ends: BTreeSet<(StoreTime, Slot)>,
    /// By [`Entry::sequence`].
    running: BTreeMap<u64, Slot>,
    finished: BTreeMap<u64, Slot>,
}

impl Shard {
    pub(super) fn get(&self, name: Name<'_>) -> Option<&Entry> {
        self.at(self.find(name)?)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().flatten().map(|entry| &**entry)
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &Entry> {
        self.running.values().filter_map(|slot| self.at(*slot))
    }

    /// Adds a record where none is.
    pub(super) fn insert(&mut self, mut entry: Entry) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // Records are bounded far below this by memory itself.
            Slot::try_from(self.slots.len() - 1).unwrap_or(Slot::MAX)
        });
        entry.next = self.names.insert(entry.hash, slot);
        self.enlist(slot, Standing::of(&entry));
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some(Box::new(entry));
        }
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
        let before = Standing::of(entry);
        let result = change(entry);
        let after = Standing::of(entry);
        if before.end != after.end {
            self.ends.remove(&(before.end, slot));
            self.ends.insert((after.end, slot));
        }
        if before.order() != after.order() {
            self.order(before).remove(&before.sequence);
            self.order(after).insert(after.sequence, slot);
        }
        Some(result)
    }

    /// Removes one record that is no longer live.
    pub(super) fn remove_ended(&mut self, now: StoreTime) -> Option<Entry> {
        let &(end, slot) = self.ends.first()?;
        if now < end {
            return None;
        }
        self.remove_at(slot)
    }

    /// When the record that was finished first was finished, among all.
    pub(super) fn first_finished(&self) -> Option<u64> {
        self.finished.keys().next().copied()
    }

    pub(super) fn remove_first_finished(&mut self) -> Option<Entry> {
        self.remove_at(*self.finished.values().next()?)
    }

    /// Gives memory back that many more records than there are would need.
    pub(super) fn shrink(&mut self) {
        if self.names.is_empty() {
            // Also the last nodes of the orders: a few bytes high up in an allocator's region keep
            // all below them from going back to the system.
            *self = Shard::default();
        } else if self.names.capacity() > 64 + 4 * self.names.len() {
            self.names.shrink_to(2 * self.names.len());
        }
    }

    fn at(&self, slot: Slot) -> Option<&Entry> {
        self.slots.get(slot as usize)?.as_deref()
    }

    fn find(&self, name: Name<'_>) -> Option<Slot> {
        let mut next = self.names.get(&name.hash).copied();
        while let Some(slot) = next {
            let entry = self.at(slot)?;
            if entry.is_named(name.id) {
                return Some(slot);
            }
            next = entry.next;
        }
        None
    }

    fn remove_at(&mut self, slot: Slot) -> Option<Entry> {
        let entry = self.slots.get_mut(slot as usize)?.take()?;
        self.delist(slot, Standing::of(&entry));
        self.free.push(slot);
        self.unlink(slot, &entry);
        Some(*entry)
    }

    /// Takes a record out of the chain of those with its hash.
    fn unlink(&mut self, slot: Slot, entry: &Entry) {
        let first = self.names.get(&entry.hash).copied();
        if first == Some(slot) {
            match entry.next {
                Some(next) => self.names.insert(entry.hash, next),
                None => self.names.remove(&entry.hash),
            };
            return;
        }
        let mut before = first;
        while let Some(other) = before.and_then(|slot| self.slots.get_mut(slot as usize)?.as_mut())
        {
            if other.next == Some(slot) {
                other.next = entry.next;
                return;
            }
            before = other.next;
        }
    }

    fn enlist(&mut self, slot: Slot, standing: Standing) {
        self.order(standing).insert(standing.sequence, slot);
        self.ends.insert((standing.end, slot));
    }

    fn delist(&mut self, slot: Slot, standing: Standing) {
        self.order(standing).remove(&standing.sequence);
        self.ends.remove(&(standing.end, slot));
    }

    fn order(&mut self, standing: Standing) -> &mut BTreeMap<u64, Slot> {
        if standing.is_running {
            &mut self.running
        } else {
            &mut self.finished
        }
    }
}

/// What a record's place in the orders depends on.
#[derive(Clone, Copy)]
struct Standing {
    end: StoreTime,
    sequence: u64,
    is_running: bool,
}

impl Standing {
    fn of(entry: &Entry) -> Self {
        Standing {
            end: entry.end(),
            sequence: entry.sequence,
            is_running: entry.is_running(),
        }
    }

    /// Which order it is in, and where.
    fn order(&self) -> (bool, u64) {
        (self.is_running, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::{Claim, Takeover};
    use std::time::Duration;

    #[test]
    fn records_whose_hashes_are_equal_are_kept_apart() {
        let ids: Vec<_> = (0..4)
            .map(|n| RecordId::new("alice", format!("k{n}"), "POST /orders"))
            .collect();
        let name = |n: usize| Name {
            id: &ids[n],
            hash: 7,
        };
        // Removed from each place of the chain, each time with the others left.
        for first in 0..4 {
            let mut shard = Shard::default();
            for (n, id) in ids.iter().enumerate() {
                let claim = Claim {
                    id: id.clone(),
                    fingerprint: "a".repeat(64),
                    also_accepted: None,
                    route: "POST /orders shop::create_order".to_owned(),
                    owner: uuid::Uuid::nil(),
                    ttl: Duration::from_secs(1),
                    lease: Duration::from_secs(1),
                    takeover: Takeover::Never,
                };
                shard.insert(Entry::new(&claim, 7, n as u64, StoreTime(0)));
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
            assert!(shard.ends.is_empty() && shard.running.is_empty() && shard.names.is_empty());
        }
    }
}
