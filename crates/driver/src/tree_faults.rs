//! States of ports in trees and the watchdog of spanning tree through the driver, on chips that fail, hang up, or have blocked
//! ports because the watchdog has expired.

use crate::channels::Channels;
use crate::cpu::{Carrier, Shared};
use crate::group_faults::Running;
use crate::groups::Groups;
use crate::protocols::{ChipProtocols, Endpoint};
use crate::trees::{Trees, has_watchdog, held_by};
use lanyard_asic::platform::Platform;
use lanyard_asic::sdk::Client;
use lanyard_asic::sdk::cpu::CpuHeader;
use lanyard_asic::sdk::message::Request;
use lanyard_asic::sdk::operation::Operation;
use lanyard_pipeline::state::{GlobalState, PortState, ReservedAction, VlanState};
use lanyard_plane::{ProtocolPlane, TreeStates};
use lanyard_types::{InstanceId, PortId, Rng, StpState, VlanId};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Less than the time after which BPDUs are accepted again even without the chip's notice (`STALE` in cpu.rs).
const STALE_TEST: Duration = Duration::from_millis(900);
const APPLIANCE: &str = include_str!("../../../platforms/appliance.toml");

/// A chip in this process, and the protocols' part of its driver.
struct Bed {
    directory: tempfile::TempDir,
    socket: PathBuf,
    chip: Option<Running>,
    shared: Arc<Shared>,
}

impl Bed {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("asic.sock");
        let chip = Running::start(&Platform::parse(APPLIANCE).expect("a platform"), socket.clone(), 1);
        let shared = Arc::new(Shared::new().expect("eventfds"));
        Self { directory, socket, chip: Some(chip), shared }
    }
    /// The protocols of a daemon that has just been started.
    fn daemon(&self) -> ChipProtocols {
        let trees = Trees::of(held_by(&mut self.client()).expect("a chip"), has_watchdog(&self.socket));
        let (groups, channels) = (Groups::default(), Channels::default());
        let endpoint = Endpoint { socket: self.socket.clone(), generation: 1, trees, groups, channels };
        let mark = self.directory.path().join("mark");
        ChipProtocols::new(self.shared.clone(), Arc::new(Mutex::new(endpoint)), &mark)
    }
    fn client(&self) -> Client {
        Client::connect(&self.socket, "test").expect("a chip")
    }
    fn plan(&self, plan: &str) {
        self.client().number(&Request::Faults(plan.into())).expect("a plan");
    }
    fn held(&self) -> TreeStates {
        held_by(&mut self.client()).expect("a chip")
    }
    fn wait_for_expiry(&self) {
        let mut client = self.client();
        while client.number(&Request::TreeExpiry(false)).expect("a chip") == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.chip.take().map(Running::end);
    }
}

fn random(rng: &mut Rng) -> TreeStates {
    let mut trees = TreeStates::default();
    for number in 1..=6 {
        let pair = (InstanceId::default(), PortId::new(number).expect("a port"));
        let state = [StpState::Discarding, StpState::Learning, StpState::Forwarding][rng.below(3) as usize];
        if state != StpState::Forwarding {
            trees.stp.insert(pair, state);
        }
        if rng.percent(50) {
            trees.watched.insert(pair);
        }
    }
    trees
}

/// Whatever fails, a change that was accepted is in the chip, and one that was not accepted is made when it is tried again.
#[test]
fn the_chip_has_the_states_that_were_accepted() {
    let bed = Bed::new();
    let (mut daemon, mut rng, mut refused) = (bed.daemon(), Rng::new(7), 0);
    let plans = ["", "fail stp every 2", "cut stp every 3", "fail watched every 3", "cut watched at 2"];
    for plan in plans.into_iter().cycle().take(20) {
        bed.plan(plan);
        for _ in 0..10 {
            let trees = random(&mut rng);
            if daemon.set_trees(&trees).is_ok() {
                assert_eq!(bed.held(), trees, "{plan}");
            } else {
                refused += 1;
                bed.plan("");
                daemon.set_trees(&trees).expect("nothing fails any more");
                assert_eq!(bed.held(), trees, "{plan}, tried again");
                bed.plan(plan);
            }
        }
        bed.plan("");
    }
    assert!(refused > 20, "{refused} changes failed");
}

