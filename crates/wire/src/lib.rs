//! Frame formats: a checked view of an Ethernet frame and operations on its VLAN tag, ERSPAN
//! ([`erspan`]), routing netlink's messages about routes ([`rtnetlink`]), and the format of packet captures ([`pcapng`]).
//!
//! Read first: IEEE 802.3-2018, 3.1 (the MAC frame) and IEEE 802.1Q-2018, 9 (the tag). A frame here runs from the
//! destination address to the end of its payload, with its tags in line and without the FCS.
//!
//! Invariant: bytes are checked once, when a view is made; no accessor can panic. The codec of a control protocol's
//! payload belongs to the protocol's own crate.

pub mod erspan;
mod frame;
pub mod group;
pub mod ip;
mod layer2;
pub mod pcapng;
pub mod rtnetlink;
mod tag;

pub use frame::{Builder, Frame};
pub use layer2::tunnelled_protocol;
pub use tag::{Tag, Truncated, pop, push, rewrite};

/// Bytes of an Ethernet header without a tag: two addresses and an EtherType.
pub const HEADER_LEN: usize = 14;
/// Bytes of one VLAN tag: its TPID and its TCI.
pub const TAG_LEN: usize = 4;
/// The shortest frame Ethernet carries, without the FCS (IEEE 802.3-2018, 4A.4.2).
pub const MIN_LEN: usize = 60;
