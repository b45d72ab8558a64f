//! Links: listing, changing, making, deleting.

use crate::{Link, Netdev, Result};
use lanyard_types::MacAddr;
use std::os::fd::BorrowedFd;

/// Changes to one device; what is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkChange {
    /// The device.
    pub ifindex: u32,
    /// A new name.
    pub name: Option<String>,
    /// A new alias; empty removes it.
    pub alias: Option<String>,
    /// A new MAC address.
    pub mac: Option<MacAddr>,
    /// A new MTU in bytes.
    pub mtu: Option<u32>,
    /// Enslave to this device; 0 releases.
    pub master: Option<u32>,
    /// IFF_PROMISC.
    pub promisc: Option<bool>,
    /// True: the kernel gives the device no IPv6 link-local address of its own; false: EUI-64, the default.
    pub addrgen_none: Option<bool>,
    /// IFF_UP.
    pub up: Option<bool>,
}

/// A veth pair to make.
#[derive(Debug, Clone, Default)]
pub struct Veth<'a> {
    /// The near end.
    pub name: &'a str,
    /// The far end.
    pub peer: &'a str,
    /// The near end's MAC address; `None` lets the kernel choose.
    pub mac: Option<MacAddr>,
    /// The far end's MAC address.
    pub peer_mac: Option<MacAddr>,
    /// MTU of both ends in bytes.
    pub mtu: Option<u32>,
    /// The namespace the far end goes to.
    pub peer_netns: Option<BorrowedFd<'a>>,
}

impl Netdev {
    /// Every device.
    pub fn links(&self) -> Result<Vec<Link>> {
        todo!()
    }
    /// The device called `name`.
    pub fn link(&self, name: &str) -> Result<Link> {
        let _ = name;
        todo!()
    }
    /// The device with this index.
    pub fn link_by_index(&self, ifindex: u32) -> Result<Link> {
        let _ = ifindex;
        todo!()
    }
    /// Many changes in few system calls, in order; one result for each.
    pub fn change(&self, changes: &[LinkChange]) -> Vec<Result<()>> {
        let _ = changes;
        todo!()
    }
    /// IFF_UP.
    pub fn set_up(&self, ifindex: u32, up: bool) -> Result<()> {
        let _ = (ifindex, up);
        todo!()
    }
    /// MTU in bytes.
    pub fn set_mtu(&self, ifindex: u32, mtu: u32) -> Result<()> {
        let _ = (ifindex, mtu);
        todo!()
    }
    /// MAC address.
    pub fn set_mac(&self, ifindex: u32, mac: MacAddr) -> Result<()> {
        let _ = (ifindex, mac);
        todo!()
    }
    /// IFF_PROMISC; outlives the process.
    pub fn set_promisc(&self, ifindex: u32, on: bool) -> Result<()> {
        let _ = (ifindex, on);
        todo!()
    }
    /// Alias; empty removes it.
    pub fn set_alias(&self, ifindex: u32, alias: &str) -> Result<()> {
        let _ = (ifindex, alias);
        todo!()
    }
    /// Name; most devices must be down for it.
    pub fn rename(&self, ifindex: u32, name: &str) -> Result<()> {
        let _ = (ifindex, name);
        todo!()
    }
    /// No IPv6 link-local address of the kernel's making.
    pub fn set_addrgen_none(&self, ifindex: u32) -> Result<()> {
        let _ = ifindex;
        todo!()
    }
    /// Moves a device to another namespace.
    pub fn move_to_netns(&self, ifindex: u32, netns: BorrowedFd<'_>) -> Result<()> {
        let _ = (ifindex, netns);
        todo!()
    }
    /// Makes a veth pair.
    pub fn create_veth(&self, veth: &Veth<'_>) -> Result<()> {
        let _ = veth;
        todo!()
    }
    /// Many veth pairs in few system calls; one result for each.
    pub fn create_veths(&self, veths: &[Veth<'_>]) -> Vec<Result<()>> {
        let _ = veths;
        todo!()
    }
    /// Makes a device of a kind that needs no parameters: `bridge`, `ifb`...
    pub fn create(&self, name: &str, kind: &str) -> Result<()> {
        let _ = (name, kind);
        todo!()
    }
    /// Deletes a device (and a veth's other end).
    pub fn delete(&self, ifindex: u32) -> Result<()> {
        let _ = ifindex;
        todo!()
    }
}
