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

/// The state of a netdev that has lost its queues, as part of a log message.
const WITHOUT: &str = "is without the queues of its output policy";

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
            let state =
                if wanted.contains_key(&name) { WITHOUT } else { "has queues that no output policy needs" };
            self.report(ctx, &name, state, why.to_string());
        }
        // A change of another port does not postpone the verification. A netdev whose queues cannot be removed is held, too.
        let later_ms = ctx.clock.now_ms() + VERIFY_EVERY_MS;
        self.next_ms = (!self.held.is_empty()).then(|| self.next_ms.unwrap_or(later_ms));
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
        self.next_ms = None;
        let names: Vec<String> = self.held.keys().cloned().collect();
        for name in names {
            match ctx.kernel.root_queue(&name) {
                Ok(RootQueue::Own) | Err(_) => {}
                Ok(RootQueue::Foreign(kind)) => {
                    let why = QueuesRefused::Foreign { netdev: name.clone(), kind };
                    self.report(ctx, &name, WITHOUT, why.to_string());
                }
                Ok(RootQueue::Default) => {
                    self.report(ctx, &name, WITHOUT, "they were removed; they are set again".into());
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
            if !same || wanted.contains_key(name) {
                return same;
            }
            let failed = ctx.kernel.clear_queues(name).err().filter(|error| !error.is_gone());
            let stays = failed.is_some();
            refused.extend(failed.map(|error| (name.clone(), error.into())));
            stays
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
    /// Logs that a netdev is in a state that its policy does not ask for, once for each reason.
    fn report(&mut self, ctx: &mut Context, name: &str, state: &str, why: String) {
        let ifindex = ctx.facts().get(name).map_or(0, |link| link.ifindex);
        let held = self.held.entry(name.to_owned()).or_insert(Held { ifindex, tree: None, lost: None });
        if held.lost.as_ref() == Some(&why) {
            return;
        }
        held.lost = Some(why.clone());
        ctx.log("QOS", 4, "QUEUES", &format!("{name} {state}: {why}"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Core;
    use crate::testing::{Bench, config, messages};
    use lanyard_netdev::Event;
    use std::sync::atomic::Ordering;

    const POLICIES: &str = "policy-map SLOW\n class class-default\n  shape average 10m\npolicy-map FAST\n class class-default\n  \
        shape average 20m\n";
    const REMOVED: &str =
        "QUEUES: eth1 is without the queues of its output policy: they were removed; they are set again";

    /// Two ports with these output policies; the empty text is no policy.
    fn text(eth1: &str, eth2: &str) -> String {
        let port = |name: &str, policy: &str| {
            let line =
                if policy.is_empty() { String::new() } else { format!(" service-policy output {policy}\n") };
            format!("interface {name}\n switchport\n{line}")
        };
        [POLICIES.to_owned(), port("eth1", eth1), port("eth2", eth2)].concat()
    }

    /// A switch whose plane uses the queues of its ports.
    fn switch(eth1: &str, eth2: &str) -> (Bench, Core) {
        let bench = Bench::new();
        bench.plane.queues.store(true, Ordering::Relaxed);
        bench.kernel.add("eth1");
        bench.kernel.add("eth2");
        let mut core = bench.core();
        core.take(config(&text(eth1, eth2))).expect("taken");
        (bench, core)
    }

    /// Puts another discipline at the root of a netdev, as an administrator does; `None` removes the one that is there.
    fn replace(bench: &Bench, name: &str, kind: Option<&str>) {
        let queues = &mut bench.kernel.state().queues;
        match kind {
            Some(kind) => drop(queues.insert(name.into(), Err(kind.into()))),
            None => drop(queues.remove(name)),
        }
    }

    /// The disciplines at netdevs: the rate of the switch's own in Mbit/s, or the kind of another one.
    fn queues(bench: &Bench) -> Vec<String> {
        let one = |(name, held): (&String, &Result<QueueTree, String>)| match held {
            Ok(tree) => format!("{name} {}", tree.classes[0].ceil_bps / 1_000_000),
            Err(kind) => format!("{name} {kind}"),
        };
        bench.kernel.state().queues.iter().map(one).collect()
    }

    #[test]
    fn a_policy_whose_queues_cannot_be_set_is_refused_and_the_queues_stay() {
        for (able, foreign, reason) in [
            (
                false,
                None,
                "the plane soft does not use the queues of a port: remove priority, bandwidth, shape and queue-limit from the \
                 output policy, or run the plane ebpf",
            ),
            (
                true,
                Some("fq"),
                "eth2 has the queueing discipline fq, which the switch did not set: remove it (tc qdisc del dev eth2 root), or \
                 the queues from the output policy",
            ),
        ] {
            let (bench, mut core) = switch("FAST", "");
            bench.plane.queues.store(able, Ordering::Relaxed);
            replace(&bench, "eth2", foreign);
            let found = queues(&bench);
            let error = core.take(config(&text("SLOW", "SLOW"))).expect_err("refused");
            assert_eq!(error.to_string(), reason);
            assert_eq!(queues(&bench), found, "{reason}");
            assert_eq!(found[0], "eth1 20");
        }
    }

    #[test]
    fn lost_queues_are_found_by_the_clock_and_another_discipline_stays() {
        let (bench, mut core) = switch("SLOW", "");
        let check = |core: &mut Core, second: u64| {
            bench.clock.set(second * 1000 - 1);
            core.tick();
            let before = queues(&bench);
            assert!(core.queues.next_ms(&core.ctx).is_some_and(|at_ms| at_ms <= second * 1000));
            bench.clock.set(second * 1000);
            core.tick();
            (before, queues(&bench))
        };
        replace(&bench, "eth1", None);
        assert_eq!(check(&mut core, 10), (vec![], vec!["eth1 10".into()]));
        assert_eq!((messages(&core.ctx).pop().as_deref(), core.queues.lost("eth1")), (Some(REMOVED), None));
        replace(&bench, "eth1", Some("fq"));
        assert_eq!(check(&mut core, 20).1, ["eth1 fq"]);
        let kept =
            "QUEUES: eth1 is without the queues of its output policy: eth1 has the queueing discipline fq";
        let count = |core: &Core| messages(&core.ctx).iter().filter(|line| line.starts_with(kept)).count();
        assert_eq!(count(&core), 1);
        assert!(core.queues.lost("eth1").is_some_and(|why| why.contains("discipline fq")));
        // A port that lacks its queues does not prevent changes of other ports.
        core.take(config(&text("SLOW", "FAST"))).expect("taken");
        assert_eq!(queues(&bench), ["eth1 fq", "eth2 20"]);
        assert_eq!(check(&mut core, 30).1, ["eth1 fq", "eth2 20"]);
        assert_eq!(count(&core), 1, "each reason is logged once");
        replace(&bench, "eth1", None);
        assert_eq!(check(&mut core, 40).1, ["eth1 10", "eth2 20"]);
        // A change of another port does not postpone the verification.
        replace(&bench, "eth1", None);
        bench.clock.set(49_000);
        core.take(config(&text("SLOW", "SLOW"))).expect("taken");
        assert_eq!(check(&mut core, 50).1, ["eth1 10", "eth2 10"]);
        assert_eq!(core.queues.lost("eth1"), None);
        core.take(config(&text("", ""))).expect("taken");
        assert_eq!((queues(&bench), core.queues.next_ms(&core.ctx)), (vec![], None));
    }

    #[test]
    fn queues_of_an_earlier_daemon_are_removed_where_no_policy_needs_them() {
        let (bench, core) = switch("SLOW", "SLOW");
        drop(core);
        bench.kernel.add("eth3");
        replace(&bench, "eth3", Some("fq"));
        let mut core = bench.core();
        core.take(config(&text("", "FAST"))).expect("taken");
        assert_eq!(queues(&bench), ["eth2 20", "eth3 fq"]);
        drop(core);
        // `lanyard detach` without a daemon.
        bench.core().detach().expect("undone");
        assert_eq!(queues(&bench), ["eth3 fq"]);
    }

    #[test]
    fn a_netdev_that_is_created_again_gets_its_queues_without_a_message() {
        let (bench, mut core) = switch("SLOW", "");
        let ifindex = bench.kernel.get("eth1").ifindex;
        bench.kernel.state().links.remove(&(None, "eth1".into()));
        replace(&bench, "eth1", None);
        core.netdev_events(vec![Event::LinkGone { ifindex, name: "eth1".into() }]);
        assert_eq!(queues(&bench), [""; 0]);
        bench.kernel.add("eth1");
        let came = bench.kernel.change("eth1", |_| {});
        core.netdev_events(vec![came]);
        assert_eq!(queues(&bench), ["eth1 10"]);
        assert!(messages(&core.ctx).iter().all(|line| !line.starts_with("QUEUES")));
    }
}
