//! Compiles a list to a [`Classifier`].
//!
//! For each half that some rule compares, a sweep over the ends of all accepted ranges visits the intervals between them in
//! ascending order and keeps the set of rules that accept the present one. Each different set makes a class. The cost is the
//! number of ends times the words of a set: a few milliseconds for 4,096 rules.
//!
//! Invariant: the memory that compiling takes is bounded by [`MAX_ENDS`] and [`LARGE_WORDS`].

use crate::MAX_RULES;
use crate::classifier::{
    BLOCK_WORDS, Classifier, FIELD_WORDS, Field, HEAD_WORDS, Head, LARGE_WORDS, RECORD_HEAD, SMALL_WORDS,
    encode,
};
use crate::condition::{FlatRule, PlaneList};
use crate::key::{ETHERTYPE, HALVES};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

/// The highest number of ends of ranges in one field: wildcard masks with scattered bits make many.
pub const MAX_ENDS: usize = 1 << 20;

/// Why a list cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// It has too many rules.
    #[error(
        "it has {0} rules when its object groups are expanded, and a list has at most {MAX_RULES}: divide it, or make its groups smaller"
    )]
    Rules(usize),
    /// Its wildcard masks accept too many separate ranges.
    #[error(
        "its wildcard masks describe more than {} separate ranges of addresses: use masks whose set bits are adjacent",
        MAX_ENDS / 2
    )]
    Masks,
    /// The classifier is larger than the planes' memory for a list.
    #[error(
        "its classifier needs {0} KB, and a list has at most {limit} KB: divide it, or use fewer different addresses and ports",
        limit = LARGE_WORDS / 128
    )]
    Memory(usize),
}

/// Compiles a list. The result has [`SMALL_WORDS`] or [`LARGE_WORDS`] words at most; its counters are 0.
///
/// # Errors
/// [`TooLarge`] when the list exceeds a limit.
pub fn compile(list: &PlaneList) -> Result<Classifier, TooLarge> {
    let rules = &list.rules;
    if rules.len() > MAX_RULES {
        return Err(TooLarge::Rules(rules.len()));
    }
    let mut compared: Vec<usize> =
        (0..HALVES).filter(|half| rules.iter().any(|rule| rule.on(*half).is_some())).collect();
    if compared.is_empty() && !rules.is_empty() {
        // A search takes the rules that exist from the bit vectors of fields, so it needs at least one field.
        compared.push(ETHERTYPE);
    }
    let vector_words = rules.len().div_ceil(64);
    let stride = (RECORD_HEAD + vector_words.div_ceil(BLOCK_WORDS)).next_multiple_of(4);
    let mut image = Image { words: vec![0; HEAD_WORDS + compared.len() * FIELD_WORDS] };
    let verdicts = image.words.len() * 2;
    image.words.extend(rules.chunks(2).map(|two| {
        let of = |at: usize| two.get(at).map_or(0, |rule| u64::from(encode(rule)));
        of(0) | of(1) << 32
    }));
    let counters = image.words.len();
    image.words.resize(counters + rules.len() + 1, 0);
    for (field, half) in compared.iter().enumerate() {
        let built = Built::of(rules, *half, vector_words)?;
        built.store(&mut image, field, *half, stride, vector_words)?;
    }
    let all = if vector_words == 64 { u64::MAX } else { (1_u64 << vector_words) - 1 };
    let used = image.words.len();
    for (entry, value) in [
        (Head::Rules, rules.len()),
        (Head::Fields, compared.len()),
        (Head::Stride, stride),
        (Head::Verdicts, verdicts),
        (Head::Counters, counters),
        (Head::Otherwise, list.otherwise_permit.into()),
        (Head::AllLow, (all & 0xffff_ffff) as usize),
        (Head::AllHigh, (all >> 32) as usize),
        (Head::Used, used),
    ] {
        image.set_u32(entry as usize, value as u32);
    }
    image.check()?;
    Ok(Classifier::new(image.words))
}

/// The words that a plane reserves for a classifier.
#[must_use]
pub fn reserved_words(classifier: &Classifier) -> usize {
    if classifier.words().len() <= SMALL_WORDS { SMALL_WORDS } else { LARGE_WORDS }
}

struct Image {
    words: Vec<u64>,
}

