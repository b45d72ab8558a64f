//! ERSPAN: a collector gets each frame of the sources in a packet, whose every field this test reads by hand; the traffic
//! itself does not change.

use crate::harness::{BROADCAST, Bed, Frame, Plane, frame, mac, scenarios, wait_for};
use lanyard_netdev::PacketSocket;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

scenarios! {
    every_field_and_every_byte: ebpf soft;
    long_copies_are_fragmented_or_truncated: ebpf soft;
    a_conversation_with_segments: ebpf soft;
    copies_without_a_route_or_source_address_are_counted: ebpf soft;
    a_copy_is_never_copied_again: ebpf soft;
    the_session_ends_with_its_netdev: ebpf soft;
    a_restart_resumes: ebpf soft;
    a_vrf_routes_the_packets: ebpf soft;
}

/// Two access ports of VLAN 10, a trunk, and p4, a routed port towards the collector.
const FOUR: &str = "vlan 10,20\ninterface range p1 - 2\n switchport access vlan 10\ninterface p3\n switchport mode trunk\n \
                    switchport trunk allowed vlan 10,20\ninterface p4\n no switchport\n ip address 10.4.0.1/24\n";
/// A session towards the collector.
const DESTINATION: &str = "destination\nerspan-id 100\nip address 10.4.0.2\norigin ip address 10.4.0.1";
/// Values of the field En of the ERSPAN header, which describes the tag of the copied frame.
const UNTAGGED: u8 = 0;
const TAGGED: u8 = 3;

/// A switch with this session 1, and the collector, which is host 4.
fn bed(plane: Plane, session: &str) -> (Bed, Collector) {
    let bed = Bed::new(plane, 4, FOUR);
    // The kernel sends by the routed port, and the collector's kernel answers.
    bed.exact.set(false);
    bed.chatter.set(true);
    bed.host(4).address("10.4.0.2/24");
    let collector = Collector::new(&bed, 4);
    configure(&bed, session);
    wait_until_it_runs(&bed);
    (bed, collector)
}

fn configure(bed: &Bed, session: &str) {
    bed.configure(&format!("monitor session 1 type erspan-source\nno shutdown\n{session}"));
}

/// The session in `show monitor`.
fn shown(bed: &Bed) -> serde_json::Value {
    bed.ask("show monitor session 1")["sessions"][0]["erspan"].clone()
}

fn wait_until_it_runs(bed: &Bed) {
    wait_for("the session to run", || (shown(bed)["running"] == true).then_some(()));
}

/// Waits until this number of packets is counted as sent: a packet is counted after it has been sent.
fn wait_until_sent(bed: &Bed, count: u64) {
    wait_for("the count of copies", || (shown(bed)["sent"] == count).then_some(()));
}

fn dropped(bed: &Bed, reason: &str) -> u64 {
    shown(bed)["dropped"][reason].as_u64().unwrap()
}

/// The fields of a received ERSPAN packet, and the copied frame in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Copied {
    sequence: u32,
    session: u16,
    vlan: u16,
    cos: u8,
    tag: u8,
    truncated: bool,
    ttl: u8,
    tos: u8,
    /// The length of the packet with the IPv4 header.
    len: usize,
    frame: Frame,
}

/// The host to which the session sends its packets.
struct Collector {
    wire: PacketSocket,
    addresses: (Ipv4Addr, Ipv4Addr),
    /// Fragments by identification: offset, the flag for more, and the bytes.
    fragments: BTreeMap<u16, Vec<(usize, bool, Vec<u8>)>>,
    /// The number of packets that came in fragments.
    fragmented: usize,
}

