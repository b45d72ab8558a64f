//! mirror: copies received frames for monitor sessions (SPAN), and drops frames that the destination port of a session
//! receives.
//!
//! A received frame is copied as it arrives, before any other stage may drop or change it. Frames that a port sends are
//! copied by `replicate`, which asks [`copies`], as they leave. A copy passes no further stage: it is in no VLAN, and no
//! list judges it. Its destination counts it as sent, or as dropped where the port is down or the frame exceeds its MTU.
//! Frames that `parse` drops are not copied.

use super::parse::Parsed;
use super::{Arrival, vlan_egress};
use crate::state::{PlaneState, PortKind, PortState, StpState};
use crate::tables::Tables;
use crate::trace::{Fact, Notes, Verdict};
use lanyard_types::{DropReason, MirrorCopy, PortId, PortMirror, Rng, Stage, VlanId};
use lanyard_wire::{Tag, pop, push};

/// A copy for a monitor session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// The port that sends it.
    pub to: PortId,
    /// True if the copy leaves without the tag that the frame has.
    pub strip: bool,
    /// The VLAN ID of the tag that is pushed onto the copy, 0 for a frame in no VLAN; `None` pushes no tag.
    pub tag: Option<u16>,
    /// True if the port is down or the frame exceeds its MTU: the copy is counted there as dropped.
    pub lost: bool,
}

/// The copies of a received frame.
pub(super) fn run(
    tables: &Tables,
    arrival: &Arrival<'_>,
    frame: &Parsed,
    notes: &mut Notes,
) -> Result<Vec<Copy>, Verdict> {
    let Some(port) = tables.ports.get(arrival.port).filter(|port| port.enabled) else {
        return Ok(Vec::new());
    };
    if port.stages.mirror.destination {
        return Err(Verdict::Dropped(DropReason::MirrorDestination));
    }
    if port.stages.mirror.copies.is_empty() {
        return Ok(Vec::new());
    }
    let vlan = match frame.tag.map_or(0, |tag| tag.vid) {
        0 => port.pvid,
        vid => VlanId::new(vid),
    };
    let made = copies(tables, port, |copy| copy.received, vlan, frame.tag.is_some(), frame.untagged_len);
    for copy in made.iter().filter(|copy| !copy.lost) {
        notes.say(Stage::Mirror, || Fact::Mirrored { to: tables.ports.name(copy.to) });
    }
    Ok(made)
}

/// The copies of a frame that `port` receives or sends, as `wanted` chooses. `vlan` is the frame's VLAN, `tagged` says
/// whether it has a tag at this port, and `untagged_len` is its length in bytes without that tag.
pub(super) fn copies(
    tables: &Tables,
    port: &PortState,
    wanted: fn(&MirrorCopy) -> bool,
    vlan: Option<VlanId>,
    tagged: bool,
    untagged_len: usize,
) -> Vec<Copy> {
    let taken = port.stages.mirror.copies.iter().filter(|copy| wanted(copy) && copy.takes(vlan));
    let fits =
        |to: PortId| tables.ports.get(to).is_some_and(|to| to.enabled && vlan_egress::fits(to, untagged_len));
    let sends = |copy: &&MirrorCopy| copy.remote.is_none_or(|vlan| carries(tables, copy.to, vlan));
    let copy = |copy: &MirrorCopy| Copy {
        to: copy.to,
        strip: tagged && !copy.name_vlan && (!copy.keep_tag || copy.remote.is_some()),
        tag: match copy.name_vlan {
            true => Some(vlan.map_or(0, VlanId::get)),
            false => copy.remote.map(VlanId::get),
        },
        lost: !fits(copy.to),
    };
    taken.filter(sends).map(copy).collect()
}

/// True if a port is a forwarding member of an RSPAN VLAN.
fn carries(tables: &Tables, port: PortId, vlan: VlanId) -> bool {
    let instance = tables.vlans.get(vlan).map(|state| state.instance);
    tables.vlans.members(vlan).contains(port)
        && instance.is_some_and(|instance| tables.stp.get(instance, port) == StpState::Forwarding)
}

