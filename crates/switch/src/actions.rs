//! Changes of the kernel's network configuration as values: [`Action`]s, which the daemon carries out, and the [`Record`] of
//! what they replaced.
//!
//! Invariants: an action contains the value it replaces, so that it can be undone; [`transact`] undoes the completed actions when
//! one fails.

use crate::facts::{HostStack, Knob, LinkFacts, LinkMode};
use crate::host_routes::Route;
use crate::names::host_end_of;
#[cfg(doc)]
use crate::names::pipeline_end_of;
use ipnet::IpNet;
use lanyard_types::MacAddr;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One change of the kernel's network configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Creates a VRF's namespace, with its loopback device up and marked; or deletes it.
    Namespace {
        /// The VRF.
        vrf: String,
        /// The mark on the loopback device (see [`crate::alias`]).
        mark: String,
        /// True to create, false to delete.
        add: bool,
    },
    /// Creates the veth pair of a VLAN interface or a subinterface, with both ends down.
    CreatePair(Pair),
    /// Deletes such a veth pair.
    DeletePair(Pair),
    /// Moves a netdev to another namespace. There it is down and has lost its addresses and settings.
    Move {
        /// The netdev.
        name: String,
        /// The VRF that it is in.
        from: Option<String>,
        /// The VRF that it is moved to.
        to: Option<String>,
    },
    /// Changes a netdev's settings. Only those that differ between `from` and `to` are written.
    Link {
        /// The netdev.
        name: String,
        /// The settings before.
        from: LinkSettings,
        /// The settings after.
        to: LinkSettings,
    },
    /// Adds an address, which may exist already, or removes one, which may be gone already.
    Address {
        /// The netdev.
        name: String,
        /// The address with its prefix length.
        net: IpNet,
        /// True to add, false to remove.
        add: bool,
    },
    /// Sets a boolean sysctl of a whole namespace.
    Knob {
        /// The VRF.
        vrf: Option<String>,
        /// The sysctl.
        knob: Knob,
        /// The value before.
        from: bool,
        /// The value after.
        to: bool,
    },
    /// Sets speed and duplex.
    Speed {
        /// The netdev.
        name: String,
        /// The mode before.
        from: LinkMode,
        /// The mode after.
        to: LinkMode,
    },
}

/// The veth pair of a VLAN interface or a subinterface. [`pipeline_end_of`] the host end's name is the pipeline end's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The host end's name: `vlan10`, `eth1.100`.
    pub name: String,
    /// The host end's MAC address; `None` lets the kernel choose.
    pub mac: Option<MacAddr>,
    /// Layer-3 MTU of both ends in bytes.
    pub mtu: u32,
    /// The mark that both ends carry.
    pub alias: String,
}

/// The settings of a netdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSettings {
    /// Administratively up.
    pub up: bool,
    /// Promiscuous.
    pub promisc: bool,
    /// Layer-3 MTU in bytes.
    pub mtu: u32,
    /// MAC address.
    pub mac: Option<MacAddr>,
    /// The settings of the kernel's own IP stack.
    pub host: HostStack,
}

impl LinkSettings {
    pub(crate) fn of(link: &LinkFacts) -> Self {
        Self { up: link.admin_up, promisc: link.promisc, mtu: link.mtu, mac: link.mac, host: link.host }
    }
}

impl Action {
    /// The action that undoes this one.
    #[must_use]
    pub fn inverse(self) -> Self {
        match self {
            Self::Namespace { vrf, mark, add } => Self::Namespace { vrf, mark, add: !add },
            Self::Move { name, from, to } => Self::Move { name, from: to, to: from },
            Self::CreatePair(pair) => Self::DeletePair(pair),
            Self::DeletePair(pair) => Self::CreatePair(pair),
            Self::Link { name, from, to } => Self::Link { name, from: to, to: from },
            Self::Address { name, net, add } => Self::Address { name, net, add: !add },
            Self::Knob { vrf, knob, from, to } => Self::Knob { vrf, knob, from: to, to: from },
            Self::Speed { name, from, to } => Self::Speed { name, from: to, to: from },
        }
    }
    /// The interface that this action concerns; `None` when it concerns a namespace.
    #[must_use]
    pub fn interface(&self) -> Option<String> {
        match self {
            Self::Namespace { .. } | Self::Knob { .. } => None,
            Self::CreatePair(pair) | Self::DeletePair(pair) => Some(pair.name.clone()),
            Self::Link { name, .. } => Some(host_end_of(name)),
            Self::Move { name, .. } | Self::Address { name, .. } | Self::Speed { name, .. } => {
                Some(name.clone())
            }
        }
    }
}

/// The netdevs that `actions` set administratively down.
pub fn taken_down(actions: &[Action]) -> impl Iterator<Item = &str> {
    actions.iter().filter_map(|action| match action {
        Action::Link { name, from, to } if from.up && !to.up => Some(name.as_str()),
        _ => None,
    })
}

