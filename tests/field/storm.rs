//! The events of the storm, and the checks after each. `model.rs` defines what the switch may do meanwhile.

use crate::harness::{BROADCAST, Bed, DEADLINE, Frame, Plane, frame, mac, wait_for, wait_until};
use crate::model::{HOSTS, State, VLANS, index_of};
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
    fn host(&mut self) -> usize {
        self.below(HOSTS) + 1
    }
}

/// A port as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Port {
    vlan: u16,
    shutdown: bool,
}

type Ports = [Port; HOSTS];

pub struct Storm {
    bed: Bed,
    random: Random,
    traffic: Traffic,
    running: Ports,
    saved: Ports,
    /// Ports that `ip link set down` has taken down, and the same for hosts.
    port_down: [bool; HOSTS],
    host_down: [bool; HOSTS],
    /// True while the packet filter has a table, and while it has a chain that drops.
    table: bool,
    chain: bool,
    blackholes: [[bool; HOSTS]; VLANS.len()],
    /// The packet filter and the routes that the switch has followed; without a daemon it follows nothing.
    followed: State,
    routers: [[u8; 6]; VLANS.len()],
    events: u32,
}

/// All hosts are in VLAN 10. Static ARP entries make them known to the router in both VLANs, because hosts
/// have no addresses and do not answer ARP.
fn start_configuration() -> String {
    let mut text =
        format!("vlan 10,20\nip routing\ninterface range p1 - {HOSTS}\n switchport access vlan 10\n");
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
        let bed = Bed::new(plane, HOSTS, &start_configuration());
        bed.chatter.set(true);
        bed.exact.set(false);
        let running = [Port { vlan: VLANS[0], shutdown: false }; HOSTS];
        let routers = VLANS.map(|vlan| bed.netdev.link(&format!("vlan{vlan}")).unwrap().mac.0);
        let state = State { ports: running.map(forwarding), ..State::default() };
        let traffic = Traffic::start(&bed.hosts, seed, &state, routers);
        Self {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            traffic,
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
        match self.random.below(20) {
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
            _ => self.restart(),
        }
        self.follow();
        self.traffic.check(&self.bed.hosts);
        self.flows();
    }

    fn log(&self, what: &str) {
        println!("event {}: {what}", self.events);
    }

    fn state(&self) -> State {
        State {
            ports: self.running.map(forwarding),
            filtered: self.table && self.chain,
            blackholes: self.blackholes,
        }
    }

    /// Performs `act`, which takes the switch from its present state to that which `change` makes of the
    /// model.
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

    /// The host routes that the switch knows, sorted by address; the plane has them, unless the kernel routes.
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
        let next = Port { vlan, ..self.running[at - 1] };
        self.configure(at, &format!("switchport access vlan {vlan}"), next);
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
    fn run(&self, at: Option<usize>, line: &str) -> bool {
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
        match self.random.below(7) {
            0 => self.host_link(),
            1 => self.offload(),
            2 => self.queue(),
            3 => self.rule(),
            4 => self.route(),
            5 => self.vanish(),
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

    fn up(&self, n: usize) -> bool {
        !self.port_down[n - 1] && !self.host_down[n - 1] && !self.running[n - 1].shutdown
    }

    /// A pair of hosts that are up and satisfy `fits`, if there is one.
    fn pair(&mut self, fits: impl Fn(&Self, usize, usize) -> bool) -> Option<(usize, usize)> {
        let all = (1..=HOSTS).flat_map(|a| (1..=HOSTS).map(move |b| (a, b)));
        let fit = |(a, b): &(usize, usize)| a != b && self.up(*a) && self.up(*b) && fits(self, *a, *b);
        let pairs: Vec<(usize, usize)> = all.filter(fit).collect();
        (!pairs.is_empty()).then(|| pairs[self.random.below(pairs.len())])
    }

    fn connected(&self, a: usize, b: usize) -> bool {
        a != b && self.up(a) && self.up(b) && self.state().bridges(a, b)
    }

    /// Checks that frames pass between two hosts that are connected, and packets between two that the router
    /// connects.
    fn flows(&mut self) {
        if let Some((a, b)) = self.pair(|storm, a, b| storm.state().bridges(a, b)) {
            for dst in [mac(b as u16), BROADCAST] {
                let probe = frame(dst, mac(a as u16));
                self.passes(a, b, &probe, &|arrived| *arrived == probe);
            }
        }
        let routed =
            |storm: &Self, a: usize, b: usize| storm.state().routes(a, b, storm.running[b - 1].vlan, b);
        if let Some((a, b)) = self.pair(routed) {
            let vlans = [a, b].map(|n| self.running[n - 1].vlan);
            let routers = vlans.map(|vlan| self.routers[index_of(vlan).unwrap()]);
            // Take a number that no other frame has, and put it between two words.
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
        self.flows();
        let sent = self.traffic.stop();
        self.traffic.check(&self.bed.hosts);
        let (bridged, routed) = (self.traffic.bridged, self.traffic.routed);
        println!(
            "{} events; {sent} frames sent; arrivals checked: {bridged} bridged, {routed} routed",
            self.events
        );
        self.as_configured();
        let before = self.bed.exec(&["show running-config"]);
        self.save();
        self.bed.end_daemon(Signal::SIGKILL);
        self.start();
        self.as_configured();
        assert_eq!(self.bed.exec(&["show running-config"]), before, "the configuration after a restart");
        self.flows();
        self.traffic.check(&self.bed.hosts);
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
            names.filter(|name| name.starts_with('p')).collect::<Vec<_>>()
        };
        for vlan in VLANS {
            let wanted = self.running.iter().zip(1..).filter(|(port, _)| port.vlan == vlan);
            assert_eq!(
                members(vlan),
                wanted.map(|(_, at)| format!("p{at}")).collect::<Vec<_>>(),
                "VLAN {vlan}"
            );
        }
        for from in (1..=HOSTS).filter(|from| !self.running[from - 1].shutdown) {
            let to: Vec<usize> = (1..=HOSTS).filter(|to| self.connected(from, *to)).collect();
            self.bed.expect_at(from, &frame(BROADCAST, mac(from as u16)), &to);
        }
    }
}

/// The VLAN that a port forwards in.
fn forwarding(port: Port) -> Option<u16> {
    (!port.shutdown).then_some(port.vlan)
}
