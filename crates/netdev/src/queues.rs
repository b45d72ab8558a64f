//! The queues of a netdev: a hierarchical token bucket at its root, with a first-in-first-out queue for each class.
//!
//! Read first: tc-htb(8), tc-pfifo(8), linux/pkt_sched.h. Frames get their class by `skb->priority`, which the programs of the
//! switch write: the number of the discipline in the upper half, that of the class in the lower.
//!
//! Invariant: only a discipline with the switch's own major number is changed or removed.

use crate::decode::attributes;
use crate::error::Error;
use crate::genl::{attribute, nest, text};
use crate::socket::Refusal;
use crate::{Netdev, Result};
use lanyard_types::{QueueClass, QueueLength, QueueStats, QueueTree, RootQueue};
use netlink_packet_core::{
    DefaultNla, Emitable, NLM_F_CREATE, NLM_F_REPLACE, NetlinkHeader, NetlinkSerializable, parse_string,
};
use std::collections::BTreeMap;

/// rtnetlink(7).
const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTCLASS: u16 = 40;
const RTM_DELTCLASS: u16 = 41;
const RTM_GETTCLASS: u16 = 42;
/// TC_H_ROOT, and the parent of `ingress` and `clsact`: TC_H_INGRESS.
const ROOT: u32 = 0xffff_ffff;
const INGRESS: u32 = 0xffff_fff1;
/// Length of struct tcmsg in bytes.
const HEADER: usize = 20;
/// linux/rtnetlink.h: TCA_KIND, TCA_OPTIONS, TCA_STATS2; linux/gen_stats.h: TCA_STATS_BASIC, TCA_STATS_QUEUE.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const STATS2: u16 = 7;
const STATS_BASIC: u16 = 1;
const STATS_QUEUE: u16 = 3;
/// linux/pkt_sched.h: TCA_HTB_PARMS, TCA_HTB_INIT, TCA_HTB_RATE64, TCA_HTB_CEIL64.
const HTB_PARMS: u16 = 1;
const HTB_INIT: u16 = 2;
const HTB_RATE64: u16 = 6;
const HTB_CEIL64: u16 = 7;
/// The version of HTB's interface: struct tc_htb_glob.
const HTB_VERSION: u32 = 3;
/// TC_LINKLAYER_ETHERNET: the kernel then needs no rate tables.
const LINKLAYER_ETHERNET: u8 = 1;
/// The minor number of the root class, the parent of all others.
const TOP: u16 = 1;
/// The burst of a class: the bytes that its rate lets through in this time, and two frames.
const BURST_NS: u64 = 2_000_000;
const FRAMES_BYTES: u64 = 2 * 1_600;
/// Nanoseconds of a tick of the packet scheduler (PSCHED_SHIFT).
const TICK_NS: u64 = 64;

/// A message about a queueing discipline or a class.
#[derive(Debug, Clone)]
struct Message {
    kind: u16,
    ifindex: u32,
    handle: u32,
    parent: u32,
    attributes: Vec<DefaultNla>,
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.kind
    }
    fn buffer_len(&self) -> usize {
        HEADER + self.attributes.as_slice().buffer_len()
    }
    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..HEADER].fill(0);
        for (at, word) in [(4, self.ifindex), (8, self.handle), (12, self.parent)] {
            buffer[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        self.attributes.as_slice().emit(&mut buffer[HEADER..]);
    }
}

impl netlink_packet_core::NetlinkDeserializable for Message {
    type Error = std::convert::Infallible;
    fn deserialize(header: &NetlinkHeader, _payload: &[u8]) -> std::result::Result<Self, Self::Error> {
        // Answers are read from their bytes.
        Ok(Self { kind: header.message_type, ifindex: 0, handle: 0, parent: 0, attributes: Vec::new() })
    }
}

/// Handle and parent of a message, with its attributes.
struct Seen<'a> {
    ifindex: u32,
    handle: u32,
    parent: u32,
    payload: &'a [u8],
}

impl<'a> Seen<'a> {
    fn of(payload: &'a [u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(payload.get(at..at + 4)?.try_into().ok()?));
        Some(Self { ifindex: word(4)?, handle: word(8)?, parent: word(12)?, payload })
    }
    fn kind(&self) -> Option<String> {
        let kind = attributes(self.payload, HEADER).find(|nla| nla.kind() == KIND)?;
        parse_string(kind.value()).ok()
    }
}

const fn handle(major: u16, minor: u16) -> u32 {
    (major as u32) << 16 | minor as u32
}

/// The handle of the queueing discipline below a class.
const fn leaf(major: u16, minor: u16) -> u32 {
    // Each class needs a major number of its own. The switch's own major numbers are further apart than minor numbers reach.
    handle(major.wrapping_add(minor), 0)
}

