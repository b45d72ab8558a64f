//! Quality of service: the policies of ports, the policers' arithmetic, and the marking of packets.
//!
//! Read first: RFC 2697 (single rate, three colours), RFC 2698 (two rates, three colours), RFC 2474 (the DSCP).
//!
//! A policer's bucket is a virtual clock (GCRA, ITU-T I.371): the moment at which the bucket is full. Both pipelines calculate
//! with the same integers, in units of 2^-6 ns, because a nanosecond is too coarse for the bits of a short frame at 100 Gbit/s.
//!
//! Invariant: a policer depends on nothing but its settings, the lengths of frames and the time at which they come.

use crate::Timestamp;
use lanyard_acl::key::FrameFamily;
use lanyard_types::AclId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The classes of a policy, `class-default` included.
pub const MAX_CLASSES: usize = 32;

/// The upper bound, excluded, of the minor numbers of the classes of a port's queueing discipline; the lowest one is 1.
pub const MAX_QUEUES: u16 = 64;
/// The major number of the queueing discipline of a port with an output policy that has queues.
pub const QUEUE_MAJOR: u16 = 0x4c59;

/// The policies of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortQos {
    /// For the frames that it receives.
    pub input: Option<Arc<QosPolicy>>,
    /// For the frames that leave by it.
    pub output: Option<Arc<QosPolicy>>,
}

impl PortQos {
    /// The policy of a direction.
    #[must_use]
    pub const fn of(&self, direction: Direction) -> Option<&Arc<QosPolicy>> {
        match direction {
            Direction::Input => self.input.as_ref(),
            Direction::Output => self.output.as_ref(),
        }
    }
}

/// The direction of frames at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Direction {
    /// Received.
    Input = 0,
    /// Sent.
    Output = 1,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Self; 2] = [Self::Input, Self::Output];
    /// The keyword.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }
}

/// A policy at a port in one direction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QosPolicy {
    /// The policy map.
    pub name: String,
    /// The lists that classify frames, by their family (`lanyard_acl::FrameFamily::index`). The rule that matches a frame names its
    /// class: `FlatRule::list` is an index of `classes`. A frame that no rule matches is in the last class, and so is one without
    /// the header that its EtherType announces.
    pub lists: [Option<AclId>; 3],
    /// The classes, at least one and at most [`MAX_CLASSES`]; the last is `class-default`.
    pub classes: Vec<QosClass>,
}

/// A class of a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QosClass {
    /// The class map.
    pub name: String,
    /// How its frames are marked.
    pub mark: Mark,
    /// The limit of its rate.
    pub policer: Option<Policer>,
    /// The minor number of its class of the port's queueing discipline; 0: the discipline chooses.
    pub queue: u16,
}

/// The values that are written into a frame; `None` leaves the field unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The DSCP of an IPv4 or IPv6 packet, 0..=63.
    pub dscp: Option<u8>,
    /// The class of service of the tag with which the frame leaves, 0..=7.
    pub cos: Option<u8>,
}

impl Mark {
    /// This mark, with the values of `other` for the fields that it leaves unchanged.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { dscp: self.dscp.or(other.dscp), cos: self.cos.or(other.cos) }
    }
}

/// The colours of RFC 2697 and RFC 2698.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(usize)]
pub enum Colour {
    /// Conforms.
    #[default]
    Green = 0,
    /// Exceeds.
    Yellow = 1,
    /// Violates.
    Red = 2,
}

/// The treatment of frames of one colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ColourAction {
    /// They are dropped.
    Drop,
    /// They pass with this mark; the mark of the class applies to the fields that it leaves unchanged.
    Pass(Mark),
}

/// The limit of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policer {
    /// The committed rate in bits per second, 1..=[`Policer::MAX_BPS`], and its burst in bytes.
    pub committed: RateLimit,
    /// The second bucket.
    pub excess: Excess,
    /// The action for each colour, by its number.
    pub actions: [ColourAction; 3],
}

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit {
    /// Bits per second.
    pub bps: u64,
    /// Bytes.
    pub burst: u32,
}

/// The second bucket of a policer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Excess {
    /// None: a frame conforms or exceeds.
    None,
    /// A bucket of this many bytes that is filled with what the first one has no room for (RFC 2697).
    Overflow(u32),
    /// A bucket of its own: the peak rate (RFC 2698).
    Peak(RateLimit),
}

impl Policer {
    /// True if the buckets of both are the same.
    #[must_use]
    pub fn has_buckets_of(&self, other: &Self) -> bool {
        (self.committed, self.excess) == (other.committed, other.excess)
    }
    /// The highest rate.
    pub const MAX_BPS: u64 = 400_000_000_000;
}

/// The number of fractional bits of the time of a byte, whose unit is 2^-16 ns.
pub const COST_SHIFT: u32 = 16;
/// The number of fractional bits of a policer's times, whose unit is 2^-6 ns.
pub const TIME_SHIFT: u32 = 6;

