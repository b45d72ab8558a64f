//! trap: link-local control frames go to the control plane or are dropped (IEEE 802.1Q-2018, 8.6.3 and table 8-1).
//!
//! Trapping does not depend on VLAN or spanning-tree state: BPDUs are received at discarding ports. It does depend on
//! the port being enabled: at a disabled port such a frame continues to the port stage, which drops it. PVST+ BPDUs are
//! trapped only in VLANs with a tree; elsewhere they are ordinary multicast. Control frames of a customer's network
//! never reach this switch's protocols: a dot1q-tunnel port drops them, or sends them through the provider's network
//! with another destination, which `replicate` restores at the tunnel ports on the other side. The token bucket is not
//! part of the decision; [`police`] takes the token when the frame really goes up.

use super::Arrival;
use super::parse::Parsed;
use crate::Timestamp;
use crate::state::{PortState, ReservedAction};
use crate::tables::Tables;
use crate::tables::trap::TrapTable;
use crate::trace::{Fact, Notes, Verdict};
use lanyard_types::{DropReason, MacAddr, PortId, PortSet, Stage, TrapReason, TunnelledProtocol, VlanId};
use lanyard_wire::ip::IPV6;
use lanyard_wire::tunnelled_protocol;

/// The last nibble of the address of MAC control frames: PAUSE and priority flow control.
const PAUSE: u8 = 1;

/// Ends a frame that this switch must not relay.
pub(super) fn run(
    tables: &Tables,
    arrival: &Arrival<'_>,
    frame: &mut Parsed,
    notes: &mut Notes,
) -> Result<(), Verdict> {
    let port = tables.ports.get(arrival.port);
    if let Some(port) = port.filter(|port| port.enabled && port.is_tunnel())
        && let Some(protocol) = customers(port, arrival, frame)?
    {
        frame.dst = MacAddr::TUNNEL;
        notes.say(Stage::Trap, || Fact::EntersTunnel(protocol));
        return Ok(());
    }
    let tag = frame.tag.map(|tag| tag.vid).filter(|vid| *vid != 0);
    let vlan = tag.map_or_else(|| port.and_then(|port| port.pvid), VlanId::new);
    let Some(reason) = reason(&tables.trap, frame.dst, vlan)? else {
        notes.say(Stage::Trap, || Fact::NotTrapped);
        return Ok(());
    };
    if !port.is_some_and(|port| port.enabled) {
        notes.say(Stage::Trap, || Fact::TrapAtDownPort(reason));
        return Ok(());
    }
    notes.say(Stage::Trap, || Fact::Trapped { dst: frame.dst, reason });
    Err(Verdict::Trapped(reason))
}

/// How a customer's control frame is treated inside the provider's network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tunnelled {
    /// The destination that the frame's protocol uses, for `restored`; unused while `restored` is empty.
    pub address: MacAddr,
    /// The tunnel ports that carry its protocol.
    pub restored: PortSet,
    /// The other tunnel ports, by which the frame does not leave.
    pub without: PortSet,
}

impl Tunnelled {
    /// The treatment of a received frame.
    pub(super) fn of(tables: &Tables, arrival: &Arrival<'_>, frame: &Parsed) -> Self {
        let found = tunnelled_protocol(arrival.bytes, frame.tag.is_some());
        let mut all =
            Self { address: found.map_or(MacAddr::TUNNEL, |(_, address)| address), ..Self::default() };
        for id in PortId::all() {
            let Some(port) = tables.ports.get(id).filter(|port| port.is_tunnel()) else { continue };
            let carries = found.is_some_and(|(protocol, _)| port.tunnelled.carries(protocol));
            let set = if carries { &mut all.restored } else { &mut all.without };
            set.insert(id);
        }
        all
    }
    /// The destination address that the frame has at a port.
    pub(super) fn address(&self, port: PortId) -> MacAddr {
        if self.restored.contains(port) { self.address } else { MacAddr::TUNNEL }
    }
}

