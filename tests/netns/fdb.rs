//! The address table: learning, moving, ageing, flushing, limits, static entries, events (IEEE 802.1Q-2018, 8.7 and 8.8).

use crate::harness::daemon::LANYARD;
use crate::harness::frame::{reserved, text};
use crate::harness::{BROADCAST, Bed, Frame, Plane, frame, mac, scenarios, wait_for};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

scenarios! {
    stations_move: ebpf soft;
    ageing: ebpf soft;
    flushes: ebpf soft;
    learning_off: ebpf soft;
    limit_of_a_port: ebpf soft;
    limit_of_a_vlan: ebpf soft;
    limit_of_the_table: ebpf soft;
    static_entries: ebpf soft;
    events: ebpf soft;
}

const FOUR: &str = "interface range p1 - 4\n switchport\n";

/// Frames from `count` stations, beginning with station `first`.
fn stations(first: u16, count: u16) -> Vec<Frame> {
    (first..first + count).map(|n| frame(BROADCAST, mac(n))).collect()
}

fn count(bed: &Bed, filter: &str) -> u64 {
    bed.ask(&format!("show mac address-table dynamic {filter}"))["total"].as_u64().unwrap()
}

fn stations_move(plane: Plane) {
    let bed = Bed::new(plane, 4, FOUR);
    let to_him = frame(mac(50), mac(1));
    bed.expect_at(1, &to_him, &[2, 3, 4]);
    for at in [2, 3, 2, 4] {
        bed.expect_at(at, &frame(mac(1), mac(50)), &[1]);
        bed.learned(mac(50), 1, Some(&format!("p{at}")));
        bed.expect_at(1, &to_him, &[at]);
    }
    // A frame to its own sender, and one to a neighbour at the same port.
    bed.expect_drop(4, &frame(mac(50), mac(51)), "same_port");
    bed.expect_drop(4, &frame(mac(52), mac(52)), "same_port");
}

fn ageing(plane: Plane) {
    let bed = Bed::new(plane, 3, "mac address-table aging-time 10\ninterface range p1 - 3\n switchport\n");
    let idle = frame(BROADCAST, mac(2));
    let since = std::time::Instant::now();
    bed.expect_at(2, &idle, &[1, 3]);
    let busy = frame(BROADCAST, mac(1));
    wait_for("an idle address to age out", || {
        // A frame every 100 ms keeps this address from ageing out.
        std::thread::sleep(std::time::Duration::from_millis(100));
        bed.exchange(1, std::slice::from_ref(&busy));
        bed.entry(mac(2), 1).is_none().then_some(())
    });
    // The switch counts in whole seconds, so up to one second is missing.
    assert!(since.elapsed().as_secs() >= 9, "aged out after {:?}", since.elapsed());
    bed.learned(mac(1), 1, Some("p1"));
    bed.expect_at(1, &frame(mac(2), mac(1)), &[2, 3]);
    bed.expect_at(3, &frame(mac(1), mac(3)), &[1]);
}

fn flushes(plane: Plane) {
    let config = "vlan 10\ninterface range p1 - 3\n switchport mode trunk\n";
    let bed = Bed::new(plane, 3, config);
    let fill = || {
        for port in 1..=3 {
            let tagged = stations(port * 100, 5).iter().map(|f| f.vlan(10)).collect::<Vec<_>>();
            bed.exchange(port.into(), &[stations(port * 100, 5), tagged].concat());
        }
        assert_eq!(count(&bed, ""), 30);
    };
    fill();
    bed.exec(&["clear mac address-table dynamic interface p1"]);
    assert_eq!((count(&bed, "interface p1"), count(&bed, "")), (0, 20));
    fill();
    bed.exec(&["clear mac address-table dynamic vlan 10"]);
    assert_eq!((count(&bed, "vlan 10"), count(&bed, "")), (0, 15));
    fill();
    bed.exec(&[&format!("clear mac address-table dynamic address {}", text(mac(201)))]);
    assert_eq!(count(&bed, ""), 28);
    bed.learned(mac(201), 1, None);
    bed.learned(mac(202), 1, Some("p2"));
    bed.expect_at(1, &frame(mac(201), mac(100)), &[2, 3]);
    bed.expect_at(1, &frame(mac(202), mac(100)), &[2]);
    fill();
    // The link goes down, so the port's stations may be anywhere.
    bed.host(3).net.ip("link set eth0 down");
    wait_for("the addresses of a port without link to go", || {
        (count(&bed, "interface p3") == 0).then_some(())
    });
    assert_eq!(count(&bed, ""), 20);
    bed.expect_at(1, &frame(mac(301), mac(100)), &[2]);
}

