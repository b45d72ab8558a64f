//! The figures of the command line, on a switch that forwards in the kernel. Each is printed; the limits here are wider than the
//! goals, because other tests run at the same time. A further scenario: an operator shuts down the port of their own session.

use crate::access::Client;
use crate::harness::{Bed, DEADLINE, Plane, frame, mac, scenarios, wait_for, wait_until};
use crate::life::Stream;
use lanyard_daemon::client::{Client as Local, Piece};
use lanyard_daemon::protocol::Request;
use lanyard_netdev::PacketSocket;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

scenarios! {
    five_thousand_lines: ebpf;
    a_million_addresses: ebpf;
    key_to_echo_under_load: ebpf;
    an_idle_daemon: ebpf;
    an_operator_cuts_their_own_link: ebpf;
}

const TELNET: &str = "username ann privilege 15 secret tiger\nline vty 0 15\n transport input telnet\n";

/// The goal for the replacement of a configuration of 5,000 lines is 2 s.
fn five_thousand_lines(plane: Plane) {
    let bed = Bed::new(plane, 2, "interface range p1 - 2\n switchport\n");
    let mut text = bed.exec(&["show running-config"]);
    for vlan in 100..1600 {
        let _ = write!(text, "vlan {vlan}\n name users-{vlan}\n");
    }
    text.push_str("ip access-list extended many\n");
    for host in 0..1000 {
        let _ = writeln!(text, " permit tcp host 10.{}.{}.1 any eq 443", host / 250, host % 250);
    }
    for route in 0..1000 {
        let _ = writeln!(text, "ip route 10.{}.{}.0 255.255.255.0 192.0.2.1", 100 + route / 250, route % 250);
    }
    let file = bed.file("many");
    std::fs::write(&file, &text).expect("written");
    let (count, begin) = (text.lines().count(), Instant::now());
    assert!(count >= 5000, "{count}");
    bed.exec(&[&format!("configure replace {} force", file.display())]);
    let took = begin.elapsed();
    println!("{count} lines of configuration took {took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(bed.ask("show vlan")["vlans"].as_array().map(Vec::len), Some(1501));
    assert_eq!(bed.exec(&["show running-config | include ip route"]).lines().count(), 1000);
}

/// The goals for a list of a million addresses, in a build with optimisation, are 50 ms for the first page and 3 s for the
/// complete list.
fn a_million_addresses(plane: Plane) {
    const COUNT: u32 = 990_000;
    let bed = Bed::new(plane, 2, "mac address-table aging-time 0\ninterface range p1 - 2\n switchport\n");
    bed.exact.set(false);
    // A frame that comes from the port of its destination is dropped, so nothing has to read a million frames.
    bed.expect_at(1, &frame(mac(2), mac(1)), &[2]);
    let mut sample = frame(mac(1), mac(3));
    let total = || {
        let view = bed.ask("show mac address-table count");
        view["total"].as_u64().or_else(|| view["dynamic"].as_u64()).unwrap_or_else(|| panic!("{view}"))
    };
    let full = wait_until(Duration::from_secs(120), || {
        for number in 0..COUNT {
            let [_, a, b, c] = number.to_be_bytes();
            sample.0[6..12].copy_from_slice(&[0x02, 0x77, 0, a, b, c]);
            bed.host(1).send(&sample);
        }
        (total() >= u64::from(COUNT)).then_some(())
    });
    assert!(full.is_some(), "only {} addresses were learned", total());
    for (command, rows) in [
        ("show mac address-table", COUNT as usize),
        ("show mac address-table | json", COUNT as usize),
        ("show mac address-table | include 0277.0001.00", 256),
        ("show mac address-table | count DYNAMIC", 0),
    ] {
        let list = list(&bed.instance, command);
        println!("{command}, {} lines: first page {:?}, all {:?}", list.lines, list.first, list.all);
        assert!(list.lines >= rows, "{} lines", list.lines);
        assert!(list.all < DEADLINE, "{:?}", list.all);
        assert!(list.is_sorted, "by VLAN and address");
    }
    // A client that does not read delays no other client. While another client reads a list, a command of a third session is not
    // late.
    let mut stopped = Local::connect(&bed.instance).expect("connected");
    stopped.hello("stopped", false).expect("hello");
    let (mut requests, replies) = stopped.split();
    requests
        .send(&Request::Exec { line: "show mac address-table | json".into(), pasted: false })
        .expect("sent");
    let longest = std::thread::scope(|scope| {
        let instance = bed.instance.as_str();
        let listing = scope.spawn(move || list(instance, "show mac address-table"));
        let mut other = Local::connect(&bed.instance).expect("connected");
        other.hello("other", false).expect("hello");
        let mut longest = Duration::ZERO;
        while !listing.is_finished() {
            let begin = Instant::now();
            assert!(other.exec("show history", &mut |_| Ok(())).is_ok_and(|done| !done.refused));
            longest = longest.max(begin.elapsed());
        }
        assert!(listing.join().expect("listed").lines >= COUNT as usize);
        longest
    });
    println!("another session's command meanwhile: at most {longest:?}");
    drop((requests, replies));
}

/// A list as a program receives it.
struct List {
    lines: usize,
    /// The time until the first 24 lines had arrived, or all lines of a shorter list.
    first: Duration,
    all: Duration,
    /// True if the rows are in ascending order.
    is_sorted: bool,
}

fn list(instance: &str, command: &str) -> List {
    let mut client = Local::connect(instance).expect("connected");
    client.hello("test", false).expect("hello");
    let (begin, mut first, mut lines, mut is_sorted) = (Instant::now(), None, 0usize, true);
    let mut last = String::new();
    let done = client.exec(command, &mut |piece| {
        let Piece::Output(text) = piece else { return Ok(()) };
        for line in text.lines() {
            lines += 1;
            if line.contains("DYNAMIC") {
                is_sorted &= *last < *line;
                last.clear();
                last.push_str(line);
            }
        }
        if lines >= 24 {
            first.get_or_insert_with(|| begin.elapsed());
        }
        Ok(())
    });
    assert!(done.is_ok_and(|done| !done.refused));
    let all = begin.elapsed();
    List { lines, first: first.unwrap_or(all), all, is_sorted }
}

/// The goal for the time from a key to its echo is 10 ms, while the data plane is saturated.
fn key_to_echo_under_load(plane: Plane) {
    const KEYS: usize = 200;
    let bed = Bed::new(plane, 3, &format!("interface range p1 - 3\n switchport\n{TELNET}"));
    bed.exact.set(false);
    bed.expect_at(3, &frame(mac(2), mac(3)), &[1, 2]);
    let mut client = Client::login(&bed, "ann", "tiger");
    client.until("Lanyard#");
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut times = Vec::new();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for from in [1usize, 2] {
            let host = bed.host(from);
            let index = host.net.index("eth0");
            let socket = host.net.run(|| PacketSocket::sender(index)).expect("a socket");
            let bytes = frame(mac(3), mac(from as u16)).0;
            let (stop, sent) = (&stop, &sent);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if socket.send(&bytes).is_ok() {
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for _ in 0..KEYS {
            let pressed = Instant::now();
            client.send(b"x");
            client.until("x");
            times.push(pressed.elapsed());
            client.send(b"\x08");
            client.until("\x08");
        }
        stop.store(true, Ordering::Relaxed);
    });
    times.sort();
    let (median, high) = (times[KEYS / 2], times[KEYS * 99 / 100]);
    let rate = sent.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64();
    println!(
        "key to echo: median {median:?}, 99th percentile {high:?}, at {rate:.0} frames/s from two senders"
    );
    assert!(median < Duration::from_millis(100), "{median:?}");
}

/// The goal for an idle daemon is less than 1 % of a processor.
fn an_idle_daemon(plane: Plane) {
    const TIME: Duration = Duration::from_secs(10);
    let bed = Bed::new(plane, 4, "interface range p1 - 4\n switchport\nspanning-tree mode rstp\n");
    bed.exact.set(false);
    let pid = bed.daemon.borrow().as_ref().expect("a daemon").pid();
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
        fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
    };
    let (before, begin) = (ticks(), Instant::now());
    wait_until(TIME, || (begin.elapsed() >= TIME).then_some(()));
    // /proc counts hundredths of a second.
    let percent = (ticks() - before) as f64 / begin.elapsed().as_secs_f64();
    println!("an idle daemon with spanning tree at four ports takes {percent:.2} % of a processor");
    assert!(percent < 3.0, "{percent}");
}

