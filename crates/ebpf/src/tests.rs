//! Tests that look into the tables: every transition between states, every failing step, every interrupted write.

#![allow(clippy::panic)] // a test that panics has failed, and says why

use crate::abi;
use crate::fib::Array;
use crate::open::Options;
use crate::plane::EbpfPlane;
use crate::tables::Meta;
use ipnet::Ipv4Net;
use lanyard_pipeline::generate::State;
use lanyard_pipeline::route::{RouteChange, RouteTarget};
use lanyard_pipeline::state::{PortState, StpState, Tpid, VlanState};
use lanyard_plane::{Change, Plane, PlaneError, PlaneState, changes};
use lanyard_types::{InstanceId, PortId, TrapReason, VlanId, VrfId};
use libbpf_rs::{MapCore, MapFlags};
use std::io::Write;
use std::mem::offset_of;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

fn private() -> Option<EbpfPlane> {
    match EbpfPlane::open_private(&Options { fdb_capacity: 1000, ..Options::new("tables") }) {
        Ok(plane) => Some(plane),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

/// The state of this seed, without what the kernel cannot do.
fn state(seed: u64) -> PlaneState {
    let mut state = State::new(seed).plane;
    state.global.fdb_limit = state.global.fdb_limit.min(1000);
    for port in state.ports.values_mut().filter(|port| port.tpid == Tpid::Stacked9100) {
        port.tpid = Tpid::Dot1ad;
    }
    state
}

/// What the tables hold that follows from the state, row by row, rows of zeros left out.
fn dump(plane: &EbpfPlane) -> Vec<(&'static str, usize, Vec<u8>)> {
    let tables = &plane.tables;
    let mut rows = Vec::new();
    let mut row = |table: &'static str, at: usize, bytes: &[u8]| {
        if bytes.iter().any(|byte| *byte != 0) {
            rows.push((table, at, bytes.to_vec()));
        }
    };
    row("global", 0, tables.global.get(0).as_bytes());
    for at in 0..abi::PORTS {
        row("ports", at, tables.ports.get(at).as_bytes());
        row("port_vlans", at, tables.port_vlans.get(at).as_bytes());
    }
    for at in 0..abi::VLANS {
        row("vlan_ports", at, tables.vlan_ports.get(at).as_bytes());
        row("vlan_rifs", at, tables.vlan_rifs.get(at).as_bytes());
    }
    for at in 0..abi::RIFS {
        row("rifs", at, tables.rifs.get(at).as_bytes());
    }
    let subs = tables.map("sub_rifs");
    for (at, key) in subs.keys().collect::<std::collections::BTreeSet<_>>().into_iter().enumerate() {
        let value = subs.lookup(&key, libbpf_rs::MapFlags::ANY).ok().flatten().unwrap_or_default();
        row("sub_rifs", at, &[key, value].concat());
    }
    for at in 0..abi::IFMAP as usize {
        row("if_slots", at, tables.if_slots.get(at).as_bytes());
    }
    for at in 0..abi::USAGES {
        row("fdb_usage", at, tables.usage.get(at).limit.as_bytes());
    }
    for at in 0..abi::GROUPS {
        let group = tables.trap_groups.get(at);
        row(
            "trap_groups",
            at,
            [group.interval_ns, group.tolerance_ns, group.port_interval_ns, group.port_tolerance_ns]
                .as_bytes(),
        );
    }
    let mut fixed = Vec::new();
    tables.fdb_walk(&mut |key, value| fixed.push((key, value.raw()))).expect("the FDB");
    fixed.sort_unstable();
    fixed.iter().for_each(|(key, value)| row("fdb", 0, [*key, *value].as_bytes()));
    rows
}

/// The first row that differs, and no more: a row is long.
#[track_caller]
fn assert_same(got: &[(&'static str, usize, Vec<u8>)], want: &[(&'static str, usize, Vec<u8>)], what: &str) {
    let row = |rows: &[(&'static str, usize, Vec<u8>)], at: usize| {
        let (table, index, bytes) = rows.get(at)?;
        Some(format!("{table}[{index}] {:02x?}", &bytes[..bytes.len().min(40)]))
    };
    let end = got.len().max(want.len());
    if let Some(at) = (0..end).find(|at| got.get(*at) != want.get(*at)) {
        panic!("{what}: {:?} instead of {:?}", row(got, at), row(want, at));
    }
}

#[test]
fn by_steps_or_at_once_the_tables_are_the_same() {
    let (Some(mut steps), Some(mut once)) = (private(), private()) else { return };
    for seed in 1..40 {
        let next = state(seed);
        steps.apply(&next).expect("applied");
        once.rewrite(&next).expect("written");
        assert_same(&dump(&steps), &dump(&once), &format!("seed {seed}"));
        once.rewrite(&next).expect("written again");
        assert_same(&dump(&steps), &dump(&once), &format!("seed {seed}, again"));
    }
    let mut empty = PlaneState::default();
    empty.global.fdb_limit = 1000;
    steps.apply(&empty).expect("emptied");
    once.rewrite(&empty).expect("emptied");
    assert_same(&dump(&steps), &dump(&once), "empty");
    let left: Vec<_> = dump(&steps)
        .into_iter()
        .map(|(table, ..)| table)
        .filter(|t| t.starts_with("port") || *t == "fdb")
        .collect();
    assert_eq!(left, Vec::<&str>::new(), "an empty state leaves rows behind");
}

#[test]
fn every_failing_step_leaves_the_tables_as_they_were() {
    let Some(mut plane) = private() else { return };
    for seed in 1..4 {
        let (old, next) = (state(seed), state(seed + 100));
        plane.apply(&old).expect("applied");
        let before = dump(&plane);
        let steps = changes(&old, &next).len();
        for step in 1..=steps {
            plane.fail_at = Some(step);
            let error = plane.apply(&next).expect_err("a step fails");
            assert_eq!(error, PlaneError::Invalid("chaos".into()));
            plane.fail_at = None;
            assert!(*plane.state() == old && !plane.rough, "seed {seed} step {step}");
            assert_same(&dump(&plane), &before, &format!("seed {seed} step {step}"));
        }
        plane.apply(&next).expect("applied in the end");
    }
}

#[test]
fn tables_that_were_left_in_between_are_put_right() {
    let Some(mut plane) = private() else { return };
    let want = state(7);
    plane.apply(&want).expect("applied");
    let right = dump(&plane);
    for at in [1, 2, 5, 900] {
        plane.tables.port_vlans.u8(at, 10).store(0xff, Relaxed);
        plane.tables.ports.u32(at, 4).store(0xff, Relaxed);
        plane.tables.vlan_ports.u64(at, 8 * (at % 60)).store(u64::MAX - 1, Relaxed);
        plane.tables.if_slots.u64(at, 0).store(u64::MAX, Relaxed);
    }
    assert!(dump(&plane) != right);
    plane.adopt_state(want).expect("put right");
    assert_same(&dump(&plane), &right, "put right");
}

#[test]
fn refused_states_change_nothing() {
    let Some(mut plane) = private() else { return };
    let good = state(3);
    plane.apply(&good).expect("applied");
    let before = dump(&plane);
    let with = |edit: fn(&mut PlaneState)| {
        let mut next = good.clone();
        edit(&mut next);
        next
    };
    for (next, text) in [
        (with(|state| state.global.fdb_limit = 0), "an FDB limit of 0 entries"),
        (with(|state| state.global.fdb_limit = u32::MAX), "an FDB limit of 4294967295 entries"),
        (with(|state| state.ports.values_mut().for_each(|port| port.tpid = Tpid::Stacked9100)), "0x9100"),
        (with(|state| state.ports.values_mut().for_each(|port| port.ifindex = 5)), "are both interface 5"),
        (with(|state| state.ports.clear()), "names no port"),
    ] {
        let error = plane.apply(&next).expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
        assert_same(&dump(&plane), &before, text);
    }
}

#[test]
fn a_state_is_read_back_from_the_tables() {
    let Some(mut plane) = private() else { return };
    let mut want = state(11);
    want.stp.clear();
    plane.apply(&want).expect("applied");
    let got = crate::recover::state(&plane.tables, &[]).expect("read back");
    assert_eq!(got.ports.keys().collect::<Vec<_>>(), want.ports.keys().collect::<Vec<_>>());
    for (id, port) in &want.ports {
        let found = &got.ports[id];
        assert_eq!(
            (&found.tagged, &found.untagged, found.pvid),
            (&port.tagged, &port.untagged, port.pvid),
            "port {id}"
        );
        assert_eq!((found.mtu, found.tpid, found.enabled), (port.mtu, port.tpid, port.enabled), "port {id}");
    }
    assert_eq!(got.fdb, want.fdb);
    assert_eq!(got.vlans.keys().collect::<Vec<_>>(), want.vlans.keys().collect::<Vec<_>>());
}

#[test]
fn a_slot_that_is_taken_has_a_way_round() {
    let Some(plane) = private() else { return };
    let port = |n| PortId::new(n).expect("a port");
    let (one, same) = (77, 77 + abi::IFMAP);
    plane.tables.set_ifindex(one, port(1)).expect("a free slot");
    plane.tables.set_ifindex(same, port(2)).expect("round it");
    let slot = plane.tables.if_slots.get(77);
    assert_eq!((slot.ifindex, slot.port), (one, 1));
    plane.tables.clear_ifindex(same, port(1));
    plane.tables.clear_ifindex(one, port(1));
    assert_eq!(plane.tables.if_slots.get(77).ifindex, 0);
    use libbpf_rs::{MapCore, MapFlags};
    let map = plane.tables.map("if_ports");
    assert!(
        map.lookup(same.as_bytes(), MapFlags::ANY).expect("read").is_some(),
        "another port's entry was removed"
    );
    plane.tables.clear_ifindex(same, port(2));
    assert!(map.lookup(same.as_bytes(), MapFlags::ANY).expect("read").is_none());
}

#[test]
fn the_header_and_its_mirror_agree() {
    let fields = [
        ("ly_port", "pvid", offset_of!(abi::Port, pvid)),
        ("ly_port", "form", offset_of!(abi::Port, form)),
        ("ly_port", "max_len", offset_of!(abi::Port, max_len)),
        ("ly_port", "peer_mac", offset_of!(abi::Port, peer_mac)),
        ("ly_global", "trap_pvst", offset_of!(abi::Global, trap_pvst)),
        ("ly_global", "pvst_vlans", offset_of!(abi::Global, pvst_vlans)),
        ("ly_global", "first_word", offset_of!(abi::Global, first_word)),
        ("ly_global", "end_word", offset_of!(abi::Global, end_word)),
        ("ly_global", "isolated", offset_of!(abi::Global, isolated)),
        ("ly_global", "no_unicast", offset_of!(abi::Global, no_unicast)),
        ("ly_global", "no_multicast", offset_of!(abi::Global, no_multicast)),
        ("ly_global", "xdp_flood", offset_of!(abi::Global, xdp_flood)),
        ("ly_global", "xdp_flood_len", offset_of!(abi::Global, xdp_flood_len)),
        ("ly_usage", "count", offset_of!(abi::Usage, count)),
        ("ly_usage", "high_water", offset_of!(abi::Usage, high_water)),
        ("ly_usage", "refused", offset_of!(abi::Usage, refused)),
        ("ly_port_stats", "tx_dropped", offset_of!(abi::PortStats, tx_dropped)),
        ("ly_port_stats", "dropped", offset_of!(abi::PortStats, dropped)),
        ("ly_vlan_stats", "bytes", offset_of!(abi::VlanStats, bytes)),
        ("ly_trap_group", "arrival_ns", offset_of!(abi::TrapGroupRow, arrival_ns)),
        ("ly_trap_group", "lost", offset_of!(abi::TrapGroupRow, lost)),
        ("ly_trap_group", "port_interval_ns", offset_of!(abi::TrapGroupRow, port_interval_ns)),
        ("ly_fdb_event", "from", offset_of!(abi::FdbEvent, from)),
        ("ly_fdb_event", "event", offset_of!(abi::FdbEvent, event)),
        ("ly_trap", "tag_proto", offset_of!(abi::TrapHeader, tag_proto)),
        ("ly_trap", "reason", offset_of!(abi::TrapHeader, reason)),
        ("ly_fdb_call", "port", offset_of!(abi::FdbCall, port)),
        ("ly_fdb_call", "result", offset_of!(abi::FdbCall, result)),
        ("ly_fdb_call", "removed", offset_of!(abi::FdbCall, removed)),
        ("ly_fdb_call", "oldest_s", offset_of!(abi::FdbCall, oldest_s)),
        ("ly_journal", "verdict", offset_of!(abi::Journal, verdict)),
        ("ly_journal", "source", offset_of!(abi::Journal, source)),
        ("ly_journal", "target_port", offset_of!(abi::Journal, target_port)),
        ("ly_journal", "clones", offset_of!(abi::Journal, clones)),
        ("ly_journal", "extra", offset_of!(abi::Journal, extra)),
        ("ly_journal", "form", offset_of!(abi::Journal, form)),
        ("ly_journal", "egress_form", offset_of!(abi::Journal, egress_form)),
    ];
    let mut source = "#include <linux/types.h>\n#include <stddef.h>\n#include \"abi.h\"\n".to_owned();
    for (structure, field, offset) in fields {
        let place = format!("offsetof(struct {structure}, {field})");
        source += &format!("_Static_assert({place} == {offset}, \"{structure}.{field}\");\n");
    }
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let bpf = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf");
    let asm = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut compiler = Command::new(clang)
        .args(["-fsyntax-only", "-target", "bpf", "-x", "c", "-I", bpf, "-I", &asm, "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("clang, which has built this crate");
    compiler.stdin.take().expect("a pipe").write_all(source.as_bytes()).expect("written");
    assert!(compiler.wait().expect("an end").success(), "the assertion above says which field moved");
}

/// A step that fails on request.
impl EbpfPlane {
    pub(crate) fn chaos(&mut self, _: &Change) -> Result<(), PlaneError> {
        let Some(step) = &mut self.fail_at else { return Ok(()) };
        match *step {
            1 => {
                // Undoing goes well.
                self.fail_at = None;
                Err(PlaneError::Invalid("chaos".into()))
            }
            _ => {
                *step -= 1;
                Ok(())
            }
        }
    }
}

/// A plane with pins, in a namespace of its own.
fn pinned(test: impl FnOnce(&Options) + Send) {
    if let Some(why) = crate::support().first().filter(|line| !line.starts_with("available")) {
        println!("skipped: {why}");
        return;
    }
    let instance =
        format!("unit-{}-{:?}", std::process::id(), std::thread::current().id()).replace(['(', ')'], "");
    let state_dir = std::env::temp_dir().join(&instance);
    let options = Options { fdb_capacity: 1000, state_dir: state_dir.clone(), ..Options::new(&instance) };
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        lanyard_netdev::netns::run_in_new(|| {
            test(&options);
            let mut plane = EbpfPlane::open(&options).expect("opened");
            plane.detach().expect("detached");
        })
    }));
    let _ = std::fs::remove_dir_all(state_dir);
    let _ = std::fs::remove_dir_all(format!("/run/lanyard/bpf/{instance}"));
    match done {
        Ok(Ok(())) => {}
        Ok(Err(why)) => println!("skipped: no network namespace can be made ({why})"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// One port on a veth.
fn one_port() -> PlaneState {
    let netdev = lanyard_netdev::Netdev::open().expect("netlink");
    let veth = lanyard_netdev::Veth { name: "p1", peer: "q1", ..Default::default() };
    netdev.create_veth(&veth).expect("a veth pair");
    let ifindex = netdev.link("p1").expect("p1").ifindex;
    let mut state = PlaneState::default();
    state.global.fdb_limit = 1000;
    let vlan = lanyard_types::VlanId::DEFAULT;
    state.vlans.insert(vlan, Default::default());
    let port = lanyard_pipeline::state::PortState::access("p1", ifindex, vlan);
    state.ports.insert(PortId::new(1).expect("a port"), port);
    state
}

#[test]
fn other_programs_replace_the_pinned_ones_in_place() {
    pinned(|options| {
        let state = one_port();
        let mut plane = EbpfPlane::open(options).expect("opened");
        plane.apply(&state).expect("applied");
        let salt = plane.tables.meta.get(0).salt;
        // As another version would have left it.
        plane.tables.meta.u64(0, offset_of!(Meta, object)).store(1, Relaxed);
        drop(plane);
        let plane = EbpfPlane::open(options).expect("adopted");
        assert!(
            plane.capabilities.notes.iter().any(|note| note.contains("replaced")),
            "{:?}",
            plane.capabilities.notes
        );
        assert_eq!((plane.state(), plane.tables.meta.get(0).salt), (&state, salt));
        assert_eq!(plane.port_hook(PortId::new(1).expect("a port")), lanyard_plane::Hook::Tc);
        drop(plane);
        let plane = EbpfPlane::open(options).expect("adopted");
        assert_eq!(plane.capabilities.notes, Vec::<String>::new(), "they are this version's now");
    });
}

#[test]
fn pins_of_another_layout_are_built_anew() {
    pinned(|options| {
        let state = one_port();
        let mut plane = EbpfPlane::open(options).expect("opened");
        plane.apply(&state).expect("applied");
        plane.tables.meta.u32(0, offset_of!(Meta, abi)).store(abi::ABI + 1, Relaxed);
        drop(plane);
        let mut plane = EbpfPlane::open(options).expect("opened");
        let told = format!("layout {}", abi::ABI + 1);
        assert!(
            plane.capabilities.notes.iter().any(|note| note.contains(&told)),
            "{:?}",
            plane.capabilities.notes
        );
        assert_eq!(*plane.state(), PlaneState::default());
        plane.apply(&state).expect("applied");
        assert_eq!(plane.port_hook(PortId::new(1).expect("a port")), lanyard_plane::Hook::Tc);
    });
}

#[test]
fn a_daemon_that_dies_while_it_writes() {
    pinned(|options| {
        let state = one_port();
        let mut plane = EbpfPlane::open(options).expect("opened");
        plane.apply(&state).expect("applied");
        let right = dump(&plane);
        // It had begun to write the next state, and the file of that state lies beside the old one.
        plane.prepare_save(&PlaneState::default()).expect("prepared");
        plane.tables.meta.u64(0, offset_of!(Meta, writing)).store(1, Relaxed);
        plane.tables.ports.set(1, &abi::Port::default());
        plane.tables.vlan_ports.set(1, &abi::VlanPorts::default());
        drop(plane);
        let plane = EbpfPlane::open(options).expect("adopted");
        assert_eq!(*plane.state(), state, "the state is the last that was taken whole");
        assert_same(&dump(&plane), &right, "put right");
        assert_eq!(plane.tables.meta.get(0).writing, 0);
        drop(plane);
        // And once more, dead between the file and the generation.
        let plane = EbpfPlane::open(options).expect("adopted");
        let generation = plane.tables.meta.get(0).generation;
        plane.tables.meta.u64(0, offset_of!(Meta, generation)).store(generation - 1, Relaxed);
        plane.tables.meta.u64(0, offset_of!(Meta, writing)).store(1, Relaxed);
        drop(plane);
        let plane = EbpfPlane::open(options).expect("adopted");
        assert_eq!(*plane.state(), state);
        assert_eq!(plane.tables.meta.get(0).generation, generation);
        assert!(!plane.rough);
    });
}

/// A table that takes another's place may be of another kind, larger or smaller; nothing stays behind, whatever a daemon that
/// died left.
#[test]
fn tables_take_turns() {
    /// So many /25s in a /24 each that they take a medium table, or so few.
    fn routes(plane: &mut EbpfPlane, many: bool) {
        let to = Some(RouteTarget::Up(TrapReason::RoutePolicy));
        let net = |n: u32| Ipv4Net::new_assert(Ipv4Addr::from(0x0a01_0080 + (n << 8)), 25);
        let route = |n| RouteChange::Route(VRF, net(n).into(), to);
        let count = if many { abi::FIB_SMALL } else { 3 };
        assert_eq!(plane.route(&(0..count).map(route).collect::<Vec<_>>()), []);
    }
    /// The map in the VRF's slot of each kind.
    fn slots(plane: &EbpfPlane) -> [Option<u32>; 3] {
        ["fib_small", "fib_medium", "fib_large"].map(|kind| {
            let key = u32::from(VRF.get());
            let found = plane.tables.map(kind).lookup(key.as_bytes(), MapFlags::ANY).expect("a slot");
            found.map(|id| u32::from_ne_bytes(id.try_into().expect("a number")))
        })
    }
    fn held(plane: &EbpfPlane) -> [bool; 3] {
        slots(plane).map(|slot| slot.is_some())
    }
    fn megabytes(plane: &mut EbpfPlane) -> u64 {
        plane.resources().iter().find(|row| row.name == "fib4_lines").expect("a table").bytes >> 20
    }
    const VRF: VrfId = VrfId::MAX;
    const NONE: [bool; 3] = [false; 3];
    const SMALL: [bool; 3] = [true, false, false];
    const MEDIUM: [bool; 3] = [false, true, false];
    pinned(|options| {
        let mut plane = EbpfPlane::open(options).expect("opened");
        routes(&mut plane, false);
        assert_eq!((held(&plane), megabytes(&mut plane)), (SMALL, 1));
        routes(&mut plane, true);
        assert_eq!((held(&plane), megabytes(&mut plane)), (MEDIUM, 16));
        drop(plane);
        let restart = |many: bool, before: [bool; 3], orphan: bool, after: [bool; 3]| {
            let mut plane = EbpfPlane::open(options).expect("adopted");
            let found = slots(&plane);
            assert_eq!(found.map(|slot| slot.is_some()), before);
            if orphan {
                // As a daemon leaves it that dies between putting a larger table in place and taking the smaller away.
                let larger = Array::new(VRF.get().into(), abi::FIB_MEDIUM).expect("an array");
                larger.put(&plane.tables).expect("put");
            }
            let at = |plane: &mut EbpfPlane, text: &str| {
                plane.route_lookup(VRF, text.parse().expect(text)).target.is_some()
            };
            routes(&mut plane, many);
            for _ in 0..2 {
                let seen = ["10.1.0.127", "10.1.2.129"].map(|text| at(&mut plane, text));
                assert_eq!(seen, [false, true]);
                plane.route_synced().expect("published");
            }
            assert_eq!((held(&plane), at(&mut plane, "10.64.0.128")), (after, many));
        };
        restart(false, MEDIUM, false, SMALL);
        restart(true, SMALL, true, MEDIUM);
        restart(true, MEDIUM, false, MEDIUM);
        restart(false, MEDIUM, false, SMALL);
        restart(false, SMALL, true, SMALL);
        let mut plane = EbpfPlane::open(options).expect("adopted");
        plane.route_synced().expect("published");
        assert_eq!(held(&plane), NONE, "a VRF that is not told again");
        routes(&mut plane, false);
        assert_eq!(held(&plane), SMALL);
        assert_eq!(plane.route(&[RouteChange::VrfGone(VRF)]), []);
        assert_eq!(held(&plane), NONE);
    });
}

/// Until the watchdog expires all is as it was; then the watched port discards in its tree's VLANs and in no others, whatever is
/// applied, until the control plane has taken note.
#[test]
fn the_watchdog_blocks_watched_ports_and_no_others() {
    let Some(mut plane) = private() else { return };
    let vlan = |n| VlanId::new(n).expect("a VLAN");
    let port = |n| PortId::new(n).expect("a port");
    let (none, tree) = (InstanceId::default(), InstanceId::new(1).expect("an instance"));
    let mut state = PlaneState::default();
    state.global.fdb_limit = 1000;
    for (n, instance) in [(1, tree), (2, none)] {
        state.vlans.insert(vlan(n), VlanState { instance, ..VlanState::default() });
    }
    for n in [1, 70] {
        let mut trunk = PortState::access(&format!("e{n}"), n.into(), vlan(1));
        trunk.untagged = [1, 2].into_iter().map(vlan).collect();
        state.ports.insert(port(n), trunk);
    }
    state.watched.insert((tree, port(70)));
    plane.apply(&state).expect("applied");
    let forwards = |plane: &EbpfPlane, n: u16, v: u16| {
        let row = plane.tables.port_vlans.get(n.into());
        let bits = row.bits[usize::from(v)] & (abi::PV_FORWARD | abi::PV_LEARN);
        let flooded = plane
            .tables
            .vlan_ports
            .get(v.into())
            .form
            .iter()
            .any(|set| set[usize::from(n) / 64] >> (n % 64) & 1 == 1);
        assert_eq!(bits == abi::PV_FORWARD | abi::PV_LEARN, flooded, "port {n}, VLAN {v}: {bits:#x}");
        assert!(flooded || bits == 0, "port {n}, VLAN {v}: {bits:#x}");
        flooded
    };
    let all = |plane: &EbpfPlane| [(1, 1), (1, 2), (70, 1), (70, 2)].map(|(n, v)| forwards(plane, n, v));
    let wait = |plane: &EbpfPlane| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while forwards(plane, 70, 1) && Instant::now() < deadline {
            std::thread::yield_now();
        }
    };
    plane.watchdog(Some(Duration::from_secs(3600))).expect("set");
    plane.watchdog(None).expect("stopped");
    plane.watchdog(Some(Duration::from_secs(3600))).expect("set again");
    assert_eq!(all(&plane), [true; 4]);
    assert!(!plane.watchdog_expired());
    let blocked = [true, true, false, true];
    for _ in 0..3 {
        plane.watchdog(Some(Duration::from_millis(5))).expect("set");
        wait(&plane);
        assert_eq!(all(&plane), blocked);
        // What is applied before the expiry has been noted opens nothing, not even when nothing is watched any more.
        let mut next = state.clone();
        next.watched.clear();
        next.ports.get_mut(&port(1)).expect("a port").isolated = true;
        plane.apply(&next).expect("applied");
        assert_eq!(all(&plane), blocked);
        plane.apply(&state).expect("applied");
        assert!(plane.watchdog_expired());
        assert!(!plane.watchdog_expired(), "once");
        assert_eq!(plane.state().stp.get(&(tree, port(70))), Some(&StpState::Discarding));
        assert_eq!(all(&plane), blocked);
        plane.apply(&state).expect("applied");
        assert_eq!(all(&plane), [true; 4]);
    }
    plane.watchdog(Some(Duration::from_millis(50))).expect("set");
    plane.watchdog(None).expect("stopped");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(all(&plane), [true; 4]);
}
