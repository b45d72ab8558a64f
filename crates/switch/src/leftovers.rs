//! Records what the kernel has or lacks because an action failed that should have undone or released something, so that a later
//! plan, a restart or `detach` treats it like everything else that the switch has changed.
//!
//! Invariant: after [`keep`] the record describes, for the object of each failed action, the state that the kernel still has.

use crate::actions::{Action, Record};
use crate::facts::Facts;
use crate::layer3::{recall, remember};

/// Corrects `record` by what the actions `failed` did not undo or release. `other` is the record of the configuration whose
/// state the kernel still has: the refused configuration if undoing failed, the previous one if a release failed.
pub(crate) fn keep(record: &mut Record, failed: &[Action], other: &Record, facts: &Facts) {
    for action in failed {
        match action {
            Action::Link { name, .. } => keep_original(record, name, other, facts),
            Action::Move { name, from, .. } => {
                keep_original(record, name, other, facts);
                match from {
                    Some(vrf) => drop(record.homes.insert(name.clone(), vrf.clone())),
                    None => drop(record.homes.remove(name)),
                }
            }
            Action::Address { name, net, add: false } => {
                record.addresses.entry(name.clone()).or_default().insert(*net);
            }
            Action::Address { name, net, add: true } => {
                if let Some(nets) = record.addresses.get_mut(name) {
                    nets.remove(net);
                }
            }
            Action::Knob { vrf, knob, .. } => {
                let found = recall(other, vrf.as_deref(), *knob);
                remember(record, vrf.as_deref(), *knob, found);
            }
            Action::Namespace { vrf, add: false, .. } => drop(record.namespaces.insert(vrf.clone())),
            Action::Speed { name, .. } => {
                keep_original(record, name, other, facts);
                let found = other.originals.get(name).and_then(|original| original.mode);
                if let Some(own) = record.originals.get_mut(name) {
                    own.mode = own.mode.or(found);
                }
            }
            // A pair needs no record: a later plan finds it by the instance's mark.
            Action::Namespace { .. } | Action::CreatePair(_) | Action::DeletePair(_) => {}
        }
    }
}

