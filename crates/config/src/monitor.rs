//! `monitor session ...`: the model. A session copies the frames of its sources to its destination ports (SPAN), into an RSPAN
//! VLAN, or to an IPv4 address (ERSPAN). An ERSPAN destination session receives the copies of another switch and sends them out
//! of its destination ports.

use crate::{Config, InterfaceName};
use lanyard_types::{VlanId, VlanSet};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// The highest number of a session.
pub const MAX_MONITOR_SESSION: u16 = 66;

/// `monitor session N ...`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MonitorSession {
    /// `source interface I`: switch ports, port-channels and routed ports.
    pub interfaces: BTreeMap<InterfaceName, MonitorDirection>,
    /// `source vlan V`: the frames of all switch ports in these VLANs. A session has either VLANs or interfaces as sources.
    pub vlans: BTreeMap<VlanId, MonitorDirection>,
    /// `source remote vlan V`: the frames of an RSPAN VLAN. A session has no other sources then.
    pub remote_source: Option<VlanId>,
    /// `destination remote vlan V`: the copies leave in this RSPAN VLAN. A session has no destination ports then.
    pub remote_destination: Option<VlanId>,
    /// `filter vlan LIST`: of the frames of interfaces only those in these VLANs are copied.
    pub filter: Option<VlanSet>,
    /// `destination interface I`: switch ports.
    pub destinations: BTreeSet<InterfaceName>,
    /// `destination ... encapsulation replicate`: the copies keep their tags.
    pub keep_tag: bool,
    /// `type erspan-source`: the copies leave in packets. A session has no destination ports and no RSPAN VLANs then.
    pub erspan: Option<ErspanSource>,
    /// `type erspan-destination`: the frames that packets carry leave by the destination ports. A session has no sources and no
    /// RSPAN VLANs then.
    pub erspan_destination: Option<ErspanDestination>,
}

/// The highest identifier of an ERSPAN session. The header has 10 bits for it; IOS does not allow 0.
pub const MAX_ERSPAN_ID: u16 = 1023;
/// The lowest and the highest value of `mtu`: the length of the longest packet in bytes, IPv4 header included.
pub const ERSPAN_MTU: (u16, u16) = (176, 9000);

/// `monitor session N type erspan-source`: where and how the copies are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErspanSource {
    /// `no shutdown`.
    pub enabled: bool,
    /// `erspan-id`, 1 to [`MAX_ERSPAN_ID`].
    pub id: Option<u16>,
    /// `ip address`: the collector.
    pub destination: Option<Ipv4Addr>,
    /// `origin ip address`: the source address of the packets, an address of the switch.
    pub origin: Option<Ipv4Addr>,
    /// `ip ttl`, 1 to 255.
    pub ttl: u8,
    /// `ip dscp`, 0 to 63.
    pub dscp: u8,
    /// `mtu`: the longest packet in bytes, within [`ERSPAN_MTU`]; longer copies are truncated.
    pub mtu: u16,
    /// `vrf`: the routing table by which the packets leave; `None` is the switch's own.
    pub vrf: Option<String>,
    /// `header-type`.
    pub header: ErspanType,
}

/// `header-type`: the header of the packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ErspanType {
    /// Type II.
    #[default]
    Two,
    /// Type III, whose header has a timestamp.
    Three,
}

impl Default for ErspanSource {
    fn default() -> Self {
        Self {
            enabled: false,
            id: None,
            destination: None,
            origin: None,
            ttl: 255,
            dscp: 0,
            mtu: ERSPAN_MTU.1,
            vrf: None,
            header: ErspanType::Two,
        }
    }
}

/// The settings of an ERSPAN source session for which all are configured and that is not shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErspanTunnel {
    /// `erspan-id`.
    pub id: u16,
    /// The collector.
    pub destination: Ipv4Addr,
    /// The source address.
    pub origin: Ipv4Addr,
    /// Time to live.
    pub ttl: u8,
    /// DSCP.
    pub dscp: u8,
    /// The longest packet in bytes.
    pub mtu: u16,
    /// The header.
    pub header: ErspanType,
}

impl ErspanSource {
    /// The settings of the packets that the session sends; `None` while it is shut down or a setting is missing.
    #[must_use]
    pub fn tunnel(&self) -> Option<ErspanTunnel> {
        let (id, destination, origin) = (self.id?, self.destination?, self.origin?);
        let Self { ttl, dscp, mtu, header, .. } = *self;
        self.enabled.then_some(ErspanTunnel { id, destination, origin, ttl, dscp, mtu, header })
    }
}

/// `monitor session N type erspan-destination`: which packets the session takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErspanDestination {
    /// `no shutdown`.
    pub enabled: bool,
    /// `erspan-id`, 1 to [`MAX_ERSPAN_ID`].
    pub id: Option<u16>,
    /// `ip address`: an address of the switch, to which the packets are sent.
    pub address: Option<Ipv4Addr>,
    /// `vrf`: the routing table that has the address; `None` is the switch's own.
    pub vrf: Option<String>,
}

impl ErspanDestination {
    /// The identifier and the address of the packets that the session takes; `None` while it is shut down or one of them is
    /// missing.
    #[must_use]
    pub fn receives(&self) -> Option<(u16, Ipv4Addr)> {
        self.id.zip(self.address).filter(|_| self.enabled)
    }
}

impl Config {
    /// True if a port is the destination of a monitor session.
    #[must_use]
    pub fn is_monitor_destination(&self, name: &InterfaceName) -> bool {
        self.monitor.values().any(|session| session.destinations.contains(name))
    }

    /// The ERSPAN sessions that send copies, by number.
    pub fn erspan_tunnels(&self) -> impl Iterator<Item = (u16, ErspanTunnel)> + '_ {
        let tunnel =
            |(number, session): (&u16, &MonitorSession)| Some((*number, session.erspan.as_ref()?.tunnel()?));
        self.monitor.iter().filter_map(tunnel)
    }
}

impl MonitorSession {
    /// The `vrf` setting of an ERSPAN session, to be changed; `None` for other sessions.
    pub fn vrf_mut(&mut self) -> Option<&mut Option<String>> {
        let source = self.erspan.as_mut().map(|source| &mut source.vrf);
        source.or(self.erspan_destination.as_mut().map(|destination| &mut destination.vrf))
    }
}

/// Which of a source's frames are copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MonitorDirection {
    /// The frames that the source receives.
    Rx,
    /// The frames that the source sends.
    Tx,
    /// Received and sent frames.
    #[default]
    Both,
}

impl MonitorDirection {
    /// The keyword.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rx => "rx",
            Self::Tx => "tx",
            Self::Both => "both",
        }
    }
    /// True if received frames are copied.
    #[must_use]
    pub const fn receives(self) -> bool {
        matches!(self, Self::Rx | Self::Both)
    }
    /// True if sent frames are copied.
    #[must_use]
    pub const fn sends(self) -> bool {
        matches!(self, Self::Tx | Self::Both)
    }
}
