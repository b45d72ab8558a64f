//! Private VLANs in a configuration: which secondary VLAN belongs to which primary one, and in which VLAN the FDB has a
//! port's stations.
//!
//! Invariant: a secondary VLAN belongs to the first primary VLAN that names it, and to no other.

use crate::model::{Config, Switchport, SwitchportMode, Vlan};
use crate::private_vlan::PrivateKind;
use lanyard_types::{VlanId, VlanSet};

impl Config {
    /// The primary VLAN of an isolated or community VLAN; `None` when no primary VLAN names it.
    #[must_use]
    pub fn primary_of(&self, secondary: VlanId) -> Option<VlanId> {
        let kind = self.vlans.get(&secondary)?.private?;
        if kind == PrivateKind::Primary {
            return None;
        }
        let names =
            |vlan: &Vlan| vlan.private == Some(PrivateKind::Primary) && vlan.associated.contains(secondary);
        self.vlans.iter().find(|(_, vlan)| names(vlan)).map(|(id, _)| *id)
    }
    /// The secondary VLANs of `list` that belong to `primary`.
    #[must_use]
    pub fn secondaries(&self, primary: VlanId, list: &VlanSet) -> VlanSet {
        list.iter().filter(|vlan| self.primary_of(*vlan) == Some(primary)).collect()
    }
}

impl Switchport {
    /// The VLAN in which the FDB has the stations whose frames arrive untagged. For a port of private VLANs it is the primary
    /// VLAN.
    #[must_use]
    pub fn untagged_vlan(&self) -> VlanId {
        match self.mode {
            SwitchportMode::Trunk => self.native_vlan,
            SwitchportMode::Access | SwitchportMode::Tunnel => self.access_vlan,
            SwitchportMode::PrivateHost => self.private.host.map_or(VlanId::DEFAULT, |(primary, _)| primary),
            SwitchportMode::PrivatePromiscuous => {
                self.private.mapping.as_ref().map_or(VlanId::DEFAULT, |(primary, _)| *primary)
            }
        }
    }
}
