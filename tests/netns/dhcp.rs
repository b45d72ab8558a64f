//! DHCP through the relay, with Debian's dnsmasq as the server and dhclient as the client.

use crate::harness::{Bed, DEADLINE, Host, Plane, scenarios, wait_until};
use lanyard_netdev::Reaped;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

scenarios! {
    relayed: ebpf soft;
    relayed_ipv6: ebpf soft;
    with_relay_information: ebpf soft;
    across_vrfs: ebpf soft;
    a_server_on_the_same_machine: soft;
}

/// True when the programs are installed; otherwise prints that they are missing.
pub fn possible() -> bool {
    let missing: Vec<&str> = ["/usr/sbin/dnsmasq", "/usr/sbin/dhclient"]
        .into_iter()
        .filter(|path| !Path::new(path).exists())
        .collect();
    if !missing.is_empty() {
        println!("skipped: {} not installed (dnsmasq, isc-dhcp-client)", missing.join(", "));
    }
    missing.is_empty()
}

pub fn server(bed: &Bed, host: &Host, arguments: &[&str]) -> Reaped {
    let mut command = Command::new("dnsmasq");
    command.args(["--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root", "--pid-file="]);
    command.arg(format!("--dhcp-leasefile={}", bed.file("dnsmasq.leases").display())).args(arguments);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Reaped(host.net.spawn(&mut command))
}

/// A client that repeats its requests until it gets an answer.
pub struct Client<'a> {
    bed: &'a Bed,
    host: &'a Host,
    family: &'a str,
    running: Reaped,
}

impl<'a> Client<'a> {
    pub fn start(bed: &'a Bed, host: &'a Host, family: &'a str) -> Self {
        let running = Self::spawn(bed, host, family);
        Self { bed, host, family, running }
    }
    fn file(bed: &Bed, host: &Host, family: &str, kind: &str) -> PathBuf {
        bed.file(&format!("dhclient-{}{family}.{kind}", host.net.inode()))
    }
    fn spawn(bed: &Bed, host: &Host, family: &str) -> Reaped {
        let log =
            File::options().create(true).append(true).open(Self::file(bed, host, family, "log")).unwrap();
        let mut command = Command::new("dhclient");
        command.args([family, "-d", "-sf", "/bin/true", "-pf"]).arg(Self::file(bed, host, family, "pid"));
        command.arg("-lf").arg(Self::file(bed, host, family, "leases"));
        command.arg("eth0").stdout(Stdio::null()).stderr(Stdio::from(log));
        Reaped(host.net.spawn(&mut command))
    }
    /// Waits until the lease file contains `word`; returns the rest of its line, the address.
    pub fn leased(&mut self, word: &str) -> (String, String) {
        let Self { bed, host, family, running } = self;
        let found = wait_until(DEADLINE, || {
            // dhclient exits when it cannot open its socket, for example while an address is new.
            if running.0.try_wait().unwrap().is_some() {
                *running = Self::spawn(bed, host, family);
            }
            let text = std::fs::read_to_string(Self::file(bed, host, family, "leases")).ok()?;
            let line = text.lines().rev().find(|line| line.trim_start().starts_with(word))?;
            let address =
                line.trim().trim_start_matches(word).trim().trim_end_matches([';', '{', ' ']).to_owned();
            Some((address, text))
        });
        found.unwrap_or_else(|| {
            let log = std::fs::read_to_string(Self::file(bed, host, family, "log")).unwrap_or_default();
            let relay = bed.exec(&["show ip dhcp relay", "show ipv6 dhcp relay"]);
            panic!("no lease after {DEADLINE:?}; the client: {log}; the relay: {relay}")
        })
    }
}

pub const CONFIG: &str = "\
ip routing
ipv6 unicast-routing
vlan 10,20
interface p1
 switchport access vlan 10
interface p2
 switchport access vlan 20
interface vlan 20
 ip address 10.0.20.254 255.255.255.0
 ipv6 address fd00:20::254/64
interface vlan 10
 ip address 10.0.10.254 255.255.255.0
 ipv6 address fd00:10::254/64
 ip helper-address 10.0.20.1
 ipv6 dhcp relay destination fd00:20::1
";

pub fn bed(plane: Plane, config: &str) -> Bed {
    let bed = Bed::new(plane, 2, config);
    bed.chatter.set(true);
    bed.exact.set(false);
    bed.host(2).address("10.0.20.1/24");
    bed.host(2).address("fd00:20::1/64");
    bed.host(2).net.ip("route add default via 10.0.20.254\nroute replace default via fd00:20::254");
    bed
}

