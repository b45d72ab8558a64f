//! The events of the storm, and the checks after each. `model.rs` defines what the switch may do meanwhile.

use crate::harness::{BROADCAST, Bed, DEADLINE, Frame, Plane, frame, mac, wait_for, wait_until};
use crate::model::{HOSTS, Member, State, VLANS, index_of};
use crate::others::{Program, give_address};
use crate::traffic::{Traffic, packet};
use nix::sys::signal::Signal;
use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

/// The choices of hook and delivery at a port of the eBPF plane.
const HOOKS_AND_DELIVERIES: [&str; 5] =
    ["hook auto", "hook tc", "hook xdp", "delivery auto", "delivery device"];

/// xorshift64: the same sequence for the same seed on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % limit
    }
    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
    /// The number of a host, from 1.
    pub fn host(&mut self) -> usize {
        self.below(HOSTS) + 1
    }
}

/// The ports at the two ends of a cable: the switch has a loop, which spanning tree has to break.
const LOOP: [&str; 2] = ["p6", "p7"];

/// A port as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    access: u16,
    native: u16,
    trunk: bool,
    shutdown: bool,
}

impl Port {
    const NEW: Self = Self { access: VLANS[0], native: VLANS[0], trunk: false, shutdown: false };
}

type Ports = [Port; HOSTS];

pub struct Storm {
    /// Another tool's program at a port or at a host. Its process ends before the namespaces do.
    pub program: Option<Program>,
    pub bed: Bed,
    pub random: Random,
    pub traffic: Traffic,
    running: Ports,
    saved: Ports,
    /// True for the ports, and for the hosts, whose netdev `ip link set down` has taken down.
    pub port_down: [bool; HOSTS],
    pub host_down: [bool; HOSTS],
    /// True while the packet filter has a table, and while it has a chain that drops.
    table: bool,
    chain: bool,
    blackholes: [[bool; HOSTS]; VLANS.len()],
    /// The state that the daemon has followed: packet filter and routes. Without a daemon it does not change.
    followed: State,
    routers: [[u8; 6]; VLANS.len()],
    events: u32,
}

/// All hosts are in VLAN 10. Static ARP entries make them known to the router in both VLANs, because hosts
/// have no addresses there and do not answer ARP.
fn start_configuration(mode: &str) -> String {
    let trunk = "switchport trunk allowed vlan 10,20\n switchport trunk native vlan 10";
    let mut text = format!(
        "vlan 10,20\nip routing\nspanning-tree mode {mode}\n\
         interface range p1 - {HOSTS}\n switchport mode access\n switchport access vlan 10\n {trunk}\n spanning-tree portfast trunk\n"
    );
    for name in LOOP {
        let _ = writeln!(text, "interface {name}\n switchport mode trunk\n {trunk}");
    }
    for vlan in VLANS {
        let _ = writeln!(text, "interface vlan {vlan}\n ip address 10.0.{vlan}.254/24");
    }
    for (vlan, host) in VLANS.iter().flat_map(|vlan| (1..=HOSTS).map(move |host| (vlan, host))) {
        let _ =
            writeln!(text, "arp 10.0.{vlan}.{host} {} arpa", crate::harness::frame::text(mac(host as u16)));
    }
    text
}

impl Storm {
    pub fn new(plane: Plane, seed: u64) -> Self {
        let bed = Bed::without_switch(plane, HOSTS, 1500);
        bed.net.ip(&format!("link add {} type veth peer name {}", LOOP[0], LOOP[1]));
        let mode = ["rstp", "rapid-pvst"][seed as usize % 2];
        println!("spanning tree: {mode}");
        std::fs::write(bed.config_file(), start_configuration(mode)).unwrap();
        bed.start();
        bed.hosts.iter().zip(1..).for_each(|(host, at)| give_address(host, at));
        bed.chatter.set(true);
        bed.exact.set(false);
        let running = [Port::NEW; HOSTS];
        let routers = VLANS.map(|vlan| bed.netdev.link(&format!("vlan{vlan}")).unwrap().mac.0);
        let state = State { ports: running.map(forwarding), ..State::default() };
        let traffic = Traffic::start(&bed.hosts, seed, &state, routers);
        Self {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            traffic,
            program: None,
            saved: running,
            running,
            port_down: [false; HOSTS],
            host_down: [false; HOSTS],
            table: false,
            chain: false,
            blackholes: Default::default(),
            followed: state,
            routers,
            events: 0,
            bed,
        }
    }

