//! Why a configuration may not be taken, as values.
//!
//! Invariant: the text of each names what is refused.

use crate::ports::TooManyPorts;
use crate::spanning::SpanningError;
use ipnet::IpNet;
use lanyard_types::{MacAddr, VlanId};

/// Why a configuration may not be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// More ports than the plane has numbers.
    #[error(transparent)]
    Ports(#[from] TooManyPorts),
    /// The spanning tree bridge refuses the configuration.
    #[error(transparent)]
    Spanning(#[from] SpanningError),
    /// A netdev cannot be a port.
    #[error(transparent)]
    Netdev(#[from] Unusable),
    /// The classes of a policy map need more rules than a list has.
    #[error(
        "policy map {policy}: the criteria up to class {class} need more than {most} rules of a classifier; use shorter access lists, or fewer \
         of them in one class",
        most = lanyard_acl::MAX_RULES
    )]
    PolicyRules {
        /// The policy map.
        policy: String,
        /// The class at which there are too many.
        class: String,
    },
    /// A port has the name of a netdev that a VLAN interface needs.
    #[error("{netdev} is configured as a port; VLAN interface {vlan} needs the name")]
    NameOfPort {
        /// The name.
        netdev: String,
        /// The VLAN.
        vlan: VlanId,
    },
    /// The VLAN belongs to a routed port-channel or its subinterface.
    #[error(
        "VLAN {vlan} is the internal VLAN of {interface}, which is routed: use another VLAN, or remove the routed interface \
         first (show vlan internal usage)"
    )]
    InternalVlan {
        /// The VLAN.
        vlan: VlanId,
        /// The interface.
        interface: String,
    },
    /// Two subinterfaces of port-channels have the same tag, or one has the internal VLAN of a port-channel as its tag.
    #[error(
        "{interface} cannot use VLAN {vlan}: it is the internal VLAN of {other} (show vlan internal usage)"
    )]
    TagInUse {
        /// The VLAN.
        vlan: VlanId,
        /// The subinterface.
        interface: String,
        /// The interface that has the VLAN.
        other: String,
    },
    /// Another instance has made the netdev that is needed.
    #[error("netdev {netdev} belongs to instance {instance}")]
    OfInstance {
        /// The netdev.
        netdev: String,
        /// The other instance.
        instance: String,
    },
    /// A netdev that Lanyard did not create has the name that is needed.
    #[error("a netdev {0} that Lanyard did not create has this name")]
    InTheWay(String),
    /// A VRF is named like the namespace of the switch.
    #[error("VRF {0} would be the network namespace that the switch itself lives in")]
    OwnNamespace(String),
    /// A VRF is named like a namespace of another instance.
    #[error("network namespace {vrf} is a VRF of instance {instance}")]
    NamespaceOfInstance {
        /// The VRF.
        vrf: String,
        /// The other instance.
        instance: String,
    },
    /// A port cannot have access control.
    #[error(
        "{interface} cannot authenticate hosts, because {reason}; or enter `authentication port-control force-authorized`"
    )]
    AccessControl {
        /// The port.
        interface: String,
        /// Why not.
        reason: &'static str,
    },
    /// Two RADIUS servers have the same address and port.
    #[error("RADIUS servers {server} and {other} have the same address and port: {address}, {port}")]
    RadiusTwice {
        /// The server.
        server: String,
        /// The other one.
        other: String,
        /// The address.
        address: std::net::IpAddr,
        /// The port.
        port: u16,
    },
    /// A port with more configured secure addresses than its maximum.
    #[error(
        "{interface} has {count} secure addresses, and its maximum is {maximum}: raise `switchport port-security maximum`, or \
         remove addresses"
    )]
    SecureMaximum {
        /// The port.
        interface: String,
        /// The number of its configured addresses.
        count: usize,
        /// Its maximum.
        maximum: u32,
    },
    /// A secure address of two ports.
    #[error("{mac} in VLAN {vlan} cannot be a secure address of {interface}: it is one of {other}")]
    SecureTwice {
        /// The address.
        mac: MacAddr,
        /// Its VLAN.
        vlan: VlanId,
        /// The port.
        interface: String,
        /// The other port.
        other: String,
    },
    /// A monitor session with both kinds of sources.
    #[error("monitor session {session} has interfaces and VLANs as sources: remove one of the two kinds")]
    MonitorSources {
        /// The session.
        session: u16,
    },
    /// A monitor session with an RSPAN VLAN as the source, and other settings that this source excludes.
    #[error(
        "monitor session {session} has an RSPAN VLAN as its source: remove its other sources, its filter, `encapsulation \
         replicate` and `destination remote`"
    )]
    MonitorRemoteSource {
        /// The session.
        session: u16,
    },
    /// A monitor session with an RSPAN VLAN and ports as destinations.
    #[error(
        "monitor session {session} has an RSPAN VLAN and interfaces as destinations: remove one of the two kinds"
    )]
    MonitorRemoteDestination {
        /// The session.
        session: u16,
    },
    /// A monitor session with an ordinary VLAN.
    #[error(
        "VLAN {vlan} of monitor session {session} is no RSPAN VLAN: enter `remote-span` under `vlan {vlan}` first"
    )]
    MonitorRemoteVlan {
        /// The session.
        session: u16,
        /// The VLAN.
        vlan: u16,
    },
    /// An ERSPAN destination session with the identifier and the address of another one.
    #[error(
        "monitor session {session} has erspan-id {id} and the address {address}, like monitor session {other}: enter another \
         erspan-id"
    )]
    ErspanDestinationId {
        /// Its number.
        session: u16,
        /// The identifier.
        id: u16,
        /// The address.
        address: std::net::Ipv4Addr,
        /// The other session.
        other: u16,
    },
    /// An ERSPAN session with the identifier and the collector of another one.
    #[error(
        "monitor session {session} has erspan-id {id} and the destination {destination}, like monitor session {other}: enter another \
         erspan-id"
    )]
    ErspanId {
        /// The session.
        session: u16,
        /// The identifier.
        id: u16,
        /// The collector.
        destination: std::net::Ipv4Addr,
        /// The other session.
        other: u16,
    },
    /// A destination of two monitor sessions.
    #[error("{interface} is the destination of monitor session {session} already")]
    MonitorTwice {
        /// The port.
        interface: String,
        /// The other session.
        session: u16,
    },
    /// A destination that is no ordinary switch port.
    #[error(
        "{interface} cannot be a destination of a monitor session: name a switch port that is in no port-channel"
    )]
    MonitorDestination {
        /// The interface.
        interface: String,
    },
    /// A port that is source and destination.
    #[error("{interface} is a source of a monitor session and cannot be a destination")]
    MonitorSourceAndDestination {
        /// The port.
        interface: String,
    },
    /// A port whose frames would be copied too often.
    #[error("frames of {interface} would have {count} copies for monitor sessions: at most {most}")]
    MonitorCopies {
        /// The port.
        interface: String,
        /// The number of copies.
        count: usize,
        /// The most that a plane makes.
        most: usize,
    },
    /// A subinterface whose parent is in a VRF.
    #[error("the parent of {0} is in a VRF: give the subinterfaces their VRFs, and leave the parent in none")]
    ParentInVrf(String),
    /// A subinterface whose parent is no routed port.
    #[error("the parent of {0} is no routed port")]
    NoParent(String),
    /// A secondary VLAN that two primary VLANs name.
    #[error(
        "VLAN {secondary} is associated with primary VLAN {first} already: remove it there before VLAN {second} takes it \
         (private-vlan association remove {secondary})"
    )]
    PrivateTwice {
        /// The secondary VLAN.
        secondary: VlanId,
        /// One primary VLAN.
        first: VlanId,
        /// The other one.
        second: VlanId,
    },
    /// A primary VLAN with two isolated VLANs.
    #[error(
        "primary VLAN {primary} has the isolated VLAN {first} already, and one is the most: make VLAN {second} a community, or \
         remove one of them (private-vlan association remove {first})"
    )]
    PrivateIsolated {
        /// The primary VLAN.
        primary: VlanId,
        /// One isolated VLAN.
        first: VlanId,
        /// The other one.
        second: VlanId,
    },
    /// A VLAN interface of a secondary VLAN.
    #[error(
        "VLAN {vlan} is a secondary private VLAN and has no interface: remove interface vlan {vlan}, and map the VLAN under \
         interface vlan {primary} (private-vlan mapping {vlan})"
    )]
    PrivateInterface {
        /// The secondary VLAN.
        vlan: VlanId,
        /// Its primary VLAN.
        primary: VlanId,
    },
    /// A static address in a secondary VLAN.
    #[error(
        "the static address {mac} is in the secondary private VLAN {vlan}, which shares the addresses of VLAN {primary}: enter \
         it with vlan {primary}"
    )]
    PrivateStatic {
        /// The address.
        mac: MacAddr,
        /// The secondary VLAN.
        vlan: VlanId,
        /// Its primary VLAN.
        primary: VlanId,
    },
    /// A static route out of an interface that is in another VRF.
    #[error(
        "{interface} is {}, the route to {prefix} is {}: a route leads out of an interface of its own table",
        table(.interface_vrf.as_ref()), table(.route_vrf.as_ref())
    )]
    OtherTable {
        /// The interface.
        interface: String,
        /// Its VRF.
        interface_vrf: Option<String>,
        /// The destination.
        prefix: IpNet,
        /// The VRF of the route.
        route_vrf: Option<String>,
    },
}

