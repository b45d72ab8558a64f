use super::*;
use crate::config::PortConfig;
use lanyard_dhcp::Message;

const CLIENT_PORT: u16 = 1;
const OTHER_PORT: u16 = 2;
const SERVER_PORT: u16 = 3;
const UPLINK: u16 = 4;
const VLAN: VlanId = VlanId::DEFAULT;
const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xaa]);

const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST_TYPE: u8 = 3;

fn port(n: u16) -> PortId {
    PortId::new(n).expect("a port")
}

fn ports(list: &[u16]) -> PortSet {
    list.iter().map(|n| port(*n)).collect()
}

fn host(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

fn config() -> Config {
    let trusted = |n: u16| PortConfig { trusted: n >= SERVER_PORT };
    Config {
        vlans: [(VLAN, ports(&[1, 2, 3, 4]))].into(),
        ports: (1..=4).map(|n| (port(n), trusted(n))).collect(),
        insert_option: true,
        verify_mac: true,
        mac: OWN,
        ..Config::default()
    }
}

fn snooper() -> Snooper {
    let mut snooper = Snooper::default();
    snooper.configure(config());
    snooper
}

/// A message of `client`, or for it, with these options besides its type.
#[derive(Clone)]
struct Say {
    op: u8,
    kind: u8,
    client: u8,
    src: u8,
    yiaddr: [u8; 4],
    giaddr: [u8; 4],
    options: Vec<u8>,
}

fn from(kind: u8, client: u8) -> Say {
    Say { op: REQUEST, kind, client, src: client, yiaddr: [0; 4], giaddr: [0; 4], options: Vec::new() }
}

fn answer(kind: u8, client: u8, last: u8) -> Say {
    let options = vec![51, 4, 0, 0, 0, 100];
    Say { op: REPLY, src: 0xee, yiaddr: [10, 0, 0, last], options, ..from(kind, client) }
}

impl Say {
    fn frame(&self) -> Vec<u8> {
        let mut message = vec![0u8; 236];
        message[..3].copy_from_slice(&[self.op, 1, 6]);
        message[16..20].copy_from_slice(&self.yiaddr);
        message[24..28].copy_from_slice(&self.giaddr);
        message[28..34].copy_from_slice(&host(self.client).0);
        message.extend([99, 130, 83, 99, 53, 1, self.kind]);
        message.extend(&self.options);
        message.push(255);
        let to: u16 = if self.op == REQUEST || self.giaddr != [0; 4] { 67 } else { 68 };
        let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255];
        let len = (28 + message.len()) as u16;
        ip[2..4].copy_from_slice(&len.to_be_bytes());
        ip.extend(67u16.to_be_bytes());
        ip.extend(to.to_be_bytes());
        ip.extend((len - 20).to_be_bytes());
        ip.extend([0, 0]);
        ip.extend(message);
        let builder = lanyard_wire::Builder::new(MacAddr::BROADCAST, host(self.src));
        builder.ethertype(0x0800).payload(&ip).build()
    }
}

/// The effects of one message: the ports to which it is sent, the message, the bindings, and the reason of a drop.
#[derive(Debug, Default)]
struct Done {
    to: Option<PortSet>,
    message: Option<Message>,
    bound: Vec<(BindingKey, Option<MacAddr>)>,
    dropped: Option<Drop>,
}

fn done(snooper: &mut Snooper) -> Done {
    let mut done = Done::default();
    while let Some(action) = snooper.poll_action() {
        match action {
            Action::Send { ports, frame, .. } => {
                done.to = Some(*ports);
                done.message = Some(Packet::read(&frame).expect("a message").message);
            }
            Action::Bind(key, mac) => done.bound.push((key, mac)),
            Action::Dropped { reason, .. } => done.dropped = Some(reason),
            Action::Full { .. } => {}
            Action::NdDropped { .. } | Action::Neighbour(..) => unreachable!("{action:?}"),
        }
    }
    done
}

fn give(snooper: &mut Snooper, now: u64, at: u16, say: &Say) -> Done {
    snooper.handle_frame(now, VLAN, port(at), &say.frame());
    done(snooper)
}

fn key(at: u16, last: u8) -> BindingKey {
    BindingKey { port: port(at), vlan: VLAN, address: IpAddr::from([10, 0, 0, last]) }
}

/// A client at port 1 gets 10.0.0.`last`.
fn bind(snooper: &mut Snooper, now: u64, client: u8, last: u8) -> Done {
    give(snooper, now, CLIENT_PORT, &from(REQUEST_TYPE, client));
    give(snooper, now, SERVER_PORT, &answer(ACK, client, last))
}

