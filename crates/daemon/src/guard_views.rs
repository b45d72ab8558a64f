//! The commands that show and clear the state of first-hop security.

use crate::core::Core;
use crate::guard::port_of;
use lanyard_cli::backend::{self, SnoopedFilter};
use lanyard_cli::view;
use lanyard_guard::{Counters, Drop, Lease, NdDrop, Neighbour, State};
use lanyard_pipeline::state::{PortKind, PortState};
use lanyard_types::{
    ArpLimit, DropReason, Family, MAX_BINDINGS, PortGuard, PortId, Stage, VerifySource, VlanSet,
};
use std::collections::BTreeMap;

impl backend::Guard for Core {
    fn guard(&mut self) -> view::Guard {
        let (now, leases, counters, refused) = self.ctx.protocols.with(|engine| {
            let leases: Vec<Lease> = engine.guard.snooper().leases().copied().collect();
            (engine.now(), leases, *engine.guard.snooper().counters(), engine.guard.refused())
        });
        let Counters { forwarded, dropped, refused: unsnooped, .. } = counters;
        let guard = self.ctx.switch.config().guard.clone();
        let active = |set: &VlanSet| -> Vec<u16> {
            let vlans = &self.ctx.plane.state().vlans;
            set.iter().filter(|vlan| vlans.contains_key(vlan)).map(|vlan| vlan.get()).collect()
        };
        let all = |set: &VlanSet| set.iter().map(|vlan| vlan.get()).collect();
        view::Guard {
            dhcp_snooping: guard.dhcp,
            operational_vlans: if guard.dhcp { active(&guard.dhcp_vlans) } else { Vec::new() },
            dhcp_vlans: all(&guard.dhcp_vlans),
            verify_mac: guard.verify_mac,
            information_option: guard.option,
            allow_untrusted: guard.allow_untrusted,
            arp_vlans: all(&guard.arp_vlans),
            validate_src_mac: guard.validate.src_mac,
            validate_dst_mac: guard.validate.dst_mac,
            validate_ip: guard.validate.ip,
            allow_zeros: guard.validate.allow_zeros,
            bindings: self.bindings(now, leases),
            ports: self.guarded_ports(),
            capacity: MAX_BINDINGS,
            forwarded,
            dropped: Drop::ALL.iter().map(|reason| (reason.name(), dropped[*reason as usize])).collect(),
            refused: unsnooped + refused[0],
        }
    }

    fn clear_snooped(&mut self, filter: &SnoopedFilter) {
        let port = filter.interface.as_ref().map(|name| port_of(&self.ctx, name));
        let (vlan, address) = (filter.vlan, filter.address);
        self.ctx.protocols.change(move |engine| {
            engine.guard.snooper_mut().clear(|lease| {
                vlan.is_none_or(|vlan| vlan == lease.vlan)
                    && address.is_none_or(|address| address == lease.address)
                    && port.is_none_or(|port| port == Some(lease.port))
            });
        });
    }

    fn clear_snooped_statistics(&mut self) {
        self.ctx.protocols.with(|engine| {
            engine.guard.snooper_mut().clear_counters();
            engine.guard.clear_refused(Family::V4);
        });
    }

    fn nd_inspection(&mut self) -> view::NdInspection {
        let (now, neighbours, counters, refused) = self.ctx.protocols.with(|engine| {
            let neighbours: Vec<_> = engine.guard.inspector().neighbours().collect();
            (engine.now(), neighbours, *engine.guard.inspector().counters(), engine.guard.refused()[1])
        });
        let named = self.ctx.switch.config().guard.nd_vlans.clone();
        let vlans = &self.ctx.plane.state().vlans;
        let operational =
            named.iter().filter(|vlan| vlans.contains_key(vlan)).map(|vlan| vlan.get()).collect();
        let interfaces = self.nd_ports(&neighbours);
        let hidden = DropReason::NdInspection.name();
        view::NdInspection {
            vlans: named.iter().map(|vlan| vlan.get()).collect(),
            operational_vlans: operational,
            dropped_by_plane: interfaces.iter().filter_map(|port| port.dropped.get(hidden)).sum(),
            interfaces,
            forwarded: counters.forwarded,
            dropped: NdDrop::ALL
                .iter()
                .map(|reason| (reason.name(), counters.dropped[*reason as usize]))
                .collect(),
            probes: counters.probes,
            refused,
            bindings: self.neighbor_bindings(now, neighbours),
            capacity: MAX_BINDINGS,
        }
    }

