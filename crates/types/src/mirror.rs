//! The copies of a port's frames for monitor sessions (SPAN), in the form that planes use.

use crate::{PortId, VlanId, VlanSet};
use serde::{Deserialize, Serialize};

/// The settings of monitor sessions at a port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PortMirror {
    /// True if the port is the destination of a session: it sends copies only, and the frames that it receives are dropped.
    pub destination: bool,
    /// The copies to make of the port's frames, at most [`PortMirror::MAX`].
    pub copies: Vec<MirrorCopy>,
}

/// One destination for copies of a port's frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorCopy {
    /// The port that sends the copies.
    pub to: PortId,
    /// True if frames that the port receives are copied, as they arrive.
    pub received: bool,
    /// True if frames that the port sends are copied, as they leave.
    pub sent: bool,
    /// Only frames of these VLANs are copied; `None`: all frames.
    pub vlans: Option<VlanSet>,
    /// True if the copies keep the tag that the port recognises or adds (`encapsulation replicate`); otherwise they lose it.
    pub keep_tag: bool,
    /// RSPAN: the copies have an 802.1Q tag of this VLAN in place of the tag that the port recognises or adds, and leave only
    /// while `to` is a forwarding member of the VLAN.
    #[serde(default)]
    pub remote: Option<VlanId>,
    /// True for ERSPAN: the copies keep their tag, if they have one, and get one more 802.1Q tag in front of it, with the
    /// frame's VLAN, or 0 for a frame of no VLAN.
    #[serde(default)]
    pub name_vlan: bool,
}

impl PortMirror {
    /// The most copies of one frame at one port.
    pub const MAX: usize = 4;

    /// True if frames that the port sends are copied.
    #[must_use]
    pub fn sends(&self) -> bool {
        self.copies.iter().any(|copy| copy.sent)
    }
    /// True if frames that the port receives are copied.
    #[must_use]
    pub fn receives(&self) -> bool {
        self.copies.iter().any(|copy| copy.received)
    }
}

impl MirrorCopy {
    /// True if frames of this VLAN are copied; `None` stands for frames of no VLAN.
    #[must_use]
    pub fn takes(&self, vlan: Option<VlanId>) -> bool {
        self.vlans.as_ref().is_none_or(|vlans| vlan.is_some_and(|vlan| vlans.contains(vlan)))
    }
}
