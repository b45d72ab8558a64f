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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, accept, config};
    use lanyard_types::QueueClass;

    const EF: u8 = 46;
    const VOICE: &str = "class-map VOICE\n match dscp ef\n";

    /// A switch with ports whose links are up.
    fn switch(ports: &[&str], text: &str) -> (Bench, Core) {
        let bench = Bench::new();
        let mut core = bench.core();
        bench.plug(&mut core, ports);
        core.take(config(text)).expect("good");
        (bench, core)
    }

    /// Sends broadcasts of 500 bytes with this DSCP from a host at a port.
    fn send(bench: &Bench, core: &Core, name: &str, dscp: u8, count: usize) {
        let port = core.ctx.switch.ports().get(name).expect("a port");
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 1, 0x08, 0x00]);
        frame.extend([0x45, dscp << 2, 1, 0xe6, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([1, 0, 2, 0, 1, 0xd2, 0, 0]);
        frame.resize(500, 0);
        for _ in 0..count {
            bench.ports.borrow().as_ref().expect("a plane").push(port, &frame);
        }
    }

    /// The plane's clock stands still, so a policer passes what its buckets hold.
    #[test]
    fn frames_are_counted_by_class_and_by_colour() {
        for (police, settings, colours) in [
            ("cir 8000 bc 1000", (8000, 1000, None, None), [2, 4, 0]),
            ("cir 8000 bc 1000 be 1500", (8000, 1000, None, Some(1500)), [2, 3, 1]),
            ("cir 8000 bc 1000 pir 16000 be 2000", (8000, 1000, Some(16_000), Some(2000)), [2, 2, 2]),
        ] {
            let text = format!(
                "{VOICE}policy-map EDGE\n class VOICE\n  police {police}\n\
                 interface eth1\n switchport\n service-policy input EDGE"
            );
            let (bench, mut core) = switch(&["eth1"], &text);
            send(&bench, &core, "eth1", EF, 6);
            send(&bench, &core, "eth1", 0, 1);
            let policies = core.service_policies().service_policies;
            assert_eq!(policies.len(), 1, "{police}");
            let shown = &policies[0];
            assert_eq!((&*shown.interface, shown.direction, &*shown.policy), ("eth1", "input", "EDGE"));
            let classes: Vec<_> = shown
                .classes
                .iter()
                .map(|of| (&*of.class, of.child, of.packets, of.bytes, of.police.is_some()))
                .collect();
            let want = [("VOICE", false, 6, 3000, true), ("class-default", false, 1, 500, false)];
            assert_eq!(classes, want, "{police}");
            let of = shown.classes[0].police.as_ref().expect("a policer");
            assert_eq!((of.cir_bps, of.bc_bytes, of.pir_bps, of.be_bytes), settings, "{police}");
            assert_eq!([of.conformed_packets, of.exceeded_packets, of.violated_packets], colours, "{police}");
            let bytes = [of.conformed_bytes, of.exceeded_bytes, of.violated_bytes];
            assert_eq!(bytes, colours.map(|packets| packets * 500), "{police}");
        }
    }

    #[test]
    fn counters_are_cleared_of_one_interface_or_of_all() {
        let text = format!(
            "{VOICE}policy-map EDGE\n class VOICE\n  set cos 5\ninterface eth1\n switchport\n \
             service-policy input EDGE\ninterface eth2\n switchport\n service-policy output EDGE"
        );
        let (bench, mut core) = switch(&["eth1", "eth2"], &text);
        let counts = |core: &mut Core| -> Vec<u64> {
            core.service_policies().service_policies.iter().map(|shown| shown.classes[0].packets).collect()
        };
        // The frame is in the class of the port that receives it, and of the port by which it leaves.
        send(&bench, &core, "eth1", EF, 1);
        for (interface, want) in [(Some("eth3"), [1, 1]), (Some("eth1"), [0, 1]), (None, [0, 0])] {
            core.clear_service_policies(interface);
            assert_eq!(counts(&mut core), want, "{interface:?}");
        }
    }

    /// The soft plane refuses queues, so the configuration is accepted without the check of the plane.
    #[test]
    fn queues_of_a_port_channel_are_those_of_the_members_that_have_them() {
        const PORTS: &str = "interface eth1\n channel-group 1 mode on\ninterface eth2\n channel-group 1 mode on\n\
            interface eth3\n switchport\ninterface port-channel 1\n switchport";
        let (bench, mut core) = switch(&["eth1", "eth2", "eth3"], PORTS);
        let policies = "policy-map INNER\n class VOICE\n  bandwidth percent 50\n  queue-limit 100 packets\n\
            policy-map OUTER\n class class-default\n  shape average 10000000\n  service-policy INNER\n";
        let text = format!("{VOICE}{policies}{PORTS}\n service-policy output OUTER");
        accept(&mut core.ctx, config(&text));
        core.settle();
        send(&bench, &core, "eth3", EF, 2);
        send(&bench, &core, "eth3", 0, 1);
        let shown = |core: &mut Core| -> Vec<_> {
            let policies = core.service_policies().service_policies;
            let [policy] = &policies[..] else { unreachable!("{policies:?}") };
            assert_eq!((&*policy.interface, policy.direction), ("port-channel1", "output"));
            let queue = |queue: &view::QueueView| (queue.rate_bps, queue.limit, queue.limit_unit);
            policy.classes.iter().map(|of| (of.child, of.packets, of.queue.as_ref().map(queue))).collect()
        };
        // The parent has no queue of its own. Its frames are those of the classes of its child.
        let all = shown(&mut core);
        assert_eq!(all[..2], [(false, 3, None), (true, 2, Some((10_000_000, 200, "packets")))]);
        assert_eq!((all.len(), all[2].1, all[2].2.is_some()), (3, 1, true));
        // Another program has replaced the queues of a member. They count again once the switch has verified them.
        let foreign = Err("fq_codel".into());
        let own = bench.kernel.state().queues.insert("eth2".into(), foreign).expect("queues");
        bench.clock.set(10_000);
        core.tick();
        assert_eq!(shown(&mut core)[1], (true, 2, Some((5_000_000, 100, "packets"))));
        bench.kernel.state().queues.insert("eth2".into(), own);
        assert_eq!(shown(&mut core)[1], (true, 2, Some((5_000_000, 100, "packets"))));
        bench.clock.set(20_000);
        core.tick();
        assert_eq!(shown(&mut core)[1], all[1]);
    }

    #[test]
    fn a_queue_is_the_sum_of_those_of_all_netdevs() {
        let netdev = |rate_bps, frames, stats_of| {
            let limit = QueueLength::Bytes(3000);
            let class = QueueClass { minor: 3, rate_bps, ceil_bps: 100, priority: 3, quantum: 1518, limit };
            let stats = QueueStats {
                minor: stats_of,
                sent_frames: frames,
                sent_bytes: frames * 100,
                dropped: 1,
                waiting_frames: 2,
                waiting_bytes: 200,
            };
            (QueueTree { rate_bps: 100, classes: vec![class] }, vec![stats])
        };
        // The third netdev has no statistics of the class yet.
        let netdevs = [netdev(10, 5, 3), netdev(20, 7, 3), netdev(40, 9, 2)];
        let sum = queue_view(&netdevs, 3).expect("a queue");
        assert_eq!((sum.rate_bps, sum.ceil_bps, sum.limit, sum.limit_unit), (30, 200, 6000, "bytes"));
        assert_eq!((sum.sent_packets, sum.sent_bytes, sum.dropped_packets), (12, 1200, 2));
        assert_eq!((sum.depth_packets, sum.depth_bytes), (4, 400));
        assert!(queue_view(&netdevs, 4).is_none(), "no netdev has the class");
    }
}
