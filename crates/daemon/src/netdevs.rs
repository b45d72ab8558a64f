//! Netdevs that appear and disappear: updates the facts, and sets up a netdev that has appeared as
//! configured.
//!
//! Invariant: a netdev whose set-up failed is tried again at its next changes, at most [`TRIES`] times,
//! because it may have been reported before it was complete.

use crate::context::Context;
use crate::spanning::channel_speed;
use lanyard_config::names::channel_of;
use lanyard_config::{Config, InterfaceName};
use lanyard_netdev::Duplex;
use lanyard_switch::LinkFacts;
use lanyard_switch::compile::{made_interfaces, pipeline_end_of, switchports};
use lanyard_switch::facts::LinkMode;
use std::collections::{BTreeMap, BTreeSet};

/// Attempts to set up a netdev.
const TRIES: u8 = 5;

/// The interfaces whose configuration sets a link mode.
pub(crate) fn fixed(config: &Config) -> impl Iterator<Item = String> {
    let set = config.interfaces.iter().filter(|(_, interface)| interface.speed_mbps.is_some());
    set.map(|(name, _)| name.to_string())
}

/// Reads the present link modes of these netdevs, for a plan that sets others and records these. A netdev whose driver does
/// not report its mode counts as one that negotiates.
pub(crate) fn learn_modes(ctx: &mut Context, names: impl IntoIterator<Item = String>) {
    for name in names {
        let Some(ifindex) = ctx.facts().get(&name).map(|link| link.ifindex) else { continue };
        let Ok(settings) = ctx.kernel.settings(&name) else { continue };
        let mode = match (settings.speed_mbps, settings.duplex) {
            (Some(speed_mbps), Some(duplex)) if !settings.autoneg => {
                LinkMode::Fixed { speed_mbps, full_duplex: duplex == Duplex::Full }
            }
            _ => LinkMode::Autonegotiation,
        };
        ctx.switch.facts_mut().modes.insert(ifindex, mode);
    }
}

/// The names of the ports that have a setting in `config` given as a share of the port's speed.
pub(crate) fn of_speed(config: &Config) -> Vec<String> {
    let ports = switchports(config).filter(|(_, port)| port.switchport.stages.has_shares());
    let mut names: Vec<String> = ports.map(|(name, _)| name.to_owned()).collect();
    names.extend(lanyard_switch::qos::of_speed(config));
    names.sort_unstable();
    names.dedup();
    names
}

/// Reads the present speeds of these ports.
pub(crate) fn learn_speeds(ctx: &mut Context, names: Vec<String>) {
    let speed = |name: String| {
        let speed_mbps = match channel_of(&name) {
            Some(channel) => channel_speed(ctx, channel),
            None => ctx.kernel.settings(&name).ok()?.speed_mbps,
        };
        Some((name, speed_mbps?))
    };
    let speeds = names.into_iter().filter_map(speed).collect();
    ctx.switch.facts_mut().speeds = speeds;
}

/// A change that the kernel reported.
#[derive(Debug)]
pub(crate) enum Change {
    /// A netdev appeared or changed.
    Link(LinkFacts),
    /// A netdev was removed.
    Gone {
        /// The VRF it was in.
        vrf: Option<String>,
        /// Its index there.
        ifindex: u32,
    },
    /// Events were lost: everything may have changed.
    All,
}

/// Netdevs whose set-up failed, and the number of attempts.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    unready: BTreeMap<String, u8>,
    /// The number of attempts in a row to remove the effects of failed actions.
    settling: u8,
}

