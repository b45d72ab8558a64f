//! Access lists: a list is a classifier of `crates/acl` in an array of one element. The programs find it in one of two arrays
//! of arrays, by its size.
//!
//! Read first: `crates/acl/src/classifier.rs`, the layout; `bpf/acl.h`, the reader.
//!
//! Invariants: an array is complete before programs find it. Where there are two arrays for a list, programs read the smaller
//! one: a larger one is put in place before the smaller one is removed, and a smaller one takes effect at once. Counts of
//! rules that a new list still has continue, and none is lost.

use crate::acl_layout::{Bindings, KINDS, PORT_ACL_IN, PORT_ACL_OUT};
use crate::error::{Doing, Result};
use crate::shared::{Shared, map_bytes};
use crate::tables::Tables;
use lanyard_acl::PlaneList;
use lanyard_acl::classifier::{Head, SMALL_WORDS};
use lanyard_acl::compile::{compile, reserved_words};
use lanyard_acl::condition::carried;
use lanyard_pipeline::state::{AclBindings, PlaneState, PortKind, PortState};
use lanyard_plane::PlaneError;
use lanyard_types::{AclId, PortId, VlanId};
use libbpf_rs::{MapCore, MapHandle, MapType};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The flags of a port that follow from access lists. `vlan_lists`: the result of [`vlan_lists`].
pub(crate) fn flags(port: &PortState, vlan_lists: bool) -> u32 {
    let bound = |lists: &AclBindings| lists.iter().any(Option::is_some);
    let flag = |on: bool, bit: u32| if on { bit } else { 0 };
    flag(vlan_lists || bound(&port.acl_in), PORT_ACL_IN) | flag(bound(&port.acl_out), PORT_ACL_OUT)
}

/// True if a VLAN or a VLAN interface has lists: then frames of every port are to be judged by them.
pub(crate) fn vlan_lists(state: &PlaneState) -> bool {
    let bound = |lists: &AclBindings| lists.iter().any(Option::is_some);
    let host = |port: &&PortState| matches!(port.kind, PortKind::Svi(_));
    state.vlans.values().any(|vlan| bound(&vlan.acl))
        || state.ports.values().filter(host).any(|port| bound(&port.acl_in) || bound(&port.acl_out))
}

fn row(inbound: &AclBindings, outbound: &AclBindings) -> Bindings {
    let numbers = |lists: &AclBindings| {
        let mut row = [0; 4];
        row.iter_mut().zip(lists).for_each(|(to, id)| *to = id.map_or(0, AclId::get));
        row
    };
    Bindings { inbound: numbers(inbound), outbound: numbers(outbound) }
}

/// Writes the lists of a port.
pub(crate) fn write_port(tables: &Tables, id: PortId, port: Option<&PortState>) {
    let row = port.map(|port| row(&port.acl_in, &port.acl_out)).unwrap_or_default();
    tables.acl_ports.set(id.index(), &row);
}

/// Writes the lists of a VLAN.
pub(crate) fn write_vlan(tables: &Tables, vlan: VlanId, lists: Option<&AclBindings>) {
    let row = lists.map(|lists| row(lists, &AclBindings::default())).unwrap_or_default();
    tables.acl_vlans.set(vlan.index(), &row);
}

/// The lists of a plane.
#[derive(Debug, Default)]
pub(crate) struct Acls(BTreeMap<AclId, Array>);

