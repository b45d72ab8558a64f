//! A network of bridges in simulated time. `language` parses scenarios, `graph` checks the network after every
//! event.
//!
//! Invariant: after every single event, the forwarding graph of every VLAN under test is checked for cycles. A
//! scenario with a loop of one millisecond fails, unless it contains `loops allowed` with the reason.

mod graph;
mod language;

use lanyard_stp::*;
use lanyard_types::{MacAddr, PortId, StpState, VlanId, VlanSet};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// xorshift64*: seeded, with the same sequence on every machine.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n.max(1)
    }
}

#[derive(Clone)]
pub struct Segment {
    /// (bridge, port)
    pub ends: Vec<(usize, PortId)>,
    pub up: bool,
    pub delay_ms: u64,
    pub loss_percent: u64,
    pub speed: u32,
    pub duplex: Duplex,
}

pub struct Node {
    pub name: String,
    pub bridge: Bridge,
    pub ports: Vec<String>,
    due: Option<u64>,
}

/// A frame on the wire: arrival time, sequence number, receiver's bridge and port, index in `frames`.
type Flight = (u64, u64, usize, PortId, usize);

pub struct Sim {
    pub now: u64,
    pub nodes: Vec<Node>,
    pub segments: Vec<Segment>,
    at: HashMap<(usize, PortId), usize>,
    deaf: Vec<(usize, PortId)>,
    unplugged: Vec<(usize, PortId)>,
    wire: BinaryHeap<Reverse<Flight>>,
    frames: Vec<Option<Vec<u8>>>,
    sequence: u64,
    rng: Rng,
    pub vlans: Vec<VlanId>,
    mode: Mode,
    region: MstRegion,
    pub loops_allowed: bool,
    pub events: Vec<(u64, usize, Event)>,
    pub flushes: Vec<(u64, usize, lanyard_types::InstanceId, lanyard_types::PortSet)>,
    pub err_disabled: Vec<(usize, PortId)>,
    pub last_change: u64,
    pub frames_sent: u64,
    trace: bool,
}

#[allow(unused_imports)] // every test file has its own copy of this module
pub use language::check;

pub fn vlan(id: u16) -> VlanId {
    VlanId::new(id).unwrap()
}

pub fn port(id: u16) -> PortId {
    PortId::new(id).unwrap()
}

impl Sim {
    pub fn new(seed: u64) -> Self {
        Self {
            now: 1000,
            nodes: Vec::new(),
            segments: Vec::new(),
            at: HashMap::new(),
            deaf: Vec::new(),
            unplugged: Vec::new(),
            wire: BinaryHeap::new(),
            frames: Vec::new(),
            sequence: 0,
            rng: Rng::new(seed),
            vlans: vec![vlan(1)],
            mode: Mode::Rstp,
            region: MstRegion::default(),
            loops_allowed: false,
            events: Vec::new(),
            flushes: Vec::new(),
            err_disabled: Vec::new(),
            last_change: 0,
            frames_sent: 0,
            trace: std::env::var_os("STP_TRACE").is_some(),
        }
    }

    pub fn add_bridge(&mut self, name: &str, mac: u64, prio: u16, ports: Vec<String>, trunk: bool) -> usize {
        let mut config = Config::new(self.mode, MacAddr::from_u64(0x0200_0000_0000 + mac));
        config.path_cost_method = PathCostMethod::Long;
        config.mst = self.region.clone();
        config.vlans = self.vlans.iter().copied().collect();
        let keys = config.mst.instances.keys().copied().chain(self.vlans.iter().map(|v| v.get())).chain([0]);
        for key in keys {
            config.trees.insert(key, TreeConfig { priority: prio, ..TreeConfig::default() });
        }
        for n in 1..=ports.len() {
            let mut settings = PortConfig::default();
            if trunk {
                settings.vlans = PortVlans::Trunk { native: vlan(1), allowed: VlanSet::all() };
            }
            config.ports.insert(port(n as u16), settings);
        }
        let bridge = Bridge::new(self.now, config).unwrap();
        self.nodes.push(Node { name: name.into(), bridge, ports, due: None });
        let n = self.nodes.len() - 1;
        self.drain(n);
        n
    }

