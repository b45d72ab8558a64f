//! The formats of LLDP and CDP: frames of other makers, round trips, and every reason of refusal.
#![allow(clippy::unwrap_used, missing_docs)]

use lanyard_lldp::location::{Civic, Location};
use lanyard_lldp::pdu::{Capabilities, Identifier, Lldpdu, MacPhy, Med, NetworkPolicy};
use lanyard_lldp::{PduError, cdp, pdu};
use lanyard_types::{MacAddr, VlanId};

const FROM: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const MANDATORY: &str = "0207 04 001122334455 0403 05 6731 0602 0078";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn lldp(tlvs: &str) -> Result<Lldpdu, PduError> {
    pdu::decode_pdu(&hex(tlvs))
}

#[test]
fn the_mandatory_tlvs_alone() {
    let pdu = lldp(&format!("{MANDATORY} 0000")).unwrap();
    assert_eq!(
        (pdu.chassis_id.to_string().as_str(), pdu.port_id.to_string().as_str()),
        ("00:11:22:33:44:55", "g1")
    );
    assert_eq!(pdu.ttl_s, 120);
    assert_eq!(pdu::encode_pdu(&pdu), hex(&format!("{MANDATORY} 0000")));
    assert_eq!(lldp(MANDATORY).unwrap(), pdu, "the End TLV may be missing");
    let padded = lldp(&format!("{MANDATORY} 0000 ffff")).unwrap();
    assert_eq!(padded, pdu, "padding is ignored");
}

#[test]
fn identifiers_are_shown_by_their_subtype() {
    let shown = |tlv: &str| lldp(&format!("{tlv} 0403 05 6731 0602 0078")).unwrap().chassis_id.to_string();
    assert_eq!(shown("0206 05 01 0a000001"), "10.0.0.1");
    assert_eq!(shown("0212 05 02 20010db8000000000000000000000001"), "2001:db8::1");
    assert_eq!(shown("0204 07 61 1b 62"), "a.b", "no escape reaches a terminal");
    let port = lldp("0202 07 61 0407 03 001122334455 0602 0078").unwrap().port_id;
    assert_eq!(port.mac(), Some(MacAddr([0, 0x11, 0x22, 0x33, 0x44, 0x55])));
}

#[test]
fn optional_tlvs_of_another_maker() {
    // Port description, system name and description, capabilities, management address 10.0.0.2 on ifIndex 3.
    let basic = "0803 703120 0a03 737732 0c04 4c696e75 0e04 0014 0004 100c 05 01 0a000002 02 00000003 00";
    // PVID 20, VLAN name, MAC/PHY, aggregation in the 802.3 form, maximum frame size.
    let own = "fe06 0080c2 01 0014 fe0b 0080c2 03 0014 04 6d676d74 fe09 00120f 01 03 8000 001e fe09 00120f 03 03 00000007 fe06 00120f 04 05ee";
    // LLDP-MED: capabilities of a telephone, voice VLAN 30 with priority 5 and DSCP 46, software revision.
    let med = "fe07 0012bb 01 0033 03 fe08 0012bb 02 01 403d6e fe07 0012bb 07 312e30";
    let pdu = lldp(&format!("{MANDATORY} {basic} {own} {med} 0000")).unwrap();
    assert_eq!(pdu.port_description.as_deref(), Some("p1"), "blanks at the end are no part of it");
    assert_eq!((pdu.system_name.as_deref(), pdu.system_description.as_deref()), (Some("sw2"), Some("Linu")));
    assert_eq!(pdu.capabilities, Some(Capabilities { supported: 0x14, enabled: 4 }));
    assert_eq!((Capabilities::letters(0x14), Capabilities::letters(0)), ("B,R".into(), String::new()));
    assert_eq!(pdu.management, [("10.0.0.2".parse().unwrap(), 3)]);
    assert_eq!((pdu.pvid, pdu.max_frame), (Some(20), Some(1518)));
    assert_eq!(pdu.vlan_names, [(VlanId::new(20).unwrap(), "mgmt".to_owned())]);
    assert_eq!(
        pdu.mac_phy,
        Some(MacPhy { autoneg_supported: true, autoneg_enabled: true, advertised: 0x8000, mau_type: 30 })
    );
    assert_eq!(pdu.aggregation, Some((true, true, 7)));
    let med = pdu.med.unwrap();
    assert_eq!((med.capabilities, med.device_type, med.inventory[2].as_deref()), (0x33, 3, Some("1.0")));
    let policy =
        NetworkPolicy { application: 1, unknown: false, tagged: true, vlan: 30, priority: 5, dscp: 46 };
    assert_eq!(med.policies, [policy]);
    assert_eq!((pdu.unrecognized, pdu.discarded), (0, 0));
}

