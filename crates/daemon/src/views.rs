//! The switch's tables as the command line shows them.

use crate::core::Core;
use crate::routing_views::routed_by;
use lanyard_cli::backend::{Family, MacFilter, RouteQuery};
use lanyard_cli::view::{self, Counters, InterfaceKind, InterfaceView, Offload};
use lanyard_config::{Interface, InterfaceName, Role};
use lanyard_netdev::{DirectionStats, Link, LinkStats, NeighbourState, RouteKind};
use lanyard_pipeline::trace::Verdict;
use lanyard_plane::{FdbFilter, FdbKind, Hook, PortCounters, TrapCounters};
use lanyard_switch::{Facts, check, forwarding};
use lanyard_types::{DropReason, FrameCount, PortId, TrapGroup, TrapReason, VlanId};
use std::collections::BTreeMap;

impl Core {
    /// The plane's filter; `None` when it can match nothing.
    pub(crate) fn fdb_filter(&self, filter: &MacFilter) -> Option<FdbFilter> {
        const KINDS: [FdbKind; 4] =
            [FdbKind::Dynamic, FdbKind::Static, FdbKind::Sticky, FdbKind::SelfAddress];
        let port = match &filter.interface {
            Some(name) => Some(self.port_of(name)?),
            None => None,
        };
        let kind = match filter.kind {
            Some(word) => Some(KINDS.into_iter().find(|kind| kind.name() == word)?),
            None => None,
        };
        Some(FdbFilter { vlan: filter.vlan, port, mac: filter.mac, kind })
    }

    pub(crate) fn fdb_capacity(&self) -> u64 {
        self.plane.state().global.fdb_limit.min(self.plane.capabilities().fdb).into()
    }

    pub(crate) fn view_macs(&mut self, filter: &MacFilter) -> view::MacTable {
        let mut entries = Vec::new();
        if let Some(filter) = self.fdb_filter(filter) {
            let names = &self.names;
            self.plane.fdb_walk(&filter, &mut |entry| {
                entries.push(view::MacEntry {
                    mac: entry.mac,
                    vlan: entry.vlan.get(),
                    interface: entry.port.and_then(|port| names[port.index()].clone()),
                    kind: entry.kind.name(),
                    age_s: entry.age_s,
                    offload: Offload::Offloaded,
                });
            });
        }
        // An entry that moved during the walk was seen twice.
        entries.sort_unstable_by_key(|entry| (entry.vlan, entry.mac));
        entries.dedup_by_key(|entry| (entry.vlan, entry.mac));
        view::MacTable { total: entries.len() as u64, entries, capacity: self.fdb_capacity() }
    }

    pub(crate) fn view_mac_count(&mut self, vlan: Option<VlanId>) -> view::MacCount {
        let mut count = view::MacCount { capacity: self.fdb_capacity(), ..view::MacCount::default() };
        self.plane.fdb_walk(&FdbFilter { vlan, ..FdbFilter::default() }, &mut |entry| {
            count.total += 1;
            *match entry.kind {
                FdbKind::Dynamic => &mut count.dynamic,
                FdbKind::Static => &mut count.fixed,
                FdbKind::Sticky => &mut count.sticky,
                FdbKind::SelfAddress => &mut count.own,
            } += 1;
        });
        count.refused = self
            .plane
            .resources()
            .iter()
            .filter(|table| table.name == "fdb")
            .map(|table| table.refused)
            .sum();
        count
    }

