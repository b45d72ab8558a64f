//! [`Snooping`]: IGMP and MLD snooping in all VLANs, the crate's public interface.

use crate::config::{Config, VlanConfig};
use crate::membership::Membership;
use crate::message::{Family, Message, MessageError, Received};
use crate::proxy::Report;
use crate::vlan::{Flood, NoRoom, Relay, Sent, Vlan};
use crate::{igmp, mld};
use lanyard_types::{MacAddr, PortId, PortSet, VlanId};
use lanyard_wire::Frame;
use lanyard_wire::ip::{IPV4, IPV6};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most memberships: a group at a port counts once.
pub const MAX_MEMBERSHIPS: usize = 65_536;

/// The actions for the caller, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Forward the frames of a group to these ports and to those that lead to routers. If `ports` is `None`, remove the entry: no
    /// member names the source any more, or the group has no members any more and its frames are those of an unknown group.
    Group {
        /// The VLAN.
        vlan: VlanId,
        /// The group.
        group: IpAddr,
        /// The source of the frames; `None`: every source that has no entry of its own.
        source: Option<IpAddr>,
        /// The ports.
        ports: Option<Box<PortSet>>,
    },
    /// These ports of a VLAN lead to routers, and no others: they get the frames of every group.
    Routers {
        /// The VLAN.
        vlan: VlanId,
        /// The family.
        family: Family,
        /// The ports.
        ports: Box<PortSet>,
    },
    /// Send a frame, in this VLAN, out of these ports.
    Send {
        /// The VLAN.
        vlan: VlanId,
        /// The port that received the frame; `None` if the switch itself sends it.
        from: Option<PortId>,
        /// The ports.
        ports: Box<PortSet>,
        /// The frame, without a tag.
        frame: Vec<u8>,
    },
    /// The groups flooded in a VLAN have changed.
    Flood {
        /// The VLAN.
        vlan: VlanId,
        /// The family.
        family: Family,
        /// The groups.
        what: Flood,
    },
    /// A membership was refused: the port has as many groups as it may have, or the switch as many memberships.
    Full {
        /// The VLAN.
        vlan: VlanId,
        /// The port whose limit is reached; `None`: the limit of the switch.
        port: Option<PortId>,
    },
}

/// The statistics of a VLAN and family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Queries received.
    pub queries: u64,
    /// Reports received.
    pub reports: u64,
    /// Leaves received.
    pub leaves: u64,
    /// PIM hellos and multicast router discovery received.
    pub routers: u64,
    /// Queries sent.
    pub sent: u64,
    /// Reports sent for hosts (`proxy`).
    pub proxied: u64,
    /// Records for which there was no room.
    pub refused: u64,
    /// Frames refused, by reason in the order of [`MessageError::ALL`].
    pub errors: [u64; MessageError::ALL.len()],
}

/// A group as `show` commands present it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView {
    /// The VLAN.
    pub vlan: VlanId,
    /// The group.
    pub group: IpAddr,
    /// The filter mode of all ports together: true (EXCLUDE) if a port wants all sources but those it names. A static member
    /// wants all sources.
    pub exclude: bool,
    /// The sources that no port wants in mode EXCLUDE, and those that some port wants in mode INCLUDE.
    pub sources: Vec<IpAddr>,
    /// The ports with members, including static ones.
    pub ports: PortSet,
    /// When the last membership ends, in milliseconds; `None` for static members alone.
    pub expires_ms: Option<u64>,
}

/// Snooping. See the crate's documentation for the contract.
#[derive(Debug, Clone, Default)]
pub struct Snooping {
    config: Config,
    vlans: BTreeMap<(VlanId, Family), Vlan>,
    counters: BTreeMap<(VlanId, Family), Counters>,
    /// The entries that were last reported to the caller.
    reported: BTreeMap<(VlanId, IpAddr), BTreeMap<Option<IpAddr>, PortSet>>,
    reported_routers: BTreeMap<(VlanId, Family), PortSet>,
    reported_flood: BTreeMap<(VlanId, Family), Flood>,
    /// The memberships of all VLANs.
    memberships: usize,
    actions: VecDeque<Action>,
    /// The time of the last call.
    now: u64,
}