#[test]
fn a_client_gets_its_address() {
    let mut snooper = snooper();
    let asked = give(&mut snooper, 0, CLIENT_PORT, &from(DISCOVER, 1));
    assert_eq!(asked.to, Some(ports(&[SERVER_PORT, UPLINK])), "to trusted ports only");
    let option = option82::of(VLAN, port(CLIENT_PORT), OWN);
    assert_eq!(asked.message.expect("sent").relay(), Some(&option[..]));
    let mut offer = answer(OFFER, 1, 5);
    offer.options.extend([82, option.len() as u8]);
    offer.options.extend(&option);
    let offered = give(&mut snooper, 0, SERVER_PORT, &offer);
    assert_eq!(offered.to, Some(ports(&[CLIENT_PORT])), "to the client's port only");
    assert_eq!(offered.message.expect("sent").relay(), None, "without the option of this switch");
    assert_eq!(offered.bound, [], "an offer binds nothing");
    let acked = bind(&mut snooper, 1000, 1, 5);
    assert_eq!(acked.bound, [(key(CLIENT_PORT, 5), Some(host(1)))]);
    let lease = snooper.leases().next().copied().expect("a lease");
    assert_eq!((lease.expires_ms, lease.port), (Some(101_000), port(CLIENT_PORT)));
    assert_eq!(snooper.next_timeout(), Some(61_000), "the client's port is forgotten first");
    snooper.handle_timer(61_000);
    assert_eq!((done(&mut snooper).bound.len(), snooper.next_timeout()), (0, Some(101_000)));
    snooper.handle_timer(101_000);
    assert_eq!(done(&mut snooper).bound, [(key(CLIENT_PORT, 5), None)]);
    assert_eq!((snooper.leases().count(), snooper.next_timeout()), (0, None));
}

#[test]
fn forbidden_dhcp_messages_of_untrusted_ports_are_dropped() {
    let mut snooper = snooper();
    let check = |snooper: &mut Snooper, say: &Say, want: Drop| {
        let done = give(snooper, 0, CLIENT_PORT, say);
        assert_eq!((done.dropped, done.to), (Some(want), None));
    };
    check(&mut snooper, &answer(OFFER, 1, 5), Drop::Server);
    check(&mut snooper, &Say { op: REQUEST, ..answer(ACK, 1, 5) }, Drop::Server);
    check(&mut snooper, &Say { src: 2, ..from(DISCOVER, 1) }, Drop::MacMismatch);
    check(&mut snooper, &Say { giaddr: [10, 0, 0, 9], ..from(DISCOVER, 1) }, Drop::Relayed);
    let with_option = Say { options: vec![82, 3, 1, 1, 7], ..from(DISCOVER, 1) };
    check(&mut snooper, &with_option, Drop::Option);
    snooper.handle_frame(0, VLAN, port(CLIENT_PORT), &from(DISCOVER, 1).frame()[..200]);
    assert_eq!(done(&mut snooper).dropped, Some(Drop::Malformed));
    assert_eq!((snooper.counters().forwarded, snooper.counters().dropped.iter().sum::<u64>()), (0, 6));
    snooper.configure(Config { allow_untrusted: true, verify_mac: false, ..config() });
    let passed = give(&mut snooper, 0, CLIENT_PORT, &with_option);
    assert_eq!(passed.message.expect("sent").relay(), Some(&[1, 1, 7][..]), "the client's own option stays");
    assert!(give(&mut snooper, 0, CLIENT_PORT, &Say { src: 2, ..from(DISCOVER, 1) }).to.is_some());
}

#[test]
fn only_the_owner_releases_an_address() {
    let mut snooper = snooper();
    bind(&mut snooper, 0, 1, 5);
    for kind in [RELEASE, DECLINE] {
        let foreign = give(&mut snooper, 0, OTHER_PORT, &from(kind, 1));
        assert_eq!((foreign.dropped, foreign.bound), (Some(Drop::NotOwner), Vec::new()));
    }
    let own = give(&mut snooper, 0, CLIENT_PORT, &from(RELEASE, 1));
    assert_eq!((own.to, own.bound), (Some(ports(&[SERVER_PORT, UPLINK])), vec![(key(CLIENT_PORT, 5), None)]));
}

