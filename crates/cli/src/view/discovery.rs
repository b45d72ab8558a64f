//! `show lldp ...` and `show cdp ...`.

use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// `show lldp neighbors [detail]`, `show cdp neighbors [detail]`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DiscoveryNeighbours {
    /// The neighbours by interface; at one interface in the order in which they were found.
    pub neighbors: Vec<DiscoveryNeighbour>,
}

/// A neighbour.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DiscoveryNeighbour {
    /// The interface that received its frames.
    pub interface: String,
    /// LLDP: the chassis ID. CDP: the device ID.
    pub chassis_id: String,
    /// The port ID.
    pub port_id: String,
    /// LLDP: the system name. CDP: the device ID.
    pub system_name: Option<String>,
    /// Seconds until the neighbour's information expires.
    pub ttl_s: u64,
    /// `lldp` or `cdp`.
    pub protocol: &'static str,
    /// Further information, for text and for `show lldp entry`.
    #[serde(skip)]
    pub details: DiscoveryDetails,
}

/// Further information that a neighbour has sent.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DiscoveryDetails {
    /// The time to live as it was sent, in seconds.
    pub hold_time_s: u16,
    /// The port description.
    pub port_description: Option<String>,
    /// LLDP: the system description. CDP: the software version.
    pub system_description: Option<String>,
    /// CDP: the platform.
    pub platform: Option<String>,
    /// The letters of the supported capabilities.
    pub capabilities: String,
    /// The letters of the enabled capabilities.
    pub enabled_capabilities: String,
    /// The management addresses.
    pub management_addresses: Vec<IpAddr>,
    /// CDP: the addresses of the port.
    pub addresses: Vec<IpAddr>,
    /// LLDP: the port VLAN ID. CDP: the native VLAN.
    pub vlan: Option<u16>,
    /// LLDP: the autonegotiation of the port; `None` if the neighbour has not sent it.
    pub auto_negotiation: Option<DiscoveryAutoNegotiation>,
    /// LLDP: the link aggregation of the port; `None` if the neighbour has not sent it.
    pub link_aggregation: Option<DiscoveryAggregation>,
    /// The maximum frame size in bytes.
    pub max_frame_size: Option<u16>,
    /// CDP: true for full duplex, false for half duplex.
    pub full_duplex: Option<bool>,
    /// CDP: the version of the protocol.
    pub version: Option<u8>,
    /// The information of LLDP-MED; `None` if the neighbour has sent none.
    pub med: Option<DiscoveryMed>,
}

/// Autonegotiation at a neighbour's port.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct DiscoveryAutoNegotiation {
    /// True if the port can negotiate.
    pub supported: bool,
    /// True if autonegotiation is enabled.
    pub enabled: bool,
    /// The type of the medium attachment unit (IANA-MAU-MIB, dot3MauType); 0 if unknown.
    pub mau_type: u16,
}

/// Link aggregation at a neighbour's port.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct DiscoveryAggregation {
    /// True if the link can be aggregated.
    pub supported: bool,
    /// True if the link is aggregated.
    pub enabled: bool,
    /// The number of the aggregated port; 0 if there is none.
    pub port: u32,
}

/// The LLDP-MED information of a neighbour.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DiscoveryMed {
    /// The device type: 1 to 3 is an endpoint of that class, 4 is a network connectivity device.
    pub device_type: u8,
    /// The inventory, by name, such as `model`.
    pub inventory: BTreeMap<&'static str, String>,
    /// Network policies, as `voice, VLAN 30, tagged, priority 5, DSCP 46`.
    pub policies: Vec<String>,
    /// Locations, as `ELIN 4930901820` and `civic, country DE, city Berlin`.
    pub locations: Vec<String>,
}

/// `show location civic-location`. Made from the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CivicLocations {
    /// The locations, by number.
    pub civic_locations: Vec<CivicEntry>,
}

/// A civic location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CivicEntry {
    /// Its number.
    pub identifier: u16,
    /// Its elements, by keyword.
    pub elements: BTreeMap<&'static str, String>,
    /// The interfaces for which it is configured.
    pub interfaces: Vec<String>,
}

