//! Converts plane states to operations of the chip, and back.
//!
//! Invariant: [`state_of`] of a chip's entries is the plane state from which its operations came.

use lanyard_asic::sdk::MAX_MESSAGE;
use lanyard_asic::sdk::bytes::Writer;
use lanyard_asic::sdk::operation::Operation;
use lanyard_pipeline::qos::PortQos;
use lanyard_pipeline::state::{Delivery, HookChoice, PlaneState, PortKind, PortState};
use lanyard_plane::{Change, PlaneError};
use lanyard_types::{PortId, PortLock, PortMirror};
use std::collections::BTreeSet;

/// The operations that carry out changes, in their order. Those of spanning tree and of link aggregation are separate, because
/// protocols write them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lowered {
    /// The operations that the resource manager writes.
    pub(crate) setup: Vec<Operation>,
    /// States of ports in trees, and which of them are watched.
    pub(crate) trees: Vec<Operation>,
    /// Members in use of port-channels.
    pub(crate) channels: Vec<Operation>,
}

/// Converts a list of changes to operations.
pub(crate) fn operations(changes: Vec<Change>) -> Lowered {
    let mut lowered = Lowered::default();
    for change in changes {
        let operation = match change {
            Change::Global { new, .. } => Operation::Global(new),
            Change::Port { port, new, .. } => Operation::Port(port, new),
            Change::Vlan { vlan, new, .. } => Operation::Vlan(vlan, new),
            Change::Fdb { vlan, mac, new, .. } => Operation::Fdb(vlan, mac, new),
            Change::Rif { rif, old, new } => {
                // A chip cannot move a router interface to another VRF, so remove it first.
                let moves = matches!((&old, &new), (Some(old), Some(new)) if old.vrf != new.vrf);
                if moves {
                    lowered.setup.push(Operation::Rif(rif, None));
                }
                Operation::Rif(rif, new)
            }
            Change::Stp { instance, port, new, .. } => {
                lowered.trees.push(Operation::Stp(instance, port, new));
                continue;
            }
            Change::Acl { id, new, .. } => Operation::List(id, new),
            Change::Channel { channel, new, .. } => {
                lowered.channels.push(Operation::Channel(channel, new));
                continue;
            }
            Change::Watched { instance, port, new } => {
                lowered.trees.push(Operation::Watched(instance, port, new));
                continue;
            }
        };
        lowered.setup.push(operation);
    }
    channels_first(&mut lowered.setup);
    lowered
}

/// Moves the ports of port-channels that are set before those of other ports: members refer to them, and a long list of
/// operations becomes several transactions.
fn channels_first(setup: &mut [Operation]) {
    let is_channel = |operation: &Operation| matches!(operation, Operation::Port(_, Some(port)) if port.aggregation.channel().is_some());
    let is_port = |operation: &Operation| matches!(operation, Operation::Port(_, Some(_)));
    for run in setup.chunk_by_mut(|one, other| is_port(one) && is_port(other)) {
        run.sort_by_key(|operation| !is_channel(operation));
    }
}

/// The plane state that corresponds to a chip's entries.
pub(crate) fn state_of(entries: &[Operation]) -> PlaneState {
    let mut state = PlaneState::default();
    for entry in entries {
        match entry.clone() {
            Operation::Global(global) => state.global = *global,
            Operation::Port(port, Some(new)) => _ = state.ports.insert(port, *new),
            Operation::Vlan(vlan, Some(new)) => _ = state.vlans.insert(vlan, new),
            Operation::Stp(instance, port, new) => _ = state.stp.insert((instance, port), new),
            Operation::Watched(instance, port, true) => _ = state.watched.insert((instance, port)),
            Operation::Fdb(vlan, mac, Some(new)) => _ = state.fdb.insert((vlan, mac), new),
            Operation::Rif(rif, Some(new)) => _ = state.rifs.insert(rif, *new),
            Operation::List(id, Some(new)) => _ = state.acls.insert(id, new),
            Operation::Channel(id, Some(new)) => _ = state.channels.insert(id, *new),
            _ => {}
        }
    }
    state
}

