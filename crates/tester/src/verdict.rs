//! Checks a frame that arrived in the same way as `bpf/checker.bpf.c`, for receivers outside the kernel.
//!
//! Read first: RFC 4737, 3.3 (reordered), RFC 6479 (the window that distinguishes a duplicate from a late frame).
//! Invariant: the program and this module give the same results for the same frames (`tests/tester.rs` and
//! `tests/impaired.rs` of lanyard-bench run every check with both).

use super::abi::{EPOCHS, FlowAbi, SLOT_BITS, SLOTS_MAX, WINDOW_WORDS};
use super::template::{MAGIC, STAMP, UDP_PORTS, sound};
use crate::histogram::bucket_of;

/// The first two bytes of every host's MAC address. They mark the tester's frames.
const HOST_MARK: [u8; 2] = [0x02, 0x4c];
/// The stamp's clock has 48 bits.
const CLOCK_MASK: u64 = (1 << 48) - 1;

/// The counts of all frames that have arrived at a port in this trial.
#[derive(Default)]
pub struct Verdicts {
    /// The number of the trial; frames of other trials are not counted.
    pub epoch: u32,
    /// The trial's streams.
    pub flows: Vec<FlowAbi>,
    /// Frames with the tester's mark that belong to no stream, or whose stamp is corrupted.
    pub unidentified: u64,
}

/// The positions of the parts of a frame.
struct Place {
    /// The positions of the IP addresses and of the UDP header; `None` for frames that are too short for IP.
    segment: Option<(std::ops::Range<usize>, usize)>,
    stamp: usize,
}

fn u16_at(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?))
}

fn locate(frame: &[u8]) -> Option<Place> {
    let tagged = u16_at(frame, 12)? == 0x8100;
    let l3 = if tagged { 18 } else { 14 };
    let place = |addresses: std::ops::Range<usize>, udp: usize| Place {
        segment: Some((l3 + addresses.start..l3 + addresses.end, l3 + udp)),
        stamp: l3 + udp + 8,
    };
    match u16_at(frame, l3 - 2)? {
        0x0800 => Some(place(12..20, 20)),
        0x86dd => Some(place(8..40, 40)),
        0x88b5 => Some(Place { segment: None, stamp: l3 }),
        _ => None,
    }
}

impl Verdicts {
    /// Checks a frame that arrived at `now_ns` (CLOCK_MONOTONIC). Frames of others are ignored.
    pub fn take(&mut self, frame: &[u8], now_ns: u64) {
        let ours = frame.get(6..8) == Some(&HOST_MARK);
        let Some(place) = locate(frame) else {
            self.unidentified += u64::from(ours);
            return;
        };
        let stamp = frame.get(place.stamp..place.stamp + STAMP).filter(|stamp| stamp[..2] == MAGIC);
        let Some(stamp) = stamp else {
            // The stamp is corrupted. It is still a frame of the tester if its source or its UDP port says
            // so.
            let port = place.segment.as_ref().and_then(|(_, udp)| u16_at(frame, *udp));
            self.unidentified += u64::from(ours || port == Some(UDP_PORTS.0));
            return;
        };
        let number = u32::from(u16::from_ne_bytes([stamp[2], stamp[3]]));
        if number >> SLOT_BITS != self.epoch % EPOCHS {
            return;
        }
        let Some(flow) = self.flows.get_mut(number as usize & (SLOTS_MAX - 1)) else {
            self.unidentified += 1;
            return;
        };
        if flow.verify != 0 && !place.is_sound(frame) {
            flow.corrupted += 1;
            return;
        }
        let word = |at: usize| u32::from_ne_bytes([stamp[at], stamp[at + 1], stamp[at + 2], stamp[at + 3]]);
        let sent_ns = u64::from(word(8)) | u64::from(u16::from_ne_bytes([stamp[12], stamp[13]])) << 32;
        note(flow, word(4).into(), sent_ns, now_ns);
    }
}

impl Place {
    /// True when the UDP checksum is correct (RFC 768; RFC 8200, 8.1).
    fn is_sound(&self, frame: &[u8]) -> bool {
        let Some((addresses, udp)) = &self.segment else { return false };
        let length = u16_at(frame, udp + 4).unwrap_or(0);
        match (frame.get(addresses.clone()), frame.get(*udp..udp + usize::from(length))) {
            (Some(addresses), Some(segment)) if length >= 8 => sound(addresses, segment),
            _ => false,
        }
    }
}

fn note(flow: &mut FlowAbi, seq: u64, sent_ns: u64, now_ns: u64) {
    if flow.first_ns == 0 {
        flow.first_ns = now_ns;
    } else if now_ns > flow.last_ns && now_ns - flow.last_ns > flow.gap_ns {
        flow.gap_at_ns = flow.last_ns;
        flow.gap_ns = now_ns - flow.last_ns;
    }
    flow.last_ns = flow.last_ns.max(now_ns);
    if !is_new(flow, seq, now_ns) {
        return;
    }
    flow.received += 1;
    if sent_ns == 0 {
        return;
    }
    let latency = now_ns.wrapping_sub(sent_ns) & CLOCK_MASK;
    // The stamp and the time of arrival come from different clocks, so the difference may be negative: it counts as zero.
    let latency = if latency >> 47 == 1 { 0 } else { latency };
    flow.buckets[bucket_of(latency)] += 1;
    flow.latency_sum += latency;
    flow.latency_min = flow.latency_min.min(latency);
    flow.latency_max = flow.latency_max.max(latency);
}