impl Snooping {
    /// Snooping in no VLAN.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a configuration.
    pub fn configure(&mut self, now: u64, config: Config) {
        self.now = now;
        let gone: Vec<_> = self.vlans.keys().filter(|key| !config.vlans.contains_key(key)).copied().collect();
        for key in gone {
            if let Some(mut vlan) = self.vlans.remove(&key) {
                self.memberships -= vlan.memberships();
                vlan.clear();
                vlan.end_flooding();
                vlan.configure(now, VlanConfig::default());
                self.announce(key, &mut vlan);
                self.counters.remove(&key);
                self.reported_routers.remove(&key);
                self.reported_flood.remove(&key);
            }
        }
        for (key, settings) in &config.vlans {
            let mut settings = settings.clone();
            settings.static_groups.retain(|group, _| Family::of(*group) == key.1);
            settings.querier = settings.querier.filter(|querier| Family::of(querier.address) == key.1);
            let vlan = self.vlans.entry(*key).or_default();
            let before = vlan.memberships();
            vlan.configure(now, settings);
            self.memberships = self.memberships + vlan.memberships() - before;
            self.counters.entry(*key).or_default();
        }
        self.config = config;
        self.handle_timer(now);
    }

    /// Takes a frame with IGMP, MLD or PIM that was received in a VLAN. The frame is passed on by an [`Action::Send`] to
    /// the ports that are to get it, and to no others; without its tag.
    ///
    /// # Errors
    /// The reason for which the message was refused; it has been counted, and the frame is not forwarded.
    pub fn handle_frame(
        &mut self,
        now: u64,
        vlan: VlanId,
        port: PortId,
        frame: &[u8],
    ) -> Result<(), MessageError> {
        self.now = now;
        let view = Frame::new(frame);
        // A frame that is no IP packet is counted as one of IGMP.
        let family = match &view {
            Ok(view) if view.ethertype() == IPV6 => Family::V6,
            _ => Family::V4,
        };
        let key = (vlan, family);
        let Some(mut state) = self.vlans.remove(&key) else { return Ok(()) };
        let decoded = match &view {
            Err(_) => Err(MessageError::FrameTruncated),
            Ok(view) => match view.ethertype() {
                IPV4 => igmp::decode(view.src(), view.payload()),
                IPV6 => mld::decode(view.src(), view.payload()),
                _ => Err(MessageError::Protocol),
            },
        };
        let counters = self.counters.entry(key).or_default();
        match &decoded {
            Ok(received) => count(counters, received),
            Err(error) => counters.errors[*error as usize] += 1,
        }
        if let Ok(received) = &decoded {
            let (room, before) = (self.memberships < MAX_MEMBERSHIPS, state.memberships());
            let (relay, refused) = state.take(now, family, port, received, room);
            if let Some(no_room) = refused {
                counters.refused += 1;
                let port = (no_room == NoRoom::Port).then_some(port);
                self.actions.push_back(Action::Full { vlan, port });
            }
            self.memberships = self.memberships + state.memberships() - before;
            self.pass_on(vlan, port, &state, relay, frame);
        }
        if decoded == Err(MessageError::Type) {
            // DVMRP and other protocols have types of IGMP, and snooping must not stop them (RFC 4541, 2.1.1).
            self.pass_on(vlan, port, &state, Relay::All, frame);
        }
        self.finish(key, state);
        decoded.map(|_| ())
    }

    /// Removes the state learned at a port whose link has gone down.
    pub fn handle_link_down(&mut self, port: PortId) {
        for key in self.keys() {
            if let Some(mut vlan) = self.vlans.remove(&key) {
                let before = vlan.memberships();
                vlan.forget(port);
                self.memberships = self.memberships + vlan.memberships() - before;
                self.finish(key, vlan);
            }
        }
    }

