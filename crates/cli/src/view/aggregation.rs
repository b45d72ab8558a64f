//! Link aggregation: `show etherchannel`, `show lacp`.

use lanyard_types::MacAddr;
use serde::Serialize;
use std::collections::BTreeMap;

/// `show etherchannel summary`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EtherchannelSummary {
    /// The port-channels, by number.
    pub channels: Vec<SummaryChannel>,
}

/// A port-channel in the summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SummaryChannel {
    /// Its interface: `port-channel1`.
    pub name: String,
    /// `lacp` or `static`.
    pub protocol: &'static str,
    /// True while it has enough members in use, and is not shut down.
    pub up: bool,
    /// Its members, by name.
    pub members: Vec<SummaryMember>,
}

/// A member in the summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SummaryMember {
    /// The interface.
    pub interface: String,
    /// True if it is in use.
    pub bundled: bool,
    /// `bundled`, `down`, `waiting`, `hot_standby`, `individual` or `suspended`.
    pub state: &'static str,
}

impl EtherchannelSummary {
    /// Makes the summary of `channels`.
    #[must_use]
    pub fn of(channels: &Channels) -> Self {
        let member = |member: &ChannelMember| SummaryMember {
            interface: member.interface.clone(),
            bundled: member.bundled,
            state: member.state,
        };
        let channel = |channel: &Channel| SummaryChannel {
            name: channel.name.clone(),
            protocol: channel.protocol,
            up: channel.up,
            members: channel.members.iter().map(member).collect(),
        };
        Self { channels: channels.channels.iter().map(channel).collect() }
    }
}

/// The state of link aggregation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Channels {
    /// This system, as LACP names it.
    pub system: LacpSystem,
    /// The method by which a member is chosen for a frame.
    pub load_balance: ChannelBalance,
    /// The port-channels, by number.
    pub channels: Vec<Channel>,
}

/// `show vlan internal usage`. Made from the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InternalVlans {
    /// The VLANs, ascending.
    pub internal: Vec<InternalVlan>,
}

/// A VLAN that the switch uses for a routed port-channel or a subinterface of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InternalVlan {
    /// Its number.
    pub vlan: u16,
    /// The interface: `port-channel1`, `po1.100`.
    pub interface: String,
}

/// `show lacp sys-id`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LacpSystem {
    /// `lacp system-priority`.
    pub priority: u16,
    /// The system's address.
    pub mac: MacAddr,
}

/// `show etherchannel load-balance`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChannelBalance {
    /// The keyword of `port-channel load-balance`.
    pub method: &'static str,
    /// True if the hash is the same for both directions of a conversation.
    pub symmetric: bool,
}

/// A port-channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Channel {
    /// Its interface: `port-channel1`.
    pub name: String,
    /// Its number.
    pub number: u8,
    /// `lacp` or `static`.
    pub protocol: &'static str,
    /// True while it has enough members in use, and is not shut down.
    pub up: bool,
    /// True if it is shut down.
    pub shutdown: bool,
    /// True with `no switchport`.
    pub routed: bool,
    /// `port-channel min-links`.
    pub min_links: u8,
    /// `lacp max-bundle`.
    pub max_bundle: u8,
    /// Its members, by name.
    pub members: Vec<ChannelMember>,
}

impl Channel {
    /// True if its members run LACP.
    #[must_use]
    pub fn runs_lacp(&self) -> bool {
        self.protocol == "lacp"
    }
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChannelMember {
    /// The interface.
    pub interface: String,
    /// `active`, `passive` or `on`.
    pub mode: &'static str,
    /// True if it is in use.
    pub bundled: bool,
    /// The state, as in [`SummaryMember::state`].
    pub state: &'static str,
    /// The letter of the state in IOS: `P`, `D`, `w`, `H`, `I`, `s`.
    #[serde(skip)]
    pub flag: char,
    /// The number of the port-channel's 256 buckets that are assigned to it.
    pub buckets: u16,
    /// The state of LACP; absent with mode `on`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacp: Option<LacpMember>,
}

/// The state of a member in LACP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LacpMember {
    /// The information that this system sends about itself.
    pub actor: LacpPort,
    /// The information received from the partner.
    pub partner: LacpPort,
    /// The state of the receive machine (IEEE 802.1AX-2014, 6.4.12).
    pub receive: &'static str,
    /// The state of the mux machine (6.4.15).
    pub mux: &'static str,
    /// The state of the actor's churn machine (6.4.17).
    pub actor_churn: &'static str,
    /// The state of the partner's churn machine.
    pub partner_churn: &'static str,
    /// LACPDUs sent.
    pub sent: u64,
    /// LACPDUs received.
    pub received: u64,
    /// Markers received.
    pub markers: u64,
    /// Marker responses sent.
    pub marker_responses: u64,
    /// The number of refused frames, by cause.
    pub errors: BTreeMap<&'static str, u64>,
}

/// One side of a link in LACP's information (6.4.2.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LacpPort {
    /// The priority of the system.
    pub system_priority: u16,
    /// The address of the system.
    pub system: MacAddr,
    /// The key.
    pub key: u16,
    /// The priority of the port.
    pub port_priority: u16,
    /// The number of the port.
    pub port: u16,
    /// The letters of the set bits: activity, timeout (short), aggregation, synchronization, collecting, distributing,
    /// defaulted, expired.
    pub state: String,
    /// The bits as a number.
    pub state_bits: u8,
}