#[test]
fn an_encoded_lldpdu_decodes_to_the_same_values() {
    let mut pdu = Lldpdu::new(Identifier::chassis_mac(FROM), Identifier::port_name("eth0.100"), 121);
    pdu.system_name = Some("süd".into());
    pdu.capabilities = Some(Capabilities { supported: 0x14, enabled: 0x14 });
    pdu.management = vec![("10.0.0.1".parse().unwrap(), 7), ("fe80::1".parse().unwrap(), 0)];
    pdu.pvid = Some(0);
    pdu.vlan_names = (1..=4).map(|vlan| (VlanId::new(vlan).unwrap(), format!("v{vlan}"))).collect();
    pdu.mac_phy =
        Some(MacPhy { autoneg_supported: true, autoneg_enabled: false, advertised: 0, mau_type: 54 });
    pdu.aggregation = Some((true, false, 9));
    pdu.max_frame = Some(9018);
    let mut inventory: [Option<String>; 7] = Default::default();
    inventory[5] = Some("switch".into());
    let civic =
        Civic { what: 2, country: "DE".into(), elements: vec![(3, "Berlin".into()), (28, "3.11".into())] };
    let locations =
        vec![Location::Civic(civic), Location::Elin("4930901820".into()), Location::Coordinates([7; 16])];
    let policy =
        NetworkPolicy { application: 1, unknown: true, tagged: true, vlan: 4094, priority: 7, dscp: 63 };
    pdu.med = Some(Med {
        capabilities: 0x21,
        device_type: 4,
        policies: vec![policy],
        locations,
        power: None,
        inventory,
    });
    assert_eq!(pdu::decode(&pdu::encode(FROM, &pdu)), Ok((FROM, pdu)));
}

#[test]
fn tlvs_that_do_not_fit_into_a_frame_are_omitted() {
    let mut pdu = Lldpdu::new(Identifier::chassis_mac(FROM), Identifier::port_name("p"), 1);
    let name = "n".repeat(32);
    pdu.vlan_names = (1..=200).map(|vlan| (VlanId::new(vlan).unwrap(), name.clone())).collect();
    pdu.system_description = Some("d".repeat(1000));
    let bytes = pdu::encode_pdu(&pdu);
    assert!(bytes.len() <= pdu::MAX_PDU && bytes.len() > pdu::MAX_PDU - 48, "{}", bytes.len());
    let read = pdu::decode_pdu(&bytes).unwrap();
    assert_eq!(read.system_description.unwrap().len(), 255);
    assert_eq!(read.vlan_names.len(), 16, "a neighbour's list is bounded");
}