    /// Takes over, right after the first configuration, what a plane has kept since the last run: entries of groups as
    /// (VLAN, group, source, ports), and the ports that lead to routers. Members are given the time that a report gives
    /// them. The caller receives actions only for entries that differ.
    pub fn restore(
        &mut self,
        now: u64,
        entries: &[(VlanId, IpAddr, Option<IpAddr>, PortSet)],
        routers: &[(VlanId, Family, PortSet)],
    ) {
        let mut groups: BTreeMap<(VlanId, IpAddr), BTreeMap<Option<IpAddr>, PortSet>> = BTreeMap::new();
        for (vlan, group, source, ports) in entries {
            groups.entry((*vlan, *group)).or_default().insert(*source, ports.clone());
        }
        for ((id, group), held) in groups {
            let key = (id, Family::of(group));
            if let Some(vlan) = self.vlans.get_mut(&key) {
                let before = vlan.memberships();
                let until = now + vlan.config.membership_ms();
                for (port, membership) in found(&held, vlan.config.static_groups.get(&group), until) {
                    if self.memberships < MAX_MEMBERSHIPS {
                        vlan.restore(group, port, membership);
                    }
                }
                vlan.touched.insert(group);
                self.memberships = self.memberships + vlan.memberships() - before;
            }
            self.reported.insert((id, group), held);
        }
        for (id, family, ports) in routers {
            if let Some(vlan) = self.vlans.get_mut(&(*id, *family)) {
                ports.iter().for_each(|port| vlan.restore_router(now, port));
            }
            self.reported_routers.insert((*id, *family), ports.clone());
        }
        // Remove the entries of VLANs that are no longer snooped.
        let stray: Vec<_> = self
            .reported
            .keys()
            .filter(|(id, group)| !self.vlans.contains_key(&(*id, Family::of(*group))))
            .copied()
            .collect();
        for (id, group) in stray {
            let mut none = Vlan::default();
            none.touched.insert(group);
            self.announce_groups(id, &mut none);
        }
        let gone: Vec<_> =
            self.reported_routers.keys().filter(|key| !self.vlans.contains_key(key)).copied().collect();
        for (vlan, family) in gone {
            self.reported_routers.remove(&(vlan, family));
            self.actions.push_back(Action::Routers { vlan, family, ports: Box::default() });
        }
        self.handle_timer(now);
    }

    /// Handles a change of topology in a VLAN: floods the groups until the members have been queried again, by a general
    /// query of this switch, or by one that it solicits from the querier.
    pub fn handle_topology_change(&mut self, now: u64, vlan: VlanId) {
        for family in [Family::V4, Family::V6] {
            let Some(state) = self.vlans.get_mut(&(vlan, family)) else { continue };
            state.flood_all(now);
            if !state.ask_all(now) && family == Family::V4 && state.config.tcn_solicit {
                let ports = Box::new(state.routers());
                let frame = igmp::encode_global_leave(self.config.mac);
                self.actions.push_back(Action::Send { vlan, from: None, ports, frame });
            }
        }
        self.handle_timer(now);
    }

    /// Does the work that is due.
    pub fn handle_timer(&mut self, now: u64) {
        self.now = now;
        for key in self.keys() {
            if self.vlans.get(&key).is_none_or(|vlan| !vlan.is_due(now)) {
                continue;
            }
            if let Some(mut vlan) = self.vlans.remove(&key) {
                let before = vlan.memberships();
                vlan.expire(now, key.1);
                self.memberships = self.memberships + vlan.memberships() - before;
                self.finish(key, vlan);
            }
        }
    }

