//! Views of port security, access control, first-hop security and login servers, and of access lists and service policies.

use super::{Fake, services};
use lanyard_cli::backend::Refusal;
use lanyard_cli::view;

impl lanyard_cli::backend::PortSecurity for Fake {
    fn port_security(&mut self) -> view::PortSecurityView {
        let port = view::SecurePort {
            interface: "eth1".into(),
            status: "secure-up",
            violation: "restrict",
            maximum: 3,
            total: 2,
            configured: 0,
            sticky: 1,
            sticky_learning: true,
            aging_min: 10,
            violations: 7,
            dropped: 7,
            last_source: "0200.0000.0009".parse().ok(),
            last_vlan: Some(10),
        };
        let address = |mac: &str, kind, remaining_s| view::SecureAddressView {
            interface: "eth1".into(),
            vlan: 10,
            mac: mac.parse().expect("a MAC address"),
            kind,
            remaining_s,
        };
        let addresses =
            vec![address("0200.0000.0001", "sticky", None), address("0200.0000.0002", "dynamic", Some(90))];
        view::PortSecurityView { ports: vec![port], addresses }
    }
    fn clear_port_security(&mut self, filter: &lanyard_cli::backend::SecureFilter) {
        self.cleared.push(format!("port security {filter:?}"));
    }
}

impl lanyard_cli::backend::Guard for Fake {
    fn guard(&mut self) -> view::Guard {
        let port = |interface: &str, trusted: bool| view::GuardPort {
            interface: interface.into(),
            dhcp_trusted: trusted,
            dhcp_rate_pps: (!trusted).then_some(20),
            arp_trusted: trusted,
            arp_rate_pps: (!trusted).then_some(15),
            arp_burst_interval_s: 1,
            verify_source: if trusted { "off" } else { "ip-mac" },
            raguard: !trusted,
            dhcp_guard: false,
            dropped: if trusted {
                Default::default()
            } else {
                [("arp_inspection", 5), ("dhcp_server", 2), ("source_guard", 7)].into()
            },
        };
        let binding = |mac: &str, last: u8, kind, lease_s| view::GuardBinding {
            mac: mac.parse().expect("a MAC address"),
            address: [10, 0, 0, last].into(),
            vlan: 10,
            interface: "eth1".into(),
            kind,
            lease_s,
        };
        view::Guard {
            dhcp_snooping: true,
            dhcp_vlans: vec![10, 20],
            operational_vlans: vec![10],
            verify_mac: true,
            information_option: true,
            arp_vlans: vec![10],
            validate_ip: true,
            ports: vec![port("eth1", false), port("eth2", true)],
            bindings: vec![
                binding("0200.0000.0001", 5, "dhcp-snooping", Some(3600)),
                binding("0200.0000.0002", 6, "static", None),
            ],
            capacity: 16_384,
            forwarded: 12,
            dropped: [("source_mac_mismatch", 1), ("malformed", 0)].into(),
            ..view::Guard::default()
        }
    }
    fn clear_snooped(&mut self, filter: &lanyard_cli::backend::SnoopedFilter) {
        self.cleared.push(format!("snooped {filter:?}"));
    }
    fn clear_snooped_statistics(&mut self) {
        self.cleared.push("snooping statistics".into());
    }
    fn nd_inspection(&mut self) -> view::NdInspection {
        let port = |interface: &str, trusted: bool| view::NdPort {
            interface: interface.into(),
            trusted,
            address_limit: 128,
            addresses: if trusted { 0 } else { 2 },
            source_guard: !trusted,
            dropped: if trusted {
                Default::default()
            } else {
                [("nd_inspection", 3), ("source_guard", 7)].into()
            },
        };
        let binding = |address: &str, kind, state, left_s| view::NeighborBinding {
            address: address.parse().expect("an address"),
            mac: "0200.0000.0001".parse().expect("a MAC address"),
            vlan: 10,
            interface: "eth1".into(),
            kind,
            state,
            left_s,
        };
        view::NdInspection {
            vlans: vec![10, 20],
            operational_vlans: vec![10],
            interfaces: vec![port("eth1", false), port("eth2", true)],
            forwarded: 12,
            dropped: [("binding_mismatch", 2), ("malformed", 0)].into(),
            dropped_by_plane: 3,
            probes: 5,
            refused: 0,
            bindings: vec![
                binding("fe80::1", "nd", "REACHABLE", Some(271)),
                binding("2001:db8::1", "static", "REACHABLE", None),
            ],
            capacity: 16_384,
        }
    }
    fn clear_neighbor_bindings(&mut self, filter: &lanyard_cli::backend::SnoopedFilter) {
        self.cleared.push(format!("neighbor bindings {filter:?}"));
    }
    fn clear_nd_statistics(&mut self) {
        self.cleared.push("ND statistics".into());
    }
}