impl Collector {
    fn new(bed: &Bed, host: usize) -> Self {
        let wire = bed.host(host).net.run(|| {
            let index = nix::net::if_::if_nametoindex("eth0").unwrap();
            PacketSocket::open(index).unwrap()
        });
        let addresses = (Ipv4Addr::new(10, 4, 0, 1), Ipv4Addr::new(10, 4, 0, 2));
        Self { wire, addresses, fragments: BTreeMap::new(), fragmented: 0 }
    }
    /// The next copy that has arrived.
    fn poll(&mut self) -> Option<Copied> {
        while let Some(packet) = self.wire.receive().unwrap() {
            if !packet.outgoing
                && let Some(copied) = self.packet(&packet.frame)
            {
                return Some(copied);
            }
        }
        None
    }
    fn next(&mut self) -> Copied {
        wait_for("a copy", || self.poll())
    }
    /// The next copy of exactly this frame; other copies are passed over.
    fn copy_of(&mut self, frame: &Frame) -> Copied {
        wait_for("the copy of a frame", || self.poll().filter(|copied| copied.frame == *frame))
    }
    /// Reads a frame; `None` if it is no GRE packet, or a fragment of one that is not complete.
    fn packet(&mut self, frame: &[u8]) -> Option<Copied> {
        let ip = frame.get(14..).filter(|_| frame[12..14] == [0x08, 0x00])?;
        (ip[9] == 47).then_some(())?;
        assert_eq!(ip[0], 0x45, "IPv4 without options");
        assert_eq!(checksum(&ip[..20], 0), 0xffff, "the header's checksum");
        let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).unwrap());
        assert_eq!((address(12), address(16)), self.addresses);
        let two = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
        let (len, id, flags) = (usize::from(two(2)), two(4), two(6));
        assert_eq!(flags & 0x4000, 0, "DF is clear");
        let (offset, more) = (usize::from(flags & 0x1fff) * 8, flags & 0x2000 != 0);
        let body = ip[20..len].to_vec();
        if offset == 0 && !more {
            return Some(gre(&body, ip[8], ip[1]));
        }
        let parts = self.fragments.entry(id).or_default();
        parts.push((offset, more, body));
        parts.sort();
        let mut whole = Vec::new();
        for (offset, more, part) in parts.iter() {
            (*offset == whole.len()).then_some(())?;
            whole.extend_from_slice(part);
            if !more {
                self.fragmented += 1;
                self.fragments.remove(&id);
                return Some(gre(&whole, ip[8], ip[1]));
            }
        }
        None
    }
}

/// Reads the GRE and ERSPAN headers of a packet, and the frame behind them.
fn gre(body: &[u8], ttl: u8, tos: u8) -> Copied {
    assert_eq!(body[..4], [0x10, 0x00, 0x88, 0xbe], "GRE with a sequence number, ERSPAN type II");
    let word = |at: usize| u32::from_be_bytes(body[at..at + 4].try_into().unwrap());
    let (sequence, first) = (word(4), word(8));
    assert_eq!(first >> 28, 1, "the version");
    assert_eq!(word(12), 0, "reserved and index");
    Copied {
        sequence,
        session: (first & 0x3ff) as u16,
        vlan: (first >> 16 & 0xfff) as u16,
        cos: (first >> 13 & 7) as u8,
        tag: (first >> 11 & 3) as u8,
        truncated: first >> 10 & 1 == 1,
        ttl,
        tos,
        len: 20 + body.len(),
        frame: Frame(body[16..].to_vec()),
    }
}

/// The ones' complement sum of 16-bit words.
fn checksum(bytes: &[u8], seed: u32) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or_default());
    let mut sum = bytes.chunks(2).map(word).fold(seed, |sum, word| sum + word);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn every_field_and_every_byte(plane: Plane) {
    let session =
        format!("source interface p1\nsource interface p3 rx\n{DESTINATION}\nip ttl 17\nip dscp 46");
    let (bed, mut collector) = bed(plane, &session);
    let copied = |sequence, vlan, cos, tag, frame: &Frame| Copied {
        sequence,
        session: 100,
        vlan,
        cos,
        tag,
        truncated: false,
        ttl: 17,
        tos: 46 << 2,
        len: 36 + frame.0.len(),
        frame: frame.clone(),
    };
    let received = frame(BROADCAST, mac(1));
    bed.expect(1, &received, &[(2, received.clone()), (3, received.vlan(10))]);
    assert_eq!(collector.next(), copied(0, 10, 0, UNTAGGED, &received), "an access port receives");
    let sent = frame(mac(1), mac(2));
    bed.expect(2, &sent, &[(1, sent.clone())]);
    assert_eq!(collector.next(), copied(1, 10, 0, UNTAGGED, &sent), "it sends");
    let tagged = frame(BROADCAST, mac(3)).tag(0x8100, 5, 20);
    bed.expect(3, &tagged, &[]);
    assert_eq!(collector.next(), copied(2, 20, 5, TAGGED, &tagged), "a trunk receives with a tag");
    let native = frame(mac(9), mac(3));
    bed.expect(3, &native, &[]);
    assert_eq!(collector.next(), copied(3, 0, 0, UNTAGGED, &native), "dropped, of no VLAN");
    let double = frame(BROADCAST, mac(3)).tag(0x88a8, 1, 30).tag(0x8100, 6, 10);
    let inner = double.untagged();
    bed.expect(3, &double, &[(1, inner.clone()), (2, inner.clone())]);
    assert_eq!(collector.next(), copied(4, 10, 6, TAGGED, &double), "both tags");
    assert_eq!(collector.next(), copied(5, 10, 1, TAGGED, &inner), "p1 sends it with the inner one");
    wait_until_sent(&bed, 6);
    let shown = bed.show("show monitor session 1");
    let session = &shown["sessions"][0];
    assert_eq!(session["type"], "erspan source");
    let erspan = &session["erspan"];
    let want = serde_json::json!({
        "enabled": true, "erspan_id": 100, "destination_address": "10.4.0.2", "origin_address": "10.4.0.1", "ttl": 17,
        "dscp": 46, "mtu": 9000, "header_type": 2, "vrf": null, "running": true, "error": null, "sent": 6, "truncated": 0,
        "dropped": {"no_route": 0, "no_origin": 0, "erspan": 0, "queue_full": 0, "overflow": 0, "not_running": 0, "refused": 0},
    });
    assert_eq!(erspan, &want);
    assert!(!bed.counters().contains_key("lyerspan1"), "the netdev is no interface of the switch");
}