/// The most operations in one transaction when a whole state is written to a chip.
pub(crate) const SETUP: usize = 4096;
/// The most bytes of operations in one transaction.
const MOST: usize = MAX_MESSAGE * 3 / 4;

/// Refuses a change that is longer than a message of the SDK.
pub(crate) fn fits_a_transaction(setup: &[Operation]) -> Result<(), PlaneError> {
    let bytes: usize = setup.iter().map(length).sum();
    if bytes > MOST {
        return Err(PlaneError::Invalid(format!(
            "the change is too long for one transaction of the chip: {bytes} bytes, and {MOST} are the most; enter it in parts, \
             or make its access lists shorter"
        )));
    }
    Ok(())
}

fn length(operation: &Operation) -> usize {
    let mut writer = Writer::default();
    operation.write(&mut writer);
    writer.0.len()
}

/// Divides operations into transactions of at most `most` operations, none of them longer than a message.
pub(crate) fn transactions(setup: Vec<Operation>, most: usize) -> Vec<Vec<Operation>> {
    let mut all: Vec<Vec<Operation>> = Vec::new();
    let mut bytes = 0;
    for operation in setup {
        let more = length(&operation);
        match all.last_mut() {
            Some(last) if last.len() < most && bytes + more <= MOST => {
                bytes += more;
                last.push(operation);
            }
            _ => {
                bytes = more;
                all.push(vec![operation]);
            }
        }
    }
    all
}

/// Refuses a state with something that the chip cannot do, such as ports that are not on its front panel, or the choice of a
/// hook.
pub(crate) fn check(state: &PlaneState, front: &BTreeSet<PortId>) -> Result<(), PlaneError> {
    if let Some((vlan, _)) = state.vlans.iter().find(|(_, vlan)| vlan.shares.is_some()) {
        return Err(unsupported(format!(
            "isolate VLAN {vlan}: a chip has no private VLANs yet; remove `private-vlan association`, or use the plane ebpf \
             or soft"
        )));
    }
    if let Some((vlan, _)) = state.vlans.iter().find(|(_, vlan)| !vlan.guard.is_off()) {
        return Err(unsupported(format!(
            "inspect DHCP, ARP or ND in VLAN {vlan}: a chip has no table of bindings; remove `ip dhcp snooping`, `ip arp \
             inspection vlan` and `ipv6 nd inspection vlan`, or use the plane ebpf or soft"
        )));
    }
    for (port, state) in &state.ports {
        if state.qos != PortQos::default() {
            return Err(unsupported(format!(
                "apply a service policy at {}: a chip has no policers and no queues for classes yet; remove `service-policy` and `mls \
                 qos`, or use the plane ebpf or soft",
                state.name
            )));
        }
        // A port-channel is no port of the panel; its members are.
        let on_panel = front.contains(port) || state.aggregation.channel().is_some();
        match state.kind {
            PortKind::Netdev | PortKind::Routed if !on_panel => {
                return Err(unsupported(format!(
                    "forward at {}, which is not on the front panel: `show platform ports` lists its ports",
                    state.name
                )));
            }
            PortKind::Svi(_) | PortKind::Subinterface { .. } => continue,
            PortKind::Netdev if state.stages.secure => {
                return Err(unsupported(format!(
                    "enforce port security at {}: a chip does not report violations yet; remove `switchport \
                     port-security`, or use the plane ebpf or soft",
                    state.name
                )));
            }
            PortKind::Netdev if state.stages.guard.lock != PortLock::Open => {
                return Err(unsupported(format!(
                    "lock {}: a chip has no lock for 802.1X; remove `authentication port-control`, or use the plane ebpf or soft",
                    state.name
                )));
            }
            PortKind::Netdev if state.stages.guard.checks() => {
                return Err(unsupported(format!(
                    "verify hosts at {}: a chip has no table of bindings; remove `ip verify source`, `ipv6 source-guard`, \
                     `ipv6 nd raguard` and `ipv6 dhcp guard`, or use the plane ebpf or soft",
                    state.name
                )));
            }
            PortKind::Netdev | PortKind::Routed if state.stages.mirror != PortMirror::default() => {
                return Err(unsupported(format!(
                    "copy frames at {} for a monitor session: a chip has none; remove `monitor session`, or use the plane \
                     ebpf or soft",
                    state.name
                )));
            }
            PortKind::Netdev | PortKind::Routed if state.stages.sample.is_some() => {
                return Err(unsupported(format!(
                    "sample frames at {}: a chip has no sFlow; remove `sflow enable`, or use the plane ebpf or soft",
                    state.name
                )));
            }
            PortKind::Netdev | PortKind::Routed => check_choices(state)?,
        }
    }
    Ok(())
}