#[test]
fn answers_go_to_the_client_or_to_relays() {
    let mut snooper = snooper();
    let unknown = give(&mut snooper, 0, SERVER_PORT, &answer(OFFER, 9, 5));
    assert_eq!((unknown.dropped, unknown.to), (Some(Drop::NoClient), None));
    let relayed = Say { giaddr: [10, 1, 0, 1], ..answer(OFFER, 9, 5) };
    assert_eq!(give(&mut snooper, 0, SERVER_PORT, &relayed).to, Some(ports(&[UPLINK])));
    // A client behind a trusted port gets its answer, and no binding.
    give(&mut snooper, 0, UPLINK, &from(REQUEST_TYPE, 9));
    let acked = give(&mut snooper, 0, SERVER_PORT, &answer(ACK, 9, 5));
    assert_eq!((acked.to, acked.bound), (Some(ports(&[UPLINK])), Vec::new()));
    bind(&mut snooper, 0, 1, 6);
    let refused = give(&mut snooper, 0, SERVER_PORT, &answer(NAK, 1, 0));
    assert_eq!(refused.bound, [(key(CLIENT_PORT, 6), None)], "a NAK ends the lease");
}

#[test]
fn an_address_has_one_client_and_a_client_one_address() {
    let mut snooper = snooper();
    bind(&mut snooper, 0, 1, 5);
    let moved = bind(&mut snooper, 0, 1, 6);
    assert_eq!(moved.bound, [(key(CLIENT_PORT, 5), None), (key(CLIENT_PORT, 6), Some(host(1)))]);
    let taken = bind(&mut snooper, 0, 2, 6);
    assert_eq!(taken.bound, [(key(CLIENT_PORT, 6), Some(host(2)))]);
    assert_eq!(snooper.leases().count(), 1);
}

#[test]
fn static_bindings_go_before_leases() {
    let mut snooper = snooper();
    bind(&mut snooper, 0, 1, 5);
    let statics = [(key(CLIENT_PORT, 5), host(7)), (key(OTHER_PORT, 8), host(8))];
    snooper.configure(Config { statics: statics.into(), ..config() });
    let want = [(key(CLIENT_PORT, 5), Some(host(7))), (key(OTHER_PORT, 8), Some(host(8)))];
    assert_eq!(done(&mut snooper).bound, want);
    snooper.configure(config());
    let want = [(key(OTHER_PORT, 8), None), (key(CLIENT_PORT, 5), Some(host(1)))];
    assert_eq!(done(&mut snooper).bound, want);
}

#[test]
fn a_restart_keeps_leases_and_corrects_the_plane() {
    let mut first = snooper();
    bind(&mut first, 0, 1, 5);
    bind(&mut first, 50_000, 2, 6);
    let leases: Vec<Lease> = first.leases().copied().collect();
    let held = [(key(CLIENT_PORT, 6), host(2)), (key(OTHER_PORT, 9), host(9))];
    let mut next = snooper();
    next.restore(100_000, &leases, &held);
    assert_eq!(next.leases().copied().collect::<Vec<_>>(), leases[1..], "the first lease has ended");
    assert_eq!(done(&mut next).bound, [(key(OTHER_PORT, 9), None)], "a binding without a lease ends");
    next.configure(Config { ports: BTreeMap::new(), ..config() });
    assert_eq!(done(&mut next).bound, [(key(CLIENT_PORT, 6), None)], "its port is gone");
}

#[test]
fn tables_are_bounded() {
    let mut snooper = snooper();
    let mac = |n: usize| MacAddr([2, 1, 0, 0, (n >> 8) as u8, n as u8]);
    let frame = |n: usize| {
        let mut frame = from(DISCOVER, 1).frame();
        frame[6..12].copy_from_slice(&mac(n).0);
        frame[70..76].copy_from_slice(&mac(n).0);
        frame
    };
    for n in 0..=MAX_PENDING {
        snooper.handle_frame(n as u64, VLAN, port(CLIENT_PORT), &frame(n));
        assert!(done(&mut snooper).to.is_some());
    }
    assert_eq!((snooper.pending.len(), snooper.counters().forgotten), (MAX_PENDING, 1));
    assert!(!snooper.pending.contains_key(&(VLAN, mac(0))), "the oldest is forgotten");
    let address = |n: u32| Ipv4Addr::from(0x0a00_0000 + n);
    let of = |n: u32| MacAddr([2, 2, 0, (n >> 16) as u8, (n >> 8) as u8, n as u8]);
    for n in 1..=MAX_BINDINGS as u32 {
        let lease =
            Lease { vlan: VLAN, mac: of(n), address: address(n), port: port(CLIENT_PORT), expires_ms: None };
        snooper.enter(lease);
    }
    bind(&mut snooper, 0, 1, 5);
    assert_eq!((snooper.leases().count(), snooper.counters().refused), (MAX_BINDINGS, 1));
    assert_eq!(snooper.clear(|lease| lease.mac == of(3)), 1);
    bind(&mut snooper, 0, 1, 3);
    assert_eq!(snooper.leases().count(), MAX_BINDINGS);
}
