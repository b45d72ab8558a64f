//! A hash table as in switch chips: buckets of a few slots, one hash for each bank, entries of one or more slots.
//!
//! An entry is in one bucket of one bank, in slots that are adjacent and aligned to its width. When no bank has such slots free,
//! a few other entries are moved to free slots of their own buckets, mostly in another bank. If that does not help, the entry is
//! refused although other buckets have room. Read first: Pagh and Rodler, "Cuckoo hashing" (2004), of which the moves are a
//! bounded form, and Vöcking, "How asymmetry helps load balancing" (2003) on choosing the emptier bucket.
//!
//! Invariants: a slot belongs to at most one entry; `used` is the number of slots that belong to one; a refused
//! insertion changes nothing.

use super::Shortage;
use crate::object::Width;
use std::collections::HashMap;
use std::hash::Hash;

/// A key that the chip hashes.
pub trait Key: Clone + Eq + Hash {
    /// The words that are hashed.
    fn words(&self) -> Vec<u64>;
}

/// The dimensions of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The number of all slots: a multiple of `ways` x `banks`.
    pub size: u32,
    /// Slots per bucket, a power of two.
    pub ways: u32,
    /// The number of banks.
    pub banks: u32,
    /// The most entries moved for one insertion.
    pub moves: u32,
}

impl Shape {
    fn buckets(self) -> u32 {
        self.size / (self.ways * self.banks)
    }
}

#[derive(Debug, Clone)]
struct Entry<K> {
    key: K,
    width: Width,
    /// Its first slot.
    at: u32,
}

/// See the module comment.
#[derive(Debug, Clone)]
pub struct Exact<K> {
    shape: Shape,
    salt: u64,
    /// For each slot the index of its entry in `entries`, plus one; 0: the slot is free.
    slots: Vec<u32>,
    entries: Vec<Option<Entry<K>>>,
    free: Vec<u32>,
    places: HashMap<K, u32>,
    used: u32,
    /// The steps since [`Exact::begin`]; `None` outside a transaction.
    journal: Option<Vec<Step<K>>>,
}

/// One change of the slots, with the data that undoes it.
#[derive(Debug, Clone)]
enum Step<K> {
    Put(K),
    Removed(Entry<K>),
    /// The moved entry, and its first slot before.
    Moved(u32, u32),
}

impl<K: Key> Exact<K> {
    /// Creates an empty table. `salt` determines which keys collide, like the seed register of a chip's hash.
    #[must_use]
    pub fn new(shape: Shape, salt: u64) -> Self {
        Self {
            shape,
            salt,
            slots: vec![0; shape.size as usize],
            entries: Vec::new(),
            free: Vec::new(),
            places: HashMap::new(),
            used: 0,
            journal: None,
        }
    }

    /// Begins a transaction: the following steps are recorded.
    pub fn begin(&mut self) {
        self.journal = Some(Vec::new());
    }
    /// Ends the transaction.
    pub fn commit(&mut self) {
        self.journal = None;
    }
    /// Ends the transaction and returns every entry to its previous slots.
    pub fn rollback(&mut self) {
        for step in self.journal.take().unwrap_or_default().into_iter().rev() {
            match step {
                Step::Put(key) => _ = self.remove(&key),
                Step::Removed(entry) => self.put(entry.key, entry.width, entry.at),
                Step::Moved(index, from) => self.relocate(index, from),
            }
        }
    }
    fn note(&mut self, step: impl FnOnce() -> Step<K>) {
        if let Some(journal) = &mut self.journal {
            journal.push(step());
        }
    }

