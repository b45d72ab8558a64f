//! The events of the storm, and the model of what the switch must do after each.
//!
//! Not among the events, because they belong to defects that are known and open: `hook xdp` while hosts turn GRO on and off
//! (frames to a veth without NAPI vanish).

use crate::harness::{BROADCAST, Bed, DEADLINE, Plane, frame, mac, wait_for, wait_until};
use crate::traffic::{Traffic, Vlans};
use nix::sys::signal::Signal;
use std::process::Command;
use std::time::Duration;

const HOSTS: usize = 4;
const VLANS: [u16; 2] = [10, 20];
const START: &str = "\
vlan 10,20
interface vlan 10
 ip address 10.0.10.254/24
interface range p1 - 4
 switchport access vlan 10
";

/// xorshift64: the same numbers for the same seed, on every machine.
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
}

/// A port as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Port {
    vlan: u16,
    shutdown: bool,
}

pub struct Storm {
    bed: Bed,
    random: Random,
    traffic: Traffic,
    running: Vec<Port>,
    saved: Vec<Port>,
    /// Ports that `ip link set down` has taken down, and hosts likewise.
    port_down: [bool; HOSTS],
    host_down: [bool; HOSTS],
    events: u32,
}

fn vlans(ports: &[Port]) -> Vlans {
    ports.iter().map(|port| (!port.shutdown).then_some(port.vlan)).collect()
}

/// A host, from 1.
fn pick(random: &mut Random) -> usize {
    random.below(HOSTS) + 1
}

impl Storm {
    pub fn new(plane: Plane, seed: u64) -> Self {
        let bed = Bed::new(plane, HOSTS, START);
        bed.chatter.set(true);
        bed.exact.set(false);
        let running = vec![Port { vlan: VLANS[0], shutdown: false }; HOSTS];
        let traffic = Traffic::start(&bed.hosts, seed, vlans(&running));
        Self {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            traffic,
            saved: running.clone(),
            running,
            port_down: [false; HOSTS],
            host_down: [false; HOSTS],
            events: 0,
            bed,
        }
    }

    /// One event, and what must hold after it.
    pub fn event(&mut self) {
        self.events += 1;
        match self.random.below(16) {
            0..4 => self.vlan(),
            4 | 5 => self.shutdown(),
            6 => self.port_link(),
            7 => self.host_link(),
            8 => self.queue(),
            9 => self.offload(),
            10 => self.rule(),
            11 => self.route(),
            12 => self.save(),
            13 => self.hangup(),
            _ => self.restart(),
        }
        self.traffic.check(&self.bed.hosts);
        self.flows();
    }

    fn tell(&self, what: &str) {
        println!("event {}: {what}", self.events);
    }

    fn configure(&mut self, at: usize, lines: &str, next: Port) {
        let lines = format!("interface p{at}\n{lines}");
        self.tell(&lines.replace('\n', "; "));
        let old = vlans(&self.running);
        self.running[at - 1] = next;
        let new = vlans(&self.running);
        self.traffic.between(&old, &new);
        self.bed.configure(&lines);
        self.traffic.between(&new, &new);
    }

    fn vlan(&mut self) {
        let (at, vlan) = (pick(&mut self.random), VLANS[self.random.below(2)]);
        let next = Port { vlan, ..self.running[at - 1] };
        self.configure(at, &format!("switchport access vlan {vlan}"), next);
    }

    fn shutdown(&mut self) {
        let at = pick(&mut self.random);
        let port = self.running[at - 1];
        let next = Port { shutdown: !port.shutdown, ..port };
        if port.shutdown {
            self.port_down[at - 1] = false;
        }
        self.configure(at, if next.shutdown { "shutdown" } else { "no shutdown" }, next);
    }

    fn port_link(&mut self) {
        let at = pick(&mut self.random);
        if self.running[at - 1].shutdown {
            return self.tell("nothing: the port is shut down");
        }
        self.port_down[at - 1] ^= true;
        let to = if self.port_down[at - 1] { "down" } else { "up" };
        self.tell(&format!("ip link set p{at} {to}"));
        self.bed.net.ip(&format!("link set p{at} {to}"));
    }

    fn host_link(&mut self) {
        let at = pick(&mut self.random);
        self.host_down[at - 1] ^= true;
        let to = if self.host_down[at - 1] { "down" } else { "up" };
        self.tell(&format!("host {at}: ip link set eth0 {to}"));
        self.bed.host(at).net.ip(&format!("link set eth0 {to}"));
    }

    /// Runs a program of an administrator; that what it changes is not there is no matter.
    fn run(&self, at: Option<usize>, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let net = at.map_or(&self.bed.net, |at| &self.bed.host(at).net);
        self.tell(&at.map_or_else(|| line.to_owned(), |at| format!("host {at}: {line}")));
        let _ = net.output(Command::new(words[0]).args(&words[1..]));
    }