impl Netdev {
    /// The queueing discipline at the root of a netdev; `major` is the major number of the switch's own.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn root_queue(&self, ifindex: u32, major: u16) -> Result<RootQueue> {
        let found = self.queue_dump(RTM_GETQDISC, ifindex, |seen| {
            (seen.parent == ROOT).then(|| (seen.handle, seen.kind().unwrap_or_default()))
        })?;
        Ok(match found.into_iter().next() {
            Some((held, _)) if held == handle(major, 0) => RootQueue::Own,
            Some((held, kind)) if held != 0 => RootQueue::Foreign(kind),
            _ => RootQueue::Default,
        })
    }

    /// True when the kernel has chosen the discipline at the root of a netdev (it then has no handle), or when there is none.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn has_default_queue(&self, ifindex: u32) -> Result<bool> {
        let found =
            self.queue_dump(RTM_GETQDISC, ifindex, |seen| (seen.parent == ROOT).then_some(seen.handle))?;
        Ok(found.into_iter().all(|handle| handle == 0))
    }

    /// The kinds of the disciplines below the root discipline of a netdev that an administrator or another program has set. They
    /// have a handle; those that the kernel chooses have none.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn queues_below_root(&self, ifindex: u32) -> Result<Vec<String>> {
        let below = |seen: &Seen<'_>| seen.handle != 0 && ![ROOT, INGRESS].contains(&seen.parent);
        self.queue_dump(RTM_GETQDISC, ifindex, |seen| below(&seen).then(|| seen.kind().unwrap_or_default()))
    }

    /// Gives a netdev these queues, in place of those that it has with the major number `major`. Queues that stay keep their
    /// frames.
    ///
    /// # Errors
    /// When the kernel refuses: it has no HTB, or another discipline is at the root. The netdev may then have some of the queues.
    pub fn set_queues(&self, ifindex: u32, major: u16, tree: &QueueTree) -> Result<()> {
        let doing = || format!("setting the queues of {}", self.label(ifindex));
        if self.root_queue(ifindex, major)? != RootQueue::Own {
            self.queue_request(doing, RTM_NEWQDISC, NLM_F_CREATE, root(ifindex, major))?;
        }
        let top = QueueClass {
            minor: TOP,
            rate_bps: tree.rate_bps,
            ceil_bps: tree.rate_bps,
            priority: 0,
            quantum: 60_000,
            limit: QueueLength::Packets(0),
        };
        let parents = std::iter::once((&top, handle(major, 0)));
        for (one, parent) in parents.chain(tree.classes.iter().map(|one| (one, handle(major, TOP)))) {
            let message = class(ifindex, major, parent, one);
            self.queue_request(doing, RTM_NEWTCLASS, NLM_F_CREATE | NLM_F_REPLACE, message)?;
        }
        for one in &tree.classes {
            let message = fifo(ifindex, major, one);
            self.queue_request(doing, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, message)?;
        }
        let wanted = |minor: u16| minor == TOP || tree.classes.iter().any(|one| one.minor == minor);
        let held = self.queue_dump(RTM_GETTCLASS, ifindex, |seen| {
            ((seen.handle >> 16) as u16 == major).then_some(seen.handle as u16)
        })?;
        for minor in held.into_iter().filter(|minor| !wanted(*minor)) {
            let message = Message {
                kind: RTM_DELTCLASS,
                ifindex,
                handle: handle(major, minor),
                parent: 0,
                attributes: Vec::new(),
            };
            self.queue_request(doing, RTM_DELTCLASS, 0, message)?;
        }
        Ok(())
    }

    /// Removes the queues with the number `major`, with the frames that wait in them; the kernel sets its default discipline.
    ///
    /// # Errors
    /// When the kernel refuses. A netdev without such queues is left alone.
    pub fn clear_queues(&self, ifindex: u32, major: u16) -> Result<()> {
        if self.root_queue(ifindex, major)? != RootQueue::Own {
            return Ok(());
        }
        let doing = || format!("removing the queues of {}", self.label(ifindex));
        let message = Message {
            kind: RTM_DELQDISC,
            ifindex,
            handle: handle(major, 0),
            parent: ROOT,
            attributes: Vec::new(),
        };
        self.queue_request(doing, RTM_DELQDISC, 0, message)
    }

    /// The counters of the queues with the number `major`, by class.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn queue_stats(&self, ifindex: u32, major: u16) -> Result<Vec<QueueStats>> {
        let found = self.queue_dump(RTM_GETTCLASS, ifindex, |seen| {
            let minor = seen.handle as u16;
            ((seen.handle >> 16) as u16 == major && minor != TOP).then(|| stats(minor, seen.payload))
        })?;
        Ok(found
            .into_iter()
            .map(|stats| (stats.minor, stats))
            .collect::<BTreeMap<_, _>>()
            .into_values()
            .collect())
    }

    fn queue_dump<T>(&self, kind: u16, ifindex: u32, each: impl Fn(Seen<'_>) -> Option<T>) -> Result<Vec<T>> {
        let request = Message { kind, ifindex, handle: 0, parent: 0, attributes: Vec::new() };
        let parse =
            |_: u16, payload: &[u8]| Seen::of(payload).filter(|seen| seen.ifindex == ifindex).and_then(&each);
        let found = self.route.borrow_mut().dump(request, parse);
        found.map_err(|refusal| {
            Error::refused(format!("listing the queues of {}", self.label(ifindex)), refusal)
        })
    }

    fn queue_request(
        &self,
        doing: impl Fn() -> String,
        kind: u16,
        flags: u16,
        message: Message,
    ) -> Result<()> {
        let message = Message { kind, ..message };
        let done: std::result::Result<(), Refusal> =
            self.route.borrow_mut().request(flags, message, |_, _| {});
        done.map_err(|refusal| Error::refused(doing(), refusal))
    }
}

