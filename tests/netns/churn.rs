//! A thousand route changes per second while frames are forwarded: each frame takes the route from before or after a
//! change, and arrives at no other host.
//!
//! `LANYARD_CHURN_S` is the duration in seconds, 3 by default. Read first: docs/routing.md, "Following the kernel", on
//! order.

use crate::follow;
use crate::harness::{Bed, DEADLINE, Host, Plane, scenarios, wait_for, wait_until};
use std::collections::HashMap;
use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

scenarios! {
    a_thousand_changes_a_second: ebpf soft;
}

/// Host 1 sends; hosts 2 and 3 are the next hops. All routes that change are below one of these routes.
const ROUTES: &str = "\
ip route 10.11.0.0 255.255.0.0 10.0.20.1
ip route 10.12.0.0 255.255.0.0 10.0.30.1
ipv6 route fd00:f005::/32 fd00:20::1
ipv6 route fd00:f006::/32 fd00:30::1
";

const PER_SECOND: u32 = 1000;
/// The number of changes that the kernel is given at once.
const BURST: u32 = 50;
/// The number of prefixes of each kind that change.
const EACH: u32 = 25;
const KINDS: u32 = 8;
const SLOTS: u32 = KINDS * EACH;
/// The number of datagrams that are under way at once: fewer than any queue on the way holds, even if its reader is
/// not scheduled for long.
const ROUND: u32 = 50;

/// A prefix that changes: the changes, which take turns; and an address in it, with the hosts at which its packets may
/// arrive.
struct Slot {
    turns: [String; 2],
    address: IpAddr,
    allowed: &'static [usize],
}

fn slot(n: u32) -> Slot {
    let (kind, i) = (n % KINDS, n / KINDS);
    let both: &[usize] = &[2, 3];
    let (turns, address, allowed): (_, _, &[usize]) = match kind {
        // The next hop alternates between two.
        0 => {
            let turn = |via| format!("route replace 10.10.{i}.0/24 via 10.0.{via}.1");
            ([turn(20), turn(30)], format!("10.10.{i}.9"), both)
        }
        // A longer match is added and removed.
        1 => (
            [format!("route add 10.11.{i}.0/24 via 10.0.30.1"), format!("route del 10.11.{i}.0/24")],
            format!("10.11.{i}.9"),
            both,
        ),
        // A route beside the used one is added and removed: the same /24 of the table is divided and merged.
        2 => (
            [format!("route add 10.12.{i}.128/25 via 10.0.20.1"), format!("route del 10.12.{i}.128/25")],
            format!("10.12.{i}.9"),
            &[3],
        ),
        // A group loses a member and gets it back.
        3 => {
            let route = format!("route replace 10.13.{i}.0/24");
            (
                [
                    format!("{route} nexthop via 10.0.20.1 nexthop via 10.0.30.1"),
                    format!("{route} via 10.0.20.1"),
                ],
                format!("10.13.{i}.9"),
                both,
            )
        }
        // The better of two metrics is removed and added.
        4 => (
            [
                format!("route add 10.14.{i}.0/24 via 10.0.30.1 metric 50"),
                format!("route del 10.14.{i}.0/24 via 10.0.30.1 metric 50"),
            ],
            format!("10.14.{i}.9"),
            both,
        ),
        5 => (
            [
                format!("route add fd00:f005:{i:x}::/48 via fd00:30::1"),
                format!("route del fd00:f005:{i:x}::/48"),
            ],
            format!("fd00:f005:{i:x}::9"),
            both,
        ),
        6 => (
            [
                format!("route add fd00:f006:{i:x}:8000::/49 via fd00:20::1"),
                format!("route del fd00:f006:{i:x}:8000::/49"),
            ],
            format!("fd00:f006:{i:x}::9"),
            &[3],
        ),
        _ => {
            let turn = |via| format!("route replace fd00:f007:{i:x}::/48 via fd00:{via}::1");
            ([turn(20), turn(30)], format!("fd00:f007:{i:x}::9"), both)
        }
    };
    Slot { turns, address: address.parse().unwrap(), allowed }
}

/// The changes from number `first` on, as many as make a burst.
fn burst(slots: &[Slot], first: u32) -> String {
    let line = |n: u32| slots[(n % SLOTS) as usize].turns[(n / SLOTS % 2) as usize].clone();
    (first..first + BURST).map(line).collect::<Vec<_>>().join("\n")
}

/// Sends traffic, and counts it.
struct Traffic<'b> {
    bed: &'b Bed,
    four: UdpSocket,
    six: UdpSocket,
    sent: u32,
    /// The number of datagrams that were sent again.
    again: usize,
}

