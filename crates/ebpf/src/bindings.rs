//! First-hop security in the tables (`bpf/stages/guard.h`): what is checked in each VLAN, and the bindings of addresses to
//! ports and MAC addresses.
//!
//! Each family has a map. Invariant: a binding is one element of a hash map of the kernel, so a program sees either the old MAC
//! address or the new one. The kernel refuses an element for which the map has no room.

use crate::abi;
use crate::error::system;
use crate::stages::guard::{
    Binding6, GUARD_VLAN_ARP, GUARD_VLAN_DHCP, GUARD_VLAN_DST_MAC, GUARD_VLAN_IP, GUARD_VLAN_ND,
    GUARD_VLAN_SRC_MAC, GUARD_VLAN_ZEROS,
};
use crate::tables::{BindingCounts, Meta, Tables};
use lanyard_pipeline::state::VlanState;
use lanyard_pipeline::tables::bindings::{NAMES, family};
use lanyard_plane::{PlaneError, TableUsage};
use lanyard_types::{ArpValidation, Binding, BindingKey, MAX_BINDINGS, MacAddr, PortId, VlanId};
use libbpf_rs::{MapCore, MapFlags};
use std::collections::BTreeSet;
use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use zerocopy::{FromBytes, IntoBytes};

/// The names of the maps, of IPv4 and of IPv6.
const MAPS: [&str; 2] = ["bindings", "bindings6"];

/// The writer of the bindings. There is one at a time.
#[derive(Debug)]
pub(crate) struct Bindings {
    tables: Arc<Tables>,
    /// The keys of all bindings, by family.
    held: [BTreeSet<BindingKey>; 2],
}

impl Bindings {
    /// Takes over the bindings that the table holds.
    pub(crate) fn open(tables: Arc<Tables>) -> Self {
        let held = MAPS.map(|map| tables.map(map).keys().filter_map(|key| key_of(&key)).collect());
        let bindings = Self { tables, held };
        (0..MAPS.len()).for_each(|family| bindings.count_used(family));
        bindings
    }

    /// Enters, replaces or (`None`) removes a binding.
    ///
    /// # Errors
    /// [`PlaneError::TableFull`] when a new binding has no room.
    pub(crate) fn set(&mut self, key: BindingKey, mac: Option<MacAddr>) -> Result<(), PlaneError> {
        let family = family(&key.address);
        let map = self.tables.map(MAPS[family]);
        let at = bytes_of(&key);
        let Some(mac) = mac else {
            if self.held[family].remove(&key) {
                map.delete(&at)
                    .map_err(|error| system(format!("removing the binding of {}", key.address), error))?;
            }
            self.count_used(family);
            return Ok(());
        };
        match map.update(&at, &abi::raw_mac(mac).to_ne_bytes(), MapFlags::ANY) {
            Ok(()) => {
                self.held[family].insert(key);
                self.count_used(family);
                Ok(())
            }
            Err(_) if self.held[family].len() >= MAX_BINDINGS => {
                let refused = counts(family) + offset_of!(BindingCounts, refused);
                self.tables.meta.u64(0, refused).fetch_add(1, Relaxed);
                Err(PlaneError::TableFull { table: NAMES[family], size: MAX_BINDINGS as u64 })
            }
            Err(error) => Err(system(format!("entering the binding of {}", key.address), error)),
        }
    }

    /// Every binding.
    pub(crate) fn held(&self) -> Vec<Binding> {
        let mac = |key: &BindingKey| {
            let map = self.tables.map(MAPS[family(&key.address)]);
            let value = map.lookup(&bytes_of(key), MapFlags::ANY).ok().flatten()?;
            Some((*key, abi::mac_of(u64::from_ne_bytes(value.try_into().ok()?))))
        };
        self.held.iter().flatten().filter_map(mac).collect()
    }

    fn count_used(&self, family: usize) {
        let (word, held) = (|at: usize| self.tables.meta.u64(0, at), self.held[family].len() as u64);
        word(counts(family) + offset_of!(BindingCounts, used)).store(held, Relaxed);
        word(counts(family) + offset_of!(BindingCounts, high_water)).fetch_max(held, Relaxed);
    }
}

/// The offset in bytes of a family's counts in the row [`Meta`].
const fn counts(family: usize) -> usize {
    offset_of!(Meta, bindings) + family * size_of::<BindingCounts>()
}

/// The occupancy of the tables of bindings, by family.
pub(crate) fn usage(tables: &Tables) -> [TableUsage; 2] {
    let maps = [[MAPS[0], "guard_vlans"].as_slice(), &MAPS[1..]];
    let counts = tables.meta.get(0).bindings;
    [0, 1].map(|family| TableUsage {
        name: NAMES[family],
        size: MAX_BINDINGS as u64,
        used: counts[family].used,
        high_water: counts[family].high_water,
        refused: counts[family].refused,
        bytes: tables.bytes(maps[family]),
        shared_with: Vec::new(),
    })
}

fn bytes_of(key: &BindingKey) -> Vec<u8> {
    let place = u32::from(key.port.get()) << 16 | u32::from(key.vlan.get());
    match key.address {
        IpAddr::V4(address) => {
            (u64::from(u32::from(address)) << 32 | u64::from(place)).to_ne_bytes().to_vec()
        }
        IpAddr::V6(address) => Binding6 { address: address.octets(), place, pad: 0 }.as_bytes().to_vec(),
    }
}

fn key_of(bytes: &[u8]) -> Option<BindingKey> {
    let (address, place): (IpAddr, u32) = match <[u8; 8]>::try_from(bytes) {
        Ok(word) => {
            let word = u64::from_ne_bytes(word);
            (Ipv4Addr::from((word >> 32) as u32).into(), word as u32)
        }
        Err(_) => {
            let key = Binding6::read_from_bytes(bytes).ok()?;
            (Ipv6Addr::from(key.address).into(), key.place)
        }
    };
    let (port, vlan) = (PortId::new((place >> 16) as u16)?, VlanId::new(place as u16)?);
    Some(BindingKey { port, vlan, address })
}

/// Writes the settings of first-hop security in a VLAN: `guard_vlans[vlan]`.
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
        (guard.nd, GUARD_VLAN_ND),
    ];
    let row = bits.into_iter().filter(|(on, _)| *on).fold(0, |all, (_, bit)| all | u64::from(bit));
    tables.guard_vlans.u64(vlan.index(), 0).store(row, Relaxed);
}
