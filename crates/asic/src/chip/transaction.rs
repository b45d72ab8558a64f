//! Transactions: what each step does to configuration, tables and pipeline, and what undoes it.
//!
//! Invariant: a transaction is carried out whole or leaves no trace.

use super::{Chip, Effects, item_of};
use crate::sdk::list;
use crate::sdk::message::{Code, Refused};
use crate::sdk::operation::Operation;
use crate::tables::{AclRule, Item, ListSize, Refusal};
use ipnet::IpNet;
use lanyard_acl::PlaneList;
use lanyard_pipeline::Timestamp;
use lanyard_pipeline::route::{RifState, RouteChange, VIRTUAL_MACS};
use lanyard_pipeline::state::{Aggregation, ChannelMembers, PortState, StpState};
use lanyard_pipeline::tables::routes::Refused as RouteRefused;
use lanyard_types::{AclId, InstanceId, PortId, PortSet, VlanId, VrfId};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The most learned and configured addresses that the chip's software accepts, whatever the size of its
/// tables.
const FDB_LIMIT: u32 = 1 << 20;
/// The longest name of a port or router interface, in bytes.
const MAX_NAME: usize = 64;

/// A step of a transaction that has been carried out, with the data that undoes its effects outside the
/// tables.
struct Done {
    inverse: Operation,
    vrf: Option<(VrfId, bool)>,
}

impl Chip {
    /// Carries out a transaction; returns the number of entries written.
    ///
    /// # Errors
    /// The first operation that was refused, and the reason. Nothing has changed then.
    pub fn commit(
        &mut self,
        now: Timestamp,
        list: &[Operation],
        effects: &mut Effects,
    ) -> Result<u32, Refused> {
        self.tables.begin();
        let mut done: Vec<Done> = Vec::with_capacity(list.len());
        let mut writes = 0;
        for (at, operation) in list.iter().enumerate() {
            match self.step(operation) {
                Ok((written, step)) => {
                    writes += written;
                    done.push(step);
                }
                Err(refused) => return self.unwind(done, Refused { at: at as u32, ..refused }),
            }
        }
        let refers = |operation: &Operation| {
            matches!(
                operation,
                Operation::Port(..)
                    | Operation::Rif(..)
                    | Operation::Vlan(..)
                    | Operation::List(..)
                    | Operation::Channel(..)
            )
        };
        let checked = list.iter().rposition(refers);
        if let Some(at) = checked
            && let Err(text) = lanyard_pipeline::validate::check(&self.state)
        {
            return self.unwind(done, Refused { at: at as u32, text, ..blank() });
        }
        self.tables.commit();
        self.settle(now, list, effects);
        Ok(writes)
    }

    fn unwind(&mut self, done: Vec<Done>, refused: Refused) -> Result<u32, Refused> {
        done.into_iter().rev().for_each(|step| self.undo(step));
        self.tables.rollback();
        Err(refused)
    }

    /// Applies the changes of an accepted transaction to the pipeline that cannot fail. They come last because undoing
    /// them would not bring back the learned entries that they remove.
    fn settle(&mut self, now: Timestamp, list: &[Operation], effects: &mut Effects) {
        let mut gone = Vec::new();
        let mut on = |event| gone.push(event);
        for operation in list {
            match operation {
                Operation::Global(_) => self.pipeline.set_global(self.state.global.clone()),
                Operation::Vlan(vlan, _) => {
                    self.pipeline.set_vlan(*vlan, self.vlan_in_force(*vlan), now, &mut on);
                }
                Operation::Port(port, _) => {
                    self.pipeline.set_port(*port, self.state.ports.get(port).cloned(), now, &mut on);
                }
                Operation::Stp(instance, port, _) => {
                    let state = self.state.stp.get(&(*instance, *port)).copied().unwrap_or_default();
                    self.pipeline.set_stp(*instance, *port, state);
                }
                Operation::Fdb(vlan, mac, _) => {
                    let target = self.state.fdb.get(&(*vlan, *mac)).copied();
                    self.pipeline.set_fdb(*vlan, *mac, target, now, &mut on);
                }
                Operation::Channel(id, _) => self.refresh_channel(*id),
                Operation::Divert(id, _) => self.pipeline.divert_acl(*id, self.diverted.contains(id)),
                // The result is ignored: `check_list` has verified that the list can be compiled.
                Operation::List(id, _) => _ = self.pipeline.set_acl(*id, self.state.acls.get(id).cloned()),
                _ => {}
            }
        }
        gone.into_iter().for_each(|event| self.fdb_event(event, now, effects));
        self.block_trees();
    }

