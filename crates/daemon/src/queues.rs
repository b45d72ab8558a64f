//! The queues of ports with an output policy: sets them with the kernel, and verifies that they stay.
//!
//! Invariants: a queueing discipline that an administrator or another program has set is never replaced. A policy whose queues
//! cannot be set is refused when it is entered; where they are lost later, the log says so, and they are set again if the kernel's
//! default is in their place.

use crate::context::{Context, Module};
use crate::kernel::KernelError;
use lanyard_config::Config;
use lanyard_pipeline::qos::QUEUE_MAJOR;
use lanyard_switch::qos;
use lanyard_types::{QueueTree, RootQueue};
use std::collections::{BTreeMap, BTreeSet};

/// The interval between two verifications, in milliseconds.
const VERIFY_EVERY_MS: u64 = 10_000;

/// The error for a policy whose queues cannot be set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueuesRefused {
    /// The plane sends frames past the queues.
    #[error(
        "the plane {0} does not use the queues of a port: remove priority, bandwidth, shape and queue-limit from the output policy, or run \
         the plane ebpf"
    )]
    Plane(&'static str),
    /// Another discipline is at the root.
    #[error(
        "{netdev} has the queueing discipline {kind}, which the switch did not set: remove it (tc qdisc del dev {netdev} root), or the \
         queues from the output policy"
    )]
    Foreign {
        /// The netdev.
        netdev: String,
        /// The kind of the discipline.
        kind: String,
    },
    /// The kernel refuses.
    #[error("the queues of the output policy: {0}")]
    Kernel(#[from] KernelError),
}

impl QueuesRefused {
    /// The interface that it concerns, if it concerns one.
    pub(crate) fn interface(&self) -> Option<&str> {
        match self {
            Self::Foreign { netdev, .. } => Some(netdev),
            Self::Plane(_) | Self::Kernel(_) => None,
        }
    }
}

/// The queues of a netdev as they were last set.
#[derive(Debug)]
struct Held {
    /// The netdev's index, which distinguishes it from a later netdev of the same name without these queues.
    ifindex: u32,
    /// The queues that were set; `None` if an earlier daemon has set them and they are not known.
    tree: Option<QueueTree>,
    /// Why the netdev does not have the queues, as it was logged; `None` if it has them.
    lost: Option<String>,
}

/// The queues of all ports.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    held: BTreeMap<String, Held>,
    /// True when netdevs have been searched for queues of an earlier daemon.
    searched: bool,
    next_ms: Option<u64>,
}

impl Module for Queues {
    type Event<'a> = ();

    fn configure(&mut self, ctx: &mut Context) {
        let wanted = qos::trees(ctx.switch.config(), ctx.facts());
        self.search(ctx);
        for (name, why) in self.set(ctx, &wanted) {
            self.lose(ctx, &name, why.to_string());
        }
        self.next_ms = (!wanted.is_empty()).then(|| ctx.clock.now_ms() + VERIFY_EVERY_MS);
    }
    fn handle(&mut self, _ctx: &mut Context, (): ()) -> usize {
        0
    }
    fn next_ms(&self, _ctx: &Context) -> Option<u64> {
        self.next_ms
    }
    fn tick(&mut self, ctx: &mut Context) {
        let now_ms = ctx.clock.now_ms();
        if self.next_ms.is_none_or(|at_ms| at_ms > now_ms) {
            return;
        }
        let names: Vec<String> = self.held.keys().cloned().collect();
        for name in names {
            match ctx.kernel.root_queue(&name) {
                Ok(RootQueue::Own) | Err(_) => {}
                Ok(RootQueue::Foreign(kind)) => {
                    self.lose(ctx, &name, format!("the queueing discipline {kind} is in their place"));
                }
                Ok(RootQueue::Default) => {
                    self.lose(ctx, &name, "they were removed; they are set again".into());
                    self.held.remove(&name);
                }
            }
        }
        self.configure(ctx);
    }
}

