//! Tests that read the tables: every transition between states, every failing step, every interrupted write.

#![allow(clippy::panic)] // a test that panics has failed, and says why

use crate::abi;
use crate::fib::Array;
use crate::lower::PortFacts;
use crate::object;
use crate::open::Options;
use crate::plane::EbpfPlane;
use crate::tables::Meta;
use ipnet::Ipv4Net;
use lanyard_pipeline::generate::State;
use lanyard_pipeline::route::{Adjacency, RouteChange, RouteTarget};
use lanyard_pipeline::state::{PortState, StpState, Tpid, VlanState};
use lanyard_plane::{Change, Plane, PlaneError, PlaneState, TreeStates, changes};
use lanyard_types::{AdjacencyId, GroupId, InstanceId, MacAddr, PortId, RifId, TrapReason, VlanId, VrfId};
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

/// The state of this seed, without features that the kernel lacks.
fn state(seed: u64) -> PlaneState {
    let mut state = State::new(seed).plane;
    state.global.fdb_limit = state.global.fdb_limit.min(1000);
    for port in state.ports.values_mut().filter(|port| port.tpid == Tpid::Stacked9100) {
        port.tpid = Tpid::Dot1ad;
    }
    state
}

/// The rows of all tables that follow from the state, without rows of zeros.
fn dump(plane: &EbpfPlane) -> Vec<(&'static str, usize, Vec<u8>)> {
    let tables = &plane.tables;
    let mut rows = Vec::new();
    let mut row = |table: &'static str, at: usize, bytes: &[u8]| {
        if bytes.iter().any(|byte| *byte != 0) {
            rows.push((table, at, bytes.to_vec()));
        }
    };
    // `facts_s` is the present time, so it is left out.
    row("global", 0, abi::Global { facts_s: 0, ..tables.global.get(0) }.as_bytes());
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

/// Reports only the first row that differs, because rows are long.
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
        (with(|state| state.ports.clear()), "names a port that is not of its kind"),
        (
            with(|state| {
                state.rifs.clear();
                state.ports.clear();
            }),
            "names no port",
        ),
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