    fn step(&mut self, operation: &Operation) -> Result<(u32, Done), Refused> {
        let plain = |inverse| Done { inverse, vrf: None };
        let (writes, inverse) = match operation {
            Operation::Global(new) => {
                if !(1..=FDB_LIMIT).contains(&new.fdb_limit) {
                    return invalid(format!("FDB limit {}: 1 to {FDB_LIMIT}", new.fdb_limit));
                }
                (1, Operation::Global(Box::new(std::mem::replace(&mut self.state.global, (**new).clone()))))
            }
            Operation::Port(port, new) => {
                match new {
                    Some(new) => check_port(new)?,
                    None if self.state.fdb.values().any(|target| target.port() == Some(*port)) => {
                        return invalid(format!("port {port} has FDB entries"));
                    }
                    None => {}
                }
                let writes = self.enter_aggregation(*port, new.as_deref())?;
                let old = set(&mut self.state.ports, *port, new.as_deref().cloned());
                (writes, Operation::Port(*port, old.map(Box::new)))
            }
            Operation::Vlan(vlan, new) => {
                (1, Operation::Vlan(*vlan, set(&mut self.state.vlans, *vlan, new.clone())))
            }
            Operation::Stp(instance, port, new) => {
                let kept = Some(*new).filter(|new| *new != StpState::Forwarding);
                let old = set(&mut self.state.stp, (*instance, *port), kept);
                (1, Operation::Stp(*instance, *port, old.unwrap_or_default()))
            }
            Operation::Watched(instance, port, on) => {
                let had = self.watch(*instance, *port, *on);
                (1, Operation::Watched(*instance, *port, had))
            }
            Operation::Fdb(vlan, mac, new) => {
                if let Some(port) = new.and_then(|new| new.port())
                    && !self.state.ports.contains_key(&port)
                {
                    return invalid(format!("FDB entry {mac} in VLAN {vlan} names no port: {port}"));
                }
                let item = Item::Mac(*vlan, *mac);
                let writes = match (new.is_some(), self.tables.contains(&item)) {
                    (true, false) => self.insert(&item)?,
                    (false, true) if self.state.fdb.contains_key(&(*vlan, *mac)) => {
                        self.tables.remove(&item);
                        1
                    }
                    _ => 1,
                };
                (writes, Operation::Fdb(*vlan, *mac, set(&mut self.state.fdb, (*vlan, *mac), *new)))
            }
            Operation::Rif(rif, new) => return self.step_rif(*rif, new.as_deref()),
            Operation::Adjacency(id, new) => {
                let old = self.pipeline.tables().routes.adjacency(*id);
                self.route(&RouteChange::Adjacency(*id, *new))?;
                (1, Operation::Adjacency(*id, old))
            }
            Operation::Group(id, new) => self.step_group(*id, new.as_deref())?,
            Operation::Route(vrf, prefix, new) => return self.step_route(*vrf, *prefix, *new),
            Operation::Rule(rule, present) => self.step_rule(rule, *present)?,
            Operation::List(id, new) => self.step_list(*id, new.as_ref())?,
            Operation::Divert(id, on) => self.step_divert(*id, *on)?,
            Operation::Multicast(vlan, group, source, ports) => {
                self.step_multicast(*vlan, *group, *source, ports.as_deref())?
            }
            Operation::Routers(vlan, family, _) => {
                let old = Box::new(self.pipeline.tables().mdb.routers(*vlan, *family).clone());
                self.multicast(operation)?;
                (1, Operation::Routers(*vlan, *family, old))
            }
            Operation::Flood(vlan, family, _) => {
                let old = self.pipeline.tables().mdb.flooded(*vlan, *family);
                self.multicast(operation)?;
                (1, Operation::Flood(*vlan, *family, old))
            }
            Operation::Channel(id, new) => {
                let new = new.as_deref().filter(|new| **new != ChannelMembers::default()).cloned();
                let old = set(&mut self.state.channels, *id, new);
                (1, Operation::Channel(*id, old.map(Box::new)))
            }
        };
        Ok((writes, plain(inverse)))
    }

