//! Tests that look into the tables, and what they share.

#![allow(clippy::panic)] // a test that panics has failed, and says why

mod mirror;
mod multicast;
mod restarts;
mod states;
mod trees;

use crate::abi;
use crate::open::Options;
use crate::plane::EbpfPlane;
use lanyard_pipeline::generate::State;
use lanyard_pipeline::state::Tpid;
use lanyard_plane::{Change, Plane, PlaneError, PlaneState};
use lanyard_types::PortId;
use libbpf_rs::{MapCore, MapFlags};
use zerocopy::IntoBytes;

fn private() -> Option<EbpfPlane> {
    match EbpfPlane::open_private(&Options { fdb_capacity: 1000, ..Options::new("tables") }) {
        Ok(plane) => Some(plane),
        Err(error @ PlaneError::Unsupported { .. }) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
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
        let value = subs.lookup(&key, MapFlags::ANY).ok().flatten().unwrap_or_default();
        row("sub_rifs", at, &[key, value].concat());
    }
    for at in 0..abi::IFMAP as usize {
        row("if_slots", at, tables.if_slots.get(at).as_bytes());
    }
    for at in 0..abi::USAGES {
        row("fdb_usage", at, tables.fdb_usage.get(at).limit.as_bytes());
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
    tables.stages.dump(&mut row);
    let mut fixed = Vec::new();
    tables.fdb_walk(&mut |key, value| fixed.push((key, value.raw())));
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