    pub fn set_mode(&mut self, mode: Mode, region: MstRegion) {
        (self.mode, self.region) = (mode, region);
    }

    pub fn connect(&mut self, ends: Vec<(usize, PortId)>) -> usize {
        let n = self.segments.len();
        for end in &ends {
            assert!(self.at.insert(*end, n).is_none(), "port used twice");
        }
        let segment =
            Segment { ends, up: false, delay_ms: 1, loss_percent: 0, speed: 1000, duplex: Duplex::Full };
        self.segments.push(segment);
        n
    }

    pub fn set_link(&mut self, s: usize, up: bool) {
        self.segments[s].up = up;
        let segment = self.segments[s].clone();
        if self.trace {
            let ends: Vec<_> =
                segment.ends.iter().map(|(n, port)| format!("{}.{port}", self.nodes[*n].name)).collect();
            println!("{:>8} link {ends:?} {} Mbit/s, {} ms: {up}", self.now, segment.speed, segment.delay_ms);
        }
        for (node, port) in segment.ends {
            let bridge = &mut self.nodes[node].bridge;
            bridge.handle_link(self.now, port, up, Some(segment.speed), segment.duplex);
            self.drain(node);
        }
    }

    pub fn configure(&mut self, node: usize, edit: impl FnOnce(&mut Config)) {
        let mut config = self.nodes[node].bridge.config().clone();
        edit(&mut config);
        self.nodes[node].bridge.handle_config(self.now, config).unwrap();
        self.drain(node);
    }

    pub fn restart(&mut self, node: usize, away_ms: u64) {
        // The daemon ends: frames that arrive meanwhile are lost, and ports keep their states.
        let snapshot = serde_json::to_string(&self.nodes[node].bridge.snapshot()).unwrap();
        let config = self.nodes[node].bridge.config().clone();
        let frozen: Vec<_> = self.nodes[node].bridge.states().collect();
        let ends: Vec<_> = self.at.keys().filter(|(n, _)| *n == node).copied().collect();
        self.deaf.extend(&ends);
        self.nodes[node].due = None;
        self.run_without(self.now + away_ms, Some(node));
        self.deaf.retain(|end| !ends.contains(end));
        let snapshot: Snapshot = serde_json::from_str(&snapshot).unwrap();
        self.nodes[node].bridge = Bridge::restore(self.now, config, snapshot).unwrap();
        assert_eq!(frozen, self.nodes[node].bridge.states().collect::<Vec<_>>(), "a restart moved a port");
        self.drain(node);
    }

    /// Reports to the bridge that it was silent for too long.
    pub fn silence(&mut self, node: usize) {
        self.nodes[node].bridge.handle_silence(self.now);
        self.drain(node);
    }

    /// Carries out the actions of a bridge, and checks for loops.
    pub fn drain(&mut self, node: usize) {
        let mut forwarding = false;
        while let Some(action) = self.nodes[node].bridge.poll_action() {
            match action {
                Action::Transmit { port, frame, .. } => self.send(node, port, frame),
                Action::SetState { instance, port, state } => {
                    self.log(node, || format!("port {port} instance {instance} {state:?}"));
                    forwarding |= state == StpState::Forwarding;
                    self.last_change = self.now;
                }
                Action::Flush { instance, ports } => self.flushes.push((self.now, node, instance, *ports)),
                Action::ErrDisable { port, .. } => self.err_disabled.push((node, port)),
                Action::ErrRecover { port, .. } => self.err_disabled.retain(|at| *at != (node, port)),
                Action::Event(event) => {
                    if let Event::Role { .. } | Event::RootChanged { .. } = event {
                        self.last_change = self.now;
                    }
                    self.log(node, || format!("{event:?}"));
                    assert!(!matches!(event, Event::NotSettled { .. }), "not settled");
                    self.events.push((self.now, node, event));
                }
            }
        }
        self.nodes[node].due = self.nodes[node].bridge.next_timeout();
        if forwarding && !self.loops_allowed {
            self.check_no_loop();
        }
    }