    fn step_rif(
        &mut self,
        rif: lanyard_types::RifId,
        new: Option<&RifState>,
    ) -> Result<(u32, Done), Refused> {
        if let Some(new) = new
            && (new.name.len() > MAX_NAME
                || new.virtual_macs.len() > VIRTUAL_MACS
                || !(68..=65_535).contains(&new.mtu))
        {
            return invalid(format!("router interface {rif}: name, virtual addresses or MTU out of range"));
        }
        let old = self.state.rifs.get(&rif).cloned();
        if let (Some(old), Some(new)) = (&old, new)
            && old.vrf != new.vrf
        {
            return invalid(format!("router interface {rif} is in VRF {}: remove it first", old.vrf));
        }
        let (writes, vrf) = match (&old, new) {
            (None, Some(new)) => {
                let writes = self.use_vrf(new.vrf)?
                    + self.insert(&Item::Rif(rif)).inspect_err(|_| self.forget_vrf(new.vrf))?;
                (writes, Some((new.vrf, true)))
            }
            (Some(old), None) => {
                self.tables.remove(&Item::Rif(rif));
                self.leave_vrf(old.vrf);
                (1, Some((old.vrf, false)))
            }
            _ => (1, None),
        };
        set(&mut self.state.rifs, rif, new.cloned());
        self.pipeline.set_rif(rif, new.cloned());
        Ok((writes, Done { inverse: Operation::Rif(rif, old.map(Box::new)), vrf }))
    }

    fn step_group(
        &mut self,
        id: lanyard_types::GroupId,
        new: Option<&[lanyard_types::AdjacencyId]>,
    ) -> Result<(u32, Operation), Refused> {
        let old = self.pipeline.tables().routes.buckets(id).to_vec();
        let had = if old.is_empty() { None } else { Some(old.len() as u32) };
        let has = new.map(|new| new.len() as u32);
        self.route(&RouteChange::Group(id, new.map(<[_]>::to_vec)))?;
        let mut writes = has.unwrap_or(1);
        if had != has {
            if let Some(had) = had {
                self.tables.remove(&Item::NextHops(id, had));
            }
            if let Some(has) = has {
                match self.insert(&Item::NextHops(id, has)) {
                    Ok(written) => writes = written,
                    Err(refused) => {
                        // The tables are rolled back with the transaction, but the pipeline must be restored here.
                        let _ = self.route(&RouteChange::Group(id, had.map(|_| old)));
                        return Err(refused);
                    }
                }
            }
        }
        Ok((writes, Operation::Group(id, had.map(|_| old))))
    }

    fn step_route(
        &mut self,
        vrf: VrfId,
        prefix: IpNet,
        new: Option<lanyard_pipeline::route::RouteTarget>,
    ) -> Result<(u32, Done), Refused> {
        let old = self.pipeline.tables().routes.get(vrf, prefix);
        let change = RouteChange::Route(vrf, prefix, new);
        let item = item_of(vrf, prefix);
        let (mut writes, mut used) = (1, None);
        if old.is_none() && new.is_some() {
            writes = self.use_vrf(vrf)? + self.insert(&item).inspect_err(|_| self.forget_vrf(vrf))?;
            self.route(&change).inspect_err(|_| self.forget_vrf(vrf))?;
            used = Some((vrf, true));
        } else {
            self.route(&change)?;
            if old.is_some() && new.is_none() {
                self.tables.remove(&item);
                self.activity.remove(&(vrf, prefix));
                self.leave_vrf(vrf);
                used = Some((vrf, false));
            }
        }
        Ok((writes, Done { inverse: Operation::Route(vrf, prefix, old), vrf: used }))
    }

    fn step_rule(&mut self, rule: &AclRule, present: bool) -> Result<(u32, Operation), Refused> {
        let key = (rule.list, rule.sequence);
        let old = self.rules.get(&key).cloned();
        let inverse = match &old {
            Some(old) => Operation::Rule(old.clone(), true),
            None => Operation::Rule(rule.clone(), false),
        };
        if let Some(old) = &old {
            self.tables.remove(&Item::Rule(old.clone()));
            self.rules.remove(&key);
        }
        let mut writes = 1;
        if present {
            match self.insert(&Item::Rule(rule.clone())) {
                Ok(written) => writes = written,
                Err(refused) => {
                    self.rules.extend(old.map(|old| (key, old)));
                    return Err(refused);
                }
            }
            self.rules.insert(key, rule.clone());
        }
        Ok((writes, inverse))
    }

    fn step_list(&mut self, id: AclId, new: Option<&Arc<PlaneList>>) -> Result<(u32, Operation), Refused> {
        if let Some(new) = new {
            check_list(new)?;
        }
        let mut writes = 1;
        if !self.diverted.contains(&id) {
            if let Some(old) = self.state.acls.get(&id) {
                self.tables.remove(&Item::List(ListSize::of(id, old)));
            }
            if let Some(new) = new {
                writes = self.enter_list(id, new)?;
            }
        }
        let old = set(&mut self.state.acls, id, new.cloned());
        Ok((writes, Operation::List(id, old)))
    }