    /// The number of slots that belong to entries.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used
    }
    /// The number of all slots.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.shape.size
    }
    /// True when the key is in the table.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.places.contains_key(key)
    }

    /// Inserts a key that is not in the table; returns the number of entries that were moved.
    ///
    /// # Errors
    /// [`Shortage::Full`] when fewer slots are free than the entry needs, [`Shortage::Collision`] when its buckets have
    /// no room.
    pub fn insert(&mut self, key: &K, width: Width) -> Result<u32, Shortage> {
        if self.shape.size - self.used < width.units() {
            return Err(Shortage::Full);
        }
        if let Some(at) = self.vacancy(key, width) {
            self.put(key.clone(), width, at);
            return Ok(0);
        }
        let (at, moves) = self.make_room(key, width).ok_or(Shortage::Collision)?;
        let count = moves.len() as u32;
        for (entry, to) in moves {
            self.relocate(entry, to);
        }
        self.put(key.clone(), width, at);
        Ok(count)
    }

    /// Removes a key; false when it was not there.
    pub fn remove(&mut self, key: &K) -> bool {
        let Some(index) = self.places.remove(key) else { return false };
        if let Some(entry) = self.entries[index as usize].take() {
            self.fill(entry.at, entry.width, 0);
            self.used -= entry.width.units();
            self.free.push(index);
            self.note(|| Step::Removed(entry));
        }
        true
    }

    /// Changes the size of the table; every entry gets a new place.
    ///
    /// # Errors
    /// When an entry has no place in the new table; nothing has changed then.
    pub fn resize(&mut self, size: u32) -> Result<(), Shortage> {
        let mut next = Self::new(Shape { size, ..self.shape }, self.salt);
        for entry in self.entries.iter().flatten() {
            next.insert(&entry.key, entry.width)?;
        }
        *self = next;
        Ok(())
    }

    /// The first slot of the key's bucket in a bank.
    fn bucket(&self, key: &K, bank: u32) -> u32 {
        let buckets = self.shape.buckets();
        let hash = hash(self.salt ^ u64::from(bank).wrapping_mul(0xd6e8_feb8_6659_fd93), &key.words());
        let bucket = ((u128::from(hash) * u128::from(buckets)) >> 64) as u32;
        (bank * buckets + bucket) * self.shape.ways
    }

    /// The first of `width` free, adjacent, aligned slots in the bucket that begins at `first`; `None` if it has none.
    fn hole(&self, first: u32, width: Width) -> Option<u32> {
        (first..first + self.shape.ways).step_by(width.units() as usize).find(|at| self.is_free(*at, width))
    }
    fn is_free(&self, at: u32, width: Width) -> bool {
        self.slots[at as usize..(at + width.units()) as usize].iter().all(|slot| *slot == 0)
    }
    fn load(&self, first: u32) -> usize {
        self.slots[first as usize..(first + self.shape.ways) as usize]
            .iter()
            .filter(|slot| **slot != 0)
            .count()
    }

    /// The first of the free slots for the key in the emptiest of its buckets; `None` if no bucket has enough.
    fn vacancy(&self, key: &K, width: Width) -> Option<u32> {
        let buckets = (0..self.shape.banks).map(|bank| self.bucket(key, bank));
        let holes = buckets.filter_map(|first| Some((self.load(first), self.hole(first, width)?)));
        holes.min().map(|(_, at)| at)
    }

    /// Finds slots for the key that become free when other entries are moved; returns the first slot, and each entry to move with
    /// its new first slot.
    fn make_room(&self, key: &K, width: Width) -> Option<(u32, Vec<(u32, u32)>)> {
        for bank in 0..self.shape.banks {
            let first = self.bucket(key, bank);
            for at in (first..first + self.shape.ways).step_by(width.units() as usize) {
                if let Some(moves) = self.vacate(at, width) {
                    return Some((at, moves));
                }
            }
        }
        None
    }

    /// The moves that free the slots from `at` on, as entries and their new first slots; `None` if they would be too many, or one
    /// of the entries has no other place.
    fn vacate(&self, at: u32, width: Width) -> Option<Vec<(u32, u32)>> {
        let range = at..at + width.units();
        let mut inside: Vec<u32> =
            range.clone().filter_map(|slot| self.slots[slot as usize].checked_sub(1)).collect();
        inside.dedup();
        if inside.len() > self.shape.moves as usize {
            return None;
        }
        let mut moves: Vec<(u32, u32)> = Vec::new();
        for index in inside {
            let entry = self.entries[index as usize].as_ref()?;
            let taken = |to: u32| {
                let overlaps = |from: u32, units: u32| to < from + units && from < to + entry.width.units();
                overlaps(range.start, width.units())
                    || moves.iter().any(|(other, at)| {
                        let units =
                            self.entries[*other as usize].as_ref().map_or(0, |other| other.width.units());
                        overlaps(*at, units)
                    })
            };
            let to = (0..self.shape.banks).find_map(|bank| {
                let first = self.bucket(&entry.key, bank);
                let places = (first..first + self.shape.ways).step_by(entry.width.units() as usize);
                places.into_iter().find(|to| self.is_free(*to, entry.width) && !taken(*to))
            })?;
            moves.push((index, to));
        }
        Some(moves)
    }

    fn relocate(&mut self, index: u32, to: u32) {
        let Some(entry) = self.entries[index as usize].as_mut() else { return };
        let (from, width) = (entry.at, entry.width);
        entry.at = to;
        self.fill(from, width, 0);
        self.fill(to, width, index + 1);
        self.note(|| Step::Moved(index, from));
    }

    fn put(&mut self, key: K, width: Width, at: u32) {
        let entry = Entry { key: key.clone(), width, at };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(entry);
                index
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() as u32 - 1
            }
        };
        self.note(|| Step::Put(key.clone()));
        self.places.insert(key, index);
        self.fill(at, width, index + 1);
        self.used += width.units();
    }

    fn fill(&mut self, at: u32, width: Width, value: u32) {
        self.slots[at as usize..(at + width.units()) as usize].fill(value);
    }
}

