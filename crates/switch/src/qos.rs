//! Service policies for the plane and for the queues of ports.
//!
//! `service-policy` names a policy map; the plane gets a policy for each port and direction, whose lists classify frames
//! ([`crate::qos_classes`]) and whose classes have numbers in place of shares of the port's speed. `mls qos` becomes a policy, too.
//! The queues of an output policy are classes of the kernel's hierarchical token bucket.
//!
//! Invariant: two ports with the same policy map have the same lists; a list that changes gets another number, so a port never
//! has the classes of one version of a policy with the lists of another.

use crate::acl_numbers::Numbered;
use crate::facts::Facts;
use crate::ports::PortIds;
use crate::qos_classes::{self, TooManyRules};
use crate::refused::Refused;
use lanyard_acl::FrameFamily;
use lanyard_config::{
    Bandwidth, CLASS_DEFAULT, ClassActions, ClassMap, Config, Criterion, Interface, InterfaceName, Match,
    Police, PoliceAction, PolicyMap, Priority, Qos, QosRate, QosTrust, QueueLimit, Role,
};
use lanyard_pipeline::qos::{ColourAction, Excess, Mark, Policer, PortQos, QosClass, QosPolicy, RateLimit};
use lanyard_pipeline::state::{AclBindings, PlaneState, PortKind};
use lanyard_types::{QueueClass, QueueLength, QueueTree};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The speed, in bit/s, to which percentages refer at a port whose netdev reports no speed.
const DEFAULT_BPS: u64 = 1_000_000_000;
/// The rate, in bit/s, of the queues at a port whose netdev reports no speed: in effect no limit.
const UNLIMITED_BPS: u64 = 100_000_000_000;
/// The smallest burst, in bytes, of a policer without a configured burst: one frame.
const MIN_BURST: u64 = 1_518;
/// A class without a guaranteed rate is guaranteed 1/`FLOOR` of the rate to which percentages refer.
const FLOOR: u64 = 100;
/// The smallest rate of a class in bits per second.
const MIN_RATE_BPS: u64 = 8_000;
/// The number of bytes that the class with the smallest share sends in its turn, and the limit for any class.
const QUANTUM: u64 = 1_518;
const MAX_QUANTUM: u64 = 200_000;
/// The least and the most bytes of a queue without `queue-limit`; between them, it holds 50 ms at its class's highest rate.
const QUEUE_BYTES: std::ops::RangeInclusive<u64> = 256 * 1024..=16 * 1024 * 1024;

/// Checks the number of rules that the classes of a policy map need, which depends on several lines together.
///
/// # Errors
/// The policy map and the class at which there are too many.
pub(crate) fn check(old: &Config, next: &Config) -> Result<(), Refused> {
    if (&old.qos, &old.lists) == (&next.qos, &next.lists) {
        return Ok(());
    }
    for (name, policy) in &next.qos.policies {
        for family in FrameFamily::ALL {
            let made = qos_classes::list(&next.qos, &next.lists, policy, (name, family), &|_| true);
            made.map_err(|TooManyRules { class }| Refused::PolicyRules { policy: name.clone(), class })?;
        }
    }
    Ok(())
}

/// Gives the ports of a plane state their policies. `lists` numbers the lists.
pub(crate) fn overlay(
    config: &Config,
    facts: &Facts,
    ports: &PortIds,
    lists: &mut Numbered<'_>,
    active: &dyn Fn(&str) -> bool,
    state: &mut PlaneState,
) {
    let implicit = implicit(&config.qos);
    for (name, interface) in &config.interfaces {
        let InterfaceName::Netdev(netdev) = name else { continue };
        if interface.aggregation.group.is_some() {
            continue;
        }
        let Some(port) = ports.get(netdev).and_then(|port| state.ports.get_mut(&port)) else { continue };
        if !matches!(port.kind, PortKind::Netdev | PortKind::Routed) {
            continue;
        }
        let speed_bps = facts.speeds.get(netdev).map(|mbps| u64::from(*mbps) * 1_000_000);
        let mut policy = |qos: &Qos, name: &str| {
            let policy = qos.policies.get(name)?;
            let bound = bindings(qos, config, (name, policy), active, lists);
            Some(Arc::new(QosPolicy {
                name: name.to_owned(),
                lists: bound,
                classes: classes(qos, policy, speed_bps),
            }))
        };
        let input = match &interface.qos.input {
            Some(name) => policy(&config.qos, name),
            None => trust_policy(&config.qos, interface).and_then(|name| policy(&implicit, name)),
        };
        let output = interface.qos.output.as_ref().and_then(|name| policy(&config.qos, name));
        port.qos = PortQos { input, output };
    }
}