impl Acls {
    /// Adds, replaces or removes a list.
    pub(crate) fn set(&mut self, tables: &Tables, id: AclId, list: Option<&Arc<PlaneList>>) -> Result<()> {
        let Some(list) = list else {
            self.0.remove(&id);
            KINDS.iter().for_each(|kind| tables.clear_slot(kind, id.get().into()));
            return Ok(());
        };
        let refused = |why| PlaneError::Invalid(format!("{} is refused: {why}", list.name));
        let compiled = compile(list).map_err(refused)?;
        let array =
            Array::new(list.clone(), compiled.words(), compiled.counters_at(), reserved_words(&compiled))?;
        let old = self.0.remove(&id);
        let first = old.as_ref().map(Array::matches);
        if let (Some(old), Some(counts)) = (&old, &first) {
            array.add(&carried(&old.list, counts, list));
        }
        // The kernel returns when no program uses the replaced array any more.
        array.put(tables, id)?;
        // A list of an earlier daemon that was not adopted may be of any kind.
        let may_hold = |kind: &str| old.as_ref().is_none_or(|old| old.kind == kind);
        for kind in KINDS.iter().filter(|kind| **kind != array.kind && may_hold(kind)) {
            tables.clear_slot(kind, id.get().into());
        }
        if let (Some(old), Some(first)) = (&old, &first) {
            let late: Vec<u64> =
                old.matches().iter().zip(first).map(|(now, then)| now.wrapping_sub(*then)).collect();
            array.add(&carried(&old.list, &late, list));
        }
        self.0.insert(id, array);
        Ok(())
    }
    /// Takes over the list that an earlier daemon has left, if it has as many rules as `list`, so that its counts continue.
    pub(crate) fn adopt(&mut self, tables: &Tables, id: AclId, list: &Arc<PlaneList>) {
        if self.0.contains_key(&id) {
            return;
        }
        let found = KINDS.into_iter().find_map(|kind| Some((kind, tables.slot(kind, id.get().into())?)));
        let Some((kind, map)) = found.and_then(|(kind, id)| Some((kind, MapHandle::from_map_id(id).ok()?)))
        else {
            return;
        };
        let Ok(words) = Shared::<u64>::map(map.as_fd(), map.value_size() as usize / 8) else { return };
        let head = |entry: Head| {
            words.u64(entry as usize / 2, 0).load(Relaxed) >> (entry as usize % 2 * 32) & 0xffff_ffff
        };
        let counters = head(Head::Counters) as usize;
        if head(Head::Rules) == list.rules.len() as u64
            && counters + list.rules.len() < map.value_size() as usize / 8
        {
            self.0.insert(id, Array { kind, map, words, counters, list: list.clone() });
        }
    }
    /// Removes every list that `state` does not have. With `unknown`, also the lists that an earlier daemon has left; finding
    /// them takes long on older kernels (`slots`).
    pub(crate) fn retain(&mut self, tables: &Tables, state: &PlaneState, unknown: bool) {
        let all = || (1..=AclId::MAX.get()).filter_map(AclId::new).collect();
        let ids: Vec<AclId> = if unknown { all() } else { self.0.keys().copied().collect() };
        for id in ids.into_iter().filter(|id| !state.acls.contains_key(id)) {
            self.0.remove(&id);
            KINDS.iter().for_each(|kind| tables.clear_slot(kind, id.get().into()));
        }
    }
    /// How often each rule of a list has decided about a frame; the last number is how often no rule has.
    pub(crate) fn matches(&self, id: AclId) -> Vec<u64> {
        self.0.get(&id).map(Array::matches).unwrap_or_default()
    }
    /// Sets counts of a list to 0: those of the rules that come from the access list `of`, or with `None` all.
    pub(crate) fn clear_matches(&mut self, id: AclId, of: Option<&str>) {
        let Some(array) = self.0.get(&id) else { return };
        let cleared = array.counters().zip(array.list.counts_of(of)).filter(|(_, cleared)| *cleared);
        cleared.for_each(|(word, _)| word.store(0, Relaxed));
    }
    /// The number of lists, and their memory in bytes.
    pub(crate) fn usage(&self) -> (u64, u64) {
        (self.0.len() as u64, self.0.values().map(|array| map_bytes(array.map.as_fd())).sum())
    }
}

/// A list in its array.
#[derive(Debug)]
struct Array {
    kind: &'static str,
    map: MapHandle,
    words: Shared<u64>,
    /// The word at which the counters begin.
    counters: usize,
    list: Arc<PlaneList>,
}

impl Array {
    fn new(list: Arc<PlaneList>, image: &[u64], counters: usize, reserved: usize) -> Result<Self> {
        let doing = || format!("making an access list of {} KB", reserved / 128);
        let kind = KINDS[usize::from(reserved > SMALL_WORDS)];
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let bytes = (reserved * 8) as u32;
        let map = MapHandle::create(MapType::Array, Some("ly_acl"), 4, bytes, 1, &opts).doing(doing)?;
        let words = Shared::<u64>::map(map.as_fd(), reserved).doing(doing)?;
        for (at, word) in image.iter().enumerate() {
            words.u64(at, 0).store(*word, Relaxed);
        }
        Ok(Self { kind, map, words, counters, list })
    }
    fn put(&self, tables: &Tables, id: AclId) -> Result<()> {
        tables
            .put_slot(self.kind, id.get().into(), &self.map)
            .doing(|| format!("putting access list {id} in place in {}", self.kind))
    }
    fn counters(&self) -> impl Iterator<Item = &std::sync::atomic::AtomicU64> {
        (self.counters..=self.counters + self.list.rules.len()).map(|at| self.words.u64(at, 0))
    }
    fn matches(&self) -> Vec<u64> {
        self.counters().map(|word| word.load(Relaxed)).collect()
    }
    fn add(&self, counts: &[u64]) {
        self.counters().zip(counts).for_each(|(word, count)| _ = word.fetch_add(*count, Relaxed));
    }
}
