//! The VLAN tag: its fields (IEEE 802.1Q-2018, 9.6) and its three operations on a frame.
//!
//! Invariant: an operation that fails leaves the frame as it was.

use crate::{HEADER_LEN, TAG_LEN};

/// The offset of a tag: behind the two addresses.
const AT: usize = 12;

/// The error for a frame that ends before the bytes that were to be read or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncated;

impl std::fmt::Display for Truncated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the frame is truncated")
    }
}

impl std::error::Error for Truncated {}

/// The tag control information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tag {
    /// Priority code point, 0..=7.
    pub pcp: u8,
    /// Drop eligible indicator.
    pub dei: bool,
    /// VLAN identifier as it stands in the tag, 0..=4095: 0 is a priority tag, 4095 is reserved.
    pub vid: u16,
}

impl Tag {
    /// The tag with this control information.
    #[must_use]
    pub const fn from_tci(tci: u16) -> Self {
        Self { pcp: (tci >> 13) as u8, dei: tci >> 12 & 1 == 1, vid: tci & 0xfff }
    }
    /// The 16 bits of control information; bits of a value that exceed its field are cut off.
    #[must_use]
    pub const fn tci(self) -> u16 {
        ((self.pcp as u16) & 7) << 13 | (self.dei as u16) << 12 | self.vid & 0xfff
    }
}

/// Inserts a tag in front of the EtherType.
///
/// # Errors
/// [`Truncated`] when the frame ends before an EtherType.
pub fn push(frame: &mut Vec<u8>, tpid: u16, tag: Tag) -> Result<(), Truncated> {
    if frame.len() < HEADER_LEN {
        return Err(Truncated);
    }
    frame.splice(AT..AT, wire_form(tpid, tag));
    Ok(())
}

/// Removes the outer tag, whatever its TPID.
///
/// # Errors
/// [`Truncated`] when the frame ends before the EtherType behind a tag.
pub fn pop(frame: &mut Vec<u8>) -> Result<(), Truncated> {
    if frame.len() < HEADER_LEN + TAG_LEN {
        return Err(Truncated);
    }
    frame.drain(AT..AT + TAG_LEN);
    Ok(())
}

/// Overwrites the outer tag.
///
/// # Errors
/// [`Truncated`] when the frame ends before the EtherType behind a tag.
pub fn rewrite(frame: &mut [u8], tpid: u16, tag: Tag) -> Result<(), Truncated> {
    if frame.len() < HEADER_LEN + TAG_LEN {
        return Err(Truncated);
    }
    frame[AT..AT + TAG_LEN].copy_from_slice(&wire_form(tpid, tag));
    Ok(())
}

fn wire_form(tpid: u16, tag: Tag) -> [u8; TAG_LEN] {
    let ([a, b], [c, d]) = (tpid.to_be_bytes(), tag.tci().to_be_bytes());
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;

    #[test]
    fn every_tci_round_trips() {
        for tci in 0..=u16::MAX {
            assert_eq!(Tag::from_tci(tci).tci(), tci);
        }
    }

    #[test]
    fn push_rewrite_pop() {
        let untagged: Vec<u8> = (0..60).collect();
        let (first, second) = (Tag { pcp: 3, dei: false, vid: 7 }, Tag { pcp: 0, dei: true, vid: 4094 });
        let mut frame = untagged.clone();
        assert_eq!(push(&mut frame, 0x88a8, first), Ok(()));
        assert_eq!(Frame::new(&frame).and_then(|f| f.tag(0x88a8)), Ok(Some(first)));
        assert_eq!(rewrite(&mut frame, 0x8100, second), Ok(()));
        assert_eq!(Frame::new(&frame).and_then(|f| f.tag(0x8100)), Ok(Some(second)));
        assert_eq!(frame[..12], untagged[..12]);
        assert_eq!(frame[16..], untagged[12..]);
        assert_eq!(pop(&mut frame), Ok(()));
        assert_eq!(frame, untagged);
    }

    #[test]
    fn short_frames_are_left_alone() {
        for len in 0..HEADER_LEN + TAG_LEN {
            let was = vec![7; len];
            let mut frame = was.clone();
            assert_eq!(pop(&mut frame), Err(Truncated));
            assert_eq!(rewrite(&mut frame, 0x8100, Tag::default()), Err(Truncated));
            if len < HEADER_LEN {
                assert_eq!(push(&mut frame, 0x8100, Tag::default()), Err(Truncated));
            }
            assert_eq!(frame, was);
        }
    }
}
