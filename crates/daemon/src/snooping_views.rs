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
                    flooded: match machines.flooded(*vlan, family) {
                        Flood::Nothing if engine.snooping.has_refused(*vlan, family) => Flood::Unregistered,
                        flooded => flooded,
                    },
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
            mode: match (group.exclude, group.sources.is_empty()) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, config};
    use lanyard_cli::backend::{Configuration, Multicast as _};
    use lanyard_cli::view::SnoopingVlan;
    use lanyard_plane::PlaneError;
    use lanyard_wire::ip::ones_complement_sum;

    /// A switch with three ports in VLAN 1.
    fn switch(lines: &str) -> (Bench, Core) {
        let bench = Bench::new();
        let mut core = bench.core();
        let mut text = String::new();
        for name in ["eth1", "eth2", "eth3"] {
            bench.plug(&mut core, &[name]);
            text += &format!("interface {name}\n switchport\n");
        }
        core.commit(config(&(text + lines))).expect("taken");
        core.tick();
        (bench, core)
    }

    /// Receives an IGMP message of 10.0.0.9. Its checksum is right unless the message contains another one.
    fn receive(bench: &Bench, core: &mut Core, name: &str, [a, b, c, d]: [u8; 4], mut igmp: Vec<u8>) {
        if igmp[2..4] == [0, 0] {
            let sum = !ones_complement_sum(&igmp);
            igmp[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        let length = 24 + igmp.len() as u8;
        let mut packet =
            vec![0x46, 0, 0, length, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 9, a, b, c, d, 0x94, 4, 0, 0];
        let sum = !ones_complement_sum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let header = vec![1, 0, 0x5e, b & 0x7f, c, d, 2, 0, 0, 0, 0, 9, 0x08, 0x00];
        let mut frame = [header, packet, igmp].concat();
        frame.resize(frame.len().max(60), 0);
        let port = core.ctx.switch.ports().get(name).expect("a port");
        bench.ports.borrow().as_ref().expect("a plane").push(port, &frame);
        core.plane_events();
        core.tick();
    }

    /// VLAN 1 for IGMP.
    fn first(core: &mut Core) -> SnoopingVlan {
        core.snooping(Family::V4).vlans.remove(0)
    }

    #[test]
    fn vlans_are_shown_with_their_settings_or_as_not_snooped() {
        let (_bench, mut core) = switch(
            "vlan 10\nvlan 20\nno ip igmp snooping vlan 20\nip igmp snooping last-member-query-interval 500\n\
             ip igmp snooping unregistered mrouter\nip igmp snooping vlan 10 unregistered flood\n\
             ip igmp snooping vlan 10 immediate-leave\nip igmp snooping vlan 10 robustness-variable 3",
        );
        let row = |vlan: &SnoopingVlan| {
            let last_ms = vlan.last_member_query_interval_ms;
            let flags = (vlan.enabled, vlan.immediate_leave);
            (vlan.vlan, flags, vlan.robustness, last_ms, vlan.unregistered, vlan.flooding)
        };
        let want = [
            (1, (true, false), 2, 500, "mrouter", "none"),
            (10, (true, true), 3, 500, "flood", "none"),
            (20, (false, false), 0, 0, "mrouter", "all"),
        ];
        let view = core.snooping(Family::V4);
        assert_eq!((view.protocol, view.enabled, view.supported), ("igmp", true, true));
        assert_eq!(view.vlans.iter().map(row).collect::<Vec<_>>(), want);
        let view = core.snooping(Family::V6);
        assert_eq!((view.protocol, view.enabled), ("mld", false), "MLD snooping is off by default");
        assert!(view.vlans.iter().all(|vlan| !vlan.enabled && vlan.flooding == "all"));
    }

    #[test]
    fn groups_are_shown_with_their_filter_until_they_are_cleared() {
        const IS_EXCLUDE: u8 = 2;
        const ALLOW: u8 = 5;
        let (bench, mut core) = switch(
            "ip igmp snooping vlan 1 static 239.1.1.1 interface eth2\n\
             ip igmp snooping vlan 1 static 239.1.1.4 interface eth3",
        );
        receive(&bench, &mut core, "eth1", [239, 1, 1, 1], vec![0x16, 0, 0, 0, 239, 1, 1, 1]);
        bench.clock.set(10_000);
        for (name, kind, group, source) in [("eth1", ALLOW, 2, 7), ("eth2", IS_EXCLUDE, 3, 8)] {
            let record = [kind, 0, 0, 1, 239, 1, 1, group, 10, 0, 0, source];
            let report = [&[0x22, 0, 0, 0, 0, 0, 0, 1][..], &record].concat();
            receive(&bench, &mut core, name, [224, 0, 0, 22], report);
        }
        bench.clock.set(10_001);
        let groups = |core: &mut Core| -> Vec<String> {
            let text = |it: view::SnoopingGroup| {
                format!(
                    "{} {} {:?} {} {:?}",
                    it.group.0,
                    it.mode,
                    it.sources,
                    it.ports.join(","),
                    it.expires_s
                )
            };
            first(core).groups.into_iter().map(text).collect()
        };
        let want = [
            "239.1.1.1 any [] eth1,eth2 Some(250)",
            "239.1.1.2 include [10.0.0.7] eth1 Some(260)",
            "239.1.1.3 exclude [10.0.0.8] eth2 Some(260)",
            "239.1.1.4 any [] eth3 None",
        ];
        for (cleared, memberships, want) in [
            (Family::V6, 3, &want[..]),
            (Family::V4, 0, &["239.1.1.1 any [] eth2 None", "239.1.1.4 any [] eth3 None"]),
        ] {
            core.clear_snooping(cleared);
            assert_eq!(groups(&mut core), want);
            assert_eq!(core.snooping(Family::V4).memberships, memberships, "without static members");
        }
    }

    /// The filter of a group is that of all its ports together: a source that one port excludes and another one wants is
    /// forwarded.
    #[test]
    fn a_group_is_shown_with_the_filter_of_all_its_ports() {
        const IS_INCLUDE: u8 = 1;
        const IS_EXCLUDE: u8 = 2;
        let (bench, mut core) = switch("ip igmp snooping vlan 1 static 239.1.1.1 interface eth3");
        let report = |core: &mut Core, name: &str, kind: u8, group: u8, sources: &[u8]| {
            let mut report =
                vec![0x22, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, sources.len() as u8, 239, 1, 1, group];
            sources.iter().for_each(|source| report.extend([10, 0, 0, *source]));
            receive(&bench, core, name, [224, 0, 0, 22], report);
        };
        report(&mut core, "eth1", IS_INCLUDE, 1, &[7]);
        report(&mut core, "eth1", IS_INCLUDE, 2, &[7]);
        report(&mut core, "eth2", IS_EXCLUDE, 2, &[7, 8]);
        report(&mut core, "eth1", IS_INCLUDE, 3, &[7]);
        report(&mut core, "eth2", IS_EXCLUDE, 3, &[]);
        report(&mut core, "eth1", IS_INCLUDE, 4, &[7]);
        report(&mut core, "eth2", IS_INCLUDE, 4, &[8]);
        let text = |it: view::SnoopingGroup| format!("{} {} {:?}", it.group.0, it.mode, it.sources);
        assert_eq!(
            first(&mut core).groups.into_iter().map(text).collect::<Vec<_>>(),
            [
                "239.1.1.1 any []",
                "239.1.1.2 exclude [10.0.0.8]",
                "239.1.1.3 any []",
                "239.1.1.4 include [10.0.0.7, 10.0.0.8]",
            ]
        );
    }

    #[test]
    fn a_vlan_whose_entry_the_plane_refuses_is_shown_as_flooding_unregistered_groups() {
        let (bench, mut core) = switch("");
        let full = PlaneError::TableFull { table: "mdb", size: 1 };
        for (refused, group, want) in [(None, 1, "none"), (Some(full), 2, "unregistered")] {
            *bench.plane.refuses_groups.lock() = refused;
            let report = vec![0x16, 0, 0, 0, 239, 1, 1, group];
            receive(&bench, &mut core, "eth1", [239, 1, 1, group], report);
            assert_eq!(first(&mut core).flooding, want);
        }
    }

    #[test]
    fn a_querier_and_its_port_are_shown_until_they_are_silent() {
        let (bench, mut core) = switch(
            "ip igmp snooping querier\nip igmp snooping querier address 10.0.0.20\n\
             ip igmp snooping vlan 1 mrouter interface eth2",
        );
        let state = |core: &mut Core| {
            let SnoopingVlan { querier, mrouters, .. } = first(core);
            let address = querier.querier_address.map(|address| address.to_string()).unwrap_or_default();
            let ports: Vec<_> = mrouters.iter().map(|it| format!("{} {}", it.interface, it.kind)).collect();
            (address, querier.querier_is_self, ports.join(", "))
        };
        let own = ("10.0.0.20".to_owned(), true, "eth2 static".to_owned());
        assert_eq!(state(&mut core), own);
        // The lower address wins.
        receive(&bench, &mut core, "eth3", [224, 0, 0, 1], vec![0x11, 100, 0, 0, 0, 0, 0, 0]);
        let other = ("10.0.0.9".to_owned(), false, "eth2 static, eth3 dynamic".to_owned());
        assert_eq!(state(&mut core), other);
        receive(&bench, &mut core, "eth1", [239, 1, 1, 1], vec![0x16, 0, 1, 1, 239, 1, 1, 1]);
        let mut counters = first(&mut core).counters;
        counters.retain(|_, count| *count > 0);
        assert_eq!(counters, [("checksum", 1), ("queries_received", 1), ("queries_sent", 1)].into());
        for (now_ms, want) in [(254_999, other), (255_000, own)] {
            bench.clock.set(now_ms);
            core.tick();
            assert_eq!(state(&mut core), want, "{now_ms}");
        }
    }
}
