//! Writes a state to the tables: one change at a time, or everything at once.
//!
//! Invariant: a [`Change`] is carried out entirely or not at all. The steps that can fail (netdevs, the FDB) come
//! first. The plain stores that follow close before they open: a port leaves its old flood sets before anything else of
//! it changes, and enters its new ones last. Steps that cannot be undone (flushing, detaching) wait until every change
//! has succeeded.

use crate::abi::{self, FdbCall, TrapGroupRow};
use crate::acl;
use crate::bindings;
use crate::error::{Result, system, unsupported};
use crate::hurry::Hurry;
use crate::lower::{self, VlanSets, VlanView};
use crate::mdb;
use crate::object::Deferred;
use crate::pairs::Step;
use crate::plane::{EbpfPlane, Kept};
use crate::qos;
use crate::rate::clock;
use crate::saved::Saved;
use crate::tables::{Meta, run_call};
use crate::watchdog;
use lanyard_acl::PlaneList;
use lanyard_pipeline::state::{
    FdbTarget, GlobalState, PortKind, PortState, StpState, Tpid, TrapRate, VlanState,
};
use lanyard_plane::{ApplyChange, Change, FdbFilter, Plane, PlaneError, PlaneState};
use lanyard_types::{AclId, InstanceId, MacAddr, PortId, TrapGroup, VlanId, VlanSet};
use libbpf_rs::MapCore;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use zerocopy::FromBytes;

/// How often a change of an FDB entry is tried while frames change the entry.
const FDB_TRIES: usize = 1000;

impl EbpfPlane {
    pub(crate) fn apply_state(&mut self, next: &PlaneState) -> Result<()> {
        let own = watchdog::with_own_trees(&self.pairs, &self.state, next);
        let next = own.as_ref().unwrap_or(next);
        if *next == self.state && !self.rough {
            return Ok(());
        }
        self.check(next)?;
        self.load_router(next)?;
        let before = self.state.clone();
        self.prepare_save(next)?;
        let _hurry = Hurry::for_changes(self.hook_changes(next));
        self.writing(true);
        let done = match self.rough {
            true => self.rewrite(next),
            false => self.change_to(&before, next),
        };
        match done {
            Ok(()) => {
                self.rough = false;
                self.settle();
                self.writing(false);
                watchdog::block_again(&self.pairs, &mut self.state);
                self.save()
            }
            Err(error) => {
                // After a change that could not be undone, the tables are between two states.
                self.rough |= self.state != before;
                self.state = before;
                self.pairs.lock().follow(&self.state);
                self.leaving.clear();
                self.emptied.clear();
                self.prune_hooks();
                self.writing(self.rough);
                Err(error)
            }
        }
    }

    /// Loads the router if frames may reach it in the state `next`.
    fn load_router(&self, next: &PlaneState) -> Result<()> {
        let layer3 = |port: &PortState| matches!(port.kind, PortKind::Routed | PortKind::Subinterface { .. });
        if next.rifs.is_empty() && !next.ports.values().any(layer3) {
            return Ok(());
        }
        let pins = self.kept.as_ref().map(|kept| &kept.pins);
        self.programs.load(Deferred::Router, &self.tables, pins).map(drop)
    }

    /// Checks everything that can be checked without a request to the kernel.
    fn check(&self, next: &PlaneState) -> Result<()> {
        let limit = next.global.fdb_limit;
        if limit == 0 || limit > self.capabilities.fdb {
            let most = self.capabilities.fdb;
            return Err(PlaneError::Invalid(format!(
                "an FDB limit of {limit} entries is outside 1 to {most}"
            )));
        }
        lanyard_pipeline::validate::check(next).map_err(PlaneError::Invalid)?;
        qos::check(next)?;
        let mut seen = BTreeMap::new();
        for (id, port) in &next.ports {
            if port.tpid == Tpid::Stacked9100 {
                return Err(unsupported(format!(
                    "put tags of EtherType 0x9100 on {}: the kernel makes none",
                    port.name
                )));
            }
            if port.ifindex == 0 {
                continue;
            }
            if let Some(other) = seen.insert(port.ifindex, *id) {
                return Err(PlaneError::Invalid(format!(
                    "ports {other} and {id} are both interface {}",
                    port.ifindex
                )));
            }
        }
        let stray = next
            .fdb
            .iter()
            .find(|(_, target)| target.port().is_some_and(|port| !next.ports.contains_key(&port)));
        match stray {
            Some(((vlan, mac), _)) => {
                Err(PlaneError::Invalid(format!("the entry for {mac} in vlan {vlan} names no port")))
            }
            None => Ok(()),
        }
    }