fn learning_off(plane: Plane) {
    let bed = Bed::new(
        plane,
        4,
        "vlan 10\nno mac address-table learning vlan 10\ninterface range p1 - 2\n switchport access vlan 10\ninterface range p3 - 4\n switchport\ninterface p3\n no mac address-table learning\n",
    );
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    bed.expect_at(3, &frame(BROADCAST, mac(3)), &[4]);
    bed.expect_at(4, &frame(BROADCAST, mac(4)), &[3]);
    assert_eq!(count(&bed, ""), 1);
    bed.learned(mac(4), 1, Some("p4"));
    bed.configure("mac address-table learning vlan 10\ninterface p3\nmac address-table learning");
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    bed.expect_at(3, &frame(BROADCAST, mac(3)), &[4]);
    assert_eq!(count(&bed, ""), 3);
}

fn limit_of_a_port(plane: Plane) {
    let bed = Bed::new(plane, 4, &format!("{FOUR}interface p1\n mac address-table limit 3\n"));
    bed.expect_at(2, &frame(BROADCAST, mac(2)), &[1, 3, 4]);
    bed.exchange(1, &stations(100, 20));
    assert_eq!((count(&bed, "interface p1"), count(&bed, "")), (3, 4));
    // Frames for an address that was refused are flooded; other addresses are not affected.
    bed.expect_at(2, &frame(mac(100), mac(2)), &[1]);
    bed.expect_at(2, &frame(mac(110), mac(2)), &[1, 3, 4]);
    bed.expect_at(3, &frame(mac(2), mac(3)), &[2]);
    // A station can move away from the full port, and none can move to it.
    bed.expect_at(3, &frame(BROADCAST, mac(100)), &[1, 2, 4]);
    bed.learned(mac(100), 1, Some("p3"));
    bed.exchange(1, &stations(120, 2));
    assert_eq!(count(&bed, "interface p1"), 3);
    bed.exchange(1, &stations(100, 1));
    bed.learned(mac(100), 1, Some("p3"));
    bed.configure("interface p1\nno mac address-table limit");
    bed.exchange(1, &stations(100, 20));
    assert_eq!(count(&bed, "interface p1"), 21);
}

fn limit_of_a_vlan(plane: Plane) {
    let bed = Bed::new(
        plane,
        3,
        "vlan 10\n mac address-table limit 4\ninterface range p1 - 3\n switchport mode trunk\n",
    );
    let tagged = |first, count| stations(first, count).iter().map(|f| f.vlan(10)).collect::<Vec<_>>();
    bed.exchange(2, &tagged(2, 1));
    bed.exchange(1, &tagged(100, 20));
    bed.exchange(1, &stations(100, 20));
    assert_eq!((count(&bed, "vlan 10"), count(&bed, "vlan 1")), (4, 20));
    bed.learned(mac(2), 10, Some("p2"));
    // A move takes no additional entry.
    bed.exchange(3, &tagged(2, 1));
    bed.learned(mac(2), 10, Some("p3"));
}

fn limit_of_the_table(plane: Plane) {
    let bed = Bed::new(plane, 4, &format!("mac address-table limit 10\n{FOUR}"));
    bed.exchange(2, &stations(2, 1));
    bed.exchange(1, &stations(100, 50));
    let counted = bed.show("show mac address-table count");
    assert_eq!((&counted["dynamic"], &counted["capacity"]), (&10.into(), &10.into()), "{counted}");
    assert_eq!(counted["refused"], 41, "{counted}");
    // The host that filled the table has not displaced the other.
    bed.expect_at(3, &frame(mac(2), mac(3)), &[2]);
    bed.learned(mac(3), 1, None);
    bed.expect_at(1, &frame(mac(140), mac(100)), &[2, 3, 4]);
    bed.exec(&["clear mac address-table dynamic interface p1"]);
    bed.expect_at(3, &frame(mac(2), mac(3)), &[2]);
    bed.learned(mac(3), 1, Some("p3"));
}