    /// When [`Snooping::handle_timer`] is to be called next; `None` if nothing is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<u64> {
        self.vlans.values().filter_map(Vlan::next).min()
    }

    /// The next action; `None` when there is none.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The groups of a VLAN and family.
    #[must_use]
    pub fn groups(&self, vlan: VlanId, family: Family) -> Vec<GroupView> {
        let Some(state) = self.vlans.get(&(vlan, family)) else { return Vec::new() };
        let view = |group: IpAddr| {
            let mut ports = state.config.static_groups.get(&group).cloned().unwrap_or(PortSet::EMPTY);
            for (port, _) in state.members(group) {
                ports.insert(port);
            }
            // No port wants a group whose static members are all at disabled ports; its filter is still that of static members.
            let (exclude, sources) = state.wanted(group).unwrap_or((true, BTreeSet::new()));
            GroupView {
                vlan,
                group,
                exclude,
                sources: sources.into_iter().collect(),
                ports,
                expires_ms: state.members(group).filter_map(|(_, membership)| membership.expires()).max(),
            }
        };
        state.group_names().into_iter().map(view).collect()
    }

    /// The ports of a VLAN that lead to routers, each with the time in milliseconds at which it is forgotten (`None`:
    /// configured).
    #[must_use]
    pub fn routers(&self, vlan: VlanId, family: Family) -> Vec<(PortId, Option<u64>)> {
        let Some(state) = self.vlans.get(&(vlan, family)) else { return Vec::new() };
        let fixed = |port: PortId| state.config.static_routers.contains(port);
        state
            .routers()
            .iter()
            .map(|port| (port, state.router_expires(port).filter(|_| !fixed(port))))
            .collect()
    }

    /// The querier of a VLAN, and whether it is this switch.
    #[must_use]
    pub fn querier(&self, vlan: VlanId, family: Family) -> Option<(IpAddr, bool)> {
        self.vlans.get(&(vlan, family)).and_then(Vlan::querier)
    }

    /// The statistics of a VLAN and family; `None` where nothing is snooped.
    #[must_use]
    pub fn counters(&self, vlan: VlanId, family: Family) -> Option<Counters> {
        self.counters.get(&(vlan, family)).copied()
    }

    /// The groups that are flooded in a VLAN in spite of snooping.
    #[must_use]
    pub fn flooded(&self, vlan: VlanId, family: Family) -> Flood {
        self.vlans.get(&(vlan, family)).map(Vlan::flooded).unwrap_or_default()
    }

    /// Forgets the learned members of all VLANs.
    pub fn clear(&mut self, family: Family) {
        for key in self.keys().into_iter().filter(|key| key.1 == family) {
            if let Some(mut vlan) = self.vlans.remove(&key) {
                self.memberships -= vlan.memberships();
                vlan.clear();
                self.finish(key, vlan);
            }
        }
    }
    /// The memberships of all VLANs; at most [`MAX_MEMBERSHIPS`].
    #[must_use]
    pub const fn memberships(&self) -> usize {
        self.memberships
    }
    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    fn keys(&self) -> Vec<(VlanId, Family)> {
        self.vlans.keys().copied().collect()
    }

    /// Sends a received frame to the ports that `relay` stands for, except the one that received it.
    fn pass_on(&mut self, vlan: VlanId, port: PortId, state: &Vlan, relay: Relay, frame: &[u8]) {
        let mut ports = match relay {
            Relay::All => state.config.ports.clone(),
            Relay::Routers => state.routers(),
            Relay::Nobody => return,
        };
        ports.remove(port);
        if !ports.is_empty() {
            let (ports, frame) = (Box::new(ports), frame.to_vec());
            self.actions.push_back(Action::Send { vlan, from: Some(port), ports, frame });
        }
    }

    /// Puts a VLAN back into `vlans`, announces its changes to the caller, and sends its queries and reports.
    fn finish(&mut self, key: (VlanId, Family), mut vlan: Vlan) {
        let reports = vlan.report(self.now, key.1);
        self.announce(key, &mut vlan);
        let frames: Vec<_> = std::mem::take(&mut vlan.to_send)
            .into_iter()
            .map(|sent| self.query(&vlan, key.1, &sent))
            .collect();
        for (ports, frame) in frames {
            if let Some(counters) = self.counters.get_mut(&key) {
                counters.sent += 1;
            }
            self.actions.push_back(Action::Send { vlan: key.0, from: None, ports: Box::new(ports), frame });
        }
        self.send_reports(key, &vlan, reports);
        self.vlans.insert(key, vlan);
    }

    /// Sends the switch's own reports to the ports that lead to routers.
    fn send_reports(&mut self, key: (VlanId, Family), vlan: &Vlan, reports: Vec<Report>) {
        let mac = self.config.mac;
        for report in reports {
            let mut ports = vlan.routers();
            if let Some(port) = report.not_to {
                ports.remove(port);
            }
            let frame = match key.1 {
                Family::V4 => igmp::encode_report(mac, report.version, &report.records),
                Family::V6 => mld::encode_report(mac, link_local(mac), report.version, &report.records),
            };
            let Some(frame) = frame.filter(|_| !ports.is_empty()) else { continue };
            if let Some(counters) = self.counters.get_mut(&key) {
                counters.proxied += 1;
            }
            self.actions.push_back(Action::Send { vlan: key.0, from: None, ports: Box::new(ports), frame });
        }
    }

    fn query(&self, vlan: &Vlan, family: Family, sent: &Sent) -> (PortSet, Vec<u8>) {
        let ports = match sent.port {
            Some(port) => std::iter::once(port).collect(),
            None => vlan.config.ports.clone(),
        };
        // A switch that is not the querier sends queries from the unspecified address; MLD requires a link-local one.
        let own = vlan.querier().filter(|(_, own)| *own).map(|(address, _)| address);
        let (robustness, interval) = (vlan.config.robustness, vlan.config.query_interval_s);
        let mac = self.config.mac;
        let frame = match (family, own) {
            (Family::V4, Some(IpAddr::V4(source))) => {
                igmp::encode_query(mac, source, &sent.query, robustness, interval)
            }
            (Family::V4, _) => {
                igmp::encode_query(mac, Ipv4Addr::UNSPECIFIED, &sent.query, robustness, interval)
            }
            (Family::V6, Some(IpAddr::V6(source))) => {
                mld::encode_query(mac, source, &sent.query, robustness, interval)
            }
            (Family::V6, _) => mld::encode_query(mac, link_local(mac), &sent.query, robustness, interval),
        };
        (ports, frame)
    }

    /// Queues actions for the groups, the router ports and the flooding that have changed.
    fn announce(&mut self, (id, family): (VlanId, Family), vlan: &mut Vlan) {
        self.announce_groups(id, vlan);
        let routers = vlan.routers();
        if self.reported_routers.get(&(id, family)).unwrap_or(&PortSet::EMPTY) != &routers {
            self.reported_routers.insert((id, family), routers.clone());
            self.actions.push_back(Action::Routers { vlan: id, family, ports: Box::new(routers) });
        }
        let what = vlan.flooded();
        if self.reported_flood.insert((id, family), what).unwrap_or_default() != what {
            self.actions.push_back(Action::Flood { vlan: id, family, what });
        }
    }

    fn announce_groups(&mut self, id: VlanId, vlan: &mut Vlan) {
        for group in std::mem::take(&mut vlan.touched) {
            let mut next = BTreeMap::new();
            if vlan.has_group(group) {
                next.insert(None, vlan.ports(group, None));
                next.extend(
                    vlan.sources(group)
                        .into_iter()
                        .map(|source| (Some(source), vlan.ports(group, Some(source)))),
                );
            }
            let was = self.reported.remove(&(id, group)).unwrap_or_default();
            for (source, ports) in &next {
                if was.get(source) != Some(ports) {
                    let ports = Some(Box::new(ports.clone()));
                    self.actions.push_back(Action::Group { vlan: id, group, source: *source, ports });
                }
            }
            for source in was.keys().filter(|source| !next.contains_key(source)) {
                self.actions.push_back(Action::Group { vlan: id, group, source: *source, ports: None });
            }
            if !next.is_empty() {
                self.reported.insert((id, group), next);
            }
        }
    }
}