    /// How many netdevs get or lose a hook in the change to `next`.
    fn hook_changes(&self, next: &PlaneState) -> usize {
        let Some(Kept { hooks, .. }) = &self.kept else { return 0 };
        let wanted: BTreeSet<u32> =
            next.ports.values().map(|port| port.ifindex).filter(|ifindex| *ifindex != 0).collect();
        let held: BTreeSet<u32> = hooks.held.keys().copied().collect();
        wanted.symmetric_difference(&held).count()
    }

    fn writing(&self, on: bool) {
        self.tables.meta.u64(0, offset_of!(Meta, writing)).store(u64::from(on), Relaxed);
    }

    /// Makes a successful transaction final.
    fn settle(&mut self) {
        for port in std::mem::take(&mut self.leaving) {
            self.fdb_flush(&FdbFilter { port: Some(port), ..FdbFilter::default() });
            self.set_zero(port);
        }
        for vlan in std::mem::take(&mut self.emptied) {
            self.fdb_flush(&FdbFilter { vlan: Some(vlan), ..FdbFilter::default() });
        }
        self.prune_hooks();
    }

    /// Detaches the hooks of netdevs that are not ports any more.
    fn prune_hooks(&mut self) {
        let Some(Kept { hooks, netdev, .. }) = &mut self.kept else { return };
        let wanted: BTreeSet<u32> = self.state.ports.values().map(|port| port.ifindex).collect();
        let extra: Vec<u32> =
            hooks.held.keys().copied().filter(|ifindex| !wanted.contains(ifindex)).collect();
        for ifindex in extra {
            if let Err(error) = hooks.clear(netdev, ifindex) {
                self.capabilities.notes.push(error.to_string());
            }
        }
    }

