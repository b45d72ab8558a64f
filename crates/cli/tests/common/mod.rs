//! A backend that consists of a configuration and fixed views, for tests of sessions.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

mod aggregation;
mod neighbours;
mod services;

use lanyard_cli::backend::{
    Access, Configuration, Entered, Family, Fdb, Files, Interfaces, MacFilter, Neighbors, Platform, Refusal,
    ReloadTime, RouteQuery, Routes, SafeChange, SpanningTree, System,
};
use lanyard_cli::sessions::ConfigSessions;
use lanyard_cli::window::Window;
use lanyard_cli::{Login, Session, view};
use lanyard_config::{Config, InterfaceName, Role};
use lanyard_switch::compile::port_names;
use lanyard_switch::spanning::lower;
use lanyard_switch::{Identity, PortIds};
use lanyard_types::{MacAddr, VlanId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What a program that sets the clock could answer.
pub fn ntp() -> view::Ntp {
    let server = view::NtpAssociation {
        address: "192.0.2.1".into(),
        state: "selected",
        reference: Some(".GPS.".into()),
        stratum: Some(1),
        last_answer_s: Some(23),
        poll_s: 64,
        reach: 0o377,
        delay_s: Some(0.001_25),
        offset_s: Some(-0.000_5),
        dispersion_s: Some(0.001),
    };
    let silent = view::NtpAssociation {
        address: "2001:db8::7".into(),
        state: "unusable",
        poll_s: 1024,
        ..view::NtpAssociation::default()
    };
    let status = view::NtpStatus {
        client: "chrony",
        synchronized: true,
        stratum: Some(2),
        reference: Some("192.0.2.1".into()),
        reference_time: Some("2026-01-01T00:00:00Z".into()),
        offset_s: Some(0.000_012),
        root_delay_s: Some(0.001_25),
        root_dispersion_s: Some(0.000_75),
        frequency_ppm: Some(-1.5),
        skew_ppm: Some(0.25),
        update_interval_s: Some(64.5),
    };
    view::Ntp { status, associations: vec![server, silent] }
}

/// The fake backend.
#[derive(Default)]
pub struct Fake {
    pub config: Config,
    pub netdevs: Vec<String>,
    pub startup: String,
    pub files: BTreeMap<String, String>,
    pub sessions: ConfigSessions,
    pub rollback: Option<(Config, u64)>,
    /// The texts of the checkpoints 1, 2...
    pub checkpoints: Vec<String>,
    /// True while the session has the lock of the configuration.
    pub is_locked: bool,
    pub reload: view::ScheduledReload,
    pub log: Vec<String>,
    pub cleared: Vec<String>,
    /// The commands of the audit log, each as `USER LINE HOST: COMMAND`.
    pub audited: Vec<String>,
    /// A commit whose text contains this is refused.
    pub refuses: Option<String>,
}

impl Fake {
    pub fn new(netdevs: &[&str]) -> Self {
        Self { netdevs: netdevs.iter().map(|n| (*n).to_owned()).collect(), ..Self::default() }
    }
}

/// A fixed, irregular sequence of choices.
pub fn picks(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |choices| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 16).unwrap_or(0) % choices.max(1)
    }
}

/// A privileged session without echo.
pub fn session() -> Session {
    Session::new(Login { line: "vty 0".into(), user: "root".into(), ..Login::default() })
}

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

fn hop(via: &str, interface: &str, weight: u32) -> view::CefNextHop {
    let via = Some(via.parse().unwrap());
    view::CefNextHop { via, interface: interface.into(), mac: Some(MAC), weight, idle_s: Some(2) }
}

impl Configuration for Fake {
    fn running(&self) -> &Config {
        &self.config
    }
    fn commit(&mut self, candidate: Config) -> Result<(), Refusal> {
        if let Some(text) =
            self.refuses.as_ref().filter(|text| lanyard_cli::text::render(&candidate).contains(*text))
        {
            return Err(format!("the fake refuses {text}").into());
        }
        self.config = candidate;
        Ok(())
    }
    fn commit_confirmed(&mut self, candidate: Config, minutes: u32) -> Result<(), Refusal> {
        let before = self.config.clone();
        self.commit(candidate)?;
        let back = self.rollback.take().map_or(before, |(config, _)| config);
        self.rollback = Some((back, u64::from(minutes) * 60));
        Ok(())
    }
    fn confirm(&mut self) -> bool {
        self.rollback.take().is_some()
    }
    fn rollback_in_s(&self) -> Option<u64> {
        self.rollback.as_ref().map(|(_, seconds)| *seconds)
    }
    fn config_sessions(&mut self) -> &mut ConfigSessions {
        &mut self.sessions
    }
}