    fn clear_neighbor_bindings(&mut self, filter: &SnoopedFilter) {
        let port = filter.interface.as_ref().map(|name| port_of(&self.ctx, name));
        let vlan = filter.vlan;
        self.ctx.protocols.change(move |engine| {
            engine.guard.inspector_mut().clear(|neighbour| {
                vlan.is_none_or(|vlan| vlan == neighbour.vlan)
                    && port.is_none_or(|port| port == Some(neighbour.owner.port))
            });
        });
    }

    fn clear_nd_statistics(&mut self) {
        self.ctx.protocols.with(|engine| {
            engine.guard.inspector_mut().clear_counters();
            engine.guard.clear_refused(Family::V6);
        });
    }
}

impl Core {
    /// The bindings of leases and of the configuration, by VLAN and address.
    fn bindings(&self, now: u64, leases: Vec<Lease>) -> Vec<view::GuardBinding> {
        let leased = leases.into_iter().map(|lease| view::GuardBinding {
            mac: lease.mac,
            address: lease.address,
            vlan: lease.vlan.get(),
            interface: self.ctx.port_name(lease.port).to_string(),
            kind: "dhcp-snooping",
            lease_s: lease.expires_ms.map(|at| at.saturating_sub(now).div_ceil(1000)),
        });
        let statics = &self.ctx.switch.config().guard.bindings;
        let fixed = statics.iter().map(|((vlan, address), binding)| view::GuardBinding {
            mac: binding.mac,
            address: *address,
            vlan: vlan.get(),
            interface: binding.interface.to_string(),
            kind: "static",
            lease_s: None,
        });
        let mut all: Vec<_> = leased.chain(fixed).collect();
        all.sort_by_key(|binding| (binding.vlan, binding.address));
        all
    }

    /// The ports to which first-hop security applies, with their names and settings.
    fn guarded(&self) -> Vec<(PortId, String, PortGuard)> {
        // The destination port of a monitor session drops all frames that it receives.
        let is_bridge = |port: &PortState| port.kind == PortKind::Netdev && !port.stages.mirror.destination;
        let bridges = self.ctx.plane.state().ports.iter().filter(|(_, port)| is_bridge(port));
        bridges.map(|(id, port)| (*id, port.name.clone(), port.stages.guard)).collect()
    }

    fn guarded_ports(&mut self) -> Vec<view::GuardPort> {
        let mut shown: Vec<view::GuardPort> = Vec::new();
        for (id, interface, guard) in self.guarded() {
            shown.push(view::GuardPort {
                interface,
                dhcp_trusted: guard.dhcp_trust,
                dhcp_rate_pps: guard.dhcp_rate,
                arp_trusted: guard.arp_trust,
                arp_rate_pps: guard.arp_bucket().map(|(rate, _)| rate),
                arp_burst_interval_s: match guard.arp_limit {
                    ArpLimit::Rate { interval_s, .. } => interval_s,
                    ArpLimit::Default | ArpLimit::None => 1,
                },
                verify_source: match guard.verify {
                    VerifySource::Off => "off",
                    VerifySource::Ip => "ip",
                    VerifySource::IpAndMac => "ip-mac",
                },
                raguard: guard.no_routers,
                dhcp_guard: guard.no_dhcpv6_servers,
                dropped: self.guarded_drops(id),
            });
        }
        shown.sort_by_cached_key(|port| lanyard_config::InterfaceName::Netdev(port.interface.clone()));
        shown
    }

    /// The bindings that were learned and those of the configuration, by VLAN and address.
    fn neighbor_bindings(
        &self,
        now: u64,
        neighbours: Vec<(Neighbour, State, u64)>,
    ) -> Vec<view::NeighborBinding> {
        let learned = neighbours.into_iter().map(|(neighbour, state, ends_ms)| view::NeighborBinding {
            address: neighbour.address,
            mac: neighbour.owner.mac,
            vlan: neighbour.vlan.get(),
            interface: self.ctx.port_name(neighbour.owner.port).to_string(),
            kind: "nd",
            state: state.name(),
            left_s: Some(ends_ms.saturating_sub(now).div_ceil(1000)),
        });
        let statics = &self.ctx.switch.config().guard.neighbors;
        let fixed = statics.iter().map(|((vlan, address), binding)| view::NeighborBinding {
            address: *address,
            mac: binding.mac,
            vlan: vlan.get(),
            interface: binding.interface.to_string(),
            kind: "static",
            state: State::Valid.name(),
            left_s: None,
        });
        let mut all: Vec<_> = learned.chain(fixed).collect();
        all.sort_by_key(|binding| (binding.vlan, binding.address));
        all
    }