    fn saved(&self, state: &PlaneState, generation: u64) -> Saved {
        let hooks = self.kept.as_ref().map(|kept| &kept.hooks);
        Saved {
            salt: self.tables.meta.get(0).salt,
            generation,
            state: state.clone(),
            trees_apart: self.pairs.lock().claimed(),
            cleared: self.cleared.clone(),
            switched_off: hooks.map(|hooks| hooks.switched_off.clone()).unwrap_or_default(),
            gro: hooks.map(|hooks| hooks.gro.clone()).unwrap_or_default(),
            tags_kept: hooks.map(|hooks| hooks.tags_kept.clone()).unwrap_or_default(),
            made_qdisc: hooks.map(|hooks| hooks.made_qdisc.clone()).unwrap_or_default(),
        }
    }
    /// Checks that the state can be saved, before anything is changed.
    pub(crate) fn prepare_save(&self, next: &PlaneState) -> Result<()> {
        let Some(kept) = &self.kept else { return Ok(()) };
        kept.file.prepare(&self.saved(next, self.tables.meta.get(0).generation + 1))
    }
    /// Saves the state as the next generation of the pins.
    pub(crate) fn save(&self) -> Result<()> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let generation = self.tables.meta.get(0).generation + 1;
        kept.file.prepare(&self.saved(&self.state, generation))?;
        // Between these two writes the file is one generation ahead; `writing` marks that as
        // expected.
        self.writing(true);
        kept.file.commit()?;
        self.tables.meta.u64(0, offset_of!(Meta, generation)).store(generation, Relaxed);
        self.writing(self.rough);
        Ok(())
    }

    /// Makes the tables equal `state` after a restart: compares them and writes the differences.
    pub(crate) fn adopt_state(&mut self, state: PlaneState) -> Result<()> {
        let interrupted = self.tables.meta.get(0).writing != 0;
        let mut notes = Vec::new();
        for (id, port) in &state.ports {
            match self.hook(*id, port, false) {
                Ok(None) => {}
                Ok(Some(why)) => {
                    notes.push(format!("{} is forwarded by TC and not by XDP: {why}", port.name))
                }
                Err(error) => notes.push(error.to_string()),
            }
        }
        self.capabilities.notes.append(&mut notes);
        self.load_router(&state)?;
        self.writing(true);
        self.write_all(&state, interrupted)?;
        self.leaving.clear();
        self.writing(false);
        watchdog::block_again(&self.pairs, &mut self.state);
        Ok(())
    }

    /// Writes every table from `next`, regardless of its present contents, and attaches the ports.
    pub(crate) fn rewrite(&mut self, next: &PlaneState) -> Result<()> {
        for (id, port) in &next.ports {
            self.hook(*id, port, true)?;
        }
        self.write_all(next, true)
    }

    /// Writes every table from `next`. `unknown`: the tables may contain entries that no state has, because a daemon has died
    /// while it wrote them.
    fn write_all(&mut self, next: &PlaneState, unknown: bool) -> Result<()> {
        let gone: Vec<PortId> =
            self.state.ports.keys().copied().filter(|id| !next.ports.contains_key(id)).collect();
        self.leaving.extend(gone);
        self.state = next.clone();
        self.vlan_lists = acl::vlan_lists(next);
        for (id, list) in &next.acls {
            self.acls.adopt(&self.tables, *id, list);
            self.acls.set(&self.tables, *id, Some(list))?;
        }
        for vlan in VlanId::all() {
            acl::write_vlan(&self.tables, vlan, next.vlans.get(&vlan).map(|vlan| &vlan.acl));
            self.write_shared(vlan);
        }
        self.write_global(true);
        self.write_rifs()?;
        let pairs = self.pairs.clone();
        let mut writer = pairs.lock();
        writer.follow(&self.state);
        let view = VlanView::of(writer.state());
        writer.write_floods(&view, Step::Close);
        writer.write_channels();
        for id in PortId::all() {
            writer.write_port(id, &view, &VlanSet::EMPTY, Step::Rows);
        }
        drop(writer);
        let sets = VlanSets::of(&self.state);
        for id in PortId::all() {
            self.write_row_in(id, &sets);
            let port = self.state.ports.get(&id);
            self.tables.set_limit(abi::usage_port(id), port.and_then(|port| port.fdb_limit));
        }
        self.write_ifindexes()?;
        for vlan in VlanId::all() {
            let limit = self.state.vlans.get(&vlan).and_then(|state| state.fdb_limit);
            self.tables.set_limit(abi::usage_vlan(vlan), limit);
            mdb::write_config(&self.tables, vlan, self.state.vlans.get(&vlan));
            bindings::write_vlan(&self.tables, vlan, self.state.vlans.get(&vlan));
        }
        {
            // Another thread may have changed the states of ports in trees meanwhile; the ports are the same.
            let writer = pairs.lock();
            writer.write_floods(&VlanView::of(writer.state()), Step::Open);
        }
        self.acls.retain(&self.tables, next, unknown);
        self.write_fdb()?;
        self.prune_hooks();
        Ok(())
    }

    /// Makes if_slots, if_ports and xdp_ports equal the state.
    fn write_ifindexes(&mut self) -> Result<()> {
        let owner: BTreeMap<u32, PortId> = self
            .state
            .ports
            .iter()
            .map(|(id, port)| (self.ifindex(*id, port), *id))
            .filter(|(i, _)| *i != 0)
            .collect();
        let held =
            |ifindex: u32, port: u32| owner.get(&ifindex).is_some_and(|id| u32::from(id.get()) == port);
        for row in 0..abi::IFMAP as usize {
            let slot = self.tables.if_slots.get(row);
            if slot.ifindex != 0 && !held(slot.ifindex, slot.port) {
                self.tables.if_slots.set(row, &abi::IfSlot::default());
            }
        }
        let map = self.tables.map("if_ports");
        for key in map.keys().collect::<Vec<_>>() {
            if u32::read_from_bytes(&key).is_ok_and(|ifindex| !owner.contains_key(&ifindex)) {
                let _ = map.delete(&key);
            }
        }
        for (ifindex, id) in &owner {
            self.tables.set_ifindex(*ifindex, *id)?;
        }
        let sets = VlanSets::of(&self.state);
        for id in PortId::all() {
            self.write_xdp_port(id);
            self.write_row_in(id, &sets);
        }
        Ok(())
    }

    /// Makes the control-plane entries of the FDB equal the state.
    fn write_fdb(&mut self) -> Result<()> {
        let mut found = BTreeMap::new();
        self.tables.fdb_walk(&mut |key, value| {
            if let (Some(at), Some(target)) = (abi::split_key(key), lower::fdb_target(value)) {
                found.insert(at, target);
            }
        });
        for (vlan, mac) in found.keys().filter(|at| !self.state.fdb.contains_key(at)) {
            self.set_fdb(*vlan, *mac, None)?;
        }
        for ((vlan, mac), target) in &self.state.fdb {
            if found.get(&(*vlan, *mac)) != Some(target) {
                self.set_fdb(*vlan, *mac, Some(*target))?;
            }
        }
        Ok(())
    }

    fn set_fdb(&self, vlan: VlanId, mac: MacAddr, target: Option<FdbTarget>) -> Result<()> {
        if mac.is_group() {
            return Err(PlaneError::Invalid(format!("{mac} is a group's address: the FDB holds stations")));
        }
        let doing = || format!("writing the entry for {mac} in vlan {vlan}");
        let program = if target.is_some() { &self.programs.fdb_set } else { &self.programs.fdb_delete };
        for _ in 0..FDB_TRIES {
            let value = target.map_or(0, lower::fdb_value);
            let mut call = FdbCall { key: abi::fdb_key(vlan, mac), value, ..FdbCall::default() };
            run_call(program, &mut call).map_err(|cause| system(doing(), cause))?;
            match -call.result {
                0 => return Ok(()),
                libc::ENOENT if target.is_none() => return Ok(()),
                libc::EAGAIN => {}
                libc::ENOSPC => {
                    return Err(PlaneError::TableFull { table: "fdb", size: self.tables.fdb_size() });
                }
                errno => return Err(system(doing(), std::io::Error::from_raw_os_error(errno))),
            }
        }
        Err(system(doing(), "frames kept changing it"))
    }

    /// The ifindex of a port as the tables contain it; 0 if the port has no netdev.
    pub(crate) fn ifindex(&self, id: PortId, port: &PortState) -> u32 {
        self.pairs.ifindex(id, port)
    }

    fn write_global(&self, all: bool) {
        let GlobalState { fdb_limit, trap_rate, trap_port_rate, .. } = &self.state.global;
        let (xdp_flood, xdp_flood_len) = self.xdp_flood();
        let facts_s = self.tables.global.u32(0, offset_of!(abi::Global, facts_s)).load(Relaxed);
        let row = abi::Global { xdp_flood, xdp_flood_len, facts_s, ..lower::global(&self.state) };
        self.tables.global.set(0, &row);
        // Leases may have ended since `xdp_flood` was called.
        self.write_xdp_flood();
        if !all {
            return;
        }
        self.tables.set_limit(abi::USAGE_TABLE, Some(*fdb_limit));
        for row in 0..TrapGroup::SLOTS {
            self.write_trap_rates(row, &trap_rate[row], &trap_port_rate[row]);
        }
    }

    /// Writes the rate of a trap group and of a port's share of it. A bucket whose rate changes is
    /// filled.
    fn write_trap_rates(&self, row: usize, group: &TrapRate, port: &TrapRate) {
        let write = |interval_at, tolerance_at, rate| {
            let (interval, tolerance) = clock(rate);
            let word = |offset| self.tables.trap_groups.u64(row, offset);
            let same =
                word(interval_at).load(Relaxed) == interval && word(tolerance_at).load(Relaxed) == tolerance;
            word(tolerance_at).store(tolerance, Relaxed);
            word(interval_at).store(interval, Relaxed);
            !same
        };
        if write(offset_of!(TrapGroupRow, interval_ns), offset_of!(TrapGroupRow, tolerance_ns), group) {
            self.tables.trap_groups.u64(row, offset_of!(TrapGroupRow, arrival_ns)).store(0, Relaxed);
        }
        let at = (offset_of!(TrapGroupRow, port_interval_ns), offset_of!(TrapGroupRow, port_tolerance_ns));
        if write(at.0, at.1, port) {
            for share in row * abi::PORTS..(row + 1) * abi::PORTS {
                self.tables.trap_ports.u64(share, 0).store(0, Relaxed);
            }
        }
    }

    /// Enters the netdev of a port in the tables of ifindexes, so that frames of the netdev count as received by this port.
    fn enter_ifindex(&self, id: PortId, old: Option<&PortState>, new: &PortState) -> Result<()> {
        let ifindex = self.ifindex(id, new);
        if ifindex == 0 {
            return Ok(());
        }
        if old.is_some_and(|old| self.ifindex(id, old) != ifindex) {
            // Frames of the new netdev must not be handled by the rows of the old one, which were written for another
            // configuration. `write_row` sets the flag again.
            let flags = self.tables.ports.u32(id.index(), offset_of!(abi::Port, flags));
            flags.fetch_and(!abi::PORT_ENABLED, SeqCst);
        }
        self.tables.set_ifindex(ifindex, id).inspect_err(|_| self.write_row(id))
    }

    fn change_port(&mut self, id: PortId, old: Option<&PortState>, new: Option<&PortState>) -> Result<()> {
        let hooked = |port: &PortState| (port.ifindex, port.hook, port.delivery);
        if let Some(new) = new {
            if old.is_none_or(|old| hooked(old) != hooked(new)) || !self.facts.contains_key(&id) {
                self.hook(id, new, true)?;
            }
            self.enter_ifindex(id, old, new)?;
        } else {
            self.facts.remove(&id);
        }
        match (old, new) {
            (Some(_), None) => _ = self.leaving.insert(id),
            (Some(old), Some(new)) if old.name != new.name => _ = self.leaving.insert(id),
            (None, Some(_)) => _ = self.leaving.remove(&id),
            _ => {}
        }
        match new {
            Some(new) => self.state.ports.insert(id, new.clone()),
            None => self.state.ports.remove(&id),
        };
        self.follow_vlan_lists();
        let members =
            |port: Option<&PortState>| port.map_or(VlanSet::EMPTY, |port| port.tagged.union(&port.untagged));
        let vlans = members(old).union(&members(new));
        let pairs = self.pairs.clone();
        {
            let mut writer = pairs.lock();
            match new {
                Some(new) => writer.state_mut().ports.insert(id, new.clone()),
                None => writer.state_mut().ports.remove(&id),
            };
            let view = VlanView::of(writer.state());
            writer.write_port(id, &view, &vlans, Step::Close);
            self.write_global(false);
            self.write_xdp_port(id);
            writer.write_port(id, &view, &vlans, Step::Rows);
            self.write_row(id);
            self.tables.set_limit(abi::usage_port(id), new.and_then(|new| new.fdb_limit));
            writer.write_port(id, &view, &vlans, Step::Open);
        }
        let sub = |port: &PortState| matches!(port.kind, PortKind::Subinterface { .. });
        if old.is_some_and(sub) || new.is_some_and(sub) {
            self.write_subs()?;
        }
        if let Some(old) = old {
            let (was, is) = (self.ifindex(id, old), new.map_or(0, |new| self.ifindex(id, new)));
            if was != is && was != 0 {
                self.tables.clear_ifindex(was, id);
            }
        }
        Ok(())
    }

    /// Writes every port's flags if the first VLAN, or VLAN interface, has got lists or the last has lost them.
    fn follow_vlan_lists(&mut self) {
        let vlan_lists = acl::vlan_lists(&self.state);
        if vlan_lists != self.vlan_lists {
            self.vlan_lists = vlan_lists;
            self.write_rows();
        }
    }

    fn change_acl(&mut self, id: AclId, new: Option<&Arc<PlaneList>>) -> Result<()> {
        self.acls.set(&self.tables, id, new)?;
        match new {
            Some(new) => _ = self.state.acls.insert(id, new.clone()),
            None => _ = self.state.acls.remove(&id),
        }
        Ok(())
    }

    fn change_vlan(&mut self, vlan: VlanId, old: Option<&VlanState>, new: Option<&VlanState>) {
        match new {
            Some(new) => _ = self.state.vlans.insert(vlan, new.clone()),
            None => _ = self.state.vlans.remove(&vlan),
        }
        match new {
            Some(_) => self.emptied.retain(|emptied| *emptied != vlan),
            None => self.emptied.push(vlan),
        }
        acl::write_vlan(&self.tables, vlan, new.map(|new| &new.acl));
        self.follow_vlan_lists();
        let shares = |state: Option<&VlanState>| state.and_then(|state| state.shares);
        if shares(old) != shares(new) {
            self.write_shared(vlan);
            self.write_vlan_rif(vlan);
        }
        {
            let mut writer = self.pairs.lock();
            match new {
                Some(new) => _ = writer.state_mut().vlans.insert(vlan, new.clone()),
                None => _ = writer.state_mut().vlans.remove(&vlan),
            }
            writer.write_vlan(vlan);
        }
        self.tables.set_limit(abi::usage_vlan(vlan), new.and_then(|new| new.fdb_limit));
        // A VLAN without a state has the tables of one without snooping and checks.
        let checks =
            |state: Option<&VlanState>| state.map(|state| (state.snooping, state.guard)).unwrap_or_default();
        if checks(old) != checks(new) {
            mdb::write_config(&self.tables, vlan, new);
            bindings::write_vlan(&self.tables, vlan, new);
        }
    }

    /// Writes the VLAN under which the FDB has the addresses of `vlan`.
    fn write_shared(&self, vlan: VlanId) {
        let shares = self.state.vlans.get(&vlan).and_then(|state| state.shares);
        let primary = shares.map_or(0, |shares| shares.primary.get());
        self.tables.shared_vlans.u64(vlan.index(), 0).store(primary.into(), Relaxed);
    }

    fn change_stp(&mut self, instance: InstanceId, port: PortId, new: StpState) {
        let mut writer = self.pairs.lock();
        for stp in [&mut self.state.stp, &mut writer.state_mut().stp] {
            match new {
                StpState::Forwarding => _ = stp.remove(&(instance, port)),
                _ => _ = stp.insert((instance, port), new),
            }
        }
        writer.write_tree_ports([(instance, port)].iter());
    }

    fn change_watched(&mut self, instance: InstanceId, port: PortId, new: bool) {
        let mut writer = self.pairs.lock();
        for watched in [&mut self.state.watched, &mut writer.state_mut().watched] {
            match new {
                true => _ = watched.insert((instance, port)),
                false => _ = watched.remove(&(instance, port)),
            }
        }
        writer.write_tree_ports([(instance, port)].iter());
    }
}