/// The state of a netdev before the switch took it over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// Its index. A netdev of the same name with another index is another netdev.
    pub ifindex: u32,
    /// Administratively up.
    pub up: bool,
    /// Promiscuous.
    pub promisc: bool,
    /// Layer-3 MTU in bytes.
    pub mtu: u32,
    /// MAC address.
    pub mac: Option<MacAddr>,
    /// The settings of the kernel's own IP stack.
    pub host: HostStack,
    /// The link mode in which the netdev was found, while the switch has set another one; `None` otherwise.
    #[serde(default)]
    pub mode: Option<LinkMode>,
}

impl Original {
    pub(crate) fn of(link: &LinkFacts) -> Self {
        let LinkSettings { up, promisc, mtu, mac, host } = LinkSettings::of(link);
        Self { ifindex: link.ifindex, up, promisc, mtu, mac, host, mode: None }
    }
    pub(crate) fn settings(&self) -> LinkSettings {
        LinkSettings { up: self.up, promisc: self.promisc, mtu: self.mtu, mac: self.mac, host: self.host }
    }
}

/// The switch's changes in the kernel, which it has to undo when it lets go. The daemon keeps it in its state
/// directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Ports and routed ports in the state in which they were found, by name.
    pub originals: BTreeMap<String, Original>,
    /// Addresses that the switch has set, by netdev.
    pub addresses: BTreeMap<String, BTreeSet<IpNet>>,
    /// `net.ipv6.conf.all.forwarding` as it was found, if the switch has changed it.
    pub ipv6_forwarding: Option<bool>,
    /// Other sysctls of namespaces as they were found, if the switch has changed them, by VRF. The empty name is the
    /// switch's own namespace.
    #[serde(default)]
    pub knobs: BTreeMap<String, Vec<(Knob, bool)>>,
    /// The namespaces that the switch has created.
    #[serde(default)]
    pub namespaces: BTreeSet<String>,
    /// The netdevs that the switch has moved to a VRF's namespace, each with the VRF.
    #[serde(default)]
    pub homes: BTreeMap<String, String>,
    /// The static routes that the switch has installed, or was about to install.
    #[serde(default)]
    pub routes: BTreeSet<Route>,
}

impl Record {
    /// The value with which a sysctl of the instance's own namespace was found, if the instance has changed it.
    #[must_use]
    pub fn knob(&self, knob: Knob) -> Option<bool> {
        if knob == Knob::Ipv6Forwarding {
            return self.ipv6_forwarding;
        }
        let (_, found) = self.knobs.get("")?.iter().find(|(other, _)| *other == knob)?;
        Some(*found)
    }
}

/// The actions for a change: those before the plane is given its new state, and those after.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actions {
    /// These have to succeed; they are undone when a later step fails.
    pub before: Vec<Action>,
    /// These release what the plane no longer uses.
    pub after: Vec<Action>,
    /// Deletions of namespaces that nothing uses any more; appended to `after`.
    pub(crate) last: Vec<Action>,
    /// The record after all actions have been carried out.
    pub record: Record,
}

/// Carries out actions.
pub trait Netdevs {
    /// Why an action failed.
    type Error: std::error::Error + 'static;
    /// Carries out a run of actions of one kind, and returns one result for each. A failed action has changed nothing.
    fn act(&mut self, run: &[Action]) -> Vec<Result<(), Self::Error>>;
}

/// Why a list of actions was not carried out.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}{}", undoing.iter().map(|(_, error)| format!("; and undoing an earlier step failed: {error}")).collect::<String>())]
pub struct TransactError<E: std::error::Error + 'static> {
    /// The interface of the first action that failed; `None` if that action concerns a namespace.
    pub interface: Option<String>,
    /// Why that action failed.
    #[source]
    pub cause: E,
    /// The inverse actions that failed, each with the reason: what they should have undone remains.
    pub undoing: Vec<(Action, E)>,
}

/// Carries out `actions` in order; when one fails, undoes what was done, last first.
///
/// # Errors
/// The first failure, and the failures met while undoing.
pub fn transact<E: std::error::Error + 'static>(
    netdevs: &mut (impl Netdevs<Error = E> + ?Sized),
    actions: &[Action],
) -> Result<(), TransactError<E>> {
    let mut done: Vec<&Action> = Vec::new();
    for run in actions.chunk_by(|a, b| std::mem::discriminant(a) == std::mem::discriminant(b)) {
        let mut failure = None;
        for (action, result) in run.iter().zip(netdevs.act(run)) {
            match result {
                Ok(()) => done.push(action),
                Err(error) => failure = failure.or_else(|| Some((action.interface(), error))),
            }
        }
        if let Some((interface, cause)) = failure {
            let mut undoing = Vec::new();
            for action in done.into_iter().rev() {
                let undo = action.clone().inverse();
                let failed = netdevs.act(std::slice::from_ref(&undo)).into_iter().find_map(Result::err);
                undoing.extend(failed.map(|error| (undo, error)));
            }
            return Err(TransactError { interface, cause, undoing });
        }
    }
    Ok(())
}