/// `show location elin-location`. Made from the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ElinLocations {
    /// The locations, by number.
    pub elin_locations: Vec<ElinEntry>,
}

/// An ELIN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ElinEntry {
    /// Its number.
    pub identifier: u16,
    /// The telephone number.
    pub elin: String,
    /// The interfaces for which it is configured.
    pub interfaces: Vec<String>,
}

/// `show lldp entry`, `show cdp entry`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DiscoveryEntries {
    /// The neighbours that the command selects.
    pub entries: Vec<DiscoveryEntry>,
}

/// A neighbour with everything that it has sent.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DiscoveryEntry {
    /// The neighbour.
    #[serde(flatten)]
    pub neighbor: DiscoveryNeighbour,
    /// Further information.
    #[serde(flatten)]
    pub details: DiscoveryDetails,
}

impl DiscoveryEntries {
    /// Makes the entries of neighbours.
    #[must_use]
    pub fn of(neighbours: DiscoveryNeighbours) -> Self {
        let entry =
            |neighbor: DiscoveryNeighbour| DiscoveryEntry { details: neighbor.details.clone(), neighbor };
        Self { entries: neighbours.neighbors.into_iter().map(entry).collect() }
    }
}

/// `show lldp`, `show lldp interface`, `show lldp traffic`, and the same commands of CDP.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DiscoveryState {
    /// True if the protocol runs.
    pub running: bool,
    /// Seconds between two frames of a port.
    pub timer_s: u16,
    /// The time to live that the switch sends, in seconds.
    pub holdtime_s: u16,
    /// LLDP: seconds that a port waits before it sends again after it was disabled (IEEE 802.1AB, reinitDelay).
    pub reinit_s: Option<u8>,
    /// Ports, in natural order.
    pub interfaces: Vec<DiscoveryInterface>,
}

/// A port.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DiscoveryInterface {
    /// Its name.
    pub interface: String,
    /// True if it has a link.
    pub link_up: bool,
    /// True if it sends.
    pub transmit: bool,
    /// True if it receives.
    pub receive: bool,
    /// LLDP: the transmit state.
    pub tx_state: Option<&'static str>,
    /// LLDP: the receive state.
    pub rx_state: Option<&'static str>,
    /// Frames sent.
    pub frames_out: u64,
    /// Frames received.
    pub frames_in: u64,
    /// Frames discarded.
    pub frames_discarded: u64,
    /// The number of frames in error, by reason; reasons without frames are left out.
    pub errors: BTreeMap<&'static str, u64>,
    /// TLVs discarded.
    pub tlvs_discarded: u64,
    /// TLVs of unknown types.
    pub tlvs_unrecognized: u64,
    /// Neighbours that were removed because their time to live had ended.
    pub aged_out: u64,
    /// Neighbours that were not stored because the table was full.
    pub table_full: u64,
}

impl DiscoveryState {
    /// The sum of a counter over all ports.
    #[must_use]
    pub fn total(&self, counter: impl Fn(&DiscoveryInterface) -> u64) -> u64 {
        self.interfaces.iter().map(counter).sum()
    }
}

/// `show lldp errors`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DiscoveryErrors {
    /// The refused frames, by interface and reason.
    pub errors: Vec<DiscoveryError>,
    /// Neighbours that were not stored because the table was full.
    pub table_full: u64,
}

/// Frames refused for one reason.
#[derive(Debug, Clone, Serialize)]
pub struct DiscoveryError {
    /// The interface.
    pub interface: String,
    /// The reason.
    pub reason: &'static str,
    /// The number of frames.
    pub frames: u64,
}

impl DiscoveryErrors {
    /// Makes the view of the errors of a protocol's ports.
    #[must_use]
    pub fn of(state: &DiscoveryState) -> Self {
        let at = |port: &DiscoveryInterface| -> Vec<DiscoveryError> {
            let error = |(reason, frames): (&&'static str, &u64)| DiscoveryError {
                interface: port.interface.clone(),
                reason,
                frames: *frames,
            };
            port.errors.iter().map(error).collect()
        };
        let errors = state.interfaces.iter().flat_map(at).collect();
        Self { errors, table_full: state.total(|port| port.table_full) }
    }
}
