//! The fake backend's views of discovery and of multicast snooping.

use super::Fake;
use lanyard_cli::backend::{Discovery, Multicast};
use lanyard_cli::view;
use lanyard_config::InterfaceName;
use lanyard_types::VlanId;

/// A neighbour at eth1 that speaks both protocols.
fn neighbour(protocol: lanyard_lldp::Protocol) -> view::DiscoveryNeighbour {
    let lldp = protocol == lanyard_lldp::Protocol::Lldp;
    view::DiscoveryNeighbour {
        interface: "eth1".into(),
        chassis_id: if lldp { "02:00:00:00:00:09" } else { "sw2" }.into(),
        port_id: "Gi0/1".into(),
        system_name: Some("sw2".into()),
        ttl_s: 98,
        protocol: protocol.name(),
        details: view::DiscoveryDetails {
            hold_time_s: 120,
            port_description: Some("to sw1".into()),
            system_description: Some("A switch\nof two lines".into()),
            platform: (!lldp).then(|| "WS-C3560".into()),
            capabilities: if lldp { "B,R" } else { "R S I" }.into(),
            enabled_capabilities: if lldp { "B" } else { "R S I" }.into(),
            management_addresses: vec!["10.0.0.2".parse().unwrap(), "2001:db8::2".parse().unwrap()],
            addresses: vec!["10.0.0.2".parse().unwrap()],
            vlan: Some(1),
            auto_negotiation: lldp.then_some(view::DiscoveryAutoNegotiation {
                supported: true,
                enabled: true,
                mau_type: 30,
            }),
            link_aggregation: lldp.then_some(view::DiscoveryAggregation {
                supported: true,
                ..view::DiscoveryAggregation::default()
            }),
            max_frame_size: lldp.then_some(1518),
            full_duplex: (!lldp).then_some(true),
            version: (!lldp).then_some(2),
            med: lldp.then(|| view::DiscoveryMed {
                device_type: 3,
                inventory: [("model", "phone".to_owned())].into(),
                locations: vec!["ELIN 4930901820".into()],
                policies: vec!["voice, VLAN 30, tagged, priority 5, DSCP 46".into()],
            }),
        },
    }
}

impl Discovery for Fake {
    fn neighbours_of(
        &mut self,
        protocol: lanyard_lldp::Protocol,
        only: Option<&InterfaceName>,
    ) -> view::DiscoveryNeighbours {
        let all = vec![neighbour(protocol)];
        let wanted =
            |known: &view::DiscoveryNeighbour| only.is_none_or(|only| only.to_string() == known.interface);
        view::DiscoveryNeighbours { neighbors: all.into_iter().filter(wanted).collect() }
    }
    fn discovery(&mut self, protocol: lanyard_lldp::Protocol) -> view::DiscoveryState {
        let settings = &self.config.discovery;
        let lldp = protocol == lanyard_lldp::Protocol::Lldp;
        let port =
            |(name, interface): (&InterfaceName, &lanyard_config::Interface)| view::DiscoveryInterface {
                interface: name.to_string(),
                link_up: true,
                transmit: if lldp { interface.discovery.lldp_transmit } else { interface.discovery.cdp },
                receive: if lldp { interface.discovery.lldp_receive } else { interface.discovery.cdp },
                tx_state: lldp.then_some("IDLE"),
                rx_state: lldp.then_some("WAIT FOR FRAME"),
                frames_out: 12,
                frames_in: 10,
                frames_discarded: 2,
                errors: [("ttl", 1), ("checksum", 1)].into(),
                tlvs_discarded: 3,
                tlvs_unrecognized: 4,
                aged_out: 5,
                table_full: 6,
            };
        view::DiscoveryState {
            running: if lldp { settings.lldp_runs } else { settings.cdp_runs },
            timer_s: if lldp { settings.lldp.timer_s } else { settings.cdp.timer_s.into() },
            holdtime_s: if lldp { settings.lldp.holdtime_s } else { settings.cdp.holdtime_s.into() },
            reinit_s: lldp.then_some(settings.lldp.reinit_s),
            interfaces: self.config.interfaces.iter().map(port).collect(),
        }
    }
    fn clear_discovery_table(&mut self, protocol: lanyard_lldp::Protocol) {
        self.cleared.push(format!("table {protocol:?}"));
    }
    fn clear_discovery_counters(&mut self, protocol: lanyard_lldp::Protocol) {
        self.cleared.push(format!("counters {protocol:?}"));
    }
}

impl Multicast for Fake {
    fn snooping(&mut self, family: lanyard_types::Family) -> view::Snooping {
        let settings = self.config.snooping.of(family);
        let (group, source) = match family {
            lanyard_types::Family::V4 => ("239.1.1.1", "10.0.0.9"),
            lanyard_types::Family::V6 => ("ff05::101", "2001:db8::9"),
        };
        let address = |text: &str| text.parse::<std::net::IpAddr>().expect("an address");
        let group = |mode, sources: &[&str], expires_s| view::SnoopingGroup {
            vlan: 10,
            group: view::IpAddrText(address(group)),
            sources: sources.iter().map(|source| address(source)).collect(),
            mode,
            ports: vec!["eth1".into(), "eth2".into()],
            expires_s,
        };
        let vlan = view::SnoopingVlan {
            vlan: 10,
            enabled: settings.is_on(VlanId::new(10).expect("a VLAN")),
            immediate_leave: true,
            robustness: 2,
            last_member_query_count: 2,
            last_member_query_interval_ms: 1000,
            unregistered: "flood",
            flooding: "none",
            counters: [("reports", 7), ("queries", 0), ("error_checksum", 1)].into(),
            querier: view::SnoopingQuerier {
                querier_enabled: true,
                querier_address: Some(address(source)),
                querier_is_self: true,
                querier_version: 2,
                query_interval_s: 125,
                max_response_time_s: 10,
            },
            groups: vec![group("any", &[], Some(259)), group("exclude", &[source], None)],
            mrouters: vec![view::SnoopingRouter { vlan: 10, interface: "eth1".into(), kind: "dynamic" }],
        };
        view::Snooping {
            protocol: if family == lanyard_types::Family::V4 { "igmp" } else { "mld" },
            enabled: settings.on,
            supported: true,
            report_suppression: settings.report_suppression,
            proxy: settings.proxy,
            tcn_flood_query_count: settings.tcn_flood_count,
            tcn_query_solicit: settings.tcn_solicit,
            memberships: 4,
            max_memberships: 65_536,
            vlans: vec![vlan],
        }
    }
    fn clear_snooping(&mut self, family: lanyard_types::Family) {
        self.cleared.push(format!("snooping {family:?}"));
    }
}