fn long_copies_are_fragmented_or_truncated(plane: Plane) {
    let (bed, mut collector) = bed(plane, &format!("source interface p1 rx\n{DESTINATION}"));
    let long = frame(BROADCAST, mac(1)).len(1514);
    bed.expect(1, &long, &[(2, long.clone()), (3, long.vlan(10))]);
    let copied = collector.next();
    assert_eq!((&copied.frame, copied.truncated, copied.len), (&long, false, 1550));
    assert_eq!(collector.fragmented, 1, "1550 bytes over a wire of 1500");
    configure(&bed, "destination\nmtu 200");
    let other = frame(BROADCAST, mac(1)).len(1000);
    bed.expect(1, &other, &[(2, other.clone()), (3, other.vlan(10))]);
    let copied = collector.next();
    assert_eq!((copied.frame, copied.truncated, copied.len), (other.len(200 - 36), true, 200));
    wait_until_sent(&bed, 2);
    assert_eq!(shown(&bed)["truncated"], 1);
}

/// TCP between two hosts, whose kernels pass segments of several frames: each copy is one frame as on a wire.
fn a_conversation_with_segments(plane: Plane) {
    let (bed, mut collector) = bed(plane, &format!("source interface p1\n{DESTINATION}"));
    bed.host(1).address("10.0.0.1/24");
    bed.host(2).address("10.0.0.2/24");
    bed.host(1).reaches("10.0.0.2");
    const BYTES: usize = 1 << 17;
    bed.host(1).tcp(bed.host(2), "10.0.0.2", BYTES);
    let mut bytes = 0;
    let mut finished = false;
    while !finished {
        let Frame(frame) = collector.next().frame;
        assert!(frame.len() <= 1514, "{} bytes", frame.len());
        if frame[12..14] != [0x08, 0x00] || frame[23] != 6 {
            continue;
        }
        let ip = &frame[14..];
        let (ip, rest) = ip.split_at(usize::from(u16::from_be_bytes([ip[2], ip[3]])));
        assert!(rest.len() <= 46, "padding of a short frame at most");
        let tcp = &ip[20..];
        let pseudo = u32::from(checksum(&ip[12..20], 6 + tcp.len() as u32));
        assert_eq!(checksum(tcp, pseudo), 0xffff, "the segment's checksum");
        if ip[12..16] == [10, 0, 0, 1] {
            bytes += tcp.len() - usize::from(tcp[12] >> 4) * 4;
            finished = tcp[13] & 1 == 1;
        }
    }
    assert!(bytes >= BYTES, "{bytes} of {BYTES} bytes were copied");
    assert_eq!(dropped(&bed, "overflow"), 0);
}

fn copies_without_a_route_or_source_address_are_counted(plane: Plane) {
    let (bed, mut collector) = bed(plane, &format!("source interface p1 rx\n{DESTINATION}"));
    let send = || _ = bed.exchange(1, &[frame(mac(9), mac(1))]);
    send();
    assert_eq!(collector.next().sequence, 0);
    configure(&bed, "destination\nip address 192.0.2.9");
    send();
    wait_for("a copy without a route", || (dropped(&bed, "no_route") == 1).then_some(()));
    configure(&bed, "destination\nip address 10.4.0.2\norigin ip address 10.4.0.99");
    send();
    wait_for("a copy without a source address", || (dropped(&bed, "no_origin") == 1).then_some(()));
    configure(&bed, "destination\norigin ip address 10.4.0.1");
    send();
    assert_eq!(collector.next().sequence, 1, "numbers count what was sent");
}

