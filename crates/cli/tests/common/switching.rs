//! Views of interfaces, of addresses, and of spanning tree.

use super::{Fake, MAC};
use lanyard_cli::backend::{Fdb, Interfaces, MacFilter, Refusal, SpanningTree};
use lanyard_cli::view;
use lanyard_cli::window::Window;
use lanyard_config::{InterfaceName, Role};
use lanyard_switch::compile::port_names;
use lanyard_switch::spanning::lower;
use lanyard_switch::{Identity, PortIds};
use lanyard_types::{MacAddr, VlanId};

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
        // As if VLAN 10 had a root with priority 8192, and VLAN 20 one with priority 0.
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
