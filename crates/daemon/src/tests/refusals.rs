//! A plane that refuses the states of ports: spanning tree must not announce any state that the plane does
//! not have.

use crate::core::Core;
use crate::protocols::Engine;
use crate::testing::Bench;
use lanyard_cli::apply_text;
use lanyard_cli::backend::Configuration;
use lanyard_config::Config;
use lanyard_plane::Trapped;
use lanyard_stp::Duplex;
use lanyard_types::{InstanceId, PortId, StpState, TrapReason};

/// The offset of the flags of an RST BPDU in an untagged frame (IEEE 802.1D-2004, 9.3.3).
const FLAGS: usize = 21;
const PROPOSAL: u8 = 0x02;
const FORWARDING: u8 = 0x20;
const AGREEMENT: u8 = 0x40;

/// The proposal of a better bridge that its port become designated.
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

/// A switch whose plane refuses on demand. Each frame that it sends must announce only states that the plane
/// has.
struct Claims {
    bench: Bench,
    core: Core,
    now_ms: u64,
}

impl Claims {
    fn new(text: &str) -> Self {
        let bench = Bench::new();
        let mut core = bench.core();
        let (config, errors) = apply_text(text, &Config::default());
        assert!(errors.is_empty(), "{errors:?}");
        core.commit(config).expect("taken");
        Self { bench, core, now_ms: 0 }
    }
    fn port(&self, name: &str) -> PortId {
        self.core.ctx.switch.ports().get(name).expect("a port")
    }
    fn refuse(&self, on: bool) {
        *self.bench.plane.refuses_trees.lock() = on;
    }
    /// The flags of the frames that were sent since the last call, by port.
    fn sent(&self) -> Vec<(PortId, u8)> {
        let sent = std::mem::take(&mut *self.bench.plane.sent_in.lock());
        let check = |(port, frame, state): (PortId, Vec<u8>, StpState)| {
            let claimed = frame[FLAGS] & FORWARDING != 0;
            assert_eq!(
                claimed,
                state == StpState::Forwarding,
                "port {port} is {state:?} and claims otherwise"
            );
            (port, frame[FLAGS])
        };
        sent.into_iter().map(check).collect()
    }
    fn link(&self, port: PortId) {
        self.core.ctx.protocols.change(move |engine: &mut Engine| {
            let now = engine.now();
            let bridge = engine.trees.bridge_mut().expect("a bridge");
            bridge.handle_link(now, port, true, Some(1000), Duplex::Full);
        });
    }
    fn receive(&mut self, port: PortId, frame: Vec<u8>) {
        self.bench.plane.trapped.lock().push(Trapped { port, reason: TrapReason::Bpdu, frame });
        self.core.plane_events();
    }
    fn decided(&self, port: PortId) -> Option<StpState> {
        self.core.ctx.protocols.with(move |engine| {
            let mut states = engine.trees.spanning().expect("a bridge").bridge().states();
            states.find(|(_, of, _)| *of == port).map(|(_, _, state)| state)
        })
    }
    fn taken(&self, port: PortId) -> StpState {
        let trees = self.bench.plane.trees.lock();
        trees.stp.get(&(InstanceId::default(), port)).copied().unwrap_or_default()
    }
    /// Lets time pass until `done`.
    fn run(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let until = self.now_ms + 30_000;
        while !done(self) {
            assert!(self.now_ms < until, "waiting for {what}");
            self.now_ms += 50;
            self.bench.clock.set(self.now_ms);
            self.core.tick();
        }
    }
    fn withheld(&self) -> bool {
        crate::spanning::view(&self.core.ctx).watchdog.is_some_and(|view| view.withheld)
    }
}