impl Readiness {
    /// Applies changes to the facts and sets up netdevs that have appeared. Returns true when a
    /// netdev may have been removed.
    pub(crate) fn take_in(&mut self, ctx: &mut Context, changes: Vec<Change>) -> bool {
        let mut came = BTreeSet::new();
        let mut gone = false;
        for change in changes {
            match change {
                Change::Link(link) => {
                    let known = ctx.facts().by_index_in(link.vrf.as_deref(), link.ifindex);
                    let known = known.filter(|known| known.name == link.name);
                    let comes = |known: &LinkFacts| {
                        link.admin_up && !known.admin_up || link.master.is_none() && known.master.is_some()
                    };
                    // If all facts were read after the event occurred, they contain the netdev already.
                    let new = ctx.switch.is_new(&link);
                    let tries = self.unready.get(&link.name).copied().unwrap_or_default();
                    let again = (new || tries > 0) && tries < TRIES;
                    if again || known.is_none_or(comes) {
                        came.insert(link.name.clone());
                    }
                    ctx.switch.facts_mut().set(link);
                }
                Change::Gone { vrf, ifindex } => {
                    gone = true;
                    ctx.switch.facts_mut().remove_in(vrf.as_deref(), ifindex);
                }
                Change::All => {
                    gone = true;
                    ctx.refresh();
                    came.extend(configured(ctx).map(str::to_owned));
                }
            }
        }
        for name in came {
            self.welcome(ctx, &name);
        }
        gone
    }

    /// True if the effects of failed actions should be removed now: at each event, at most [`TRIES`] times in a row.
    pub(crate) fn retries(&mut self, ctx: &Context) -> bool {
        self.settling = if ctx.switch.has_leftovers() { self.settling.saturating_add(1) } else { 0 };
        (1..=TRIES).contains(&self.settling)
    }

    /// Sets up a netdev that has appeared or come up.
    fn welcome(&mut self, ctx: &mut Context, name: &str) {
        // The kernel reports a netdev, or its new name, before the sysctls of that name exist. It
        // answers this request only when they do.
        let _ = ctx.kernel.link(None, name);
        ctx.kernel.learn_hosts(&[name.to_owned()], ctx.switch.facts_mut());
        let configured = fixed(ctx.switch.config()).any(|fixed| fixed == name);
        learn_modes(ctx, configured.then(|| name.to_owned()));
        let (actions, coming) = ctx.switch.welcome(name);
        if actions.is_empty() {
            return;
        }
        if let Err(error) = ctx.write_ahead(&coming) {
            // Nothing is changed unless it can be recorded.
            ctx.log("LINK", 4, "PREPARE", &error.to_string());
            *self.unready.entry(name.to_owned()).or_default() += 1;
            return;
        }
        let results: Vec<_> =
            actions.iter().flat_map(|action| ctx.kernel.act(std::slice::from_ref(action))).collect();
        // If no action succeeded, the netdev still counts as new, and all of them are tried again.
        if results.iter().any(Result::is_ok) {
            ctx.switch.set_record(coming);
        }
        let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        errors.iter().for_each(|error| ctx.log("LINK", 4, "PREPARE", &error.to_string()));
        match errors.is_empty() {
            true => _ = self.unready.remove(name),
            false => *self.unready.entry(name.to_owned()).or_default() += 1,
        }
        ctx.save_record();
        ctx.refresh();
    }
}

/// Netdevs that the configuration names.
fn configured(ctx: &Context) -> impl Iterator<Item = &str> {
    ctx.switch.config().interfaces.keys().filter_map(|name| match name {
        InterfaceName::Netdev(name) => Some(name.as_str()),
        InterfaceName::Vlan(_) => None,
    })
}

