//! The BPDU codec: test vectors, round trips, and every reason of refusal.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use lanyard_stp::bpdu::*;
use lanyard_types::{MacAddr, VlanId};

const IEEE: &str = "0180c2000000 020000000009 0026 424203";
const CONFIG: &str = "0000 00 00 01 8000020000000001 00000004 8000020000000009 8002 0100 1400 0200 0f00";
const RST: &str = "0000 02 02 3e 8000020000000001 00004e20 8000020000000009 8002 0100 1400 0200 0f00 00";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn ieee(pdu: &str) -> Vec<u8> {
    let pdu = hex(pdu);
    let mut frame = hex("0180c2000000 020000000009");
    frame.extend((pdu.len() as u16 + 3).to_be_bytes());
    frame.extend([0x42, 0x42, 0x03]);
    frame.extend(pdu);
    frame.resize(frame.len().max(60), 0);
    frame
}

fn mst(messages: &[&str]) -> String {
    let messages = messages.concat();
    let count = messages.bytes().filter(|b| !b.is_ascii_whitespace()).count() / 32;
    let rst = RST.replace("0000 02 02", "0000 03 02");
    let name = "65617374".to_owned() + &"00".repeat(28);
    let digest = "ac36177f50283cd4b83821d8ab26de62";
    format!("{rst} {:04x} 00 {name} 0001 {digest} 00000064 8000020000000009 14 {messages}", 64 + 16 * count)
}

const MSTI_1: &str = "7c 1001020000000001 00000064 80 80 13";

#[test]
fn configuration_bpdu() {
    let frame = decode(&ieee(CONFIG)).unwrap();
    assert_eq!(frame.source, MacAddr([2, 0, 0, 0, 0, 9]));
    assert_eq!(frame.encapsulation, Encapsulation::Ieee);
    let Bpdu::Config(body) = &frame.bpdu else { panic!("{frame:?}") };
    assert!(body.flags.tc && !body.flags.ack_or_master);
    assert_eq!(body.root.to_string(), "32768.02:00:00:00:00:01");
    assert_eq!((body.root_path_cost, body.port.to_string().as_str()), (4, "128.2"));
    assert_eq!([body.message_age, body.max_age, body.hello_time, body.forward_delay], [256, 5120, 512, 3840]);
    assert_eq!(encode(frame.source, None, Encapsulation::Ieee, &frame.bpdu), ieee(CONFIG));
    assert_eq!(ieee(CONFIG)[..17], hex(IEEE)[..]);
}

#[test]
fn rapid_and_topology_change_bpdus() {
    let frame = decode(&ieee(RST)).unwrap();
    let Bpdu::Rst(body) = &frame.bpdu else { panic!("{frame:?}") };
    assert_eq!(body.flags.role, WireRole::Designated);
    assert!(body.flags.proposal && body.flags.learning && body.flags.forwarding && !body.flags.agreement);
    assert_eq!(encode(frame.source, None, Encapsulation::Ieee, &frame.bpdu), ieee(RST));
    assert_eq!(decode(&ieee("0000 00 80")).unwrap().bpdu, Bpdu::Tcn);
    assert_eq!(encode_bpdu(&Bpdu::Tcn), [0, 0, 0, 0x80]);
}

#[test]
fn mst_bpdu() {
    let text = mst(&[MSTI_1, "7c 2002020000000001 00000000 00 70 14"]);
    let frame = decode(&ieee(&text)).unwrap();
    let Bpdu::Mst(_, part) = &frame.bpdu else { panic!("{frame:?}") };
    assert_eq!(part.config_id, MstConfigId::new("east", 1, []));
    assert_eq!((part.internal_root_path_cost, part.remaining_hops, part.mstis.len()), (100, 20, 2));
    let message = part.mstis[0];
    assert_eq!(message.bridge(part.bridge).to_string(), "32769.02:00:00:00:00:09");
    assert_eq!((message.regional_root.priority(), message.remaining_hops), (4097, 19));
    assert_eq!(encode(frame.source, None, Encapsulation::Ieee, &frame.bpdu), ieee(&text));
}

#[test]
fn an_mst_bpdu_with_bad_lengths_is_an_rst_bpdu() {
    let good = mst(&[MSTI_1]);
    let cut = good[..good.len() - 12].to_owned();
    let odd = good.replace("00 0050 00 65", "00 0051 00 65");
    let version_1 = good.replace("0f00 00 0050", "0f00 01 0050");
    let selector = good.replace("0050 00 65", "0050 01 65");
    for text in [&cut, &odd, &version_1, &selector] {
        assert!(matches!(decode(&ieee(text)).unwrap().bpdu, Bpdu::Rst(_)), "{text}");
    }
}