/// An expiry is reported once, to the daemon that runs then; the states that the protocols set afterwards are in force, whatever
/// they set before they knew of it.
#[test]
fn an_expiry_is_reported_once_and_the_states_are_written_anew() {
    let bed = Bed::new();
    let mut rng = Rng::new(3);
    let pair = |number| (InstanceId::default(), PortId::new(number).expect("a port"));
    for round in 0..12 {
        let mut daemon = bed.daemon();
        assert!(!daemon.watchdog_expired(), "{round}");
        let mut first = random(&mut rng);
        first.watched.insert(pair(1));
        first.stp.remove(&pair(1));
        daemon.set_trees(&first).expect("taken");
        daemon.watchdog(Some(Duration::from_millis(1))).expect("a chip");
        bed.wait_for_expiry();
        // A change that the daemon makes before it knows of the expiry.
        daemon.set_trees(&TreeStates::default()).expect("taken");
        let held = bed.held();
        let blocked = |pair| held.stp.get(pair) == Some(&StpState::Discarding);
        assert!(first.watched.iter().all(blocked), "{round}: {first:?}, {held:?}");
        if round % 2 == 1 {
            // Another daemon finds the expiry.
            daemon = bed.daemon();
        }
        if round % 3 == 1 {
            // The acknowledgement is the second request about the watchdog: it fails, or its answer is lost.
            bed.plan(if round % 2 == 1 { "cut watchdog at 2" } else { "fail watchdog at 2" });
            assert!(!daemon.watchdog_expired(), "{round}");
        }
        assert!(daemon.watchdog_expired(), "{round}");
        assert!(!daemon.watchdog_expired(), "{round}");
        let next = random(&mut rng);
        daemon.set_trees(&next).expect("taken");
        assert_eq!(bed.held(), next, "{round}");
        daemon.watchdog(None).expect("stopped");
    }
}

/// BPDUs that were waiting when the daemon acknowledges an expiry are discarded, also those on the chip's connection; later ones
/// are not.
#[test]
fn bpdus_from_before_an_expiry_are_discarded() {
    let bed = Bed::new();
    let mut daemon = bed.daemon();
    let mut client = bed.client();
    let one = PortId::new(1).expect("a port");
    let state = PortState::access("swp1", 0, VlanId::DEFAULT);
    let mut global = GlobalState::default();
    global.reserved[0] = ReservedAction::Trap;
    let vlan = Operation::Vlan(VlanId::DEFAULT, Some(VlanState::default()));
    client
        .commit(&[Operation::Global(Box::new(global)), vlan, Operation::Port(one, Some(Box::new(state)))])
        .expect("taken");
    let bpdu = |last: u8| {
        let mut frame = vec![1, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0, last, 0, 39, 0x42, 0x42, 3];
        frame.resize(60, 0);
        frame
    };
    let header = CpuHeader { pipeline: true, to: Some(one), ..CpuHeader::default() };
    // Notices of one connection keep their order, so the carrier gets the first BPDU before the notice of the acknowledgement.
    let cpu = bed.client();
    let carrier = Carrier::start(cpu, bed.shared.clone(), false).expect("a chip");
    client.packet(header, &bpdu(1)).expect("sent");
    client.number(&Request::TreeWatchdog(1)).expect("a chip");
    bed.wait_for_expiry();
    assert!(daemon.watchdog_expired());
    client.packet(header, &bpdu(2)).expect("sent");
    let mut seen = Vec::new();
    let begin = Instant::now();
    while seen.is_empty() && begin.elapsed() < Duration::from_secs(10) {
        // Until the notice has arrived, later BPDUs may be discarded as well; neighbours repeat them.
        client.packet(header, &bpdu(2)).expect("sent");
        daemon.poll_traps(&mut |trapped| seen.push(trapped.frame[11]));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(seen.iter().all(|last| *last == 2) && !seen.is_empty(), "{seen:?}");
    assert!(begin.elapsed() < STALE_TEST, "the notice ends it, not the time: {:?}", begin.elapsed());
    drop(carrier);
}
