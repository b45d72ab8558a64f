//! FPM with the real zebra: its session, its restart, the switch's restart, and clients that do not speak
//! FPM.

use crate::frr::{Frr, PATIENCE, missing};
use crate::harness::{Bed, Plane, scenarios, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

scenarios! {
    zebra_hands_its_routes_over: ebpf soft;
    hostile_clients: ebpf;
}

const CONFIG: &str = "\
vlan 10,20
ip routing
interface p1
 switchport access vlan 10
interface p2
 switchport access vlan 20
interface vlan 10
 ip address 10.0.10.254 255.255.255.0
interface vlan 20
 ip address 10.0.20.254 255.255.255.0
fpm server
";

const ROUTES: &str = "\
fpm address 127.0.0.1
ip route 10.9.0.0/24 10.0.20.1
ip route 10.9.1.0/24 10.0.20.1
ip route 10.9.2.0/24 10.0.20.1
ip route 10.9.2.0/24 10.0.10.1
ip route 10.9.3.0/24 blackhole
";

fn waits(bed: &Bed, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
    let found = wait_until(PATIENCE, || Some(bed.ask("show fpm")).filter(&condition));
    let describe = || {
        format!("{what}: {}\n{}", bed.exec(&["show fpm", "show logging"]), bed.exec(&["show fpm counters"]))
    };
    found.unwrap_or_else(|| panic!("{}", describe()))
}

fn counter(bed: &Bed, name: &str) -> u64 {
    let view = bed.ask("show fpm counters");
    let found = view["counters"].as_array().unwrap().iter().find(|counter| counter["name"] == name).cloned();
    found.unwrap_or_else(|| panic!("{name} in {view}"))["count"].as_u64().unwrap()
}

/// The offload state of a route in `show ip route`.
fn offload(bed: &Bed, prefix: &str) -> String {
    let view = bed.ask("show ip route");
    let route = view["routes"].as_array().unwrap().iter().find(|route| route["prefix"] == prefix).cloned();
    route.map_or_else(String::new, |route| route["offload"].as_str().unwrap().to_owned())
}

fn bed(plane: Plane) -> Bed {
    let bed = Bed::new(plane, 2, CONFIG);
    bed.chatter.set(true);
    bed.exact.set(false);
    for (host, net) in [(1, "10.0.10"), (2, "10.0.20")] {
        bed.host(host).address(&format!("{net}.1/24"));
        bed.host(host).net.ip(&format!("route add default via {net}.254"));
    }
    bed.host(2).net.ip("address add 10.9.0.1/32 dev lo\naddress add 10.9.1.1/32 dev lo");
    bed
}

fn zebra_hands_its_routes_over(plane: Plane) {
    if let Some(reason) = missing() {
        return println!("skipped: {reason}");
    }
    let bed = bed(plane);
    let mut frr = Frr::start(&bed.net, &[], ROUTES);
    // Two connected networks, four routes and, where there is IPv6, the link-local network.
    let all = |view: &Value| view["routes"]["total"].as_u64() >= Some(6) && view["phase"] == "synced";
    let view = waits(&bed, "zebra's routes", all);
    let total = view["routes"]["total"].as_u64().unwrap();
    assert!(total <= 7 && view["next_hops"].as_u64() >= Some(3) && view["client"].is_string(), "{view}");
    waits(&bed, "answers", |view| view["answers"].as_u64() >= Some(total));
    bed.host(1).reaches("10.9.0.1");
    let done = wait_until(PATIENCE, || (offload(&bed, "10.9.0.0/24") == "offloaded").then_some(()));
    assert!(done.is_some(), "{}", bed.exec(&["show ip route", "show fpm"]));
    waits(&bed, "what became of them", |view| view["routes"]["offloaded"] == 6);

    // A change in the encoding of FRR before version 10.
    frr.load("no ip route 10.9.2.0/24 10.0.10.1\n");
    let view = waits(&bed, "an update", |view| view["answers_read"] == false);
    assert_eq!(view["routes"]["total"], total, "{view}");
    let log = bed.exec(&["show logging"]);
    assert!(log.contains("%FPM-5-UP") && log.contains("FRR before 10"), "{log}");
    frr.load("no ip route 10.9.3.0/24 blackhole\n");
    waits(&bed, "a deletion", |view| view["routes"]["total"] == total - 1);
    assert_eq!(counter(&bed, "routes_swept"), 0);

    // Zebra is killed. Its routes stay, in the plane too, until it has come back and has sent nothing for some
    // time.
    frr.kill("zebra");
    waits(&bed, "the session's end", |view| view["phase"] == "holding");
    frr.restart("zebra");
    frr.load("fpm address 127.0.0.1\nip route 10.9.1.0/24 10.0.20.1\n");
    let view = waits(&bed, "a new session", |view| view["phase"] == "replaying");
    assert!(view["routes"]["total"].as_u64() >= Some(total - 1), "kept: {view}");
    let view = waits(&bed, "the sweep", |view| view["phase"] == "synced");
    let total = view["routes"]["total"].as_u64().unwrap();
    println!("{} routes swept, {total} left", counter(&bed, "routes_swept"));
    bed.host(1).reaches("10.9.1.1");

    // The daemon is killed; frames are still forwarded, and zebra connects to the new daemon.
    bed.end_daemon(Signal::SIGKILL);
    bed.start();
    waits(&bed, "zebra to come back", |view| view["routes"]["total"].as_u64() == Some(total));
    bed.host(1).reaches("10.9.1.1");

    // When FPM is switched off, its routes are removed and the kernel's are used.
    bed.configure("no fpm server");
    waits(&bed, "nothing left", |view| view["phase"] == "idle" && view["routes"]["total"] == 0);
    bed.host(1).reaches("10.9.1.1");
}

fn hostile_clients(plane: Plane) {
    let bed = bed(plane);
    let connect = || {
        let stream = bed.net.run(|| TcpStream::connect("127.0.0.1:2620")).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        stream
    };
    let mut first = connect();
    waits(&bed, "a session", |view| view["client"].is_string());
    // A second client is refused.
    let mut second = connect();
    assert_eq!(second.read(&mut [0]).expect("closed"), 0);
    assert_eq!(counter(&bed, "clients_turned_away"), 1);
    // Data that is not an FPM frame ends the session; the next client is accepted.
    first.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("written");
    waits(&bed, "the session's end", |view| view["client"].is_null());
    assert_eq!(counter(&bed, "frame_version"), 1);
    let mut third = connect();
    waits(&bed, "a session", |view| view["client"].is_string());
    // A malformed message is counted. An FPM frame that never ends takes only the memory of the longest
    // frame.
    third.write_all(&[1, 1, 0, 8, 9, 9, 9, 9, 1, 1, 0xff, 0xff]).expect("written");
    third.write_all(&[0; 60_000]).expect("written");
    let seen = wait_until(PATIENCE, || (counter(&bed, "malformed_header") == 1).then_some(()));
    assert!(seen.is_some(), "{}", bed.exec(&["show fpm counters"]));
    drop(third);
    waits(&bed, "the session's end", |view| view["client"].is_null());
    // Another program has the port, and a command that needs it is refused and changes nothing.
    let taken = bed.net.run(|| std::net::TcpListener::bind("127.0.0.1:2621")).expect("bound");
    let printed = bed.try_configure("fpm server port 2621").expect_err("refused");
    assert!(printed.contains("127.0.0.1:2621") && printed.contains("in use"), "{printed}");
    assert!(bed.exec(&["show running-config"]).contains("\nfpm server\n"));
    drop(taken);
    bed.configure("fpm server port 2621");
    bed.net.run(|| TcpStream::connect("127.0.0.1:2621")).expect("the server has moved");
}
