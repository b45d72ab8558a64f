//! ERSPAN destination sessions: host 1 sends packets whose headers this test writes by hand, and the ports of the session send
//! exactly the frames in them.

use crate::harness::{BROADCAST, Bed, Frame, Plane, frame, mac, scenarios, wait_for};
use lanyard_netdev::GreSocket;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

scenarios! {
    frames_leave_as_they_were_copied: ebpf soft;
    frames_that_a_destination_session_cannot_send_are_counted: ebpf soft;
    erspan_packets_that_cannot_be_decoded_are_counted_by_reason: ebpf soft;
    a_session_of_a_vrf_receives_its_packets_only: ebpf soft;
    both_ends_at_one_switch: ebpf soft;
    the_rate_of_each_end: ebpf soft;
}

/// p1 is a routed port towards the source; p2 and p3 are the ports of session 1, and p4 is in VLAN 10, for which p2 is configured
/// as well.
const FOUR: &str = "vlan 10\ninterface p1\n no switchport\n ip address 10.4.0.1/24\n\
                    interface range p2 , p4\n switchport access vlan 10\ninterface p3\n switchport\n";
const SESSION: &str = "monitor session 1 type erspan-destination\ndestination interface p2 , p3\nno shutdown\nsource\n\
                       erspan-id 100\nip address 10.4.0.1";
const SWITCH: Ipv4Addr = Ipv4Addr::new(10, 4, 0, 1);
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 4, 0, 2);

/// A switch with session 1, and the host that sends packets.
fn bed(plane: Plane) -> (Bed, Sender) {
    let bed = Bed::new(plane, 4, FOUR);
    // The kernels exchange ARP.
    bed.exact.set(false);
    bed.chatter.set(true);
    bed.host(1).address("10.4.0.2/24");
    bed.configure(SESSION);
    wait_until_it_runs(&bed);
    bed.host(1).reaches("10.4.0.1");
    let sender = Sender::new(&bed, 1);
    (bed, sender)
}

/// The session in `show monitor`.
fn shown(bed: &Bed) -> serde_json::Value {
    bed.ask("show monitor session 1")["sessions"][0]["erspan_destination"].clone()
}

fn wait_until_it_runs(bed: &Bed) {
    wait_for("the session to run", || (shown(bed)["running"] == true).then_some(()));
}

fn wait_for_count(bed: &Bed, part: &str, reason: &str, count: u64) {
    wait_for(&format!("{count} {reason}"), || (shown(bed)[part][reason] == count).then_some(()));
}

/// A host's socket for GRE packets.
struct Sender(GreSocket);

impl Sender {
    fn new(bed: &Bed, host: usize) -> Self {
        let socket = bed.host(host).net.run(GreSocket::open).unwrap();
        socket.set(64, 0).unwrap();
        Self(socket)
    }
    fn send(&self, payload: &[u8]) {
        self.0.send(SOURCE, SWITCH, payload).unwrap();
    }
}

/// A GRE header with a sequence number, and behind it the parts in `rest`.
fn gre(protocol: u16, rest: &[&[u8]]) -> Vec<u8> {
    let mut packet = vec![0x10, 0x00];
    packet.extend_from_slice(&protocol.to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0, 9]);
    rest.iter().for_each(|part| packet.extend_from_slice(part));
    packet
}

/// An ERSPAN packet of type II for VLAN 10. `id` is the 16-bit word with the session's identifier and the bits beside it.
fn type_two(id: u16, frame: &Frame) -> Vec<u8> {
    gre(0x88be, &[&[0x10, 10], &id.to_be_bytes(), &[0; 4], &frame.0])
}

/// An ERSPAN packet of type III with a timestamp. If `platform` is not empty, it is the platform-specific part, and its flag is
/// set.
fn type_three(id: u16, platform: &[u8], frame: &Frame) -> Vec<u8> {
    let flags = [0x80, u8::from(!platform.is_empty())];
    gre(0x22eb, &[&[0x20, 10], &id.to_be_bytes(), &[1, 2, 3, 4, 0, 0], &flags, platform, &frame.0])
}

/// Waits until hosts 2 and 3 have received exactly these frames.
fn expect(bed: &Bed, frames: &[&Frame]) {
    for host in [2, 3] {
        for wanted in frames {
            let next = wait_for("a frame", || bed.host(host).next());
            assert_eq!(&&next, wanted, "host {host}");
        }
        assert_eq!(bed.host(host).next(), None, "host {host}");
    }
}