/// The lists that classify the frames of a policy map, or, if it has a child, of the child.
fn bindings(
    qos: &Qos,
    config: &Config,
    (name, policy): (&str, &PolicyMap),
    active: &dyn Fn(&str) -> bool,
    lists: &mut Numbered<'_>,
) -> AclBindings {
    let (name, policy) = match child(qos, policy) {
        Some((child, policy)) => (child, policy),
        None => (name, policy),
    };
    let mut bound = AclBindings::default();
    for family in FrameFamily::ALL {
        let list = qos_classes::list(qos, &config.lists, policy, (name, family), active).ok().flatten();
        bound[family.index()] = list.and_then(|list| lists.number_of_equal(list));
    }
    bound
}

/// The name and the policy map of a policy map's child.
fn child<'a>(qos: &'a Qos, policy: &'a PolicyMap) -> Option<(&'a str, &'a PolicyMap)> {
    let name = policy.default.child.as_ref()?;
    qos.policies.get(name).map(|policy| (name.as_str(), policy))
}

/// The classes of a policy at a port of this speed.
fn classes(qos: &Qos, policy: &PolicyMap, speed_bps: Option<u64>) -> Vec<QosClass> {
    let (inner, parent) = match child(qos, policy) {
        Some((_, inner)) => (inner, Some(&policy.default)),
        None => (policy, None),
    };
    let queues = policy.queues();
    let base = shaped(parent, speed_bps).unwrap_or(speed_bps.unwrap_or(DEFAULT_BPS));
    let class = |(at, (name, actions)): (usize, (&str, &ClassActions))| QosClass {
        name: name.to_owned(),
        mark: mark(actions).or(parent.map(mark).unwrap_or_default()),
        policer: policer(actions, base),
        queue: if queues { minor(at, inner) } else { 0 },
    };
    inner.actions().enumerate().map(class).collect()
}

/// The minor number of the queue of a class, by its index in the policy map.
fn minor(at: usize, policy: &PolicyMap) -> u16 {
    if at == policy.classes.len() { QueueTree::DEFAULT } else { QueueTree::DEFAULT + 1 + at as u16 }
}

/// The rate, in bit/s, to which the parent policy shapes the class with a child; `None` without a parent or a `shape`.
fn shaped(parent: Option<&ClassActions>, speed_bps: Option<u64>) -> Option<u64> {
    parent.and_then(|parent| parent.shape).map(|shape| bps(shape, speed_bps.unwrap_or(DEFAULT_BPS)))
}

fn bps(rate: QosRate, of: u64) -> u64 {
    match rate {
        QosRate::Bps(bps) => bps,
        QosRate::Percent(percent) => of / 100 * u64::from(percent),
    }
}

fn mark(actions: &ClassActions) -> Mark {
    Mark { dscp: actions.set.map(|set| set.dscp()), cos: actions.set_cos }
}

/// The burst, in bytes, of a rate without a configured burst: 250 ms at that rate, but at least [`MIN_BURST`].
fn burst(bps: u64) -> u32 {
    u32::try_from((bps / 32).max(MIN_BURST)).unwrap_or(u32::MAX)
}

/// The policer of a class.
#[must_use]
fn policer(actions: &ClassActions, speed_bps: u64) -> Option<Policer> {
    if let Some(police) = &actions.police {
        return Some(of_police(police, speed_bps));
    }
    let rate = bps(actions.priority?.rate?, speed_bps);
    let actions = [ColourAction::Pass(Mark::default()), ColourAction::Drop, ColourAction::Drop];
    Some(Policer { committed: RateLimit { bps: rate, burst: burst(rate) }, excess: Excess::None, actions })
}