/// A policer's settings as planes calculate with them: of each bucket the time of a byte in 2^-16 ns, and its depth as time in
/// 2^-6 ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// The time of a byte.
    pub byte_cost: [u64; 2],
    /// The depth.
    pub burst: [u64; 2],
}

impl Costs {
    /// The costs of a policer. Those of a second bucket that it does not have are 0.
    #[must_use]
    pub fn of(policer: &Policer) -> Self {
        let second = match policer.excess {
            Excess::None => None,
            Excess::Overflow(burst) => Some(RateLimit { bps: policer.committed.bps, burst }),
            Excess::Peak(peak) => Some(peak),
        };
        let cost = |limit: RateLimit| {
            let cost = (8_000_000_000_u64 << COST_SHIFT) / limit.bps.max(1);
            cost.clamp(1, u64::MAX >> 20)
        };
        let burst = |limit: RateLimit| {
            let time = (u128::from(limit.burst) * u128::from(cost(limit))) >> (COST_SHIFT - TIME_SHIFT);
            u64::try_from(time).unwrap_or(u64::MAX).min(1 << 61)
        };
        Self {
            byte_cost: [cost(policer.committed), second.map_or(0, cost)],
            burst: [burst(policer.committed), second.map_or(0, burst)],
        }
    }
    /// The time that a frame of `len` bytes takes from a bucket.
    const fn time(&self, bucket: usize, len: u64) -> u64 {
        (len * self.byte_cost[bucket]) >> (COST_SHIFT - TIME_SHIFT)
    }
}

/// The length of a frame without the switch's own tag, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// The length of the whole buffer, which is charged to the bucket.
    pub whole: u64,
    /// The length of the longest frame that the buffer becomes on a wire; the bucket must have room for it. If the whole buffer
    /// needed room, no buffer of a TCP stream would pass a bucket that is smaller than 64 KB. The rate is kept all the same,
    /// because the whole buffer is charged.
    pub longest: u64,
}

/// The state of a policer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Meter {
    /// For each bucket, the moment at which it is full, in units of 2^-6 ns; for the second bucket of RFC 2697, the time that it
    /// lacks until it is full.
    clock: [u64; 2],
}

impl Meter {
    /// The colour of a frame; takes its tokens.
    pub fn colour(&mut self, policer: &Policer, len: Length, now: Timestamp) -> Colour {
        let costs = Costs::of(policer);
        let now = now.as_nanos() << TIME_SHIFT;
        let Self { clock: [first, second] } = self;
        let charge = |bucket: usize| (costs.time(bucket, len.longest), costs.time(bucket, len.whole));
        match policer.excess {
            Excess::None if take(first, charge(0), costs.burst[0], now) => Colour::Green,
            Excess::None => Colour::Yellow,
            Excess::Overflow(_) => {
                *second = second.saturating_sub(now.saturating_sub(*first));
                *first = (*first).max(now);
                if take(first, charge(0), costs.burst[0], now) {
                    return Colour::Green;
                }
                let (longest, whole) = charge(1);
                if *second + longest > costs.burst[1] {
                    return Colour::Red;
                }
                *second += whole;
                Colour::Yellow
            }
            Excess::Peak(_) if !take(second, charge(1), costs.burst[1], now) => Colour::Red,
            Excess::Peak(_) if take(first, charge(0), costs.burst[0], now) => Colour::Green,
            Excess::Peak(_) => Colour::Yellow,
        }
    }
}

/// Takes a frame's time from a bucket of depth `burst`, if there is room for its longest part.
fn take(clock: &mut u64, (longest, whole): (u64, u64), burst: u64, now: u64) -> bool {
    let at = (*clock).max(now);
    if at + longest > now + burst {
        return false;
    }
    *clock = at + whole;
    true
}

/// The frames and bytes of a class, by colour. A class without a policer has green frames only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassCounters {
    /// Frames.
    pub frames: [u64; 3],
    /// Bytes, without the switch's own tag.
    pub bytes: [u64; 3],
}

/// Writes the DSCP into the packet at offset `at` of a frame whose header is valid, and corrects the checksum of IPv4 (RFC 1624).
/// False if the packet has this DSCP already, or the frame is too short.
pub(crate) fn mark_dscp(frame: &mut [u8], at: usize, family: FrameFamily, dscp: u8) -> bool {
    let Some(packet) = frame.get_mut(at..) else { return false };
    match family {
        FrameFamily::Ipv4 => {
            let Some(header) = packet.get_mut(..20) else { return false };
            let tos = header[1] & 3 | dscp << 2;
            if tos == header[1] {
                return false;
            }
            let word = |tos: u8, first: u8| u16::from_be_bytes([first, tos]);
            let (old, new) = (word(header[1], header[0]), word(tos, header[0]));
            let check = u16::from_be_bytes([header[10], header[11]]);
            header[1] = tos;
            header[10..12].copy_from_slice(&corrected(check, old, new).to_be_bytes());
            true
        }
        FrameFamily::Ipv6 => {
            let Some(header) = packet.get_mut(..2) else { return false };
            let traffic_class = header[0] << 4 | header[1] >> 4;
            let class = traffic_class & 3 | dscp << 2;
            if class == traffic_class {
                return false;
            }
            header[0] = header[0] & 0xf0 | class >> 4;
            header[1] = header[1] & 0x0f | class << 4;
            true
        }
        FrameFamily::Mac => false,
    }
}