/// The protocol of a customer's control frame, if `port` carries it; `None` for any frame that is not a control frame. A control
/// frame whose address and payload do not belong to one protocol that the port carries is dropped, and so is a frame to the
/// tunnel address.
fn customers(
    port: &PortState,
    arrival: &Arrival<'_>,
    frame: &Parsed,
) -> Result<Option<TunnelledProtocol>, Verdict> {
    if frame.dst == MacAddr::TUNNEL {
        return Err(Verdict::Dropped(DropReason::TunnelAddress));
    }
    if !frame.dst.is_layer2_protocol() {
        return Ok(None);
    }
    match tunnelled_protocol(arrival.bytes, false) {
        Some((protocol, address)) if address == frame.dst && port.tunnelled.carries(protocol) => {
            Ok(Some(protocol))
        }
        _ => Err(Verdict::Dropped(DropReason::TunnelProtocol)),
    }
}

/// Why a frame for `dst` in `vlan` is trapped; `None` when it is not.
fn reason(table: &TrapTable, dst: MacAddr, vlan: Option<VlanId>) -> Result<Option<TrapReason>, Verdict> {
    let Some(nibble) = dst.reserved() else {
        if dst == MacAddr::CISCO_DISCOVERY {
            return Ok(table.global().trap_cdp.then_some(TrapReason::Cdp));
        }
        return Ok((dst == MacAddr::SSTP && table.pvst(vlan)).then_some(TrapReason::PvstBpdu));
    };
    if nibble == PAUSE {
        return Err(Verdict::Dropped(DropReason::Pause));
    }
    match table.reserved(nibble) {
        ReservedAction::Drop => Err(Verdict::Dropped(DropReason::ReservedAddress)),
        ReservedAction::Forward => Ok(None),
        ReservedAction::Trap => Ok(Some(TrapReason::of_reserved(nibble))),
    }
}

/// The EtherType of ARP.
pub(super) const ARP: u16 = 0x0806;

/// True for ARP and for ICMPv6 messages of neighbour discovery (RFC 4861, types 133 to 137).
pub(super) fn is_neighbour(ethertype: u16, packet: &[u8]) -> bool {
    ethertype == ARP
        || ethertype == IPV6
            && packet.get(6) == Some(&58)
            && packet.get(40).is_some_and(|kind| (133..=137).contains(kind))
}

/// The reason under which a frame for the kernel's stack is counted, unless it belongs to the ordinary traffic of the
/// switch's own addresses.
pub(super) fn host_reason(dst: MacAddr, ethertype: u16, packet: &[u8]) -> Option<TrapReason> {
    match dst.0 {
        _ if is_neighbour(ethertype, packet) => Some(TrapReason::Neighbour),
        [0x01, 0x00, 0x5e, 0, 0, _] | [0x33, 0x33, 0, 0, 0, _] => Some(TrapReason::LinkMulticast),
        _ => dst.is_broadcast().then_some(TrapReason::Flooded),
    }
}

/// The reason under which the copy of a bridged frame for a VLAN interface is counted; `None`: the copy is not policed. `limited`
/// is true if snooping limits the frame to the ports of its group: the kernel's stack then gets a copy only because it needs the
/// group.
pub(super) fn copy_reason(
    flood: bool,
    limited: bool,
    dst: MacAddr,
    ethertype: u16,
    packet: &[u8],
) -> Option<TrapReason> {
    match host_reason(dst, ethertype, packet) {
        reason @ Some(TrapReason::Neighbour) => reason,
        reason if flood && !limited => reason.or(Some(TrapReason::Flooded)),
        _ => None,
    }
}

/// Takes a token from the port's share and from the group of a trapped frame; a frame over either rate is dropped
/// instead.
pub(crate) fn police(table: &mut TrapTable, verdict: Verdict, port: PortId, now: Timestamp) -> Verdict {
    match verdict {
        Verdict::Trapped(reason) if !table.admit(reason, port, now) => {
            Verdict::Dropped(DropReason::TrapPoliced)
        }
        other => other,
    }
}