    /// Puts the entries of a list into the tables.
    fn enter_list(&mut self, id: AclId, list: &PlaneList) -> Result<u32, Refused> {
        let size = ListSize::of(id, list);
        self.insert(&Item::List(size)).map_err(|refused| Refused {
            text: format!("{} takes {} entries: {}", list.name, size.entries, refused.text),
            ..refused
        })
    }

    fn step_divert(&mut self, id: AclId, on: bool) -> Result<(u32, Operation), Refused> {
        let had = self.diverted.contains(&id);
        let mut writes = 1;
        if had != on
            && let Some(list) = self.state.acls.get(&id).cloned()
        {
            if on {
                self.tables.remove(&Item::List(ListSize::of(id, &list)));
            } else {
                writes = self.enter_list(id, &list)?;
            }
        }
        self.note_diverted(id, on);
        Ok((writes, Operation::Divert(id, had)))
    }
    /// Updates the table entry of a port that is, or becomes, a port-channel or a member of one; returns the number of writes.
    fn enter_aggregation(&mut self, port: PortId, new: Option<&PortState>) -> Result<u32, Refused> {
        let item = |state: Option<&PortState>| match state?.aggregation {
            Aggregation::None => None,
            Aggregation::Channel(_) => Some(Item::Channel(port)),
            Aggregation::Member { .. } => Some(Item::Member(port)),
        };
        let (old, new) = (item(self.state.ports.get(&port)), item(new));
        if old == new {
            return Ok(1);
        }
        old.iter().for_each(|old| _ = self.tables.remove(old));
        new.map_or(Ok(1), |new| self.insert(&new))
    }
    fn step_multicast(
        &mut self,
        vlan: VlanId,
        group: IpAddr,
        source: Option<IpAddr>,
        ports: Option<&PortSet>,
    ) -> Result<(u32, Operation), Refused> {
        let of = |ports: Option<PortSet>| Operation::Multicast(vlan, group, source, ports.map(Box::new));
        let old = self.pipeline.tables().mdb.entry(vlan, group, source).cloned();
        let item = Item::Group(vlan, group, source);
        let mut writes = 1;
        if ports.is_some() && old.is_none() {
            writes = self.insert(&item)?;
        }
        // If this fails, the transaction is refused and its rollback removes the item from the tables.
        self.multicast(&of(ports.cloned()))?;
        if ports.is_none() && old.is_some() {
            self.tables.remove(&item);
        }
        Ok((writes, of(old)))
    }
    fn multicast(&mut self, operation: &Operation) -> Result<(), Refused> {
        let Some(change) = operation.mdb_change() else { return Ok(()) };
        self.pipeline.multicast(&change).map_err(software_refusal)
    }

    /// Sets whether the watchdog blocks a port in a tree; returns the previous setting.
    fn watch(&mut self, instance: InstanceId, port: PortId, on: bool) -> bool {
        let watched = &mut self.state.watched;
        if on { !watched.insert((instance, port)) } else { watched.remove(&(instance, port)) }
    }
    fn note_diverted(&mut self, id: AclId, on: bool) {
        if on {
            self.diverted.insert(id)
        } else {
            self.diverted.remove(&id)
        };
    }