#[test]
fn lldp_frames_that_are_refused() {
    let good = pdu::encode(FROM, &lldp(MANDATORY).unwrap());
    let changed = |at: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        pdu::decode(&frame).unwrap_err()
    };
    assert_eq!(pdu::decode(&good[..13]), Err(PduError::FrameTruncated));
    assert_eq!(changed(0, &[2, 0, 0, 0, 0, 1]), PduError::Destination);
    assert_eq!(changed(5, &[0x01]), PduError::Destination);
    assert_eq!(changed(6, &[1]), PduError::Source);
    assert_eq!(changed(6, &[0; 6]), PduError::Source);
    assert_eq!(changed(12, &[0x81, 0x00]), PduError::Encapsulation);
    let cases = [
        ("", PduError::TlvTruncated),
        ("02", PduError::TlvTruncated),
        ("0207 04 0011", PduError::TlvTruncated),
        ("0403 05 6731 0207 04 001122334455 0602 0078", PduError::ChassisId),
        ("0201 04 0403 05 6731 0602 0078", PduError::ChassisId),
        ("0207 04 001122334455 0602 0078", PduError::PortId),
        ("0207 04 001122334455 0401 05 0602 0078", PduError::PortId),
        ("0207 04 001122334455 0403 05 6731 0000", PduError::Ttl),
        ("0207 04 001122334455 0403 05 6731 0601 78", PduError::Ttl),
    ];
    for (tlvs, error) in cases {
        assert_eq!(lldp(tlvs), Err(error), "{tlvs}");
    }
    for again in ["0202 07 61", "0402 07 61", "0602 0078"] {
        assert_eq!(lldp(&format!("{MANDATORY} {again} 0000")), Err(PduError::Duplicate), "{again}");
    }
    assert_eq!(lldp(&format!("{MANDATORY} 0a09 61")), Err(PduError::TlvTruncated));
}

/// 9.2.7.7.2: an optional TLV with a wrong length is discarded alone; one of an unknown type is counted.
#[test]
fn optional_tlvs_that_are_discarded() {
    for wrong in [
        "0e03 001400",
        "1005 05 01 0a00 00",
        "100d 05 01 0a000002 02 00000003 00 00",
        "1003 00 01 02",
        "fe03 0080c2",
        "fe05 0080c2 01 00",
        "fe07 0080c2 03 0000 00",
        "fe08 0080c2 03 0014 05 61",
        "fe05 00120f 01 03",
        "fe05 00120f 03 03",
        "fe05 0012bb 01 00",
    ] {
        let pdu = lldp(&format!("{MANDATORY} {wrong} 0a01 61 0000")).expect(wrong);
        assert_eq!((pdu.discarded, pdu.unrecognized), (1, 0), "{wrong}");
        assert_eq!(pdu.system_name.as_deref(), Some("a"), "what follows is read: {wrong}");
    }
    for unknown in ["1201 00", "fe04 aabbcc 01", "fe05 0080c2 63 00"] {
        let pdu = lldp(&format!("{MANDATORY} {unknown} 0000")).expect(unknown);
        assert_eq!((pdu.discarded, pdu.unrecognized), (0, 1), "{unknown}");
    }
    let long = format!("{MANDATORY} 0b00 {} 0000", "61".repeat(256));
    assert_eq!(lldp(&long).unwrap().discarded, 1, "a name of 256 bytes");
}