impl SafeChange for Fake {
    fn archive(&mut self) -> Result<view::Archive, Refusal> {
        let checkpoint = |number| view::Checkpoint {
            number,
            time: format!("2026-01-31T12:00:0{number}.000Z"),
            user: "root".into(),
        };
        let checkpoints = (1..=self.checkpoints.len() as u32).map(checkpoint).collect();
        Ok(view::Archive { checkpoints, capacity: 50, directory: "/var/lib/lanyard/default/archive".into() })
    }
    fn save_checkpoint(&mut self, _user: &str) -> Result<u32, Refusal> {
        let text = lanyard_cli::text::render(&self.config);
        if self.checkpoints.last() != Some(&text) {
            self.checkpoints.push(text);
        }
        Ok(self.checkpoints.len() as u32)
    }
    fn checkpoint(&mut self, number: u32) -> Result<String, Refusal> {
        let text = self.checkpoints.get(number as usize - 1).cloned();
        text.ok_or_else(|| format!("there is no checkpoint {number}: see show archive").into())
    }
    fn lock_configuration(&mut self) -> Result<(), Refusal> {
        self.is_locked = true;
        Ok(())
    }
    fn unlock_configuration(&mut self) {
        self.is_locked = false;
    }
    fn clear_configuration_lock(&mut self) -> bool {
        std::mem::take(&mut self.is_locked)
    }
    fn configuration_lock(&self) -> view::ConfigurationLock {
        if !self.is_locked {
            return view::ConfigurationLock::default();
        }
        let (line, user) = (Some("vty 0".into()), Some("root".into()));
        view::ConfigurationLock { locked: true, line, user, since_s: Some(61) }
    }
    fn reload(&mut self, _user: &str) -> Result<usize, Refusal> {
        let (config, refused) = lanyard_cli::apply_text(&self.startup, &Config::default());
        self.config = config;
        Ok(refused.len())
    }
    fn schedule_reload(&mut self, at: ReloadTime, user: &str, reason: Option<String>) -> Result<(), Refusal> {
        let in_s = match at {
            ReloadTime::InMinutes(minutes) => u64::from(minutes) * 60,
            ReloadTime::At { hour, minute } => u64::from(hour) * 3600 + u64::from(minute) * 60,
        };
        self.reload = view::ScheduledReload { in_s: Some(in_s), user: Some(user.into()), reason };
        Ok(())
    }
    fn cancel_reload(&mut self) -> bool {
        std::mem::take(&mut self.reload).in_s.is_some()
    }
    fn scheduled_reload(&self) -> view::ScheduledReload {
        self.reload.clone()
    }
}

impl Files for Fake {
    fn load_startup(&mut self) -> Result<String, Refusal> {
        Ok(self.startup.clone())
    }
    fn save_startup(&mut self, text: &str) -> Result<(), Refusal> {
        self.startup = text.to_owned();
        Ok(())
    }
    fn read_file(&mut self, path: &str) -> Result<String, Refusal> {
        self.files.get(path).cloned().ok_or_else(|| format!("{path}: no such file").into())
    }
    fn write_file(&mut self, path: &str, text: &str) -> Result<(), Refusal> {
        self.files.insert(path.to_owned(), text.to_owned());
        Ok(())
    }
}