fn check_choices(state: &PortState) -> Result<(), PlaneError> {
    let what = match (state.hook, state.delivery) {
        (HookChoice::Auto, Delivery::Auto | Delivery::Device) => return Ok(()),
        (HookChoice::Tc, _) => "at the TC hook",
        (HookChoice::Xdp, _) => "at the XDP hook",
        (HookChoice::Auto, Delivery::Peer) => "with delivery to the peer",
    };
    Err(unsupported(format!("run {} {what}: the chip forwards its frames", state.name)))
}

pub(crate) fn unsupported(what: String) -> PlaneError {
    PlaneError::Unsupported { plane: "asic", what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_acl::{Condition, FlatRule, FrameFamily, PlaneList, Purpose, Verdict};
    use lanyard_pipeline::route::{RifAttachment, RifState, Urpf};
    use lanyard_pipeline::state::{Aggregation, ChannelMembers, FdbTarget, StpState, VlanState};
    use lanyard_plane::changes;
    use lanyard_types::{AclId, ChannelId, InstanceId, MacAddr, RifId, VlanId, VrfId};
    use std::sync::Arc;

    fn port(number: u16) -> PortId {
        PortId::new(number).expect("a port")
    }
    fn vlan(number: u16) -> VlanId {
        VlanId::new(number).expect("a VLAN")
    }
    fn rif(vrf: u8) -> RifState {
        RifState {
            name: "swp2".into(),
            vrf: VrfId::new(vrf).expect("a VRF"),
            attachment: RifAttachment::Port(port(2)),
            mac: MacAddr([2, 0, 0, 0, 0, 2]),
            virtual_macs: BTreeSet::new(),
            mtu: 1500,
            ipv4: true,
            ipv6: false,
            urpf_ipv4: Urpf::Off,
            urpf_ipv6: Urpf::Off,
            while_confirmed: false,
        }
    }
    fn list(conditions: usize) -> PlaneList {
        let ports = (0..conditions).map(|n| (n as u16 * 3, n as u16 * 3 + 1)).collect();
        let rule = FlatRule {
            verdict: Verdict::Deny,
            fragments: false,
            log: false,
            log_input: false,
            list: 0,
            seq: 10,
            conditions: vec![(16, Condition::Ranges(ports))],
        };
        PlaneList {
            name: "access list web".into(),
            purpose: Purpose::Filter,
            family: FrameFamily::Ipv4,
            names: vec!["web".into()],
            rules: vec![rule],
            otherwise_permit: false,
        }
    }
    fn state() -> PlaneState {
        let mut state = PlaneState::default();
        state.acls.insert(AclId::new(7).expect("a list"), Arc::new(list(2)));
        state.global.fdb_limit = 77;
        state.vlans.insert(vlan(10), VlanState::default());
        state.ports.insert(port(1), PortState::access("swp1", 4, vlan(10)));
        state.ports.insert(port(2), PortState { kind: PortKind::Routed, ..PortState::new("swp2", 5) });
        state.stp.insert((InstanceId::default(), port(1)), StpState::Discarding);
        state.watched.insert((InstanceId::default(), port(2)));
        state.fdb.insert((vlan(10), MacAddr([2, 0, 0, 0, 0, 9])), FdbTarget::Static(port(1)));
        state.rifs.insert(RifId::new(1).expect("an interface"), rif(0));
        // A port-channel whose port number is higher than that of its member.
        let channel = ChannelId::new(5).expect("a port-channel");
        let bundle = PortState {
            aggregation: Aggregation::Channel(channel),
            ..PortState::access("port-channel5", 0, vlan(10))
        };
        let aggregation = Aggregation::Member { of: port(600), channel };
        state.ports.insert(port(600), bundle);
        state.ports.insert(port(3), PortState { aggregation, ..PortState::new("swp3", 6) });
        let members = ChannelMembers { collecting: [port(3)].into(), buckets: vec![port(3); 256] };
        state.channels.insert(channel, members);
        state
    }

    #[test]
    fn a_state_survives_the_chip() {
        let lowered = operations(changes(&PlaneState::default(), &state()));
        let at = |number| {
            let is = |operation: &Operation| matches!(operation, Operation::Port(id, Some(_)) if *id == port(number));
            lowered.setup.iter().position(is)
        };
        assert!(at(600) < at(3), "a member refers to its port-channel");
        let entries: Vec<Operation> =
            lowered.setup.into_iter().chain(lowered.trees).chain(lowered.channels).collect();
        assert_eq!(state_of(&entries), state());
    }

    #[test]
    fn an_interface_leaves_its_vrf_before_it_enters_another() {
        let (old, mut next) = (state(), state());
        next.rifs.insert(RifId::new(1).expect("an interface"), rif(3));
        let lowered = operations(changes(&old, &next));
        let steps: Vec<bool> =
            lowered.setup.iter().map(|step| matches!(step, Operation::Rif(_, Some(_)))).collect();
        assert_eq!(steps, [false, true]);
    }

    #[test]
    fn operations_too_long_for_one_transaction_are_divided_or_refused() {
        let long = |n| Operation::List(AclId::new(n).expect("a list"), Some(Arc::new(list(20_000))));
        let setup: Vec<Operation> = (1..=12).map(long).collect();
        let error = fits_a_transaction(&setup).expect_err("almost a megabyte").to_string();
        assert!(error.contains("too long for one transaction of the chip"), "{error}");
        let parts = transactions(setup.clone(), 4096);
        assert!(parts.len() == 2 && parts.iter().all(|part| fits_a_transaction(part).is_ok()));
        assert_eq!(parts.concat(), setup);
        assert_eq!(transactions(setup, 5).iter().map(Vec::len).collect::<Vec<_>>(), [5, 5, 2]);
    }

    #[test]
    fn port_settings_a_chip_does_not_support_are_refused() {
        let front = [port(1), port(2), port(3)].into_iter().collect();
        assert_eq!(check(&state(), &front), Ok(()));
        let mut stray = state();
        stray.ports.insert(port(9), PortState::new("eth9", 7));
        let mut hooked = state();
        hooked.ports.insert(port(1), PortState { hook: HookChoice::Xdp, ..PortState::new("swp1", 4) });
        let with = |change: fn(&mut PortState)| {
            let mut state = state();
            state.ports.values_mut().take(1).for_each(change);
            state
        };
        let peer = with(|port| port.delivery = Delivery::Peer);
        let secure = with(|port| port.stages.secure = true);
        let copied = with(|port| port.stages.mirror.destination = true);
        for (state, want) in [
            (stray, "eth9, which is not on the front panel"),
            (hooked, "swp1 at the XDP hook"),
            (peer, "swp1 with delivery to the peer"),
            (secure, "enforce port security at swp1"),
            (copied, "copy frames at swp1 for a monitor session"),
        ] {
            let error = check(&state, &front).expect_err(want);
            assert!(error.to_string().contains(want), "{error}");
        }
    }
}
