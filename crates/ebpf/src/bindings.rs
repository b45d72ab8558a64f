//! First-hop security in the tables (`bpf/stages/guard.h`): what is checked in each VLAN, and the bindings of addresses to
//! ports and MAC addresses.
//!
//! Invariant: a binding is one element of a hash map of the kernel, so a program sees either the old MAC address or the new
//! one. The kernel refuses an element for which the map has no room.

use crate::abi;
use crate::error::system;
use crate::stages::guard::{
    GUARD_VLAN_ARP, GUARD_VLAN_DHCP, GUARD_VLAN_DST_MAC, GUARD_VLAN_IP, GUARD_VLAN_SRC_MAC, GUARD_VLAN_ZEROS,
    PORT_GUARD,
};
use crate::tables::{Meta, Tables};
use lanyard_pipeline::state::{PlaneState, PortKind, PortState, VlanState};
use lanyard_plane::{PlaneError, TableUsage};
use lanyard_types::{ArpValidation, Binding, BindingKey, MAX_BINDINGS, MacAddr, PortId, VlanId};
use libbpf_rs::{MapCore, MapFlags};
use std::collections::BTreeSet;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The name of the map.
const MAP: &str = "bindings";

/// The writer of the bindings. There is one at a time.
#[derive(Debug)]
pub(crate) struct Bindings {
    tables: Arc<Tables>,
    held: BTreeSet<BindingKey>,
}

impl Bindings {
    /// Takes over the bindings that the table holds.
    pub(crate) fn open(tables: Arc<Tables>) -> Self {
        let held: BTreeSet<BindingKey> = tables.map(MAP).keys().filter_map(|key| key_of(&key)).collect();
        let bindings = Self { tables, held };
        bindings.count_used();
        bindings
    }

    /// Enters, replaces or (`None`) removes a binding.
    ///
    /// # Errors
    /// [`PlaneError::TableFull`] when a new binding has no room.
    pub(crate) fn set(&mut self, key: BindingKey, mac: Option<MacAddr>) -> Result<(), PlaneError> {
        let map = self.tables.map(MAP);
        let at = bytes_of(&key);
        let Some(mac) = mac else {
            if self.held.remove(&key) {
                map.delete(&at)
                    .map_err(|error| system(format!("removing the binding of {}", key.address), error))?;
            }
            self.count_used();
            return Ok(());
        };
        match map.update(&at, &abi::raw_mac(mac).to_ne_bytes(), MapFlags::ANY) {
            Ok(()) => {
                self.held.insert(key);
                self.count_used();
                Ok(())
            }
            Err(_) if self.held.len() >= MAX_BINDINGS => {
                let refused = self.tables.meta.u64(0, offset_of!(Meta, bindings_refused));
                refused.fetch_add(1, Relaxed);
                Err(PlaneError::TableFull { table: "bindings", size: MAX_BINDINGS as u64 })
            }
            Err(error) => Err(system(format!("entering the binding of {}", key.address), error)),
        }
    }

    /// Every binding.
    pub(crate) fn held(&self) -> Vec<Binding> {
        let map = self.tables.map(MAP);
        let mac = |key: &BindingKey| {
            let value = map.lookup(&bytes_of(key), MapFlags::ANY).ok().flatten()?;
            Some((*key, abi::mac_of(u64::from_ne_bytes(value.try_into().ok()?))))
        };
        self.held.iter().filter_map(mac).collect()
    }

    fn count_used(&self) {
        let word = |at: usize| self.tables.meta.u64(0, at);
        word(offset_of!(Meta, bindings_used)).store(self.held.len() as u64, Relaxed);
        let high = word(offset_of!(Meta, bindings_high_water));
        high.fetch_max(self.held.len() as u64, Relaxed);
    }
}

/// The use of the table.
pub(crate) fn usage(tables: &Tables) -> TableUsage {
    let meta = tables.meta.get(0);
    TableUsage {
        name: "bindings",
        size: MAX_BINDINGS as u64,
        used: meta.bindings_used,
        high_water: meta.bindings_high_water,
        refused: meta.bindings_refused,
        bytes: tables.bytes(&[MAP, "guard_vlans"]),
        shared_with: Vec::new(),
    }
}

fn bytes_of(key: &BindingKey) -> [u8; 8] {
    let (port, vlan) = (u64::from(key.port.get()), u64::from(key.vlan.get()));
    (u64::from(u32::from(key.address)) << 32 | port << 16 | vlan).to_ne_bytes()
}

fn key_of(bytes: &[u8]) -> Option<BindingKey> {
    let word = u64::from_ne_bytes(bytes.try_into().ok()?);
    let (port, vlan) = (PortId::new((word >> 16) as u16)?, VlanId::new(word as u16)?);
    Some(BindingKey { port, vlan, address: ((word >> 32) as u32).into() })
}

/// Writes what is checked in a VLAN.
pub(crate) fn write_vlan(tables: &Tables, vlan: VlanId, state: Option<&VlanState>) {
    let guard = state.map(|state| state.guard).unwrap_or_default();
    let ArpValidation { src_mac, dst_mac, ip, allow_zeros } = guard.validate;
    let bits = [
        (guard.dhcp, GUARD_VLAN_DHCP),
        (guard.arp, GUARD_VLAN_ARP),
        (src_mac, GUARD_VLAN_SRC_MAC),
        (dst_mac, GUARD_VLAN_DST_MAC),
        (ip, GUARD_VLAN_IP),
        (allow_zeros, GUARD_VLAN_ZEROS),
    ];
    let row = bits.into_iter().filter(|(on, _)| *on).fold(0, |all, (_, bit)| all | u64::from(bit));
    tables.guard_vlans.u64(vlan.index(), 0).store(row, Relaxed);
}

/// The flag of a port that receives frames of a VLAN with checks.
pub(crate) fn vlan_flag(port: &PortState, state: &PlaneState) -> u32 {
    let bridges = matches!(port.kind, PortKind::Netdev | PortKind::Svi(_));
    if bridges && state.is_guarded(port, |vlan| !vlan.is_off()) { PORT_GUARD } else { 0 }
}
