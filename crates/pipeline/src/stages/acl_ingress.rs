//! acl_ingress: judges a frame by the inbound access lists: of its port, then of its VLAN (a VLAN map), then of the VLAN
//! interface if the frame is addressed to the router.
//!
//! It precedes the stages that limit rates and learn: a frame that is denied takes no tokens, and its source address is not
//! learned. A frame from the host's stack is judged by the outbound list of its VLAN interface. One list at each place judges a
//! frame, by the frame's family: IPv4, IPv6, or all others (`lanyard_acl::FrameFamily`).

use super::Arrival;
use super::parse::Parsed;
use super::route;
use super::vlan_ingress::Class;
use crate::qos::QosPolicy;
use crate::state::{AclBindings, PlaneState, PortKind, PortState};
use crate::tables::Tables;
use crate::tables::acls::{Answer, Hit, Question};
use lanyard_acl::condition::{Condition, FlatRule, PlaneList, Purpose, Verdict as RuleVerdict};
use lanyard_acl::key::{self, FrameFamily, Header, Key, Malformed};
use lanyard_types::{AclId, DropReason, MacAddr, Rng, VlanId};
use std::sync::Arc;

/// A frame that lists judge. Its key is read when the first list needs it.
pub(super) struct Judged<'a> {
    header: Header,
    packet: &'a [u8],
    key: Option<Result<Key, Malformed>>,
    /// The source address for notes; zero for outbound lists.
    src: MacAddr,
    answers: &'a [Answer],
}

/// What a denial removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The frame.
    Frame,
    /// One port of a flood.
    Copy,
}

impl<'a> Judged<'a> {
    /// Prepares the frame for lists that compare `vlan`; `None` where the frame is in no VLAN. The addresses that lists compare
    /// are those in `frame`: for a routed frame, the ones with which it leaves.
    pub(super) fn new(arrival: &Arrival<'a>, frame: &Parsed, vlan: Option<VlanId>) -> Self {
        let header = Header {
            dst: frame.dst,
            src: frame.src,
            ethertype: route::inner_ethertype(arrival, frame),
            vlan: vlan.map_or(0, VlanId::get),
            cos: frame.cos,
        };
        let packet = arrival.bytes.get(route::l3_offset(frame)..).unwrap_or_default();
        Self { header, packet, key: None, src: MacAddr([0; 6]), answers: arrival.answers }
    }

    /// For inbound lists: adds the frame's source address, which notes for the log contain.
    fn inbound(self) -> Self {
        Self { src: self.header.src, ..self }
    }

    /// The class of the frame in a policy: the index of one of its classes.
    pub(super) fn class(&mut self, tables: &Tables, policy: &QosPolicy) -> usize {
        let default = policy.classes.len().saturating_sub(1);
        let Some(id) = policy.lists[FrameFamily::of(self.header.ethertype).index()] else { return default };
        let key = self.key.get_or_insert_with(|| Key::read(&self.header, self.packet));
        tables.acls.class(id, key).unwrap_or(default)
    }
    /// The family of the packet, if its header is valid.
    pub(super) fn packet(&mut self) -> Option<FrameFamily> {
        let key = self.key.get_or_insert_with(|| Key::read(&self.header, self.packet));
        key.is_ok()
            .then(|| FrameFamily::of(self.header.ethertype))
            .filter(|family| *family != FrameFamily::Mac)
    }

    /// Judges the frame by the lists bound at one place, and records the rule that decided; false if the frame is denied. A
    /// diverted list is judged by the software's answer; if there is none, the question is recorded, and the result is true.
    pub(super) fn passes(
        &mut self,
        tables: &Tables,
        lists: &AclBindings,
        scope: Scope,
        hits: &mut Vec<Hit>,
    ) -> bool {
        let Some(id) = lists[FrameFamily::of(self.header.ethertype).index()] else { return true };
        let key = self.key.get_or_insert_with(|| Key::read(&self.header, self.packet));
        if let Ok(key) = key
            && tables.acls.is_diverted(id)
        {
            let answer = self.answers.iter().find(|answer| answer.list == id && answer.key == *key);
            if let Some(answer) = answer {
                return answer.permit;
            }
            let question = Question { list: id, key: *key, ends: scope == Scope::Frame };
            hits.push(Hit { list: id, rule: 0, note: None, question: Some(Box::new(question)) });
            return true;
        }
        let Some((hit, permit)) = tables.acls.judge(id, key, self.src) else { return true };
        hits.push(hit);
        permit
    }
}

