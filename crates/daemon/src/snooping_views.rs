//! The commands that show and clear what multicast snooping has learned.

use crate::core::Core;
use lanyard_cli::{backend, view};
use lanyard_config::{FamilySnooping, SnoopingSettings};
use lanyard_pipeline::state::Unregistered;
use lanyard_snoop::{Counters, Flood, GroupView, MAX_MEMBERSHIPS, MessageError, VlanConfig};
use lanyard_types::{Family, PortId, VlanId};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The protocol thread's state of a VLAN.
struct Known {
    config: VlanConfig,
    groups: Vec<GroupView>,
    routers: Vec<(PortId, Option<u64>)>,
    querier: Option<(IpAddr, bool)>,
    counters: Counters,
    flooded: Flood,
}

impl backend::Multicast for Core {
    fn snooping(&mut self, family: Family) -> view::Snooping {
        let (now, memberships, known) = self.ctx.protocols.with(move |engine| {
            let machines = engine.snooping.machines();
            let vlans = machines.config().vlans.iter().filter(|((_, of), _)| *of == family);
            let known = vlans.map(|((vlan, _), config)| {
                let known = Known {
                    config: config.clone(),
                    groups: machines.groups(*vlan, family),
                    routers: machines.routers(*vlan, family),
                    querier: machines.querier(*vlan, family),
                    counters: machines.counters(*vlan, family).unwrap_or_default(),
                    flooded: machines.flooded(*vlan, family),
                };
                (*vlan, known)
            });
            (engine.now(), machines.memberships(), known.collect::<BTreeMap<VlanId, Known>>())
        });
        let settings = self.ctx.switch.config().snooping.of(family);
        let vlans = self.ctx.plane.state().vlans.keys();
        view::Snooping {
            protocol: if family == Family::V4 { "igmp" } else { "mld" },
            enabled: settings.on,
            supported: self.ctx.plane.capabilities().multicast,
            report_suppression: settings.report_suppression,
            proxy: settings.proxy,
            tcn_flood_query_count: settings.tcn_flood_count,
            tcn_query_solicit: settings.tcn_solicit,
            memberships,
            max_memberships: MAX_MEMBERSHIPS,
            vlans: vlans.map(|vlan| self.snooped(now, *vlan, settings, known.get(vlan))).collect(),
        }
    }

    fn clear_snooping(&mut self, family: Family) {
        self.ctx.protocols.change(move |engine| engine.snooping.machines_mut().clear(family));
    }
}

impl Core {
    fn snooped(
        &self,
        now: u64,
        vlan: VlanId,
        settings: &FamilySnooping,
        known: Option<&Known>,
    ) -> view::SnoopingVlan {
        let own: SnoopingSettings = settings.settings(vlan);
        let unregistered = match own.unregistered.unwrap_or_default() {
            Unregistered::Flood => "flood",
            Unregistered::Routers => "mrouter",
        };
        let number = vlan.get();
        let Some(known) = known else {
            return view::SnoopingVlan {
                vlan: number,
                unregistered,
                flooding: "all",
                ..view::SnoopingVlan::default()
            };
        };
        let config = &known.config;
        let name = |port: PortId| self.ctx.port_name(port).to_string();
        let left_s = |at: u64| at.saturating_sub(now).div_ceil(1000);
        let group = |group: &GroupView| view::SnoopingGroup {
            vlan: number,
            group: view::IpAddrText(group.group),
            sources: group.sources.clone(),
            mode: match (group.exclude || group.expires_ms.is_none(), group.sources.is_empty()) {
                (true, true) => "any",
                (true, false) => "exclude",
                (false, _) => "include",
            },
            ports: group.ports.iter().map(name).collect(),
            expires_s: group.expires_ms.map(left_s),
        };
        let router = |(port, until): &(PortId, Option<u64>)| view::SnoopingRouter {
            vlan: number,
            interface: name(*port),
            kind: if until.is_some() { "dynamic" } else { "static" },
        };
        view::SnoopingVlan {
            vlan: number,
            enabled: true,
            immediate_leave: config.immediate_leave,
            robustness: config.robustness,
            last_member_query_count: config.last_member_count,
            last_member_query_interval_ms: config.last_member_ms,
            unregistered,
            flooding: match known.flooded {
                Flood::Nothing => "none",
                Flood::Unregistered => "unregistered",
                Flood::All => "all",
            },
            counters: counters(&known.counters),
            querier: view::SnoopingQuerier {
                querier_enabled: config.querier.is_some(),
                querier_address: known.querier.map(|(address, _)| address),
                querier_is_self: known.querier.is_some_and(|(_, own)| own),
                querier_version: config.querier.map_or(0, |querier| querier.version),
                query_interval_s: config.query_interval_s,
                max_response_time_s: config.max_response_ms / 1000,
            },
            groups: known.groups.iter().map(group).collect(),
            mrouters: known.routers.iter().map(router).collect(),
        }
    }
}

fn counters(counters: &Counters) -> BTreeMap<&'static str, u64> {
    let mut all = BTreeMap::from([
        ("queries_received", counters.queries),
        ("reports_received", counters.reports),
        ("leaves_received", counters.leaves),
        ("router_messages_received", counters.routers),
        ("queries_sent", counters.sent),
        ("reports_sent", counters.proxied),
        ("refused_no_room", counters.refused),
    ]);
    all.extend(MessageError::ALL.iter().zip(counters.errors).map(|(error, count)| (error.name(), count)));
    all
}
