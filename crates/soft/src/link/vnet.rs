//! Pending work on a frame: `struct virtio_net_hdr` (VIRTIO 1.2, 5.1.6).
//!
//! TCP between two hosts on one machine has incomplete checksums and comes in buffers of up to 64
//! KB. The header travels with the frame, so that the next device completes both, or no device has
//! to. Invariant: when a tag is added or removed, the offset of the checksum moves with the frame.

/// Length of the header that AF_PACKET and TAP use, in native byte order.
pub const HEADER_LEN: usize = 10;

const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_UDP: u8 = 3;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Pending checksum and segmentation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offload {
    flags: u8,
    gso_type: u8,
    hdr_len: u16,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

impl Offload {
    /// Reads the header in front of a received frame.
    pub fn from_bytes(b: [u8; HEADER_LEN]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([b[at], b[at + 1]]);
        Self {
            flags: b[0],
            gso_type: b[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        }
    }
    /// The header to put in front of a frame to be sent.
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let [h, g, s, o] =
            [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset].map(u16::to_ne_bytes);
        [self.flags & NEEDS_CSUM, self.gso_type, h[0], h[1], g[0], g[1], s[0], s[1], o[0], o[1]]
    }
    /// The offload after the frame's headers have grown by `by` bytes (shrunk, if negative).
    pub fn moved(self, by: isize) -> Self {
        let moved = |at: u16| u16::try_from(at as isize + by).unwrap_or(at);
        Self { hdr_len: moved(self.hdr_len), csum_start: moved(self.csum_start), ..self }
    }
    /// As [`Offload::moved`], but an empty offload stays empty.
    pub fn moved_unless_empty(self, by: isize) -> Self {
        if self.flags & NEEDS_CSUM == 0 && self.gso_type == GSO_NONE {
            Self::default()
        } else {
            self.moved(by)
        }
    }
    /// Length of the longest segment that the frame will be cut into.
    pub fn longest(self, frame: &[u8]) -> usize {
        if self.gso_type == GSO_NONE {
            return frame.len();
        }
        let transport = usize::from(self.csum_start);
        let header = match self.gso_type & !GSO_ECN {
            _ if self.flags & NEEDS_CSUM == 0 => {
                return frame.len().min(usize::from(self.gso_size) + MAX_HEADERS);
            }
            GSO_UDP | GSO_UDP_L4 => 8,
            // The data offset, in 32-bit words, is the upper half of the TCP header's 13th byte (RFC 9293, 3.1).
            _ => frame.get(transport + 12).map_or(20, |b| usize::from(b >> 4) * 4),
        };
        frame.len().min(transport + header + usize::from(self.gso_size))
    }
}

/// The assumed length of headers when it is not known: Ethernet, a tag, IPv6, TCP without options.
const MAX_HEADERS: usize = 14 + 4 + 40 + 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_moves() {
        let bytes = [1, 1, 66, 0, 0xb4, 5, 34, 0, 16, 0];
        let offload = Offload::from_bytes(bytes);
        assert_eq!(offload.to_bytes(), bytes);
        assert_eq!(offload.moved(4).moved(-4), offload);
        let moved = offload.moved(4);
        assert_eq!((moved.csum_start, moved.csum_offset), (offload.csum_start + 4, offload.csum_offset));
        assert_eq!(Offload::default().to_bytes(), [0; HEADER_LEN]);
    }

    #[test]
    fn longest_segment() {
        let mut frame = vec![0; 40_000];
        frame[34 + 12] = 0x80; // the TCP header has 32 bytes
        let gso = |gso_type, flags| Offload {
            flags,
            gso_type,
            gso_size: 1448,
            csum_start: 34,
            ..Offload::default()
        };
        assert_eq!(gso(1, NEEDS_CSUM).longest(&frame), 34 + 32 + 1448);
        assert_eq!(gso(1 | GSO_ECN, NEEDS_CSUM).longest(&frame), 34 + 32 + 1448);
        assert_eq!(gso(GSO_UDP_L4, NEEDS_CSUM).longest(&frame), 34 + 8 + 1448);
        assert_eq!(gso(1, 0).longest(&frame), MAX_HEADERS + 1448);
        assert_eq!(gso(1, NEEDS_CSUM).longest(&frame[..40]), 40);
        assert_eq!(Offload::default().longest(&frame), frame.len());
    }
}
