//! BPDUs to frames (IEEE 802.1Q-2018, 14.4).

use super::{Bpdu, Encapsulation, MAX_MSTI_MESSAGES, MstPart};
use lanyard_types::{MacAddr, VlanId};

/// Encodes a BPDU without its LLC header.
#[must_use]
pub fn encode_bpdu(bpdu: &Bpdu) -> Vec<u8> {
    let (version, kind, body) = match bpdu {
        Bpdu::Tcn => return vec![0, 0, 0, 0x80],
        Bpdu::Config(body) => (0, 0x00, body),
        Bpdu::Rst(body) => (2, 0x02, body),
        Bpdu::Mst(body, _) => (3, 0x02, body),
    };
    let mut out = Vec::with_capacity(128);
    out.extend([0, 0, version, kind, body.flags.to_octet()]);
    out.extend(body.root.0.to_be_bytes());
    out.extend(body.root_path_cost.to_be_bytes());
    out.extend(body.bridge.0.to_be_bytes());
    out.extend(body.port.0.to_be_bytes());
    for time in [body.message_age, body.max_age, body.hello_time, body.forward_delay] {
        out.extend(time.to_be_bytes());
    }
    if kind == 0x02 {
        out.push(0);
    }
    if let Bpdu::Mst(_, mst) = bpdu {
        encode_mst(mst, &mut out);
    }
    out
}

fn encode_mst(mst: &MstPart, out: &mut Vec<u8>) {
    let mstis = &mst.mstis[..mst.mstis.len().min(MAX_MSTI_MESSAGES)];
    out.reserve(66 + mstis.len() * 16);
    out.extend((64 + 16 * mstis.len() as u16).to_be_bytes());
    out.push(0);
    out.extend(mst.config_id.name);
    out.extend(mst.config_id.revision.to_be_bytes());
    out.extend(mst.config_id.digest);
    out.extend(mst.internal_root_path_cost.to_be_bytes());
    out.extend(mst.bridge.0.to_be_bytes());
    out.push(mst.remaining_hops);
    for message in mstis {
        out.push(message.flags.to_octet());
        out.extend(message.regional_root.0.to_be_bytes());
        out.extend(message.internal_root_path_cost.to_be_bytes());
        out.extend([(message.bridge_priority >> 8) as u8, message.port_priority, message.remaining_hops]);
    }
}

/// Encodes a complete frame, padded to 60 octets; `tag` is the VLAN of its 802.1Q tag.
#[must_use]
pub fn encode(source: MacAddr, tag: Option<VlanId>, encapsulation: Encapsulation, bpdu: &Bpdu) -> Vec<u8> {
    let pdu = encode_bpdu(bpdu);
    let mut out = Vec::with_capacity(pdu.len() + 40);
    let sstp = matches!(encapsulation, Encapsulation::Sstp { .. });
    out.extend(if sstp { MacAddr::SSTP.0 } else { MacAddr::BRIDGE_GROUP.0 });
    out.extend(source.0);
    if let Some(vlan) = tag {
        // Priority 7: network control (802.1Q-2018, table I-2).
        out.extend([0x81, 0x00]);
        out.extend((7 << 13 | vlan.get()).to_be_bytes());
    }
    let length_at = out.len();
    out.extend([0, 0]);
    match encapsulation {
        Encapsulation::Ieee => {
            out.extend([0x42, 0x42, 0x03]);
            out.extend(pdu);
        }
        Encapsulation::Sstp { pvid } => {
            out.extend([0xaa, 0xaa, 0x03, 0x00, 0x00, 0x0c, 0x01, 0x0b]);
            let body_at = out.len();
            out.extend(pdu);
            if let Some(pvid) = pvid {
                out.resize(body_at + 36, 0);
                out.extend([0, 0, 0, 2]);
                out.extend(pvid.get().to_be_bytes());
            }
        }
    }
    let length = (out.len() - length_at - 2) as u16;
    out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    if out.len() < 60 {
        out.resize(60, 0);
    }
    out
}
