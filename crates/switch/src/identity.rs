//! The names and addresses that distinguish one switch from another.

use lanyard_types::{MacAddr, VlanId};

/// The identity of a switch instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `--instance`.
    pub instance: String,
    /// The base MAC address: locally administered, its low 12 bits zero.
    pub base_mac: MacAddr,
}

impl Identity {
    /// The address of a VLAN interface: the base address with the VLAN in its low 12 bits.
    #[must_use]
    pub fn vlan_mac(&self, vlan: VlanId) -> MacAddr {
        MacAddr::from_u64(self.base_mac.to_u64() & !0xfff | u64::from(vlan.get()))
    }
    /// A base address out of 48 random bits.
    #[must_use]
    pub fn base_from(random: u64) -> MacAddr {
        let bits = random & 0xffff_ffff_f000;
        MacAddr::from_u64(bits & !(0x01 << 40) | 0x02 << 40)
    }
}