    pub(crate) fn view_interfaces(&mut self, only: Option<&InterfaceName>) -> view::Interfaces {
        let listed = |(name, interface): &(&InterfaceName, &Interface)| {
            only.is_none_or(|only| only == *name)
                && (matches!(name, InterfaceName::Vlan(_)) || interface.role != Role::Unset)
        };
        let wanted: Vec<(InterfaceName, Interface)> = self
            .switch
            .config()
            .interfaces
            .iter()
            .filter(listed)
            .map(|(n, i)| (n.clone(), i.clone()))
            .collect();
        let one = wanted.first().filter(|_| wanted.len() == 1).map(|(name, _)| name.to_string());
        let mut links: BTreeMap<String, Link> = if let Some(name) = one {
            self.kernel.netdev().link(&name).ok().map(|link| (name, link)).into_iter().collect()
        } else {
            self.kernel
                .netdev()
                .links()
                .unwrap_or_default()
                .into_iter()
                .map(|link| (link.name.clone(), link))
                .collect()
        };
        let mut homes: BTreeMap<String, String> = BTreeMap::new();
        for (vrf, link) in self.kernel.spaces.links() {
            homes.insert(link.name.clone(), vrf);
            links.insert(link.name.clone(), link);
        }
        let mut addresses: BTreeMap<(Option<String>, u32), Vec<ipnet::IpNet>> = BTreeMap::new();
        let vrfs: std::collections::BTreeSet<Option<String>> =
            homes.values().cloned().map(Some).chain([None]).collect();
        for vrf in vrfs {
            let netdev = self.kernel.netdev_of(vrf.as_deref());
            for address in netdev.ok().and_then(|netdev| netdev.addresses(None).ok()).unwrap_or_default() {
                addresses.entry((vrf.clone(), address.ifindex)).or_default().push(address.net);
            }
        }
        let view = |(name, interface): &(InterfaceName, Interface)| {
            let link = links.get(&name.to_string());
            let mut view = self.view_interface(name, interface, link);
            let key = |link: &Link| (homes.get(&link.name).cloned(), link.ifindex);
            view.addresses = link.and_then(|link| addresses.get(&key(link))).cloned().unwrap_or_default();
            view.addresses.sort_by_key(|net| matches!(net, ipnet::IpNet::V6(_)));
            view
        };
        view::Interfaces { interfaces: wanted.iter().map(view).collect() }
    }

    fn view_interface(
        &mut self,
        name: &InterfaceName,
        interface: &Interface,
        link: Option<&Link>,
    ) -> InterfaceView {
        let text = name.to_string();
        let port = self.port_of(name);
        let state = port.and_then(|port| self.plane.state().ports.get(&port));
        let kind = match (name, interface.role) {
            (InterfaceName::Vlan(_), _) => InterfaceKind::Svi,
            (_, Role::Routed | Role::Subinterface(_)) => InterfaceKind::Routed,
            _ => InterfaceKind::Switchport,
        };
        let forwards = state.is_some_and(|state| state.enabled);
        let link_up = match kind {
            InterfaceKind::Svi => forwards,
            _ => !interface.shutdown && link.is_some_and(|link| link.admin_up && link.carrier),
        };
        let settings = link.and_then(|_| self.kernel.netdev().settings(&text).ok()).unwrap_or_default();
        let (rx, tx) = self.view_counters(&text, kind, port, link);
        let passed = port.map(|port| self.plane.port_counters(port)).unwrap_or_default();
        let identity = self.switch.identity();
        let unusable =
            || check::unusable(&text, self.facts(), identity).filter(|_| kind == InterfaceKind::Switchport);
        let err_disabled = || {
            let mut held = self.switch.spanning()?.bridge().err_disabled();
            let (_, cause) = held.find(|(held, _)| Some(*held) == port)?;
            Some(format!("err-disabled ({})", cause.name()))
        };
        InterfaceView {
            kind,
            admin_up: !interface.shutdown,
            link_up,
            mac: link.map(|link| link.mac),
            mtu: link.map_or(0, |link| link.mtu),
            speed_mbps: settings.speed_mbps,
            duplex: match settings.duplex {
                Some(lanyard_netdev::Duplex::Full) => "full",
                Some(lanyard_netdev::Duplex::Half) => "half",
                None => "unknown",
            },
            rx,
            tx,
            hook: port
                .map(|port| self.plane.port_hook(port))
                .filter(|hook| *hook != Hook::None)
                .map(Hook::name),
            notes: port.map(|port| self.plane.port_notes(port)).unwrap_or_default(),
            forwarded: passed.forwarded,
            trapped: passed.trapped,
            present: link.is_some(),
            driver: link.and_then(|_| self.kernel.netdev().driver(&text).ok()),
            addresses: Vec::new(),
            routed_by: (kind != InterfaceKind::Switchport).then(|| {
                let (config, routers) = (self.switch.config(), self.switch.routers());
                let (vrf, at) = (&interface.layer3.vrf, Some((name, interface)));
                [false, true].map(|ipv6| routed_by(forwarding::forwarder(config, routers, vrf, at, ipv6)))
            }),
            error: self.faults.get(&text).cloned().or_else(unusable).or_else(err_disabled),
            name: text,
        }
    }

