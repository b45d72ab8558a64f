//! Defines [`ProtocolPlane`], the part of a plane that protocols use on a thread of their own.
//!
//! Invariant: no call waits for a system call that the owner of the [`Plane`](crate::Plane) makes
//! on another thread. Both share the plane's tables and a lock, which is held only while one step
//! of a change is written to memory.

use crate::{ChannelMembers, FdbFilter, PlaneError};
use lanyard_pipeline::tables::mdb::MdbChange;
use lanyard_types::{
    Binding, BindingKey, ChannelId, InstanceId, MacAddr, PortId, PortSet, StpState, TrapReason, VlanId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;
use std::time::Duration;

/// The states of ports in spanning trees, and which of them the watchdog blocks when it expires.
/// The same as `stp` and `watched` of [`PlaneState`](crate::PlaneState). A port that does not exist
/// yet may be named: it comes up in the state that is named here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeStates {
    /// States that are not [`StpState::Forwarding`].
    pub stp: BTreeMap<(InstanceId, PortId), StpState>,
    /// Pairs that the watchdog blocks.
    pub watched: BTreeSet<(InstanceId, PortId)>,
}

/// A frame for the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trapped {
    /// The port that received it.
    pub port: PortId,
    /// Why it was trapped.
    pub reason: TrapReason,
    /// The frame, tags in line.
    pub frame: Vec<u8>,
}

/// Trapped frames end a wait for [`ProtocolPlane::event_fd`] at most once in this time, so that many frames do not cause as many
/// wake-ups.
pub const TRAP_WAKE: Duration = Duration::from_micros(500);

/// The part of a plane that protocols use; [`Plane::protocols`](crate::Plane::protocols) returns
/// it.
pub trait ProtocolPlane: Send {
    /// A descriptor that is readable while [`ProtocolPlane::poll_traps`] has frames; it stays open as long as this value. If it
    /// becomes readable less than [`TRAP_WAKE`] after the end of a wait for it, this may not end the next wait when that has
    /// already begun. So after frames have arrived, poll once more when that time has passed.
    fn event_fd(&self) -> RawFd;
    /// Passes a bounded number of trapped frames to `handle`, in the order of their arrival,
    /// without waiting; returns their number.
    fn poll_traps(&mut self, handle: &mut dyn FnMut(Trapped)) -> usize;
    /// Sends a control-plane frame out of one port, unchanged; out of a port-channel by one of its members.
    ///
    /// # Errors
    /// When the port does not exist or the kernel refuses the frame.
    fn inject(&mut self, port: PortId, frame: &[u8]) -> Result<(), PlaneError>;
    /// Sends a control-plane frame in a VLAN, out of those of `ports` that forward in it, except `from`, the port that received
    /// it: tagged as each port sends the VLAN, and never from one protected port to another. `frame` has no tag of the switch.
    /// Ports that refuse the frame are left out. Returns the number of ports that accepted the frame, or the number of `ports` if
    /// the plane does not wait for their result; 0 in a plane without multicast snooping.
    fn relay(&mut self, _vlan: VlanId, _from: Option<PortId>, _ports: &PortSet, _frame: &[u8]) -> usize {
        0
    }
    /// Changes the MDB or the ports of multicast routers. Frames that are forwarded meanwhile see either the old entry or
    /// the new one.
    ///
    /// # Errors
    /// [`PlaneError::TableFull`] when a new entry has no room; it is counted.
    fn multicast(&mut self, _change: &MdbChange) -> Result<(), PlaneError> {
        Err(PlaneError::Unsupported { plane: "present", what: "limit groups to ports: it has no MDB".into() })
    }
    /// The MDB and the ports of routers that the plane holds: after a restart, those that it was adopted with.
    fn multicast_held(&self) -> Vec<MdbChange> {
        Vec::new()
    }
    /// The entries of whole groups that the plane has given up since the last call, because another device with less room took
    /// over. Frames of these groups are flooded. They can be entered again when there is room.
    fn multicast_lost(&mut self) -> Vec<MdbChange> {
        Vec::new()
    }
    /// Enters, replaces or (`None`) removes a binding of first-hop security. Frames that are judged meanwhile see either the
    /// old MAC address or the new one.
    ///
    /// # Errors
    /// [`PlaneError::TableFull`] when a new binding has no room; it is counted.
    fn bind(&mut self, _key: BindingKey, _mac: Option<MacAddr>) -> Result<(), PlaneError> {
        Err(PlaneError::Unsupported {
            plane: "present",
            what: "verify sources: it has no table of bindings".into(),
        })
    }
    /// The bindings that the plane holds: after a restart, those that it was adopted with.
    fn bindings(&self) -> Vec<Binding> {
        Vec::new()
    }
    /// Restarts the watchdog of multicast snooping. Unless this is called again within `after`, the plane itself stops
    /// snooping until [`ProtocolPlane::snooping_expired`] is called: frames of groups, and messages about memberships, then
    /// go to all ports. `None` stops the watchdog. A plane that ends with the daemon's process does nothing.
    ///
    /// # Errors
    /// When the system refuses the timer.
    fn snooping_watchdog(&mut self, _after: Option<Duration>) -> Result<(), PlaneError> {
        Ok(())
    }
    /// Returns true once after the watchdog of snooping has expired; from then on the plane snoops again.
    fn snooping_expired(&mut self) -> bool {
        false
    }
    /// The states of ports in trees that were in force when the plane was opened.
    fn trees(&self) -> TreeStates;
    /// Puts these states of ports in trees into force; ports are blocked before others are unblocked. The
    /// states hold until the next call, whatever states [`Plane::apply`](crate::Plane::apply) is given.
    ///
    /// # Errors
    /// When the plane cannot change a state; some of the states may then be in force.
    fn set_trees(&mut self, trees: &TreeStates) -> Result<(), PlaneError>;
    /// The members in use of port-channels that were in force when the plane was opened.
    fn channels(&self) -> BTreeMap<ChannelId, ChannelMembers> {
        BTreeMap::new()
    }
    /// Puts the members in use of a port-channel into force; frames take the new ones from now on. They hold until the next
    /// call, whatever [`Plane::apply`](crate::Plane::apply) is given. The port-channel need not exist yet.
    ///
    /// # Errors
    /// When the plane has no port-channels, or refuses the members.
    fn set_channel(&mut self, _channel: ChannelId, _members: &ChannelMembers) -> Result<(), PlaneError> {
        Err(PlaneError::Invalid("this plane has no port-channels".into()))
    }
    /// Removes the dynamic FDB entries that match `filter`; returns their number.
    fn fdb_flush(&mut self, filter: &FdbFilter) -> u64;
    /// See [`Plane::watchdog`](crate::Plane::watchdog).
    ///
    /// # Errors
    /// When the system refuses the timer.
    fn watchdog(&mut self, _after: Option<Duration>) -> Result<(), PlaneError> {
        Ok(())
    }
    /// See [`Plane::watchdog_expired`](crate::Plane::watchdog_expired).
    fn watchdog_expired(&mut self) -> bool {
        false
    }
    /// Stores a number that the next daemon reads, however this one ends; before the first call it is 0. A
    /// plane that ends with the daemon's process stores nothing. Does not wait for a disk.
    fn mark(&mut self, _mark: u64) {}
    /// The number that the previous daemon stored last.
    fn marked(&self) -> u64 {
        0
    }
}
