//! The frames of a stream: a header that is written once, and the fields that differ from frame to frame.
//!
//! Read first: `bpf/send.bpf.c`, which fills in templates inside the kernel; [`Template::frame`] does the same here,
//! for sockets. RFC 768 and RFC 1071 for the checksums. Invariant: both make the same bytes from the same numbers (a
//! test lets the kernel's checker check the frames of a socket, and the other way round).

use super::abi::{
    FILL, HEAD_MAX, SEND_CHECKSUM, SEND_DST_GROUP, SEND_DST_IP, SEND_DST_MAC, SEND_RANDOM, SEND_STAMP,
    SEND_VERIFY, SLOT_BITS, SenderAbi,
};
use crate::traffic::{Cast, FCS, HOSTS_MAX, Hosts, Ip, Order, SIZE_MIN, Stream};
use anyhow::{Result, ensure};
use zerocopy::FromZeros as _;

/// The smallest frame that can carry a stamp, with FCS: Ethernet, the stamp. Below [`SIZE_MIN`] frames are undersize
/// (RFC 2889, 5.9) and have neither IP nor UDP.
pub const SIZE_RUNT: usize = 14 + STAMP + FCS;
/// The largest frame, with FCS and tag: what common "jumbo" devices carry.
pub const SIZE_JUMBO: usize = 9216;
/// Bytes of a stamp: magic, stream, sequence number, time.
pub const STAMP: usize = 14;
/// The stamp's first two bytes: "LY".
pub const MAGIC: [u8; 2] = *b"LY";
/// UDP ports. The source port identifies the tester's frames even if their stamp is corrupted. The destination
/// port is echo, as in RFC 2544, C.2.6.4.2.
pub const UDP_PORTS: (u16, u16) = (49184, 7);

/// The layout of a frame after Ethernet and tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Layout {
    /// EtherType 0x88b5 and the stamp.
    Raw,
    /// IPv4, UDP, stamp.
    V4,
    /// IPv6, UDP, stamp.
    V6,
}

/// A stream, ready to be sent.
#[derive(Debug, Clone)]
pub struct Template {
    /// The description for the kernel. Rate and limit are set later.
    pub abi: SenderAbi,
    layout: Layout,
    l3: usize,
}