impl lanyard_cli::backend::AccessControl for Fake {
    fn access_control(&mut self) -> view::AccessControl {
        let port = |interface: &str, mab: bool| view::AccessPort {
            interface: interface.into(),
            port_control: "auto",
            host_mode: if mab { "multi-auth" } else { "single-host" },
            authorized: !mab,
            vlan: if mab { 10 } else { 20 },
            authenticator: !mab,
            mab,
            periodic: mab,
            reauthenticate_s: Some(3600),
            quiet_period_s: 60,
            tx_period_s: 30,
            supp_timeout_s: 30,
            max_req: 2,
            max_reauth_req: 2,
            dropped: 7,
        };
        let session = |interface: &str, mac: &str, id: u8, mab: bool| view::AuthenticationSession {
            interface: interface.into(),
            mac: mac.parse().expect("a MAC address"),
            session_id: format!("0A000001000000{id:02}"),
            method: if mab { "mab" } else { "dot1x" },
            status: if mab { "failed" } else { "authorized" },
            authorized_by: (!mab).then_some("dot1x"),
            vlan: (!mab).then_some(20),
            user: if mab { String::new() } else { "alice".into() },
            age_s: 12,
            timeout_s: (!mab).then_some(3588),
            timeout_action: "reauthenticate",
        };
        view::AccessControl {
            system_auth_control: true,
            ports: vec![port("eth1", false), port("eth2", true)],
            sessions: vec![
                session("eth1", "0200.0000.0001", 1, false),
                session("eth2", "0200.0000.0002", 2, true),
            ],
            servers: vec![view::RadiusServerView {
                address: "10.0.0.9".into(),
                auth_port: 1812,
                state: "up",
                requests: 9,
                retransmissions: 1,
                timeouts: 0,
                accepts: 3,
                rejects: 1,
                challenges: 5,
                invalid: 0,
            }],
        }
    }
    fn clear_authentications(
        &mut self,
        filter: &lanyard_cli::backend::AuthenticationFilter,
    ) -> Result<(), Refusal> {
        self.cleared.push(format!("authentications {filter:?}"));
        Ok(())
    }
}

impl lanyard_cli::backend::LoginServers for Fake {
    fn tacacs(&mut self) -> view::TacacsServers {
        view::TacacsServers {
            servers: vec![view::TacacsServerView {
                name: "T1".into(),
                address: "10.0.0.8".into(),
                port: 49,
                state: "up",
                socket_opens: 9,
                socket_closes: 7,
                socket_aborts: 1,
                socket_errors: 0,
                socket_timeouts: 1,
                failed_connects: 2,
                packets_sent: 15,
                packets_received: 14,
                invalid: 0,
                accepts: 5,
                rejects: 2,
            }],
        }
    }
}

impl lanyard_cli::backend::AccessLists for Fake {
    fn access_list_matches(&mut self, _: &str) -> std::collections::BTreeMap<u32, u64> {
        [(10, 1), (20, 5)].into()
    }
    fn clear_access_list_matches(&mut self, only: Option<&str>) {
        self.cleared.push(format!("access list {only:?}"));
    }
    fn minute(&self) -> lanyard_acl::time::Minute {
        // A Monday.
        lanyard_acl::time::Minute::of(2026, 11, 23, 12, 0).expect("a date")
    }
}

impl lanyard_cli::backend::QualityOfService for Fake {
    fn service_policies(&mut self) -> view::ServicePolicies {
        services::service_policies()
    }
    fn clear_service_policies(&mut self, interface: Option<&str>) {
        self.cleared.push(format!("service policies {interface:?}"));
    }
}
