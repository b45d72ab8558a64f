//! [`Agent`]: collects samples and counters into datagrams.
//!
//! Invariants: a datagram is at most [`MAX_DATAGRAM`] bytes long, and holds no sample for longer than [`HOLD_MS`] (section 4.2.2
//! allows a second). At most [`MAX_WAITING`] datagrams wait to be sent; further samples count as drops of their interface.

use crate::datagram::{Counters, Flow, HEADER, MAX_DATAGRAM, counters_sample, datagram, flow_sample};
use crate::xdr::Writer;
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

/// The longest time in milliseconds for which a sample waits for others.
const HOLD_MS: u64 = 500;
/// The most datagrams that wait to be sent.
const MAX_WAITING: usize = 256;

/// The settings of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The address by which collectors know the agent.
    pub agent: Ipv4Addr,
    /// The interval between two counter samples of an interface in milliseconds; 0: none are sent.
    pub polling_ms: u64,
    /// The interfaces, by ifindex.
    pub interfaces: BTreeMap<u32, Interface>,
}

/// The settings of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface {
    /// One frame in this many is sampled.
    pub rate: u32,
    /// The VLAN of frames without a tag or with a priority tag; `None` if they are in no VLAN.
    pub native_vlan: Option<u16>,
    /// True if the interface is in VLANs: a frame's tag names its VLAN. False for a routed port.
    pub vlans: bool,
}

/// A sample of a received frame, from the plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The interface that received the frame.
    pub ifindex: u32,
    /// The frame's length in bytes, without the frame check sequence.
    pub len: u32,
    /// The frame's first bytes, including its VLAN tags.
    pub head: &'a [u8],
    /// The frames, this one included, that were considered since the last sample.
    pub pool: u32,
    /// The samples that were lost since then.
    pub drops: u32,
}

/// The counts of samples at an interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Flow samples.
    pub samples: u32,
    /// The frames from which the flow samples were drawn.
    pub pool: u32,
    /// Samples that were lost.
    pub drops: u32,
    /// Counter samples.
    pub counters: u32,
}

/// A source of samples.
#[derive(Debug, Default)]
struct Source {
    totals: Totals,
    /// When its counters are due.
    due_ms: u64,
}

/// The agent.
#[derive(Debug, Default)]
pub struct Agent {
    config: Option<Config>,
    sources: BTreeMap<u32, Source>,
    began_ms: u64,
    sequence: u32,
    samples: Writer,
    count: u32,
    /// The time of the first sample in `samples`, in milliseconds.
    since_ms: u64,
    waiting: VecDeque<Vec<u8>>,
}

impl Agent {
    /// Takes new settings; `None` ends the agent. The counts of interfaces that remain configured continue.
    pub fn configure(&mut self, now_ms: u64, config: Option<Config>) {
        if self.config == config {
            return;
        }
        if self.config.is_none() || config.is_none() {
            *self = Self { began_ms: now_ms, ..Self::default() };
        }
        if self.config.as_ref().map(|old| old.agent) != config.as_ref().map(|new| new.agent) {
            self.flush(now_ms);
        }
        let Some(new) = config else { return };
        self.sources.retain(|ifindex, _| new.interfaces.contains_key(ifindex));
        let count = u64::try_from(new.interfaces.len()).unwrap_or(1).max(1);
        for (n, ifindex) in (0..).zip(new.interfaces.keys()) {
            let source = self.sources.entry(*ifindex).or_default();
            // Spread the polls over the interval, so that the datagrams of many interfaces do not leave at once (section 3.1).
            let due_ms = now_ms + new.polling_ms * (n + 1) / count;
            source.due_ms = if source.due_ms == 0 { due_ms } else { source.due_ms.min(due_ms) };
        }
        self.config = Some(new);
    }