/// Judges a frame that a port has received; `class` is `None` at a port in no VLAN.
pub(super) fn run(
    tables: &Tables,
    arrival: &Arrival<'_>,
    ingress: &PortState,
    frame: &Parsed,
    class: Option<&Class>,
    hits: &mut Vec<Hit>,
) -> Result<(), DropReason> {
    let mut judged = Judged::new(arrival, frame, class.map(|class| class.vlan)).inbound();
    if !judged.passes(tables, &ingress.acl_in, Scope::Frame, hits) {
        let host = matches!(ingress.kind, PortKind::Svi(_));
        return Err(if host { DropReason::AclHostOut } else { DropReason::AclPortIn });
    }
    let Some(class) = class else { return Ok(()) };
    let map = tables.vlans.get(class.vlan).map(|vlan| &vlan.acl);
    if map.is_some_and(|map| !judged.passes(tables, map, Scope::Frame, hits)) {
        return Err(DropReason::AclVlanIn);
    }
    let rif =
        tables.rifs.on_vlan(tables.vlans.routed(class.vlan)).filter(|_| ingress.kind == PortKind::Netdev);
    let up = rif.filter(|(_, rif)| route::is_for(rif, frame.dst)).and_then(|(_, rif)| rif.attachment.up());
    let lists = up.and_then(|up| tables.ports.get(up)).map(|up| &up.acl_out);
    if lists.is_some_and(|lists| !judged.passes(tables, lists, Scope::Frame, hits)) {
        return Err(DropReason::AclRouterIn);
    }
    Ok(())
}

/// Gives a generated state access lists, in a third of all cases, and binds them to ports and VLANs.
pub(super) fn randomise(rng: &mut Rng, plane: &mut PlaneState) {
    if !rng.percent(33) {
        return;
    }
    let ids: Vec<(FrameFamily, AclId)> =
        (1..=9).filter_map(|n: u16| Some((FrameFamily::ALL[usize::from(n) % 3], AclId::new(n)?))).collect();
    for (family, id) in &ids {
        plane.acls.insert(*id, Arc::new(random_list(rng, *family)));
    }
    let bindings = |rng: &mut Rng| {
        let mut lists = AclBindings::default();
        for family in FrameFamily::ALL {
            let of: Vec<AclId> = ids.iter().filter(|(f, _)| *f == family).map(|(_, id)| *id).collect();
            lists[family.index()] = rng.pick(&of).filter(|_| rng.percent(60));
        }
        lists
    };
    for port in plane.ports.values_mut() {
        if rng.percent(30) {
            port.acl_in = bindings(rng);
        }
        if rng.percent(30) {
            port.acl_out = bindings(rng);
        }
    }
    for vlan in plane.vlans.values_mut() {
        if rng.percent(25) {
            vlan.acl = bindings(rng);
        }
    }
}

/// A list of up to 300 rules, each of which compares some bits, or a range, of a few fields. The bits are always the same few, and
/// long lists compare no bits, so that a field has few classes and the list fits.
pub(super) fn random_list(rng: &mut Rng, family: FrameFamily) -> PlaneList {
    const IPV4: &[usize] = &[
        key::SRC,
        key::SRC + 1,
        key::DST + 1,
        key::L4_SRC,
        key::L4_DST,
        key::PROTOCOL,
        key::TOS,
        key::VLAN,
        key::TCP_FLAGS,
    ];
    const IPV6: &[usize] = &[
        key::SRC + 1,
        key::SRC + 7,
        key::DST + 3,
        key::DST + 7,
        key::L4_SRC,
        key::L4_DST,
        key::PROTOCOL,
        key::TOS,
    ];
    const MAC: &[usize] = &[key::SRC, key::SRC + 2, key::DST, key::DST + 2, key::ETHERTYPE, key::VLAN];
    let fields = match family {
        FrameFamily::Ipv4 => IPV4,
        FrameFamily::Ipv6 => IPV6,
        FrameFamily::Mac => MAC,
    };
    let count = rng.pick(&[1, 2, 5, 20, 66, 300]).unwrap_or(1);
    let rule = |rng: &mut Rng, at: u16| {
        let mut conditions = std::collections::BTreeMap::new();
        for _ in 0..=rng.below(3) {
            let field = rng.pick(fields).unwrap_or(key::VLAN);
            conditions.insert(field as u8, random_condition(rng, count < 100));
        }
        let verdict = match rng.below(20) {
            0 => RuleVerdict::Skip(at + 1 + rng.below(90) as u16),
            1..=6 => RuleVerdict::Deny,
            _ => RuleVerdict::Permit,
        };
        let conditions = conditions.into_iter().collect();
        FlatRule {
            verdict,
            fragments: rng.percent(60),
            log: rng.percent(10),
            log_input: false,
            list: 0,
            seq: u32::from(at) + 1,
            conditions,
        }
    };
    let rules = (0..count).map(|at| rule(rng, at)).collect();
    PlaneList {
        name: "random".into(),
        purpose: Purpose::Filter,
        family,
        names: vec!["random".into()],
        rules,
        otherwise_permit: rng.percent(60),
    }
}

