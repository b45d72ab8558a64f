//! PVST+: which tree a frame is for, which frames a BPDU becomes, whether the two ends of a trunk mean the same; and
//! PVST simulation at the border of an MST region, where the neighbour has a tree for each VLAN.
//!
//! No standard; Cisco's configuration guides for the Catalyst 3750 and 6500, chapters on MSTP and PVST+, describe both.
//! In the simulation VLAN 1 speaks for the CIST, in IEEE BPDUs. The CIST's BPDU is repeated in each VLAN the neighbour
//! has been heard in, so that all its trees take the border for one and the same bridge; and no VLAN may contradict
//! VLAN 1 about which side the root is on.
//!
//! Invariant: a border port where a VLAN contradicts neither learns nor forwards, for as long as it does.

use crate::bpdu::{self, Bpdu, BpduFrame, Encapsulation};
use crate::bridge::{Action, Bridge, Counter};
use crate::config::{Mode, PortVlans};
use crate::entity::Hold;
use crate::events::Event;
use lanyard_types::{PortId, VlanId};

/// VLANs of a neighbour that the CIST is repeated in, at most: as many as a Catalyst has trees.
const SIMULATED_VLANS: usize = 128;

impl Bridge {
    /// Which entity a BPDU is for: `Ok(None)` when it has been dealt with, `Err` with the counter it goes to.
    pub(crate) fn route(
        &mut self,
        now: u64,
        port: PortId,
        frame: &BpduFrame,
    ) -> Result<Option<u16>, Counter> {
        let mode = self.config.mode;
        let Encapsulation::Sstp { pvid } = frame.encapsulation else {
            // Untagged IEEE BPDUs speak for VLAN 1 on a trunk, for the access VLAN elsewhere.
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
        // VLAN 1 has come in an IEEE BPDU as well, as with a Catalyst; this copy was for the check.
        Ok((vlan.get() != 1).then_some(vlan.get()))
    }

    /// The entity that a VLAN's tree is in.
    fn entity_key(&self, vlan: VlanId) -> u16 {
        if self.config.mode.per_vlan() { vlan.get() } else { 0 }
    }

    /// Holds a port in a VLAN, or in all of an MST bridge; the event is for the first time.
    fn hold(&mut self, now: u64, vlan: VlanId, port: PortId, hold: Hold, event: Event) {
        let key = self.entity_key(vlan);
        let Some(entity) = self.entities.get_mut(&key) else { return };
        if entity.hold(now, port, hold) {
            self.actions.push_back(Action::Event(event));
        }
        self.drain(key);
    }

    /// PVST simulation: a BPDU of a neighbour's tree at the border of the region.
    fn simulate(&mut self, now: u64, port: PortId, vlan: VlanId, bpdu: &Bpdu) {
        let Some(link) = self.links.get_mut(&port) else { return };
        let fresh = link.pvst_vlans.len() < SIMULATED_VLANS && link.pvst_vlans.insert(vlan);
        let Some(entity) = self.entities.get_mut(&0) else { return };
        if fresh {
            entity.tell(now, port);
        }
        let failure = entity.contradicts(port, bpdu);
        if let Some((root, superior)) = failure.filter(|_| vlan != VlanId::DEFAULT) {
            self.hold(now, vlan, port, Hold::Pvst, Event::PvstSimFail { vlan, port, root, superior });
        } else {
            self.drain(0);
        }
    }

    /// Which frames a BPDU becomes. A PVST+ trunk sends VLAN 1's to both addresses, and every VLAN's but
    /// the native one's tagged.
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