    /// Takes a sample. One of an interface that is not configured is ignored.
    pub fn handle_sample(&mut self, now_ms: u64, sample: &Sample<'_>) {
        let interface =
            self.config.as_ref().and_then(|config| config.interfaces.get(&sample.ifindex)).copied();
        let full = self.waiting.len() >= MAX_WAITING;
        let (Some(interface), Some(source)) = (interface, self.sources.get_mut(&sample.ifindex)) else {
            return;
        };
        let totals = &mut source.totals;
        totals.pool = totals.pool.wrapping_add(sample.pool);
        totals.drops = totals.drops.wrapping_add(sample.drops).wrapping_add(full.into());
        if full {
            return;
        }
        totals.samples = totals.samples.wrapping_add(1);
        let flow = Flow {
            sequence: totals.samples,
            ifindex: sample.ifindex,
            rate: interface.rate,
            pool: totals.pool,
            drops: totals.drops,
            len: sample.len,
            head: sample.head,
            vlan: vlan_of(sample.head, interface),
        };
        let mut one = Writer::default();
        flow_sample(&mut one, &flow);
        self.add(now_ms, &one);
    }

    /// The interfaces whose counters are due.
    pub fn poll_counters(&mut self, now_ms: u64) -> Vec<u32> {
        let polling_ms = self.config.as_ref().map_or(0, |config| config.polling_ms);
        if polling_ms == 0 {
            return Vec::new();
        }
        let mut due = Vec::new();
        for (ifindex, source) in &mut self.sources {
            if source.due_ms <= now_ms {
                // After a pause the missed polls are not made up for.
                source.due_ms = (source.due_ms + polling_ms).max(now_ms + 1);
                due.push(*ifindex);
            }
        }
        due
    }

    /// Takes the counters of an interface.
    pub fn handle_counters(&mut self, now_ms: u64, ifindex: u32, counters: &Counters) {
        if self.waiting.len() >= MAX_WAITING {
            return;
        }
        let Some(source) = self.sources.get_mut(&ifindex) else { return };
        source.totals.counters = source.totals.counters.wrapping_add(1);
        let mut one = Writer::default();
        counters_sample(&mut one, source.totals.counters, ifindex, counters);
        self.add(now_ms, &one);
    }

    /// A datagram to be sent to every collector; to be called until there is none.
    pub fn poll_datagram(&mut self, now_ms: u64) -> Option<Vec<u8>> {
        if self.count > 0 && now_ms >= self.since_ms + HOLD_MS {
            self.flush(now_ms);
        }
        self.waiting.pop_front()
    }

    /// The next time in milliseconds at which the agent has something to do; 0 for at once, `None` for never.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        let config = self.config.as_ref()?;
        if !self.waiting.is_empty() {
            return Some(0);
        }
        let polls = self.sources.values().map(|source| source.due_ms).filter(|_| config.polling_ms > 0);
        let held = (self.count > 0).then_some(self.since_ms + HOLD_MS);
        polls.chain(held).min()
    }

    /// The counts of samples at an interface.
    #[must_use]
    pub fn totals(&self, ifindex: u32) -> Totals {
        self.sources.get(&ifindex).map(|source| source.totals).unwrap_or_default()
    }
    /// The address by which collectors know the agent, while it runs.
    #[must_use]
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.config.as_ref().map(|config| config.agent)
    }

    fn add(&mut self, now_ms: u64, one: &Writer) {
        if HEADER + self.samples.len() + one.len() > MAX_DATAGRAM {
            self.flush(now_ms);
        }
        if self.count == 0 {
            self.since_ms = now_ms;
        }
        self.samples.extend(one);
        self.count += 1;
    }

    fn flush(&mut self, now_ms: u64) {
        let (samples, count) = (std::mem::take(&mut self.samples), std::mem::take(&mut self.count));
        let Some(config) = self.config.as_ref().filter(|_| count > 0) else { return };
        self.sequence = self.sequence.wrapping_add(1);
        let uptime_ms = now_ms.saturating_sub(self.began_ms) as u32;
        self.waiting.push_back(datagram(config.agent, self.sequence, uptime_ms, count, &samples));
    }
}

/// The VLAN and priority with which a frame arrived.
fn vlan_of(head: &[u8], interface: Interface) -> Option<(u16, u8)> {
    if !interface.vlans {
        return None;
    }
    let (vlan, priority) = match head.get(12..16) {
        Some([0x81, 0, high, low] | [0x88, 0xa8, high, low]) => {
            (u16::from_be_bytes([high & 0x0f, *low]), high >> 5)
        }
        _ => (0, 0),
    };
    // An untagged frame, or a priority tag: the frame is in the native VLAN.
    Some((if vlan == 0 { interface.native_vlan? } else { vlan }, priority))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
