//! qos_ingress: applies the input policy of the port that received a frame: classifies it, polices its class, and marks it.
//!
//! The stage follows `learn`: the address of a station is learned even if the station exceeds its rate. The later stages see the
//! packet with the DSCP that this stage has written: outbound lists and policies compare that value, and a routed packet leaves
//! with it.
//!
//! A policer's colour decides what happens to the frame, but `decide` takes no tokens. It is given the [`Colours`] of the
//! policers that have been asked; `Memory::meter` asks the policers of the classes that `decide` reports, and the frame is
//! decided again if one of them is not green.
//!
//! The class of service is that of the tag with which a frame leaves; a frame that arrives without a tag has class 0.

use super::acl_ingress::Judged;
use super::parse::Parsed;
use super::vlan_ingress::Class;
use super::{Arrival, route};
use crate::Timestamp;
use crate::qos::{
    ClassCounters, Colour, ColourAction, Costs, Direction, Excess, Length, MAX_CLASSES, Mark, Meter, Policer,
    PortQos, QosClass, QosPolicy, RateLimit, mark_dscp,
};
use crate::state::{AclBindings, PlaneState, PortKind, PortState};
use crate::tables::Tables;
use lanyard_acl::condition::{PlaneList, Purpose};
use lanyard_types::{AclId, DropReason, PortId, Rng};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The class of a frame in the policy of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classed {
    /// The port, or port-channel, of the policy.
    pub port: PortId,
    /// The direction of the policy.
    pub direction: Direction,
    /// The index of the class.
    pub class: usize,
    /// The colour that decided; green without a policer.
    pub colour: Colour,
}

/// The colours that policers have given to a frame. The colour of a policer that has not been asked is green.
#[derive(Debug, Default)]
pub struct Colours(BTreeMap<(PortId, Direction), Colour>);

impl Colours {
    fn get(&self, port: PortId, direction: Direction) -> Colour {
        self.0.get(&(port, direction)).copied().unwrap_or_default()
    }
}

/// The class of a frame in a policy, and its action: the mark, or `None` if the frame is dropped.
pub(super) fn classify(
    tables: &Tables,
    judged: &mut Judged<'_>,
    policy: &QosPolicy,
    (port, direction): (PortId, Direction),
    colours: &Colours,
    classed: &mut Vec<Classed>,
) -> Option<Mark> {
    let class = judged.class(tables, policy);
    let colour = colours.get(port, direction);
    classed.push(Classed { port, direction, class, colour });
    let of = policy.classes.get(class)?;
    match of.policer.map(|policer| policer.actions[colour as usize]) {
        Some(ColourAction::Drop) => None,
        Some(ColourAction::Pass(mark)) => Some(mark.or(of.mark)),
        None => Some(of.mark),
    }
}

/// Applies the input policy, and returns the frame's bytes if the packet has been marked.
pub(super) fn run(
    tables: &Tables,
    arrival: &Arrival<'_>,
    ingress: &PortState,
    frame: &mut Parsed,
    class: Option<&mut Class>,
    colours: &Colours,
    classed: &mut Vec<Classed>,
) -> Result<Option<Vec<u8>>, DropReason> {
    let Some(policy) = &ingress.qos.input else { return Ok(None) };
    let mut judged = Judged::new(arrival, frame, class.as_ref().map(|class| class.vlan));
    let at = (arrival.port, Direction::Input);
    let mark = classify(tables, &mut judged, policy, at, colours, classed).ok_or(DropReason::PolicedIn)?;
    if let Some(cos) = mark.cos {
        frame.cos = cos;
        class.into_iter().for_each(|class| class.tag.pcp = cos);
    }
    let Some((family, dscp)) = judged.packet().zip(mark.dscp) else { return Ok(None) };
    let mut bytes = arrival.bytes.to_vec();
    Ok(mark_dscp(&mut bytes, route::l3_offset(frame), family, dscp).then_some(bytes))
}

/// The policers and counters of the classes of ports.
#[derive(Debug, Default)]
pub(crate) struct Classes(BTreeMap<(PortId, Direction), Vec<(Meter, ClassCounters)>>);