    /// Undoes the effects of a step outside the tables. The tables are rolled back as a whole.
    fn undo(&mut self, step: Done) {
        match step.inverse {
            Operation::Global(old) => self.state.global = *old,
            Operation::Port(port, old) => _ = set(&mut self.state.ports, port, old.map(|old| *old)),
            Operation::Vlan(vlan, old) => _ = set(&mut self.state.vlans, vlan, old),
            Operation::Stp(instance, port, old) => {
                set(
                    &mut self.state.stp,
                    (instance, port),
                    Some(old).filter(|old| *old != StpState::Forwarding),
                );
            }
            Operation::Watched(instance, port, had) => _ = self.watch(instance, port, had),
            Operation::Fdb(vlan, mac, old) => _ = set(&mut self.state.fdb, (vlan, mac), old),
            Operation::Rif(rif, old) => {
                self.pipeline.set_rif(rif, old.as_deref().cloned());
                set(&mut self.state.rifs, rif, old.map(|old| *old));
            }
            // In reverse order the old value is always valid, because the objects it refers to have been
            // restored before.
            Operation::Adjacency(id, old) => _ = self.pipeline.route(&RouteChange::Adjacency(id, old)),
            Operation::Group(id, old) => _ = self.pipeline.route(&RouteChange::Group(id, old)),
            Operation::Route(vrf, prefix, old) => {
                _ = self.pipeline.route(&RouteChange::Route(vrf, prefix, old))
            }
            Operation::Rule(old, present) => {
                self.rules.remove(&(old.list, old.sequence));
                if present {
                    self.rules.insert((old.list, old.sequence), old);
                }
            }
            Operation::List(id, old) => _ = set(&mut self.state.acls, id, old),
            Operation::Divert(id, on) => self.note_diverted(id, on),
            Operation::Channel(id, old) => _ = set(&mut self.state.channels, id, old.map(|old| *old)),
            // In reverse order there is always room for the old entries.
            Operation::Multicast(..) | Operation::Routers(..) | Operation::Flood(..) => {
                _ = self.multicast(&step.inverse)
            }
        }
        match step.vrf {
            Some((vrf, true)) => self.forget_vrf(vrf),
            Some((vrf, false)) => *self.vrf_users.entry(vrf).or_default() += 1,
            None => {}
        }
    }

    fn insert(&mut self, item: &Item) -> Result<u32, Refused> {
        self.tables.insert(item).map_err(refusal)
    }
    fn route(&mut self, change: &RouteChange) -> Result<(), Refused> {
        self.pipeline.route(change).map_err(software_refusal)
    }
    /// Counts one more router interface or route of a VRF, the first of which takes the VRF's entry; returns the number of
    /// writes.
    fn use_vrf(&mut self, vrf: VrfId) -> Result<u32, Refused> {
        let first = self.vrf_users.get(&vrf).is_none_or(|users| *users == 0);
        let writes = if first { self.insert(&Item::Vrf(vrf))? } else { 0 };
        *self.vrf_users.entry(vrf).or_default() += 1;
        Ok(writes)
    }
    fn leave_vrf(&mut self, vrf: VrfId) {
        self.forget_vrf(vrf);
        if self.vrf_users.get(&vrf) == Some(&0) {
            self.tables.remove(&Item::Vrf(vrf));
        }
    }
    fn forget_vrf(&mut self, vrf: VrfId) {
        if let Some(users) = self.vrf_users.get_mut(&vrf) {
            *users = users.saturating_sub(1);
        }
    }
}

fn check_port(state: &PortState) -> Result<(), Refused> {
    if state.name.len() > MAX_NAME || !(68..=65_535).contains(&state.mtu) {
        return invalid(format!(
            "port {:.64}: a name of at most {MAX_NAME} bytes and an MTU of 68 to 65535",
            state.name
        ));
    }
    let both = state.tagged.intersection(&state.untagged);
    if !both.is_empty() {
        return invalid(format!("port {}: VLANs {both} are both tagged and untagged", state.name));
    }
    Ok(())
}

fn check_list(list: &PlaneList) -> Result<(), Refused> {
    let bytes = list::length(list);
    if bytes > list::MAX_LIST {
        return invalid(format!(
            "{:.64} has {bytes} bytes; {} are the most that a chip takes: divide it",
            list.name,
            list::MAX_LIST
        ));
    }
    match lanyard_acl::compile::compile(list) {
        Ok(_) => Ok(()),
        Err(why) => invalid(format!("{:.64} is refused: {why}", list.name)),
    }
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    }
}

fn blank() -> Refused {
    Refused {
        code: Code::Invalid,
        at: 0,
        table: String::new(),
        shortage: None,
        units: (0, 0),
        text: String::new(),
    }
}

fn invalid<T>(text: String) -> Result<T, Refused> {
    Err(Refused { text, ..blank() })
}

/// A refusal by a table of the chip's software, which has no units.
fn software_refusal(refused: RouteRefused) -> Refused {
    let code = if matches!(refused, RouteRefused::Full { .. }) { Code::NoRoom } else { Code::Invalid };
    Refused { code, text: refused.to_string(), ..blank() }
}

pub(super) fn refusal(refusal: Refusal) -> Refused {
    let text = refusal.to_string();
    match refusal {
        Refusal::NoRoom { table, shortage, used, size } => Refused {
            code: Code::NoRoom,
            table,
            shortage: Some(shortage),
            units: (used, size),
            text,
            ..blank()
        },
        _ => Refused { text, ..blank() },
    }
}
