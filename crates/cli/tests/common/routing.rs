//! Views of neighbours and of routes.

use super::{Fake, MAC};
use lanyard_cli::backend::{Neighbors, Refusal, RouteQuery, Routes};
use lanyard_cli::view;
use lanyard_types::Family;
use std::collections::BTreeSet;
use std::net::IpAddr;

fn hop(via: &str, interface: &str, weight: u32) -> view::CefNextHop {
    let via = Some(via.parse().unwrap());
    view::CefNextHop { via, interface: interface.into(), mac: Some(MAC), weight, idle_s: Some(2) }
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