impl Queues {
    /// Sets the queues of a configuration that is about to be taken.
    ///
    /// # Errors
    /// When they cannot be set; [`Module::configure`] then sets those of the running configuration again.
    pub(crate) fn install(&mut self, ctx: &mut Context, next: &Config) -> Result<(), QueuesRefused> {
        let wanted = qos::trees(next, ctx.facts());
        let plane = ctx.plane.capabilities();
        if !wanted.is_empty() && !plane.queues {
            return Err(QueuesRefused::Plane(plane.name));
        }
        self.search(ctx);
        let running = qos::trees(ctx.switch.config(), ctx.facts());
        // The change is refused only for ports whose queues it changes.
        let mut refused =
            self.set(ctx, &wanted).into_iter().filter(|(name, _)| running.get(name) != wanted.get(name));
        refused.next().map_or(Ok(()), |(_, why)| Err(why))
    }
    /// Removes the queues of every port.
    pub(crate) fn withdraw(&mut self, ctx: &mut Context) {
        self.search(ctx);
        self.set(ctx, &BTreeMap::new());
    }
    /// Why a netdev does not have the queues of its policy.
    pub(crate) fn lost(&self, name: &str) -> Option<&str> {
        self.held.get(name)?.lost.as_deref()
    }

    /// Finds the queues that an earlier daemon has left at the switch's ports.
    fn search(&mut self, ctx: &Context) {
        if std::mem::replace(&mut self.searched, true) {
            return;
        }
        let ports: BTreeSet<&String> = ctx.switch.record().originals.keys().collect();
        for name in ports {
            let Some(ifindex) = ctx.facts().get(name).map(|link| link.ifindex) else { continue };
            if matches!(ctx.kernel.root_queue(name), Ok(RootQueue::Own)) {
                self.held.insert(name.clone(), Held { ifindex, tree: None, lost: None });
            }
        }
    }
    /// Sets the queues in `wanted` at all netdevs and removes others that the switch has set. Returns the netdevs at which
    /// that failed.
    fn set(&mut self, ctx: &Context, wanted: &BTreeMap<String, QueueTree>) -> Vec<(String, QueuesRefused)> {
        let mut refused = Vec::new();
        let ifindex_of = |name: &str| ctx.facts().get(name).map(|link| link.ifindex);
        self.held.retain(|name, held| {
            let same = ifindex_of(name) == Some(held.ifindex);
            if same
                && !wanted.contains_key(name)
                && let Err(error) = ctx.kernel.clear_queues(name)
                && !error.is_gone()
            {
                refused.push((name.clone(), error.into()));
            }
            same && wanted.contains_key(name)
        });
        for (name, tree) in wanted {
            let Some(ifindex) = ifindex_of(name) else { continue };
            if self.held.get(name).is_some_and(|held| held.tree.as_ref() == Some(tree) && held.lost.is_none())
            {
                continue;
            }
            match put(ctx, name, tree) {
                Ok(()) => {
                    let held = Held { ifindex, tree: Some(tree.clone()), lost: None };
                    self.held.insert(name.clone(), held);
                }
                Err(error) => refused.push((name.clone(), error)),
            }
        }
        refused
    }
    fn lose(&mut self, ctx: &mut Context, name: &str, why: String) {
        let ifindex = ctx.facts().get(name).map_or(0, |link| link.ifindex);
        let held = self.held.entry(name.to_owned()).or_insert(Held { ifindex, tree: None, lost: None });
        if held.lost.as_ref() == Some(&why) {
            return;
        }
        held.lost = Some(why.clone());
        ctx.log("QOS", 4, "QUEUES", &format!("{name} is without the queues of its output policy: {why}"));
    }
}

fn put(ctx: &Context, name: &str, tree: &QueueTree) -> Result<(), QueuesRefused> {
    if let RootQueue::Foreign(kind) = ctx.kernel.root_queue(name)? {
        return Err(QueuesRefused::Foreign { netdev: name.to_owned(), kind });
    }
    Ok(ctx.kernel.set_queues(name, tree)?)
}

/// The number of the switch's own discipline.
pub(crate) const MAJOR: u16 = QUEUE_MAJOR;
