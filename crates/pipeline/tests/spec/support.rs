//! A small switch for the tests, and a text form for frames and results.

use lanyard_pipeline::state::{FdbTarget, PlaneState, PortKind, PortState, Tpid, VlanState};
use lanyard_pipeline::trace::Verdict;
use lanyard_pipeline::{Output, Pipeline, Timestamp};
use lanyard_types::{MacAddr, PortId, VlanId};
use lanyard_wire::{Builder, Frame, Tag, pop};

pub fn port(n: u16) -> PortId {
    PortId::new(n).unwrap()
}

pub fn vlan(n: u16) -> VlanId {
    VlanId::new(n).unwrap()
}

/// Host `n`.
pub fn host(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

pub const BROADCAST: MacAddr = MacAddr::BROADCAST;
pub const MULTICAST: MacAddr = MacAddr([1, 0, 0x5e, 0, 0, 5]);

/// Reserved address 01:80:C2:00:00:0`n`.
pub fn reserved(n: u8) -> MacAddr {
    MacAddr([1, 0x80, 0xc2, 0, 0, n])
}

/// VLANs 1, 10, 20. Ports: 1 and 2 access 10; 3 trunk 10,20 native 1; 4 trunk 10 with 0x88a8; 5 the interface of
/// VLAN 10; 6 access 20; 7 trunk 10,20 that tags its native VLAN. Hosts 101..107 are static in VLAN 10 at ports
/// 1..7; host 110 is dropped.
pub fn base() -> PlaneState {
    let mut state = PlaneState::default();
    for n in [1, 10, 20] {
        state.vlans.insert(vlan(n), VlanState::default());
    }
    let set = |list: &str| list.parse().unwrap();
    let mut add = |n: u16, port_state: PortState| {
        state.ports.insert(port(n), PortState { name: format!("eth{n}"), ifindex: n.into(), ..port_state });
    };
    let new = PortState::new("", 0);
    add(1, PortState::access("", 0, vlan(10)));
    add(2, PortState::access("", 0, vlan(10)));
    add(3, PortState { pvid: Some(vlan(1)), untagged: set("1"), tagged: set("10,20"), ..new.clone() });
    add(4, PortState { tpid: Tpid::Dot1ad, tagged: set("10"), ..new.clone() });
    let svi = PortState { kind: PortKind::Svi(vlan(10)), flood_unicast: false, ..new.clone() };
    add(5, PortState { pvid: Some(vlan(10)), untagged: set("10"), ..svi });
    add(6, PortState::access("", 0, vlan(20)));
    add(7, PortState { tagged: set("10,20"), ..new });
    for n in 1..=7 {
        state.fdb.insert((vlan(10), host(100 + n)), FdbTarget::Static(port(n.into())));
    }
    state.fdb.insert((vlan(10), host(110)), FdbTarget::Blackhole);
    state
}

pub fn untagged(dst: MacAddr, src: MacAddr) -> Vec<u8> {
    Builder::new(dst, src).ethertype(0x0800).payload(b"payload").build()
}

pub fn tagged(dst: MacAddr, src: MacAddr, tpid: u16, pcp: u8, vid: u16) -> Vec<u8> {
    Builder::new(dst, src)
        .tag(tpid, Tag { pcp, dei: pcp % 2 == 1, vid })
        .ethertype(0x0800)
        .payload(b"payload")
        .build()
}

pub fn pipeline(state: &PlaneState) -> Pipeline {
    let mut pipeline = Pipeline::new(1);
    pipeline.set_state(state, Timestamp::default(), &mut |_| {});
    pipeline
}

/// The tags of a frame, the outermost first, as `8100.10.3` (TPID, VID, PCP; `d` for drop eligible), or `-`.
pub fn tags(bytes: &[u8]) -> String {
    let mut bytes = bytes.to_vec();
    let mut found = Vec::new();
    while let Some(frame) =
        Frame::new(&bytes).ok().filter(|f| [0x8100, 0x88a8, 0x9100].contains(&f.ethertype()))
    {
        let tpid = frame.ethertype();
        let Ok(Some(tag)) = frame.tag(tpid) else { break };
        found.push(format!("{tpid:x}.{}.{}{}", tag.vid, tag.pcp, if tag.dei { "d" } else { "" }));
        pop(&mut bytes).unwrap();
    }
    if found.is_empty() { "-".into() } else { found.join("+") }
}

/// `dropped REASON`, `trapped REASON`, or the ports and their tags in emission order: `2:- 3:8100.10.0`.
pub fn describe(verdict: Verdict, sent: &[(PortId, Vec<u8>)]) -> String {
    let sent: Vec<String> = sent.iter().map(|(port, bytes)| format!("{port}:{}", tags(bytes))).collect();
    match verdict {
        Verdict::Forwarded => sent.join(" "),
        Verdict::Trapped(reason) => [vec![format!("trapped {reason}")], sent].concat().join(" "),
        Verdict::Dropped(reason) => [vec![format!("dropped {reason}")], sent].concat().join(" "),
    }
}

/// Processes a frame at time 0 and returns the outcome as text; checks that the trace predicts the same.
pub fn run(pipeline: &mut Pipeline, at: u16, frame: &[u8]) -> String {
    let trace = pipeline.trace(port(at), frame);
    let mut out = Output::default();
    let verdict = pipeline.process(Timestamp::default(), port(at), frame, &mut out);
    let got = describe(verdict, &out.sent);
    if got != "dropped trap_policed" {
        assert_eq!(got, describe(trace.verdict, &trace.egress), "trace: {:?}", trace.stages);
    }
    got
}
