use super::*;

/// A decoder that reads a datagram field by field, as section 5 of sFlow version 5 lists them.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(n);
        self.0 = rest;
        head
    }
    fn u32(&mut self) -> u32 {
        self.take(4).iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
    }
    fn u64(&mut self) -> u64 {
        u64::from(self.u32()) << 32 | u64::from(self.u32())
    }
    /// A structure: its format and its bytes.
    fn record(&mut self) -> (u32, Self) {
        let (format, len) = (self.u32(), self.u32());
        (format, Reader(self.take(len as usize)))
    }
}

fn config(interfaces: &[(u32, u32)], polling_ms: u64) -> Config {
    let interface = |rate| Interface { rate, native_vlan: Some(10), vlans: true };
    Config {
        agent: Ipv4Addr::new(192, 0, 2, 1),
        polling_ms,
        interfaces: interfaces.iter().map(|(ifindex, rate)| (*ifindex, interface(*rate))).collect(),
    }
}

/// A frame with this tag, or untagged.
fn head(tci: Option<u16>) -> Vec<u8> {
    let mut head = vec![7; 12];
    if let Some(tci) = tci {
        head.extend([0x81, 0]);
        head.extend(tci.to_be_bytes());
    }
    head.extend([8, 0]);
    head.resize(101, 9);
    head
}

fn sample(ifindex: u32, head: &[u8]) -> Sample<'_> {
    Sample { ifindex, len: 1000, head, pool: 100, drops: 1 }
}