    /// Causes one event, and checks its effects.
    pub fn event(&mut self) {
        self.events += 1;
        match self.random.below(26) {
            0..4 => self.vlan(),
            4 | 5 => self.shutdown(),
            6 => self.port_link(),
            7 => self.host_link(),
            8 => self.queue(),
            9 | 10 => self.offload(),
            11 => self.rule(),
            12 => self.route(),
            13 => self.save(),
            14 => self.hangup(),
            15 => self.vanish(),
            16 | 17 => self.hook_or_delivery(),
            18 | 19 => self.restart(),
            20 | 21 => self.trunk(),
            22 => self.loop_link(),
            23 => self.move_away(),
            24 => self.another_program(),
            _ => self.tcp(),
        }
        self.follow();
        self.traffic.check(&self.bed.hosts);
        self.flows();
    }

    pub fn log(&self, what: &str) {
        println!("event {}: {what}", self.events);
    }

    fn state(&self) -> State {
        State {
            ports: self.running.map(forwarding),
            filtered: self.table && self.chain,
            blackholes: self.blackholes,
        }
    }

    /// Performs `act`, which takes the switch from its present state to the state that the model has after `change`;
    /// from now on both states are allowed.
    fn changing(&mut self, change: impl FnOnce(&mut Self), act: impl FnOnce(&mut Self)) {
        let old = self.state();
        change(self);
        let new = self.state();
        let followed = [old.routing_as(&self.followed), new.routing_as(&self.followed)];
        self.traffic.any_of([old, new].into_iter().chain(followed).collect());
        act(self);
    }

    /// Waits until the daemon has followed the packet filter and the routes; from then on the model requires
    /// them.
    fn follow(&mut self) {
        let state = self.state();
        let by = if state.filtered { "kernel" } else { "plane" };
        let wanted: Vec<String> = VLANS
            .iter()
            .zip(state.blackholes)
            .flat_map(|(vlan, hosts)| {
                (1..=HOSTS).filter(move |host| hosts[host - 1]).map(move |host| (vlan, host))
            })
            .map(|(vlan, host)| format!("10.0.{vlan}.{host}/32"))
            .collect();
        wait_for(&format!("IPv4 to be routed by the {by}, blackholes {wanted:?}"), || {
            let routed_by = self.bed.ask("show ip cef summary")["ipv4"]["routed_by"] == by;
            (routed_by && self.blackholes_followed() == wanted).then_some(())
        });
        self.traffic.any_of(vec![state.clone()]);
        self.followed = state;
    }

    /// The host routes that the switch has followed, sorted by address; the plane has them, unless the kernel routes.
    fn blackholes_followed(&self) -> Vec<String> {
        let view = self.bed.ask("show ip route");
        let rows = view["routes"].as_array().unwrap().iter();
        let ours = rows.filter(|row| row["prefix"].as_str().is_some_and(|prefix| prefix.ends_with("/32")));
        let programmed = |row: &&serde_json::Value| row["protocol"] != "local" && row["offload"] != "none";
        let mut names: Vec<String> =
            ours.filter(programmed).filter_map(|row| row["prefix"].as_str().map(str::to_owned)).collect();
        names.sort();
        names
    }

    fn configure(&mut self, at: usize, lines: &str, next: Port) {
        let lines = format!("interface p{at}\n{lines}");
        self.log(&lines.replace('\n', "; "));
        self.changing(|storm| storm.running[at - 1] = next, |storm| storm.bed.configure(&lines));
    }

    fn vlan(&mut self) {
        let (at, vlan) = (self.random.host(), VLANS[self.random.below(VLANS.len())]);
        let port = self.running[at - 1];
        if self.random.coin() {
            self.configure(at, &format!("switchport access vlan {vlan}"), Port { access: vlan, ..port });
        } else {
            self.configure(
                at,
                &format!("switchport trunk native vlan {vlan}"),
                Port { native: vlan, ..port },
            );
        }
    }

    fn trunk(&mut self) {
        let at = self.random.host();
        let next = Port { trunk: !self.running[at - 1].trunk, ..self.running[at - 1] };
        self.configure(at, if next.trunk { "switchport mode trunk" } else { "switchport mode access" }, next);
    }