/// A capture of a PVST+ trunk: VLAN 10's RST BPDU, tagged, to the SSTP address.
#[test]
fn sstp() {
    let vlan = VlanId::new(10).unwrap();
    let text = format!("01000ccccccd 020000000009 8100 e00a 0032 aaaa03 00000c 010b {RST} 0000 0002 000a");
    let frame = decode(&hex(&text)).unwrap();
    assert_eq!((frame.vlan, frame.encapsulation), (Some(vlan), Encapsulation::Sstp { pvid: Some(vlan) }));
    assert_eq!(encode(frame.source, Some(vlan), frame.encapsulation, &frame.bpdu), hex(&text));
    // A configuration BPDU is padded by one octet before the VLAN.
    let text = format!("01000ccccccd 020000000009 0032 aaaa03 00000c 010b {CONFIG} 00 0000 0002 000a");
    let frame = decode(&hex(&text)).unwrap();
    assert_eq!(encode(frame.source, None, frame.encapsulation, &frame.bpdu)[..64], hex(&text)[..]);
}

#[test]
fn refusals_have_names() {
    use BpduError::*;
    let sstp = |tail: &str| hex(&format!("01000ccccccd 020000000009 0032 aaaa03 00000c 010b {RST} {tail}"));
    let change = |from: &str, to: &str| ieee(&RST.replacen(from, to, 1));
    let cases: Vec<(BpduError, Vec<u8>)> = vec![
        (FrameTruncated, hex("0180c2000000 0200")),
        (FrameTruncated, ieee(RST)[..40].to_vec()),
        (Destination, hex("ffffffffffff 020000000009 0026 424203")),
        (Source, hex("0180c2000000 030000000009 0026 424203")),
        (Source, hex("0180c2000000 000000000000 0026 424203")),
        (LengthField, hex("0180c2000000 020000000009 0800 424203")),
        (LengthField, hex("0180c2000000 020000000009 0002 424203")),
        (LlcHeader, hex("0180c2000000 020000000009 0004 aaaa0300")),
        (Tagged, hex("0180c2000000 020000000009 8100 000a 0004 42420300")),
        (TagVlan, hex("01000ccccccd 020000000009 8100 0fff 0004 42420300")),
        (ProtocolId, ieee(&RST.replacen("0000", "0001", 1))),
        (BpduType, ieee(&RST.replacen("02 02", "02 03", 1))),
        (BpduType, ieee(&RST.replacen("02 02", "01 02", 1))),
        (BpduTruncated, ieee("0000 00")),
        (BpduTruncated, ieee(&CONFIG[..CONFIG.len() - 4])),
        (MessageAge, ieee(&CONFIG.replacen("0100 1400", "1400 1400", 1))),
        (MaxAge, change("1400 0200", "0500 0200")),
        (MaxAge, change("1400 0200", "2900 0200")),
        (HelloTime, change("0200 0f00", "0000 0f00")),
        (HelloTime, change("0200 0f00", "0b00 0f00")),
        (ForwardDelay, change("0f00", "0100")),
        (ForwardDelay, change("0f00", "1f00")),
        (PortNumber, change("8002 0100", "8000 0100")),
        (BridgeAddress, change("8000020000000001", "8000030000000001")),
        (BridgeAddress, change("8000020000000009", "8000000000000000")),
        (MstiIdentifier, ieee(&mst(&[&MSTI_1.replace("1001", "1000")]))),
        (MstiIdentifier, ieee(&mst(&[&MSTI_1.replace("1001", "1fff")]))),
        (MstiDuplicate, ieee(&mst(&[MSTI_1, MSTI_1]))),
        (PvidTlv, sstp("0000 0003 000a")),
        (PvidTlv, sstp("0001 0002 000a")),
        (PvidValue, sstp("0000 0002 0fff")),
        (PvidValue, sstp("0000 0002 0000")),
    ];
    for (want, frame) in &cases {
        assert_eq!(decode(frame).err(), Some(*want), "{frame:02x?}");
    }
    let missing: Vec<_> =
        BpduError::ALL.iter().filter(|e| !cases.iter().any(|(seen, _)| seen == *e)).collect();
    assert!(missing.is_empty(), "untested: {missing:?}");
}

#[test]
fn every_cut_and_every_flipped_octet_is_survived() {
    for text in [CONFIG.to_owned(), RST.to_owned(), mst(&[MSTI_1])] {
        let frame = ieee(&text);
        for n in 0..frame.len() {
            let _ = decode(&frame[..n]);
            for bit in 0..8 {
                let mut bad = frame.clone();
                bad[n] ^= 1 << bit;
                let _ = decode(&bad);
            }
        }
    }
}
