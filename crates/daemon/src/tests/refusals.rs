//! A plane that refuses the states of ports: spanning tree claims nothing that is not so.

use super::core_over;
use crate::core::Core;
use lanyard_cli::backend::Backend;
use lanyard_cli::edit::apply_text;
use lanyard_config::Config;
use lanyard_plane::{
    Capabilities, FdbEntry, FdbFilter, Hook, Plane, PlaneError, PlaneEvent, PlaneState, PortCounters, Sweep,
    TableUsage, Trace, TrapCounters,
};
use lanyard_soft::SoftPlane;
use lanyard_stp::Duplex;
use lanyard_types::{FrameCount, InstanceId, PortId, StpState, TrapGroup, TrapReason, VlanId};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Where the flags of an RST BPDU are in an untagged frame (IEEE 802.1D-2004, 9.3.3).
const FLAGS: usize = 21;
const PROPOSAL: u8 = 0x02;
const FORWARDING: u8 = 0x20;
const AGREEMENT: u8 = 0x40;

/// A plane that takes no state while `refuses` is set. Every BPDU is compared with the plane's states as it is sent.
struct FaultyPlane {
    plane: SoftPlane,
    refuses: Rc<Cell<bool>>,
    sent: Rc<RefCell<Vec<(PortId, u8)>>>,
}

impl Plane for FaultyPlane {
    fn apply(&mut self, next: &PlaneState) -> Result<(), PlaneError> {
        if self.refuses.get() && *next != *self.plane.state() {
            return Err(PlaneError::Invalid("no space left on the device".into()));
        }
        self.plane.apply(next)
    }
    fn inject(&mut self, port: PortId, frame: &[u8]) -> Result<(), PlaneError> {
        let state = self.plane.state().stp.get(&(InstanceId::default(), port)).copied().unwrap_or_default();
        let claimed = frame[FLAGS] & FORWARDING != 0;
        assert_eq!(claimed, state == StpState::Forwarding, "port {port} is {state:?} and claims otherwise");
        self.sent.borrow_mut().push((port, frame[FLAGS]));
        Ok(())
    }
    fn capabilities(&self) -> &Capabilities {
        self.plane.capabilities()
    }
    fn state(&self) -> &PlaneState {
        self.plane.state()
    }
    fn fdb_walk(&mut self, filter: &FdbFilter, visit: &mut dyn FnMut(FdbEntry)) {
        self.plane.fdb_walk(filter, visit);
    }
    fn fdb_flush(&mut self, filter: &FdbFilter) -> u64 {
        self.plane.fdb_flush(filter)
    }
    fn fdb_sweep(&mut self, ageing_s: Option<u32>) -> Sweep {
        self.plane.fdb_sweep(ageing_s)
    }
    fn fdb_dynamic(&mut self) -> u64 {
        self.plane.fdb_dynamic()
    }
    fn port_counters(&mut self, port: PortId) -> PortCounters {
        self.plane.port_counters(port)
    }
    fn vlan_counters(&mut self, vlan: VlanId) -> FrameCount {
        self.plane.vlan_counters(vlan)
    }
    fn trap_counters(&mut self) -> [TrapCounters; TrapGroup::SLOTS] {
        self.plane.trap_counters()
    }
    fn trap_reasons(&mut self) -> [u64; TrapReason::SLOTS] {
        self.plane.trap_reasons()
    }
    fn resources(&mut self) -> Vec<TableUsage> {
        self.plane.resources()
    }
    fn clear_counters(&mut self, port: PortId) {
        self.plane.clear_counters(port);
    }
    fn port_hook(&self, port: PortId) -> Hook {
        self.plane.port_hook(port)
    }
    fn event_fd(&self) -> Option<i32> {
        self.plane.event_fd()
    }
    fn poll_events(&mut self, handle: &mut dyn FnMut(PlaneEvent)) {
        self.plane.poll_events(handle);
    }
    fn trace(&mut self, port: PortId, frame: &[u8]) -> Result<Trace, PlaneError> {
        self.plane.trace(port, frame)
    }
    fn detach(&mut self) -> Result<(), PlaneError> {
        self.plane.detach()
    }
}