impl Fdb for Fake {
    /// The table in two parts, in no order; an entry that has moved is in both of them.
    fn mac_part(&mut self, filter: &MacFilter, from: u32, window: &mut Window) -> Option<u32> {
        let entry = |mac: u8, vlan, interface: Option<&str>, kind| view::MacEntry {
            mac: MacAddr([2, 0, 0, 0, 0, mac]),
            vlan,
            interface: interface.map(Into::into),
            kind,
            age_s: u32::from(mac),
            offload: view::Offload::None,
        };
        let all = [
            entry(1, 1, Some("eth1"), "dynamic"),
            entry(2, 10, Some("eth2"), "static"),
            entry(3, 10, None, "static"),
            entry(4, 10, Some("vlan10"), "self"),
        ];
        let passes = |e: &view::MacEntry| {
            filter.kind.is_none_or(|kind| kind == e.kind)
                && filter.mac.is_none_or(|mac| mac == e.mac)
                && filter.vlan.is_none_or(|vlan| vlan.get() == e.vlan)
                && filter.interface.as_ref().is_none_or(|i| e.interface.as_deref() == Some(&i.to_string()))
        };
        let part = if from == 0 { &all[1..] } else { &all[..2] };
        part.iter().rev().filter(|entry| passes(entry)).for_each(|entry| window.offer(entry.clone()));
        (from == 0).then_some(1)
    }
    fn mac_capacity(&self) -> u64 {
        1_000_000
    }
    fn mac_count(&mut self, _vlan: Option<VlanId>) -> view::MacCount {
        view::MacCount { dynamic: 1, fixed: 2, own: 1, total: 4, capacity: 1_000_000, ..Default::default() }
    }
    fn clear_mac_table(&mut self, filter: &MacFilter) -> u64 {
        self.cleared.push(format!("{filter:?}"));
        1
    }
}

impl Interfaces for Fake {
    fn netdev_names(&self) -> Vec<String> {
        self.netdevs.clone()
    }
    fn netdev_refusal(&self, name: &str) -> Option<&'static str> {
        (name == "lo").then_some("is the loopback device: an interface of the switch is an Ethernet device")
    }
    fn interfaces(&mut self, only: Option<&InterfaceName>) -> view::Interfaces {
        let wanted = |name: &InterfaceName| only.is_none_or(|only| only == name);
        let of = |(name, interface): (&InterfaceName, &lanyard_config::Interface)| {
            let kind = match (name, interface.role) {
                (InterfaceName::Vlan(_), _) => view::InterfaceKind::Svi,
                (_, Role::Routed | Role::Subinterface(_)) => view::InterfaceKind::Routed,
                (_, Role::Switchport) => view::InterfaceKind::Switchport,
                (_, Role::Unset) => return None,
            };
            let v4 = interface.ipv4.iter().map(|n| ipnet::IpNet::V4(*n));
            let v6 = interface.ipv6.iter().map(|n| ipnet::IpNet::V6(*n));
            Some(view::InterfaceView {
                name: name.to_string(),
                kind,
                admin_up: !interface.shutdown,
                link_up: !interface.shutdown,
                mac: Some(MAC),
                mtu: interface.mtu.unwrap_or(1500),
                speed_mbps: Some(10_000),
                duplex: "full",
                rx: view::Counters { frames: 10, bytes: 1000, dropped: 1, errors: 0 },
                tx: view::Counters { frames: 20, bytes: 2000, dropped: 0, errors: 0 },
                notes: Vec::new(),
                hook: (kind == view::InterfaceKind::Switchport).then_some("tc"),
                forwarded: 8,
                trapped: 1,
                present: true,
                driver: Some("veth".into()),
                addresses: v4.chain(v6).collect(),
                routed_by: None,
                error: None,
            })
        };
        let list = self.config.interfaces.iter().filter(|(name, _)| wanted(name)).filter_map(of);
        view::Interfaces { interfaces: list.collect() }
    }
    fn drops(&mut self, _only: Option<&InterfaceName>) -> view::Drops {
        view::Drops {
            drops: vec![view::DropEntry { interface: "eth1".into(), reason: "same_port", frames: 3 }],
        }
    }
    fn err_disabled(&mut self) -> Vec<view::ErrDisabledPort> {
        Vec::new()
    }
    fn clear_counters(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        self.cleared.push(format!("counters {only:?}"));
        Ok(())
    }
}

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