fn of_police(police: &Police, speed_bps: u64) -> Policer {
    let cir = bps(police.cir, speed_bps);
    let committed = RateLimit { bps: cir, burst: police.bc.unwrap_or_else(|| burst(cir)) };
    let excess = match police.pir {
        Some(pir) => {
            let pir = bps(pir, speed_bps);
            Excess::Peak(RateLimit { bps: pir, burst: police.be.unwrap_or_else(|| burst(pir)) })
        }
        None if police.violate.is_some() || police.be.is_some() => {
            Excess::Overflow(police.be.unwrap_or(committed.burst))
        }
        None => Excess::None,
    };
    let action = |action: PoliceAction| match action {
        PoliceAction::Drop => ColourAction::Drop,
        PoliceAction::Transmit => ColourAction::Pass(Mark::default()),
        PoliceAction::SetDscp(dscp) => ColourAction::Pass(Mark { dscp: Some(dscp), cos: None }),
        PoliceAction::SetPrecedence(value) => ColourAction::Pass(Mark { dscp: Some(value << 3), cos: None }),
        PoliceAction::SetCos(cos) => ColourAction::Pass(Mark { dscp: None, cos: Some(cos) }),
    };
    let violate = police.violate.unwrap_or(police.exceed);
    Policer { committed, excess, actions: [action(police.conform), action(police.exceed), action(violate)] }
}

/// The names of the policies that `mls qos` stands for. An operator's policy map has no such name: they contain a space.
const UNTRUSTED: &str = "mls qos";
const TRUST_COS: &str = "mls qos trust cos";
const TRUST_DSCP: &str = "mls qos trust dscp";

/// The policy that `mls qos` means for the frames that a port receives.
fn trust_policy(qos: &Qos, interface: &Interface) -> Option<&'static str> {
    match interface.qos.trust {
        Some(QosTrust::Cos) => Some(TRUST_COS),
        Some(QosTrust::Dscp) => Some(TRUST_DSCP),
        None => qos.untrusted.then_some(UNTRUSTED),
    }
}

/// The policy maps that `mls qos` stands for.
fn implicit(qos: &Qos) -> Qos {
    let mut made = Qos::default();
    let mut none = PolicyMap::default();
    (none.default.set, none.default.set_cos) = (Some(lanyard_config::SetIp::Dscp(0)), Some(0));
    made.policies.insert(UNTRUSTED.into(), none);
    let (mut cos, mut dscp) = (PolicyMap::default(), PolicyMap::default());
    for value in 0..8_u8 {
        let mut add = |to: &mut PolicyMap, name: String, of: Match, actions: ClassActions| {
            let criteria = vec![Criterion { negated: false, of }];
            made.classes.insert(name.clone(), ClassMap { any: false, description: None, criteria });
            to.classes.push((name, actions));
        };
        let set = ClassActions {
            set: Some(lanyard_config::SetIp::Dscp(qos.cos_dscp[usize::from(value)])),
            ..ClassActions::default()
        };
        add(&mut cos, format!("cos {value}"), Match::Cos([value].into()), set);
        let set = ClassActions { set_cos: Some(value), ..ClassActions::default() };
        let of = Match::Precedence { values: [value].into(), ipv4: false };
        add(&mut dscp, format!("dscp {}", value << 3), of, set);
    }
    made.policies.insert(TRUST_COS.into(), cos);
    made.policies.insert(TRUST_DSCP.into(), dscp);
    made
}

/// The ports, and members of port-channels, with an output policy that has queues: netdev and policy map.
fn queued(config: &Config) -> impl Iterator<Item = (&str, &PolicyMap)> {
    config.interfaces.iter().filter_map(|(key, interface)| {
        let InterfaceName::Netdev(name) = key else { return None };
        let holder = match interface.aggregation.group {
            Some((channel, _)) => config.interfaces.get(&InterfaceName::of_channel(channel))?,
            None if key.channel().is_some() => return None,
            None => interface,
        };
        let policy = config.qos.policies.get(holder.qos.output.as_ref()?)?;
        let is_port = matches!(interface.role, Role::Switchport | Role::Routed)
            || interface.aggregation.group.is_some();
        (policy.queues() && is_port).then_some((name.as_str(), policy))
    })
}