impl Image {
    fn check(&self) -> Result<(), TooLarge> {
        if self.words.len() > LARGE_WORDS {
            Err(TooLarge::Memory(self.words.len().div_ceil(128)))
        } else {
            Ok(())
        }
    }
    fn set_u32(&mut self, at: usize, value: u32) {
        let shift = at % 2 * 32;
        let word = &mut self.words[at / 2];
        *word = *word & !(0xffff_ffff << shift) | u64::from(value) << shift;
    }
    /// Appends 16-bit entries, filled up to whole words; returns where they begin, in 16-bit units.
    fn push_halves(&mut self, halves: &[u16]) -> usize {
        let at = self.words.len() * 4;
        let word = |four: &[u16]| four.iter().rev().fold(0_u64, |word, half| word << 16 | u64::from(*half));
        self.words.extend(halves.chunks(4).map(word));
        at
    }
}

/// The classes of one field.
struct Built {
    /// The class of every value.
    class_of: Vec<u16>,
    /// The vectors of the classes, one after the other.
    vectors: Vec<u64>,
    absent: u16,
    unknown: u16,
}

impl Built {
    fn of(rules: &[FlatRule], half: usize, vector_words: usize) -> Result<Self, TooLarge> {
        let mut ends: Vec<(u32, u16)> = Vec::new();
        let mut current = vec![0_u64; vector_words];
        let flip = |vector: &mut [u64], rule: usize| vector[rule / 64] ^= 1 << (rule % 64);
        let (mut absent, mut unknown) = (current.clone(), current.clone());
        for (at, rule) in rules.iter().enumerate() {
            let Some(condition) = rule.on(half) else {
                [&mut current, &mut absent, &mut unknown].into_iter().for_each(|vector| flip(vector, at));
                continue;
            };
            if rule.fragments {
                flip(&mut absent, at);
            }
            if rule.matches_unknown() {
                flip(&mut unknown, at);
            }
            let room = (MAX_ENDS - ends.len()) / 2;
            for (low, high) in condition.ranges(room).ok_or(TooLarge::Masks)? {
                ends.push((low.into(), at as u16));
                ends.push((u32::from(high) + 1, at as u16));
            }
        }
        let ends = ascending(ends);
        let mut classes = Classes::new(vector_words);
        let mut class_of = vec![0; 1 << 16];
        let (mut from, mut at) = (0_u32, 0);
        while from < 1 << 16 {
            while let Some((_, rule)) = ends.get(at).filter(|(end, _)| *end == from) {
                flip(&mut current, usize::from(*rule));
                at += 1;
            }
            let to = ends.get(at).map_or(1 << 16, |(end, _)| *end).min(1 << 16);
            class_of[from as usize..to as usize].fill(classes.get(&current)?);
            from = to;
        }
        let (absent, unknown) = if FlatRule::HALVES_THAT_MAY_BE_MISSING >> half & 1 == 1 {
            (classes.get(&absent)?, classes.get(&unknown)?)
        } else {
            (0, 0)
        };
        Ok(Self { class_of, vectors: classes.vectors, absent, unknown })
    }

    fn store(
        &self,
        image: &mut Image,
        field: usize,
        half: usize,
        stride: usize,
        vector_words: usize,
    ) -> Result<(), TooLarge> {
        let index = image.push_halves(&index(&self.class_of));
        let mut blocks: HashMap<[u64; BLOCK_WORDS], u16> = HashMap::new();
        let mut stored: Vec<u64> = Vec::new();
        let mut records = Vec::with_capacity(self.vectors.len() / vector_words.max(1) * stride);
        for vector in self.vectors.chunks(vector_words.max(1)) {
            let aggregate =
                vector.iter().enumerate().fold(0_u64, |all, (at, word)| all | u64::from(*word != 0) << at);
            let start = records.len();
            records.extend((0..RECORD_HEAD).map(|n| (aggregate >> (16 * n)) as u16));
            for words in vector.chunks(BLOCK_WORDS) {
                let mut block = [0; BLOCK_WORDS];
                block[..words.len()].copy_from_slice(words);
                let next = u16::try_from(stored.len() / BLOCK_WORDS);
                let number = match blocks.entry(block) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => {
                        stored.extend(block);
                        *new.insert(next.map_err(|_| TooLarge::Memory(stored.len() / 128))?)
                    }
                };
                records.push(number);
            }
            records.resize(start + stride, 0);
        }
        let records = image.push_halves(&records);
        let blocks = image.words.len();
        image.words.extend(stored);
        let at = (HEAD_WORDS + field * FIELD_WORDS) * 2;
        for (entry, value) in [
            (Field::Half, half),
            (Field::Index, index),
            (Field::Records, records),
            (Field::Blocks, blocks),
            (Field::Absent, self.absent.into()),
            (Field::Unknown, self.unknown.into()),
        ] {
            image.set_u32(at + entry as usize, value as u32);
        }
        image.check()
    }
}

