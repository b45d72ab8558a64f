//! Multicast groups through the driver, on chips that fail, close the connection, answer late, die, and return with less room. A
//! model stores the changes that the driver has accepted. When everything works again the three views must agree: the model, the
//! driver's [`Groups`](crate::groups::Groups), and the entries of the chip.
//!
//! `LANYARD_RANDOM_HISTORIES` is the number of histories (150 by default), `LANYARD_RANDOM_SEED` the seed of the first one.

#![allow(clippy::panic)] // the functions of tests are not tests themselves

use crate::channels::Channels;
use crate::chip::PATIENCE;
use crate::cpu::Shared;
use crate::groups::Groups;
use crate::plane::manager_at;
use crate::protocols::{ChipProtocols, Endpoint, SharedEndpoint, move_groups};
use crate::trees::Trees;
use lanyard_asic::chip::serve::{self, End, Server, Stopper};
use lanyard_asic::platform::Platform;
use lanyard_asic::sdk::faults::FaultPlan;
use lanyard_asic::sdk::message::Request;
use lanyard_asic::sdk::{Client, Operation};
use lanyard_offload::Manager;
use lanyard_offload::live::Live;
use lanyard_pipeline::generate::Rng;
use lanyard_pipeline::state::{Unregistered, VlanState};
use lanyard_pipeline::tables::mdb::{Flooded, Mdb, MdbChange};
use lanyard_plane::{PlaneError, ProtocolPlane};
use lanyard_types::{Family, PortId, PortSet, VlanId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// The sizes in units of the table for groups: the first one for the first chip, any of them for a chip that replaces another
/// one.
const UNITS: [u32; 3] = [64, 32, 128];

/// A chip on a thread of its own.
pub(crate) struct Running {
    socket: PathBuf,
    stopper: Stopper,
    thread: JoinHandle<End>,
}

impl Running {
    pub(crate) fn start(platform: &Platform, socket: PathBuf, salt: u64) -> Self {
        let options = serve::Options {
            platform: platform.clone(),
            salt,
            boot: salt + 1,
            wires: BTreeMap::new(),
            plugs: BTreeMap::new(),
            faults: FaultPlan::default(),
        };
        let server = Server::new(options, serve::listen(&socket).expect("a socket")).expect("a chip");
        let stopper = server.stopper();
        Self { socket, stopper, thread: std::thread::spawn(move || server.run().expect("it can wait")) }
    }
    fn is_dead(&self) -> bool {
        Client::connect(&self.socket, "probe").is_err()
    }
    fn client(&self) -> Client {
        let mut client = Client::connect(&self.socket, "test").expect("a chip");
        client.set_patience(PATIENCE);
        client
    }
    pub(crate) fn end(self) -> End {
        self.stopper.stop();
        self.thread.join().expect("no panic")
    }
}

/// A platform whose bus takes no time, with this number of units for groups.
fn platform(units: u32) -> Platform {
    let text = include_str!("../../../platforms/appliance.toml").replace("8192", &units.to_string());
    let mut platform = Platform::parse(&text).expect("a platform");
    (platform.bus.write_us, platform.bus.query_us, platform.bus.bulk) = (0, 0, 64);
    platform
}

/// The parts of a driver that write groups and VLANs, a chip, and the model.
struct Bed {
    directory: TempDir,
    rng: Rng,
    chip: Running,
    starts: u64,
    manager: Manager<Live>,
    endpoint: SharedEndpoint,
    protocols: ChipProtocols,
    model: Mdb,
    vlans: BTreeMap<VlanId, VlanState>,
    /// The number of refused entries; `lost` counts those for which a chip that took over had no room.
    refused: usize,
    lost: usize,
    log: Vec<String>,
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
fn socket(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("chip-{number}"))
}
fn vlan(number: u64) -> VlanId {
    VlanId::new(10 + number as u16).expect("a VLAN")
}
fn texts(changes: impl IntoIterator<Item = MdbChange>) -> BTreeSet<String> {
    changes.into_iter().map(|change| format!("{change:?}")).collect()
}

impl Bed {
    fn new(seed: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let chip = Running::start(&platform(UNITS[0]), socket(directory.path(), 0), seed);
        let endpoint = Endpoint {
            socket: chip.socket.clone(),
            generation: 1,
            trees: Trees::default(),
            groups: Groups::default(),
            channels: Channels::default(),
        };
        let endpoint = Arc::new(Mutex::new(endpoint));
        let shared = Arc::new(Shared::new().expect("an eventfd"));
        let protocols = ChipProtocols::new(shared, endpoint.clone(), &directory.path().join("mark"));
        let manager = manager_at(&chip.socket, &platform(UNITS[0]), "hybrid", 1).expect("a manager");
        let mut bed = Self {
            directory,
            rng: Rng::new(seed),
            chip,
            starts: 0,
            manager,
            endpoint,
            protocols,
            model: Mdb::default(),
            vlans: BTreeMap::new(),
            refused: 0,
            lost: 0,
            log: vec![format!("seed {seed}")],
        };
        (0..3).for_each(|number| bed.snoop(vlan(number)));
        bed
    }

    fn random_change(rng: &mut Rng) -> MdbChange {
        let vlan = vlan(rng.below(3));
        let family = if rng.percent(80) { Family::V4 } else { Family::V6 };
        let ports: PortSet = (1..=4).filter_map(PortId::new).filter(|_| rng.percent(50)).collect();
        match rng.below(12) {
            0 => MdbChange::Routers { vlan, family, ports: Box::new(ports) },
            1 => {
                let all = [Flooded::Nothing, Flooded::Unregistered, Flooded::All];
                MdbChange::Flood { vlan, family, flooded: rng.pick(&all).expect("a choice") }
            }
            _ => {
                let (group, from) = (rng.below(40) as u8, rng.percent(30).then(|| 1 + rng.below(3) as u8));
                let (group, source): (IpAddr, Option<IpAddr>) = match family {
                    Family::V4 => {
                        let source = from.map(|from| Ipv4Addr::new(10, 0, 0, from).into());
                        (Ipv4Addr::new(239, 1, 1, group).into(), source)
                    }
                    Family::V6 => {
                        let source =
                            from.map(|from| Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(from)).into());
                        (Ipv6Addr::from(0xff05_u128 << 112 | u128::from(group)).into(), source)
                    }
                };
                let ports = (!rng.percent(25)).then(|| Box::new(ports));
                MdbChange::Entry { vlan, group, source, ports }
            }
        }
    }

    /// Makes a random change, as snooping does after a message of a host.
    fn learn(&mut self) {
        let change = Self::random_change(&mut self.rng);
        let given = self.protocols.multicast(&change);
        self.log.push(format!("{change:?}: {given:?}"));
        self.take_lost();
        match (given, change) {
            (Ok(()), change) => self.model.change(&change).expect("it was taken"),
            (Err(PlaneError::TableFull { .. }), MdbChange::Entry { vlan, group, source, .. }) => {
                self.refused += 1;
                let gone = MdbChange::Entry { vlan, group, source, ports: None };
                self.model.change(&gone).expect("a removal needs no room");
            }
            (given, change) => panic!("{change:?}: {given:?}: {}", self.story()),
        }
    }
    /// Updates the model for groups that the driver has given up: they are flooded.
    fn take_lost(&mut self) {
        for change in self.protocols.multicast_lost() {
            let MdbChange::Entry { vlan, group, source, .. } = change else {
                panic!("{change:?} is no entry: {}", self.story());
            };
            self.lost += 1;
            let family = Family::of(group);
            if self.model.flooded(vlan, family) == Flooded::Nothing {
                let flood = MdbChange::Flood { vlan, family, flooded: Flooded::Unregistered };
                self.model.change(&flood).expect("no entry");
            }
            self.model.change(&MdbChange::Entry { vlan, group, source, ports: None }).expect("removed");
        }
    }

    /// Sets the snooping of a VLAN, as a command does.
    fn snoop(&mut self, vlan: VlanId) {
        let choice = [Some(Unregistered::Flood), Some(Unregistered::Routers), None];
        let snooping = [(); 2].map(|()| self.rng.pick(&choice).expect("a choice"));
        let state = VlanState { snooping, ..VlanState::default() };
        let outcome = self.manager.setup(&[Operation::Vlan(vlan, Some(state.clone()))]);
        self.log.push(format!("VLAN {vlan}: {outcome:?}"));
        if outcome.is_ok() {
            self.vlans.insert(vlan, state);
        }
    }

    fn fault(&mut self) {
        if self.chip.is_dead() {
            return;
        }
        let kind = self.rng.pick(&["multicast", "routers", "flood", "vlan", "operation"]).expect("a kind");
        let (action, when, from) = match self.rng.below(20) {
            0..9 => ("fail", "at", 1),
            9..12 => ("fail", "every", 1 + self.rng.below(2)),
            12..16 => ("cut", "at", 1),
            16 if self.rng.percent(10) => ("slow 600000", "at", 1),
            _ => ("die", "at", 1),
        };
        let number = from + if when == "at" { self.rng.below(8) } else { 0 };
        let plan = format!("{action} {kind} {when} {number}");
        let planned = self.chip.client().number(&Request::Faults(plan.clone()));
        self.log.push(format!("{plan}: {planned:?}"));
    }

    /// Replaces the chip by another one, perhaps with less room, and writes everything to it, as the driver does when a chip has
    /// ended.
    fn replace(&mut self) {
        self.starts += 1;
        let units = self.rng.pick(&UNITS).expect("a size");
        self.log.push(format!("another chip, of {units} units"));
        let next = Running::start(&platform(units), socket(self.directory.path(), self.starts), self.starts);
        let before = std::mem::replace(&mut self.chip, next);
        before.end();
        let mut manager =
            manager_at(&self.chip.socket, &platform(units), "hybrid", 1).expect("the new chip works");
        let all = self.vlans.iter().map(|(vlan, state)| Operation::Vlan(*vlan, Some(state.clone())));
        manager.setup(&all.collect::<Vec<_>>()).expect("VLANs take no entries");
        self.manager = manager;
        let mut client = self.chip.client();
        move_groups(&self.endpoint, &mut client, self.chip.socket.clone(), &[]).expect("the new chip works");
        self.take_lost();
    }

    /// Ends all faults, lets the driver write whatever is pending, and compares the views.
    fn settle(&mut self) {
        if self.chip.is_dead() {
            self.replace();
        }
        self.chip.client().number(&Request::Faults(String::new())).expect("the chip works");
        self.manager.settle().expect("the chip works");
        // After a restart of this watchdog, the protocols also write to a chip again that had answered too late.
        self.protocols.snooping_watchdog(Some(Duration::from_secs(10))).expect("the chip works");
        self.take_lost();
        self.compare();
    }

    fn compare(&mut self) {
        let story = self.story();
        let (wanted, pending) = {
            let endpoint = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
            (endpoint.groups.changes(), endpoint.groups.pending())
        };
        let entries = self.chip.client().entries().expect("the chip works");
        assert_eq!(pending, [], "{story}: pending");
        assert_eq!(texts(self.model.changes()), texts(wanted.clone()), "{story}: model and driver");
        let held = entries.iter().filter_map(Operation::mdb_change);
        assert_eq!(texts(wanted), texts(held), "{story}: driver and chip");
        let vlans = entries.into_iter().filter_map(|entry| match entry {
            Operation::Vlan(vlan, Some(state)) => Some((vlan, state)),
            _ => None,
        });
        assert_eq!(vlans.collect::<BTreeMap<_, _>>(), self.vlans, "{story}: VLANs");
    }

    fn story(&self) -> String {
        let from = self.log.len().saturating_sub(30);
        self.log[from..].join("\n")
    }
}