fn table(vrf: Option<&String>) -> String {
    vrf.map_or("in no VRF".into(), |vrf| format!("in VRF {vrf}"))
}

/// Why a netdev cannot be a port at the moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The loopback device.
    #[error("{0} is the loopback interface and cannot be a port")]
    Loopback(String),
    /// A netdev that an instance has made.
    #[error(
        "{netdev} belongs to VLAN interface{}{} and cannot be a port",
        .vlan.map_or(String::new(), |vlan| format!(" {vlan}")),
        .instance.as_ref().map_or(String::new(), |instance| format!(" of instance {instance}"))
    )]
    Made {
        /// The netdev.
        netdev: String,
        /// Its VLAN, if the name is that of a VLAN interface's end.
        vlan: Option<VlanId>,
        /// The instance that made it; `None` if it is this one.
        instance: Option<String>,
    },
    /// A port of a bridge, bond, team or VRF.
    #[error("{netdev} is enslaved to {master}: release it first (ip link set {netdev} nomaster)")]
    Enslaved {
        /// The netdev.
        netdev: String,
        /// The name of its master, or, if that is not known, a text with the master's index.
        master: String,
    },
    /// A netdev without Ethernet framing.
    #[error("{0} is not an Ethernet device and cannot be a port")]
    NoEthernet(String),
}