fn static_entries(plane: Plane) {
    let config = "mac address-table static 0200.0000.0032 vlan 1 interface p2\nmac address-table static 0200.0000.0033 vlan 1 drop\n";
    let bed = Bed::new(plane, 4, &format!("{FOUR}{config}"));
    let (fixed, hole) = (mac(0x32), mac(0x33));
    assert_eq!(bed.entry(fixed, 1), Some(("p2".into(), "static".into())));
    bed.expect_at(1, &frame(fixed, mac(1)), &[2]);
    // A static address does not move, and is not flushed with the others.
    bed.expect_at(3, &frame(BROADCAST, fixed), &[1, 2, 4]);
    bed.exec(&["clear mac address-table dynamic"]);
    assert_eq!(bed.entry(fixed, 1), Some(("p2".into(), "static".into())));
    bed.expect_at(1, &frame(fixed, mac(1)), &[2]);
    bed.expect_drop(2, &frame(fixed, mac(2)), "same_port");
    bed.expect_drop(1, &frame(hole, mac(1)), "destination_blackhole");
    bed.expect_drop(1, &frame(mac(2), hole), "source_blackhole");
    bed.expect_drop(1, &frame(BROADCAST, hole), "source_blackhole");
    // A learned address is then configured as static.
    bed.learned(mac(1), 1, Some("p1"));
    bed.configure("mac address-table static 0200.0000.0001 vlan 1 interface p4");
    bed.expect_at(2, &frame(mac(1), mac(2)), &[4]);
    bed.configure("no mac address-table static 0200.0000.0001 vlan 1\nno mac address-table static 0200.0000.0033 vlan 1");
    bed.expect_at(2, &frame(mac(1), mac(2)), &[1, 3, 4]);
    bed.expect_at(1, &frame(BROADCAST, hole), &[2, 3, 4]);
    // Reserved and group addresses cannot be static.
    bed.expect_drop(1, &frame(reserved(3), mac(1)), "reserved_address");
}

/// `monitor events fdb` prints one JSON object per line.
fn events(plane: Plane) {
    let bed = Bed::new(plane, 4, FOUR);
    let mut command = Command::new(LANYARD);
    command.args(["cli", "--instance", &bed.instance, "-c", "monitor events fdb"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, receiver) = channel();
    let reader =
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(sender.send(line))));
    // The stream has begun when its first event arrives.
    wait_for("the stream", || {
        bed.exchange(4, &stations(999, 1));
        bed.exec(&["clear mac address-table dynamic"]);
        receiver.try_iter().last()
    });
    let next = |mac: [u8; 6]| -> Value {
        let text = text(mac);
        wait_for("an event", || {
            let line = receiver.try_recv().ok()?;
            let event: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            (event["mac"] == text.as_str()).then_some(event)
        })
    };
    bed.exchange(1, &stations(50, 1));
    let event = next(mac(50));
    assert_eq!((&event["type"], &event["action"]), (&"fdb".into(), &"add".into()), "{event}");
    assert_eq!((&event["interface"], &event["vlan"]), (&"p1".into(), &1.into()), "{event}");
    assert!(event["time"].is_string(), "{event}");
    bed.exchange(2, &stations(50, 1));
    let event = next(mac(50));
    assert_eq!(
        (&event["action"], &event["interface"], &event["from"]),
        (&"change".into(), &"p2".into(), &"p1".into()),
        "{event}"
    );
    bed.exec(&["clear mac address-table dynamic interface p2"]);
    let event = next(mac(50));
    assert_eq!((&event["action"], &event["interface"]), (&"delete".into(), &"p2".into()), "{event}");
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
}