impl Neighbors for Fake {
    fn neighbors(&mut self, family: Family, _: Option<&str>) -> Result<view::Neighbors, Refusal> {
        let address = if family == Family::V4 { "10.0.0.1" } else { "2001:db8::1" };
        Ok(view::Neighbors {
            neighbors: vec![view::Neighbor {
                address: address.parse().unwrap(),
                mac: Some(MAC),
                interface: "vlan10".into(),
                state: "reachable",
                offload: view::Offload::None,
            }],
        })
    }
    fn clear_neighbors(
        &mut self,
        _: Family,
        vrf: Option<&str>,
        only: Option<IpAddr>,
    ) -> Result<u64, Refusal> {
        self.cleared.push(format!("neighbors {vrf:?} {only:?}"));
        Ok(u64::from(only.is_none_or(|address| address.to_string() == "10.0.0.1")))
    }
}

impl Routes for Fake {
    fn routes(&mut self, query: &RouteQuery) -> Result<view::Routes, Refusal> {
        let net = if query.family == Family::V4 { "10.0.0.0/8" } else { "2001:db8::/32" };
        let hop = |via: Option<&str>, interface: &str| view::NextHop {
            via: via.map(|via| via.parse().unwrap()),
            interface: interface.into(),
            weight: 1,
        };
        let route = |protocol: &str, nexthops| view::Route {
            prefix: net.parse().unwrap(),
            protocol: protocol.into(),
            metric: 0,
            nexthops,
            offload: view::Offload::None,
        };
        let routes = vec![
            route("connected", vec![hop(None, "vlan10")]),
            route("static", vec![hop(Some("10.0.0.1"), "vlan10"), hop(Some("10.0.0.2"), "vlan20")]),
        ];
        Ok(query.narrow(routes))
    }
    fn cef(&mut self, family: Family, _: Option<&str>, only: Option<IpAddr>) -> Result<view::Cef, Refusal> {
        if family == Family::V6 {
            return Err("the plane does not route IPv6".into());
        }
        let entry = |prefix: &str, action, nexthops| view::CefEntry {
            prefix: prefix.parse().unwrap(),
            action,
            nexthops,
            offload: view::Offload::Offloaded,
            reason: None,
        };
        let mut entries = vec![
            entry("0.0.0.0/0", "forward", vec![hop("10.0.0.1", "vlan10", 3), hop("10.1.0.1", "vlan20", 1)]),
            entry("10.0.0.0/8", "glean", Vec::new()),
            entry("10.0.0.254/32", "receive", Vec::new()),
        ];
        if let Some(address) = only {
            entries.retain(|entry| entry.prefix.contains(&address));
            entries.sort_by_key(|entry| std::cmp::Reverse(entry.prefix.prefix_len()));
            entries.truncate(1);
        }
        Ok(view::Cef { total: entries.len() as u64, entries })
    }
    fn cef_summary(&mut self, _: Option<&str>) -> Result<view::CefSummary, Refusal> {
        Ok(view::CefSummary {
            prefixes: 3,
            groups: 1,
            adjacencies: 2,
            changes: 7,
            audits: 1,
            ipv4: view::Forwarder {
                routed_by: "kernel",
                reason: Some("nftables chain inet filter forward".into()),
            },
            ipv6: view::Forwarder { routed_by: "plane", reason: None },
            ..Default::default()
        })
    }
    fn cef_exact(&mut self, _: Option<&str>, flow: &view::Flow) -> Result<view::CefExact, Refusal> {
        let prefix = Some("0.0.0.0/0".parse().unwrap());
        Ok(view::CefExact {
            flow: flow.clone(),
            prefix,
            action: "forward",
            choices: 1,
            nexthop: Some(hop("10.0.0.1", "vlan10", 1)),
        })
    }
    fn vrfs_present(&mut self) -> BTreeSet<String> {
        self.config.vrfs.keys().cloned().collect()
    }
}