fn counted(bed: &Bed, command: &str, name: &str) -> u64 {
    let view = bed.show(command);
    let find = |c: &&serde_json::Value| c["counter"] == name;
    view["counters"].as_array().unwrap().iter().find(find).map_or(0, |c| c["messages"].as_u64().unwrap())
}

fn relayed(plane: Plane) {
    if !possible() {
        return;
    }
    let bed = bed(plane, CONFIG);
    let _server = server(&bed, bed.host(2), &["--dhcp-range=10.0.10.50,10.0.10.60,255.255.255.0,1h"]);
    let (address, _) = Client::start(&bed, bed.host(1), "-4").leased("fixed-address");
    assert!(address.starts_with("10.0.10.5") || address == "10.0.10.60", "{address}");
    assert!(counted(&bed, "show ip dhcp relay", "to_server") >= 2, "{}", bed.show("show ip dhcp relay"));
    assert!(counted(&bed, "show ip dhcp relay", "to_client") >= 2);
    let view = bed.show("show ip dhcp relay");
    assert_eq!(view["interfaces"][0]["servers"][0]["address"], "10.0.20.1", "{view}");
    // The leased address works.
    bed.host(1).address(&format!("{address}/24"));
    bed.host(1).net.ip("route add default via 10.0.10.254");
    bed.host(1).reaches("10.0.20.1");
}

fn relayed_ipv6(plane: Plane) {
    if !possible() {
        return;
    }
    let bed = bed(plane, CONFIG);
    // The server answers from another of its addresses, as a server with an autoconfigured address may do.
    bed.host(2).address("fd00:20::2/64");
    bed.host(2).net.ip("route add fd00:20::/64 dev eth0 src fd00:20::2 metric 1");
    let _server = server(&bed, bed.host(2), &["--dhcp-range=fd00:10::50,fd00:10::60,64,1h"]);
    bed.host(1).address("fe80::51/64");
    let (address, _) = Client::start(&bed, bed.host(1), "-6").leased("iaaddr");
    assert!(address.starts_with("fd00:10::"), "{address}");
    assert!(counted(&bed, "show ipv6 dhcp relay", "to_client") >= 1, "{}", bed.show("show ipv6 dhcp relay"));
}

/// The server gives addresses only to the clients of one circuit.
fn with_relay_information(plane: Plane) {
    if !possible() {
        return;
    }
    let bed = bed(plane, CONFIG);
    bed.configure("ip dhcp relay information option");
    let _server = server(
        &bed,
        bed.host(2),
        &["--dhcp-circuitid=set:ours,vlan10", "--dhcp-range=tag:ours,10.0.10.50,10.0.10.60,255.255.255.0,1h"],
    );
    let (address, text) = Client::start(&bed, bed.host(1), "-4").leased("fixed-address");
    assert!(address.starts_with("10.0.10."), "{address}");
    assert!(!text.contains("agent"), "the client has been given the relay's information: {text}");
}

/// Client and server are in different routing tables: the server answers to an address of the switch in its
/// own table.
fn across_vrfs(plane: Plane) {
    if !possible() {
        return;
    }
    let bed = bed(plane, CONFIG);
    let vrf = format!("{}-c", bed.instance);
    bed.configure(&format!(
        "vrf definition {vrf}\ninterface vlan 10\nno ip helper-address\nno ipv6 dhcp relay destination\n\
         vrf forwarding {vrf}\nip address 10.0.10.254 255.255.255.0\nip helper-address global 10.0.20.1"
    ));
    let _server = server(&bed, bed.host(2), &["--dhcp-range=10.0.10.50,10.0.10.60,255.255.255.0,1h"]);
    let (address, text) = Client::start(&bed, bed.host(1), "-4").leased("fixed-address");
    assert!(address.starts_with("10.0.10."), "{address}");
    assert!(text.contains("dhcp-server-identifier 10.0.10.254"), "the client can't renew: {text}");
}

fn a_server_on_the_same_machine(plane: Plane) {
    if !possible() {
        return;
    }
    let bed = bed(plane, "vlan 10\ninterface vlan 10\n ip address 10.0.10.254 255.255.255.0\n");
    let taken = bed.net.run(|| std::net::UdpSocket::bind("0.0.0.0:67").unwrap());
    bed.configure("interface vlan 10\nip helper-address 10.0.20.1");
    let printed = bed.exec(&["show ip dhcp relay"]);
    assert!(printed.contains("The relay does not work: UDP port 67"), "{printed}");
    drop(taken);
    // The next change tries again.
    bed.configure("interface vlan 10\nip helper-address 10.0.20.2");
    assert!(bed.show("show ip dhcp relay")["error"].is_null());
    bed.configure("interface vlan 10\nno ip helper-address");
    bed.net.run(|| std::net::UdpSocket::bind("0.0.0.0:67").map(drop)).expect("the port is free again");
}
