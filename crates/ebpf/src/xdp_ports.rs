//! The ports to which XDP sends: the device maps `xdp_ports` and `xdp_flood`, and the set of ports that XDP floods to.
//!
//! Invariant: a port's flags permit XDP to send to it only while its entries in the device maps are those of its netdev, and
//! the set of flooded ports contains no port whose lease has ended.

use crate::abi;
use crate::lower::{self, PortFacts, VlanSets};
use crate::plane::EbpfPlane;
use crate::watchdog;
use lanyard_pipeline::state::PortState;
use lanyard_types::PortId;
use libbpf_rs::{MapCore, MapFlags};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use zerocopy::{FromBytes, IntoBytes};

impl EbpfPlane {
    /// The ports that XDP floods to, one bit each, and the length in bytes of the longest frame without tag that fits them all.
    pub(crate) fn xdp_flood(&self) -> (u64, u32) {
        let ended = watchdog::leases_ended(&self.tables);
        let takes =
            |id: &PortId| self.facts.get(id).is_some_and(|facts| facts.xdp_tx && !(facts.leased && ended));
        // When XDP floods, it applies no access lists and policies of ports, and makes no copies for monitor sessions.
        let plain = |port: &PortState| {
            port.acl_out.iter().all(Option::is_none)
                && port.qos.output.is_none()
                && !port.stages.mirror.sends()
        };
        let ports = self
            .state
            .ports
            .iter()
            .filter(|(id, port)| id.index() < abi::XDP_FLOOD && takes(id) && plain(port));
        let sets = VlanSets::default();
        let row = |(id, port): (&PortId, &PortState)| {
            lower::port_row(port, self.ifindex(*id, port), &self.facts[id], self.rif_on(*id), &sets, 0)
        };
        let longest = ports.clone().map(|port| row(port).max_len).min();
        (ports.fold(0, |set, (id, _)| set | 1 << id.index()), longest.unwrap_or(0))
    }

    /// Adds the port to the device maps or removes it. The caller writes the port's row afterwards.
    pub(crate) fn write_xdp_port(&mut self, id: PortId) {
        if self.kept.is_none() {
            return;
        }
        let facts = self.facts.get(&id).cloned().unwrap_or_default();
        let ifindex = self.state.ports.get(&id).map_or(0, |port| port.ifindex);
        let wanted = if facts.xdp_tx { ifindex } else { 0 };
        let copy = self.programs.xdp_copy.as_raw_fd() as u32;
        if wanted != self.device("xdp_ports", id) {
            // XDP must not send to the port while its entries change; `write_row` sets the flag
            // again.
            let flags = self.tables.ports.u32(id.index(), offset_of!(abi::Port, flags));
            flags.fetch_and(!(abi::PORT_XDP_TX | abi::PORT_XDP_SG), Relaxed);
        }
        if wanted == 0 {
            self.write_xdp_flood();
        }
        let flood = id.index() < abi::XDP_FLOOD;
        let taken = self.write_device("xdp_ports", id, wanted, &[]).and_then(|()| {
            // The entry is always written, because its number does not tell which program it names.
            if flood { self.write_device("xdp_flood", id, wanted, copy.as_bytes()) } else { Ok(()) }
        });
        if taken.is_err() {
            // The netdev was removed meanwhile; TC handles frames for the port.
            self.facts.insert(id, PortFacts { xdp_tx: false, ..facts });
        }
        self.write_xdp_flood();
    }

    pub(crate) fn write_xdp_flood(&self) {
        let ended = watchdog::leases_ended(&self.tables);
        let (set, longest) = self.xdp_flood();
        let global = &self.tables.global;
        global.u32(0, offset_of!(abi::Global, xdp_flood_len)).store(longest, Relaxed);
        global.u64(0, offset_of!(abi::Global, xdp_flood)).store(set, SeqCst);
        if !ended && watchdog::leases_ended(&self.tables) {
            // The leases have ended since `xdp_flood` was called.
            global.u64(0, offset_of!(abi::Global, xdp_flood)).store(self.xdp_flood().0, SeqCst);
        }
    }

    /// The netdev of a device map's entry; 0 if there is none.
    fn device(&self, map: &str, id: PortId) -> u32 {
        let held = self.tables.map(map).lookup(u32::from(id.get()).as_bytes(), MapFlags::ANY).ok().flatten();
        held.and_then(|value| Some(u32::read_from_prefix(&value).ok()?.0)).unwrap_or(0)
    }

    /// Writes a device map's entry: `ifindex`, followed by `rest`; 0 removes the entry.
    fn write_device(&self, map: &str, id: PortId, ifindex: u32, rest: &[u8]) -> libbpf_rs::Result<()> {
        let held = self.device(map, id);
        let (map, key) = (self.tables.map(map), u32::from(id.get()));
        match (ifindex, held) {
            (0, 0) => Ok(()),
            (0, _) => map.delete(key.as_bytes()),
            _ if ifindex == held && rest.is_empty() => Ok(()),
            _ => map.update(key.as_bytes(), &[ifindex.as_bytes(), rest].concat(), MapFlags::ANY),
        }
    }
}