/// True when a netdev that the switch has created no longer exists, because another program deleted it.
pub(crate) fn pair_missing(ctx: &Context) -> bool {
    let facts = ctx.facts();
    let missing = |name: &str| facts.get(name).is_none() || facts.get(&pipeline_end_of(name)).is_none();
    made_interfaces(ctx.switch.config()).any(|(name, _)| missing(&name.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::testing::{World, accept, config, messages};

    const TEXT: &str = "interface eth1\n switchport";

    fn world() -> World {
        let mut world = World::new();
        accept(&mut world.ctx, config(TEXT));
        world
    }

    /// The kernel's report of a netdev.
    fn link(world: &World, name: &str) -> Change {
        Change::Link(world.kernel.link_facts(None, &world.kernel.get(name)))
    }

    #[test]
    fn a_netdev_that_appears_is_set_up_and_recorded() {
        let mut world = world();
        let mut readiness = Readiness::default();
        let ifindex = world.kernel.add("eth1");
        world.kernel.add("eth2");
        let changes = vec![link(&world, "eth1"), link(&world, "eth2")];
        assert!(!readiness.take_in(&mut world.ctx, changes), "nothing is gone");
        assert!(world.kernel.get("eth1").admin_up && world.kernel.get("eth1").promiscuous);
        assert!(!world.kernel.get("eth2").admin_up, "it is not configured");
        assert_eq!(world.ctx.switch.record().originals["eth1"].ifindex, ifindex);
        let record = std::fs::read_to_string(world.ctx.paths.record()).expect("written");
        assert!(record.contains("eth1") && !record.contains("eth2"), "{record}");
        assert!(world.ctx.facts().get("eth1").is_some_and(|link| link.admin_up), "the facts are new");
        let done = world.kernel.state().done.len();
        let change = link(&world, "eth1");
        readiness.take_in(&mut world.ctx, vec![change]);
        assert_eq!(world.kernel.state().done.len(), done, "an administrator's changes stay");
    }

    #[test]
    fn a_set_up_that_fails_is_tried_again_so_many_times() {
        let mut world = world();
        let mut readiness = Readiness::default();
        world.kernel.add("eth1");
        for attempt in 1..=TRIES + 3 {
            world.kernel.state().fail_at = Some(1);
            let change = link(&world, "eth1");
            readiness.take_in(&mut world.ctx, vec![change]);
            let tried = world.kernel.state().fail_at.take().is_none();
            assert_eq!(tried, attempt <= TRIES, "attempt {attempt}");
        }
        assert_eq!(messages(&world.ctx).len(), usize::from(TRIES));
        assert!(world.ctx.switch.record().originals.is_empty(), "nothing was changed");
    }

    #[test]
    fn a_loss_of_events_reads_everything_anew() {
        let mut world = world();
        let mut readiness = Readiness::default();
        world.kernel.add("eth1");
        assert!(readiness.take_in(&mut world.ctx, vec![Change::All]), "something may be gone");
        assert!(world.kernel.get("eth1").admin_up);
        world.kernel.state().links.clear();
        readiness.take_in(&mut world.ctx, vec![Change::All]);
        assert!(world.ctx.facts().get("eth1").is_none());
    }

    #[test]
    fn a_netdev_that_goes_is_no_fact_any_more() {
        let mut world = world();
        let ifindex = world.kernel.add("eth1");
        world.ctx.refresh();
        let gone = |vrf: Option<&str>| Change::Gone { vrf: vrf.map(str::to_owned), ifindex };
        let mut readiness = Readiness::default();
        assert!(readiness.take_in(&mut world.ctx, vec![gone(Some("red"))]));
        assert!(world.ctx.facts().get("eth1").is_some(), "the index is another namespace's");
        readiness.take_in(&mut world.ctx, vec![gone(None)]);
        assert!(world.ctx.facts().get("eth1").is_none());
    }

    #[test]
    fn a_pair_that_somebody_deleted_is_missing() {
        let mut world = World::new();
        accept(&mut world.ctx, config("interface vlan 10\n ip address 10.0.0.1 255.255.255.0"));
        assert!(pair_missing(&world.ctx));
        world.kernel.add("vlan10");
        world.ctx.refresh();
        assert!(pair_missing(&world.ctx), "one end is not enough");
        world.kernel.add("ly10");
        world.ctx.refresh();
        assert!(!pair_missing(&world.ctx));
    }
}
