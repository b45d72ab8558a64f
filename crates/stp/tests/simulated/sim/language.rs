//! The language of scenarios: one command or expectation a line, `#` begins a comment.
//!
//! ```text
//! mode rstp                          # for the bridges that follow: stp rstp mst pvst rapid-pvst
//! vlans 1,10                         # VLANs checked for loops (and, per VLAN, given trees)
//! region east 1: 1=10 2=20           # MST region and mapping of the bridges that follow
//! bridge A prio 4096 mac 1: a b c    # ports a, b, c; `trunk` before the colon makes them trunks
//! link A.a B.a                       # full duplex, 1 Gbit/s, 1 ms; `speed 100`, `delay 5`, `loss 20`, `half`
//! hub A.b B.b C.b                    # one shared LAN
//! host A.c                           # a link without another bridge
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
//!
//! Invariant: an unknown word causes a panic; no line is ignored.

use super::{Sim, port, vlan};
use lanyard_stp::*;
use lanyard_types::{PortId, VlanId, VlanSet};

impl Sim {
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
            ["silence", name] => self.silence(self.node(name)),
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
                "pvst-inconsistent" => held.pvst,
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
    /// Runs lines. If one panics, it is printed before the panic continues.
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