/// Sorts the ends of ranges by their values; the order of equal ends has no effect. Many ends are sorted by counting: a wildcard
/// mask with scattered bits makes up to [`MAX_ENDS`] of them, and a sort by comparison then took two thirds of the compilation.
fn ascending(mut ends: Vec<(u32, u16)>) -> Vec<(u32, u16)> {
    /// From this number of ends on, the counting sort, which visits all values, takes less time than comparisons.
    const MANY: usize = 1 << 13;
    if ends.len() < MANY {
        ends.sort_unstable();
        return ends;
    }
    // For each value, the index in `sorted` at which its next end is stored; at the beginning, that of its first end.
    let mut places = vec![0_usize; (1 << 16) + 2];
    ends.iter().for_each(|(end, _)| places[*end as usize + 1] += 1);
    for value in 1..places.len() {
        places[value] += places[value - 1];
    }
    let mut sorted = vec![(0, 0); ends.len()];
    for (end, rule) in ends {
        let place = &mut places[end as usize];
        sorted[*place] = (end, rule);
        *place += 1;
    }
    sorted
}

/// The two-level index: 256 numbers of blocks, and the blocks, of which equal ones are stored once.
fn index(class_of: &[u16]) -> Vec<u16> {
    let mut known: HashMap<&[u16], u16> = HashMap::new();
    let (mut upper, mut lower) = (Vec::with_capacity(256), Vec::new());
    let mut last: Option<(&[u16], u16)> = None;
    for block in class_of.chunks(256) {
        // Most blocks equal the one before, and comparing is faster than hashing.
        let number =
            last.filter(|(before, _)| *before == block).map(|(_, number)| number).unwrap_or_else(|| {
                let next = known.len() as u16;
                *known.entry(block).or_insert_with(|| {
                    lower.extend_from_slice(block);
                    next
                })
            });
        upper.push(number);
        last = Some((block, number));
    }
    [upper, lower].concat()
}

/// The classes found so far. A set of rules is looked up by a hash of its words, and then compared word by word.
struct Classes {
    words: usize,
    vectors: Vec<u64>,
    by_hash: HashMap<u64, Vec<u16>, BuildHasherDefault<Mixed>>,
}

/// The hash of a number that is a hash already: the number.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

impl Classes {
    fn new(words: usize) -> Self {
        Self { words, vectors: Vec::new(), by_hash: HashMap::default() }
    }

    fn get(&mut self, vector: &[u64]) -> Result<u16, TooLarge> {
        let mix = |sum: u64, word: &u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let candidates = self.by_hash.entry(vector.iter().fold(0, mix)).or_default();
        let words = self.words;
        let same = |class: &&u16| self.vectors[usize::from(**class) * words..][..words] == *vector;
        if let Some(class) = candidates.iter().find(same) {
            return Ok(*class);
        }
        let count = self.vectors.len() / words.max(1);
        let class = u16::try_from(count).map_err(|_| TooLarge::Memory(self.vectors.len() / 128))?;
        if self.vectors.len() > 16 * LARGE_WORDS {
            return Err(TooLarge::Memory(self.vectors.len() / 128));
        }
        self.vectors.extend_from_slice(vector);
        candidates.push(class);
        Ok(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ends_are_sorted_like_few() {
        // A full period of a linear congruential generator over all values, and the ends beyond the last value.
        let value = |n: u32| n.wrapping_mul(0x6255).wrapping_add(0x3619) & 0xffff;
        let mut ends: Vec<(u32, u16)> = (0..200_000).map(|n| (value(n), n as u16)).collect();
        ends.extend((0..9).map(|rule| (1 << 16, rule)));
        let mut sorted = ascending(ends.clone());
        assert!(sorted.is_sorted_by_key(|(end, _)| *end));
        sorted.sort_unstable();
        ends.sort_unstable();
        assert_eq!(sorted, ends);
    }
}