impl Template {
    /// The template of `stream` as number `slot` of the trial `epoch`.
    ///
    /// # Errors
    /// For an impossible stream: a size without room for its headers, no hosts, an invalid VLAN.
    pub fn new(stream: &Stream, slot: usize, epoch: u32) -> Result<Self> {
        let layout = check(stream)?;
        let l3 = if stream.vlan.is_some() { 18 } else { 14 };
        let mut frame = vec![FILL; stream.size - FCS];
        let (group_or_host, flags) = ethernet(&mut frame, stream, layout, l3);
        let udp = match layout {
            Layout::Raw => l3,
            Layout::V4 => ipv4(&mut frame, stream, l3),
            Layout::V6 => ipv6(&mut frame, stream, l3),
        };
        let stamp = if layout == Layout::Raw { l3 } else { udp + 8 };
        frame[stamp..stamp + STAMP].fill(0);
        frame[stamp..stamp + 2].copy_from_slice(&MAGIC);
        let number = epoch << SLOT_BITS | slot as u32;
        frame[stamp + 2..stamp + 4].copy_from_slice(&(number as u16).to_ne_bytes());
        let mut abi = SenderAbi::new_zeroed();
        if layout != Layout::Raw {
            let length = ((frame.len() - udp) as u16).to_be_bytes();
            frame[udp..udp + 2].copy_from_slice(&UDP_PORTS.0.to_be_bytes());
            frame[udp + 2..udp + 4].copy_from_slice(&UDP_PORTS.1.to_be_bytes());
            frame[udp + 4..udp + 6].copy_from_slice(&length);
            frame[udp + 6..udp + 8].fill(0);
            let addresses = if layout == Layout::V4 { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
            abi.udp_sum = sum(&frame[addresses]) + sum(&[0, 17]) + sum(&length) + sum(&frame[udp..]);
            abi.ip_sum = if layout == Layout::V4 { sum(&frame[l3..l3 + 20]) } else { 0 };
        }
        let head = (stamp + STAMP).min(HEAD_MAX);
        abi.head[..head].copy_from_slice(&frame[..head]);
        abi.flags = flags | options(stream, layout) | group_or_host;
        abi.length = frame.len() as u16;
        abi.tagged = stream.vlan.is_some().into();
        abi.layout = layout as u8;
        (abi.src_first, abi.src_count) = (stream.src.first, stream.src.count);
        (abi.dst_first, abi.dst_count) = (stream.dst.first, stream.dst.count);
        Ok(Self { abi, layout, l3 })
    }

    /// Frame number `seq`, stamped with `now_ns` if the stream's frames are stamped. Must be called in the
    /// order of `seq`.
    pub fn frame(&mut self, seq: u64, now_ns: u64) -> Vec<u8> {
        let (src, dst) = self.pick(seq);
        let abi = &self.abi;
        let has = |flag| abi.flags & flag != 0;
        let mut frame = vec![FILL; abi.length.into()];
        let stamp = self.stamp_at();
        let head = stamp + STAMP;
        frame[..head].copy_from_slice(&abi.head[..head]);
        let (high, low) = split(src);
        frame[9] = high;
        frame[10..12].copy_from_slice(&low);
        if has(SEND_DST_MAC) {
            let (high, low) = split(dst);
            frame[3] = high;
            frame[4..6].copy_from_slice(&low);
        }
        frame[stamp + 4..stamp + 8].copy_from_slice(&(seq as u32).to_ne_bytes());
        if has(SEND_STAMP) {
            frame[stamp + 8..stamp + 12].copy_from_slice(&(now_ns as u32).to_ne_bytes());
            frame[stamp + 12..stamp + 14].copy_from_slice(&((now_ns >> 32) as u16).to_ne_bytes());
        }
        let (l3, v4) = (self.l3, self.layout == Layout::V4);
        if self.layout == Layout::Raw {
            return frame;
        }
        let mut put = |high_at: usize, low_at: usize, host: u32| {
            let (high, low) = split(host);
            frame[high_at] = high;
            frame[low_at..low_at + 2].copy_from_slice(&low);
        };
        let mut total = u64::from(sum_of(src));
        if v4 {
            put(l3 + 13, l3 + 14, src)
        } else {
            put(l3 + 15, l3 + 22, src)
        };
        if has(SEND_DST_IP) {
            total += u64::from(sum_of(dst));
            let high = if has(SEND_DST_GROUP) { l3 + 37 } else { l3 + 31 };
            if v4 {
                put(l3 + 17, l3 + 18, dst)
            } else {
                put(high, l3 + 38, dst)
            };
        }
        if v4 {
            let checksum = !fold(total + u64::from(abi.ip_sum));
            frame[l3 + 10..l3 + 12].copy_from_slice(&checksum.to_ne_bytes());
        }
        if has(SEND_CHECKSUM) {
            total += u64::from(abi.udp_sum) + u64::from(sum(&frame[stamp + 4..stamp + STAMP]));
            let checksum = match !fold(total) {
                0 => 0xffff,
                sum => sum,
            };
            frame[stamp - 2..stamp].copy_from_slice(&checksum.to_ne_bytes());
        }
        frame
    }

    fn stamp_at(&self) -> usize {
        match self.layout {
            Layout::Raw => self.l3,
            Layout::V4 => self.l3 + 28,
            Layout::V6 => self.l3 + 48,
        }
    }

    fn pick(&mut self, seq: u64) -> (u32, u32) {
        let abi = &mut self.abi;
        let (src, dst) = if abi.flags & SEND_RANDOM != 0 {
            let mut h = (seq + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            h ^= h >> 31;
            let of = |half: u64, count: u32| ((half * u64::from(count)) >> 32) as u32;
            (of(h & 0xffff_ffff, abi.src_count), of(h >> 32, abi.dst_count))
        } else {
            (step(&mut abi.next_src, abi.src_count), step(&mut abi.next_dst, abi.dst_count))
        };
        (src + abi.src_first, dst + abi.dst_first)
    }
}

fn step(next: &mut u32, count: u32) -> u32 {
    let now = *next;
    *next = if now + 1 >= count { 0 } else { now + 1 };
    now
}

/// Splits a host's number as in addresses: the high byte, and the two bytes below.
fn split(host: u32) -> (u8, [u8; 2]) {
    let [_, high, middle, low] = host.to_be_bytes();
    (high, [middle, low])
}

fn sum_of(host: u32) -> u32 {
    let (high, low) = split(host);
    u32::from(u16::from_ne_bytes([0, high])) + u32::from(u16::from_ne_bytes(low))
}

/// The checksum of RFC 1071 without the final folding, in the byte order of memory; an odd last byte is
/// padded.
pub fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|w| u32::from(u16::from_ne_bytes([w[0], w.get(1).copied().unwrap_or(0)]))).sum()
}