/// The finaliser of splitmix64 over salt and words.
fn hash(salt: u64, words: &[u64]) -> u64 {
    words.iter().fold(salt, |state, word| {
        let mut z = (state ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Key for u64 {
        fn words(&self) -> Vec<u64> {
            vec![*self]
        }
    }

    const ONE: Width = Width::new(1);

    fn table(size: u32, ways: u32, banks: u32, moves: u32) -> Exact<u64> {
        Exact::new(Shape { size, ways, banks, moves }, 7)
    }

    fn until_refused(table: &mut Exact<u64>) -> u32 {
        (0..).find(|key| table.insert(key, ONE).is_err()).map_or(0, |_| table.used())
    }

    #[test]
    fn buckets_overflow_before_the_table_does() {
        let mut one_bank = table(4096, 4, 1, 0);
        let first = until_refused(&mut one_bank);
        assert!(first < 4096 * 9 / 10, "refused at {first}");
        // A second bank, and entries that may be moved, allow more entries.
        let mut two_banks = table(4096, 4, 2, 0);
        let second = until_refused(&mut two_banks);
        let mut moving = table(4096, 4, 2, 1);
        let third = until_refused(&mut moving);
        assert!(first < second && second < third && third < 4096, "{first} {second} {third}");
    }

    #[test]
    fn full_tables_and_collisions_are_distinguished() {
        let mut small = table(4, 4, 1, 0);
        for key in 0..4 {
            assert_eq!(small.insert(&key, ONE), Ok(0));
        }
        assert_eq!(small.insert(&4, ONE), Err(Shortage::Full));
        assert!(small.remove(&2));
        assert!(!small.remove(&2));
        assert_eq!(small.insert(&4, ONE), Ok(0));
        let mut large = table(64, 4, 1, 0);
        until_refused(&mut large);
        assert!(large.used() < 64);
    }

    #[test]
    fn wide_entries_need_adjacent_slots() {
        let mut small = table(4, 4, 1, 0);
        for key in 0..3 {
            assert_eq!(small.insert(&key, ONE), Ok(0));
        }
        small.remove(&0);
        // Two slots are free, but on different sides of an alignment boundary.
        assert_eq!(small.used(), 2);
        assert_eq!(small.insert(&9, Width::new(2)), Err(Shortage::Collision));
        small.remove(&1);
        assert_eq!(small.insert(&9, Width::new(2)), Ok(0));
    }

    #[test]
    fn a_table_never_shrinks_below_its_occupancy() {
        let mut large = table(256, 4, 2, 1);
        for key in 0..100 {
            large.insert(&key, ONE).expect("room for 100 of 256");
        }
        assert!(large.resize(96).is_err());
        assert_eq!((large.size(), large.used()), (256, 100));
        large.resize(512).expect("room for 100 of 512");
        assert!((0..100).all(|key| large.contains(&key)));
    }

    proptest! {
        /// After any insertions and removals, the used slots are exactly those of the keys in the table, and no slot is used
        /// twice.
        #[test]
        fn slots_are_those_of_the_keys(steps in prop::collection::vec((0_u64..200, 0_u32..3, prop::bool::ANY), 0..400)) {
            let mut table = table(128, 4, 2, 2);
            let mut model = HashMap::new();
            for (key, width, insert) in steps {
                let width = Width::new(1 << width);
                if !insert {
                    prop_assert_eq!(table.remove(&key), model.remove(&key).is_some());
                } else if !model.contains_key(&key) && table.insert(&key, width).is_ok() {
                    model.insert(key, width);
                }
                let units: u32 = model.values().map(|width| width.units()).sum();
                prop_assert_eq!(table.used(), units);
                prop_assert_eq!(table.slots.iter().filter(|slot| **slot != 0).count(), units as usize);
                for (key, width) in &model {
                    prop_assert!(table.contains(key));
                    let entry = table.entries[table.places[key] as usize].as_ref().expect("an entry for its key");
                    prop_assert_eq!(entry.at % width.units(), 0);
                    let own = table.places[key] + 1;
                    prop_assert!(table.slots[entry.at as usize..(entry.at + width.units()) as usize].iter().all(|s| *s == own));
                }
            }
        }
    }
}
