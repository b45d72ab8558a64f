//! The commands that show and clear the state of first-hop security.

use crate::core::Core;
use crate::guard::port_of;
use lanyard_cli::backend::{self, SnoopedFilter};
use lanyard_cli::view;
use lanyard_guard::{Counters, Drop, Lease, NdDrop, Neighbour, State};
use lanyard_pipeline::state::{PortKind, PortState};
use lanyard_types::{ArpLimit, DropReason, MAX_BINDINGS, PortId, Stage, VerifySource, VlanSet};
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
        self.ctx.protocols.with(|engine| engine.guard.snooper_mut().clear_counters());
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
        self.ctx.protocols.with(|engine| engine.guard.inspector_mut().clear_counters());
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

    fn guarded_ports(&mut self) -> Vec<view::GuardPort> {
        // The destination port of a monitor session drops all frames that it receives.
        let is_bridge = |port: &PortState| port.kind == PortKind::Netdev && !port.stages.mirror.destination;
        let bridges = self.ctx.plane.state().ports.iter().filter(|(_, port)| is_bridge(port));
        let ports: Vec<_> = bridges.map(|(id, port)| (*id, port.name.clone(), port.stages.guard)).collect();
        let mut shown: Vec<view::GuardPort> = Vec::new();
        for (id, interface, guard) in ports {
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
        let bridges = self.ctx.plane.state().ports.iter().filter(|(_, port)| port.kind == PortKind::Netdev);
        let ports: Vec<_> = bridges.map(|(id, port)| (*id, port.name.clone(), port.stages.guard)).collect();
        let mut counts: BTreeMap<PortId, u32> = BTreeMap::new();
        neighbours.iter().for_each(|(neighbour, ..)| *counts.entry(neighbour.owner.port).or_default() += 1);
        let mut shown: Vec<view::NdPort> = Vec::new();
        for (id, interface, guard) in ports {
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
