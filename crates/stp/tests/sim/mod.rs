//! A network of bridges in simulated time, and the language its scenarios are written in.
//!
//! Invariant: after every single event, the forwarding graph of every VLAN under test is checked for cycles. A
//! scenario that loops for one millisecond fails, unless it says `loops allowed` and why.
//!
//! ```text
//! mode rstp                          # for the bridges that follow: stp rstp mst pvst rapid-pvst
//! vlans 1,10                         # VLANs checked for loops (and, per VLAN, given trees)
//! region east 1: 1=10 2=20           # MST region and mapping of the bridges that follow
//! bridge A prio 4096 mac 1: a b c    # ports a, b, c; `trunk` before the colon makes them trunks
//! link A.a B.a                       # full duplex, 1 Gbit/s, 1 ms; `speed 100`, `delay 5`, `loss 20`, `half`
//! hub A.b B.b C.b                    # one shared LAN
//! host A.c                           # a link with nobody who speaks spanning tree
//! set A prio 0 | set A hello 1 | set A.a cost 10 | prio 16 | portfast | guard root | guard loop | bpduguard | ...
//! cut A.a / restore A.a              # both ends lose or get link
//! unplug Y.d                         # one end of a hub loses its link
//! deaf A.a / hears A.a               # A.a no longer receives, its transmit side works
//! snip A.a B.a                       # frames are lost both ways, links stay up
//! run 3s / run 250ms
//! expect A.a root forwarding         # role and state; `vlan 10` first for another tree
//! expect A is root / expect A cost 200 / expect A port b
//! expect tree                        # spans everything that is connected, without a cycle
//! ```