impl SpanningTree for Fake {
    fn spanning_tree(&mut self) -> view::SpanningTree {
        let ports = PortIds::default().assign(port_names(&self.config)).unwrap();
        let identity = Identity { instance: "test".into(), base_mac: MacAddr([2, 0, 0, 0, 0x10, 0]) };
        let Some(config) = lower(&self.config, &ports, &identity) else { return Default::default() };
        let numbers: Vec<_> = config.ports.keys().copied().collect();
        let mut bridge = lanyard_stp::Bridge::new(0, config).unwrap();
        for port in numbers {
            bridge.handle_link(0, port, true, Some(1000), lanyard_stp::Duplex::Full);
        }
        // No neighbour sends BPDUs: every port becomes designated, and forwards after two forward delays at
        // most.
        while let Some(at) = bridge.next_timeout().filter(|at| *at <= 60_000) {
            bridge.handle_timer(at);
        }
        view::SpanningTree::of(&bridge, 60_000, &|port| ports.name(port).unwrap().to_owned())
    }
    fn root_primary_priority(&self, tree: view::TreeKey) -> Option<u16> {
        // VLAN 10 has a root with priority 8192; VLAN 20 has one with priority 0.
        match tree {
            view::TreeKey::Vlan(vlan) if vlan.get() == 10 => Some(4096),
            view::TreeKey::Vlan(vlan) if vlan.get() == 20 => None,
            _ => Some(24576),
        }
    }
    fn clear_detected_protocols(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        self.cleared.push(format!("protocols {only:?}"));
        Ok(())
    }
    fn clear_spanning_tree_counters(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        self.cleared.push(format!("bpdus {only:?}"));
        Ok(())
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

impl Platform for Fake {
    fn platform(&mut self) -> view::Platform {
        view::Platform {
            plane: "soft".into(),
            max_ports: 1023,
            notes: vec!["no hooks".into()],
            ..Default::default()
        }
    }
    fn resources(&mut self) -> view::Resources {
        let table = view::Resource {
            name: "fdb".into(),
            size: 10,
            used: 4,
            high_water: 5,
            bytes: 4096,
            unit: "entry".into(),
            ..Default::default()
        };
        view::Resources { tables: vec![table], manager: "none".into() }
    }
    fn pipeline(&mut self) -> view::Pipeline {
        let stage = |stage, matches, tables: &[&str]| view::PipelineStage {
            stage,
            matches,
            tables: tables.iter().map(|table| (*table).to_owned()).collect(),
        };
        view::Pipeline {
            stages: vec![stage("parse", "lengths, tags", &[]), stage("learn", "source", &["fdb"])],
        }
    }
    fn front_panel(&mut self) -> Result<view::FrontPanel, Refusal> {
        let port = |number: u16, link_up, absent: Option<&str>| view::FrontPort {
            name: format!("swp{number}"),
            number,
            connector: "qsfp",
            speed_mbps: 100_000,
            speeds_mbps: vec![100_000, 40_000],
            autoneg: true,
            duplex: "full",
            fec: "auto",
            splits: vec!["2x50g".into(), "4x25g".into()],
            link_up,
            wire: format!("swp{number}-wire"),
            absent: absent.map(str::to_owned),
        };
        let ports = vec![port(1, true, None), port(2, false, None), port(3, false, Some("split into 4x25g"))];
        Ok(view::FrontPanel { platform: "test".into(), ports })
    }
    fn traps(&mut self) -> view::Traps {
        view::Traps {
            traps: vec![view::Trap {
                group: "stp",
                rate_pps: 1000,
                burst: 256,
                port_rate_pps: 100,
                port_burst: 64,
                trapped: 7,
                policed: 3,
                lost: 0,
            }],
            reasons: vec![
                view::TrapReason { reason: "bpdu", group: "stp", frames: 7 },
                view::TrapReason { reason: "pvst_bpdu", group: "stp", frames: 0 },
            ],
        }
    }
    fn packet_trace(
        &mut self,
        interface: &InterfaceName,
        frame: &[u8],
    ) -> Result<view::PacketTrace, Refusal> {
        let hex: String = frame.iter().map(|b| format!("{b:02x}")).collect();
        Ok(view::PacketTrace {
            stages: vec![view::TraceStage { stage: "parse", detail: format!("{} bytes", frame.len()) }],
            verdict: "forwarded",
            reason: None,
            egress: vec![view::TraceEgress { interface: interface.to_string(), hex }],
        })
    }
}

impl System for Fake {
    fn version(&mut self) -> view::Version {
        view::Version {
            version: "0.1.0".into(),
            hostname: self.config.hostname.clone(),
            plane: "soft".into(),
            uptime_s: 3700,
            ..Default::default()
        }
    }
    fn users(&mut self) -> view::Users {
        let user = view::User {
            line: "vty 0".into(),
            user: "root".into(),
            host: "local".into(),
            idle_s: 61,
            own: true,
        };
        view::Users { users: vec![user], stalled: 0, turned_away: 0 }
    }
    fn logging(&mut self) -> view::Logging {
        let message = |text: &String| view::LogMessage {
            time: "2026-01-01T00:00:00Z".into(),
            severity: 5,
            facility: "SYS".into(),
            mnemonic: "CONFIG_I".into(),
            text: text.clone(),
        };
        let receiver = |host: &lanyard_config::LogHost| view::LogReceiver {
            host: host.address.to_string(),
            transport: host.transport.name(),
            port: host.port(),
            connected: true,
            sent: 7,
            ..view::LogReceiver::default()
        };
        view::Logging {
            messages: self.log.iter().map(message).collect(),
            capacity: 100,
            overwritten: 0,
            level: self.config.appliance.log_buffered,
            receivers: self.config.appliance.log_hosts.iter().map(receiver).collect(),
            rate_limit: self.config.appliance.log_rate.map(|rate| view::LogLimit {
                per_s: Some(rate.per_s),
                debugging: rate.debugging,
                except: rate.except,
                suppressed: 57,
            }),
            console_rate_limit: None,
            persistent: self.logging_persistent().map(|files| view::PersistentLog { lines: None, ..files }),
        }
    }
    fn logging_persistent(&mut self) -> Option<view::PersistentLog> {
        self.config.appliance.log_persistent.map(|limits| view::PersistentLog {
            directory: "/var/lib/lanyard/default/log".into(),
            size: limits.size,
            file_size: limits.file_size,
            files: 1,
            bytes: 51,
            written: 1,
            lines: Some(vec!["2026-01-01T00:00:00Z: %SYS-5-CONFIG_I: text".into()]),
            ..view::PersistentLog::default()
        })
    }
    fn clear_logging(&mut self) {
        self.log.clear();
    }
    fn log(&mut self, facility: &str, severity: u8, mnemonic: &str, text: &str) {
        assert_eq!((facility, severity, mnemonic), ("SYS", 5, "CONFIG_I"));
        self.log.push(text.to_owned());
    }
    fn clock(&self) -> view::Clock {
        view::Clock {
            time: "2026-01-01T00:00:00Z".into(),
            local: "00:00:00.000 UTC Thu Jan 1 2026".into(),
            timezone: "UTC".into(),
            utc_offset_minutes: 0,
            synchronized: false,
        }
    }
    fn processes(&mut self) -> view::Processes {
        let process = |pid, kind, name: &str| view::Process {
            pid,
            kind,
            name: name.into(),
            state: "S".into(),
            cpu_ms: 120,
            resident_kib: 9000,
        };
        view::Processes { processes: vec![process(7, "thread", "lanyard"), process(9, "child", "radvd")] }
    }
    fn inventory(&mut self) -> view::Inventory {
        let part = |name: &str, serial: &str| view::Part {
            name: name.into(),
            description: "a part".into(),
            product_id: Some("X1".into()),
            version: None,
            serial: Some(serial.into()),
        };
        view::Inventory { parts: vec![part("Chassis", "123"), part("eth1", "0200.0000.0001")] }
    }
}

impl Access for Fake {
    /// Hashes to a text that depends on the algorithm alone.
    fn hash_secrets(&mut self, config: &mut Config) -> Result<(), Refusal> {
        config.access.hash(|algorithm, _| {
            let (salt, hash) = ("a".repeat(14), "b".repeat(43));
            Ok::<_, Refusal>(format!("${}${salt}${hash}", algorithm.number()))
        })
    }
    fn audit(&mut self, entered: Entered<'_>) {
        let Entered { user, line, host, command } = entered;
        self.audited.push(format!("{user} {line} {host}: {command}"));
    }
    fn clear_line(&mut self, name: &str) -> bool {
        self.cleared.push(name.to_owned());
        name != "vty 7"
    }
    fn audit_log(&mut self) -> view::AuditLog {
        let entry = |text: &String| view::AuditEntry {
            time: "2026-01-01T00:00:00Z".into(),
            user: "root".into(),
            line: "vty 0".into(),
            host: "local".into(),
            command: text.split_once(": ").map_or(String::new(), |(_, command)| command.to_owned()),
        };
        view::AuditLog { commands: self.audited.iter().map(entry).collect(), capacity: 1000, overwritten: 0 }
    }
}