/// Compares every structure and every constant of `bpf/abi.h` with `abi.rs`.
#[test]
fn the_header_and_its_mirror_agree() {
    let mut source = "#include <linux/types.h>\n#include <stddef.h>\n#include \"abi.h\"\n".to_owned();
    let mut equal = |what: &str, c: &str, rust: u64| {
        source += &format!("_Static_assert({c} == {rust}ULL, \"{what}\");\n");
    };
    for structure in abi::STRUCTURES {
        let name = structure.name;
        equal(name, &format!("sizeof(struct {name})"), structure.size as u64);
        for (field, offset, size) in structure.fields {
            let what = format!("{name}.{field}");
            equal(&what, &format!("offsetof(struct {name}, {field})"), *offset as u64);
            equal(&what, &format!("sizeof(((struct {name} *)0)->{field})"), *size as u64);
        }
    }
    for (name, value) in abi::CONSTANTS {
        equal(name, &format!("(unsigned long long)LY_{name}"), *value);
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
    assert!(compiler.wait().expect("an end").success(), "the assertion above says what differs");
}

/// Structures of `bpf/abi.h` that are single words in `abi.rs`.
const WORDS: [&str; 2] = ["ly_fdb_state", "ly_lost"];

/// No definition of `bpf/abi.h` is missing from the comparison.
#[test]
fn the_mirror_is_complete() {
    let header =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/abi.h")).expect("abi.h");
    let code: String =
        header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    for name in code.lines().filter_map(|line| line.strip_prefix("struct ")?.strip_suffix(" {")) {
        let known = abi::STRUCTURES.iter().any(|structure| structure.name == name) || WORDS.contains(&name);
        assert!(known, "struct {name} of bpf/abi.h is not in `structures!` of abi.rs");
    }
    let defined = code.lines().filter_map(|line| line.strip_prefix("#define ")).filter_map(|rest| {
        let (name, value) = rest.split_once([' ', '\t'])?;
        (!name.contains('(') && !value.trim().is_empty()).then_some(name)
    });
    let enumerated = code.split("enum ").skip(1).filter_map(|rest| rest.split_once('{')?.1.split_once('}'));
    let enumerated = enumerated.flat_map(|(body, _)| body.split(','));
    let names = defined.chain(enumerated.map(|item| item.split('=').next().unwrap_or("").trim()));
    for name in names.filter(|name| name.starts_with("LY_")) {
        let known = abi::CONSTANTS.iter().any(|(constant, _)| name.strip_prefix("LY_") == Some(constant));
        let known = known || abi::PROGRAMS_ALONE.contains(&name);
        assert!(known, "{name} of bpf/abi.h is not in `constants!` of abi.rs");
    }
}

/// Steps that fail on request.
impl EbpfPlane {
    pub(crate) fn chaos(&mut self, _: &Change) -> Result<(), PlaneError> {
        let Some(step) = &mut self.fail_at else { return Ok(()) };
        match *step {
            1 => {
                // Undoing must succeed.
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
    if let Err(why) = crate::available() {
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
        // A plane as another version would have left it.
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

/// When a kernel refuses the programs of a new layout, the plane that is forwarding stays.
#[test]
fn pins_of_another_layout_stay_when_the_new_programs_do_not_load() {
    pinned(|options| {
        let state = one_port();
        let mut plane = EbpfPlane::open(options).expect("opened");
        plane.apply(&state).expect("applied");
        let word = |plane: &EbpfPlane, abi: u32| {
            plane.tables.meta.u32(0, offset_of!(Meta, abi)).store(abi, Relaxed);
        };
        word(&plane, abi::ABI + 1);
        object::REFUSED.set(true);
        let refused = EbpfPlane::open(options).expect_err("no programs").to_string();
        object::REFUSED.set(false);
        assert!(refused.contains("refused by a test"), "{refused}");
        assert!(EbpfPlane::is_live(options), "the plane of the old layout is attached");
        word(&plane, abi::ABI);
        drop(plane);
        let plane = EbpfPlane::open(options).expect("adopted");
        assert_eq!((plane.state(), &plane.capabilities.notes), (&state, &Vec::new()));
        drop(plane);
        EbpfPlane::discard(options).expect("discarded");
        assert!(!EbpfPlane::is_live(options));
    });
}

/// The VRFs before the crash use one bank, those after it the other. The next daemon overwrites neither.
#[test]
fn a_daemon_that_dies_while_it_publishes() {
    const LAST: VrfId = VrfId::MAX;
    let first = VrfId::new(0).expect("the switch's own");
    let destination: std::net::IpAddr = "10.1.0.1".parse().expect("an address");
    // One group with one adjacency, whose address identifies the daemon that has written it.
    let write = |plane: &mut EbpfPlane, daemon: u8| {
        let (adjacency, group) = (AdjacencyId::new(1).expect("one"), GroupId::new(1).expect("one"));
        let mac = Some(MacAddr([2, 0, 0, 0, 0, daemon]));
        let adjacent = Adjacency { mac, rif: RifId::new(1).expect("one") };
        let to = |vrf| {
            let prefix = "10.1.0.0/24".parse().expect("a prefix");
            RouteChange::Route(vrf, prefix, Some(RouteTarget::Group(group)))
        };
        let changes = [
            RouteChange::Adjacency(adjacency, Some(adjacent)),
            RouteChange::Group(group, Some(vec![adjacency])),
        ];
        for change in changes.into_iter().chain([to(first), to(LAST)]) {
            plane.routing.change(&plane.tables, &change, |_| true).expect("taken");
        }
    };
    // The daemon that has written the next hop which a packet finds, or nothing.
    let meets = |plane: &EbpfPlane, vrf| {
        let leaf = crate::fib::lookup_left(&plane.tables, vrf, destination);
        crate::routing::decode(leaf)?;
        let group = plane.tables.nh_groups.u64((leaf & 0xff_ffff) as usize, 0).load(Relaxed);
        let adjacency = plane.tables.adjacencies.u64(group as u32 as usize, 0).load(Relaxed);
        Some((0..8).map(|n| (adjacency >> (8 * n)) as u8).find(|byte| (0x51..0x60).contains(byte)))
    };
    pinned(|options| {
        let mut plane = EbpfPlane::open(options).expect("opened");
        write(&mut plane, 0x51);
        plane.route_synced().expect("published");
        assert_eq!([first, LAST].map(|vrf| meets(&plane, vrf)), [Some(Some(0x51)); 2]);
        drop(plane);
        let mut plane = EbpfPlane::open(options).expect("adopted");
        write(&mut plane, 0x52);
        assert_eq!([first, LAST].map(|vrf| meets(&plane, vrf)), [Some(Some(0x51)); 2], "not yet");
        for (done, vrf) in (0..).zip(crate::routing::vrfs().take(2)) {
            plane.routing.publish_vrf(&plane.tables, done, vrf).expect("put in place");
        }
        drop(plane);
        for daemon in [0x53, 0x54] {
            let mut plane = EbpfPlane::open(options).expect("adopted");
            write(&mut plane, daemon);
            let met = [first, LAST].map(|vrf| meets(&plane, vrf));
            assert_eq!(met, [Some(Some(0x52)), None], "what is live is not written over");
        }
        let mut plane = EbpfPlane::open(options).expect("adopted");
        write(&mut plane, 0x55);
        plane.route_synced().expect("published");
        assert_eq!([first, LAST].map(|vrf| meets(&plane, vrf)), [Some(Some(0x55)); 2]);
    });
}

#[test]
fn a_daemon_that_dies_while_it_writes() {
    pinned(|options| {
        let state = one_port();
        let mut plane = EbpfPlane::open(options).expect("opened");
        plane.apply(&state).expect("applied");
        let right = dump(&plane);
        // The daemon had begun to write the next state, and the file of that state is beside the old one.
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
        // The same once more, with a crash between writing the file and writing the generation.
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

/// A table may be replaced by one of another kind, larger or smaller. No table is left over, even if a daemon has died
/// in between.
#[test]
fn tables_take_turns() {
    /// Routes of two /25s in many /24s, which take a medium table, or in a few.
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
                // The state that a daemon leaves which dies between putting a larger table in place and removing the
                // smaller one.
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

/// True if the port forwards in the VLAN, by every table that contains this information.
fn forwards(plane: &EbpfPlane, n: u16, v: u16) -> bool {
    let row = plane.tables.port_vlans.get(n.into());
    let bits = row.bits[usize::from(v)] & (abi::PV_FORWARD | abi::PV_LEARN);
    let sets = plane.tables.vlan_ports.get(v.into());
    let flooded = sets.form.iter().any(|set| set[usize::from(n) / 64] >> (n % 64) & 1 == 1);
    assert_eq!(bits == abi::PV_FORWARD | abi::PV_LEARN, flooded, "port {n}, VLAN {v}: {bits:#x}");
    assert!(flooded || bits == 0, "port {n}, VLAN {v}: {bits:#x}");
    flooded
}

/// Once protocols have their part, applying a state never changes the states of ports in trees, even while
/// both threads work at the same time.
#[test]
fn the_states_of_trees_are_the_protocols_alone() {
    let Some(mut plane) = private() else { return };
    let vlan = |n| VlanId::new(n).expect("a VLAN");
    let port = |n| PortId::new(n).expect("a port");
    let trees = [1, 2].map(|n| InstanceId::new(n).expect("an instance"));
    let mut state = PlaneState::default();
    state.global.fdb_limit = 1000;
    let trunk = |n: u16, vlans: &[u16]| {
        let mut trunk = PortState::access(&format!("e{n}"), n.into(), vlan(1));
        trunk.untagged = vlans.iter().copied().map(vlan).collect();
        trunk
    };
    for (n, instance) in [1, 2].into_iter().zip(trees) {
        state.vlans.insert(vlan(n), VlanState { instance, ..VlanState::default() });
    }
    for n in [1, 70] {
        state.ports.insert(port(n), trunk(n, &[1, 2]));
    }
    state.stp.insert((trees[0], port(70)), StpState::Discarding);
    plane.apply(&state).expect("applied");
    let all = |plane: &EbpfPlane| [(1, 1), (1, 2), (70, 1), (70, 2)].map(|(n, v)| forwards(plane, n, v));
    assert_eq!(all(&plane), [true, true, false, true]);
    let mut part = plane.protocols().expect("handed out");
    assert_eq!((part.trees().stp, plane.state().stp.len()), (state.stp.clone(), 0));
    assert_eq!(all(&plane), [true, true, false, true], "as it was");
    part.set_trees(&TreeStates::default()).expect("set");
    assert_eq!(all(&plane), [true; 4]);
    // Applying a state from before does not undo later changes.
    state.ports.get_mut(&port(1)).expect("a port").isolated = true;
    plane.apply(&state).expect("applied");
    assert_eq!(all(&plane), [true; 4]);
    // A port that does not exist yet gets its state when it is created.
    let held = |list: &[(usize, u16)]| TreeStates {
        stp: list.iter().map(|(tree, n)| ((trees[*tree], port(*n)), StpState::Discarding)).collect(),
        ..TreeStates::default()
    };
    part.set_trees(&held(&[(1, 5)])).expect("set");
    state.ports.insert(port(5), trunk(5, &[1, 2]));
    plane.apply(&state).expect("applied");
    assert_eq!([forwards(&plane, 5, 1), forwards(&plane, 5, 2)], [true, false]);
    // Ports join and leave VLANs, and VLANs change trees, while states change.
    let mut other = state.clone();
    other.ports.insert(port(70), trunk(70, &[2]));
    other.ports.remove(&port(5));
    other.vlans.insert(vlan(2), VlanState { instance: trees[0], ..VlanState::default() });
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let lists: [&[(usize, u16)]; 3] = [&[(0, 70), (1, 70)], &[(0, 1), (1, 5)], &[]];
            let mut rounds = 0;
            while !over.load(Relaxed) || rounds < lists.len() {
                part.set_trees(&held(lists[rounds % lists.len()])).expect("set");
                rounds += 1;
            }
            part.set_trees(&held(&[(1, 70), (0, 1)])).expect("set");
            rounds
        });
        for _ in 0..200 {
            plane.apply(&other).expect("applied");
            plane.apply(&state).expect("applied");
        }
        over.store(true, Relaxed);
        println!("{} changes of states meanwhile", changes.join().expect("ended"));
    });
    assert_eq!(all(&plane), [false, true, true, false]);
    assert_eq!([forwards(&plane, 5, 1), forwards(&plane, 5, 2)], [true, true]);
    plane.apply(&other).expect("applied");
    assert_eq!(
        [forwards(&plane, 1, 1), forwards(&plane, 1, 2), forwards(&plane, 70, 2)],
        [false, false, true]
    );
    // A new daemon reads the states back from the tables.
    let mut found = other.clone();
    crate::recover::trees(&plane.tables, &mut found);
    assert_eq!(found.stp, held(&[(0, 1)]).stp, "VLANs of the first tree alone are left");
}

/// Until the watchdog expires nothing changes. Then the watched port discards in its tree's VLANs and in no others,
/// whatever state is applied, until the control plane has acknowledged the expiry.
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
    let all = |plane: &EbpfPlane| [(1, 1), (1, 2), (70, 1), (70, 2)].map(|(n, v)| forwards(plane, n, v));
    let wait = |plane: &EbpfPlane| {
        let deadline = Instant::now() + Duration::from_secs(20);
        let waits = || plane.tables.watchdog.get(0).phase != abi::WATCHDOG_EXPIRED;
        while waits() && Instant::now() < deadline {
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
        // A state applied before the expiry has been acknowledged opens nothing, even if it watches no port any
        // more.
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

/// Until nobody confirms leases all is as it was; then XDP sends nothing to veth ports, whatever is written, until they are
/// confirmed again. Other ports go on to take frames from XDP.
#[test]
fn leases_end_that_are_not_confirmed() {
    let Some(mut plane) = private() else { return };
    let port = |n| PortId::new(n).expect("a port");
    let vlan = VlanId::new(1).expect("a VLAN");
    let mut state = PlaneState::default();
    state.global.fdb_limit = 1000;
    state.vlans.insert(vlan, VlanState::default());
    let ports = [(1, true), (2, false), (70, true)];
    for (n, leased) in ports {
        state.ports.insert(port(n), PortState::access(&format!("e{n}"), n.into(), vlan));
        let facts = PortFacts { xdp_tx: true, xdp_sg: true, leased, ..PortFacts::default() };
        plane.facts.insert(port(n), facts);
    }
    plane.apply(&state).expect("applied");
    let takes = |plane: &EbpfPlane| {
        let both = abi::PORT_XDP_TX | abi::PORT_XDP_SG;
        ports.map(|(n, _)| plane.tables.ports.get(port(n).index()).flags & both == both)
    };
    let floods = |plane: &EbpfPlane| plane.tables.global.get(0).xdp_flood;
    let ends = |plane: &EbpfPlane| {
        let soon = Some(Duration::from_millis(5));
        crate::watchdog::set(&plane.programs.watchdog_set, abi::WATCHDOG_LEASES, soon).expect("set");
        let deadline = Instant::now() + Duration::from_secs(20);
        let row = usize::from(abi::WATCHDOG_LEASES);
        while plane.tables.watchdog.get(row).phase != abi::WATCHDOG_EXPIRED && Instant::now() < deadline {
            std::thread::yield_now();
        }
    };
    plane.renew_leases().expect("renewed");
    assert_eq!((takes(&plane), floods(&plane)), ([true; 3], 0b110));
    for _ in 0..3 {
        ends(&plane);
        let ended = ([false, true, false], 0b100);
        assert_eq!((takes(&plane), floods(&plane)), ended);
        assert_eq!(plane.tables.watchdog.get(abi::WATCHDOG_LEASES.into()).blocked, 2);
        assert!(!plane.watchdog_expired(), "the watchdog of spanning tree is another one");
        // Applying a state meanwhile starts no lease.
        let mut next = state.clone();
        next.ports.get_mut(&port(1)).expect("a port").isolated = true;
        next.global.fdb_limit = 2000;
        plane.apply(&next).expect("applied");
        assert_eq!((takes(&plane), floods(&plane)), ended);
        plane.apply(&state).expect("applied");
        plane.renew_leases().expect("renewed");
        assert_eq!((takes(&plane), floods(&plane)), ([true; 3], 0b110));
    }
}