use lanyard_stp::*;
use lanyard_types::{MacAddr, PortId, StpState, VlanId, VlanSet};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// xorshift64*: seeded, and the same everywhere.
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

    pub fn set_trace(&mut self, trace: bool) {
        self.trace = trace;
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
        // The daemon dies: frames that come in meanwhile are lost, ports keep their states.
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

    /// Takes the actions of a bridge, and checks.
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
                // Information that counts to infinity ages out on the way; nothing else may be refused.
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
    /// `limit_ms`; the time of the last change.
    pub fn settle(&mut self, limit_ms: u64) -> u64 {
        let start = self.now;
        self.last_change = start;
        while self.now < self.last_change + 22_000 {
            assert!(self.now < start + limit_ms, "did not converge in {limit_ms} ms");
            self.run(500);
        }
        self.last_change - start
    }

    /// Edges of a VLAN's forwarding graph: bridge to segment.
    fn edges(&self, vlan: VlanId, forwarding_only: bool) -> Vec<(usize, usize)> {
        let mut edges = Vec::new();
        let states: Vec<HashMap<PortId, StpState>> = self
            .nodes
            .iter()
            .map(|node| {
                let instance = node.bridge.instance_of(vlan);
                let states = node.bridge.states().filter(|(at, _, _)| *at == instance);
                states.map(|(_, port, state)| (port, state)).collect()
            })
            .collect();
        let live = |(_, segment): &(usize, &Segment)| segment.up && segment.loss_percent < 100;
        for (s, segment) in self.segments.iter().enumerate().filter(live) {
            for (n, port) in segment.ends.iter().filter(|end| !self.unplugged.contains(end)) {
                let config = &self.nodes[*n].bridge.config().ports[port];
                let mode = self.nodes[*n].bridge.config().mode;
                let carries = !mode.per_vlan() || config.vlans.carries(vlan);
                let state = states[*n].get(port).copied().unwrap_or_default();
                let err = self.err_disabled.contains(&(*n, *port));
                if carries && !err && (!forwarding_only || state == StpState::Forwarding) {
                    edges.push((*n, self.nodes.len() + s));
                }
            }
        }
        edges
    }

    /// True when all bridges can reach each other without this segment.
    pub fn connected_without(&self, without: usize) -> bool {
        let skipped = self.nodes.len() + without;
        let edges: Vec<_> =
            self.edges(self.vlans[0], false).into_iter().filter(|(_, segment)| *segment != skipped).collect();
        let live =
            self.segments.iter().enumerate().filter(|(s, segment)| segment.up && *s != without).count();
        self.join(&edges).0 + 1 == self.nodes.len() + live
    }

    /// Joins the edges; the number of joins that changed something, and whether one closed a cycle.
    fn join(&self, edges: &[(usize, usize)]) -> (usize, bool) {
        let mut parent: Vec<usize> = (0..self.nodes.len() + self.segments.len()).collect();
        fn find(parent: &mut [usize], mut at: usize) -> usize {
            while parent[at] != at {
                parent[at] = parent[parent[at]];
                at = parent[at];
            }
            at
        }
        let (mut joins, mut cycle) = (0, false);
        for (a, b) in edges {
            let (a, b) = (find(&mut parent, *a), find(&mut parent, *b));
            if a == b {
                cycle = true;
            } else {
                parent[a] = b;
                joins += 1;
            }
        }
        (joins, cycle)
    }

    pub fn check_no_loop(&self) {
        for vlan in &self.vlans {
            let edges = self.edges(*vlan, true);
            assert!(!self.join(&edges).1, "a loop in VLAN {vlan} at {} ms", self.now);
        }
    }

    /// Exactly one spanning tree for each VLAN: no cycle, and nothing that is connected is left out.
    pub fn check_tree(&self) {
        for vlan in &self.vlans {
            let (joined, cycle) = self.join(&self.edges(*vlan, true));
            let (possible, _) = self.join(&self.edges(*vlan, false));
            assert!(!cycle, "a loop in VLAN {vlan}");
            // A segment reached by any forwarding port is served; ports that block reach it through that one.
            assert_eq!(joined, possible, "VLAN {vlan} is not spanned\n{}", self.dump());
        }
        for node in &self.nodes {
            assert_eq!(node.bridge.unsettled_runs(), 0);
        }
    }

    pub fn dump(&self) -> String {
        let mut out = String::new();
        for node in &self.nodes {
            for tree in node.bridge.view(self.now) {
                out += &format!(
                    "{} tree {} root {} cost {} port {:?}\n",
                    node.name, tree.instance, tree.root_id, tree.root_cost, tree.root_port
                );
                for port in tree.ports {
                    let name = &node.ports[port.port.index() - 1];
                    out += &format!(
                        "   {name} {} {:?} cost {} edge {} stp {} {:?}\n",
                        port.role.name(),
                        port.state,
                        port.cost,
                        port.edge,
                        port.stp_neighbour,
                        port.inconsistent
                    );
                }
            }
        }
        out
    }

    // ---------------------------------------------------------------------------------- the language

    pub fn node(&self, name: &str) -> usize {
        self.nodes.iter().position(|node| node.name == name).unwrap_or_else(|| panic!("no bridge {name}"))
    }

    pub fn end(&self, text: &str) -> (usize, PortId) {
        let (node, name) = text.split_once('.').unwrap_or_else(|| panic!("{text} is not BRIDGE.PORT"));
        let node = self.node(node);
        let at = self.nodes[node].ports.iter().position(|port| port == name);
        (node, port(at.unwrap_or_else(|| panic!("no port {text}")) as u16 + 1))
    }

    fn segment_of(&self, text: &str) -> usize {
        self.at[&self.end(text)]
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["mode", mode] => {
                let modes = [Mode::Stp, Mode::Rstp, Mode::Mst, Mode::Pvst, Mode::RapidPvst];
                self.mode = modes.into_iter().find(|m| m.name() == mode).unwrap();
            }
            ["vlans", list] => self.vlans = list.parse::<VlanSet>().unwrap().iter().collect(),
            ["region", ref rest @ ..] => self.region_line(rest),
            ["bridge", name, ref rest @ ..] => self.bridge_line(name, rest),
            ["link", a, b, ref options @ ..] => {
                let ends = vec![self.end(a), self.end(b)];
                self.link_line(ends, options);
            }
            ["hub", ref ends @ ..] => {
                let ends = ends.iter().map(|end| self.end(end)).collect();
                self.link_line(ends, &["half"]);
            }
            ["host", end] => {
                let ends = vec![self.end(end)];
                self.link_line(ends, &[]);
            }
            ["cut", end] => self.set_link(self.segment_of(end), false),
            ["unplug", end] => {
                let end = self.end(end);
                self.deaf.push(end);
                self.unplugged.push(end);
                self.nodes[end.0].bridge.handle_link(self.now, end.1, false, None, Duplex::Full);
                self.drain(end.0);
            }
            ["restore", end] => self.set_link(self.segment_of(end), true),
            ["snip", end] => {
                let s = self.segment_of(end);
                self.segments[s].loss_percent = 100;
            }
            ["mend", end] => {
                let s = self.segment_of(end);
                self.segments[s].loss_percent = 0;
            }
            ["deaf", end] => {
                let end = self.end(end);
                self.deaf.push(end);
            }
            ["hears", end] => {
                let end = self.end(end);
                self.deaf.retain(|at| *at != end);
            }
            ["loops", "allowed"] => self.loops_allowed = true,
            ["run", time] => self.run(millis(time)),
            ["settle", "within", time] => {
                self.settle(millis(time) + 22_500);
            }
            ["restart", name, "away", time] => self.restart(self.node(name), millis(time)),
            ["mcheck", name] => {
                let node = self.node(name);
                self.nodes[node].bridge.handle_mcheck(self.now, None);
                self.drain(node);
            }
            ["recover", end] => {
                let (node, port) = self.end(end);
                self.err_disabled.retain(|at| *at != (node, port));
                assert!(self.nodes[node].bridge.clear_err_disable(self.now, port));
                self.drain(node);
            }
            ["set", what, ref rest @ ..] => self.set_line(what, rest),
            ["forget", "events"] => {
                self.events.clear();
                self.flushes.clear();
            }
            ["expect", ref rest @ ..] => self.expect_line(rest),
            _ => panic!("what is {line:?}?"),
        }
    }

    fn region_line(&mut self, words: &[&str]) {
        let instances = words[2..].iter().map(|word| {
            let (mstid, vlans) = word.split_once('=').unwrap();
            (mstid.parse().unwrap(), vlans.parse().unwrap())
        });
        let revision = words[1].trim_end_matches(':').parse().unwrap();
        self.region = MstRegion { name: words[0].into(), revision, instances: instances.collect() };
    }

    fn bridge_line(&mut self, name: &str, words: &[&str]) {
        let (mut prio, mut mac, mut trunk) = (32768, self.nodes.len() as u64 + 1, false);
        let text = words.join(" ");
        let (options, ports) = text.split_once(':').unwrap_or(("", &text));
        let mut options = options.split_whitespace();
        while let Some(word) = options.next() {
            match word {
                "prio" => prio = options.next().unwrap().parse().unwrap(),
                "mac" => mac = options.next().unwrap().parse().unwrap(),
                "trunk" => trunk = true,
                _ => panic!("bridge option {word}"),
            }
        }
        let ports = ports.split_whitespace().map(str::to_owned).collect();
        self.add_bridge(name.trim_end_matches(':'), mac, prio, ports, trunk);
    }

    fn link_line(&mut self, ends: Vec<(usize, PortId)>, options: &[&str]) {
        let s = self.connect(ends);
        let mut options = options.iter();
        let mut up = true;
        while let Some(word) = options.next() {
            let mut number = || options.next().unwrap().parse().unwrap();
            match *word {
                "speed" => self.segments[s].speed = number() as u32,
                "delay" => self.segments[s].delay_ms = number(),
                "loss" => self.segments[s].loss_percent = number(),
                "half" => self.segments[s].duplex = Duplex::Half,
                "down" => up = false,
                _ => panic!("link option {word}"),
            }
        }
        self.set_link(s, up);
    }

    fn set_line(&mut self, what: &str, words: &[&str]) {
        if let Some((name, _)) = what.split_once('.') {
            let node = self.node(name);
            let (_, port) = self.end(what);
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            self.configure(node, |config| set_port(config.ports.get_mut(&port).unwrap(), &words));
            return;
        }
        let node = self.node(what);
        let number = words.last().and_then(|word| word.parse::<u32>().ok()).unwrap_or(0);
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        self.configure(node, |config| match words[0].as_str() {
            "prio" => config.trees.values_mut().for_each(|tree| tree.priority = number as u16),
            "tree" => {
                let key = words[1].parse().unwrap();
                config.trees.entry(key).or_default().priority = number as u16;
            }
            "hello" => config.hello_time_s = number as u8,
            "forward" => config.forward_time_s = number as u8,
            "maxage" => config.max_age_s = number as u8,
            "hops" => config.max_hops = number as u8,
            "hold-count" => config.transmit_hold_count = number as u8,
            "recovery" => config.bpduguard_recovery_s = Some(number),
            "portfast-default" => config.portfast_default = true,
            "bpduguard-default" => config.bpduguard_default = true,
            "bpdufilter-default" => config.bpdufilter_default = true,
            "loopguard-default" => config.loopguard_default = true,
            "mode" => {
                let modes = [Mode::Stp, Mode::Rstp, Mode::Mst, Mode::Pvst, Mode::RapidPvst];
                config.mode = modes.into_iter().find(|m| m.name() == words[1]).unwrap();
            }
            other => panic!("set {other}"),
        });
    }

    fn tree(&self, node: usize, vlan: VlanId) -> view::InstanceView {
        let instance = self.nodes[node].bridge.instance_of(vlan);
        self.nodes[node].bridge.view(self.now).into_iter().find(|tree| tree.instance == instance).unwrap()
    }

    pub fn port_view(&self, end: &str, vlan: VlanId) -> view::PortView {
        let (node, port) = self.end(end);
        let ports = self.tree(node, vlan).ports;
        ports.into_iter().find(|view| view.port == port).unwrap_or_else(|| panic!("{end} has no tree"))
    }

    fn expect_line(&mut self, words: &[&str]) {
        let (vlan, words) = match words {
            ["vlan", id, rest @ ..] => (vlan(id.parse().unwrap()), rest),
            _ => (vlan(1), words),
        };
        let fail = |got: String| panic!("expected {words:?}, got {got} at {} ms\n{}", self.now, self.dump());
        match words {
            ["tree"] => self.check_tree(),
            ["event", name @ ..] => {
                let name = &name.join(" ");
                let found = self.events.iter().any(|(_, _, event)| format!("{event:?}").contains(name));
                if !found {
                    fail("no such event".into());
                }
            }
            ["no", "event", name] => {
                let found = self.events.iter().find(|(_, _, event)| format!("{event:?}").contains(name));
                if let Some((at, node, event)) = found {
                    fail(format!("{at} {} {event:?}", self.nodes[*node].name));
                }
            }
            ["flush", end] | ["no", "flush", end] => {
                let (node, port) = self.end(end);
                let found = self.flushes.iter().any(|(_, n, _, ports)| *n == node && ports.contains(port));
                if found == (words[0] == "no") {
                    fail(format!("flushed: {found}"));
                }
            }
            [end, "errdisabled"] => assert!(self.err_disabled.contains(&self.end(end)), "{end}"),
            [name, "is", "root"] => {
                let tree = self.tree(self.node(name), vlan);
                if tree.root_port.is_some() || tree.root_id.address() != tree.bridge_id.address() {
                    fail(format!("{}", tree.root_id));
                }
            }
            [name, "cost", cost] => {
                let got = self.tree(self.node(name), vlan).root_cost.to_string();
                if got != *cost {
                    fail(got);
                }
            }
            [name, "port", port] => {
                let node = self.node(name);
                let got =
                    self.tree(node, vlan).root_port.map(|p| self.nodes[node].ports[p.index() - 1].clone());
                if got.as_deref() != Some(port) {
                    fail(format!("{got:?}"));
                }
            }
            [end, rest @ ..] => self.expect_port(end, vlan, rest, &fail),
            [] => panic!("expect what?"),
        }
    }

    fn expect_port(&self, end: &str, vlan: VlanId, words: &[&str], fail: &dyn Fn(String)) {
        let view = self.port_view(end, vlan);
        for word in words {
            let state = view::stp_state_name(view.state);
            let held = view.inconsistent;
            let good = match *word {
                "edge" => view.edge,
                "non-edge" => !view.edge,
                "stp" => view.stp_neighbour,
                "rapid" => !view.stp_neighbour,
                "boundary" => view.boundary,
                "disputed" => view.disputed,
                "loop-inconsistent" => held.loop_guard,
                "root-inconsistent" => held.root,
                "pvid-inconsistent" => held.pvid,
                "type-inconsistent" => held.port_type,
                "self-loop" => held.self_loop,
                "consistent" => !held.any(),
                word => word == state || word == view.role.name(),
            };
            if !good {
                fail(format!("{} {state}, wanted {word}", view.role.name()));
            }
        }
    }
}