impl Traffic<'_> {
    /// Sends a round over the slots, and waits until every datagram has arrived where it may. The soft plane's rings
    /// hold a few milliseconds of traffic: datagrams that were lost because the daemon was not scheduled are sent
    /// again, under the same rule.
    fn round(&mut self, slots: &[Slot]) {
        let numbers: Vec<u32> = (self.sent..self.sent + ROUND).collect();
        self.sent += ROUND;
        let mut arrived: HashMap<u32, usize> = HashMap::new();
        let mut left = numbers.clone();
        let deadline = Instant::now() + DEADLINE;
        while !left.is_empty() {
            left.iter().for_each(|n| self.send(slots, *n));
            let patience = if self.bed.plane == Plane::soft { DEADLINE / 20 } else { DEADLINE };
            wait_until(patience, || {
                self.receive(slots, &mut arrived);
                numbers.iter().all(|n| arrived.contains_key(n)).then_some(())
            });
            left.retain(|n| !arrived.contains_key(n));
            self.again += left.len();
            let lost: Vec<IpAddr> = left.iter().map(|n| slots[(n % SLOTS) as usize].address).collect();
            let gives_up = self.bed.plane == Plane::ebpf || Instant::now() > deadline;
            assert!(lost.is_empty() || !gives_up, "lost: {lost:?}\n{:?}", self.bed.counters());
        }
    }
    fn send(&self, slots: &[Slot], n: u32) {
        let to = slots[(n % SLOTS) as usize].address;
        let socket = if to.is_ipv4() { &self.four } else { &self.six };
        let mut payload = *b"churned 0000";
        payload[8..].copy_from_slice(&n.to_be_bytes());
        socket.send_to(&payload, (to, 9)).unwrap();
    }
    fn receive(&self, slots: &[Slot], arrived: &mut HashMap<u32, usize>) {
        for host in 2..=3 {
            while let Some(frame) = self.bed.host(host).next() {
                let Some(at) = frame.0.windows(8).position(|part| part == b"churned ") else { continue };
                let n = frame.0.get(at + 8..at + 12).unwrap();
                let n = u32::from_be_bytes(n.try_into().unwrap());
                let twice = arrived.insert(n, host);
                assert!(twice.is_none() || self.again > 0, "datagram {n} arrives twice");
                let slot = &slots[(n % SLOTS) as usize];
                assert!(slot.allowed.contains(&host), "host {host} gets what is for {}", slot.address);
            }
        }
    }
}

/// Returns `None` when the plane does not route.
fn with_hosts(plane: Plane) -> Option<Bed> {
    let bed = follow::with_hosts(plane, ROUTES)?;
    for (n, vlan) in [(1, 10), (2, 20), (3, 30)] {
        let host = bed.host(n);
        if n > 1 {
            // Packets for the changing prefixes end at these hosts.
            host.net.ip("route add blackhole 10.0.0.0/8\nroute add blackhole fd00:f000::/20");
        }
        host.reaches(&format!("10.0.{vlan}.254"));
        host.reaches(&format!("fd00:{vlan}::254"));
    }
    Some(bed)
}

/// The interface that the kernel selects.
fn interface_selected_by_the_kernel(bed: &Bed, address: IpAddr) -> String {
    let output = bed.net.output(Command::new("ip").args(["route", "get", &address.to_string()]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().skip_while(|word| *word != "dev").nth(1).unwrap_or("-").to_owned()
}

fn a_thousand_changes_a_second(plane: Plane) {
    let seconds: u32 = std::env::var("LANYARD_CHURN_S").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let Some(bed) = with_hosts(plane) else { return };
    let slots: Vec<Slot> = (0..SLOTS).map(slot).collect();
    let below: Vec<String> =
        (0..EACH).map(|i| format!("route add 10.14.{i}.0/24 via 10.0.20.1 metric 100")).collect();
    bed.net.ip(&below.join("\n"));
    for first in (0..SLOTS).step_by(BURST as usize) {
        bed.net.ip(&burst(&slots, first));
    }
    for slot in &slots {
        wait_for("the first turn", || (!bed.cef(&slot.address.to_string()).1.is_empty()).then_some(()));
    }
    bed.hosts.iter().for_each(Host::drain);
    let socket = |any: &str| bed.host(1).net.run(|| UdpSocket::bind((any, 0)).unwrap());
    let mut traffic = Traffic { bed: &bed, four: socket("0.0.0.0"), six: socket("::"), sent: 0, again: 0 };
    traffic.round(&slots);
    let (total, began, before) = (seconds * PER_SECOND, Instant::now(), bed.routed(1));
    let done = AtomicBool::new(false);
    let net = &bed.net;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            struct AtEnd<'d>(&'d AtomicBool);
            impl Drop for AtEnd<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
            let _end = AtEnd(&done);
            for made in (0..total).step_by(BURST as usize) {
                // This sleep sets the rate of changes; it does not wait for an effect.
                let due = began + Duration::from_secs(1) * made / PER_SECOND;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                net.ip(&burst(&slots, SLOTS + made));
            }
        });
        while !done.load(Ordering::Relaxed) {
            traffic.round(&slots);
        }
    });
    let (elapsed, after) = (began.elapsed().as_secs_f64(), bed.routed(1));
    println!(
        "{} plane: {total} changes in {elapsed:.1} s; {} datagrams all took a right way, {} were sent again; the plane forwarded {}, {} went up",
        plane.name(),
        traffic.sent,
        traffic.again,
        after.0 - before.0,
        after.1 - before.1
    );
    for slot in &slots {
        let kernel = interface_selected_by_the_kernel(&bed, slot.address);
        wait_for(
            &format!("{} to go by {kernel}: {:?}", slot.address, bed.cef(&slot.address.to_string()).1),
            || bed.cef(&slot.address.to_string()).1.contains(&kernel).then_some(()),
        );
    }
}
