//! The configuration of discovery, including the description of this system that is sent.

use crate::location::Location;
use crate::pdu::NetworkPolicy;
use lanyard_types::{MacAddr, PortId, VlanId};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The status of a port (adminStatus, IEEE 802.1AB-2016, 9.2.5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AdminStatus {
    /// The port neither sends nor receives.
    Disabled,
    /// The port only sends.
    TxOnly,
    /// The port only receives.
    RxOnly,
    /// The port sends and receives.
    #[default]
    TxRx,
}

impl AdminStatus {
    /// The status from its two halves.
    #[must_use]
    pub const fn new(transmit: bool, receive: bool) -> Self {
        match (transmit, receive) {
            (false, false) => Self::Disabled,
            (true, false) => Self::TxOnly,
            (false, true) => Self::RxOnly,
            (true, true) => Self::TxRx,
        }
    }
    /// True if the port sends.
    #[must_use]
    pub const fn transmits(self) -> bool {
        matches!(self, Self::TxOnly | Self::TxRx)
    }
    /// True if the port receives.
    #[must_use]
    pub const fn receives(self) -> bool {
        matches!(self, Self::RxOnly | Self::TxRx)
    }
}

/// The optional TLVs of LLDP (`lldp tlv-select`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tlv {
    /// The port's description.
    PortDescription,
    /// The system's name.
    SystemName,
    /// The system's description.
    SystemDescription,
    /// The system's capabilities.
    SystemCapabilities,
    /// Addresses for management.
    ManagementAddress,
    /// The port VLAN ID (802.1Q).
    PortVlan,
    /// The names of the port's VLANs (802.1Q).
    VlanName,
    /// MAC/PHY configuration and status (802.3).
    MacPhy,
    /// Link aggregation (802.1AX).
    LinkAggregation,
    /// The maximum frame size (802.3).
    MaxFrameSize,
    /// LLDP-MED, sent at ports that have an LLDP-MED endpoint as neighbour (TIA-1057, 11.2.1).
    Med,
}

impl Tlv {
    /// All TLVs, in the order of the command's help.
    pub const ALL: [Self; 11] = [
        Self::LinkAggregation,
        Self::MacPhy,
        Self::ManagementAddress,
        Self::MaxFrameSize,
        Self::Med,
        Self::PortDescription,
        Self::PortVlan,
        Self::SystemCapabilities,
        Self::SystemDescription,
        Self::SystemName,
        Self::VlanName,
    ];

    /// The keyword of `lldp tlv-select`.
    #[must_use]
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::PortDescription => "port-description",
            Self::SystemName => "system-name",
            Self::SystemDescription => "system-description",
            Self::SystemCapabilities => "system-capabilities",
            Self::ManagementAddress => "management-address",
            Self::PortVlan => "port-vlan",
            Self::VlanName => "vlan-name",
            Self::MacPhy => "mac-phy-cfg",
            Self::LinkAggregation => "link-aggregation",
            Self::MaxFrameSize => "max-frame-size",
            Self::Med => "med",
        }
    }
}

/// The settings of LLDP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lldp {
    /// Seconds between two frames of a port (msgTxInterval), 5 to 65534. Default 30.
    pub timer_s: u16,
    /// The time to live in seconds, 0 to 65535. Default 120, which is msgTxHold 4.
    pub holdtime_s: u16,
    /// Seconds between the end of transmission on a port and its new beginning (reinitDelay), 2 to 5. Default 2.
    pub reinit_s: u8,
    /// The optional TLVs that are sent, by `Tlv as usize`. Default: all.
    pub tlvs: [bool; Tlv::ALL.len()],
}

impl Default for Lldp {
    fn default() -> Self {
        Self { timer_s: 30, holdtime_s: 120, reinit_s: 2, tlvs: [true; Tlv::ALL.len()] }
    }
}

/// The settings of CDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cdp {
    /// Seconds between two frames of a port, 5 to 254. Default 60.
    pub timer_s: u8,
    /// The time to live in seconds, 10 to 255. Default 180.
    pub holdtime_s: u8,
}

impl Default for Cdp {
    fn default() -> Self {
        Self { timer_s: 60, holdtime_s: 180 }
    }
}

/// The description of this system that is sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct System {
    /// The chassis ID.
    pub chassis: MacAddr,
    /// The host name.
    pub name: String,
    /// The description.
    pub description: String,
    /// The platform, for CDP and the model name of LLDP-MED.
    pub platform: String,
    /// The software's version, for LLDP-MED.
    pub software: String,
    /// True if the system routes.
    pub routes: bool,
}

/// A port on which discovery runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortConfig {
    /// The status of LLDP at the port.
    pub lldp: AdminStatus,
    /// True if CDP runs at the port.
    pub cdp: bool,
    /// The interface's name.
    pub name: String,
    /// The interface's description.
    pub description: Option<String>,
    /// The source address of frames.
    pub mac: MacAddr,
    /// True for a port of a VLAN bridge, false for a routed port.
    pub switchport: bool,
    /// The native or access VLAN.
    pub pvid: Option<VlanId>,
    /// How a telephone at the port is to mark its voice, for LLDP-MED and CDP.
    pub voice: Option<NetworkPolicy>,
    /// Where the endpoint at the port is, for LLDP-MED.
    pub locations: Vec<Location>,
    /// VLANs of the port with their names.
    pub vlans: Vec<(VlanId, String)>,
    /// The speed in Mbit/s, if known.
    pub speed_mbps: Option<u32>,
    /// True for full duplex, if known.
    pub full_duplex: Option<bool>,
    /// True if the link negotiates, if known.
    pub autoneg: Option<bool>,
    /// The number of the port-channel in which the link is in use.
    pub bundle: Option<u32>,
    /// The longest frame in bytes with its FCS.
    pub max_frame: u16,
    /// Addresses by which the system is managed, each with its interface number.
    pub management: Vec<(IpAddr, u32)>,
}

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// LLDP; `None` when it does not run.
    pub lldp: Option<Lldp>,
    /// CDP; `None` when it does not run.
    pub cdp: Option<Cdp>,
    /// This system.
    pub system: System,
    /// The ports.
    pub ports: BTreeMap<PortId, PortConfig>,
}
