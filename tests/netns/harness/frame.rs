//! Frames, written down by hand: the tests share no frame code with what they test.

use std::sync::atomic::{AtomicU32, Ordering};

/// A station's address.
pub type Mac = [u8; 6];

/// Everybody.
pub const BROADCAST: Mac = [0xff; 6];
/// An EtherType for private use (IEEE 802, 9.2): no kernel does anything with it.
pub const PRIVATE: u16 = 0x88b5;
/// What the 802.1Q tag starts with.
pub const DOT1Q: u16 = 0x8100;
/// What the 802.1ad service tag starts with.
pub const DOT1AD: u16 = 0x88a8;

/// The address of host `n`, or of a station behind it.
pub const fn mac(n: u16) -> Mac {
    let [a, b] = n.to_be_bytes();
    [0x02, 0, 0, 0, a, b]
}

/// 01:80:C2:00:00:0X.
pub const fn reserved(x: u8) -> Mac {
    [0x01, 0x80, 0xc2, 0, 0, x]
}

/// An address as it is in JSON.
pub fn text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// A frame from the destination address on, tags in line, without FCS.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame(pub Vec<u8>);

/// A frame of 60 bytes that is like no other.
pub fn frame(dst: Mac, src: Mac) -> Frame {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut bytes = [&dst[..], &src[..], &PRIVATE.to_be_bytes()[..], &number.to_be_bytes()[..]].concat();
    bytes.resize(60, 0xa5);
    Frame(bytes)
}

impl Frame {
    /// With a tag outside of all others.
    pub fn tag(&self, tpid: u16, pcp: u16, vid: u16) -> Self {
        let tci = pcp << 13 | vid;
        let tag = [tpid.to_be_bytes(), tci.to_be_bytes()].concat();
        let mut bytes = self.0.clone();
        bytes.splice(12..12, tag);
        Self(bytes)
    }
    /// With an 802.1Q tag of priority 0.
    pub fn vlan(&self, vid: u16) -> Self {
        self.tag(DOT1Q, 0, vid)
    }
    /// Without its outermost tag.
    pub fn untagged(&self) -> Self {
        let mut bytes = self.0.clone();
        bytes.drain(12..16);
        Self(bytes)
    }
    /// Cut or filled up to `len` bytes.
    pub fn len(mut self, len: usize) -> Self {
        self.0.resize(len, 0x5a);
        self
    }
    /// With another EtherType.
    pub fn ethertype(mut self, ethertype: u16) -> Self {
        self.0[12..14].copy_from_slice(&ethertype.to_be_bytes());
        self
    }
    /// As hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The first bytes say it all; the length does the rest.
impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let head: String = self.0.iter().take(26).map(|byte| format!("{byte:02x}")).collect();
        write!(f, "[{head}.. {} bytes]", self.0.len())
    }
}