/// The packets leave by a port that is a source itself, and the collector's kernel answers with ICMP errors that quote them.
fn a_copy_is_never_copied_again(plane: Plane) {
    let bed = Bed::new(plane, 2, "vlan 10\ninterface range p1 - 2\n switchport access vlan 10\n");
    bed.exact.set(false);
    bed.chatter.set(true);
    bed.configure("interface vlan 10\nip address 10.4.0.1/24");
    bed.host(2).address("10.4.0.2/24");
    bed.host(2).reaches("10.4.0.1");
    let mut collector = Collector::new(&bed, 2);
    configure(&bed, &format!("source vlan 10\nsource vlan 1\n{DESTINATION}"));
    wait_until_it_runs(&bed);
    let long = frame(BROADCAST, mac(1)).len(1514);
    bed.expect(1, &long, &[(2, long.clone())]);
    // p1 receives the frame, p2 sends it, and so does the interface of VLAN 10.
    let numbers: Vec<u32> = (0..2).map(|_| collector.copy_of(&long).sequence).collect();
    assert!(numbers[0] < numbers[1]);
    // Each packet passes p2 in two fragments, and so does the ICMP error about it.
    wait_for("the copies that are not sent", || (dropped(&bed, "erspan") >= 4).then_some(()));
    let other = frame(mac(2), mac(1));
    bed.expect(1, &other, &[(2, other.clone())]);
    let last = collector.copy_of(&other);
    assert_eq!(last.session, 100);
    for _ in 0..2 {
        // The kernels send further single frames, which are copied as well; no copy contains an ERSPAN packet.
        bed.exchange(1, &[frame(mac(2), mac(1))]);
        while let Some(copied) = collector.poll() {
            let protocol = copied.frame.0.get(23).copied().filter(|_| copied.frame.0[12..14] == [8, 0]);
            assert!(protocol != Some(47), "{copied:?}");
        }
    }
}

fn the_session_ends_with_its_netdev(plane: Plane) {
    let (bed, mut collector) = bed(plane, &format!("source interface p1 rx\n{DESTINATION}"));
    let has_netdev = || bed.net.links().contains(&"lyerspan1".to_owned());
    assert!(has_netdev());
    bed.net.ip("link del lyerspan1");
    let again = || {
        wait_until_it_runs(&bed);
        has_netdev().then_some(())
    };
    wait_for("the netdev to be made again", again);
    let sent = frame(mac(9), mac(1));
    bed.expect(1, &sent, &[(2, sent.clone()), (3, sent.vlan(10))]);
    assert_eq!(collector.next().frame, sent);
    bed.configure("monitor session 1 type erspan-source\nshutdown");
    assert!(!has_netdev(), "a session that is shut down has none");
    let sent = frame(mac(9), mac(1));
    bed.expect(1, &sent, &[(2, sent.clone()), (3, sent.vlan(10))]);
    assert_eq!(shown(&bed)["running"], false);
    bed.configure("monitor session 1 type erspan-source\nno shutdown");
    wait_until_it_runs(&bed);
    let sent = frame(mac(9), mac(1));
    bed.expect(1, &sent, &[(2, sent.clone()), (3, sent.vlan(10))]);
    assert_eq!(collector.next().frame, sent, "the first copy since then");
    bed.configure("no monitor session 1");
    assert!(!has_netdev());
}

fn a_restart_resumes(plane: Plane) {
    let (bed, mut collector) = bed(plane, &format!("source interface p1 rx\n{DESTINATION}"));
    bed.exec(&["write memory"]);
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    if plane == Plane::ebpf {
        // The programs forward, and count the copies that have no netdev to go to.
        let lost = frame(BROADCAST, mac(1));
        bed.host(1).send(&lost);
        wait_for("the frame", || bed.host(2).next().filter(|frame| *frame == lost));
    }
    bed.start();
    wait_until_it_runs(&bed);
    let sent = frame(mac(9), mac(1));
    bed.expect(1, &sent, &[(2, sent.clone()), (3, sent.vlan(10))]);
    let copied = collector.next();
    assert_eq!((copied.frame, copied.sequence), (sent, 0));
    if plane == Plane::ebpf {
        assert_eq!(dropped(&bed, "not_running"), 1);
    }
}

/// p4, behind which the collector is, moves to a VRF: the session reaches the collector in that VRF only.
fn a_vrf_routes_the_packets(plane: Plane) {
    let (bed, mut collector) = bed(plane, &format!("source interface p1 rx\n{DESTINATION}"));
    // VRFs are named network namespaces of the whole machine, so the name is unique.
    let red = format!("red-{}", bed.instance);
    bed.configure(&format!(
        "vrf definition {red}\naddress-family ipv4\ninterface p4\nvrf forwarding {red}\nip address 10.4.0.1/24"
    ));
    let sent = frame(mac(9), mac(1));
    let lost = || {
        bed.host(1).send(&sent);
        let drops = shown(&bed)["dropped"].clone();
        (drops["no_origin"] != 0).then_some(())
    };
    wait_for("a copy without the address", lost);
    configure(&bed, &format!("destination\nvrf {red}"));
    wait_until_it_runs(&bed);
    assert_eq!(shown(&bed)["vrf"], red);
    bed.host(1).send(&sent);
    let copied = collector.next();
    assert_eq!((copied.frame, copied.session), (sent, 100));
    bed.configure(&format!("no vrf definition {red}"));
    assert_eq!(shown(&bed)["vrf"], serde_json::Value::Null);
}