#[test]
fn after_any_failure_model_driver_and_chip_agree() {
    let (histories, seed) = (number("LANYARD_RANDOM_HISTORIES", 150), number("LANYARD_RANDOM_SEED", 1));
    let (mut replaced, mut refused, mut lost) = (0, 0, 0);
    for seed in seed..seed + histories {
        let mut bed = Bed::new(seed);
        for _ in 0..120 {
            match bed.rng.below(24) {
                0..3 => bed.fault(),
                3 => {
                    let vlan = vlan(bed.rng.below(3));
                    bed.snoop(vlan);
                }
                4 => bed.settle(),
                _ => bed.learn(),
            }
        }
        bed.settle();
        replaced += bed.starts;
        refused += bed.refused;
        lost += bed.lost;
        assert_eq!(bed.chip.end(), End::Stopped);
    }
    println!("{replaced} chips replaced, {refused} entries refused, {lost} lost");
    let enough = replaced > 40 && refused > 1000 && lost > 100;
    assert!(enough || histories < 150, "{replaced}, {refused}, {lost}");
}

/// Chips replace each other while the protocol thread writes: no change is lost between them.
#[test]
fn changes_during_a_takeover_reach_the_next_chip() {
    for seed in 0..10 {
        let mut bed = Bed::new(seed);
        let mut rng = Rng::new(seed);
        for number in 1..=6 {
            let next = Running::start(&platform(128), socket(bed.directory.path(), 100 + number), number);
            std::thread::scope(|scope| {
                let (chip, endpoint) = (&next, &bed.endpoint);
                scope.spawn(move || {
                    move_groups(endpoint, &mut chip.client(), chip.socket.clone(), &[])
                        .expect("the chip works");
                });
                for _ in 0..40 {
                    // A refusal for want of room is no failure.
                    match bed.protocols.multicast(&Bed::random_change(&mut rng)) {
                        Ok(()) | Err(PlaneError::TableFull { .. }) => {}
                        Err(error) => panic!("seed {seed}: {error}"),
                    }
                }
            });
            std::mem::replace(&mut bed.chip, next).end();
            bed.protocols.snooping_watchdog(Some(Duration::from_secs(10))).expect("the chip works");
            let endpoint = bed.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
            assert_eq!(endpoint.groups.pending(), [], "seed {seed}, chip {number}");
            let wanted = texts(endpoint.groups.changes());
            drop(endpoint);
            let entries = bed.chip.client().entries().expect("the chip works");
            let held = texts(entries.iter().filter_map(Operation::mdb_change));
            assert_eq!(wanted, held, "seed {seed}, chip {number}");
        }
        bed.chip.end();
    }
}