    /// Changes one end of the cable that would be a loop without spanning tree.
    fn loop_link(&mut self) {
        let name = LOOP[self.random.below(LOOP.len())];
        match self.random.below(6) {
            0 | 1 => _ = self.run(None, &format!("ip link set {name} down")),
            2 | 3 => _ = self.run(None, &format!("ip link set {name} up")),
            change => {
                let lines = [
                    "shutdown\nno shutdown",
                    "switchport trunk allowed vlan 10\nswitchport trunk allowed vlan 10,20",
                ];
                let lines = format!("interface {name}\n{}", lines[change - 4]);
                self.log(&lines.replace('\n', "; "));
                self.bed.configure(&lines);
            }
        }
    }

    /// At most one port is shut down, so that enough traffic passes to find errors.
    fn shutdown(&mut self) {
        let shut = self.running.iter().position(|port| port.shutdown);
        let at = shut.map_or_else(|| self.random.host(), |index| index + 1);
        let port = self.running[at - 1];
        let next = Port { shutdown: !port.shutdown, ..port };
        if port.shutdown {
            self.port_down[at - 1] = false;
        }
        self.configure(at, if next.shutdown { "shutdown" } else { "no shutdown" }, next);
    }

    fn port_link(&mut self) {
        let down = self.port_down.iter().position(|down| *down);
        let at = down.map_or_else(|| self.random.host(), |index| index + 1);
        if self.running[at - 1].shutdown {
            return self.log("nothing: the port is shut down");
        }
        self.port_down[at - 1] ^= true;
        let to = if self.port_down[at - 1] { "down" } else { "up" };
        self.log(&format!("ip link set p{at} {to}"));
        self.bed.net.ip(&format!("link set p{at} {to}"));
    }

    fn host_link(&mut self) {
        let down = self.host_down.iter().position(|down| *down);
        let at = down.map_or_else(|| self.random.host(), |index| index + 1);
        self.host_down[at - 1] ^= true;
        let to = if self.host_down[at - 1] { "down" } else { "up" };
        self.log(&format!("host {at}: ip link set eth0 {to}"));
        self.bed.host(at).net.ip(&format!("link set eth0 {to}"));
    }

    /// Runs an administrator's program; returns whether it succeeded.
    pub fn run(&self, at: Option<usize>, line: &str) -> bool {
        let words: Vec<&str> = line.split_whitespace().collect();
        let net = at.map_or(&self.bed.net, |at| &self.bed.host(at).net);
        self.log(&at.map_or_else(|| line.to_owned(), |at| format!("host {at}: {line}")));
        net.output(Command::new(words[0]).args(&words[1..])).status.success()
    }

    fn queue(&mut self) {
        let (at, host, add) = (self.random.host(), self.random.coin(), self.random.coin());
        let netdev = if host { "eth0".to_owned() } else { format!("p{at}") };
        let what = if add {
            format!("replace dev {netdev} root pfifo limit 1000")
        } else {
            format!("del dev {netdev} root")
        };
        self.run(host.then_some(at), &format!("tc qdisc {what}"));
    }

    fn offload(&mut self) {
        let (at, host) = (self.random.host(), self.random.coin());
        let feature = ["gro", "gro", "gso", "tso", "tx", "rx", "rxvlan", "txvlan"][self.random.below(8)];
        let to = if self.random.coin() { "on" } else { "off" };
        let netdev = if host { "eth0".to_owned() } else { format!("p{at}") };
        self.run(host.then_some(at), &format!("ethtool -K {netdev} {feature} {to}"));
    }

    fn rule(&mut self) {
        let (line, table, chain) = match (self.table, self.chain) {
            (false, _) => ("nft add table ip storm", true, false),
            (true, false) => (
                "nft add chain ip storm forward { type filter hook forward priority 0 ; policy drop ; }",
                true,
                true,
            ),
            (true, true) => ("nft delete table ip storm", false, false),
        };
        let change = |storm: &mut Self| (storm.table, storm.chain) = (table, chain);
        self.changing(change, |storm| assert!(storm.run(None, line), "{line}"));
    }