fn frames_leave_as_they_were_copied(plane: Plane) {
    let (bed, sender) = bed(plane);
    let plain = frame(mac(9), mac(8));
    let double = frame(BROADCAST, mac(8)).tag(0x88a8, 1, 30).tag(0x8100, 6, 10);
    let long = frame(mac(9), mac(8)).len(1514);
    sender.send(&type_two(100, &plain));
    sender.send(&type_two(100 | 3 << 11, &double));
    sender.send(&type_two(100 | 1 << 10, &plain.clone().len(200)));
    // This packet takes two fragments on the wire.
    sender.send(&type_two(100, &long));
    sender.send(&type_three(100, &[], &double));
    sender.send(&type_three(100, &[0xee; 8], &plain));
    expect(&bed, &[&plain, &double, &plain.clone().len(200), &long, &double, &plain]);
    wait_for("the counts", || (shown(&bed)["sent"] == 12).then_some(()));
    let want = serde_json::json!({
        "enabled": true, "erspan_id": 100, "address": "10.4.0.1", "vrf": null, "running": true, "error": null,
        "received": 6, "truncated": 1, "sent": 12,
        "dropped": {"port_down": 0, "too_long": 0, "queue_full": 0, "refused": 0},
        "packets_dropped": {"unknown_id": 0, "overflow": 0, "too_short": 0, "gre_header": 0, "gre_checksum": 0,
                            "version": 0, "type_1": 0, "not_ethernet": 0},
    });
    assert_eq!(shown(&bed), want);
    // The ports send copies only, and frames that they receive are dropped.
    bed.expect(4, &frame(BROADCAST, mac(4)), &[]);
    bed.expect_drop(2, &frame(BROADCAST, mac(2)), "mirror_destination");
    bed.configure("no monitor session 1");
    sender.send(&type_two(100, &plain));
    bed.host(1).reaches("10.4.0.1");
    assert_eq!(bed.host(3).next(), None);
}

fn frames_that_a_destination_session_cannot_send_are_counted(plane: Plane) {
    let (bed, sender) = bed(plane);
    sender.send(&type_two(100, &frame(mac(9), mac(8)).len(1600)));
    wait_for_count(&bed, "dropped", "too_long", 2);
    bed.configure("interface p2\nshutdown");
    let plain = frame(mac(9), mac(8));
    sender.send(&type_two(100, &plain));
    assert_eq!(wait_for("the frame", || bed.host(3).next()), plain);
    wait_for_count(&bed, "dropped", "port_down", 1);
    bed.configure("interface p2\nno shutdown");
    wait_for("p2 to send", || {
        sender.send(&type_two(100, &plain));
        bed.host(2).next().filter(|frame| *frame == plain)
    });
    // The session names an address that the switch does not have yet.
    bed.configure("monitor session 1 type erspan-destination\nsource\nip address 10.4.0.7");
    wait_for("the reason", || {
        shown(&bed)["error"]
            .as_str()
            .is_some_and(|text| text.contains("10.4.0.7 is no address"))
            .then_some(())
    });
    assert_eq!(shown(&bed)["running"], false);
    bed.configure("interface p1\nip address 10.4.0.7/24");
    wait_until_it_runs(&bed);
}

fn erspan_packets_that_cannot_be_decoded_are_counted_by_reason(plane: Plane) {
    let (bed, sender) = bed(plane);
    let plain = frame(mac(9), mac(8));
    let good = type_two(100, &plain);
    sender.send(&type_two(101, &plain));
    sender.send(&good[..29]);
    sender.send(&[&[0x50], &good[1..]].concat());
    sender.send(&[&[0x90, 0, 0x88, 0xbe, 1, 2, 3, 4], &good[4..]].concat());
    sender.send(&[&good[..8], &[0x20], &good[9..]].concat());
    sender.send(&[&[0, 0, 0x88, 0xbe], plain.0.as_slice()].concat());
    let mut packet = type_three(100, &[], &plain);
    packet[18] |= 2 << 2;
    sender.send(&packet);
    // A GRE packet with another protocol does not belong to the session.
    sender.send(&gre(0x0800, &[&[0x45; 40]]));
    sender.send(&good);
    expect(&bed, &[&plain]);
    let reasons =
        ["unknown_id", "too_short", "gre_header", "gre_checksum", "version", "type_1", "not_ethernet"];
    for reason in reasons {
        wait_for_count(&bed, "packets_dropped", reason, 1);
    }
    assert_eq!(shown(&bed)["received"], 1);
    // The kernel still receives all other packets to the address.
    bed.host(1).reaches("10.4.0.1");
}