/// Folds a sum to 16 bits.
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// True when the UDP checksum of `segment` between these addresses is correct.
pub fn sound(addresses: &[u8], segment: &[u8]) -> bool {
    let length = (segment.len() as u16).to_be_bytes();
    let total = sum(addresses) + sum(&[0, 17]) + sum(&length);
    fold(u64::from(total) + u64::from(sum(segment))) == 0xffff
}

fn check(stream: &Stream) -> Result<Layout> {
    let tag = if stream.vlan.is_some() { 4 } else { 0 };
    let layout = match stream.ip {
        _ if stream.size < SIZE_MIN => Layout::Raw,
        Ip::V4 => Layout::V4,
        Ip::V6 => Layout::V6,
    };
    let least = match layout {
        Layout::Raw => SIZE_RUNT + tag,
        Layout::V4 => SIZE_MIN,
        Layout::V6 => 14 + tag + 40 + 8 + STAMP + FCS,
    };
    ensure!(
        (least..=SIZE_JUMBO).contains(&stream.size),
        "frame size {}: {least}-{SIZE_JUMBO} for these headers",
        stream.size
    );
    for hosts in [stream.src, stream.dst] {
        check_hosts(hosts)?;
    }
    ensure!(stream.vlan.is_none_or(|v| (1..=4094).contains(&v)), "VLAN {:?}: 1-4094", stream.vlan);
    ensure!(stream.pcp <= 7, "priority {}: 0-7", stream.pcp);
    ensure!(stream.pcp == 0 || stream.vlan.is_some(), "a priority is part of a tag: give a VLAN");
    ensure!(stream.rate_pps.is_none_or(|r| r >= 1), "rate 0: at least 1 frame/s");
    ensure!(
        !(stream.verify && layout == Layout::Raw),
        "frames below {SIZE_MIN} bytes have no checksum to verify"
    );
    ensure!(!(stream.next_hop.is_some() && stream.cast != Cast::Unicast), "a next hop is for unicast");
    let narrow = stream.cast == Cast::Multicast && stream.ip == Ip::V4;
    ensure!(
        !narrow || stream.dst.first + stream.dst.count <= HOSTS_MAX / 2,
        "groups {:?}: IPv4 has {} with MAC addresses of their own",
        stream.dst,
        HOSTS_MAX / 2
    );
    Ok(layout)
}

fn check_hosts(hosts: Hosts) -> Result<()> {
    let fits = hosts.count >= 1 && u64::from(hosts.first) + u64::from(hosts.count) <= HOSTS_MAX.into();
    ensure!(fits, "hosts {hosts:?}: 1 to {HOSTS_MAX} of them");
    Ok(())
}

fn options(stream: &Stream, layout: Layout) -> u16 {
    let mut flags = 0;
    for (set, flag) in [
        (stream.order == Order::Random, SEND_RANDOM),
        (stream.stamp, SEND_STAMP),
        (stream.verify, SEND_VERIFY),
        // RFC 8200, 8.1: IPv6 has no UDP without a checksum.
        (stream.verify || layout == Layout::V6, SEND_CHECKSUM),
    ] {
        flags |= if set { flag } else { 0 };
    }
    flags
}