/// False for a frame that has arrived before.
fn is_new(flow: &mut FlowAbi, seq: u64, now_ns: u64) -> bool {
    let bit = 1u64 << (seq & 63);
    let word = (seq >> 6) as usize % WINDOW_WORDS;
    if seq >= flow.next {
        if seq > flow.next {
            flow.loss_ns = now_ns;
        }
        advance(flow, seq);
        flow.window[word] |= bit;
        return true;
    }
    // A frame older than the window counts as late, not as a duplicate.
    if flow.next - seq <= (WINDOW_WORDS as u64 - 1) * 64 {
        if flow.window[word] & bit != 0 {
            flow.duplicated += 1;
            return false;
        }
        flow.window[word] |= bit;
    }
    flow.reordered += 1;
    true
}

/// Moves the window up to `seq`. Words that enter the window are cleared.
fn advance(flow: &mut FlowAbi, seq: u64) {
    let last = seq >> 6;
    let word = if flow.next > 0 { (flow.next - 1) >> 6 } else { 0 };
    for word in word.max(last.saturating_sub(WINDOW_WORDS as u64)) + 1..=last {
        flow.window[word as usize % WINDOW_WORDS] = 0;
    }
    flow.next = seq + 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Template;
    use crate::traffic::{Ip, Stream};

    const EPOCH: u32 = 5;

    fn stream(ip: Ip, vlan: Option<u16>) -> Stream {
        Stream { ip, vlan, verify: true, stamp: true, ..Stream::new() }.size(90)
    }

    fn template(stream: &Stream, slot: usize) -> Template {
        Template::new(stream, slot, EPOCH).unwrap_or_else(|why| unreachable!("{why:#}"))
    }

    fn verdicts(streams: usize) -> Verdicts {
        Verdicts { epoch: EPOCH, flows: vec![FlowAbi::empty(true); streams], unidentified: 0 }
    }

    /// The numbers of received, duplicated, reordered and corrupted frames.
    fn counts(flow: &FlowAbi) -> (u64, u64, u64, u64) {
        (flow.received, flow.duplicated, flow.reordered, flow.corrupted)
    }

    #[test]
    fn every_layout_is_read() {
        for ip in [Ip::V4, Ip::V6] {
            for vlan in [None, Some(7)] {
                let (mut seen, mut template) = (verdicts(2), template(&stream(ip, vlan), 1));
                let mut frame = template.frame(0, 1_000);
                seen.take(&frame, 1_700);
                frame[88 - 4] ^= 1;
                seen.take(&frame, 1_800);
                assert_eq!((counts(&seen.flows[1]), seen.unidentified), ((1, 0, 0, 1), 0), "{ip:?} {vlan:?}");
                assert_eq!((seen.flows[1].latency_min, seen.flows[1].latency_sum), (700, 700));
            }
        }
        let mut seen = Verdicts { epoch: EPOCH, flows: vec![FlowAbi::empty(false)], unidentified: 0 };
        seen.take(&template(&Stream::new().size(32), 0).frame(0, 0), 9);
        assert_eq!(counts(&seen.flows[0]), (1, 0, 0, 0));
    }

    #[test]
    fn late_and_duplicate_frames_are_counted() {
        let check = |order: &[u64], expected| {
            let (mut seen, mut template) = (verdicts(1), template(&stream(Ip::V4, None), 0));
            for (at, seq) in order.iter().enumerate() {
                seen.take(&template.frame(*seq, 1), 1_000 + at as u64);
            }
            assert_eq!(counts(&seen.flows[0]), expected, "{order:?}");
            seen.flows[0]
        };
        let flow = check(&[0, 1, 2, 3], (4, 0, 0, 0));
        assert_eq!((flow.loss_ns, flow.first_ns, flow.last_ns, flow.gap_ns), (0, 1_000, 1_003, 1));
        assert_eq!(check(&[0, 2, 3], (3, 0, 0, 0)).loss_ns, 1_001);
        check(&[0, 2, 1, 3], (4, 0, 1, 0));
        check(&[0, 0, 1, 1], (2, 2, 0, 0));
        // Within the window a duplicate is recognised; outside, it counts as late.
        let edge = (WINDOW_WORDS as u64 - 1) * 64;
        check(&[0, edge - 1, 0], (2, 1, 0, 0));
        check(&[0, edge, 0], (3, 0, 1, 0));
        // Words that enter the window again are cleared.
        check(&[1, 40_000, 40_000 - 7], (3, 0, 1, 0));
        check(&[1, 4_000_000, 4_000_000 - 64], (3, 0, 1, 0));
    }

    #[test]
    fn frames_of_other_trials_and_senders_are_not_counted_as_received() {
        let mut seen = verdicts(1);
        let frame = template(&stream(Ip::V4, None), 0).frame(0, 1);
        let mut check = |name: &str, change: &dyn Fn(&mut Vec<u8>), unidentified: u64| {
            let mut frame = frame.clone();
            change(&mut frame);
            let before = seen.unidentified;
            seen.take(&frame, 5);
            assert_eq!(
                (counts(&seen.flows[0]), seen.unidentified - before),
                ((0, 0, 0, 0), unidentified),
                "{name}"
            );
        };
        let foreign = |f: &mut Vec<u8>| f[6..8].fill(0x66);
        check("another trial's", &|f| f[14 + 28 + 3] ^= 1 << 4, 0);
        check("a stream too many", &|f| f[14 + 28 + 2] = 1, 1);
        check("no stamp", &|f| f[14 + 28] = 0, 1);
        check("no stamp, by its port", &|f| (f[14 + 28] = 0, foreign(f)).1, 1);
        check("somebody's", &|f| (f[14 + 28] = 0, f[14 + 20] = 0, foreign(f)).2, 0);
        check("another type", &|f| f[12] = 0x99, 1);
        check("somebody's type", &|f| (f[12] = 0x99, foreign(f)).1, 0);
        check("cut", &|f| f.truncate(50), 1);
        check("nothing", &|f| f.truncate(3), 0);
    }
}
