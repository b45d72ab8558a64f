//! The copies of a port's frames for monitor sessions (SPAN), in the form that planes use.

use crate::{PortId, VlanId, VlanSet};
use serde::{Deserialize, Serialize};

/// The part of a port in monitor sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PortMirror {
    /// The port is the destination of a session: it sends copies only, and the frames that it receives are dropped.
    pub destination: bool,
    /// The copies of its frames, at most [`PortMirror::MAX`].
    pub copies: Vec<MirrorCopy>,
}

/// One destination for copies of a port's frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorCopy {
    /// The port that sends the copies.
    pub to: PortId,
    /// Frames that the port receives are copied, as they arrive.
    pub received: bool,
    /// Frames that the port sends are copied, as they leave.
    pub sent: bool,
    /// Only frames of these VLANs are copied; `None`: all frames.
    pub vlans: Option<VlanSet>,
    /// The copies keep the tag that the port recognises or adds (`encapsulation replicate`).
    pub keep_tag: bool,
    /// RSPAN: the copies have an 802.1Q tag of this VLAN in place of that tag, and leave only while `to` is a forwarding member
    /// of the VLAN.
    #[serde(default)]
    pub remote: Option<VlanId>,
    /// ERSPAN: the copies keep the tag that they have, and have one more 802.1Q tag before it, with the frame's VLAN, or 0 for a
    /// frame of no VLAN.
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
    /// True if frames of this VLAN, or of none, are copied.
    #[must_use]
    pub fn takes(&self, vlan: Option<VlanId>) -> bool {
        self.vlans.as_ref().is_none_or(|vlans| vlan.is_some_and(|vlan| vlans.contains(vlan)))
    }
}
