//! [`SoftProtocols`]: the part of the plane that protocols use on a thread of their own.
//!
//! Invariant: this part shares only the lock of the core with other threads, which hold it for one
//! link's turn, one step of a change, or one query.

use crate::link::vnet::Offload;
use crate::worker::Shared;
use lanyard_pipeline::relay;
use lanyard_pipeline::tables::Tables;
use lanyard_plane::{
    ChannelMembers, FdbFilter, MAX_TRACE_FRAME, MdbChange, PlaneError, ProtocolPlane, Trapped, TreeStates,
};
use lanyard_types::{Binding, BindingKey, ChannelId, MacAddr, PortId, PortSet, StpState, VlanId};
use nix::sys::eventfd::EventFd;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

/// Trapped frames that one call passes on.
const TRAPS_A_POLL: usize = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct SoftProtocols {
    pub shared: Arc<Shared>,
    pub bell: Arc<EventFd>,
    pub trees: TreeStates,
    pub channels: BTreeMap<ChannelId, ChannelMembers>,
}

impl ProtocolPlane for SoftProtocols {
    fn event_fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }
    fn poll_traps(&mut self, handle: &mut dyn FnMut(Trapped)) -> usize {
        let frames = self.shared.control().events.fetch_traps(TRAPS_A_POLL);
        let count = frames.len();
        frames.into_iter().for_each(handle);
        count
    }
    fn inject(&mut self, port: PortId, frame: &[u8]) -> Result<(), PlaneError> {
        if frame.len() > MAX_TRACE_FRAME {
            return Err(PlaneError::Invalid(format!("a frame of {} bytes is too long", frame.len())));
        }
        let mut core = self.shared.control();
        let tables = core.pipeline.tables();
        if tables.ports.get(port).is_none() {
            return Err(PlaneError::NoSuchPort(port));
        }
        let port = sender(tables, port);
        let sent = core.links[port.index()].send(frame, Offload::default());
        core.pipeline.count_injected(port, frame.len(), sent);
        let refused =
            || PlaneError::System { what: format!("sending on port {port}"), cause: "refused".into() };
        if sent { Ok(()) } else { Err(refused()) }
    }
    fn relay(&mut self, vlan: VlanId, from: Option<PortId>, ports: &PortSet, frame: &[u8]) -> usize {
        if frame.len() > MAX_TRACE_FRAME {
            return 0;
        }
        let mut core = self.shared.control();
        let mut sent = 0;
        for (port, bytes) in relay::copies(core.pipeline.tables(), vlan, from, ports, frame) {
            let port = sender(core.pipeline.tables(), port);
            let taken = core.links[port.index()].send(&bytes, Offload::default());
            core.pipeline.count_injected(port, bytes.len(), taken);
            sent += usize::from(taken);
        }
        sent
    }
    fn multicast(&mut self, change: &MdbChange) -> Result<(), PlaneError> {
        Ok(self.shared.control().pipeline.multicast(change)?)
    }
    fn multicast_held(&self) -> Vec<MdbChange> {
        self.shared.control().pipeline.tables().mdb.changes()
    }
    fn bind(&mut self, key: BindingKey, mac: Option<MacAddr>) -> Result<(), PlaneError> {
        Ok(self.shared.control().pipeline.bind(key, mac)?)
    }
    fn bindings(&self) -> Vec<Binding> {
        self.shared.control().pipeline.tables().bindings.iter().collect()
    }
    fn trees(&self) -> TreeStates {
        self.trees.clone()
    }
    fn set_trees(&mut self, trees: &TreeStates) -> Result<(), PlaneError> {
        let pairs: BTreeSet<_> = self.trees.stp.keys().chain(trees.stp.keys()).copied().collect();
        let mut core = self.shared.control();
        for opens in [false, true] {
            for (instance, port) in &pairs {
                let to = trees.stp.get(&(*instance, *port)).copied().unwrap_or_default();
                if (to == StpState::Forwarding) == opens {
                    core.pipeline.set_stp(*instance, *port, to);
                }
            }
        }
        drop(core);
        self.trees = trees.clone();
        Ok(())
    }
    fn channels(&self) -> BTreeMap<ChannelId, ChannelMembers> {
        self.channels.clone()
    }
    fn set_channel(&mut self, channel: ChannelId, members: &ChannelMembers) -> Result<(), PlaneError> {
        self.shared.control().pipeline.set_channel(channel, Some(members.clone()));
        self.channels.insert(channel, members.clone());
        Ok(())
    }
    fn fdb_flush(&mut self, filter: &FdbFilter) -> u64 {
        let mut core = self.shared.control();
        let core = &mut *core;
        core.pipeline.flush(filter, core.clock.now(), &mut |event| core.events.fdb(event))
    }
}

/// The port out of which a frame of a protocol for `port` is sent: for a port-channel, one of its members.
fn sender(tables: &Tables, port: PortId) -> PortId {
    let member = tables.ports.channel(port).and_then(|channel| tables.channels.member(channel, 0));
    member.unwrap_or(port)
}
