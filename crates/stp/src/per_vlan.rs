//! PVST+: to which tree a received frame belongs, in which frames a BPDU is sent, and whether both ends of a trunk use
//! the same native VLAN; and PVST simulation at the border of an MST region, where the neighbour has a tree for each
//! VLAN.
//!
//! There is no standard; Cisco's configuration guides for the Catalyst 3750 and 6500, chapters on MSTP and PVST+,
//! describe both. In the simulation VLAN 1 represents the CIST, in IEEE BPDUs. The CIST's BPDU is repeated in each VLAN
//! in which BPDUs of the neighbour have been received, so that all its trees see the region as one and the same bridge;
//! and no VLAN may contradict VLAN 1 about the side on which the root is.
//!
//! Invariant: a border port where a VLAN contradicts the CIST neither learns nor forwards until the contradiction ends.

use crate::bpdu::{self, Bpdu, BpduFrame, Encapsulation};
use crate::bridge::{Action, Bridge, Counter};
use crate::config::{Mode, PortVlans};
use crate::entity::Hold;
use crate::events::Event;
use lanyard_types::{PortId, VlanId};

/// The maximum number of a neighbour's VLANs in which the CIST's BPDU is repeated: the number of trees of a
/// Catalyst.
const SIMULATED_VLANS: usize = 128;

impl Bridge {
    /// The key of the entity that is to process a BPDU; `Ok(None)` if the BPDU needs no further processing. The error
    /// is the counter of a refused BPDU.
    pub(crate) fn route(
        &mut self,
        now: u64,
        port: PortId,
        frame: &BpduFrame,
    ) -> Result<Option<u16>, Counter> {
        let mode = self.config.mode;
        let Encapsulation::Sstp { pvid } = frame.encapsulation else {
            // An untagged IEEE BPDU belongs to VLAN 1 on a trunk, and to the access VLAN elsewhere.
            return Ok(Some(match self.config.ports.get(&port).map(|config| &config.vlans) {
                _ if !mode.per_vlan() => 0,
                Some(PortVlans::Access(vlan)) => vlan.get(),
                _ => 1,
            }));
        };
        if !mode.per_vlan() && mode != Mode::Mst {
            return Err(|counters| &mut counters.sstp_ignored);
        }
        let Some(config) = self.config.ports.get(&port) else { return Err(|counters| &mut counters.no_tree) };
        let (vlan, trunk) = match &config.vlans {
            PortVlans::Access(vlan) => (*vlan, false),
            PortVlans::Trunk { native, .. } => (frame.vlan.unwrap_or(*native), true),
        };
        if !trunk {
            self.hold(now, vlan, port, Hold::Type, Event::TypeMismatch { vlan, port });
            return Ok(None);
        }
        if let Some(peer) = pvid
            && peer != vlan
        {
            self.hold(now, vlan, port, Hold::Pvid, Event::PvidMismatch { vlan, peer, port });
            self.hold(now, peer, port, Hold::Pvid, Event::PvidMismatch { vlan, peer, port });
            return Ok(None);
        }
        if mode == Mode::Mst {
            self.simulate(now, port, vlan, &frame.bpdu);
            return Ok(None);
        }
        // Like a Catalyst, the neighbour sends VLAN 1's BPDU to the IEEE address as well; this copy is only
        // for the check.
        Ok((vlan.get() != 1).then_some(vlan.get()))
    }

    /// The key of the entity that has a VLAN's tree.
    fn entity_key(&self, vlan: VlanId) -> u16 {
        if self.config.mode.per_vlan() { vlan.get() } else { 0 }
    }

    /// Blocks a port in a VLAN, or in all trees of an MST bridge; reports the event only the first time.
    fn hold(&mut self, now: u64, vlan: VlanId, port: PortId, hold: Hold, event: Event) {
        let key = self.entity_key(vlan);
        let Some(entity) = self.entities.get_mut(&key) else { return };
        if entity.hold(now, port, hold) {
            self.actions.push_back(Action::Event(event));
        }
        self.drain(key);
    }

    /// PVST simulation: processes a BPDU of a neighbour's VLAN at the border of the region.
    fn simulate(&mut self, now: u64, port: PortId, vlan: VlanId, bpdu: &Bpdu) {
        let Some(link) = self.links.get_mut(&port) else { return };
        let fresh = link.pvst_vlans.len() < SIMULATED_VLANS && link.pvst_vlans.insert(vlan);
        let Some(entity) = self.entities.get_mut(&0) else { return };
        if fresh {
            entity.announce(now, port);
        }
        let failure = entity.contradicts(port, bpdu);
        if let Some((root, superior)) = failure.filter(|_| vlan != VlanId::DEFAULT) {
            self.hold(now, vlan, port, Hold::Pvst, Event::PvstSimFail { vlan, port, root, superior });
        } else {
            self.drain(0);
        }
    }

    /// Sends the frames for a BPDU. A PVST+ trunk sends VLAN 1's BPDU to both addresses, and the BPDUs of all
    /// VLANs except the native one tagged.
    pub(crate) fn transmit(&mut self, port: PortId, vlan: Option<VlanId>, bpdu: &Bpdu) {
        let Some(config) = self.config.ports.get(&port) else { return };
        let source = config.address.unwrap_or(self.config.address);
        let mut send = |tag: Option<VlanId>, encapsulation, bpdu: &Bpdu| {
            let frame = bpdu::encode(source, tag, encapsulation, bpdu);
            self.actions.push_back(Action::Transmit { port, vlan: tag, frame });
        };
        let PortVlans::Trunk { native, .. } = &config.vlans else {
            send(None, Encapsulation::Ieee, bpdu);
            return;
        };
        if vlan.is_none_or(|vlan| vlan == VlanId::DEFAULT) {
            send(None, Encapsulation::Ieee, bpdu);
        }
        let simulated = self.links.get(&port).filter(|_| vlan.is_none()).map(|link| &link.pvst_vlans);
        let simple = match bpdu {
            Bpdu::Mst(body, _) => &Bpdu::Rst(*body),
            other => other,
        };
        for vlan in vlan.iter().chain(simulated.into_iter().flatten()) {
            let pvid = (*bpdu != Bpdu::Tcn).then_some(*vlan);
            send((vlan != native).then_some(*vlan), Encapsulation::Sstp { pvid }, simple);
        }
    }
}