/// Passes the bytes of a copy of `frame` to `send`, with the port and whether it is lost.
pub(crate) fn emit(copy: Copy, frame: &[u8], send: &mut dyn FnMut(Copy, &[u8])) {
    if copy.lost || !copy.strip && copy.tag.is_none() {
        return send(copy, frame);
    }
    let mut bytes = frame.to_vec();
    // Neither operation fails: a frame whose tag is popped has one, and every frame is long enough for a push.
    let popped = !copy.strip || pop(&mut bytes).is_ok();
    if popped && copy.tag.is_none_or(|vid| push(&mut bytes, DOT1Q, Tag { vid, ..Tag::default() }).is_ok()) {
        send(copy, &bytes);
    }
}

/// The TPID of the tags of RSPAN VLANs, and of those that name a frame's VLAN.
const DOT1Q: u16 = 0x8100;

/// Makes ports of a generated state sources and destinations, in a third of all cases.
pub(super) fn randomise(rng: &mut Rng, plane: &mut PlaneState) {
    if !rng.percent(33) {
        return;
    }
    let ports: Vec<PortId> = plane.ports.keys().copied().collect();
    let vlans: Vec<VlanId> = plane.vlans.keys().copied().collect();
    // Use one RSPAN VLAN for all copies: a dry run shows the bytes of a frame's RSPAN copies only once.
    let remote = rng.pick(&vlans);
    let sources = |port: &&mut PortState| matches!(port.kind, PortKind::Netdev | PortKind::Routed);
    for port in plane.ports.values_mut().filter(sources) {
        let destination = rng.percent(5);
        let mut copies = Vec::new();
        while rng.percent(30) && copies.len() < PortMirror::MAX {
            let Some(to) = rng.pick(&ports) else { break };
            let (received, sent) =
                rng.pick(&[(true, false), (false, true), (true, true)]).unwrap_or_default();
            let vlans = rng.percent(30).then(|| vlans.iter().copied().filter(|_| rng.percent(50)).collect());
            let name_vlan = rng.percent(30);
            let remote = remote.filter(|_| !name_vlan && rng.percent(30));
            let keep_tag = rng.percent(50);
            copies.push(MirrorCopy { to, received, sent, vlans, keep_tag, remote, name_vlan });
        }
        port.stages.mirror = PortMirror { destination, copies };
    }
}

#[cfg(test)]
mod tests {
    use crate::state::{PlaneState, PortState, StpState, VlanState};
    use crate::trace::Verdict;
    use crate::{Output, Pipeline, Timestamp};
    use lanyard_types::{DropReason, InstanceId, MacAddr, MirrorCopy, PortId, PortMirror, VlanId, VlanSet};
    use lanyard_wire::{Builder, Tag};

    fn port(n: u16) -> PortId {
        PortId::new(n).expect("a port")
    }

    fn set(list: &str) -> VlanSet {
        list.parse().expect("a list of VLANs")
    }

    fn copy(to: u16) -> MirrorCopy {
        MirrorCopy {
            to: port(to),
            received: false,
            sent: false,
            vlans: None,
            keep_tag: false,
            remote: None,
            name_vlan: false,
        }
    }

    /// Port 1 is a trunk of VLANs 10 and 20 with `mirror`, port 2 an access port of VLAN 10, port 3 the destination.
    fn state(mirror: Vec<MirrorCopy>) -> PlaneState {
        let mut state = PlaneState::default();
        for vlan in set("10,20").iter() {
            state.vlans.insert(vlan, VlanState::default());
        }
        let trunk = PortState { tagged: set("10,20"), ..PortState::new("p1", 1) };
        state.ports.insert(port(1), trunk);
        state.ports.insert(port(2), PortState::access("p2", 2, VlanId::new(10).expect("a VLAN")));
        state.ports.insert(port(3), PortState::new("p3", 3));
        state.ports.get_mut(&port(1)).expect("it").stages.mirror.copies = mirror;
        state.ports.get_mut(&port(3)).expect("it").stages.mirror.destination = true;
        state
    }