fn random_condition(rng: &mut Rng, bits: bool) -> Condition {
    match rng.below(4) {
        2.. if bits => {
            let mask = (0..=rng.below(3))
                .fold(0, |mask, _| mask | 1 << rng.pick(&[0, 1, 4, 8, 10, 15]).unwrap_or(0));
            Condition::Mask { value: rng.next_u64() as u16 & mask, mask }
        }
        1 => {
            let low = rng.below(60_000) as u16;
            Condition::Ranges(vec![(0, low / 3), (low / 2 + 2, low + 2)])
        }
        _ => {
            let (a, b) = (rng.next_u64() as u16, rng.next_u64() as u16);
            Condition::Ranges(vec![(a.min(b), a.max(b))])
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::state::{AclBindings, PlaneState, PortKind, PortState, VlanState};
    use crate::trace::Verdict;
    use crate::{Output, Pipeline, Timestamp};
    use lanyard_acl::{AccessList, Entry, FrameFamily, Kind, Lists, text};
    use lanyard_types::{AclId, DropReason, MacAddr, PortId, VlanId};
    use lanyard_wire::Builder;
    use std::sync::Arc;

    fn port(n: u16) -> PortId {
        PortId::new(n).expect("a port")
    }

    fn id(n: u16) -> AclId {
        AclId::new(n).expect("a list")
    }

    fn mac(n: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, n])
    }

    /// Three access ports of VLAN 1, and the host's port 4; list 1 is made of these lines.
    fn state(kind: Kind, lines: &[&str]) -> PlaneState {
        let mut state = PlaneState::default();
        state.vlans.insert(VlanId::DEFAULT, VlanState::default());
        for n in 1..=4 {
            state.ports.insert(port(n), PortState::access(&format!("p{n}"), n.into(), VlanId::DEFAULT));
        }
        state.ports.get_mut(&port(4)).expect("port 4").kind = PortKind::Svi(VlanId::DEFAULT);
        let mut list = AccessList::new(kind);
        for (at, line) in lines.iter().enumerate() {
            let rule = text::parse(kind, &line.split_whitespace().collect::<Vec<_>>()).expect("a rule");
            list.insert(at as u32 + 1, Entry::Rule(rule));
        }
        let mut lists = Lists::default();
        lists.access.insert("it".into(), list);
        state.acls.insert(id(1), Arc::new(lists.plane_list("it", &|_| true).expect("it has rules")));
        state
    }

    fn only(family: FrameFamily) -> AclBindings {
        let mut lists = AclBindings::default();
        lists[family.index()] = Some(id(1));
        lists
    }

    fn pipeline(state: &PlaneState) -> Pipeline {
        let mut pipeline = Pipeline::new(0);
        pipeline.set_state(state, Timestamp::default(), &mut |_| {});
        pipeline
    }

    fn udp(src: MacAddr, dst: MacAddr, last: u8) -> Vec<u8> {
        let packet =
            [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, last, 10, 0, 0, 9, 1, 1, 2, 2, 0, 8, 0, 0];
        Builder::new(dst, src).ethertype(0x0800).payload(&packet).build()
    }

    fn send(pipeline: &mut Pipeline, at: u16, frame: &[u8]) -> (Verdict, Vec<u16>) {
        let mut out = Output::default();
        let verdict = pipeline.process(Timestamp::default(), port(at), frame, &mut out);
        (verdict, out.sent.iter().map(|(port, _)| port.get()).collect())
    }

    #[test]
    fn a_port_access_list_filters_only_frames_received_at_its_port() {
        let mut state = state(Kind::Extended, &["deny ip host 10.0.0.1 any", "permit udp any any"]);
        state.ports.get_mut(&port(1)).expect("port 1").acl_in = only(FrameFamily::Ipv4);
        let mut p = pipeline(&state);
        assert_eq!(send(&mut p, 1, &udp(mac(1), mac(2), 1)).0, Verdict::Dropped(DropReason::AclPortIn));
        assert!(p.fdb().get(VlanId::DEFAULT, mac(1)).is_none(), "a denied frame has taught the FDB");
        assert_eq!(send(&mut p, 1, &udp(mac(1), mac(2), 2)).0, Verdict::Forwarded);
        assert_eq!(send(&mut p, 2, &udp(mac(2), mac(9), 1)).0, Verdict::Forwarded, "port 2 has no list");
        let arp = Builder::new(mac(2), mac(1)).ethertype(0x0806).build();
        assert_eq!(send(&mut p, 1, &arp).0, Verdict::Forwarded, "an IP list does not judge ARP");
        let cut = Builder::new(mac(2), mac(1)).ethertype(0x0800).payload(&[0x65; 40]).build();
        assert_eq!(send(&mut p, 1, &cut).0, Verdict::Dropped(DropReason::AclPortIn), "no IP header");
        assert_eq!(p.tables().acls.matches(id(1)), Some(&[1, 1, 1][..]));
        let _ = p.trace(port(1), &udp(mac(1), mac(2), 1));
        assert_eq!(p.tables().acls.matches(id(1)), Some(&[1, 1, 1][..]), "a trace counts nothing");
    }

    #[test]
    fn outbound_lists_thin_out_floods() {
        let mut state = state(Kind::Extended, &["permit udp host 10.0.0.1 any"]);
        state.ports.get_mut(&port(2)).expect("port 2").acl_out = only(FrameFamily::Ipv4);
        state.ports.get_mut(&port(4)).expect("port 4").acl_out = only(FrameFamily::Ipv4);
        let mut p = pipeline(&state);
        let broadcast = |last| udp(mac(1), MacAddr::BROADCAST, last);
        assert_eq!(send(&mut p, 1, &broadcast(1)), (Verdict::Forwarded, vec![2, 3, 4]));
        assert_eq!(send(&mut p, 1, &broadcast(2)), (Verdict::Forwarded, vec![3]));
        state.ports.get_mut(&port(3)).expect("port 3").enabled = false;
        let mut p = pipeline(&state);
        assert_eq!(send(&mut p, 1, &broadcast(2)).0, Verdict::Dropped(DropReason::AclPortOut));
        state.ports.get_mut(&port(2)).expect("port 2").enabled = false;
        let mut p = pipeline(&state);
        assert_eq!(send(&mut p, 1, &broadcast(2)).0, Verdict::Dropped(DropReason::AclHostIn));
    }

    #[test]
    fn vlan_maps_and_the_host() {
        let mut state = state(Kind::Extended, &["deny ip host 10.0.0.1 any", "permit ip any any"]);
        state.vlans.get_mut(&VlanId::DEFAULT).expect("VLAN 1").acl = only(FrameFamily::Ipv4);
        let mut p = pipeline(&state);
        assert_eq!(send(&mut p, 3, &udp(mac(1), mac(2), 1)).0, Verdict::Dropped(DropReason::AclVlanIn));
        state.vlans.get_mut(&VlanId::DEFAULT).expect("VLAN 1").acl = AclBindings::default();
        state.ports.get_mut(&port(4)).expect("port 4").acl_in = only(FrameFamily::Ipv4);
        let mut p = pipeline(&state);
        assert_eq!(send(&mut p, 4, &udp(mac(4), mac(2), 1)).0, Verdict::Dropped(DropReason::AclHostOut));
        assert_eq!(send(&mut p, 4, &udp(mac(4), mac(2), 2)).0, Verdict::Forwarded);
    }
}
