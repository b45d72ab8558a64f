//! sFlow: a collector gets samples and counters. The datagrams are read by a decoder of this test, and by tcpdump.

use crate::capture::has_tcpdump;
use crate::harness::{BROADCAST, Bed, Frame, Plane, frame, mac, scenarios, wait_for};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::Command;

scenarios! {
    every_frame_is_sampled_at_rate_1: ebpf soft;
    one_frame_in_so_many: ebpf soft;
    one_frame_in_so_many_on_xdp: ebpf;
    counters_are_sent: ebpf soft;
    tcpdump_reads_the_datagrams: ebpf soft;
    a_restart_keeps_sampling: ebpf soft;
}

/// Two access ports of VLAN 10, a trunk, and a routed port.
const FOUR: &str = "vlan 10,20\ninterface range p1 - 2\n switchport access vlan 10\ninterface p3\n switchport mode trunk\n \
                    switchport trunk allowed vlan 10,20\ninterface p4\n no switchport\n ip address 10.4.0.1/24\n";

/// A flow sample in a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sample {
    sequence: u32,
    ifindex: u32,
    rate: u32,
    pool: u32,
    drops: u32,
    len: u32,
    head: Vec<u8>,
    /// Source VLAN and priority, destination VLAN and priority.
    switch: Option<[u32; 4]>,
}

/// Takes numbers from the front of a datagram.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, n: u32) -> &'a [u8] {
        let (front, rest) = self.0.split_at(n as usize);
        self.0 = rest;
        front
    }
    fn number(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes(4).try_into().unwrap())
    }
    fn numbers<const N: usize>(&mut self) -> [u32; N] {
        std::array::from_fn(|_| self.number())
    }
    /// Takes a structure from the front: its format, its length, and its bytes.
    fn part(&mut self) -> (u32, Reader<'a>) {
        let [format, len] = self.numbers();
        (format, Reader(self.bytes(len)))
    }
}

/// The collector.
struct Collector {
    socket: UdpSocket,
    samples: Vec<Sample>,
    /// The generic counters of interfaces, by ifindex: the 22 words of the last sample.
    counters: BTreeMap<u32, Vec<u32>>,
    /// The sequence number of the last counter sample, by ifindex.
    counter_sequences: BTreeMap<u32, u32>,
    datagrams: Vec<Vec<u8>>,
    sequence: u32,
}

impl Collector {
    fn new(bed: &Bed) -> Self {
        bed.net.ip("link set lo up");
        let socket = bed.net.run(|| UdpSocket::bind("127.0.0.1:6343").unwrap());
        socket.set_nonblocking(true).unwrap();
        let (counters, counter_sequences) = (BTreeMap::new(), BTreeMap::new());
        Self { socket, samples: vec![], counters, counter_sequences, datagrams: vec![], sequence: 0 }
    }
    /// Reads what has arrived.
    fn read(&mut self) {
        let mut buffer = [0; 2000];
        while let Ok(len) = self.socket.recv(&mut buffer) {
            self.datagram(&buffer[..len]);
            self.datagrams.push(buffer[..len].to_vec());
        }
    }
    fn datagram(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= 1400, "{} bytes", bytes.len());
        let mut r = Reader(bytes);
        let [version, family, agent, sub_agent, sequence, _uptime, count] = r.numbers();
        assert_eq!((version, family, agent, sub_agent), (5, 1, 0x7f00_0001, 0));
        assert_eq!(sequence, self.sequence + 1, "no datagram is lost on a loopback device");
        self.sequence = sequence;
        for _ in 0..count {
            match r.part() {
                (1, body) => self.flow(body),
                (2, body) => self.counters_of(body),
                (format, _) => panic!("a sample of format {format}"),
            }
        }
        assert!(r.0.is_empty(), "{} bytes behind the last sample", r.0.len());
    }
    fn flow(&mut self, mut r: Reader<'_>) {
        let [sequence, ifindex, rate, pool, drops, input, output, count] = r.numbers();
        assert_eq!((input, output), (ifindex, 0));
        let last = self.samples.iter().rev().find(|last| last.ifindex == ifindex);
        let (last_sequence, last_pool) = last.map_or((0, 0), |last| (last.sequence, last.pool));
        assert_eq!(sequence, last_sequence + 1, "the samples of interface {ifindex} are numbered");
        assert!(pool >= last_pool, "the pool of interface {ifindex} falls from {last_pool} to {pool}");
        let mut sample = Sample { sequence, ifindex, rate, pool, drops, len: 0, head: vec![], switch: None };
        for _ in 0..count {
            match r.part() {
                (1, mut raw) => {
                    let [protocol, len, stripped, size] = raw.numbers();
                    assert_eq!((protocol, stripped), (1, 4));
                    sample.len = len - stripped;
                    sample.head = raw.bytes(size).to_vec();
                    assert!(raw.0.len() < 4 && raw.0.iter().all(|byte| *byte == 0));
                }
                (1001, mut switch) => sample.switch = Some(switch.numbers()),
                (format, _) => panic!("a record of format {format}"),
            }
        }
        self.samples.push(sample);
    }
    fn counters_of(&mut self, mut r: Reader<'_>) {
        let [sequence, ifindex, count] = r.numbers();
        assert_eq!(count, 1);
        let last = self.counter_sequences.insert(ifindex, sequence).unwrap_or(0);
        assert_eq!(sequence, last + 1, "the counter samples of interface {ifindex} are numbered");
        let (format, mut body) = r.part();
        assert_eq!((format, body.0.len()), (1, 88));
        let words: [u32; 22] = body.numbers();
        self.counters.insert(ifindex, words.to_vec());
    }
    /// Waits until all samples that the switch has taken have arrived, and asserts that these are `count`.
    fn wait(&mut self, bed: &Bed, count: usize) {
        let taken = || {
            let shown = bed.ask("show sflow");
            let interfaces = shown["interfaces"].as_array().unwrap();
            interfaces.iter().map(|one| one["samples"].as_u64().unwrap() as usize).sum::<usize>()
        };
        wait_for("samples", || {
            self.read();
            (self.samples.len() >= count && self.samples.len() == taken()).then_some(())
        });
        assert_eq!(self.samples.len(), count, "{:?}", self.samples);
    }
}