impl Classes {
    /// Asks the policers of a frame's classes that have not been asked: those of the input policy, or, when these have been asked,
    /// those of the output policies. True if a colour changes the decision.
    pub(crate) fn meter(
        &mut self,
        tables: &Tables,
        classed: &[Classed],
        len: Length,
        now: Timestamp,
        direction: Direction,
        colours: &mut Colours,
    ) -> bool {
        let mut changed = false;
        for one in classed.iter().filter(|one| one.direction == direction) {
            let policy = tables.ports.get(one.port).and_then(|port| port.qos.of(direction));
            let policer = policy.and_then(|policy| policy.classes.get(one.class)?.policer);
            let Some((policer, (meter, _))) = policer.zip(self.row(one)) else { continue };
            let colour = meter.colour(&policer, len, now);
            colours.0.insert((one.port, direction), colour);
            changed |= colour != Colour::Green;
        }
        changed
    }
    /// Counts a frame of `len` bytes in its classes.
    pub(crate) fn count(&mut self, classed: &[Classed], len: u64) {
        for one in classed {
            let Some((_, counters)) = self.row(one) else { continue };
            counters.frames[one.colour as usize] += 1;
            counters.bytes[one.colour as usize] += len;
        }
    }
    fn row(&mut self, of: &Classed) -> Option<&mut (Meter, ClassCounters)> {
        let rows = self.0.entry((of.port, of.direction)).or_default();
        if rows.len() <= of.class && of.class < MAX_CLASSES {
            rows.resize_with(of.class + 1, Default::default);
        }
        rows.get_mut(of.class)
    }
    /// The counters of the classes of a policy, by index; those of classes without frames may be missing at the end.
    pub(crate) fn counters(&self, port: PortId, direction: Direction) -> Vec<ClassCounters> {
        let rows = self.0.get(&(port, direction));
        rows.into_iter().flatten().map(|(_, counters)| *counters).collect()
    }
    /// Sets the counters of a port to 0.
    pub(crate) fn clear(&mut self, port: PortId) {
        for direction in Direction::ALL {
            let rows = self.0.get_mut(&(port, direction));
            rows.into_iter().flatten().for_each(|(_, counters)| *counters = ClassCounters::default());
        }
    }
    /// Adapts the state to settings of `port` that change from `old` to `new`. A policy whose name, classes or lists change
    /// begins with new counters and full buckets. If only actions and rates change, the counters continue, and a policer whose
    /// rates or bursts change begins with full buckets.
    pub(crate) fn change(&mut self, port: PortId, old: Option<&PortState>, new: Option<&PortState>) {
        for direction in Direction::ALL {
            let of = |state: Option<&PortState>| state.and_then(|state| state.qos.of(direction)).cloned();
            let (old, new) = (of(old), of(new));
            if !continues(old.as_deref(), new.as_deref()) {
                self.0.remove(&(port, direction));
            }
            let rows = self.0.get_mut(&(port, direction)).into_iter().flatten();
            for ((meter, _), (old, new)) in rows.zip(classes(old.as_deref()).zip(classes(new.as_deref()))) {
                let same = match (old.policer, new.policer) {
                    (Some(old), Some(new)) => old.has_buckets_of(&new),
                    (old, new) => old.is_none() && new.is_none(),
                };
                if !same {
                    *meter = Meter::default();
                }
            }
        }
    }
}

fn classes(policy: Option<&QosPolicy>) -> impl Iterator<Item = &QosClass> {
    policy.into_iter().flat_map(|policy| &policy.classes)
}

/// True if a policy that takes the place of another continues its counters: both have the same lists and classes.
#[must_use]
pub fn continues(old: Option<&QosPolicy>, new: Option<&QosPolicy>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => {
            let names = |policy: &QosPolicy| {
                policy.classes.iter().map(|class| class.name.clone()).collect::<Vec<_>>()
            };
            old.name == new.name && old.lists == new.lists && names(old) == names(new)
        }
        (None, None) => true,
        _ => false,
    }
}