    /// Adds or removes a blackhole route for one host's address.
    fn route(&mut self) {
        let (vlan, host) = (self.random.below(VLANS.len()), self.random.host());
        let there = self.blackholes[vlan][host - 1];
        let verb = if there { "del" } else { "add" };
        let line = format!("ip route {verb} blackhole 10.0.{}.{host}/32", VLANS[vlan]);
        let change = |storm: &mut Self| storm.blackholes[vlan][host - 1] ^= true;
        self.changing(change, |storm| assert!(storm.run(None, &line), "{line}"));
    }

    fn save(&mut self) {
        self.log("write memory");
        self.bed.exec(&["write memory"]);
        self.saved = self.running;
    }

    fn hangup(&mut self) {
        self.log("SIGHUP");
        self.bed.daemon.borrow().as_ref().unwrap().signal(Signal::SIGHUP);
    }

    /// Removes a netdev; another one with its name and another host behind it replaces it.
    fn vanish(&mut self) {
        let at = self.random.host();
        self.log(&format!("ip link delete p{at}, and a new one"));
        self.traffic.check(&self.bed.hosts);
        self.traffic.away(at);
        self.bed.net.ip(&format!("link delete p{at}"));
        self.bed.rewire(at);
        give_address(self.bed.host(at), at);
        self.traffic.back(at, self.bed.host(at));
        (self.port_down[at - 1], self.host_down[at - 1]) = (false, false);
    }

    /// Changes the hook or the delivery of a port; nothing else may change.
    fn hook_or_delivery(&mut self) {
        let (at, line) =
            (self.random.host(), HOOKS_AND_DELIVERIES[self.random.below(HOOKS_AND_DELIVERIES.len())]);
        if self.bed.plane == Plane::soft {
            return self.log("nothing: this plane has no hooks");
        }
        self.configure(at, line, self.running[at - 1]);
    }

    /// Ends the daemon and starts it again with the saved configuration, with another event in between. The eBPF plane
    /// forwards on.
    fn restart(&mut self) {
        let signal = [Signal::SIGKILL, Signal::SIGTERM][self.random.below(2)];
        self.log(&format!("{signal}"));
        self.bed.end_daemon(signal);
        match self.random.below(10) {
            0 => self.host_link(),
            1 => self.offload(),
            2 => self.queue(),
            3 => self.rule(),
            4 => self.route(),
            5 => self.vanish(),
            6 => self.move_away(),
            7 => self.another_program(),
            _ => {}
        }
        self.start();
    }

    fn start(&mut self) {
        self.changing(|storm| storm.running = storm.saved, |storm| storm.bed.start());
        // A daemon brings its ports up when it applies its first configuration.
        self.port_down = [false; HOSTS];
        self.follow();
    }

    pub fn up(&self, n: usize) -> bool {
        !self.port_down[n - 1] && !self.host_down[n - 1] && !self.running[n - 1].shutdown
    }

    /// A pair of hosts that are up and satisfy `fits`, if there is one.
    pub fn pair(&mut self, fits: impl Fn(&Self, usize, usize) -> bool) -> Option<(usize, usize)> {
        let all = (1..=HOSTS).flat_map(|a| (1..=HOSTS).map(move |b| (a, b)));
        let fit = |(a, b): &(usize, usize)| a != b && self.up(*a) && self.up(*b) && fits(self, *a, *b);
        let pairs: Vec<(usize, usize)> = all.filter(fit).collect();
        (!pairs.is_empty()).then(|| pairs[self.random.below(pairs.len())])
    }

    /// True when untagged frames of host `a` arrive untagged at host `b`, and those of `b` at `a`.
    pub fn same_vlan(&self, a: usize, b: usize) -> bool {
        let state = self.state();
        state.bridges((a, None), b) == Some(None) && state.bridges((b, None), a) == Some(None)
    }