/// A switch that samples p1, p3 and p4 at this rate, and its collector.
fn bed(plane: Plane, rate: u32, polling_s: u32) -> (Bed, Collector) {
    let bed = Bed::new(plane, 4, FOUR);
    let collector = Collector::new(&bed);
    bed.configure(&format!(
        "sflow sampling-rate {rate}\nsflow polling-interval {polling_s}\nsflow collector 127.0.0.1\ninterface p1\n \
         sflow enable\ninterface p3\n sflow enable\ninterface p4\n sflow enable"
    ));
    // The kernel sends packets of its own by the routed port, which the plane does not count.
    bed.exact.set(false);
    (bed, collector)
}

fn index(bed: &Bed, n: usize) -> u32 {
    bed.net.index(&format!("p{n}"))
}

fn every_frame_is_sampled_at_rate_1(plane: Plane) {
    let (bed, mut collector) = bed(plane, 1, 0);
    let sent = [
        (1, frame(BROADCAST, mac(1)), Some([10, 0, 10, 0])),
        (3, frame(BROADCAST, mac(3)).len(1000).tag(0x8100, 5, 20), Some([20, 5, 20, 5])),
        // Dropped by an access port: a tag of another VLAN.
        (1, frame(mac(2), mac(1)).vlan(20), Some([20, 0, 20, 0])),
        (4, frame(BROADCAST, mac(4)).vlan(7), None),
        (2, frame(mac(1), mac(2)), None),
    ];
    for (from, frame, _) in &sent {
        bed.exchange(*from, std::slice::from_ref(frame));
    }
    collector.wait(&bed, 4);
    let got: BTreeMap<(u32, Vec<u8>), &Sample> =
        collector.samples.iter().map(|sample| ((sample.ifindex, sample.head.clone()), sample)).collect();
    for (from, Frame(bytes), switch) in &sent[..4] {
        let head = bytes[..bytes.len().min(128)].to_vec();
        let sample = got.get(&(index(&bed, *from), head)).unwrap_or_else(|| panic!("from p{from}: {got:?}"));
        assert_eq!((sample.len as usize, sample.rate, sample.drops), (bytes.len(), 1, 0));
        assert_eq!(sample.switch, *switch, "from p{from}");
    }
    assert!(collector.samples.iter().all(|sample| sample.ifindex != index(&bed, 2)), "p2 is not sampled");
    let shown = bed.show("show sflow");
    assert_eq!((&shown["running"], &shown["agent_address"]), (&true.into(), &"127.0.0.1".into()));
    let p1 = shown["interfaces"].as_array().unwrap().iter().find(|one| one["interface"] == "p1").unwrap();
    assert_eq!((&p1["samples"], &p1["pool"], &p1["drops"]), (&2.into(), &2.into(), &0.into()), "{p1}");
    bed.configure("no sflow collector 127.0.0.1");
    collector.read();
    let before = collector.samples.len();
    bed.exchange(1, &[frame(BROADCAST, mac(1))]);
    collector.read();
    assert_eq!((collector.samples.len(), &bed.show("show sflow")["running"]), (before, &false.into()));
}

fn one_frame_in_so_many(plane: Plane) {
    statistics(bed(plane, 10, 0));
}

fn one_frame_in_so_many_on_xdp(plane: Plane) {
    let parts = bed(plane, 10, 0);
    parts.0.configure("interface range p1 - 3\nhook xdp");
    statistics(parts);
}