    /// A broadcast, with the tag of this VLAN unless it is 0.
    fn frame(vid: u16) -> Vec<u8> {
        let frame = Builder::new(MacAddr::BROADCAST, MacAddr([2, 0, 0, 0, 0, 1]));
        let frame = if vid == 0 { frame } else { frame.tag(0x8100, Tag { vid, ..Tag::default() }) };
        frame.ethertype(0x88b5).payload(&[0; 46]).build()
    }

    /// Sends `bytes` into `from`; returns the verdict, the frames sent and behind them the copies, and the copies lost at
    /// port 3.
    fn run(state: &PlaneState, from: u16, bytes: &[u8]) -> (Verdict, Vec<(u16, Vec<u8>)>, u64) {
        let mut pipeline = Pipeline::new(1);
        pipeline.set_state(state, Timestamp::default(), &mut |_| {});
        let mut out = Output::default();
        let verdict = pipeline.process(Timestamp::from_secs(1), port(from), bytes, &mut out);
        let lost = pipeline.counters().port(port(3)).tx_dropped;
        let sent = out.sent.into_iter().chain(out.mirrored);
        (verdict, sent.map(|(port, bytes)| (port.get(), bytes)).collect(), lost)
    }

    #[test]
    fn received_frames_are_copied_with_or_without_their_tag() {
        for (keep_tag, vid) in [(false, 0), (true, 10)] {
            let state = state(vec![MirrorCopy { received: true, keep_tag, ..copy(3) }]);
            let (verdict, sent, _) = run(&state, 1, &frame(10));
            assert_eq!((verdict, sent), (Verdict::Forwarded, vec![(2, frame(0)), (3, frame(vid))]));
            let (_, sent, _) = run(&state, 2, &frame(0));
            assert_eq!(sent, [(1, frame(10))], "port 2 is no source, and frames sent are not copied");
        }
    }

    #[test]
    fn frames_that_are_sent_are_copied_as_they_leave() {
        for (keep_tag, vid) in [(false, 0), (true, 10)] {
            let state = state(vec![MirrorCopy { sent: true, keep_tag, ..copy(3) }]);
            let (_, sent, _) = run(&state, 2, &frame(0));
            assert_eq!(sent, [(1, frame(10)), (3, frame(vid))]);
            let (_, sent, _) = run(&state, 1, &frame(10));
            assert_eq!(sent, [(2, frame(0))], "frames received are not copied");
        }
    }

    #[test]
    fn a_dropped_frame_is_copied_and_does_not_count_as_forwarded() {
        let mut state = state(vec![MirrorCopy { received: true, keep_tag: true, ..copy(3) }]);
        let (verdict, sent, _) = run(&state, 1, &frame(30));
        assert_eq!(verdict, Verdict::Dropped(DropReason::VlanNotAllowed));
        assert_eq!(sent, [(3, frame(30))]);
        state.ports.get_mut(&port(1)).expect("it").enabled = false;
        assert_eq!(run(&state, 1, &frame(10)), (Verdict::Dropped(DropReason::PortDown), vec![], 0));
    }

    #[test]
    fn only_frames_of_chosen_vlans_are_copied() {
        let state = state(vec![MirrorCopy { received: true, sent: true, vlans: Some(set("20")), ..copy(3) }]);
        for (vid, copied) in [(20, true), (10, false), (4095, false), (0, false)] {
            let (_, sent, _) = run(&state, 1, &frame(vid));
            assert_eq!(sent.iter().any(|(port, _)| *port == 3), copied, "VLAN {vid}");
        }
        assert_eq!(run(&state, 2, &frame(0)).1, [(1, frame(10))], "sent in VLAN 10");
    }

