//! [`Frame`], a checked view of an Ethernet frame, and [`Builder`], which makes one.
//!
//! Invariant: a `Frame` holds at least [`HEADER_LEN`] bytes.

use crate::{HEADER_LEN, MIN_LEN, TAG_LEN, Tag, Truncated};
use lanyard_types::MacAddr;

/// A view of an Ethernet frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Returns a view of the frame in `bytes`.
    ///
    /// # Errors
    /// [`Truncated`] when `bytes` is shorter than an Ethernet header.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Truncated> {
        if bytes.len() < HEADER_LEN { Err(Truncated) } else { Ok(Self { bytes }) }
    }
    /// The destination address.
    #[must_use]
    pub fn dst(&self) -> MacAddr {
        self.addr(0)
    }
    /// The source address.
    #[must_use]
    pub fn src(&self) -> MacAddr {
        self.addr(6)
    }
    /// The field behind the addresses: an EtherType, a length, or the TPID of an outer tag.
    #[must_use]
    pub fn ethertype(&self) -> u16 {
        u16::from_be_bytes([self.bytes[12], self.bytes[13]])
    }
    /// The outer tag, if its TPID is `tpid`; a tag of another TPID is payload.
    ///
    /// # Errors
    /// [`Truncated`] when the frame ends inside the tag or before the EtherType behind it.
    pub fn tag(&self, tpid: u16) -> Result<Option<Tag>, Truncated> {
        if self.ethertype() != tpid {
            return Ok(None);
        }
        match self.bytes.get(HEADER_LEN..HEADER_LEN + TAG_LEN) {
            Some(tag) => Ok(Some(Tag::from_tci(u16::from_be_bytes([tag[0], tag[1]])))),
            None => Err(Truncated),
        }
    }
    /// The EtherType behind the outer tag when the frame has one with `tpid`, else [`Frame::ethertype`].
    ///
    /// # Errors
    /// [`Truncated`] when the frame ends inside the tag.
    pub fn inner_ethertype(&self, tpid: u16) -> Result<u16, Truncated> {
        match self.tag(tpid)? {
            Some(_) => Ok(u16::from_be_bytes([self.bytes[16], self.bytes[17]])),
            None => Ok(self.ethertype()),
        }
    }
    /// The bytes behind the untagged header; with an outer tag they begin with its TCI.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }
    /// The whole frame.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn addr(&self, at: usize) -> MacAddr {
        let b = &self.bytes[at..at + 6];
        MacAddr([b[0], b[1], b[2], b[3], b[4], b[5]])
    }
}

/// Builds a frame from the outside in: `Builder::new(dst, src).tag(0x8100, tag).ethertype(0x0800).payload(b).build()`.
#[derive(Debug, Clone)]
pub struct Builder {
    bytes: Vec<u8>,
}

impl Builder {
    /// A frame between two addresses.
    #[must_use]
    pub fn new(dst: MacAddr, src: MacAddr) -> Self {
        Self { bytes: [dst.0, src.0].concat() }
    }
    /// Adds a tag behind those added before; the outermost comes first.
    #[must_use]
    pub fn tag(mut self, tpid: u16, tag: Tag) -> Self {
        self.bytes.extend(tpid.to_be_bytes());
        self.bytes.extend(tag.tci().to_be_bytes());
        self
    }
    /// Sets the EtherType or length; to be called once, after the tags.
    #[must_use]
    pub fn ethertype(mut self, ethertype: u16) -> Self {
        self.bytes.extend(ethertype.to_be_bytes());
        self
    }
    /// Appends payload.
    #[must_use]
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.bytes.extend(payload);
        self
    }
    /// Appends zeros up to a total of `len` bytes; a longer frame stays as it is.
    #[must_use]
    pub fn pad(mut self, len: usize) -> Self {
        self.bytes.resize(self.bytes.len().max(len), 0);
        self
    }
    /// Returns the frame, padded to Ethernet's minimum length.
    #[must_use]
    pub fn build(self) -> Vec<u8> {
        self.pad(MIN_LEN).bytes
    }
    /// Returns the frame without padding, for tests of frames that are too short.
    #[must_use]
    pub fn build_unpadded(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DST: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const SRC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    #[test]
    fn fields() {
        let tag = Tag { pcp: 5, dei: true, vid: 10 };
        let bytes = Builder::new(DST, SRC).tag(0x8100, tag).ethertype(0x0800).payload(b"hello").build();
        assert_eq!(bytes.len(), MIN_LEN);
        let frame = Frame::new(&bytes).expect("long enough");
        assert_eq!((frame.dst(), frame.src(), frame.ethertype()), (DST, SRC, 0x8100));
        assert_eq!(frame.tag(0x8100), Ok(Some(tag)));
        assert_eq!(frame.inner_ethertype(0x8100), Ok(0x0800));
        assert_eq!(frame.tag(0x88a8), Ok(None));
        assert_eq!(frame.inner_ethertype(0x88a8), Ok(0x8100));
        assert_eq!(frame.payload().len(), MIN_LEN - HEADER_LEN);
    }

    #[test]
    fn every_length_is_checked() {
        let whole = Builder::new(DST, SRC).tag(0x8100, Tag::default()).ethertype(0x0800).build_unpadded();
        for len in 0..=whole.len() {
            let frame = Frame::new(&whole[..len]);
            assert_eq!(frame.is_ok(), len >= HEADER_LEN, "{len}");
            if let Ok(frame) = frame {
                assert_eq!(frame.tag(0x8100).is_ok(), len >= HEADER_LEN + TAG_LEN, "{len}");
                assert_eq!(frame.tag(0x9100), Ok(None));
            }
        }
    }
}
