//! A million routes by FPM: the time until each is in the plane and answered, and their memory.

use crate::harness::{Bed, Plane, scenarios, wait_until};
use lanyard_fpm::frame;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

scenarios! {
    a_million_routes: ebpf soft;
}

const CONFIG: &str = "\
vlan 10
ip routing
interface p1
 switchport access vlan 10
interface vlan 10
 ip address 10.0.10.254 255.255.255.0
fpm server
";

/// About the number of routes in the Internet.
const ROUTES: u32 = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(180);

/// Every /24 from 16.0.0.0 on, as FRR encodes them, with next-hop groups of 16 different neighbours.
fn session(ifindex: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ROUTES as usize * 56);
    for n in 1..=16u32 {
        let via = [10, 0, 10, n as u8];
        let attributes: [(u16, &[u8]); 3] = [(1, &n.to_ne_bytes()), (6, &via), (5, &ifindex.to_ne_bytes())];
        bytes.extend(frame(104, &[2, 0, 11, 0, 0, 0, 0, 0], &attributes).expect("short"));
    }
    for n in 0..ROUTES {
        let dest = ((16 << 24) + (n << 8)).to_be_bytes();
        let header = [2, 24, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0];
        let attributes: [(u16, &[u8]); 3] =
            [(1, &dest), (6, &20u32.to_ne_bytes()), (30, &(n % 16 + 1).to_ne_bytes())];
        bytes.extend(frame(24, &header, &attributes).expect("short"));
    }
    bytes
}

/// Resident memory of a process, in kilobytes.
fn resident_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn a_million_routes(plane: Plane) {
    let bed = Bed::new(plane, 1, CONFIG);
    bed.chatter.set(true);
    bed.exact.set(false);
    bed.host(1).address("10.0.10.1/24");
    let more: Vec<String> = (2..=16).map(|n| format!("address add 10.0.10.{n}/24 dev eth0")).collect();
    bed.host(1).net.ip(&more.join("\n"));
    let bytes = session(bed.net.index("vlan10"));
    let pid = bed.daemon.borrow().as_ref().expect("a daemon").pid();
    let before_kb = resident_kb(pid);
    let mut stream = bed.net.run(|| TcpStream::connect("127.0.0.1:2620")).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut reader = stream.try_clone().expect("a socket");
    let began = Instant::now();
    let answered = std::thread::scope(|scope| {
        let answers = scope.spawn(move || {
            let (mut count, mut kept, mut piece) = (0u32, Vec::new(), vec![0; 1 << 16]);
            while count < ROUTES {
                let length = reader.read(&mut piece).expect("answers");
                assert!(length > 0, "the session has ended after {count} answers");
                kept.extend(&piece[..length]);
                let mut at = 0;
                while let Some([_, _, high, low]) = kept.get(at..at + 4) {
                    let length = usize::from(u16::from_be_bytes([*high, *low]));
                    if kept.len() < at + length {
                        break;
                    }
                    (at, count) = (at + length, count + 1);
                }
                kept.drain(..at);
            }
            began.elapsed()
        });
        stream.write_all(&bytes).expect("written");
        answers.join().expect("the reader")
    });
    println!(
        "{} plane: {ROUTES} routes answered {:.1} s after the first byte; the daemon grew by {} MB to {} MB",
        plane.name(),
        answered.as_secs_f64(),
        (resident_kb(pid) - before_kb) / 1024,
        resident_kb(pid) / 1024,
    );
    let view = bed.ask("show fpm");
    assert_eq!(view["routes"]["total"], ROUTES, "{view}");
    assert_eq!(view["routes"]["failed"], 0, "{view}");
    // The session's end removes all of them.
    drop(stream);
    bed.configure("no fpm server");
    let gone = wait_until(PATIENCE, || (bed.ask("show fpm")["routes"]["total"] == 0).then_some(()));
    assert!(gone.is_some(), "{}", bed.exec(&["show fpm"]));
}