/// An operator at p1 shuts p1 down with `commit confirmed`: their session is cut off, and after a minute the switch returns to
/// the previous configuration. No frame between other ports is lost.
fn an_operator_cuts_their_own_link(plane: Plane) {
    let config = "interface range p1 - 3\n switchport\ninterface vlan 1\n ip address 10.0.1.254/24\n";
    let bed = Bed::new(plane, 3, &format!("{config}{TELNET}"));
    bed.chatter.set(true);
    bed.exact.set(false);
    bed.host(1).address("10.0.1.1/24");
    bed.host(1).reaches("10.0.1.254");
    bed.host(3).send(&frame(mac(2), mac(3)));
    let mut stream = Stream::start(bed.host(2), bed.host(3));
    stream.flows(bed.host(3), 100);
    let login = || Client::login_from(&bed.host(1).net, "10.0.1.254:23", "ann", "tiger");
    let mut operator = login();
    operator.until("Lanyard#");
    operator.send(b"configure session cut\r\ninterface p1\r\nshutdown\r\nexit\r\ncommit confirmed 1\r\n");
    let is_up = || {
        let view = bed.ask("show interfaces p1");
        view["interfaces"][0]["admin_up"].as_bool().expect("a state")
    };
    let cut = Instant::now();
    wait_for("the link to be cut", || (!is_up()).then_some(()));
    assert!(!bed.host(1).ping("-c 1 -W 1 10.0.1.254"), "the operator still reaches the switch");
    let back = wait_until(Duration::from_secs(100), || {
        stream.take(bed.host(3));
        is_up().then_some(())
    });
    assert!(back.is_some(), "the switch has not rolled back");
    println!("rolled back after {:?}", cut.elapsed());
    assert!(cut.elapsed() > Duration::from_secs(50), "{:?}", cut.elapsed());
    bed.host(1).reaches("10.0.1.254");
    login().until("Lanyard#");
    assert!(bed.exec(&["show logging"]).contains("rolled back"));
    stream.end(bed.host(3));
}