    #[test]
    fn a_destination_drops_received_frames_and_counts_unsent_copies() {
        let both = || vec![MirrorCopy { received: true, ..copy(3) }];
        assert_eq!(
            run(&state(both()), 3, &frame(0)),
            (Verdict::Dropped(DropReason::MirrorDestination), vec![], 0)
        );
        let mut down = state(both());
        down.ports.get_mut(&port(3)).expect("it").enabled = false;
        assert_eq!(run(&down, 1, &frame(10)), (Verdict::Forwarded, vec![(2, frame(0))], 1));
        let mut small = state(both());
        small.ports.get_mut(&port(3)).expect("it").mtu = 68;
        let mut long = frame(10);
        long.resize(14 + 4 + 68 + 4, 0);
        assert_eq!(run(&small, 1, &long).2, 0, "the tag does not count");
        long.push(0);
        assert_eq!(run(&small, 1, &long).2, 1, "the frame exceeds the MTU of port 3");
    }

    #[test]
    fn several_destinations_get_a_copy_each() {
        let mut two = state(vec![
            MirrorCopy { received: true, ..copy(3) },
            MirrorCopy { received: true, keep_tag: true, ..copy(4) },
        ]);
        let fourth = PortMirror { destination: true, ..PortMirror::default() };
        two.ports.insert(port(4), PortState::new("p4", 4));
        two.ports.get_mut(&port(4)).expect("it").stages.mirror = fourth;
        let (_, sent, _) = run(&two, 1, &frame(10));
        assert_eq!(sent, [(2, frame(0)), (3, frame(0)), (4, frame(10))]);
    }

    #[test]
    fn a_copy_that_names_its_vlan_keeps_the_tag_behind_that_name() {
        let named = |vid: u16, bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            lanyard_wire::push(&mut bytes, 0x8100, Tag { vid, ..Tag::default() }).expect("a frame");
            (3, bytes)
        };
        let received = state(vec![MirrorCopy { received: true, name_vlan: true, ..copy(3) }]);
        assert_eq!(run(&received, 1, &frame(10)).1, [(2, frame(0)), named(10, &frame(10))]);
        assert_eq!(run(&received, 1, &frame(0)).1, [named(0, &frame(0))], "of no VLAN");
        assert_eq!(run(&received, 1, &frame(4095)).1, [named(0, &frame(4095))], "a VLAN ID that no VLAN has");
        let mut access = received.clone();
        access.ports.get_mut(&port(2)).expect("it").stages.mirror =
            access.ports[&port(1)].stages.mirror.clone();
        assert_eq!(run(&access, 2, &frame(0)).1, [(1, frame(10)), named(10, &frame(0))], "of an access port");
        let sent = state(vec![MirrorCopy { sent: true, name_vlan: true, ..copy(3) }]);
        assert_eq!(run(&sent, 2, &frame(0)).1, [(1, frame(10)), named(10, &frame(10))]);
    }

    #[test]
    fn a_copy_for_a_remote_vlan_has_its_tag_at_forwarding_members() {
        let remote = |keep_tag| {
            let copy = MirrorCopy { received: true, remote: VlanId::new(20), keep_tag, ..copy(3) };
            let mut state = state(vec![copy]);
            let third = state.ports.get_mut(&port(3)).expect("it");
            (third.tagged, third.stages.mirror.destination) = (set("20"), false);
            state
        };
        for keep_tag in [false, true] {
            let (_, sent, _) = run(&remote(keep_tag), 1, &frame(10));
            assert_eq!(sent, [(2, frame(0)), (3, frame(20))], "in place of the tag");
            let (_, sent, _) = run(&remote(keep_tag), 1, &frame(0));
            assert_eq!(sent, [(3, frame(20))], "an untagged frame, which the trunk drops");
        }
        let mut blocked = remote(false);
        blocked.stp.insert((InstanceId::default(), port(3)), StpState::Discarding);
        assert_eq!(run(&blocked, 1, &frame(10)).1, [(2, frame(0))]);
        let mut no_member = remote(false);
        no_member.ports.get_mut(&port(3)).expect("it").tagged = set("10");
        assert!(run(&no_member, 1, &frame(10)).1.iter().all(|(_, bytes)| *bytes != frame(20)));
    }
}
