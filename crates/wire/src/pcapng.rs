//! Packet captures in the pcapng format (draft-ietf-opsawg-pcapng), as Wireshark and tcpdump read them.
//!
//! Invariant: functions here append whole blocks only, so a reader can begin while the capture runs, and a capture that
//! ends after any block is valid.

/// The direction of a captured frame, seen from the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The interface received it.
    In,
    /// The interface sent it.
    Out,
}

/// The bytes with which every capture begins: the type of its first block, which is the same in both byte orders.
pub const MAGIC: [u8; 4] = SECTION.to_le_bytes();

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;
/// Block types.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
/// The byte-order magic of a section. It is written in the byte order of the rest of the section.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Option codes: the end of the options, and the options that are written here.
const END: u16 = 0;
const NAME: u16 = 2;
const RESOLUTION: u16 = 9;
const FLAGS: u16 = 2;

/// Returns the blocks in front of all frames: a section and its one interface, called `name`.
#[must_use]
pub fn begin(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    // Version 1.0, and a section length of -1: not known in advance.
    let mut body = BYTE_ORDER.to_le_bytes().to_vec();
    body.extend([1, 0, 0, 0]);
    body.extend((-1_i64).to_le_bytes());
    block(&mut out, SECTION, &body);
    body.clear();
    body.extend(ETHERNET.to_le_bytes());
    body.extend([0; 2]);
    // A snapshot length of 0: frames of any length are captured whole.
    body.extend(0_u32.to_le_bytes());
    option(&mut body, NAME, name.as_bytes());
    // Timestamps are in units of 10^-9 seconds.
    option(&mut body, RESOLUTION, &[9]);
    option(&mut body, END, &[]);
    block(&mut out, INTERFACE, &body);
    out
}

/// Appends a frame (tags in line, without FCS), received or sent `time_ns` nanoseconds after the epoch.
pub fn frame(out: &mut Vec<u8>, time_ns: u64, direction: Direction, frame: &[u8]) {
    let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    let mut body = Vec::with_capacity(frame.len() + 40);
    body.extend(0_u32.to_le_bytes());
    body.extend(((time_ns >> 32) as u32).to_le_bytes());
    body.extend((time_ns as u32).to_le_bytes());
    // The captured length equals the original length.
    body.extend(length.to_le_bytes());
    body.extend(length.to_le_bytes());
    body.extend(frame);
    pad(&mut body);
    let flags: u32 = if direction == Direction::In { 1 } else { 2 };
    option(&mut body, FLAGS, &flags.to_le_bytes());
    option(&mut body, END, &[]);
    block(out, PACKET, &body);
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let length = value.len().min(usize::from(u16::MAX));
    body.extend(code.to_le_bytes());
    body.extend((length as u16).to_le_bytes());
    body.extend(&value[..length]);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let length = (body.len() + 12) as u32;
    out.extend(kind.to_le_bytes());
    out.extend(length.to_le_bytes());
    out.extend(body);
    out.extend(length.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Divides a capture into its blocks, each as type and body.
    fn blocks(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let word =
            |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let length = word(bytes, 4) as usize;
            assert!(length.is_multiple_of(4) && word(bytes, length - 4) as usize == length);
            found.push((word(bytes, 0), bytes[8..length - 4].to_vec()));
            bytes = &bytes[length..];
        }
        found
    }

    #[test]
    fn a_capture_is_blocks_of_whole_words() {
        let mut capture = begin("eth1");
        frame(&mut capture, 0x1_0000_0002, Direction::In, &[7; 61]);
        frame(&mut capture, 3, Direction::Out, &[8; 60]);
        let found = blocks(&capture);
        assert_eq!(
            found.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
            [SECTION, INTERFACE, PACKET, PACKET]
        );
        assert!(found[1].1.windows(4).any(|window| window == b"eth1"));
        let (received, sent) = (&found[2].1, &found[3].1);
        assert_eq!(received[4..20], [1, 0, 0, 0, 2, 0, 0, 0, 61, 0, 0, 0, 61, 0, 0, 0]);
        assert_eq!(received[20..84], [&[7; 61][..], &[0; 3]].concat());
        assert_eq!(received[84..96], [2, 0, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(sent[80..92], [2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    }
}