/// Writes addresses, tag and type. Returns `SEND_DST_GROUP` or 0, and the flags of the destination addresses that are to be
/// filled in per frame.
fn ethernet(frame: &mut [u8], stream: &Stream, layout: Layout, l3: usize) -> (u16, u16) {
    let (mac, flags, group) = match (stream.cast, stream.ip, stream.next_hop) {
        (Cast::Unicast, _, Some(mac)) => (mac, SEND_DST_IP, 0),
        (Cast::Unicast, _, None) => ([0x02, 0x4c, 0, 0, 0, 0], SEND_DST_MAC | SEND_DST_IP, 0),
        (Cast::Broadcast, _, _) => ([0xff; 6], 0, 0),
        (Cast::Multicast, Ip::V4, _) => ([0x01, 0x00, 0x5e, 0, 0, 0], SEND_DST_MAC | SEND_DST_IP, 0),
        (Cast::Multicast, Ip::V6, _) => {
            ([0x33, 0x33, 0, 0, 0, 0], SEND_DST_MAC | SEND_DST_IP, SEND_DST_GROUP)
        }
    };
    frame[..6].copy_from_slice(&mac);
    frame[6..12].copy_from_slice(&[0x02, 0x4c, 0, 0, 0, 0]);
    if let Some(vlan) = stream.vlan {
        frame[12..14].copy_from_slice(&0x8100u16.to_be_bytes());
        frame[14..16].copy_from_slice(&(u16::from(stream.pcp) << 13 | vlan).to_be_bytes());
    }
    let ether_type: u16 = match layout {
        Layout::Raw => 0x88b5, // IEEE 802: local experiments
        Layout::V4 => 0x0800,
        Layout::V6 => 0x86dd,
    };
    frame[l3 - 2..l3].copy_from_slice(&ether_type.to_be_bytes());
    (group, flags)
}

/// Writes the IPv4 header (RFC 791). Returns the offset of UDP.
fn ipv4(frame: &mut [u8], stream: &Stream, l3: usize) -> usize {
    let length = ((frame.len() - l3) as u16).to_be_bytes();
    let dst = match stream.cast {
        Cast::Unicast => [10, 0, 0, 0],
        Cast::Broadcast => [255; 4],
        Cast::Multicast => [239, 0, 0, 0],
    };
    let header = &mut frame[l3..l3 + 20];
    header.fill(0);
    header[0] = 0x45;
    header[2..4].copy_from_slice(&length);
    header[6] = 0x40; // do not fragment
    header[8] = 64;
    header[9] = 17;
    header[12] = 10;
    header[16..20].copy_from_slice(&dst);
    l3 + 20
}

