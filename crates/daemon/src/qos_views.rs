//! Service policies for the command line.

use crate::core::Core;
use lanyard_cli::backend::QualityOfService;
use lanyard_cli::view;
use lanyard_config::InterfaceName;
use lanyard_pipeline::qos::{ClassCounters, Direction, Excess, Policer};
use lanyard_switch::qos;
use lanyard_types::{PortId, QueueLength, QueueStats, QueueTree};

impl QualityOfService for Core {
    fn service_policies(&mut self) -> view::ServicePolicies {
        let config = self.ctx.switch.config().clone();
        let mut service_policies = Vec::new();
        for (name, interface) in &config.interfaces {
            let InterfaceName::Netdev(netdev) = name else { continue };
            let Some(port) = self.ctx.switch.ports().get(netdev) else { continue };
            let of = [(Direction::Input, &interface.qos.input), (Direction::Output, &interface.qos.output)];
            for (direction, policy) in
                of.into_iter().filter_map(|(direction, name)| Some((direction, name.as_ref()?)))
            {
                let classes = self.service_classes(&config.qos, (netdev, port), direction, policy);
                service_policies.push(view::ServicePolicyView {
                    interface: netdev.clone(),
                    direction: direction.name(),
                    policy: policy.clone(),
                    classes,
                });
            }
        }
        view::ServicePolicies { service_policies }
    }
    fn clear_service_policies(&mut self, interface: Option<&str>) {
        let ports: Vec<PortId> = self.ctx.plane.state().ports.keys().copied().collect();
        for port in ports {
            if interface.is_none_or(|name| self.ctx.switch.ports().name(port) == Some(name)) {
                self.ctx.plane.clear_class_counters(port);
            }
        }
    }
}

impl Core {
    fn service_classes(
        &mut self,
        config: &lanyard_config::Qos,
        (netdev, port): (&str, PortId),
        direction: Direction,
        policy: &str,
    ) -> Vec<view::ServiceClassView> {
        let counters = self.ctx.plane.class_counters(port, direction);
        let held = self.ctx.plane.state().ports.get(&port).and_then(|port| port.qos.of(direction)).cloned();
        let queues = if direction == Direction::Output { self.queues_of(netdev) } else { Vec::new() };
        let class = |(class, child, at): (String, bool, Option<usize>)| {
            let of: Vec<ClassCounters> = match at {
                Some(at) => counters.get(at).copied().into_iter().collect(),
                None => counters.clone(),
            };
            let plane = at.and_then(|at| held.as_ref()?.classes.get(at).cloned());
            let total = |part: fn(&ClassCounters) -> u64| of.iter().map(part).sum();
            view::ServiceClassView {
                class,
                child,
                packets: total(|counters| counters.frames.iter().sum()),
                bytes: total(|counters| counters.bytes.iter().sum()),
                police: plane
                    .as_ref()
                    .and_then(|class| class.policer)
                    .map(|policer| policer_view(&policer, &of)),
                queue: plane.and_then(|class| queue_view(&queues, class.queue)),
            }
        };
        qos::shown(config, policy).into_iter().map(class).collect()
    }
    /// The queues of a port, or of the members of a port-channel: tree and statistics of each netdev.
    fn queues_of(&self, name: &str) -> Vec<(QueueTree, Vec<QueueStats>)> {
        let config = self.ctx.switch.config();
        let trees = qos::trees(config, self.ctx.facts());
        let key = InterfaceName::Netdev(name.to_owned());
        let members = key.channel().into_iter().flat_map(|channel| config.members(channel));
        let members = members.map(|(member, _)| member.to_string());
        let of = |name: String| {
            let tree = trees.get(&name).filter(|_| self.queues.lost(&name).is_none())?.clone();
            Some((tree, self.ctx.kernel.queue_stats(&name).ok()?))
        };
        members.chain([name.to_owned()]).filter_map(of).collect()
    }
}

fn policer_view(policer: &Policer, counters: &[ClassCounters]) -> view::PolicerView {
    let total = |part: &dyn Fn(&ClassCounters) -> u64| counters.iter().map(part).sum();
    let (pir_bps, be_bytes) = match policer.excess {
        Excess::None => (None, None),
        Excess::Overflow(burst) => (None, Some(burst.into())),
        Excess::Peak(peak) => (Some(peak.bps), Some(peak.burst.into())),
    };
    view::PolicerView {
        cir_bps: policer.committed.bps,
        bc_bytes: policer.committed.burst.into(),
        pir_bps,
        be_bytes,
        conformed_packets: total(&|counters| counters.frames[0]),
        conformed_bytes: total(&|counters| counters.bytes[0]),
        exceeded_packets: total(&|counters| counters.frames[1]),
        exceeded_bytes: total(&|counters| counters.bytes[1]),
        violated_packets: total(&|counters| counters.frames[2]),
        violated_bytes: total(&|counters| counters.bytes[2]),
    }
}

/// The queue of a class: the sum of those of all netdevs. `None` if no netdev has it.
fn queue_view(queues: &[(QueueTree, Vec<QueueStats>)], minor: u16) -> Option<view::QueueView> {
    let mut sum: Option<view::QueueView> = None;
    for (tree, stats) in queues {
        let class = tree.classes.iter().find(|class| class.minor == minor);
        let of = stats.iter().find(|stats| stats.minor == minor);
        let Some((class, of)) = class.zip(of) else { continue };
        let (limit, limit_unit) = match class.limit {
            QueueLength::Packets(packets) => (packets, "packets"),
            QueueLength::Bytes(bytes) => (bytes, "bytes"),
        };
        let sum = sum.get_or_insert_with(view::QueueView::default);
        sum.rate_bps += class.rate_bps;
        sum.ceil_bps += class.ceil_bps;
        sum.depth_packets += of.waiting_frames;
        sum.depth_bytes += of.waiting_bytes;
        sum.sent_packets += of.sent_frames;
        sum.sent_bytes += of.sent_bytes;
        sum.dropped_packets += of.dropped;
        (sum.limit, sum.limit_unit) = (sum.limit + u64::from(limit), limit_unit);
    }
    sum
}
