//! Tunnels of a customer's control frames (`l2protocol-tunnel`), from `trap` to `replicate`.

use crate::support::{base, host, pipeline, port, run, tagged, tags};
use lanyard_pipeline::state::{PlaneState, Tpid};
use lanyard_types::{MacAddr, Tunnelled, TunnelledProtocol};
use lanyard_wire::{Builder, Frame, Tag};

/// Checks the destination address of a customer's control frame at each port, and which ports it does not reach.
#[test]
fn tunnels() {
    use TunnelledProtocol::{Cdp, Lldp, Stp};
    fn carries(state: &mut PlaneState, n: u16, tunnelled: Tunnelled) {
        let port = state.ports.get_mut(&port(n)).unwrap();
        (port.tpid, port.tunnelled) = (Tpid::None, tunnelled);
    }
    let all = Tunnelled { stp: true, cdp: true, lldp: true };
    let payload = |protocol: TunnelledProtocol| -> (MacAddr, u16, &[u8]) {
        match protocol {
            Stp => (MacAddr::BRIDGE_GROUP, 38, &[0x42, 0x42, 3, 0, 0, 2, 2, 0]),
            Cdp => (MacAddr::CISCO_DISCOVERY, 60, &[0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0]),
            Lldp => (MacAddr::LLDP, 0x88cc, &[2, 7, 4, 2, 0, 0, 0, 0, 1]),
        }
    };
    let build = |dst: MacAddr, protocol: TunnelledProtocol, tags: &[(u16, u16)]| {
        let (_, code, bytes) = payload(protocol);
        let builder = tags.iter().fold(Builder::new(dst, host(1)), |builder, (tpid, vid)| {
            builder.tag(*tpid, Tag { vid: *vid, ..Tag::default() })
        });
        builder.ethertype(code).payload(bytes).build()
    };
    let own = |protocol| build(payload(protocol).0, protocol, &[]);
    // Ports 1 and 2 are tunnel ports, 3, 4 and 7 trunks, 5 the VLAN interface.
    let check = |what: &str, one: Tunnelled, two: Tunnelled, at: u16, frame: &[u8], want: &str| {
        let mut state = base();
        carries(&mut state, 1, one);
        carries(&mut state, 2, two);
        let mut pipeline = pipeline(&state);
        let plain = run(&mut pipeline, at, frame);
        let sent = pipeline.trace(port(at), frame).egress;
        let dst = |bytes: &[u8]| match Frame::new(bytes).unwrap().dst() {
            MacAddr::TUNNEL => "tunnel",
            MacAddr::BRIDGE_GROUP => "bpdu",
            MacAddr::SSTP => "pvst",
            MacAddr::CISCO_DISCOVERY => "cdp",
            MacAddr::LLDP => "lldp",
            _ => "other",
        };
        let sent: Vec<String> =
            sent.iter().map(|(port, bytes)| format!("{port}:{} {}", dst(bytes), tags(bytes))).collect();
        let got = if sent.is_empty() { plain } else { sent.join(", ") };
        assert_eq!(got, want, "{what}");
    };
    let trunks = "3:tunnel 8100.10.0, 7:tunnel 8100.10.0, 4:tunnel 88a8.10.0";
    for (protocol, name) in [(Stp, "bpdu"), (Cdp, "cdp"), (Lldp, "lldp")] {
        let want = format!("2:{name} -, 5:tunnel -, {trunks}");
        check("carried", all, all, 1, &own(protocol), &want);
        check("not carried", Tunnelled::NONE, all, 1, &own(protocol), "dropped tunnel_protocol");
        check("not carried there", all, Tunnelled::NONE, 1, &own(protocol), &format!("5:tunnel -, {trunks}"));
        let tunnelled = build(MacAddr::TUNNEL, protocol, &[(0x8100, 10)]);
        let want = format!("7:tunnel 8100.10.0, 1:{name} -, 2:{name} -, 5:tunnel -, 4:tunnel 88a8.10.0");
        check("from a trunk", all, all, 3, &tunnelled, &want);
    }
    let one = |protocol: TunnelledProtocol| Tunnelled {
        stp: protocol == Stp,
        cdp: protocol == Cdp,
        lldp: protocol == Lldp,
    };
    check("another protocol", one(Cdp), all, 1, &own(Lldp), "dropped tunnel_protocol");
    let pvst = Builder::new(MacAddr::SSTP, host(1)).tag(0x8100, Tag { vid: 7, ..Tag::default() });
    let pvst = pvst.ethertype(50).payload(&[0xaa, 0xaa, 3, 0, 0, 0x0c, 1, 0x0b]).build();
    let want = "2:pvst 8100.7.0, 5:tunnel 8100.7.0, 3:tunnel 8100.10.0+8100.7.0, 7:tunnel 8100.10.0+8100.7.0, \
                4:tunnel 88a8.10.0+8100.7.0";
    check("PVST+ in the customer's VLAN", all, all, 1, &pvst, want);
    let mut odd = own(Stp);
    odd[14] = 0;
    check("no BPDU though it has the address", all, all, 1, &odd, "dropped tunnel_protocol");
    check("from a customer", all, all, 1, &build(MacAddr::TUNNEL, Stp, &[]), "dropped tunnel_address");
    let unknown = tagged(MacAddr::TUNNEL, host(1), 0x8100, 0, 10);
    check(
        "of no known protocol",
        all,
        all,
        3,
        &unknown,
        "7:tunnel 8100.10.0, 5:tunnel -, 4:tunnel 88a8.10.0",
    );
}
