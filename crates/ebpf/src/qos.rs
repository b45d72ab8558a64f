//! Service policies in the tables: the policies of ports as words and rows.
//!
//! Read first: `bpf/qos.h`.
//!
//! Invariants: the rows of a new policy are complete before its word is stored. A policy whose lists and number of classes stay
//! keeps its rows, so its counters and buckets continue. A block of rows is reused after all others that are free, so that no
//! program still uses it.

use crate::abi;
use crate::qos_layout::{
    QOS_BLOCK_SHIFT, QOS_BLOCKS, QOS_CLASSES, QOS_COLOURS, QOS_COUNT_SHIFT, QOS_HAS_INPUT, QOS_HAS_OUTPUT,
    QOS_KEEP, QOS_LIST_BITS, QOS_ONE_BUCKET, QOS_OVERFLOW, QOS_PEAK, Row,
};
use crate::tables::Tables;
use lanyard_pipeline::qos::{
    ClassCounters, ColourAction, Costs, Direction, Excess, Mark, QosClass, QosPolicy,
};
use lanyard_pipeline::state::{PlaneState, PortState};
use lanyard_plane::PlaneError;
use lanyard_types::{AclId, PortId};
use std::mem::offset_of;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use zerocopy::IntoBytes;

/// The number of 64-bit words at the beginning of a row that are its settings.
const SETTINGS: usize = offset_of!(Row, clock) / 8;

/// The most service policies at once: one block more is needed while a policy is replaced.
pub(crate) const MAX_POLICIES: usize = QOS_BLOCKS - 1;

/// The value of `ly_port.qos`.
pub(crate) fn bits(port: &PortState) -> u8 {
    let bit = |on: bool, bit: u8| if on { bit } else { 0 };
    bit(port.qos.input.is_some(), QOS_HAS_INPUT) | bit(port.qos.output.is_some(), QOS_HAS_OUTPUT)
}

/// The number of policies in a state.
pub(crate) fn count(state: &PlaneState) -> usize {
    state.ports.values().map(|port| bits(port).count_ones() as usize).sum()
}

/// Checks that a state's policies have room.
///
/// # Errors
/// [`PlaneError::TableFull`].
pub(crate) fn check(state: &PlaneState) -> Result<(), PlaneError> {
    match count(state) {
        0..=MAX_POLICIES => Ok(()),
        _ => Err(PlaneError::TableFull { table: "service_policies", size: MAX_POLICIES as u64 }),
    }
}

/// The writer of the policies.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    /// The block at which the search for a free one begins.
    next: AtomicUsize,
}

impl Policies {
    /// Writes the policies of a port.
    pub(crate) fn write(&self, tables: &Tables, id: PortId, port: Option<&PortState>) {
        for direction in Direction::ALL {
            let policy = port.and_then(|port| port.qos.of(direction));
            self.put(tables, slot(id, direction), policy.map(AsRef::as_ref));
        }
    }
    fn put(&self, tables: &Tables, slot: usize, policy: Option<&QosPolicy>) {
        let place = tables.qos_policies.u64(slot, 0);
        let held = place.load(Relaxed);
        let Some(policy) = policy else {
            if held != 0 {
                place.store(0, Relaxed);
            }
            return;
        };
        let without_block = !(u64::from(u16::MAX) << QOS_BLOCK_SHIFT);
        let word = word(policy);
        if held & without_block == word {
            let rows = rows_of(held);
            rows.zip(&policy.classes).for_each(|(at, class)| change(tables, at, &row(class)));
            return;
        }
        // `check` has found room for every policy and one more.
        let Some(block) = self.free_block(tables) else { return };
        for (n, class) in policy.classes.iter().enumerate() {
            tables.qos_rows.set(block * QOS_CLASSES + n, &row(class));
        }
        place.store(word | (block as u64) << QOS_BLOCK_SHIFT, std::sync::atomic::Ordering::Release);
    }
    fn free_block(&self, tables: &Tables) -> Option<usize> {
        let mut used = [false; QOS_BLOCKS];
        for slot in 0..2 * abi::PORTS {
            let word = tables.qos_policies.u64(slot, 0).load(Relaxed);
            if word != 0 {
                used[block_of(word)] = true;
            }
        }
        let from = self.next.load(Relaxed);
        let block = (from..from + QOS_BLOCKS).map(|at| at % QOS_BLOCKS).find(|at| !used[*at])?;
        self.next.store((block + 1) % QOS_BLOCKS, Relaxed);
        Some(block)
    }
}