/// The netdevs whose speed the policies of a configuration depend on.
#[must_use]
pub fn of_speed(config: &Config) -> Vec<String> {
    let with = config
        .interfaces
        .iter()
        .filter(|(_, interface)| interface.qos.input.is_some() || interface.qos.output.is_some());
    let ports = with.filter_map(|(name, _)| match name {
        InterfaceName::Netdev(name) => Some(name.clone()),
        InterfaceName::Vlan(_) => None,
    });
    ports.chain(queued(config).map(|(name, _)| name.to_owned())).collect()
}

/// The queues of every netdev that has some.
#[must_use]
pub fn trees(config: &Config, facts: &Facts) -> BTreeMap<String, QueueTree> {
    let tree = |(name, policy): (&str, &PolicyMap)| {
        let speed_bps = facts.speeds.get(name).map(|mbps| u64::from(*mbps) * 1_000_000);
        (name.to_owned(), tree(&config.qos, policy, speed_bps))
    };
    queued(config).map(tree).collect()
}

/// A class while its rates are calculated.
struct Share<'a> {
    minor: u16,
    actions: &'a ClassActions,
    /// The guaranteed rate in bit/s; `None` for a class of strict priority without a rate of its own.
    rate: Option<u64>,
    weight: u64,
}

fn tree(qos: &Qos, policy: &PolicyMap, speed_bps: Option<u64>) -> QueueTree {
    let inner = child(qos, policy).map_or(policy, |(_, inner)| inner);
    let parent = child(qos, policy).map(|_| &policy.default);
    let link = speed_bps.unwrap_or(UNLIMITED_BPS);
    let root = shaped(parent, speed_bps).map_or(link, |shape| shape.min(link));
    // Percentages refer to the parent's rate, otherwise to the port's speed. If the speed is not known, `root` is no limit, so
    // they refer to a default.
    let base = if parent.is_some() { root } else { speed_bps.unwrap_or(DEFAULT_BPS) };
    let shares: Vec<Share<'_>> = inner
        .actions()
        .enumerate()
        .map(|(at, (_, actions))| Share {
            minor: minor(at, inner),
            actions,
            rate: guaranteed(actions, base),
            weight: weight(actions, inner, base),
        })
        .collect();
    let wanted: u64 = shares.iter().filter_map(|share| share.rate).sum();
    let strict = shares.iter().filter(|share| share.rate.is_none()).count() as u64;
    // The classes of strict priority divide the rate that the guarantees leave, so that all rates together do not exceed `root`.
    let rest = root.saturating_sub(wanted).checked_div(strict).unwrap_or(0);
    let lightest = shares.iter().map(|share| share.weight).min().unwrap_or(1).max(1);
    let class = |share: &Share<'_>| {
        let ceil_bps = share.actions.shape.map_or(root, |shape| bps(shape, base).min(root));
        let rate = match share.rate {
            // Guarantees that together exceed `root` are reduced in proportion.
            Some(rate) if wanted > root => (u128::from(rate) * u128::from(root) / u128::from(wanted)) as u64,
            Some(rate) => rate,
            None => rest,
        };
        QueueClass {
            minor: share.minor,
            rate_bps: rate.clamp(MIN_RATE_BPS, ceil_bps.max(MIN_RATE_BPS)),
            ceil_bps: ceil_bps.max(MIN_RATE_BPS),
            priority: share.actions.priority.map_or(3, |priority| priority.level),
            quantum: (QUANTUM * share.weight / lightest).clamp(QUANTUM, MAX_QUANTUM) as u32,
            limit: limit(share.actions, ceil_bps),
        }
    };
    QueueTree { rate_bps: root, classes: shares.iter().map(class).collect() }
}