    fn nd_ports(&mut self, neighbours: &[(Neighbour, State, u64)]) -> Vec<view::NdPort> {
        let mut counts: BTreeMap<PortId, u32> = BTreeMap::new();
        neighbours.iter().for_each(|(neighbour, ..)| *counts.entry(neighbour.owner.port).or_default() += 1);
        let mut shown: Vec<view::NdPort> = Vec::new();
        for (id, interface, guard) in self.guarded() {
            shown.push(view::NdPort {
                interface,
                trusted: guard.nd_trust,
                address_limit: guard.nd_limit,
                addresses: counts.get(&id).copied().unwrap_or(0),
                source_guard: guard.verify_ipv6,
                dropped: self.guarded_drops(id),
            });
        }
        shown.sort_by_cached_key(|port| lanyard_config::InterfaceName::Netdev(port.interface.clone()));
        shown
    }

    /// The frames that first-hop security has dropped at a port, by reason.
    fn guarded_drops(&mut self, port: PortId) -> BTreeMap<&'static str, u64> {
        let dropped = self.ctx.plane.port_counters(port).dropped;
        let reasons = DropReason::ALL.iter().filter(|reason| reason.stage() == Stage::Guard);
        let counts = reasons.map(|reason| (reason.name(), dropped[reason.index()]));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, config};
    use lanyard_cli::backend::{Configuration, Guard as _};
    use lanyard_config::InterfaceName;
    use lanyard_guard::Owner;
    use lanyard_types::{MacAddr, VlanId};

    /// A switch with four ports in VLAN 1, DHCP snooping, ND inspection, and further lines of configuration.
    fn switch(lines: &str) -> (Bench, Core) {
        let bench = Bench::new();
        let mut text =
            "ip dhcp snooping\nip dhcp snooping vlan 1,20,30\nipv6 nd inspection vlan 1,30\n".to_owned();
        for name in ["eth10", "eth3", "eth2", "eth1"] {
            bench.kernel.add(name);
            text += &format!("interface {name}\n switchport\n");
        }
        let mut core = bench.core();
        core.commit(config(&(text + lines))).expect("taken");
        (bench, core)
    }

    fn port(core: &Core, name: &str) -> PortId {
        core.ctx.switch.ports().get(name).expect("a port")
    }

    fn vlan(number: u16) -> VlanId {
        VlanId::new(number).expect("a VLAN")
    }

    fn mac(last: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, last])
    }

    fn at(name: &str) -> SnoopedFilter {
        SnoopedFilter { interface: Some(InterfaceName::Netdev(name.into())), ..SnoopedFilter::default() }
    }

    /// The addresses with bindings in the plane, in order.
    fn bound(core: &Core) -> Vec<String> {
        let held = core.ctx.protocols.with(|engine| engine.guard_and_io().1.plane.bindings());
        let held: std::collections::BTreeSet<_> = held.into_iter().map(|(key, _)| key.address).collect();
        held.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ports_are_shown_with_their_settings_in_natural_order() {
        let (_bench, mut core) = switch(
            "interface eth1\n ip dhcp snooping trust\n ip arp inspection trust\n\
             interface eth2\n ip dhcp snooping limit rate 7\n ip verify source port-security\n ipv6 nd raguard\n \
             ip arp inspection limit rate 20 burst interval 3\n\
             interface eth10\n ip verify source\n ipv6 dhcp guard\n\
             monitor session 1 source interface eth1\nmonitor session 1 destination interface eth3",
        );
        let row = |port: view::GuardPort| {
            let dhcp = (port.dhcp_trusted, port.dhcp_rate_pps);
            let arp = (port.arp_trusted, port.arp_rate_pps, port.arp_burst_interval_s);
            (port.interface, dhcp, arp, port.verify_source, (port.raguard, port.dhcp_guard))
        };
        // eth3 drops all frames that it receives, because it is the destination of a monitor session.
        let want = [
            ("eth1".to_owned(), (true, None), (true, None, 1), "off", (false, false)),
            ("eth2".to_owned(), (false, Some(7)), (false, Some(20), 3), "ip-mac", (true, false)),
            ("eth10".to_owned(), (false, None), (false, Some(15), 1), "ip", (false, true)),
        ];
        assert_eq!(core.guard().ports.into_iter().map(row).collect::<Vec<_>>(), want);
        let inspected: Vec<String> =
            core.nd_inspection().interfaces.into_iter().map(|port| port.interface).collect();
        assert_eq!(inspected, ["eth1", "eth2", "eth10"]);
    }

    #[test]
    fn clear_ends_the_leases_that_match_every_part_of_the_filter() {
        let (_bench, mut core) = switch(
            "vlan 20\nip source binding 0200.0000.0001 vlan 20 10.0.0.1 interface eth1\n\
             ip source binding 0200.0000.0007 vlan 1 10.0.0.7 interface eth1",
        );
        let leases = [("eth2", 9, Some(61_500)), ("eth10", 10, None)].map(|(name, last, expires_ms)| Lease {
            vlan: vlan(1),
            mac: mac(last),
            address: [10, 0, 0, last].into(),
            port: port(&core, name),
            expires_ms,
        });
        core.ctx.protocols.change(move |engine| engine.guard.snooper_mut().restore(0, &leases, &[]));
        let shown = core.guard();
        assert_eq!((shown.dhcp_vlans, shown.operational_vlans), (vec![1, 20, 30], vec![1, 20]));
        let row =
            |it: view::GuardBinding| (it.vlan, it.address.octets()[3], it.interface, it.kind, it.lease_s);
        let want = [
            (1, 7, "eth1".to_owned(), "static", None),
            (1, 9, "eth2".to_owned(), "dhcp-snooping", Some(62)),
            (1, 10, "eth10".to_owned(), "dhcp-snooping", None),
            (20, 1, "eth1".to_owned(), "static", None),
        ];
        assert_eq!(shown.bindings.into_iter().map(row).collect::<Vec<_>>(), want);
        let all = ["10.0.0.1", "10.0.0.7", "10.0.0.9", "10.0.0.10"];
        let address = |last| Some([10, 0, 0, last].into());
        for (filter, left) in [
            (at("eth1"), 4),
            (at("eth9"), 4),
            (SnoopedFilter { interface: Some(InterfaceName::Vlan(vlan(1))), ..SnoopedFilter::default() }, 4),
            (SnoopedFilter { vlan: Some(vlan(20)), ..SnoopedFilter::default() }, 4),
            (SnoopedFilter { address: address(7), ..SnoopedFilter::default() }, 4),
            (SnoopedFilter { address: address(9), ..at("eth10") }, 4),
            (SnoopedFilter { vlan: Some(vlan(1)), ..at("eth10") }, 3),
            (SnoopedFilter::default(), 2),
        ] {
            core.clear_snooped(&filter);
            assert_eq!(bound(&core), all[..left], "{filter:?}");
            assert_eq!(core.guard().bindings.len(), left, "{filter:?}");
        }
    }

    #[test]
    fn clear_forgets_learned_neighbours_and_statistics() {
        let (bench, mut core) = switch("ipv6 neighbor binding vlan 1 fe80::a interface eth1 0200.0000.0007");
        let eth2 = port(&core, "eth2");
        let neighbours = [(eth2, 9), (port(&core, "eth10"), 0x10)].map(|(port, last)| Neighbour {
            vlan: vlan(1),
            address: [0xfe80, 0, 0, 0, 0, 0, 0, u16::from(last)].into(),
            owner: Owner { port, mac: mac(last) },
        });
        core.ctx.protocols.change(move |engine| engine.guard.inspector_mut().restore(0, &neighbours, &[]));
        bench.clock.set(49_001);
        let shown = core.nd_inspection();
        assert_eq!((shown.vlans, shown.operational_vlans), (vec![1, 30], vec![1]));
        let row = |it: view::NeighborBinding| (it.address.segments()[7], it.interface, it.kind, it.left_s);
        // After a restart the owners are asked one after the other.
        let want = [
            (9, "eth2".to_owned(), "nd", Some(101)),
            (0xa, "eth1".to_owned(), "static", None),
            (0x10, "eth10".to_owned(), "nd", Some(176)),
        ];
        assert_eq!(shown.bindings.into_iter().map(row).collect::<Vec<_>>(), want);
        let counts: Vec<_> = shown.interfaces.iter().map(|port| port.addresses).collect();
        assert_eq!(counts, [0, 1, 0, 1], "static bindings are not counted");
        core.ctx.protocols.with(move |engine| {
            engine.guard.snooper_mut().handle_frame(0, vlan(1), eth2, &[]);
            engine.guard.inspector_mut().handle_frame(0, vlan(1), eth2, &[]);
        });
        let malformed =
            |core: &mut Core| (core.guard().dropped["malformed"], core.nd_inspection().dropped["malformed"]);
        assert_eq!(malformed(&mut core), (1, 1));
        core.clear_snooped_statistics();
        assert_eq!(malformed(&mut core), (0, 1));
        core.clear_nd_statistics();
        assert_eq!(malformed(&mut core), (0, 0));
        for (name, left) in [
            ("eth9", &["fe80::9", "fe80::a", "fe80::10"][..]),
            ("eth1", &["fe80::9", "fe80::a", "fe80::10"]),
            ("eth2", &["fe80::a", "fe80::10"]),
        ] {
            core.clear_neighbor_bindings(&at(name));
            assert_eq!(bound(&core), left, "{name}");
        }
    }
}