fn a_session_of_a_vrf_receives_its_packets_only(plane: Plane) {
    let (bed, sender) = bed(plane);
    // The same address in a VRF, at p4. VRFs are named network namespaces of the whole machine, so the name is unique.
    let red = format!("red-{}", bed.instance);
    bed.configure(&format!(
        "vrf definition {red}\naddress-family ipv4\ninterface p4\nno switchport\nvrf forwarding {red}\nip address 10.4.0.1/24"
    ));
    bed.host(4).address("10.4.0.2/24");
    bed.host(4).reaches("10.4.0.1");
    let other = Sender::new(&bed, 4);
    let (one, two) = (frame(mac(9), mac(1)), frame(mac(9), mac(4)));
    other.send(&type_two(100, &two));
    sender.send(&type_two(100, &one));
    expect(&bed, &[&one]);
    bed.configure(&format!("monitor session 1 type erspan-destination\nsource\nvrf {red}"));
    wait_until_it_runs(&bed);
    sender.send(&type_two(100, &one));
    other.send(&type_two(100, &two));
    expect(&bed, &[&two]);
    assert_eq!(shown(&bed)["vrf"], red);
    bed.configure(&format!("no vrf definition {red}"));
    assert_eq!(shown(&bed)["vrf"], serde_json::Value::Null);
}

/// A source session sends to an address of the same switch, whose destination session sends the copies on.
fn both_ends_at_one_switch(plane: Plane) {
    let (bed, _) = bed(plane);
    bed.net.ip("link set lo up");
    for header in [2, 3] {
        bed.configure(&format!(
            "monitor session 2 type erspan-source\nsource interface p4 rx\nheader-type {header}\nno shutdown\ndestination\n\
             erspan-id 100\nip address 10.4.0.1\norigin ip address 10.4.0.1"
        ));
        let source = || bed.ask("show monitor session 2")["sessions"][0]["erspan"].clone();
        wait_for("the source to run", || (source()["running"] == true).then_some(()));
        assert_eq!(source()["header_type"], header);
        let sent = [frame(BROADCAST, mac(4)).len(1514), frame(BROADCAST, mac(4)).tag(0x8100, 5, 10)];
        sent.iter().for_each(|frame| bed.host(4).send(frame));
        expect(&bed, &sent.each_ref());
        bed.configure("no monitor session 2");
    }
}

/// A second of packets for the destination session, then a second of frames for a source session. The rates are printed; the
/// limit is lower than the goal of 100,000 a second, because other tests run at the same time.
fn the_rate_of_each_end(plane: Plane) {
    const LEAST: u64 = 10_000;
    let (bed, sender) = bed(plane);
    let copy = frame(mac(9), mac(4)).len(128);
    let packet = type_two(100, &copy);
    let offer = |send: &dyn Fn()| {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(1) {
            (0..64).for_each(|_| send());
        }
    };
    // The time of a figure ends with the last copy. A queue without room drops packets, and does not prolong the time.
    let settled = |count: &dyn Fn() -> u64| {
        let mut last = u64::MAX;
        wait_for("the last copy", || {
            let now = count();
            (std::mem::replace(&mut last, now) == now && now >= LEAST).then_some(now)
        })
    };
    let begin = Instant::now();
    offer(&|| drop(sender.0.send(SOURCE, SWITCH, &packet)));
    let received = settled(&|| shown(&bed)["received"].as_u64().unwrap());
    let took = begin.elapsed();
    println!("{plane:?}: {received} packets received in {took:?}, {}", shown(&bed)["packets_dropped"]);
    bed.configure(
        "monitor session 2 type erspan-source\nsource interface p4 rx\nno shutdown\ndestination\nerspan-id 100\n\
         ip address 10.4.0.2\norigin ip address 10.4.0.1",
    );
    let source = || bed.ask("show monitor session 2")["sessions"][0]["erspan"].clone();
    wait_for("the source to run", || (source()["running"] == true).then_some(()));
    let begin = Instant::now();
    offer(&|| drop(bed.host(4).try_send(&copy)));
    let sent = settled(&|| source()["sent"].as_u64().unwrap());
    println!("{plane:?}: {sent} copies sent in {:?}, {}", begin.elapsed(), source()["dropped"]);
}
