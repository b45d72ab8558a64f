//! Frames whose sender has left work to the NIC: checksums to be filled in, and several segments of a stream in one buffer. A
//! buffer passes the chip as one frame, together with a description of the pending work, just as it passes the kernel. The last
//! receiver does the work: the kernel behind a netdev, or this file for drivers and datagram sockets, which take complete frames
//! only.
//!
//! Read first: VIRTIO 1.2, 5.1.6 (`struct virtio_net_hdr`); RFC 1071; RFC 9293, 3.1. Invariant: a frame that is not
//! understood is dropped, and never passed on incomplete.

/// The work that is pending on a frame: a `struct virtio_net_hdr`.
pub type Offload = [u8; 10];
/// No work is pending.
pub const NOTHING: Offload = [0; 10];

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// TCP flags that only the last segment has, FIN and PSH, and that only the first one has, CWR.
const LAST: u8 = 0x09;
const FIRST: u8 = 0x80;

/// Does the pending work: returns the complete frames, one for each segment of the buffer; none if `pending` is invalid.
#[must_use]
pub(super) fn whole(pending: &Offload, mut frame: Vec<u8>) -> Vec<Vec<u8>> {
    let word = |at: usize| usize::from(u16::from_ne_bytes([pending[at], pending[at + 1]]));
    let (needs, start, offset) = (pending[0] & NEEDS_CSUM != 0, word(6), word(8));
    match pending[1] & !GSO_ECN {
        GSO_NONE if !needs => vec![frame],
        GSO_NONE => {
            let done = fill_in(&mut frame, start, offset);
            done.map(|()| frame).into_iter().collect()
        }
        GSO_TCPV4 | GSO_TCPV6 | GSO_UDP_L4 if needs => {
            let udp = pending[1] & !GSO_ECN == GSO_UDP_L4;
            cut(&frame, start, word(4), udp).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// Completes the checksum of the bytes from `start` on, in the field at `start` + `offset`, which contains the sum of the pseudo
/// header. `None` if these are not within the frame.
fn fill_in(frame: &mut [u8], start: usize, offset: usize) -> Option<()> {
    let sum = !fold(add(0, frame.get(start..)?));
    let field = frame.get_mut(start + offset..start + offset + 2)?;
    // A UDP checksum of 0 means that there is none (RFC 768). For TCP 0xffff is equivalent to 0.
    field.copy_from_slice(&(if sum == 0 { 0xffff } else { sum }).to_be_bytes());
    Some(())
}

/// Divides a buffer into segments with at most `size` bytes of payload. `transport` is the offset of its TCP or UDP header.
/// `None` if the headers are invalid.
fn cut(frame: &[u8], transport: usize, size: usize, udp: bool) -> Option<Vec<Vec<u8>>> {
    let (network, ethertype) = network(frame)?;
    let header = if udp { 8 } else { usize::from(frame.get(transport + 12)? >> 4) * 4 };
    let payload_at = transport + header;
    let payload = frame.get(payload_at..).filter(|_| size > 0 && header >= 8 && transport > network)?;
    let mut all = Vec::new();
    let count = payload.len().div_ceil(size);
    for (at, part) in payload.chunks(size).enumerate() {
        let mut segment = [&frame[..payload_at], part].concat();
        let length = segment.len() - network;
        match ethertype {
            IPV4 => {
                let id = u16::from_be_bytes([segment[network + 4], segment[network + 5]]);
                put(&mut segment, network + 2, u16::try_from(length).ok()?);
                put(&mut segment, network + 4, id.wrapping_add(at as u16));
                put(&mut segment, network + 10, 0);
                let sum = !fold(add(0, &segment[network..transport]));
                put(&mut segment, network + 10, sum);
            }
            _ => put(&mut segment, network + 4, u16::try_from(length - 40).ok()?),
        }
        let checksum_at = if udp {
            put(&mut segment, transport + 4, (header + part.len()) as u16);
            transport + 6
        } else {
            let bytes = &segment[transport + 4..transport + 8];
            let sequence = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let sequence = sequence.wrapping_add((at * size) as u32);
            segment[transport + 4..transport + 8].copy_from_slice(&sequence.to_be_bytes());
            let flags = &mut segment[transport + 13];
            if at + 1 < count {
                *flags &= !LAST;
            }
            if at > 0 {
                *flags &= !FIRST;
            }
            transport + 16
        };
        put(&mut segment, checksum_at, 0);
        let pseudo = pseudo_header(&segment, network, ethertype, if udp { 17 } else { 6 }, transport);
        let sum = !fold(add(pseudo, &segment[transport..]));
        put(&mut segment, checksum_at, if sum == 0 { 0xffff } else { sum });
        all.push(segment);
    }
    Some(all)
}

/// The offset of the IP header and its EtherType; `None` for a packet that is neither IPv4 nor IPv6, or too
/// short.
fn network(frame: &[u8]) -> Option<(usize, u16)> {
    let mut at = 12;
    loop {
        let ethertype = u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]);
        at += 2;
        match ethertype {
            tag if TAGS.contains(&tag) => at += 2,
            IPV4 if frame.len() >= at + 20 => return Some((at, IPV4)),
            IPV6 if frame.len() >= at + 40 => return Some((at, IPV6)),
            _ => return None,
        }
    }
}

fn pseudo_header(frame: &[u8], network: usize, ethertype: u16, protocol: u32, transport: usize) -> u32 {
    let addresses = if ethertype == IPV4 { network + 12..network + 20 } else { network + 8..network + 40 };
    let length = (frame.len() - transport) as u32;
    add(0, &frame[addresses]) + protocol + (length >> 16) + (length & 0xffff)
}

fn put(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Adds up the 16-bit words of some bytes, at most 64 KB of them.
fn add(sum: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    let sum = words.iter().fold(sum, |sum, word| sum + u32::from(u16::from_be_bytes(*word)));
    sum + rest.first().map_or(0, |byte| u32::from(*byte) << 8)
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Length in bytes of the longest segment that a buffer is divided into, headers and tags included.
#[must_use]
pub(super) fn longest(pending: &Offload, frame: &[u8]) -> usize {
    let word = |at: usize| usize::from(u16::from_ne_bytes([pending[at], pending[at + 1]]));
    let (size, transport) = (word(4), word(6));
    let header = match pending[1] & !GSO_ECN {
        GSO_NONE => return frame.len(),
        GSO_UDP_L4 => 8,
        _ => frame.get(transport + 12).map_or(20, |byte| usize::from(byte >> 4) * 4),
    };
    frame.len().min(transport + header + size)
}

/// The pending work after the headers of a frame have become `by` bytes longer, or shorter if `by` is negative.
#[must_use]
pub(super) fn moved(pending: &Offload, by: isize) -> Offload {
    let mut moved = *pending;
    if pending[0] & NEEDS_CSUM == 0 && pending[1] == GSO_NONE {
        return NOTHING;
    }
    for at in [2, 6] {
        let word = u16::from_ne_bytes([pending[at], pending[at + 1]]);
        let word = u16::try_from(word as isize + by).unwrap_or(word);
        moved[at..at + 2].copy_from_slice(&word.to_ne_bytes());
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An Ethernet frame with IPv4 and TCP headers of 20 bytes, and a payload of consecutive numbers.
    fn stream(payload: usize) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x13, 0x88, 0x13, 0x89, 0, 0, 1, 0, 0, 0, 0, 0, 0x50, 0x99, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend((0..payload).map(|at| at as u8));
        frame
    }
    fn header(gso: u8, size: u16) -> [u8; 10] {
        let [size, start, offset] = [size, 34, 16].map(u16::to_ne_bytes);
        [1, gso, 54, 0, size[0], size[1], start[0], start[1], offset[0], offset[1]]
    }
    fn is_right(frame: &[u8]) -> bool {
        let pseudo = pseudo_header(frame, 14, IPV4, 6, 34);
        fold(add(pseudo, &frame[34..])) == 0xffff
    }

    #[test]
    fn a_stream_becomes_segments_with_checksums() {
        let all = whole(&header(GSO_TCPV4 | GSO_ECN, 1000), stream(2500));
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [1054, 1054, 554]);
        assert!(all.iter().all(|frame| is_right(frame) && fold(add(0, &frame[14..34])) == 0xffff));
        let sequences: Vec<u8> = all.iter().map(|frame| frame[40]).collect();
        assert_eq!(sequences, [1, 4, 8], "0x100, and 1,000 and 2,000 more");
        let flags: Vec<u8> = all.iter().map(|frame| frame[47]).collect();
        assert_eq!(flags, [0x90, 0x10, 0x19], "CWR first, FIN and PSH last");
        let payload: Vec<u8> = all.iter().flat_map(|frame| frame[54..].to_vec()).collect();
        assert_eq!(payload, stream(2500)[54..]);
    }

    #[test]
    fn a_checksum_is_filled_in() {
        let mut frame = stream(100);
        let pseudo = fold(pseudo_header(&frame, 14, IPV4, 6, 34));
        put(&mut frame, 50, pseudo);
        let all = whole(&header(GSO_NONE, 0), frame.clone());
        assert!(all.len() == 1 && is_right(&all[0]));
        assert_eq!(whole(&[0; 10], frame.clone()), [frame], "nothing is to be done");
    }

    #[test]
    fn frames_with_unsupported_segmentation_are_dropped() {
        assert!(whole(&header(GSO_TCPV4, 0), stream(100)).is_empty(), "no size");
        assert!(whole(&header(3, 1000), stream(100)).is_empty(), "fragments of UDP");
        for length in 0..60 {
            let _ = whole(&header(GSO_TCPV4, 10), stream(100)[..length].to_vec());
            let _ = whole(&header(GSO_NONE, 10), stream(100)[..length].to_vec());
        }
    }

    #[test]
    fn an_inserted_tag_shifts_the_offsets_of_pending_offloads() {
        let pending = header(GSO_TCPV4, 1000);
        let frame = stream(2500);
        assert_eq!(longest(&pending, &frame), 54 + 1000);
        assert_eq!(longest(&NOTHING, &frame), frame.len());
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0, 0, 10]);
        let there = moved(&pending, 4);
        assert_eq!(longest(&there, &tagged), 58 + 1000);
        let cut = whole(&there, tagged);
        assert_eq!(cut.len(), 3);
        assert!(
            cut.iter().all(|frame| fold(add(pseudo_header(frame, 18, IPV4, 6, 38), &frame[38..])) == 0xffff)
        );
        assert_eq!(moved(&there, -4), pending);
        assert_eq!(moved(&NOTHING, 4), NOTHING);
    }
}
