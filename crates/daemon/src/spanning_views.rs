//! The commands that show and clear spanning tree's state.

use crate::core::Core;
use crate::spanning;
use lanyard_cli::backend::{Refusal, SpanningTree};
use lanyard_cli::view;
use lanyard_config::InterfaceName;

impl SpanningTree for Core {
    fn spanning_tree(&mut self) -> view::SpanningTree {
        spanning::view(&self.ctx)
    }
    fn root_primary_priority(&self, tree: view::TreeKey) -> Option<u16> {
        spanning::root_primary(&self.ctx, tree)
    }
    fn clear_detected_protocols(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        spanning::clear_protocols(&mut self.ctx, only)
    }
    fn clear_spanning_tree_counters(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        spanning::clear_bpdu_counters(&self.ctx, only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, config};
    use lanyard_cli::backend::{Configuration, Interfaces};
    use lanyard_cli::view::TreeKey;
    use lanyard_plane::Trapped;
    use lanyard_types::{TrapReason, VlanId};

    const RSTP: &str = "spanning-tree mode rstp\ninterface eth1\n switchport\ninterface eth2\n switchport\n\
        interface eth3\n no switchport";

    /// A switch with two ports in spanning tree and a routed port, all with link.
    fn switch(text: &str) -> (Bench, Core) {
        let bench = Bench::new();
        let mut core = bench.core();
        bench.plug(&mut core, &["eth1", "eth2", "eth3"]);
        core.commit(config(text)).expect("taken");
        (bench, core)
    }

    /// Receives a BPDU of a root bridge: a configuration BPDU in version 0, an RST BPDU in version 2. `priority` is the upper
    /// octet of its bridge priority.
    fn receive(bench: &Bench, core: &mut Core, name: &str, version: u8, priority: u8) {
        let bridge = [priority, 0, 2, 0, 0, 0, 0xee, 1];
        let rapid = version == 2;
        let mut frame = vec![1, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0xee, 1, 0, if rapid { 39 } else { 38 }];
        // The flags are those of a designated port that forwards.
        frame.extend([0x42, 0x42, 3, 0, 0, version, version, if rapid { 0x3c } else { 0 }]);
        frame.extend(bridge);
        frame.extend([0, 0, 0, 0]);
        frame.extend(bridge);
        frame.extend([0x80, 1, 0, 0, 20, 0, 2, 0, 15, 0]);
        frame.resize(60, 0);
        let port = core.ctx.switch.ports().get(name).expect("a port");
        bench.plane.trapped.lock().push(Trapped { port, reason: TrapReason::Bpdu, frame });
        core.plane_events();
    }

    fn eth(name: &str) -> InterfaceName {
        InterfaceName::Netdev(name.into())
    }

    #[test]
    fn trees_are_shown_with_the_names_of_their_ports() {
        let (bench, mut core) = switch(RSTP);
        receive(&bench, &mut core, "eth2", 2, 0x10);
        let shown = core.spanning_tree();
        assert_eq!((shown.instances.len(), shown.watchdog.is_some()), (1, true));
        let tree = &shown.instances[0];
        assert_eq!(
            (tree.instance, tree.protocol, tree.root_id.as_str(), tree.root_port.as_deref()),
            (0, "rstp", "4096.02:00:00:00:ee:01", Some("eth2"))
        );
        let ports: Vec<_> = tree.ports.iter().map(|port| (&*port.interface, port.role, port.state)).collect();
        assert_eq!(ports, [("eth1", "designated", "discarding"), ("eth2", "root", "forwarding")]);
        core.commit(config("interface eth1\n switchport")).expect("taken");
        let off = core.spanning_tree();
        assert!(off.instances.is_empty() && off.mode.is_none() && off.watchdog.is_none());
    }

    #[test]
    fn root_primary_takes_a_priority_below_that_of_the_root() {
        let (bench, mut core) = switch(RSTP);
        let one = TreeKey::Vlan(VlanId::DEFAULT);
        assert_eq!(core.root_primary_priority(one), Some(24_576), "this switch is the root");
        for (root, want) in [(0x70, Some(24_576)), (0x60, Some(20_480)), (0x10, Some(0)), (0, None)] {
            receive(&bench, &mut core, "eth1", 2, root);
            assert_eq!(core.root_primary_priority(one), want, "{root:#x}");
        }
        // Trees that mode rstp does not have.
        for key in [TreeKey::Vlan(VlanId::new(10).expect("a VLAN")), TreeKey::Mst(0)] {
            assert_eq!(core.root_primary_priority(key), Some(24_576));
        }
    }

    #[test]
    fn counters_and_detected_protocols_are_cleared_of_one_port_or_of_all() {
        let (bench, mut core) = switch(RSTP);
        // A port tries RSTP for three seconds before it detects STP.
        bench.clock.set(3_001);
        core.tick();
        for name in ["eth1", "eth2"] {
            receive(&bench, &mut core, name, 0, 0x10);
        }
        // The number of received BPDUs, and true if the port has changed to STP.
        let ports = |core: &mut Core| {
            let tree = core.spanning_tree().instances.remove(0);
            let of = |at: usize| (tree.ports[at].detail.bpdus.rx(), tree.ports[at].detail.stp_neighbour);
            [of(0), of(1)]
        };
        assert_eq!(ports(&mut core), [(1, true), (1, true)]);
        core.clear_spanning_tree_counters(Some(&eth("eth1"))).expect("a port in spanning tree");
        assert_eq!(ports(&mut core), [(0, true), (1, true)]);
        core.clear_detected_protocols(Some(&eth("eth2"))).expect("a port in spanning tree");
        assert_eq!(ports(&mut core), [(0, true), (1, false)]);
        core.clear_spanning_tree_counters(None).expect("all ports");
        core.clear_detected_protocols(None).expect("all ports");
        assert_eq!(ports(&mut core), [(0, false), (0, false)]);
    }

    /// No event reports that the bridge has ended, or that a port has left it.
    #[test]
    fn a_port_that_bpdu_guard_has_shut_down_comes_up_without_spanning_tree() {
        let guarded = RSTP.replacen(" switchport\n", " switchport\n spanning-tree bpduguard enable\n", 1);
        let off = guarded.replace("spanning-tree mode rstp\n", "");
        let left = format!("{guarded}\nmonitor session 1 destination interface eth1");
        for next in [off, left] {
            let (bench, mut core) = switch(&guarded);
            receive(&bench, &mut core, "eth1", 2, 0x10);
            core.tick();
            assert_eq!((core.err_disabled().len(), bench.kernel.get("eth1").admin_up), (1, false));
            core.commit(config(&next)).expect("taken");
            assert_eq!((core.err_disabled().len(), bench.kernel.get("eth1").admin_up), (0, true), "{next}");
        }
    }

    #[test]
    fn interfaces_outside_spanning_tree_are_refused() {
        let (_bench, mut core) = switch(RSTP);
        let (_other, mut off) = switch("interface eth1\n switchport");
        for (core, names) in [(&mut core, &["eth3", "eth9"][..]), (&mut off, &["eth1"])] {
            for name in names {
                let want = Err(Refusal(format!("{name} takes no part in spanning tree")));
                assert_eq!(core.clear_spanning_tree_counters(Some(&eth(name))), want);
                assert_eq!(core.clear_detected_protocols(Some(&eth(name))), want);
            }
        }
        assert_eq!(
            (off.clear_spanning_tree_counters(None), off.clear_detected_protocols(None)),
            (Ok(()), Ok(()))
        );
    }
}
