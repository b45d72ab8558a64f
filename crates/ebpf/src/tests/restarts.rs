//! The state that the next daemon finds: pins of other programs and other layouts, and what an interrupted write has left.

use super::{assert_same, dump, one_port, pinned};
use crate::abi;
use crate::fib::Array;
use crate::object::{self, Deferred};
use crate::plane::EbpfPlane;
use crate::tables::Meta;
use ipnet::Ipv4Net;
use lanyard_pipeline::route::{Adjacency, RouteChange, RouteTarget};
use lanyard_pipeline::state::{HookChoice, PortKind, PortState};
use lanyard_plane::{Plane, PlaneError, PlaneState};
use lanyard_types::{AdjacencyId, GroupId, MacAddr, PortId, RifId, TrapReason, VrfId};
use libbpf_rs::{MapCore, MapFlags};
use std::mem::offset_of;
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering::Relaxed;
use zerocopy::IntoBytes;

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
        let note_text = format!("layout {}", abi::ABI + 1);
        assert!(
            plane.capabilities.notes.iter().any(|note| note.contains(&note_text)),
            "{:?}",
            plane.capabilities.notes
        );
        assert_eq!(*plane.state(), PlaneState::default());
        plane.apply(&state).expect("applied");
        assert_eq!(plane.port_hook(PortId::new(1).expect("a port")), lanyard_plane::Hook::Tc);
    });
}

/// Veths have one XDP program in common. Where the kernel refuses it, each has one that is bound to it.
#[test]
fn xdp_of_veths_is_one_program_or_one_for_each() {
    for refused in [false, true] {
        pinned(|options| {
            let mut state = one_port();
            for port in state.ports.values_mut() {
                port.hook = HookChoice::Xdp;
            }
            let mut plane = EbpfPlane::open(options).expect("opened");
            if refused {
                plane.programs.refuse_veth();
            }
            match plane.apply(&state) {
                Err(error @ PlaneError::Unsupported { .. }) => return println!("skipped: {error}"),
                done => done.expect("applied"),
            }
            let hook = |plane: &EbpfPlane| plane.port_hook(PortId::new(1).expect("a port"));
            assert_eq!(hook(&plane), lanyard_plane::Hook::Xdp);
            let in_common = |plane: &EbpfPlane| plane.programs.get(Deferred::XdpVeth).is_some();
            assert_eq!(in_common(&plane), !refused);
            drop(plane);
            let plane = EbpfPlane::open(options).expect("adopted");
            assert_eq!((hook(&plane), in_common(&plane)), (lanyard_plane::Hook::Xdp, !refused));
            plane.tables.meta.u64(0, offset_of!(Meta, object)).store(1, Relaxed);
            drop(plane);
            let plane = EbpfPlane::open(options).expect("adopted by another version");
            assert_eq!((hook(&plane), in_common(&plane)), (lanyard_plane::Hook::Xdp, true));
        });
    }
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

/// A switch that only bridges loads no router. One that routes keeps it across restarts and changes of version.
#[test]
fn the_router_is_loaded_before_a_port_is_routed() {
    const ROUTER: u32 = 0;
    pinned(|options| {
        let bridged = one_port();
        let mut routed = bridged.clone();
        for port in routed.ports.values_mut() {
            *port = PortState { kind: PortKind::Routed, ..PortState::new(&port.name, port.ifindex) };
        }
        let loaded = |plane: &EbpfPlane| {
            let steps = plane.tables.map("steps");
            let entry = steps.lookup(&ROUTER.to_ne_bytes(), MapFlags::ANY).expect("a map of programs");
            assert_eq!(
                plane.programs.get(Deferred::Router).is_some(),
                entry.is_some(),
                "the entry of `steps`"
            );
            entry.is_some()
        };
        let mut plane = EbpfPlane::open(options).expect("opened");
        plane.apply(&bridged).expect("applied");
        assert!(!loaded(&plane) && !plane.is_whole());
        object::REFUSED.set(true);
        let refused = plane.apply(&routed).expect_err("no router").to_string();
        object::REFUSED.set(false);
        assert!(refused.contains("refused by a test"), "{refused}");
        assert_eq!(plane.state(), &bridged);
        plane.apply(&routed).expect("applied");
        assert!(loaded(&plane));
        for object in [object::fingerprint(), 1] {
            plane.tables.meta.u64(0, offset_of!(Meta, object)).store(object, Relaxed);
            drop(plane);
            plane = EbpfPlane::open(options).expect("adopted");
            assert!(loaded(&plane), "after a restart from the programs {object:x}");
            assert_eq!(plane.state(), &routed);
        }
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
        // Now a crash between writing the file and writing the generation.
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
        assert_eq!(held(&plane), NONE, "a VRF that is not configured again");
        routes(&mut plane, false);
        assert_eq!(held(&plane), SMALL);
        assert_eq!(plane.route(&[RouteChange::VrfGone(VRF)]), []);
        assert_eq!(held(&plane), NONE);
    });
}