/// A policy with one class, whose policer a test's frames exceed. `excess` is the policer's second bucket; green and yellow
/// frames get different marks, red ones are dropped.
pub(super) fn low(excess: Excess) -> QosPolicy {
    let cos = |cos: u8| ColourAction::Pass(Mark { dscp: Some(cos), cos: Some(cos) });
    let committed = RateLimit { bps: 2_000, burst: 100 };
    let policer = Policer { committed, excess, actions: [cos(1), cos(2), ColourAction::Drop] };
    let class = QosClass { name: "class-default".into(), policer: Some(policer), ..QosClass::default() };
    QosPolicy { name: "low".into(), lists: AclBindings::default(), classes: vec![class] }
}

/// Gives ports of a generated state policies, in a third of all cases. The bucket of a policer is too small for every frame, or
/// never empty, so that nothing depends on the moment a frame comes.
pub(super) fn randomise(rng: &mut Rng, plane: &mut PlaneState) {
    if !rng.percent(33) {
        return;
    }
    let Some(first) = (1..=AclId::MAX.get()).filter_map(AclId::new).find(|id| !plane.acls.contains_key(id))
    else {
        return;
    };
    let classes = 2 + rng.below(5) as u16;
    let mut lists = AclBindings::default();
    for (at, family) in lanyard_acl::FrameFamily::ALL.into_iter().enumerate() {
        let Some(id) = AclId::new(first.get() + at as u16).filter(|_| rng.percent(70)) else { continue };
        let mut list = super::acl_ingress::random_list(rng, family);
        list.name = format!("policy map random {}", list.name);
        list.purpose = Purpose::Classify;
        list.otherwise_permit = true;
        classes_of(&mut list, classes, rng);
        plane.acls.insert(id, Arc::new(list));
        lists[family.index()] = Some(id);
    }
    let ports =
        plane.ports.values_mut().filter(|port| matches!(port.kind, PortKind::Netdev | PortKind::Routed));
    for port in ports {
        let mut policy = || {
            let classes = (0..classes).map(|n| random_class(rng, n)).collect();
            let policy = QosPolicy { name: "random".into(), lists, classes };
            rng.percent(35).then(|| Arc::new(policy))
        };
        port.qos = PortQos { input: policy(), output: policy() };
    }
}

/// Makes the rules of a list name classes.
fn classes_of(list: &mut PlaneList, classes: u16, rng: &mut Rng) {
    for rule in &mut list.rules {
        rule.list = rng.below(u64::from(classes)) as u16;
        if rule.verdict == lanyard_acl::Verdict::Deny {
            rule.verdict = lanyard_acl::Verdict::Permit;
        }
    }
    list.names = (0..classes).map(|n| format!("c{n}")).collect();
}

fn random_mark(rng: &mut Rng) -> Mark {
    let dscp = rng.percent(50).then(|| rng.below(64) as u8);
    let cos = rng.percent(40).then(|| rng.below(8) as u8);
    Mark { dscp, cos }
}

fn random_class(rng: &mut Rng, n: u16) -> QosClass {
    let action = |rng: &mut Rng| match rng.below(3) {
        0 => ColourAction::Drop,
        _ => ColourAction::Pass(random_mark(rng)),
    };
    let limits = [RateLimit { bps: 8, burst: 0 }, RateLimit { bps: Policer::MAX_BPS, burst: 1 << 30 }];
    let limit = |rng: &mut Rng| rng.pick(&limits).unwrap_or(limits[0]);
    let excess = match rng.below(3) {
        0 => Excess::None,
        1 => Excess::Overflow(rng.pick(&[0, 1 << 30]).unwrap_or(0)),
        _ => Excess::Peak(limit(rng)),
    };
    let policer = Policer { committed: limit(rng), excess, actions: [action(rng), action(rng), action(rng)] };
    let policer = rng.percent(40).then_some(policer);
    // A bucket that is too small for every frame is never charged, so its colour does not depend on other frames.
    debug_assert!(policer.is_none_or(|policer| Costs::of(&policer).byte_cost[0] > 0));
    QosClass { name: format!("c{n}"), mark: random_mark(rng), policer, queue: rng.below(4) as u16 }
}