/// Derives memberships from a plane's entries of one group, except for the ports in `fixed`, which are static members.
fn found(
    held: &BTreeMap<Option<IpAddr>, PortSet>,
    fixed: Option<&PortSet>,
    until: u64,
) -> Vec<(PortId, Membership)> {
    let any = held.get(&None).unwrap_or(&PortSet::EMPTY);
    let all = held.values().fold(PortSet::EMPTY, |all, ports| all.union(ports));
    let of = |port: PortId| {
        let sources =
            held.iter().filter_map(|(source, ports)| source.map(|source| (source, ports.contains(port))));
        let (wanted, excluded): (Vec<_>, Vec<_>) = sources.partition(|(_, has)| *has);
        let names =
            |list: Vec<(IpAddr, bool)>| list.into_iter().map(|(source, _)| source).collect::<BTreeSet<_>>();
        let membership = match any.contains(port) {
            true => Membership::found(true, BTreeSet::new(), names(excluded), until),
            false => Membership::found(false, names(wanted), BTreeSet::new(), until),
        };
        (port, membership)
    };
    all.iter().filter(|port| fixed.is_none_or(|fixed| !fixed.contains(*port))).map(of).collect()
}

fn count(counters: &mut Counters, received: &Received) {
    let counter = match received.message {
        Message::Query(_) => &mut counters.queries,
        Message::Report { .. } => &mut counters.reports,
        Message::Leave(_) => &mut counters.leaves,
        Message::PimHello(_) | Message::RouterAdvertisement(_) | Message::RouterTermination => {
            &mut counters.routers
        }
    };
    *counter += 1;
}

/// The link-local address with the modified EUI-64 of a MAC address (RFC 4291, appendix A).
#[must_use]
pub fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let word = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(0xfe80, 0, 0, 0, word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, f))
}
