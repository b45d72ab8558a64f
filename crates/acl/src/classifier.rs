//! [`Classifier`]: the flat data structure that finds the first rule of a list that matches, as an array of words.
//!
//! `bpf/acl.h` reads the same words. The layout, in 64-bit words unless stated otherwise:
//!
//! * the head: [`HEAD_WORDS`] words, the fields of [`Head`];
//! * a description for each field that some rule compares ([`FIELD_WORDS`] words each, the fields of [`Field`]);
//! * the verdict of each rule, 32 bits each ([`verdict`]), and the counters of matches, one word for each rule and one
//!   more for frames that no rule matches;
//! * for each field: an index that leads from the half's value to a class (256 entries for the upper byte name blocks of 256
//!   entries for the lower one, 16 bits each), a record for each class, and blocks of [`BLOCK_WORDS`] words.
//!
//! Values of a field that the same rules accept are one class. The set of these rules is a bit vector; bit *r* of it is rule
//! *r*. A record contains the vector's aggregate, in which bit *w* says that word *w* of the vector is not zero, and then the
//! numbers of the blocks that make up the vector. Equal blocks are stored once, which matters: the vectors of most classes
//! differ from that of "any" in one or two words. A search combines the aggregates of all fields, and then reads only those
//! words that can contain a common bit.

use crate::condition::{FlatRule, Verdict};
use crate::key::{HALVES, Key};

/// The words of the head.
pub const HEAD_WORDS: usize = 8;
/// The words of a field's description.
pub const FIELD_WORDS: usize = 4;
/// The words of a block.
pub const BLOCK_WORDS: usize = 4;
/// The words of the smaller of the two sizes of classifier: 256 KB.
pub const SMALL_WORDS: usize = 1 << 15;
/// The words of the larger size: 4 MB, the largest element of a map in the kernel.
pub const LARGE_WORDS: usize = 1 << 19;
/// The 16-bit entries of a record before its blocks: the aggregate.
pub const RECORD_HEAD: usize = 4;

/// The index of a field of the head, in 32-bit units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Head {
    /// The number of rules.
    Rules = 0,
    /// The number of fields.
    Fields = 1,
    /// The 16-bit entries of a record.
    Stride = 2,
    /// Where the verdicts begin, in 32-bit units.
    Verdicts = 3,
    /// Where the counters begin, in words.
    Counters = 4,
    /// 1 if a frame that no rule matches passes.
    Otherwise = 5,
    /// The lower half of the aggregate of a bit vector with all rules.
    AllLow = 6,
    /// The upper half of the aggregate of a bit vector with all rules.
    AllHigh = 7,
    /// The words in use.
    Used = 8,
}

/// The index of an entry of a field's description, in 32-bit units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Field {
    /// The index of the half in the key.
    Half = 0,
    /// Where the index begins, in 16-bit units.
    Index = 1,
    /// Where the records begin, in 16-bit units, a multiple of 4.
    Records = 2,
    /// Where the blocks begin, in words.
    Blocks = 3,
    /// The class of a frame that lacks the field.
    Absent = 4,
    /// The class of a frame whose field cannot be read.
    Unknown = 5,
}

/// The layout of a rule's verdict: three flags in the lowest bits, and above them a class and the index of a rule.
pub mod verdict {
    /// The frame passes.
    pub const PERMIT: u32 = 1;
    /// Matches are logged.
    pub const LOG: u32 = 2;
    /// The rule decides nothing; the search continues with the rule whose index is in the upper half.
    pub const SKIP: u32 = 4;
    /// The position of the lowest of eight bits, which have the class of a policy map to which the rule assigns frames
    /// (`FlatRule::list`).
    pub const CLASS_SHIFT: u32 = 8;
    /// The position of the lowest of sixteen bits, which have the index of the rule with which the search continues.
    pub const SKIP_SHIFT: u32 = 16;
}

/// The result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The index of the rule; `None` when no rule matches.
    pub rule: Option<usize>,
    /// True if the frame passes.
    pub permit: bool,
}

/// A compiled list. [`crate::compile::compile`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classifier {
    words: Vec<u64>,
}