    fn queue(&mut self) {
        let (at, host, add) = (pick(&mut self.random), self.random.coin(), self.random.coin());
        let netdev = if host { "eth0".to_owned() } else { format!("p{at}") };
        let what = if add {
            format!("replace dev {netdev} root pfifo limit 1000")
        } else {
            format!("del dev {netdev} root")
        };
        self.run(host.then_some(at), &format!("tc qdisc {what}"));
    }

    fn offload(&mut self) {
        let (at, host) = (pick(&mut self.random), self.random.coin());
        let feature = ["gro", "gso", "tso", "tx", "rx", "rxvlan", "txvlan"][self.random.below(7)];
        let to = if self.random.coin() { "on" } else { "off" };
        let netdev = if host { "eth0".to_owned() } else { format!("p{at}") };
        self.run(host.then_some(at), &format!("ethtool -K {netdev} {feature} {to}"));
    }

    fn rule(&mut self) {
        let line = match self.random.below(3) {
            0 => "nft add table ip storm",
            1 => "nft add chain ip storm forward { type filter hook forward priority 0 ; policy drop ; }",
            _ => "nft delete table ip storm",
        };
        self.run(None, line);
    }

    fn route(&mut self) {
        let verb = if self.random.coin() { "replace" } else { "del" };
        let line = format!("ip route {verb} blackhole 10.9.{}.0/24", self.random.below(4));
        self.run(None, &line);
    }

    fn save(&mut self) {
        self.tell("write memory");
        self.bed.exec(&["write memory"]);
        self.saved = self.running.clone();
    }

    fn hangup(&mut self) {
        self.tell("SIGHUP");
        self.bed.daemon.borrow().as_ref().unwrap().signal(Signal::SIGHUP);
    }

    /// A death and a start, which begins with the saved configuration; with an event between the two. The eBPF plane forwards on.
    fn restart(&mut self) {
        let signal = [Signal::SIGKILL, Signal::SIGTERM][self.random.below(2)];
        self.tell(&format!("{signal}"));
        self.bed.end_daemon(signal);
        match self.random.below(4) {
            0 => self.host_link(),
            1 => self.offload(),
            2 => self.queue(),
            _ => {}
        }
        self.start();
    }

    fn start(&mut self) {
        let (old, new) = (vlans(&self.running), vlans(&self.saved));
        self.traffic.between(&old, &new);
        self.running = self.saved.clone();
        self.bed.start();
        self.traffic.between(&new, &new);
        // The first configuration of a daemon brings its ports up.
        self.port_down = [false; HOSTS];
    }

    fn connected(&self, a: usize, b: usize) -> bool {
        let vlans = vlans(&self.running);
        let up = |n: usize| !self.port_down[n - 1] && !self.host_down[n - 1];
        a != b && up(a) && up(b) && vlans[a - 1].is_some() && vlans[a - 1] == vlans[b - 1]
    }

    /// Frames pass between two hosts that are connected, if there are two.
    fn flows(&mut self) {
        let pairs: Vec<(usize, usize)> = (1..=HOSTS)
            .flat_map(|a| (1..=HOSTS).map(move |b| (a, b)))
            .filter(|(a, b)| self.connected(*a, *b))
            .collect();
        if pairs.is_empty() {
            return;
        }
        let (a, b) = pairs[self.random.below(pairs.len())];
        for dst in [mac(b as u16), BROADCAST] {
            let probe = frame(dst, mac(a as u16));
            let mut tries = 0;
            let arrived = wait_until(DEADLINE, || {
                tries += 1;
                // Its link may still be coming up.
                let _ = self.bed.host(a).try_send(&probe);
                wait_until(Duration::from_millis(200), || self.arrives(b, &probe))
            });
            let state = || self.bed.counters();
            assert!(
                arrived.is_some(),
                "nothing from host {a} arrives at host {b} in {tries} tries: {:?}",
                state()
            );
        }
    }

    /// Looks for a probe; everything else that has arrived is checked.
    fn arrives(&mut self, at: usize, probe: &crate::harness::Frame) -> Option<()> {
        let mut found = None;
        while let Some(frame) = self.bed.host(at).next() {
            if frame == *probe {
                found = Some(());
            } else {
                self.traffic.check_one(at, &frame.0);
            }
        }
        self.traffic.check(&self.bed.hosts);
        found
    }

    /// After the storm, everything is plugged in again: the switch does what its configuration says.
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
        println!("{} events; {sent} frames sent, {} arrivals checked", self.events, self.traffic.arrived);
        self.as_configured();
        self.save();
        self.bed.end_daemon(Signal::SIGKILL);
        self.start();
        self.as_configured();
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