/// What a better bridge proposes: that its port be designated.
fn proposal() -> Vec<u8> {
    let bridge = [0x10, 0x00, 0x02, 0, 0, 0, 0xee, 1];
    let mut frame = vec![0x01, 0x80, 0xc2, 0, 0, 0, 0x02, 0, 0, 0, 0xee, 1, 0, 39, 0x42, 0x42, 0x03];
    frame.extend([0, 0, 2, 2, 0x0c | PROPOSAL]);
    frame.extend(bridge);
    frame.extend([0, 0, 0, 0]);
    frame.extend(bridge);
    frame.extend([0x80, 0x01, 0, 0, 20, 0, 2, 0, 15, 0, 0]);
    frame.resize(60, 0);
    frame
}

/// Lets the switch run until `done`.
fn run(core: &mut Core, what: &str, done: impl Fn(&Core) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done(core) {
        assert!(Instant::now() < deadline, "waiting for {what}");
        core.tick();
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn no_bpdu_claims_a_state_that_the_plane_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (refuses, sent) = (Rc::new(Cell::new(false)), Rc::new(RefCell::new(Vec::new())));
    let (plane, _) = SoftPlane::in_memory().expect("a plane");
    let plane = FaultyPlane { plane, refuses: refuses.clone(), sent: sent.clone() };
    let mut core = core_over(directory.path(), Box::new(plane));
    let text = "spanning-tree mode rstp\nspanning-tree vlan 1 hello-time 1\n\
        interface up1\nswitchport mode trunk\ninterface edge1\nswitchport\nspanning-tree portfast\n";
    let (config, errors) = apply_text(text, &Config::default());
    assert!(errors.is_empty(), "{errors:?}");
    core.commit(config).expect("taken");
    let port = |core: &Core, name: &str| core.switch.ports().get(name).expect("a port");
    let (up, edge) = (port(&core, "up1"), port(&core, "edge1"));
    let link = |core: &mut Core, port: PortId| {
        let now = core.clock.boot_ms();
        let bridge = core.switch.spanning_mut().expect("a bridge").bridge_mut();
        bridge.handle_link(now, port, true, Some(1000), Duplex::Full);
    };
    let decided = |core: &Core, port: PortId| {
        let mut states = core.switch.spanning().expect("a bridge").bridge().states();
        states.find(|(_, of, _)| *of == port).map(|(_, _, state)| state)
    };
    let taken = |core: &Core, port: PortId| {
        core.plane.state().stp.get(&(InstanceId::default(), port)).copied().unwrap_or_default()
    };

    // An edge port that the plane does not let forward says nothing, rather than that it forwards.
    refuses.set(true);
    link(&mut core, edge);
    core.spanning();
    assert_eq!(decided(&core, edge), Some(StpState::Forwarding));
    assert_eq!(taken(&core, edge), StpState::Discarding);
    assert!(core.view_spanning_tree().watchdog.is_some_and(|view| view.withheld));
    core.tick();
    assert_eq!(*sent.borrow(), []);
    refuses.set(false);
    run(&mut core, "the state to be taken", |core| taken(core, edge) == StpState::Forwarding);
    run(&mut core, "a BPDU that claims it", |_| sent.borrow().iter().any(|(port, _)| *port == edge));
    assert!(core.view_spanning_tree().watchdog.is_some_and(|view| !view.withheld));

    // An agreement says that the root port forwards and that the others are in step: not before the plane has it so.
    link(&mut core, up);
    core.spanning();
    sent.borrow_mut().clear();
    refuses.set(true);
    core.spanning_bpdus(vec![(up, proposal())]);
    assert_eq!(decided(&core, up), Some(StpState::Forwarding), "the root port");
    assert_eq!(*sent.borrow(), []);
    refuses.set(false);
    run(&mut core, "the state to be taken", |core| taken(core, up) == StpState::Forwarding);
    core.spanning_bpdus(vec![(up, proposal())]);
    let agrees = |(port, flags): &(PortId, u8)| *port == up && flags & AGREEMENT != 0;
    run(&mut core, "an agreement", |_| sent.borrow().iter().any(agrees));
}