impl ApplyChange for EbpfPlane {
    fn change(&mut self, change: &Change) -> Result<(), PlaneError> {
        #[cfg(test)]
        self.chaos(change)?;
        match change {
            Change::Global { new, .. } => {
                self.state.global = (**new).clone();
                self.write_global(true);
            }
            Change::Port { port, old, new } => self.change_port(*port, old.as_deref(), new.as_deref())?,
            Change::Vlan { vlan, old, new } => self.change_vlan(*vlan, old.as_ref(), new.as_ref()),
            Change::Stp { instance, port, new, .. } => self.change_stp(*instance, *port, *new),
            Change::Watched { instance, port, new } => self.change_watched(*instance, *port, *new),
            Change::Channel { channel, new, .. } => {
                self.pairs.lock().set_channel(*channel, new.as_deref());
                match new {
                    Some(members) => _ = self.state.channels.insert(*channel, (**members).clone()),
                    None => _ = self.state.channels.remove(channel),
                }
            }
            Change::Rif { rif, new, .. } => self.change_rif(*rif, new.as_deref())?,
            Change::Acl { id, new, .. } => self.change_acl(*id, new.as_ref())?,
            Change::Fdb { vlan, mac, new, .. } => {
                self.set_fdb(*vlan, *mac, *new)?;
                match new {
                    Some(target) => _ = self.state.fdb.insert((*vlan, *mac), *target),
                    None => _ = self.state.fdb.remove(&(*vlan, *mac)),
                }
            }
        }
        Ok(())
    }
}
