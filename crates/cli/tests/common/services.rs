//! Views of sFlow, tracks, VRRP, the relays and FPM, made from the configuration.

use super::Fake;
use lanyard_cli::backend::Services;
use lanyard_cli::view;
use lanyard_config::InterfaceName;
use lanyard_types::{Family, MacAddr};
use std::net::IpAddr;

impl Services for Fake {
    fn erspan(&mut self, _: u16) -> view::ErspanState {
        let dropped = view::ErspanDrops { no_route: 3, ..view::ErspanDrops::default() };
        view::ErspanState { running: true, error: None, sent: 1200, truncated: 4, dropped }
    }
    fn erspan_received(&mut self, _: u16) -> view::ErspanReceived {
        view::ErspanReceived {
            running: true,
            received: 900,
            truncated: 2,
            sent: 898,
            dropped: view::ErspanPortDrops { too_long: 2, ..view::ErspanPortDrops::default() },
            packets_dropped: view::ErspanPacketDrops { unknown_id: 7, ..view::ErspanPacketDrops::default() },
            ..view::ErspanReceived::default()
        }
    }
    fn sflow(&mut self) -> view::SflowView {
        let sflow = &self.config.sflow;
        let sampled = self.config.interfaces.iter().filter(|(_, interface)| interface.sflow);
        view::SflowView {
            running: !sflow.collectors.is_empty(),
            error: None,
            agent_address: sflow.agent,
            source_address: None,
            sampling_rate: sflow.rate,
            polling_interval_s: sflow.polling_s,
            collectors: sflow
                .collectors
                .iter()
                .map(|(address, port)| view::SflowCollector {
                    address: *address,
                    port: *port,
                    datagrams: 12,
                    failed: 0,
                })
                .collect(),
            interfaces: (3..)
                .zip(sampled)
                .map(|(ifindex, (name, _))| view::SflowInterface {
                    interface: name.to_string(),
                    ifindex,
                    samples: 100,
                    pool: 409_600,
                    drops: 1,
                    counter_samples: 7,
                })
                .collect(),
        }
    }
    fn tracks(&mut self) -> view::Tracks {
        let view = |(number, track): (&u16, &lanyard_config::layer3::Track)| view::TrackView {
            track: *number,
            object: lanyard_config::layer3::track_object(&track.object),
            up: true,
            pending_s: (track.down_s > 0).then_some(3),
            changes: 2,
            last_change_s: 65,
            delay_up_s: track.up_s,
            delay_down_s: track.down_s,
            tracked_by: vec!["Static route 10.0.0.0/8".into()],
        };
        view::Tracks { tracks: self.config.tracks.iter().map(view).collect() }
    }
    fn vrrp(&mut self) -> view::Vrrps {
        let mut groups = Vec::new();
        for (name, interface) in &self.config.interfaces {
            for (group, vrrp) in &interface.layer3.vrrp {
                groups.push(view::VrrpView {
                    interface: name.to_string(),
                    group: *group,
                    description: vrrp.description.clone(),
                    shutdown: vrrp.shutdown,
                    state: if vrrp.shutdown { "init" } else { "master" },
                    address: vrrp.addresses.first().copied(),
                    secondary_addresses: vrrp.addresses.iter().skip(1).copied().collect(),
                    mac: MacAddr([0, 0, 0x5e, 0, 1, *group]),
                    priority: vrrp.priority,
                    configured_priority: vrrp.priority,
                    preempt: vrrp.preempt,
                    advertise_s: vrrp.advertise_s,
                    tracks_down: Vec::new(),
                });
            }
        }
        view::Vrrps { groups }
    }
    fn dhcp_relay(&mut self, family: Family) -> view::Relay {
        let servers = |interface: &lanyard_config::Interface| match family {
            Family::V4 => interface.layer3.helpers.iter().map(|h| h.address.into()).collect(),
            Family::V6 => {
                interface.layer3.relay_destinations.iter().map(|d| d.address.into()).collect::<Vec<IpAddr>>()
            }
        };
        let view = |(name, interface): (&InterfaceName, &lanyard_config::Interface)| view::RelayInterface {
            interface: name.to_string(),
            servers: servers(interface)
                .into_iter()
                .map(|address| view::RelayServer { address, vrf: None, interface: None })
                .collect(),
            trusted: interface.layer3.relay_trusted,
        };
        let mut interfaces: Vec<_> = self.config.interfaces.iter().map(view).collect();
        interfaces.retain(|interface| !interface.servers.is_empty());
        let counter = view::RelayCounter { counter: "to_server", messages: 4 };
        view::Relay { interfaces, counters: vec![counter], error: None }
    }
    fn fpm(&mut self) -> view::Fpm {
        view::Fpm {
            listening: self.config.fpm.map(|server| server.socket().to_string()),
            phase: "synced",
            client: Some("127.0.0.1:40112".into()),
            since_s: Some(75),
            routes: view::FpmRoutes { total: 4, offloaded: 2, trapped: 1, failed: 1 },
            next_hops: 3,
            next_hop_sets: 2,
            answers: 5,
            answers_read: Some(false),
            counters: vec![("sessions", 1), ("routes_set", 6)],
        }
    }
}

/// Policies in force at two ports: with a policer of three colours, and with the queues of a child policy.
pub fn service_policies() -> view::ServicePolicies {
    let policer = view::PolicerView {
        cir_bps: 1_000_000,
        bc_bytes: 31_250,
        pir_bps: Some(2_000_000),
        be_bytes: Some(62_500),
        conformed_packets: 90,
        conformed_bytes: 9_000,
        exceeded_packets: 7,
        exceeded_bytes: 700,
        violated_packets: 3,
        violated_bytes: 300,
    };
    let queue = view::QueueView {
        rate_bps: 500_000,
        ceil_bps: 1_000_000,
        depth_packets: 2,
        depth_bytes: 200,
        sent_packets: 40,
        sent_bytes: 4_000,
        dropped_packets: 5,
        limit: 64,
        limit_unit: "packets",
    };
    let class = |class: &str, child| view::ServiceClassView {
        class: class.into(),
        child,
        packets: 100,
        bytes: 10_000,
        police: None,
        queue: None,
    };
    let input = vec![
        view::ServiceClassView { police: Some(policer), ..class("VOICE", false) },
        class("class-default", false),
    ];
    let output = vec![
        class("class-default", false),
        view::ServiceClassView { queue: Some(queue), ..class("VOICE", true) },
    ];
    let at = |interface: &str, direction, policy: &str, classes| view::ServicePolicyView {
        interface: interface.into(),
        direction,
        policy: policy.into(),
        classes,
    };
    let service_policies = vec![at("eth1", "input", "EDGE", input), at("eth2", "output", "SHAPED", output)];
    view::ServicePolicies { service_policies }
}