/// Checks the header of a datagram; returns its sequence number, its uptime and its samples.
fn open(bytes: &[u8]) -> (u32, u32, Vec<(u32, Reader<'_>)>) {
    let mut r = Reader(bytes);
    assert_eq!((r.u32(), r.u32(), r.u32(), r.u32()), (5, 1, 0xc000_0201, 0));
    let (sequence, uptime, count) = (r.u32(), r.u32(), r.u32());
    let samples = (0..count).map(|_| r.record()).collect();
    assert!(r.0.is_empty());
    (sequence, uptime, samples)
}

#[test]
fn a_flow_sample_has_every_field() {
    let mut agent = Agent::default();
    agent.configure(1_000, Some(config(&[(3, 512)], 0)));
    for tci in [None, Some(0xa014), Some(0x6000)] {
        agent.handle_sample(2_000, &sample(3, &head(tci)));
    }
    assert_eq!((agent.poll_datagram(2_000), agent.next_ms()), (None, Some(2_500)));
    let bytes = agent.poll_datagram(2_500).expect("a datagram");
    let (sequence, uptime, samples) = open(&bytes);
    assert_eq!((sequence, uptime, samples.len()), (1, 1_500, 3));
    let vlans = [(10, 0), (20, 5), (10, 3)];
    for ((n, (format, mut r)), (vlan, priority)) in (1_u32..).zip(samples).zip(vlans) {
        assert_eq!(format, 1);
        assert_eq!((r.u32(), r.u32(), r.u32()), (n, 3, 512), "sequence number, source, rate");
        assert_eq!((r.u32(), r.u32()), (100 * n, n), "pool, drops");
        assert_eq!((r.u32(), r.u32(), r.u32()), (3, 0, 2), "input, output, records");
        let (format, mut raw) = r.record();
        assert_eq!((format, raw.u32(), raw.u32(), raw.u32()), (1, 1, 1004, 4), "Ethernet, length, stripped");
        assert_eq!(raw.u32(), 101);
        let tci = [None, Some(0xa014), Some(0x6000)][n as usize - 1];
        assert_eq!(raw.take(104), [head(tci), vec![0; 3]].concat());
        let (format, mut switch) = r.record();
        let fields = (switch.u32(), switch.u32(), switch.u32(), switch.u32());
        assert_eq!((format, fields), (1001, (vlan, priority, vlan, priority)));
        assert!(raw.0.is_empty() && switch.0.is_empty() && r.0.is_empty());
    }
    assert_eq!(agent.totals(3), Totals { samples: 3, pool: 300, drops: 3, counters: 0 });
}

#[test]
fn a_counter_sample_has_every_field() {
    let mut agent = Agent::default();
    agent.configure(0, Some(config(&[(3, 1), (4, 1)], 20_000)));
    assert_eq!(agent.next_ms(), Some(10_000));
    assert_eq!(agent.poll_counters(9_999), []);
    assert_eq!(agent.poll_counters(10_000), [3]);
    assert_eq!(agent.poll_counters(20_000), [4]);
    assert_eq!(agent.poll_counters(95_000), [3, 4], "it does not catch up");
    assert_eq!(agent.poll_counters(95_000), []);
    let counters = Counters {
        speed_bps: 10_000_000_000,
        full_duplex: Some(true),
        admin_up: true,
        link_up: true,
        in_octets: 1 << 40,
        in_frames: (1 << 32) + 5,
        in_discards: 6,
        in_errors: None,
        out_octets: 7,
        out_frames: 8,
        out_discards: 9,
        out_errors: Some(10),
        promiscuous: true,
    };
    agent.handle_counters(95_000, 3, &counters);
    agent.handle_counters(95_000, 77, &counters);
    let bytes = agent.poll_datagram(96_000).expect("a datagram");
    let (_, _, mut samples) = open(&bytes);
    assert_eq!(samples.len(), 1);
    let (format, mut r) = samples.remove(0);
    assert_eq!((format, r.u32(), r.u32(), r.u32()), (2, 1, 3, 1));
    let (format, mut r) = r.record();
    assert_eq!((format, r.0.len()), (1, 88));
    assert_eq!((r.u32(), r.u32(), r.u64(), r.u32(), r.u32()), (3, 6, 10_000_000_000, 1, 3));
    let unknown = u32::MAX;
    assert_eq!((r.u64(), r.u32(), r.u32(), r.u32()), (1 << 40, 5, unknown, unknown));
    assert_eq!((r.u32(), r.u32(), r.u32()), (6, unknown, unknown));
    assert_eq!((r.u64(), r.u32(), r.u32(), r.u32()), (7, 8, unknown, unknown));
    assert_eq!((r.u32(), r.u32(), r.u32()), (9, 10, 1));
}

#[test]
fn datagrams_fit_a_frame_and_the_queue_is_bounded() {
    let mut agent = Agent::default();
    agent.configure(0, Some(config(&[(3, 1)], 0)));
    let head = vec![1; 500];
    for _ in 0..10_000 {
        agent.handle_sample(1, &sample(3, &head));
    }
    let (mut count, mut last) = (0, 0);
    while let Some(bytes) = agent.poll_datagram(1_000) {
        assert!(bytes.len() <= MAX_DATAGRAM);
        let (sequence, _, samples) = open(&bytes);
        assert_eq!(sequence, last + 1);
        (last, count) = (sequence, count + samples.len() as u32);
    }
    let totals = agent.totals(3);
    assert!(totals.samples == count && count > 1_000 && count < 3_000, "{totals:?}");
    assert_eq!(totals.drops, 10_000 + 10_000 - count, "the plane's, and those that found no room");
    assert_eq!(totals.pool, 1_000_000);
}

#[test]
fn a_large_ifindex_takes_the_expanded_samples() {
    let mut agent = Agent::default();
    let large = 0x0100_0000;
    agent.configure(0, Some(config(&[(large, 1)], 1_000)));
    agent.handle_sample(0, &sample(large, &head(None)));
    agent.handle_counters(0, large, &Counters::default());
    let bytes = agent.poll_datagram(500).expect("a datagram");
    let (_, _, mut samples) = open(&bytes);
    let (format, mut r) = samples.remove(0);
    assert_eq!((format, r.u32(), r.u32(), r.u32()), (3, 1, 0, large));
    r.take(12);
    assert_eq!((r.u32(), r.u32(), r.u32(), r.u32(), r.u32()), (0, large, 0, 0, 2));
    let (format, mut r) = samples.remove(0);
    assert_eq!((format, r.u32(), r.u32(), r.u32(), r.u32()), (4, 1, 0, large, 1));
}

#[test]
fn frames_of_routed_ports_and_unconfigured_interfaces() {
    let mut agent = Agent::default();
    let mut routed = config(&[(3, 1)], 0);
    routed.interfaces.get_mut(&3).expect("it").vlans = false;
    agent.configure(0, Some(routed));
    agent.handle_sample(0, &sample(3, &head(Some(20))));
    agent.handle_sample(0, &sample(4, &head(None)));
    let bytes = agent.poll_datagram(500).expect("a datagram");
    let (_, _, mut samples) = open(&bytes);
    assert_eq!(samples.len(), 1);
    samples[0].1.take(28);
    assert_eq!(samples[0].1.u32(), 1, "no extended switch data");
    agent.configure(500, None);
    agent.handle_sample(600, &sample(3, &head(None)));
    assert_eq!((agent.poll_datagram(5_000), agent.next_ms(), agent.address()), (None, None, None));
}

proptest::proptest! {
    #[test]
    fn any_head_makes_a_datagram_that_can_be_read(head in proptest::collection::vec(0_u8..=255, 0..300), len: u32) {
        let mut agent = Agent::default();
        agent.configure(0, Some(config(&[(3, 1)], 0)));
        agent.handle_sample(0, &Sample { len, ..sample(3, &head) });
        let bytes = agent.poll_datagram(500).expect("a datagram");
        assert_eq!(open(&bytes).2.len(), 1);
    }
}