    /// A port's frames are the plane's to count, its errors the netdev's. What a VLAN interface has received is
    /// what the plane has sent to it.
    fn view_counters(
        &mut self,
        name: &str,
        kind: InterfaceKind,
        port: Option<PortId>,
        link: Option<&Link>,
    ) -> (Counters, Counters) {
        let stats = link.map(|link| since(link.stats, self.cleared.get(name))).unwrap_or_default();
        let Some(port) = port else {
            let direction = |s: DirectionStats| Counters {
                frames: s.frames,
                bytes: s.bytes,
                dropped: s.dropped,
                errors: s.errors,
            };
            return (direction(stats.rx), direction(stats.tx));
        };
        let counters = self.plane.port_counters(port);
        let count = |count: FrameCount, dropped: u64, errors: u64| Counters {
            frames: count.frames,
            bytes: count.bytes,
            dropped,
            errors,
        };
        let dropped = counters.dropped.iter().sum();
        if kind == InterfaceKind::Svi {
            return (
                count(counters.tx, counters.tx_dropped, stats.rx.errors),
                count(counters.rx, dropped, stats.tx.errors),
            );
        }
        (
            count(counters.rx, dropped, stats.rx.errors),
            count(counters.tx, counters.tx_dropped, stats.tx.errors),
        )
    }

    pub(crate) fn view_drops(&mut self, only: Option<&InterfaceName>) -> view::Drops {
        let names: Vec<InterfaceName> = self
            .switch
            .config()
            .interfaces
            .keys()
            .filter(|name| only.is_none_or(|only| only == *name))
            .cloned()
            .collect();
        let mut drops = Vec::new();
        for name in names {
            let Some(port) = self.port_of(&name) else { continue };
            let counters: PortCounters = self.plane.port_counters(port);
            let reasons =
                DropReason::ALL.iter().map(|reason| (reason.name(), counters.dropped[reason.index()]));
            let counted =
                reasons.chain([("tx_dropped", counters.tx_dropped)]).filter(|(_, frames)| *frames > 0);
            drops.extend(counted.map(|(reason, frames)| view::DropEntry {
                interface: name.to_string(),
                reason,
                frames,
            }));
        }
        view::Drops { drops }
    }

    pub(crate) fn view_routes(&mut self, query: &RouteQuery) -> Result<view::Routes, String> {
        const TABLE_LOCAL: u32 = 255;
        let mut routes = Vec::new();
        let facts = self.facts_in(query.vrf.as_deref())?;
        for table in [lanyard_netdev::TABLE_MAIN, TABLE_LOCAL] {
            let netdev = self.kernel.netdev_of(query.vrf.as_deref())?;
            let list =
                netdev.routes(kernel_family(query.family), table).map_err(|error| error.to_string())?;
            let local = table == TABLE_LOCAL;
            let shown = list.iter().filter_map(|entry| {
                let entry = &in_use(query.vrf.as_deref(), entry, &facts)?;
                let offload = self.route_offload(query.vrf.as_deref(), entry.dest, entry.metric, local);
                Some(view::Route { offload, ..route(query.vrf.as_deref(), entry, &facts)? })
            });
            routes.extend(shown);
        }
        routes.sort_by_key(|route| (route.prefix.addr(), route.prefix.prefix_len(), route.metric));
        Ok(query.narrow(routes))
    }

    /// Every netdev of a namespace, also those that are none of ours: for their names.
    fn facts_in(&self, vrf: Option<&str>) -> Result<Facts, String> {
        let links = self.kernel.netdev_of(vrf)?.links().map_err(|error| error.to_string())?;
        Ok(links.iter().map(|link| self.kernel.link_facts_in(vrf.map(str::to_owned), link)).collect())
    }

