//! Frames, built by hand: the tests share no frame code with the program under test.

use std::sync::atomic::{AtomicU32, Ordering};

/// A station's address.
pub type Mac = [u8; 6];

/// The broadcast address.
pub const BROADCAST: Mac = [0xff; 6];
/// An EtherType for private use (IEEE 802, 9.2), which no kernel processes.
pub const PRIVATE: u16 = 0x88b5;
/// The TPID of an 802.1Q tag.
pub const DOT1Q: u16 = 0x8100;
/// The TPID of an 802.1ad service tag.
pub const DOT1AD: u16 = 0x88a8;

/// The address of host `n`, or of a station behind it.
pub const fn mac(n: u16) -> Mac {
    let [a, b] = n.to_be_bytes();
    [0x02, 0, 0, 0, a, b]
}

/// The reserved address 01:80:C2:00:00:0X.
pub const fn reserved(x: u8) -> Mac {
    [0x01, 0x80, 0xc2, 0, 0, x]
}

/// An address in the notation of JSON.
pub fn text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// A frame from the destination address on, tags in line, without FCS.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame(pub Vec<u8>);

/// A frame of 60 bytes that differs from every other frame.
pub fn frame(dst: Mac, src: Mac) -> Frame {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut bytes = [&dst[..], &src[..], &PRIVATE.to_be_bytes()[..], &number.to_be_bytes()[..]].concat();
    bytes.resize(60, 0xa5);
    Frame(bytes)
}

impl Frame {
    /// Returns the frame with another outermost tag.
    pub fn tag(&self, tpid: u16, pcp: u16, vid: u16) -> Self {
        let tci = pcp << 13 | vid;
        let tag = [tpid.to_be_bytes(), tci.to_be_bytes()].concat();
        let mut bytes = self.0.clone();
        bytes.splice(12..12, tag);
        Self(bytes)
    }
    /// Returns the frame with an 802.1Q tag of priority 0.
    pub fn vlan(&self, vid: u16) -> Self {
        self.tag(DOT1Q, 0, vid)
    }
    /// Returns the frame without its outermost tag.
    pub fn untagged(&self) -> Self {
        let mut bytes = self.0.clone();
        bytes.drain(12..16);
        Self(bytes)
    }
    /// Cuts or pads the frame to `len` bytes.
    pub fn len(mut self, len: usize) -> Self {
        self.0.resize(len, 0x5a);
        self
    }
    /// Returns the frame with another EtherType.
    pub fn ethertype(mut self, ethertype: u16) -> Self {
        self.0[12..14].copy_from_slice(&ethertype.to_be_bytes());
        self
    }
    /// As hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Prints the first bytes and the length, which identify the frame.
impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let head: String = self.0.iter().take(26).map(|byte| format!("{byte:02x}")).collect();
        write!(f, "[{head}.. {} bytes]", self.0.len())
    }
}