/// The message that sets HTB at the root of a netdev. Frames without one of its classes go to the default class.
fn root(ifindex: u32, major: u16) -> Message {
    let words = [HTB_VERSION, 10, QueueTree::DEFAULT.into(), 0, 0];
    let init: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
    Message {
        kind: RTM_NEWQDISC,
        ifindex,
        handle: handle(major, 0),
        parent: ROOT,
        attributes: vec![text(KIND, "htb"), nest(OPTIONS, &[attribute(HTB_INIT, init)])],
    }
}

/// Struct tc_ratespec.
fn rate_spec(bytes_per_s: u64) -> [u8; 12] {
    let mut spec = [0; 12];
    spec[1] = LINKLAYER_ETHERNET;
    // HTB_RATE64 and HTB_CEIL64 carry a rate that this field cannot hold.
    spec[8..].copy_from_slice(&u32::try_from(bytes_per_s).unwrap_or(u32::MAX).to_ne_bytes());
    spec
}

/// The time, in ticks, for which a class saves tokens.
fn burst_ticks(bytes_per_s: u64) -> u32 {
    let frames_ns = FRAMES_BYTES * 1_000_000_000 / bytes_per_s.max(1);
    u32::try_from((BURST_NS + frames_ns) / TICK_NS).unwrap_or(u32::MAX)
}

fn class(ifindex: u32, major: u16, parent: u32, of: &QueueClass) -> Message {
    let (rate, ceil) = ((of.rate_bps / 8).max(1), (of.ceil_bps / 8).max(1));
    let mut parameters = Vec::with_capacity(44);
    parameters.extend(rate_spec(rate));
    parameters.extend(rate_spec(ceil));
    for word in [burst_ticks(rate), burst_ticks(ceil), of.quantum, 0, of.priority.into()] {
        parameters.extend(word.to_ne_bytes());
    }
    let options = [
        attribute(HTB_PARMS, parameters),
        attribute(HTB_RATE64, rate.to_ne_bytes()),
        attribute(HTB_CEIL64, ceil.to_ne_bytes()),
    ];
    Message {
        kind: RTM_NEWTCLASS,
        ifindex,
        handle: handle(major, of.minor),
        parent,
        attributes: vec![text(KIND, "htb"), nest(OPTIONS, &options)],
    }
}

/// The queue of a class: struct tc_fifo_qopt.
fn fifo(ifindex: u32, major: u16, of: &QueueClass) -> Message {
    let (kind, limit) = match of.limit {
        QueueLength::Packets(packets) => ("pfifo", packets),
        QueueLength::Bytes(bytes) => ("bfifo", bytes),
    };
    Message {
        kind: RTM_NEWQDISC,
        ifindex,
        handle: leaf(major, of.minor),
        parent: handle(major, of.minor),
        attributes: vec![text(KIND, kind), attribute(OPTIONS, limit.to_ne_bytes())],
    }
}

fn stats(minor: u16, payload: &[u8]) -> QueueStats {
    let mut stats = QueueStats { minor, ..QueueStats::default() };
    let Some(all) = attributes(payload, HEADER).find(|nla| nla.kind() == STATS2) else { return stats };
    for nla in attributes(all.value(), 0) {
        let value = nla.value();
        let word =
            |at: usize| value.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
        match nla.kind() {
            // Struct gnet_stats_basic: bytes in 64 bits, packets in 32.
            STATS_BASIC => {
                let bytes = value.get(..8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
                (stats.sent_bytes, stats.sent_frames) = (bytes, word(8).into());
            }
            // Struct gnet_stats_queue: packets and bytes that wait, drops.
            STATS_QUEUE => {
                (stats.waiting_frames, stats.waiting_bytes) = (word(0).into(), word(4).into());
                stats.dropped = word(8).into();
            }
            _ => {}
        }
    }
    stats
}