/// Keeps the state in which a netdev was found. It may have been renamed since it was recorded.
fn keep_original(record: &mut Record, name: &str, other: &Record, facts: &Facts) {
    let ifindex = facts.get(name).map(|link| link.ifindex);
    let same = || other.originals.values().find(|original| Some(original.ifindex) == ifindex);
    if let Some(original) = other.originals.get(name).or_else(same) {
        record.originals.entry(name.to_owned()).or_insert_with(|| original.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Knob, LinkMode};
    use crate::links;
    use crate::testing::{config, facts, identity};
    use lanyard_config::Config;

    const NEXT: &str = "vrf red\nipv6-routing\neth1: routed no-redirects ip 10.0.0.1/24\neth2: routed vrf red\neth3: access 1 speed 100";

    /// The record before a change, its actions and the record after it.
    fn change(old: &str, next: &str, links: &str) -> (Record, links::Actions) {
        let (none, nothing) = (config(""), Record::default());
        let first = links::actions(Some(&none), &config(old), &facts(links), &nothing, &identity());
        let (old, facts) = (config(old), facts(links));
        let actions = links::actions(Some(&old), &config(next), &facts, &first.record, &identity());
        (first.record, actions)
    }

    /// Every action of a change whose undoing fails is on record, so that the record is that of the change; a pair is not
    /// recorded.
    #[test]
    fn all_that_was_not_undone_is_on_record() {
        let (mut record, actions) = change("", NEXT, "eth1, eth2, eth3");
        assert!(actions.before.len() > 6, "{actions:?}");
        let failed: Vec<Action> = actions.before.iter().cloned().map(Action::inverse).collect();
        keep(&mut record, &failed, &actions.record, &facts("eth1, eth2, eth3"));
        assert_eq!(record, actions.record);
    }

    #[test]
    fn one_by_one() {
        let (before, actions) = change("", NEXT, "eth1, eth2, eth3");
        let facts = facts("eth1, eth2, eth3");
        for action in actions.before {
            let mut record = before.clone();
            let failed = action.clone().inverse();
            keep(&mut record, std::slice::from_ref(&failed), &actions.record, &facts);
            assert_ne!(record, before, "{action:?}");
            let there = match action {
                Action::Namespace { vrf, .. } => record.namespaces == [vrf].into(),
                Action::Move { name, to, .. } => {
                    record.homes.get(&name) == to.as_ref() && record.originals.contains_key(&name)
                }
                Action::Link { name, .. } => record.originals.keys().eq([&name]),
                Action::Speed { name, from, .. } => record.originals[&name].mode == Some(from),
                Action::Address { name, net, .. } => record.addresses[&name] == [net].into(),
                Action::Knob { vrf, knob, from, .. } => recall(&record, vrf.as_deref(), knob) == Some(from),
                other => unreachable!("{other:?}"),
            };
            assert!(there, "{failed:?}: {record:?}");
        }
    }

    /// The speed of a port that the switch has taken over before is given back by the next plan.
    #[test]
    fn a_speed_that_was_not_undone_is_given_back() {
        let (old, next) = ("eth1: access 1", "eth1: access 1 speed 100");
        let (mut record, actions) = change(old, next, "eth1");
        let failed: Vec<Action> = actions.before.iter().cloned().map(Action::inverse).collect();
        assert!(matches!(failed[..], [Action::Speed { .. }]), "{failed:?}");
        keep(&mut record, &failed, &actions.record, &facts("eth1"));
        assert_eq!(record.originals["eth1"].mode, Some(LinkMode::Autonegotiation));
        let again = links::actions(None, &config(old), &facts("eth1 promisc"), &record, &identity());
        let is_given_back =
            |action: &Action| matches!(action, Action::Speed { to: LinkMode::Autonegotiation, .. });
        assert!(again.before.iter().any(is_given_back), "{again:?}");
        assert_eq!(again.record.originals["eth1"].mode, None);
    }

    /// An address and a sysctl that a refused change has removed, and that could not be set again, are not on record: the
    /// next plan sets them.
    #[test]
    fn settings_missing_after_a_failed_unwind_are_set_by_the_next_plan() {
        let mut facts = facts("eth1 down");
        let old = config("ipv6-routing\neth1: routed ip 10.0.0.1/24 shutdown");
        let plan = |next: &Config, facts: &Facts, record: &Record| {
            links::actions(Some(&old), next, facts, record, &identity())
        };
        let mut record = plan(&old, &facts, &Record::default()).record;
        facts.ipv6_forwarding = true;
        let actions = plan(&config("eth1: routed shutdown"), &facts, &record);
        facts.ipv6_forwarding = false;
        let failed: Vec<Action> = actions.before.iter().cloned().map(Action::inverse).collect();
        assert!(record.ipv6_forwarding.is_some());
        keep(&mut record, &failed, &actions.record, &facts);
        assert_eq!((record.knob(Knob::Ipv6Forwarding), record.addresses["eth1"].len()), (None, 0));
        let again = plan(&old, &facts, &record).before;
        let sets = |wanted: fn(&Action) -> bool| again.iter().any(wanted);
        assert!(sets(|action| matches!(action, Action::Address { add: true, .. })), "{again:?}");
        assert!(sets(|action| matches!(action, Action::Knob { to: true, .. })), "{again:?}");
    }

    #[test]
    fn a_port_that_was_renamed_keeps_its_original_state() {
        let mut before = change("", "eth1: access 1", "eth1").1.record;
        let original = before.originals["eth1"].clone();
        let mut record = Record::default();
        let settings = original.settings();
        let failed = Action::Link { name: "wan".into(), from: settings.clone(), to: settings };
        keep(&mut record, std::slice::from_ref(&failed), &before, &facts("wan"));
        assert_eq!(record.originals["wan"], original);
        before.originals.clear();
        let mut record = Record::default();
        keep(&mut record, &[failed], &before, &facts("wan"));
        assert_eq!(record, Record::default(), "a netdev that the switch made has none");
    }
}