#[test]
fn no_bpdu_claims_a_state_that_the_plane_refused() {
    let mut claims = Claims::new(
        "spanning-tree mode rstp\nspanning-tree vlan 1 hello-time 1\n\
        interface up1\nswitchport mode trunk\ninterface edge1\nswitchport\nspanning-tree portfast\n",
    );
    let (up, edge) = (claims.port("up1"), claims.port("edge1"));

    // An edge port that the plane does not let forward sends nothing, rather than announce that it forwards.
    claims.refuse(true);
    claims.link(edge);
    assert_eq!(claims.decided(edge), Some(StpState::Forwarding));
    assert_eq!(claims.taken(edge), StpState::Discarding);
    assert!(claims.withheld());
    claims.core.tick();
    assert_eq!(claims.sent(), []);
    claims.refuse(false);
    claims.run("the state to be taken", |claims| claims.taken(edge) == StpState::Forwarding);
    claims.run("a BPDU that claims it", |claims| claims.sent().iter().any(|(port, _)| *port == edge));
    assert!(!claims.withheld());

    // An agreement announces that the root port forwards and that the others are in sync. It is not sent before the
    // plane has these states.
    claims.link(up);
    claims.sent();
    claims.refuse(true);
    claims.receive(up, proposal());
    assert_eq!(claims.decided(up), Some(StpState::Forwarding), "the root port");
    assert_eq!(claims.sent(), []);
    claims.refuse(false);
    claims.run("the state to be taken", |claims| claims.taken(up) == StpState::Forwarding);
    claims.receive(up, proposal());
    let agrees = |(port, flags): &(PortId, u8)| *port == up && flags & AGREEMENT != 0;
    claims.run("an agreement", |claims| claims.sent().iter().any(agrees));
}

/// While a configuration is carried out, which may take long, a port forwards only if both the planned bridge
/// and the running one let it forward.
#[test]
fn a_configuration_on_its_way_opens_nothing() {
    let mut claims = Claims::new(
        "spanning-tree mode rstp\ninterface edge1\nswitchport\nspanning-tree portfast\ninterface up1\nswitchport\n",
    );
    let (up, edge) = (claims.port("up1"), claims.port("edge1"));
    claims.link(edge);
    assert_eq!((claims.taken(edge), claims.taken(up)), (StpState::Forwarding, StpState::Discarding));
    let (config, _) = apply_text("no spanning-tree mode\nspanning-tree mode mst\n", claims.core.running());
    let plan = claims.core.ctx.switch.plan(0, config).expect("a plan");
    crate::spanning::hold(&claims.core.ctx, &plan);
    assert_eq!(
        claims.taken(edge),
        StpState::Discarding,
        "the bridge to come begins with every port discarding"
    );
    // Meanwhile the running bridge decides about new events, and opens nothing either.
    claims.link(up);
    claims.run("time to pass", |claims| claims.now_ms > 20_000);
    assert_eq!((claims.taken(edge), claims.taken(up)), (StpState::Discarding, StpState::Discarding));
    crate::spanning::release(&claims.core.ctx);
    assert_eq!((claims.taken(edge), claims.taken(up)), (StpState::Forwarding, StpState::Forwarding));
}

/// Each change is marked in the plane before its consequences take effect, and the file names the change that
/// it describes.
#[test]
fn the_file_describes_the_change_that_the_plane_notes() {
    let mut claims =
        Claims::new("spanning-tree mode rstp\ninterface edge1\nswitchport\nspanning-tree portfast\n");
    let kept = |claims: &Claims| crate::protocols::keeper::found(&claims.bench.paths()).expect("a file").0;
    let before = *claims.bench.plane.mark.lock();
    assert_eq!(kept(&claims), before);
    let edge = claims.port("edge1");
    claims.link(edge);
    assert!(*claims.bench.plane.mark.lock() > before);
    assert_eq!(kept(&claims), *claims.bench.plane.mark.lock());
    // Without a change nothing is written.
    let now = *claims.bench.plane.mark.lock();
    claims.run("hellos", |claims| claims.now_ms > 20_000);
    assert_eq!(*claims.bench.plane.mark.lock(), now);
}