fn guaranteed(actions: &ClassActions, base: u64) -> Option<u64> {
    match (actions.priority, actions.bandwidth) {
        (Some(Priority { rate: None, .. }), _) => None,
        (Some(Priority { rate: Some(rate), .. }), _) => Some(bps(rate, base)),
        (None, Some(Bandwidth::Bps(bps))) => Some(bps),
        (None, Some(Bandwidth::Percent(percent))) => Some(base / 100 * u64::from(percent)),
        (None, _) => Some(base / FLOOR),
    }
}

/// The weight by which a class shares the bandwidth that the guarantees leave, in relation to the other classes of the policy
/// map. Beside classes with `bandwidth remaining`, a class without `bandwidth` has the weight that IOS gives it: the remaining
/// percent, or the ratio 1.
fn weight(actions: &ClassActions, policy: &PolicyMap, base: u64) -> u64 {
    let all = || policy.actions().filter_map(|(_, actions)| actions.bandwidth);
    let percents: u64 = all()
        .filter_map(|bandwidth| match bandwidth {
            Bandwidth::RemainingPercent(percent) => Some(u64::from(percent)),
            _ => None,
        })
        .sum();
    match actions.bandwidth {
        Some(Bandwidth::Bps(bps)) => bps.max(1),
        Some(Bandwidth::Percent(percent)) => base / 100 * u64::from(percent),
        Some(Bandwidth::RemainingPercent(percent)) => percent.into(),
        Some(Bandwidth::RemainingRatio(ratio)) => ratio.into(),
        None if percents > 0 => 100_u64.saturating_sub(percents).max(1),
        None if all().any(|bandwidth| matches!(bandwidth, Bandwidth::RemainingRatio(_))) => 1,
        None => base / FLOOR,
    }
}

fn limit(actions: &ClassActions, ceil_bps: u64) -> QueueLength {
    match actions.queue_limit {
        Some(QueueLimit::Packets(packets)) => QueueLength::Packets(packets.into()),
        Some(QueueLimit::Bytes(bytes)) => QueueLength::Bytes(bytes),
        None => {
            QueueLength::Bytes((ceil_bps / 8 / 20).clamp(*QUEUE_BYTES.start(), *QUEUE_BYTES.end()) as u32)
        }
    }
}