    fn log(&self, node: usize, text: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>8} {} {}", self.now, self.nodes[node].name, text());
        }
    }

    fn send(&mut self, node: usize, port: PortId, frame: Vec<u8>) {
        self.frames_sent += 1;
        self.log(node, || {
            let Ok(bpdu::BpduFrame { bpdu, .. }) = bpdu::decode(&frame) else { return "  > too old".into() };
            match &bpdu {
                bpdu::Bpdu::Mst(body, mst) => format!(
                    "  > {port} {:?} root {} ext {} rr {} int {} by {} hops {} age {} {:?}",
                    body.flags.role,
                    body.root,
                    body.root_path_cost,
                    body.bridge,
                    mst.internal_root_path_cost,
                    mst.bridge,
                    mst.remaining_hops,
                    body.message_age,
                    mst.mstis
                ),
                other => format!("  > {port} {other:?}"),
            }
        });
        let Some(segment) = self.at.get(&(node, port)).map(|s| self.segments[*s].clone()) else { return };
        if !segment.up {
            return;
        }
        for end in segment.ends.into_iter().filter(|end| *end != (node, port)) {
            if self.rng.below(100) < segment.loss_percent {
                continue;
            }
            self.frames.push(Some(frame.clone()));
            self.sequence += 1;
            let entry = (self.now + segment.delay_ms, self.sequence, end.0, end.1, self.frames.len() - 1);
            self.wire.push(Reverse(entry));
        }
    }

    pub fn inject(&mut self, node: usize, port: PortId, frame: &[u8]) -> Result<(), BpduError> {
        let result = self.nodes[node].bridge.handle_bpdu(self.now, port, frame);
        self.drain(node);
        result
    }

    pub fn run(&mut self, ms: u64) {
        self.run_without(self.now + ms, None);
    }

    fn run_without(&mut self, until: u64, stopped: Option<usize>) {
        loop {
            let wire = self.wire.peek().map(|Reverse(entry)| entry.0);
            let timer = (self.nodes.iter().enumerate())
                .filter(|(n, _)| Some(*n) != stopped)
                .filter_map(|(n, node)| node.due.map(|due| (due, n)))
                .min();
            let next = wire.into_iter().chain(timer.map(|(due, _)| due)).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            if let Some((due, n)) = timer
                && due <= self.now
                && wire.is_none_or(|wire| due <= wire)
            {
                self.nodes[n].bridge.handle_timer(self.now);
                self.drain(n);
                assert!(self.nodes[n].due.is_none_or(|due| due > self.now), "a timer that stays due");
                continue;
            }
            let Some(Reverse((_, _, n, port, frame))) = self.wire.pop() else { break };
            let frame = self.frames[frame].take().unwrap();
            let up = self.at.get(&(n, port)).is_some_and(|s| self.segments[*s].up);
            if up && !self.deaf.contains(&(n, port)) {
                self.log(n, || format!("  < {port}"));
                // Information that counts to infinity ages out on the way; no other BPDU may be refused.
                let result = self.nodes[n].bridge.handle_bpdu(self.now, port, &frame);
                assert!(matches!(result, Ok(()) | Err(BpduError::MessageAge)), "{result:?}");
                self.drain(n);
            }
            if self.wire.is_empty() {
                self.frames.clear();
            }
        }
        self.now = until;
    }

    /// Runs until nothing has changed for 22 s (max age and a hello time: no timer is longer), at most
    /// `limit_ms`; returns the time of the last change.
    pub fn settle(&mut self, limit_ms: u64) -> u64 {
        let start = self.now;
        self.last_change = start;
        while self.now < self.last_change + 22_000 {
            assert!(self.now < start + limit_ms, "did not converge in {limit_ms} ms");
            self.run(500);
        }
        self.last_change - start
    }
}

/// The names of `n` ports, for programs that build networks.
pub fn port_names(n: usize) -> Vec<String> {
    (1..=n).map(|n| n.to_string()).collect()
}
