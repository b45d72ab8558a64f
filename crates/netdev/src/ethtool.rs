//! What a driver can be asked and told: speed, duplex, offloads, its name, its XDP features.

use crate::{Netdev, Result};

/// Duplex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplex {
    /// One direction at a time.
    Half,
    /// Both.
    Full,
}

/// A device's link settings; a virtual device has few of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Speed in Mbit/s, when known.
    pub speed_mbps: Option<u32>,
    /// Duplex, when known.
    pub duplex: Option<Duplex>,
    /// Autonegotiation is on.
    pub autoneg: bool,
    /// The connector: `tp`, `fibre`, `da`, `none`, `other`...
    pub port: Option<String>,
}

/// One offload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// The kernel's name: `rx-gro`, `rx-vlan-hw-parse`, `tx-checksum-ip-generic`...
    pub name: String,
    /// On.
    pub on: bool,
    /// Can be changed.
    pub changeable: bool,
}

/// NETDEV_A_DEV_XDP_FEATURES, a bit mask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XdpFeatures(pub u64);

impl XdpFeatures {
    /// Runs XDP programs: ABORTED, DROP, PASS, TX.
    pub const BASIC: Self = Self(1);
    /// Can redirect received frames elsewhere.
    pub const REDIRECT: Self = Self(2);
    /// Takes frames redirected to it (`ndo_xdp_xmit`): it may be an egress of an XDP plane.
    pub const NDO_XMIT: Self = Self(4);
    /// AF_XDP zero copy.
    pub const XSK_ZEROCOPY: Self = Self(8);
    /// Hardware offload.
    pub const HW_OFFLOAD: Self = Self(16);
    /// Receives multi-buffer frames.
    pub const RX_SG: Self = Self(32);
    /// Takes redirected multi-buffer frames.
    pub const NDO_XMIT_SG: Self = Self(64);

    /// True when every feature of `other` is here.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Netdev {
    /// Speed, duplex, autonegotiation, connector.
    pub fn settings(&self, name: &str) -> Result<Settings> {
        let _ = name;
        todo!()
    }
    /// Fixes speed and duplex, autonegotiation off.
    pub fn set_speed(&self, name: &str, speed_mbps: u32, duplex: Duplex) -> Result<()> {
        let _ = (name, speed_mbps, duplex);
        todo!()
    }
    /// Back to autonegotiation.
    pub fn set_autoneg(&self, name: &str) -> Result<()> {
        let _ = name;
        todo!()
    }
    /// Every offload the kernel knows, for this device.
    pub fn features(&self, name: &str) -> Result<Vec<Feature>> {
        let _ = name;
        todo!()
    }
    /// Switches offloads by name; all are tried, and an error names the first that did not change.
    pub fn set_features(&self, name: &str, wanted: &[(&str, bool)]) -> Result<()> {
        let _ = (name, wanted);
        todo!()
    }
    /// The driver's name.
    pub fn driver(&self, name: &str) -> Result<String> {
        let _ = name;
        todo!()
    }
    /// What the driver can do with XDP.
    pub fn xdp_features(&self, ifindex: u32) -> Result<XdpFeatures> {
        let _ = ifindex;
        todo!()
    }
}