    /// Checks that frames pass between two hosts that are connected, and packets between two that the router
    /// connects.
    fn flows(&mut self) {
        if let Some((a, b)) = self.pair(|storm, a, b| storm.state().bridges((a, None), b).is_some()) {
            let tag = self.state().bridges((a, None), b).flatten();
            for dst in [mac(b as u16), BROADCAST] {
                let probe = frame(dst, mac(a as u16));
                let wanted = tag.map_or_else(|| probe.clone(), |vlan| probe.vlan(vlan));
                self.passes(a, b, &probe, &|arrived| *arrived == wanted);
            }
        }
        let vlan = |storm: &Self, n: usize| forwarding(storm.running[n - 1]).map_or(0, |port| port.vlan);
        let routed = |storm: &Self, a: usize, b: usize| {
            storm.state().routes((a, None), b, vlan(storm, b), b).is_some()
        };
        if let Some((a, b)) = self.pair(routed) {
            let vlans = [a, b].map(|n| vlan(self, n));
            let routers = vlans.map(|vlan| self.routers[index_of(vlan).unwrap()]);
            // Take the number of a new frame, which no other frame has, so that the payload is unique.
            let unlike = frame(BROADCAST, BROADCAST).0[14..18].to_vec();
            let payload = [b"probe", &unlike[..], b"probe"].concat();
            let probe = Frame(packet(routers[0], a, b, vlans, &payload));
            self.passes(a, b, &probe, &|arrived| {
                arrived.0.get(6..12) == Some(&routers[1][..]) && arrived.0.get(42..56) == Some(&payload[..])
            });
        }
    }

    /// Sends from host `a` until the frame arrives at host `b`.
    fn passes(&mut self, a: usize, b: usize, probe: &Frame, is_it: &dyn Fn(&Frame) -> bool) {
        let mut tries = 0;
        let arrived = wait_until(DEADLINE, || {
            tries += 1;
            // The host's link may still be coming up.
            let _ = self.bed.host(a).try_send(probe);
            wait_until(Duration::from_millis(200), || self.arrives(b, is_it))
        });
        if arrived.is_none() {
            self.explain(a, b, probe);
            panic!("nothing from host {a} arrives at host {b} in {tries} tries of {probe:?}");
        }
    }