/// Sends known unicast, which XDP forwards itself, and floods: of 20,000 frames a tenth is sampled.
fn statistics((bed, mut collector): (Bed, Collector)) {
    const FRAMES: usize = 20_000;
    bed.exchange(2, &[frame(BROADCAST, mac(2))]);
    bed.exchange(1, &[frame(BROADCAST, mac(1))]);
    for n in 0..FRAMES / 100 {
        let to = if n % 10 == 0 { BROADCAST } else { mac(2) };
        let frames: Vec<Frame> = (0..100).map(|_| frame(to, mac(1))).collect();
        bed.exchange(1, &frames);
        collector.read();
    }
    let pool_end = |collector: &Collector| collector.samples.last().map_or(0, |sample| sample.pool);
    wait_for("the last samples", || {
        collector.read();
        let waiting = bed.show("show sflow")["interfaces"][0]["samples"].as_u64();
        (waiting == Some(collector.samples.len() as u64)).then_some(())
    });
    let (got, mean) = (collector.samples.len() as f64, FRAMES as f64 / 10.0);
    // Six standard deviations of a binomial distribution.
    let most = 6.0 * (mean * 0.9_f64).sqrt();
    assert!((got - mean).abs() < most, "{got} samples of {FRAMES} frames");
    let pool = f64::from(pool_end(&collector));
    // A processor reports what it has counted with its next sample.
    assert!(pool <= FRAMES as f64 + 200.0 && pool > FRAMES as f64 - 1_000.0, "a pool of {pool}");
    let to_one = collector.samples.iter().filter(|sample| sample.head[..6] == mac(2)).count() as f64;
    let share = to_one / got;
    assert!((0.85..0.95).contains(&share), "{share} of the samples are unicast, not 0.9");
    assert!(collector.samples.iter().all(|sample| sample.drops == 0));
}

fn counters_are_sent(plane: Plane) {
    let (bed, mut collector) = bed(plane, 4096, 1);
    let sent = frame(BROADCAST, mac(1)).len(500);
    bed.exchange(1, &[sent.clone(), sent.clone(), sent]);
    let p1 = index(&bed, 1);
    let words = wait_for("the counters", || {
        collector.read();
        collector.counters.get(&p1).filter(|words| words[8] >= 3).cloned()
    });
    // Words 2 and 3 are the speed, 6 and 7 the octets, 8 the unicast frames.
    assert_eq!((words[0], words[1], words[5]), (p1, 6, 3), "ifindex, ifType, status");
    assert_eq!((words[6], words[7], words[8]), (0, 1500, 3), "{words:?}");
    wait_for("the other interfaces", || {
        collector.read();
        [3, 4].iter().all(|n| collector.counters.contains_key(&index(&bed, *n))).then_some(())
    });
}

/// Writes the datagrams as packets into a capture file, which tcpdump reads.
fn tcpdump_reads_the_datagrams(plane: Plane) {
    if !has_tcpdump() {
        return println!("skipped: tcpdump is not installed");
    }
    let (bed, mut collector) = bed(plane, 1, 1);
    bed.exchange(3, &[frame(BROADCAST, mac(3)).len(1000).tag(0x8100, 5, 20)]);
    let p3 = index(&bed, 3);
    wait_for("a sample and counters", || {
        collector.read();
        let sampled = collector.samples.iter().any(|sample| sample.ifindex == p3);
        (sampled && collector.counters.contains_key(&p3)).then_some(())
    });
    // The header of a capture file with raw IP packets.
    let mut file: Vec<u8> = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101].map(u32::to_le_bytes).concat();
    for datagram in &collector.datagrams {
        let len = datagram.len() as u32 + 28;
        file.extend([0, 0, len, len].map(u32::to_le_bytes).concat());
        let ip_len = (len as u16).to_be_bytes();
        let udp_len = (len as u16 - 20).to_be_bytes();
        file.extend([0x45, 0, ip_len[0], ip_len[1], 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
        file.extend([0x80, 0, 0x18, 0xc7, udp_len[0], udp_len[1], 0, 0]);
        file.extend(datagram);
    }
    let path = bed.file("sflow.pcap");
    std::fs::write(&path, file).unwrap();
    let output = Command::new("tcpdump").args(["-nvvr"]).arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for wanted in [
        "sFlowv5, IPv4 agent 127.0.0.1".to_owned(),
        format!("type 0, idx {p3}, rate 1"),
        "src vlan 20, src pri 5, dst vlan 20, dst pri 5".to_owned(),
        "protocol Ethernet (1), length 1008, stripped bytes 4, header_size 128".to_owned(),
        format!("ifindex {p3}, iftype 6"),
    ] {
        assert!(text.contains(&wanted), "{wanted:?} is not in\n{text}");
    }
}

fn a_restart_keeps_sampling(plane: Plane) {
    let (bed, mut collector) = bed(plane, 1, 0);
    bed.exec(&["write memory"]);
    bed.exchange(1, &[frame(BROADCAST, mac(1))]);
    collector.wait(&bed, 1);
    bed.end_daemon(nix::sys::signal::Signal::SIGKILL);
    collector.read();
    (collector.sequence, collector.samples) = (0, vec![]);
    bed.start();
    let sent = frame(BROADCAST, mac(21));
    bed.exchange(1, std::slice::from_ref(&sent));
    wait_for("the sample", || {
        collector.read();
        collector.samples.iter().any(|sample| sample.head == sent.0).then_some(())
    });
}