fn set_port(port: &mut PortConfig, words: &[String]) {
    let number = words.last().and_then(|word| word.parse::<u32>().ok());
    match words[0].as_str() {
        "cost" => port.cost = number,
        "tree" => {
            let entry = port.trees.entry(words[1].parse().unwrap()).or_default();
            if words[2] == "cost" { entry.0 = number } else { entry.1 = number.map(|n| n as u8) }
        }
        "prio" => port.priority = number.unwrap() as u8,
        "portfast" => port.portfast = PortFast::Edge,
        "auto-edge" => port.auto_edge = words[1] == "on",
        "bpduguard" => port.bpdu_guard = Some(true),
        "bpdufilter" => port.bpdu_filter = Some(true),
        "tcn-guard" => port.restricted_tcn = true,
        "guard" => {
            port.guard = match words[1].as_str() {
                "root" => Guard::Root,
                "loop" => Guard::Loop,
                _ => Guard::None,
            }
        }
        "link-type" => {
            port.link_type = match words[1].as_str() {
                "shared" => LinkType::Shared,
                "p2p" => LinkType::PointToPoint,
                _ => LinkType::Auto,
            }
        }
        "access" => port.vlans = PortVlans::Access(vlan(number.unwrap() as u16)),
        "native" => {
            port.vlans = PortVlans::Trunk { native: vlan(number.unwrap() as u16), allowed: VlanSet::all() }
        }
        other => panic!("set port {other}"),
    }
}

fn millis(text: &str) -> u64 {
    if let Some(number) = text.strip_suffix("ms") {
        return number.parse().unwrap();
    }
    (text.strip_suffix('s').unwrap().parse::<f64>().unwrap() * 1000.0) as u64
}

impl Sim {
    /// Runs lines; one that fails is named.
    pub fn lines(&mut self, text: &str) {
        for line in text.lines() {
            let line = line.split('#').next().unwrap().trim();
            if !line.is_empty() {
                let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.line(line)));
                if let Err(panic) = run {
                    println!("in the line: {line}");
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
}

/// Runs a scenario.
pub fn check(text: &str) -> Sim {
    let mut sim = Sim::new(1);
    sim.lines(text);
    sim
}

/// The names of `n` ports, for programs that build networks.
pub fn port_names(n: usize) -> Vec<String> {
    (1..=n).map(|n| n.to_string()).collect()
}