fn cdp_frame(packet: &[u8]) -> Vec<u8> {
    let mut frame = [MacAddr::CISCO_DISCOVERY.0, FROM.0].concat();
    frame.extend((packet.len() as u16 + 8).to_be_bytes());
    frame.extend(hex("aaaa03 00000c 2000"));
    frame.extend(packet);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// A packet with its checksum, over an even number of bytes.
fn cdp_packet(tlvs: &str) -> Vec<u8> {
    let mut packet = hex("02b4 0000");
    packet.extend(hex(tlvs));
    let sum = !lanyard_wire::ip::ones_complement_sum(&packet);
    packet[2..4].copy_from_slice(&sum.to_be_bytes());
    packet
}

const DEVICE: &str = "0001 0006 5231";

#[test]
fn cdp_frames_of_another_maker() {
    let tlvs = format!(
        "{DEVICE} 0002 0011 00000001 01 01 cc 0004 c0a80001 0003 000a 47 69 30 2f 31 31 0004 0008 00000028 0005 0008 \
         31352e30 0006 0009 6369 73636f 000a 0006 0001 000b 0005 01 0010 0006 0000"
    );
    let (from, pdu) = cdp::decode(&cdp_frame(&cdp_packet(&tlvs))).unwrap();
    assert_eq!((from, pdu.version, pdu.ttl_s), (FROM, 2, 180));
    assert_eq!((pdu.device_id.as_str(), pdu.port_id.as_str()), ("R1", "Gi0/11"));
    assert_eq!(pdu.addresses, ["192.168.0.1".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(cdp::capability_letters(pdu.capabilities), "S I");
    assert_eq!((pdu.software.as_deref(), pdu.platform.as_deref()), (Some("15.0"), Some("cisco")));
    assert_eq!((pdu.native_vlan, pdu.full_duplex, pdu.unrecognized), (Some(1), Some(true), 1));
}

#[test]
fn cdp_round_trip() {
    for length in 1..5 {
        let pdu = cdp::Cdpdu {
            version: 2,
            ttl_s: 180,
            device_id: "d".repeat(length),
            port_id: "eth0".into(),
            addresses: vec!["10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            capabilities: 9,
            software: Some("Lanyard".into()),
            platform: Some("Linux".into()),
            native_vlan: Some(20),
            voice_vlan: Some(30),
            full_duplex: Some(false),
            management: vec!["10.0.0.1".parse().unwrap()],
            unrecognized: 0,
        };
        let frame = cdp::encode(FROM, &pdu);
        assert_eq!(cdp::decode(&frame), Ok((FROM, pdu.clone())));
        // Cisco's switches tag CDP frames when VLAN 1 is not native.
        let mut tagged = frame;
        tagged.splice(12..12, hex("8100 0001"));
        assert_eq!(cdp::decode(&tagged), Ok((FROM, pdu)));
    }
}

/// The sum over an odd number of bytes, by RFC 1071 and as Cisco's devices calculate it.
#[test]
fn both_checksums_of_an_odd_length_are_taken() {
    for last in ["41", "c3"] {
        let body = hex(&format!("{DEVICE} 0003 0005 {last}"));
        let byte = *body.last().unwrap();
        let own = if byte < 0x80 { [0, byte] } else { [0xff, byte - 1] };
        for word in [[byte, 0], own] {
            let mut even = hex("02b4 0000");
            even.extend(&body[..body.len() - 1]);
            let sum = !lanyard_wire::ip::ones_complement_sum(&[even.as_slice(), &word].concat());
            let mut packet = hex("02b4 0000");
            packet.extend(&body);
            packet[2..4].copy_from_slice(&sum.to_be_bytes());
            assert!(cdp::decode_packet(&packet).is_ok(), "{last} {word:x?}");
            packet[2] ^= 1;
            assert_eq!(cdp::decode_packet(&packet), Err(PduError::Checksum));
        }
    }
}

#[test]
fn cdp_frames_that_are_refused() {
    let good = cdp_frame(&cdp_packet(DEVICE));
    assert!(cdp::decode(&good).is_ok());
    let changed = |at: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        cdp::decode(&frame).unwrap_err()
    };
    assert_eq!(cdp::decode(&good[..12]), Err(PduError::FrameTruncated));
    assert_eq!(changed(0, &[3]), PduError::Destination);
    assert_eq!(changed(6, &[3]), PduError::Source);
    assert_eq!(changed(12, &[5, 0xdc]), PduError::FrameTruncated);
    assert_eq!(changed(20, &[0x20, 0x04]), PduError::Encapsulation, "DTP");
    assert_eq!(changed(22, &[3]), PduError::Version);
    assert_eq!(changed(23, &[9]), PduError::Checksum);
    for (tlvs, error) in [
        ("", PduError::ChassisId),
        ("0001 0004", PduError::ChassisId),
        ("0003 0006 6731", PduError::ChassisId),
        ("0001 0003", PduError::TlvTruncated),
        ("0001 0009 5231", PduError::TlvTruncated),
        ("0001 0006 5231 00 01", PduError::TlvTruncated),
        ("0001 0006 5231 0004 0006 0000", PduError::TlvTruncated),
        ("0001 0006 5231 0002 0008 ffffffff", PduError::TlvTruncated),
        ("0001 0006 5231 0002 000e 00000001 01 01 cc 0009 00", PduError::TlvTruncated),
    ] {
        assert_eq!(cdp::decode_packet(&cdp_packet(tlvs)), Err(error), "{tlvs}");
    }
}
