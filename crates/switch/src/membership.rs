//! The VLANs of a switch port, by its mode (IEEE 802.1Q-2018, 8.8.2 and 6.9). Pure functions.

use lanyard_config::{Switchport, SwitchportMode};
use lanyard_pipeline::state::Tpid;
use lanyard_types::{VlanId, VlanSet};

/// The VLAN membership that a port's mode means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The TPID of the tags that the port recognises.
    pub tpid: Tpid,
    /// VLAN of untagged frames.
    pub pvid: Option<VlanId>,
    /// VLANs sent tagged.
    pub tagged: VlanSet,
    /// VLANs sent untagged.
    pub untagged: VlanSet,
}

/// The membership for a switchport configuration. A port is also a member of VLANs that are not
/// active: whether a VLAN forwards is a property of the VLAN.
#[must_use]
pub fn membership(words: &Switchport, tag_native: bool) -> Membership {
    let one = |tpid| Membership {
        tpid,
        pvid: Some(words.access_vlan),
        tagged: words.voice_vlan().into_iter().collect(),
        untagged: [words.access_vlan].into_iter().collect(),
    };
    match words.mode {
        SwitchportMode::Access => one(Tpid::Dot1q),
        // The module `private_vlan` determines the VLANs of these ports.
        SwitchportMode::PrivateHost | SwitchportMode::PrivatePromiscuous => {
            Membership { tpid: Tpid::Dot1q, pvid: None, tagged: VlanSet::EMPTY, untagged: VlanSet::EMPTY }
        }
        SwitchportMode::Tunnel => one(Tpid::None),
        SwitchportMode::Trunk => {
            let native =
                Some(words.native_vlan).filter(|native| words.allowed_vlans.contains(*native) && !tag_native);
            let untagged: VlanSet = native.into_iter().collect();
            Membership {
                tpid: words.tpid,
                pvid: native,
                tagged: words.allowed_vlans.difference(&untagged),
                untagged,
            }
        }
    }
}