    pub(crate) fn view_neighbours(
        &mut self,
        family: Family,
        vrf: Option<&str>,
    ) -> Result<view::Neighbors, String> {
        let facts = self.facts_in(vrf)?;
        let netdev = self.kernel.netdev_of(vrf)?;
        let list = netdev.neighbours(kernel_family(family)).map_err(|error| error.to_string())?;
        let shown = list.iter().filter_map(|entry| {
            let offload = self.neighbour_offload(vrf, entry.ifindex, entry.addr);
            Some(view::Neighbor { offload, ..neighbour(vrf, entry, &facts)? })
        });
        let mut neighbors: Vec<_> = shown.collect();
        neighbors.sort_by(|a, b| (a.address, &a.interface).cmp(&(b.address, &b.interface)));
        Ok(view::Neighbors { neighbors })
    }

    /// `clear arp-cache`: what was learned, of one address or of all.
    pub(crate) fn forget_neighbours(
        &mut self,
        family: Family,
        vrf: Option<&str>,
        only: Option<std::net::IpAddr>,
    ) -> Result<u64, String> {
        let netdev = self.kernel.netdev_of(vrf)?;
        let list = netdev.neighbours(kernel_family(family)).map_err(|error| error.to_string())?;
        let learned = |n: &&lanyard_netdev::Neighbour| {
            let fixed = [NeighbourState::Permanent, NeighbourState::NoArp].contains(&n.state);
            !fixed && only.is_none_or(|only| only == n.addr)
        };
        let mut count = 0;
        for neighbour in list.iter().filter(learned) {
            match netdev.del_neighbour(neighbour.ifindex, neighbour.addr) {
                Ok(()) => count += 1,
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(count)
    }

    pub(crate) fn view_resources(&mut self) -> view::Resources {
        let table = |table: lanyard_plane::TableUsage| view::Resource {
            name: table.name.into(),
            size: table.size,
            used: table.used,
            high_water: table.high_water,
            refused: table.refused,
            bytes: table.bytes,
            shared_with: table.shared_with.iter().map(|name| (*name).to_owned()).collect(),
        };
        view::Resources {
            tables: self.plane.resources().into_iter().map(table).collect(),
            manager: "none".into(),
        }
    }

    pub(crate) fn view_traps(&mut self) -> view::Traps {
        let (counters, frames) = (self.plane.trap_counters(), self.plane.trap_reasons());
        let global = &self.plane.state().global;
        let group = |group: &TrapGroup| {
            let (all, port) = (global.trap_rate[group.index()], global.trap_port_rate[group.index()]);
            let TrapCounters { passed, policed, lost } = counters[group.index()];
            view::Trap {
                group: group.name(),
                rate_pps: all.rate_pps,
                burst: all.burst,
                port_rate_pps: port.rate_pps,
                port_burst: port.burst,
                trapped: passed.saturating_sub(lost),
                policed,
                lost,
            }
        };
        let reason = |reason: &TrapReason| view::TrapReason {
            reason: reason.name(),
            group: reason.group().name(),
            frames: frames[reason.index()],
        };
        view::Traps {
            traps: TrapGroup::ALL.iter().map(group).collect(),
            reasons: TrapReason::ALL.iter().map(reason).collect(),
        }
    }

    pub(crate) fn view_trace(
        &mut self,
        interface: &InterfaceName,
        frame: &[u8],
    ) -> Result<view::PacketTrace, String> {
        let port = self.port_of(interface).ok_or_else(|| format!("{interface} is no port of the switch"))?;
        let trace = self.plane.trace(port, frame).map_err(|error| error.to_string())?;
        let (verdict, reason) = match trace.verdict {
            Verdict::Forwarded => ("forwarded", None),
            Verdict::Trapped(reason) => ("trapped", Some(reason.name())),
            Verdict::Dropped(reason) => ("dropped", Some(reason.name())),
        };
        let stages = trace.stages.into_iter();
        let egress = trace.egress.iter();
        Ok(view::PacketTrace {
            stages: stages.map(|s| view::TraceStage { stage: s.stage.name(), detail: s.detail }).collect(),
            verdict,
            reason,
            egress: egress
                .map(|(port, bytes)| view::TraceEgress {
                    interface: self.port_name(*port).to_string(),
                    hex: hex(bytes),
                })
                .collect(),
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

const fn kernel_family(family: Family) -> lanyard_netdev::Family {
    match family {
        Family::V4 => lanyard_netdev::Family::V4,
        Family::V6 => lanyard_netdev::Family::V6,
    }
}

/// What was counted since `base`.
fn since(now: LinkStats, base: Option<&LinkStats>) -> LinkStats {
    let Some(base) = base else { return now };
    let direction = |now: DirectionStats, base: DirectionStats| DirectionStats {
        frames: now.frames.saturating_sub(base.frames),
        bytes: now.bytes.saturating_sub(base.bytes),
        errors: now.errors.saturating_sub(base.errors),
        dropped: now.dropped.saturating_sub(base.dropped),
    };
    LinkStats { rx: direction(now.rx, base.rx), tx: direction(now.tx, base.tx), ..now }
}

/// What is in use of a kernel route: as in IOS, nothing leads through an interface that is down, which the kernel lists all
/// the same.
fn in_use(vrf: Option<&str>, route: &lanyard_netdev::Route, facts: &Facts) -> Option<lanyard_netdev::Route> {
    let down = |hop: &lanyard_netdev::NextHop| {
        let link = hop.ifindex.and_then(|ifindex| facts.by_index_in(vrf, ifindex));
        hop.dead || hop.link_down || link.is_some_and(|link| !link.carrier && !link.loopback)
    };
    let mut route = route.clone();
    let any = !route.next_hops.is_empty();
    route.next_hops.retain(|hop| !down(hop));
    (!any || !route.next_hops.is_empty()).then_some(route)
}

/// A kernel route as shown; `None` for broadcast and multicast routes, and for the host's talks to itself.
pub(crate) fn route(vrf: Option<&str>, route: &lanyard_netdev::Route, facts: &Facts) -> Option<view::Route> {
    if matches!(route.kind, RouteKind::Broadcast | RouteKind::Multicast | RouteKind::Other(_)) {
        return None;
    }
    if route.kind == RouteKind::Local && route.dest.addr().is_loopback() {
        return None;
    }
    let on_link = route.next_hops.iter().all(|hop| hop.via.is_none());
    let protocol = match route.protocol {
        _ if route.kind == RouteKind::Local => "local".into(),
        2 if on_link => "connected".into(),
        lanyard_netdev::ROUTE_PROTOCOL => "static".into(),
        other => protocol_name(other),
    };
    let hop = |hop: &lanyard_netdev::NextHop| view::NextHop {
        via: hop.via,
        interface: hop.ifindex.map_or_else(String::new, |ifindex| netdev_name(vrf, ifindex, facts)),
        weight: hop.weight.into(),
    };
    Some(view::Route {
        prefix: route.dest,
        protocol,
        metric: route.metric,
        nexthops: route.next_hops.iter().map(hop).collect(),
        offload: Offload::None,
    })
}

/// The names of iproute2's rt_protos; others by number.
fn protocol_name(protocol: u8) -> String {
    let name = match protocol {
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        9 => "ra",
        11 => "zebra",
        12 => "bird",
        16 => "dhcp",
        18 => "keepalived",
        42 => "babel",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        other => return other.to_string(),
    };
    name.into()
}

fn netdev_name(vrf: Option<&str>, ifindex: u32, facts: &Facts) -> String {
    facts.by_index_in(vrf, ifindex).map_or_else(|| format!("if{ifindex}"), |link| link.name.clone())
}

/// A neighbour as shown; `None` for multicast and loopback mappings, which nobody asked for.
pub(crate) fn neighbour(
    vrf: Option<&str>,
    entry: &lanyard_netdev::Neighbour,
    facts: &Facts,
) -> Option<view::Neighbor> {
    if entry.proxy
        || matches!(entry.state, NeighbourState::NoArp | NeighbourState::None | NeighbourState::Other(_))
    {
        return None;
    }
    Some(view::Neighbor {
        address: entry.addr,
        mac: entry.mac.filter(|mac| !mac.is_zero()),
        interface: netdev_name(vrf, entry.ifindex, facts),
        state: entry.state.name(),
        offload: Offload::None,
    })
}
