//! Writes router interfaces to the tables: `rifs`, `vlan_rifs`, `sub_rifs`, and the bits that send a frame to
//! them.
//!
//! Invariant: a row is written before any bit sends frames to it, and cleared after no bit does.

use crate::abi;
use crate::error::{Doing, Result};
use crate::lower;
use crate::plane::EbpfPlane;
use crate::watchdog;
use lanyard_pipeline::route::{RifAttachment, RifState};
use lanyard_pipeline::state::PortKind;
use lanyard_types::{PortId, RifId, VlanId};
use libbpf_rs::{MapCore, MapFlags};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

impl EbpfPlane {
    /// The router interface of a routed port itself, not of a subinterface; 0 without one.
    pub(crate) fn rif_on(&self, port: PortId) -> u16 {
        let on = |rif: &RifState| rif.attachment == RifAttachment::Port(port);
        self.state.rifs.iter().find(|(_, rif)| on(rif)).map_or(0, |(id, _)| id.get())
    }

    pub(crate) fn change_rif(&mut self, id: RifId, new: Option<&RifState>) -> Result<()> {
        let old = match new {
            Some(new) => self.state.rifs.insert(id, new.clone()),
            None => self.state.rifs.remove(&id),
        };
        if let Some(old) = old.filter(|old| new.is_none_or(|new| new.attachment != old.attachment)) {
            self.lead(&old)?;
        }
        self.write_rif(id, new);
        new.map_or(Ok(()), |new| self.lead(new))
    }

    /// Writes the row of an interface. While the watchdog of routing has expired, the row of one that depends on it routes
    /// nothing.
    fn write_rif(&self, id: RifId, rif: Option<&RifState>) {
        let mut row = rif.map(lower::rif_row).unwrap_or_default();
        if row.flags & abi::RIF_CONFIRMED != 0 && watchdog::routing_ended(&self.tables) {
            row.flags &= !(abi::RIF_IPV4 | abi::RIF_IPV6);
        }
        self.tables.rifs.set(id.index(), &row);
        watchdog::end_routing_again(&self.tables, id);
    }

    /// Restarts the watchdog of routing, which expires after `hold`. Interfaces whose routing had ended route again; returns
    /// their number.
    pub(crate) fn confirm_routing(&mut self, hold: Duration) -> Result<u64> {
        watchdog::set(&self.programs.watchdog_set, abi::WATCHDOG_ROUTING, Some(hold))?;
        let phase = watchdog::routing_phase(&self.tables);
        let ended = self.tables.watchdog.get(abi::WATCHDOG_ROUTING.into()).affected;
        if phase.compare_exchange(abi::WATCHDOG_EXPIRED, abi::WATCHDOG_WAITS, SeqCst, SeqCst).is_err() {
            // It has not expired; or it is just expiring, and the next call finds that.
            return Ok(0);
        }
        let depend = self.state.rifs.iter().filter(|(_, rif)| rif.while_confirmed);
        depend.for_each(|(id, rif)| self.write_rif(*id, Some(rif)));
        // The expiry that was just acknowledged may be that of the timer that was started above.
        watchdog::set(&self.programs.watchdog_set, abi::WATCHDOG_ROUTING, Some(hold))?;
        Ok(ended)
    }

    /// Makes frames at the attachment of `rif` reach the router interface that the state has there, if any.
    fn lead(&self, rif: &RifState) -> Result<()> {
        match rif.attachment {
            RifAttachment::Vlan { vlan, .. } => {
                let vlans: Vec<VlanId> = lower::routed_with(&self.state, vlan).chain([vlan]).collect();
                vlans.iter().for_each(|vlan| self.write_vlan_rif(*vlan));
                let mut writer = self.pairs.lock();
                writer.state_mut().rifs.clone_from(&self.state.rifs);
                vlans.iter().for_each(|vlan| writer.write_vlan(*vlan));
                Ok(())
            }
            RifAttachment::Port(port) => {
                self.write_row(port);
                Ok(())
            }
            RifAttachment::Subinterface { .. } => self.write_subs(),
        }
    }

    /// Writes which router interface the frames of a VLAN reach.
    pub(crate) fn write_vlan_rif(&self, vlan: VlanId) {
        let shares = self.state.vlans.get(&vlan).and_then(|state| state.shares);
        let router = shares.filter(|shares| shares.routed).map_or(vlan, |shares| shares.primary);
        let on =
            |rif: &RifState| matches!(rif.attachment, RifAttachment::Vlan { vlan: on, .. } if on == router);
        let found = self.state.rifs.iter().find(|(_, rif)| on(rif));
        let word = found.map_or(0, |(id, rif)| lower::vlan_rif(*id, rif));
        self.tables.vlan_rifs.u64(vlan.index(), 0).store(word, Relaxed);
    }

    /// Makes `sub_rifs` equal the state: the tags of routed ports that have a subinterface.
    pub(crate) fn write_subs(&self) -> Result<()> {
        let doing = || "writing the subinterfaces".to_owned();
        let mut wanted = BTreeMap::new();
        for (up, port) in &self.state.ports {
            if let PortKind::Subinterface { parent, vlan } = port.kind {
                let on = |rif: &RifState| matches!(rif.attachment, RifAttachment::Subinterface { up: at, .. } if at == *up);
                let rif = self.state.rifs.iter().find(|(_, rif)| on(rif)).map_or(0, |(id, _)| id.get());
                let key = u32::from(parent.get()) << 16 | u32::from(vlan.get());
                wanted.insert(key, u32::from(rif) << 16 | u32::from(up.get()));
            }
        }
        let map = self.tables.map("sub_rifs");
        for key in map.keys().collect::<Vec<_>>() {
            if u32::read_from_bytes(&key).is_ok_and(|key| !wanted.contains_key(&key)) {
                let _ = map.delete(&key);
            }
        }
        for (key, value) in wanted {
            map.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY).doing(doing)?;
        }
        Ok(())
    }

    /// Writes all rows, regardless of the contents of the tables.
    pub(crate) fn write_rifs(&self) -> Result<()> {
        for id in (1..abi::RIFS as u16).filter_map(RifId::new) {
            self.write_rif(id, self.state.rifs.get(&id));
        }
        VlanId::all().for_each(|vlan| self.write_vlan_rif(vlan));
        self.write_subs()
    }
}