/// The checksum after a word has changed: RFC 1624, equation 3.
fn corrected(check: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!check) + u32::from(!old) + u32::from(new);
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: ColourAction = ColourAction::Pass(Mark { dscp: None, cos: None });

    fn policer(bps: u64, burst: u32, excess: Excess) -> Policer {
        Policer {
            committed: RateLimit { bps, burst },
            excess,
            actions: [PASS, ColourAction::Drop, ColourAction::Drop],
        }
    }

    /// The colours of frames of 1,000 bytes at these moments in milliseconds.
    fn colours(policer: &Policer, at_ms: &[u64]) -> String {
        let mut meter = Meter::default();
        let len = Length { whole: 1000, longest: 1000 };
        let letter = |ms: &u64| match meter.colour(policer, len, Timestamp::from_nanos(ms * 1_000_000)) {
            Colour::Green => 'g',
            Colour::Yellow => 'y',
            Colour::Red => 'r',
        };
        at_ms.iter().map(letter).collect()
    }

    #[test]
    fn one_bucket_lets_its_burst_pass_and_then_the_rate() {
        // 8 kbit/s are 1,000 bytes a second.
        let policer = policer(8_000, 3_000, Excess::None);
        let at = [10_000, 10_000, 10_000, 10_000, 10_999, 11_000, 11_001, 60_000, 60_000, 60_000, 60_000];
        assert_eq!(colours(&policer, &at), "gggyygygggy");
    }

    #[test]
    fn the_excess_bucket_gets_the_overflow_of_the_committed_bucket() {
        let policer = policer(8_000, 2_000, Excess::Overflow(2_000));
        let at = [10_000, 10_000, 10_000, 10_000, 10_000];
        assert_eq!(colours(&policer, &at), "ggyyr");
        // One second fills the first bucket by one frame; the second gets nothing while the first has room.
        let at = [
            10_000, 10_000, 10_000, 10_000, 11_000, 11_000, 13_000, 13_000, 13_000, 14_000, 17_000, 17_000,
            17_000, 17_000,
        ];
        assert_eq!(colours(&policer, &at), "ggyygrggrgggyr");
    }

    #[test]
    fn two_rates_have_a_bucket_each() {
        let policer = policer(8_000, 1_000, Excess::Peak(RateLimit { bps: 16_000, burst: 2_000 }));
        let at = [10_000, 10_000, 10_000, 10_500, 11_000, 11_500, 12_000];
        // After a burst of the peak bucket, two frames a second pass, and one of them conforms.
        assert_eq!(colours(&policer, &at), "gyrygyg");
    }

    #[test]
    fn a_buffer_longer_than_the_bucket_passes_and_is_charged_in_full() {
        let policer = policer(8_000_000, 3_000, Excess::None);
        let mut meter = Meter::default();
        let len = Length { whole: 64_000, longest: 1_514 };
        let mut passes =
            |us: u64| meter.colour(&policer, len, Timestamp::from_nanos(us * 1_000)) == Colour::Green;
        // At a megabyte a second 64,000 bytes take 64 ms. The bucket holds 3 ms, and needs room for the 1.5 ms of the next
        // segment.
        let passed: Vec<u64> = (0..200).map(|ms| 1_000_000 + ms * 1_000).filter(|us| passes(*us)).collect();
        assert_eq!(passed, [1_000_000, 1_063_000, 1_127_000, 1_191_000]);
    }

    #[test]
    fn marking_keeps_congestion_bits_and_the_checksum_right() {
        let mut frame = vec![0; 14];
        frame.extend_from_slice(&[0x45, 0x03, 0, 20, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = |header: &[u8]| {
            let sum: u32 = header.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
            (sum & 0xffff) + (sum >> 16)
        };
        let check = !(sum(&frame[14..]) as u16);
        frame[24..26].copy_from_slice(&check.to_be_bytes());
        assert!(mark_dscp(&mut frame, 14, FrameFamily::Ipv4, 46));
        assert_eq!((frame[15], sum(&frame[14..])), (46 << 2 | 3, 0xffff));
        assert!(!mark_dscp(&mut frame, 14, FrameFamily::Ipv4, 46), "it is so already");
        let mut frame = vec![0x6a, 0xbc, 0xde, 0xf0];
        assert!(mark_dscp(&mut frame, 0, FrameFamily::Ipv6, 10));
        assert_eq!(
            frame,
            [0x62, 0xbc, 0xde, 0xf0],
            "the traffic class is 0xab, of which ECN is 3, and the flow label stays"
        );
        assert!(mark_dscp(&mut frame, 0, FrameFamily::Ipv6, 63));
        assert_eq!(frame, [0x6f, 0xfc, 0xde, 0xf0]);
    }
}