/// The classes of a service policy in force, for a view. Each has its name, true if it belongs to the child policy, and its index
/// in the plane's policy; the index is `None` for the parent's class, whose frames are those of all classes of the child.
#[must_use]
pub fn shown(qos: &Qos, policy: &str) -> Vec<(String, bool, Option<usize>)> {
    let Some(policy) = qos.policies.get(policy) else { return Vec::new() };
    match child(qos, policy) {
        None => {
            policy.actions().enumerate().map(|(at, (name, _))| (name.to_owned(), false, Some(at))).collect()
        }
        Some((_, inner)) => {
            let inner = inner.actions().enumerate().map(|(at, (name, _))| (name.to_owned(), true, Some(at)));
            std::iter::once((CLASS_DEFAULT.to_owned(), false, None)).chain(inner).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(actions: ClassActions) -> (String, ClassActions) {
        ("c".into(), actions)
    }
    fn bandwidth(of: Bandwidth) -> ClassActions {
        ClassActions { bandwidth: Some(of), ..ClassActions::default() }
    }
    fn priority(rate: Option<QosRate>) -> ClassActions {
        ClassActions { priority: Some(Priority { level: 1, rate }), ..ClassActions::default() }
    }
    /// Minor number, guaranteed rate and ceiling in Mbit/s, priority, quantum of each class.
    fn shares(
        classes: Vec<(String, ClassActions)>,
        default: ClassActions,
        mbps: Option<u64>,
    ) -> Vec<(u16, u64, u64, u8, u32)> {
        let policy = PolicyMap { classes, default, ..PolicyMap::default() };
        let tree = tree(&Qos::default(), &policy, mbps.map(|mbps| mbps * 1_000_000));
        let of = |class: &QueueClass| {
            (
                class.minor,
                class.rate_bps / 1_000_000,
                class.ceil_bps / 1_000_000,
                class.priority,
                class.quantum,
            )
        };
        tree.classes.iter().map(of).collect()
    }

    #[test]
    fn guarantees_are_shares_of_the_speed_and_excess_is_proportional() {
        let classes = vec![
            class(priority(Some(QosRate::Percent(10)))),
            class(bandwidth(Bandwidth::Percent(60))),
            class(bandwidth(Bandwidth::Bps(20_000_000))),
        ];
        let got = shares(classes, ClassActions::default(), Some(100));
        assert_eq!(
            got,
            [(3, 10, 100, 1, 1518), (4, 60, 100, 3, 91_080), (5, 20, 100, 3, 30_360), (2, 1, 100, 3, 1518)]
        );
    }

    #[test]
    fn a_class_of_strict_priority_may_have_all_that_is_not_guaranteed() {
        let classes = vec![class(priority(None)), class(bandwidth(Bandwidth::RemainingPercent(75)))];
        let got = shares(classes, ClassActions::default(), Some(1000));
        assert_eq!(got, [(3, 980, 1000, 1, 1518), (4, 10, 1000, 3, 4554), (2, 10, 1000, 3, 1518)]);
    }

    #[test]
    fn more_than_the_port_has_is_divided_and_a_shaped_class_has_a_ceiling() {
        let shaped = ClassActions { shape: Some(QosRate::Bps(30_000_000)), ..ClassActions::default() };
        let classes = vec![class(bandwidth(Bandwidth::Bps(300_000_000))), class(shaped)];
        let got = shares(classes, ClassActions::default(), Some(100));
        assert_eq!(
            got.iter().map(|class| (class.1, class.2)).collect::<Vec<_>>(),
            [(99, 100), (0, 30), (0, 100)]
        );
        let unknown = shares(vec![class(bandwidth(Bandwidth::Percent(50)))], ClassActions::default(), None);
        assert_eq!(unknown[0].1, 500, "a share of 1 Gbit/s where the speed is not known");
        assert_eq!(unknown[0].2, 100_000, "and no limit");
    }

    #[test]
    fn a_child_policy_divides_the_shaped_rate_of_its_parent() {
        let mut qos = Qos::default();
        let inner =
            PolicyMap { classes: vec![class(bandwidth(Bandwidth::Percent(50)))], ..PolicyMap::default() };
        qos.policies.insert("inner".into(), inner);
        let default = ClassActions {
            shape: Some(QosRate::Bps(10_000_000)),
            child: Some("inner".into()),
            ..ClassActions::default()
        };
        let outer = PolicyMap { default, ..PolicyMap::default() };
        let tree = tree(&qos, &outer, Some(1_000_000_000));
        assert_eq!((tree.rate_bps, tree.classes[0].rate_bps, tree.classes.len()), (10_000_000, 5_000_000, 2));
        let names: Vec<&str> = Vec::from_iter(["c", CLASS_DEFAULT]);
        let of = classes(&qos, &outer, Some(1_000_000_000));
        assert_eq!(of.iter().map(|class| class.name.as_str()).collect::<Vec<_>>(), names);
        assert_eq!(of.iter().map(|class| class.queue).collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn policers_of_each_form() {
        let police = Police {
            cir: QosRate::Bps(1_000_000),
            bc: None,
            pir: None,
            be: None,
            conform: PoliceAction::Transmit,
            exceed: PoliceAction::SetDscp(10),
            violate: None,
        };
        let of = |police: &Police| of_police(police, 100_000_000);
        assert_eq!(of(&police).committed, RateLimit { bps: 1_000_000, burst: 31_250 });
        assert_eq!(of(&police).excess, Excess::None);
        assert_eq!(of(&police).actions[1], of(&police).actions[2]);
        let violate = Police { violate: Some(PoliceAction::Drop), be: Some(5_000), ..police };
        assert_eq!(
            (of(&violate).excess, of(&violate).actions[2]),
            (Excess::Overflow(5_000), ColourAction::Drop)
        );
        let peak = Police { pir: Some(QosRate::Percent(50)), ..police };
        assert_eq!(of(&peak).excess, Excess::Peak(RateLimit { bps: 50_000_000, burst: 1_562_500 }));
    }
}