/// The counters of the classes of a policy.
pub(crate) fn counters(tables: &Tables, id: PortId, direction: Direction) -> Vec<ClassCounters> {
    let word = tables.qos_policies.u64(slot(id, direction), 0).load(Relaxed);
    let of = |at: usize| {
        let Row { frames, bytes, .. } = tables.qos_rows.get(at);
        ClassCounters { frames, bytes }
    };
    rows_of(word).map(of).collect()
}

/// Sets the counters of a port's policies to 0.
pub(crate) fn clear(tables: &Tables, id: PortId) {
    for direction in Direction::ALL {
        let word = tables.qos_policies.u64(slot(id, direction), 0).load(Relaxed);
        for at in rows_of(word) {
            for offset in (offset_of!(Row, frames)..offset_of!(Row, unused)).step_by(8) {
                tables.qos_rows.u64(at, offset).store(0, Relaxed);
            }
        }
    }
}

fn slot(id: PortId, direction: Direction) -> usize {
    direction as usize * abi::PORTS + id.index()
}

fn block_of(word: u64) -> usize {
    (word >> QOS_BLOCK_SHIFT) as usize % QOS_BLOCKS
}

/// The rows of a policy's word.
fn rows_of(word: u64) -> std::ops::Range<usize> {
    let (block, count) = (block_of(word), (word >> QOS_COUNT_SHIFT) as usize);
    block * QOS_CLASSES..block * QOS_CLASSES + count.min(QOS_CLASSES)
}

/// The word of a policy, without its block.
fn word(policy: &QosPolicy) -> u64 {
    let list = |at: usize| {
        policy.lists[at].map_or(0, |id: AclId| u64::from(id.get())) << (at as u32 * QOS_LIST_BITS)
    };
    (0..policy.lists.len()).map(list).sum::<u64>()
        | (policy.classes.len().min(QOS_CLASSES) as u64) << QOS_COUNT_SHIFT
}

/// Changes the settings of a row in use, word by word. A policer whose rates change begins with full buckets.
fn change(tables: &Tables, at: usize, wanted: &Row) {
    let held = tables.qos_rows.get(at);
    let rates = |row: &Row| (row.kind, row.byte_cost, row.burst);
    let changes = rates(&held) != rates(wanted);
    for (n, bytes) in wanted.as_bytes().chunks_exact(8).enumerate().take(SETTINGS) {
        let value = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        let place = tables.qos_rows.u64(at, n * 8);
        if place.load(Relaxed) != value {
            place.store(value, Relaxed);
        }
    }
    if changes {
        for bucket in 0..2 {
            tables.qos_rows.u64(at, offset_of!(Row, clock) + bucket * 8).store(0, Relaxed);
        }
    }
}

fn row(class: &QosClass) -> Row {
    let mut row =
        Row { dscp: [QOS_KEEP; 3], cos: [QOS_KEEP; 3], queue: class.queue.into(), ..Row::default() };
    let mut mark = |colour: usize, mark: Mark| {
        row.dscp[colour] = mark.dscp.unwrap_or(QOS_KEEP);
        row.cos[colour] = mark.cos.unwrap_or(QOS_KEEP);
    };
    let Some(policer) = &class.policer else {
        (0..QOS_COLOURS).for_each(|colour| mark(colour, class.mark));
        return row;
    };
    let mut drops = 0;
    for (colour, action) in policer.actions.iter().enumerate() {
        match action {
            ColourAction::Drop => drops |= 1 << colour,
            ColourAction::Pass(own) => mark(colour, own.or(class.mark)),
        }
    }
    let Costs { byte_cost, burst } = Costs::of(policer);
    let kind = match policer.excess {
        Excess::None => QOS_ONE_BUCKET,
        Excess::Overflow(_) => QOS_OVERFLOW,
        Excess::Peak(_) => QOS_PEAK,
    };
    Row { kind, drops, byte_cost, burst, ..row }
}