/// Writes the IPv6 header (RFC 8200). Returns the offset of UDP.
fn ipv6(frame: &mut [u8], stream: &Stream, l3: usize) -> usize {
    let length = ((frame.len() - l3 - 40) as u16).to_be_bytes();
    let header = &mut frame[l3..l3 + 40];
    header.fill(0);
    header[0] = 0x60;
    header[4..6].copy_from_slice(&length);
    header[6] = 17;
    header[7] = 64;
    let benchmark = [0x20, 0x01, 0x00, 0x02]; // RFC 5180, section 8
    header[8..12].copy_from_slice(&benchmark);
    match stream.cast {
        Cast::Unicast => header[24..28].copy_from_slice(&benchmark),
        Cast::Broadcast => {
            header[24..26].copy_from_slice(&[0xff, 0x02]);
            header[39] = 1;
        }
        Cast::Multicast => header[24..26].copy_from_slice(&[0xff, 0x15]),
    }
    l3 + 40
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed step fails the test
mod tests {
    use super::*;

    /// Checks every checksum of a frame by computing it again from the bytes.
    fn assert_sums(frame: &[u8], what: &str) {
        let l3 = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
        let (addresses, udp) = match frame[l3] >> 4 {
            4 => {
                assert_eq!(fold(sum(&frame[l3..l3 + 20]).into()), 0xffff, "{what}: IPv4");
                (l3 + 12..l3 + 20, l3 + 20)
            }
            _ => (l3 + 8..l3 + 40, l3 + 40),
        };
        if frame[udp + 6..udp + 8] != [0, 0] {
            assert!(sound(&frame[addresses], &frame[udp..]), "{what}: UDP");
        }
    }

    #[test]
    fn checksums_are_right_whatever_is_filled_in() {
        for ip in [Ip::V4, Ip::V6] {
            for cast in [Cast::Unicast, Cast::Broadcast, Cast::Multicast] {
                for (vlan, size) in [(None, 80), (Some(7), 84), (None, 1517), (Some(4094), 9216)] {
                    let hosts = |first| Hosts { first, count: 70_000 };
                    let stream = Stream {
                        ip,
                        cast,
                        vlan,
                        order: Order::Random,
                        src: hosts(0x1_fff0),
                        dst: hosts(0x33_0000),
                        verify: true,
                        stamp: true,
                        ..Stream::new()
                    }
                    .size(size);
                    let mut template = Template::new(&stream, 1023, 63).unwrap();
                    for seq in [0, 1, 77, 0xffff_ffff] {
                        let frame = template.frame(seq, 0xfedc_ba98_7654_3210);
                        assert_eq!(frame.len(), size - FCS);
                        assert_sums(&frame, &format!("{ip:?} {cast:?} {vlan:?} {size} {seq}"));
                    }
                }
            }
        }
    }

    #[test]
    fn addresses() {
        let check = |stream: Stream, mac: &str, l3: usize, address: &[u8]| {
            let mut template = Template::new(&stream, 0, 0).unwrap();
            let frame = template.frame(0, 0);
            let seen: Vec<String> = frame[..6].iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(seen.join(":"), mac, "{stream:?}");
            assert_eq!(&frame[l3..l3 + address.len()], address, "{stream:?}");
        };
        let to = |ip, cast| Stream { ip, cast, dst: Hosts::one(0x12_3456), ..Stream::new() }.size(80);
        check(to(Ip::V4, Cast::Unicast), "02:4c:00:12:34:56", 30, &[10, 0x12, 0x34, 0x56]);
        check(to(Ip::V4, Cast::Broadcast), "ff:ff:ff:ff:ff:ff", 30, &[255; 4]);
        check(to(Ip::V4, Cast::Multicast), "01:00:5e:12:34:56", 30, &[239, 0x12, 0x34, 0x56]);
        let v6 = |a: [u8; 2], b: [u8; 2], c: [u8; 2], tail: [u8; 4]| {
            let mut address = [0; 16];
            address[..2].copy_from_slice(&a);
            address[2..4].copy_from_slice(&b);
            address[6..8].copy_from_slice(&c);
            address[12..].copy_from_slice(&tail);
            address
        };
        let host = v6([0x20, 1], [0, 2], [0, 0x12], [0, 0, 0x34, 0x56]);
        check(to(Ip::V6, Cast::Unicast), "02:4c:00:12:34:56", 38, &host);
        let group = v6([0xff, 0x15], [0, 0], [0, 0], [0, 0x12, 0x34, 0x56]);
        check(to(Ip::V6, Cast::Multicast), "33:33:00:12:34:56", 38, &group);
        let router = Stream { next_hop: Some([2, 0, 0, 0, 0, 9]), ..to(Ip::V4, Cast::Unicast) };
        check(router, "02:00:00:00:00:09", 30, &[10, 0x12, 0x34, 0x56]);
        check(Stream::new().size(32), "02:4c:00:00:00:01", 12, &[0x88, 0xb5, b'L', b'Y']);
        let tagged = Stream { vlan: Some(0x123), pcp: 5, ..to(Ip::V4, Cast::Unicast) };
        check(tagged, "02:4c:00:12:34:56", 12, &[0x81, 0, 0xa1, 0x23, 8, 0]);
    }

    #[test]
    fn streams_that_cannot_be() {
        let check = |stream: Stream, word: &str| {
            let why = Template::new(&stream, 0, 0).err().map(|e| format!("{e:#}")).unwrap_or_default();
            assert!(why.contains(word), "{stream:?}: {why}");
        };
        check(Stream::new().size(31), "32-9216");
        check(Stream { vlan: Some(1), ..Stream::new().size(35) }, "36-9216");
        check(Stream::new().size(9217), "64-9216");
        check(Stream { ip: Ip::V6, ..Stream::new().size(79) }, "80-9216");
        check(Stream { vlan: Some(4095), ..Stream::new() }, "1-4094");
        check(Stream { pcp: 1, ..Stream::new() }, "give a VLAN");
        check(Stream { pcp: 8, vlan: Some(1), ..Stream::new() }, "0-7");
        check(Stream { rate_pps: Some(0), ..Stream::new() }, "at least 1");
        check(Stream { verify: true, ..Stream::new().size(63) }, "no checksum");
        check(Stream { src: Hosts { first: 0, count: 0 }, ..Stream::new() }, "hosts");
        let group = Stream { cast: Cast::Multicast, dst: Hosts::one(1 << 23), ..Stream::new() };
        check(group, "groups");
    }
}