impl Classifier {
    pub(crate) fn new(words: Vec<u64>) -> Self {
        Self { words }
    }
    /// The words, as a plane stores them.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }
    /// The word at which the counters begin; there is one more than there are rules.
    #[must_use]
    pub fn counters_at(&self) -> usize {
        self.head(Head::Counters) as usize
    }
    /// The number of rules.
    #[must_use]
    pub fn rules(&self) -> usize {
        self.head(Head::Rules) as usize
    }

    /// The rule that decides about a frame.
    #[must_use]
    pub fn search(&self, key: &Key) -> Found {
        let fields = self.head(Head::Fields) as usize;
        let mut records = [0; HALVES];
        let mut all = u64::from(self.head(Head::AllLow)) | u64::from(self.head(Head::AllHigh)) << 32;
        for (field, record) in records.iter_mut().enumerate().take(fields) {
            *record = self.record(field, key);
            all &= self.word(*record / 4);
        }
        let mut from = 0;
        while all != 0 {
            let w = all.trailing_zeros() as usize;
            all &= all - 1;
            let mut bits = u64::MAX;
            for (field, record) in records.iter().enumerate().take(fields) {
                let block = usize::from(self.half(record + RECORD_HEAD + w / BLOCK_WORDS));
                let at = self.field(field, Field::Blocks) as usize + block * BLOCK_WORDS + w % BLOCK_WORDS;
                bits &= self.word(at);
            }
            if w == from / 64 {
                bits &= u64::MAX << (from % 64);
            }
            while bits != 0 {
                let rule = w * 64 + bits.trailing_zeros() as usize;
                let verdict = self.u32(self.head(Head::Verdicts) as usize + rule);
                if verdict & verdict::SKIP == 0 {
                    return Found { rule: Some(rule), permit: verdict & verdict::PERMIT != 0 };
                }
                from = (verdict >> verdict::SKIP_SHIFT) as usize;
                if from / 64 > w {
                    bits = 0;
                    all = all.checked_shr((from / 64) as u32).map_or(0, |rest| rest << (from / 64));
                } else {
                    bits &= u64::MAX << (from % 64);
                }
            }
        }
        Found { rule: None, permit: self.head(Head::Otherwise) != 0 }
    }

    /// The place of the record of the class to which a field of the frame belongs, in 16-bit units.
    fn record(&self, field: usize, key: &Key) -> usize {
        let half = self.field(field, Field::Half) as usize % HALVES;
        let class = if key.unknown >> half & 1 == 1 {
            self.field(field, Field::Unknown)
        } else if key.absent >> half & 1 == 1 {
            self.field(field, Field::Absent)
        } else {
            let index = self.field(field, Field::Index) as usize;
            let [high, low] = key.half[half].to_be_bytes();
            let block = usize::from(self.half(index + usize::from(high)));
            u32::from(self.half(index + 256 + block * 256 + usize::from(low)))
        };
        (self.field(field, Field::Records) + class * self.head(Head::Stride)) as usize
    }

    fn word(&self, at: usize) -> u64 {
        self.words.get(at).copied().unwrap_or(0)
    }
    fn u32(&self, at: usize) -> u32 {
        (self.word(at / 2) >> (at % 2 * 32)) as u32
    }
    fn half(&self, at: usize) -> u16 {
        (self.word(at / 4) >> (at % 4 * 16)) as u16
    }
    fn head(&self, entry: Head) -> u32 {
        self.u32(entry as usize)
    }
    fn field(&self, field: usize, entry: Field) -> u32 {
        self.u32((HEAD_WORDS + field * FIELD_WORDS) * 2 + entry as usize)
    }
}

/// A rule's verdict as it is stored.
#[must_use]
pub fn encode(rule: &FlatRule) -> u32 {
    let log = if rule.log { verdict::LOG } else { 0 };
    let class = u32::from(rule.list & 0xff) << verdict::CLASS_SHIFT;
    log | class
        | match rule.verdict {
            Verdict::Deny => 0,
            Verdict::Permit => verdict::PERMIT,
            Verdict::Skip(to) => verdict::SKIP | u32::from(to) << verdict::SKIP_SHIFT,
        }
}
