//! Changes of the kernel's network configuration as values: [`Action`]s, which the daemon carries out, and the [`Record`] of
//! what they replaced.
//!
//! Invariants: an action knows the value it replaces, so that it can be undone; [`transact`] undoes the completed actions when
//! one fails.

use crate::facts::{HostStack, Knob, LinkFacts};
use crate::host_routes::Route;
use crate::names::host_end_of;
#[cfg(doc)]
use crate::names::pipeline_end_of;
use ipnet::IpNet;
use lanyard_types::MacAddr;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One thing to do to the kernel's network configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Makes a VRF's namespace, its loopback device up and marked; or deletes it.
    Namespace {
        /// The VRF.
        vrf: String,
        /// The mark.
        mark: String,
        /// True makes.
        add: bool,
    },
    /// Makes a VLAN interface or a subinterface: a veth pair, both ends down.
    CreatePair(Pair),
    /// Deletes it.
    DeletePair(Pair),
    /// Moves a netdev to another namespace, where it is down and has nothing of what it had.
    Move {
        /// The netdev.
        name: String,
        /// The VRF it is in.
        from: Option<String>,
        /// The VRF it goes to.
        to: Option<String>,
    },
    /// Changes a netdev's settings; only what differs between `from` and `to` is touched.
    Link {
        /// The netdev.
        name: String,
        /// Before.
        from: LinkSettings,
        /// After.
        to: LinkSettings,
    },
    /// Adds an address (it may be there), or removes one (it may be gone).
    Address {
        /// The netdev.
        name: String,
        /// The address with its prefix length.
        net: IpNet,
        /// True adds.
        add: bool,
    },
    /// Turns a switch of a namespace.
    Knob {
        /// The VRF.
        vrf: Option<String>,
        /// Which.
        knob: Knob,
        /// Before.
        from: bool,
        /// After.
        to: bool,
    },
    /// Speed and duplex; `None` negotiates.
    Speed {
        /// The netdev.
        name: String,
        /// Before: Mbit/s, and whether full duplex.
        from: Option<(u32, bool)>,
        /// After.
        to: Option<(u32, bool)>,
    },
}

/// The veth pair of a VLAN interface or a subinterface. Its pipeline end is called [`pipeline_end_of`] the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The host end's name: `vlan10`, `eth1.100`.
    pub name: String,
    /// The host end's address.
    pub mac: Option<MacAddr>,
    /// Layer-3 MTU of both ends in bytes.
    pub mtu: u32,
    /// The mark both ends carry.
    pub alias: String,
}

/// What is set on a netdev.
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
    /// The kernel's own stack.
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
    /// The interface that this action is for; `None` when it is for a namespace.
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

/// The netdevs that `actions` take down.
pub fn taken_down(actions: &[Action]) -> impl Iterator<Item = &str> {
    actions.iter().filter_map(|action| match action {
        Action::Link { name, from, to } if from.up && !to.up => Some(name.as_str()),
        _ => None,
    })
}

/// What a netdev was like before the switch took it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// Its index: a netdev of the same name and another index is another netdev.
    pub ifindex: u32,
    /// Administratively up.
    pub up: bool,
    /// Promiscuous.
    pub promisc: bool,
    /// Layer-3 MTU in bytes.
    pub mtu: u32,
    /// MAC address.
    pub mac: Option<MacAddr>,
    /// The kernel's own stack.
    pub host: HostStack,
}

impl Original {
    pub(crate) fn of(link: &LinkFacts) -> Self {
        let LinkSettings { up, promisc, mtu, mac, host } = LinkSettings::of(link);
        Self { ifindex: link.ifindex, up, promisc, mtu, mac, host }
    }
    pub(crate) fn settings(&self) -> LinkSettings {
        LinkSettings { up: self.up, promisc: self.promisc, mtu: self.mtu, mac: self.mac, host: self.host }
    }
}

/// What the switch has done to the kernel and must undo some day; the daemon keeps it in its state directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Ports and routed ports as they were found, by name.
    pub originals: BTreeMap<String, Original>,
    /// Addresses the switch has set, by netdev.
    pub addresses: BTreeMap<String, BTreeSet<IpNet>>,
    /// `net.ipv6.conf.all.forwarding` as it was found, once the switch has changed it.
    pub ipv6_forwarding: Option<bool>,
    /// Other switches of namespaces as they were found, by VRF (the switch's own is empty), once the switch has changed them.
    #[serde(default)]
    pub knobs: BTreeMap<String, Vec<(Knob, bool)>>,
    /// The namespaces that the switch has made.
    #[serde(default)]
    pub namespaces: BTreeSet<String>,
    /// The netdevs that the switch has moved to a VRF's namespace.
    #[serde(default)]
    pub homes: BTreeMap<String, String>,
    /// The static routes that the switch has installed, or was about to.
    #[serde(default)]
    pub routes: BTreeSet<Route>,
}

impl Record {
    /// A switch of the namespace that the instance lives in as it was found, once the instance has changed it.
    #[must_use]
    pub fn knob(&self, knob: Knob) -> Option<bool> {
        if knob == Knob::Ipv6Forwarding {
            return self.ipv6_forwarding;
        }
        let (_, found) = self.knobs.get("")?.iter().find(|(other, _)| *other == knob)?;
        Some(*found)
    }
}

/// What to do, in two parts: before the plane is given its new state, and after.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actions {
    /// What has to succeed; undone when a later step fails.
    pub before: Vec<Action>,
    /// Letting go of what the plane no longer uses.
    pub after: Vec<Action>,
    /// Namespaces that nothing is in any more; goes to the end of `after`.
    pub(crate) last: Vec<Action>,
    /// The record once all is done.
    pub record: Record,
}

/// What carries out actions.
pub trait Netdevs {
    /// Why an action failed.
    type Error: std::error::Error + 'static;
    /// Carries out a run of actions of one kind; one answer each. A failed action has changed nothing.
    fn act(&mut self, run: &[Action]) -> Vec<Result<(), Self::Error>>;
}

/// Why a list of actions was not carried out.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}{}", undoing.iter().map(|error| format!("; and undoing an earlier step failed: {error}")).collect::<String>())]
pub struct TransactError<E: std::error::Error + 'static> {
    /// The interface that the first action that failed is for.
    pub interface: Option<String>,
    /// Why that action failed.
    #[source]
    pub cause: E,
    /// Failures while the actions before it were undone.
    pub undoing: Vec<E>,
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
                undoing.extend(netdevs.act(&[action.clone().inverse()]).into_iter().filter_map(Result::err));
            }
            return Err(TransactError { interface, cause, undoing });
        }
    }
    Ok(())
}