    /// Prints what the switch does with a frame of host `a` that does not arrive at host `b`.
    fn explain(&self, a: usize, b: usize, probe: &Frame) {
        let hex: String = probe.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let drops = "show interfaces counters drops";
        for command in [
            "show interfaces counters",
            drops,
            "show interfaces status",
            "show ip arp",
            "show mac address-table",
            "show ip cef",
            "show ip cef summary",
            "show logging",
            &format!("show interfaces p{a}"),
            &format!("show interfaces p{b}"),
            &format!("show platform packet-trace interface p{a} hex {hex}"),
        ] {
            println!("--- {command}\n{}", self.bed.exec(&[command]));
        }
        let run = |net: &crate::harness::Net, line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let output = net.output(Command::new(words[0]).args(&words[1..]));
            println!("--- {line}\n{}", String::from_utf8_lossy(&output.stdout));
        };
        let (from, to) = (self.bed.host(a), self.bed.host(b));
        run(&to.net, "ip -s link show eth0");
        let index = to.net.index("eth0");
        let wire = to.net.run(|| lanyard_netdev::PacketSocket::open(index)).unwrap();
        let arrived = to.arrived.get();
        let sent: Vec<String> = (0..20).map(|_| format!("{:?}", from.try_send(probe))).collect();
        let mut by_another_socket = 0;
        wait_until(Duration::from_millis(500), || {
            while let Ok(Some(packet)) = wire.receive() {
                by_another_socket += usize::from(packet.frame == probe.0);
            }
            None::<()>
        });
        to.drain();
        println!("--- 20 more, sent: {sent:?}; another socket receives {by_another_socket}");
        println!(
            "--- the host's socket receives {}, and has missed {}",
            to.arrived.get() - arrived,
            to.missed()
        );
        run(&to.net, "ip -s link show eth0");
        println!("{}", self.bed.exec(&["show interfaces counters", drops]));
        for line in ["ip -s link", "ip neigh", "ip route show table all", "nft list ruleset"] {
            run(&self.bed.net, line);
        }
        for at in [a, b] {
            run(&self.bed.net, &format!("ethtool -S p{at}"));
            run(&self.bed.host(at).net, "ethtool -k eth0");
        }
    }

    /// Looks for a probe, and checks all other frames that have arrived.
    fn arrives(&mut self, at: usize, is_it: &dyn Fn(&Frame) -> bool) -> Option<()> {
        let mut found = None;
        while let Some(frame) = self.bed.host(at).next() {
            if is_it(&frame) {
                found = Some(());
            } else {
                self.traffic.check_one(at, &frame.0);
            }
        }
        self.traffic.check(&self.bed.hosts);
        found
    }

    /// Ends the storm: everything is connected again, and the switch does what its configuration demands, also after a
    /// restart.
    pub fn end(mut self) {
        self.events += 1;
        for at in 1..=HOSTS {
            self.bed.host(at).net.ip("link set eth0 up");
            if !self.running[at - 1].shutdown {
                self.bed.net.ip(&format!("link set p{at} up"));
            }
        }
        (self.port_down, self.host_down) = ([false; HOSTS], [false; HOSTS]);
        LOOP.iter().for_each(|name| self.bed.net.ip(&format!("link set {name} up")));
        self.flows();
        let sent = self.traffic.stop();
        self.traffic.check(&self.bed.hosts);
        let (bridged, routed) = (self.traffic.bridged, self.traffic.routed);
        println!(
            "{} events; {sent} frames sent; arrivals checked: {bridged} bridged, {routed} routed",
            self.events
        );
        self.as_configured();
        self.loop_is_broken();
        let before = self.bed.exec(&["show running-config"]);
        self.save();
        self.bed.end_daemon(Signal::SIGKILL);
        self.start();
        self.as_configured();
        assert_eq!(self.bed.exec(&["show running-config"]), before, "the configuration after a restart");
        self.flows();
        self.traffic.check(&self.bed.hosts);
    }

    /// Waits until one end of the cable forwards in each tree, and the other one does not.
    fn loop_is_broken(&self) {
        wait_for("spanning tree to forward at one end of the loop", || {
            let view = self.bed.ask("show spanning-tree");
            let trees = view["instances"].as_array()?;
            let ends = |tree: &serde_json::Value| {
                let ports = tree["ports"].as_array().map_or(&[][..], Vec::as_slice).iter();
                let ends = ports.filter(|port| LOOP.iter().any(|name| port["interface"] == *name));
                let mut states: Vec<String> =
                    ends.filter_map(|port| port["state"].as_str().map(str::to_owned)).collect();
                states.sort();
                states
            };
            let broken = |tree: &serde_json::Value| ends(tree) == ["discarding", "forwarding"];
            let ours: Vec<&serde_json::Value> = trees.iter().filter(|tree| !ends(tree).is_empty()).collect();
            (!ours.is_empty() && ours.into_iter().all(broken)).then_some(())
        });
    }

    fn as_configured(&self) {
        for (port, at) in self.running.iter().zip(1..) {
            let name = format!("p{at}");
            wait_for(&format!("{name} as configured: {port:?}"), || {
                let link = self.bed.netdev.link(&name).ok()?;
                (link.promiscuous && link.admin_up != port.shutdown).then_some(())
            });
            if !port.shutdown {
                wait_for("the link", || self.bed.host(at).is_linked().then_some(()));
            }
        }
        let view = self.bed.show("show vlan");
        let members = |vlan: u16| {
            let row = view["vlans"].as_array().unwrap().iter().find(|row| row["vlan"] == vlan).unwrap();
            let ports = row["ports"].as_array().unwrap().iter();
            let names = ports.map(|port| port["interface"].as_str().unwrap().to_owned());
            let is_access = |name: &String| {
                self.running.iter().zip(1..).any(|(port, at)| !port.trunk && *name == format!("p{at}"))
            };
            names.filter(is_access).collect::<Vec<_>>()
        };
        for vlan in VLANS {
            let wanted = self.running.iter().zip(1..).filter(|(port, _)| !port.trunk && port.access == vlan);
            assert_eq!(
                members(vlan),
                wanted.map(|(_, at)| format!("p{at}")).collect::<Vec<_>>(),
                "VLAN {vlan}"
            );
        }
        for from in (1..=HOSTS).filter(|from| !self.running[from - 1].shutdown) {
            let sent = frame(BROADCAST, mac(from as u16));
            let arrives = |at: usize| {
                let tag = self.state().bridges((from, None), at).filter(|_| at != from && self.up(at))?;
                Some((at, tag.map_or_else(|| sent.clone(), |vlan| sent.vlan(vlan))))
            };
            let wanted: Vec<(usize, Frame)> = (1..=HOSTS).filter_map(arrives).collect();
            self.bed.expect(from, &sent, &wanted);
        }
    }
}

/// The VLANs that a port forwards in.
fn forwarding(port: Port) -> Option<Member> {
    let vlan = if port.trunk { port.native } else { port.access };
    (!port.shutdown).then_some(Member { vlan, trunk: port.trunk })
}
