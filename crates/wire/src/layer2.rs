//! Recognises the control frames of a customer's network inside a provider's network.
//!
//! In the provider's network such a frame has the destination of the tunnel (`MacAddr::TUNNEL`), so its payload alone
//! shows which protocol it belongs to, and which destination the far tunnel port has to restore. LLC and SNAP: IEEE
//! 802.2 and IEEE 802-2014, 9; the codes: IEEE 802.1Q-2018, 14.2 (BPDU), IEEE 802.1AB-2016, 8.3 (LLDP), and Cisco's
//! SNAP types.

use lanyard_types::{MacAddr, TunnelledProtocol};

/// The most tags of the customer that are skipped.
const CUSTOMER_TAGS: usize = 2;

/// The protocol of a frame, and the destination address that the protocol uses. `has_tag`: the provider's tag stands in
/// front of the customer's tags, of which there may be two. `None` for any other frame, and for one that ends before
/// its protocol is known.
#[must_use]
pub fn tunnelled_protocol(frame: &[u8], has_tag: bool) -> Option<(TunnelledProtocol, MacAddr)> {
    let mut at = 12;
    let mut tags = CUSTOMER_TAGS + usize::from(has_tag);
    loop {
        let bytes: &[u8; 5] = frame.get(at..)?.first_chunk()?;
        match (u16::from_be_bytes([bytes[0], bytes[1]]), &bytes[2..]) {
            (0x8100 | 0x88a8 | 0x9100, _) if tags > 0 => (at, tags) = (at + 4, tags - 1),
            (0x88cc, _) => return Some((TunnelledProtocol::Lldp, MacAddr::LLDP)),
            (0..0x600, [0x42, 0x42, 0x03]) => {
                return Some((TunnelledProtocol::Stp, MacAddr::BRIDGE_GROUP));
            }
            (0..0x600, [0xaa, 0xaa, 0x03]) => return snap(frame.get(at + 5..)?.first_chunk()?),
            _ => return None,
        }
    }
}

/// The protocol by its SNAP identifier.
fn snap(identifier: &[u8; 5]) -> Option<(TunnelledProtocol, MacAddr)> {
    match identifier {
        [0x00, 0x00, 0x0c, 0x01, 0x0b] => Some((TunnelledProtocol::Stp, MacAddr::SSTP)),
        [0x00, 0x00, 0x0c, 0x20, 0x00] => Some((TunnelledProtocol::Cdp, MacAddr::CISCO_DISCOVERY)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(payload: &[u8], tags: &[u16], has_tag: bool, want: Option<(TunnelledProtocol, MacAddr)>) {
        let mut frame = vec![0; 12];
        for tpid in tags {
            frame.extend([tpid.to_be_bytes(), [0, 20]].concat());
        }
        frame.extend(payload);
        assert_eq!(tunnelled_protocol(&frame, has_tag), want, "{payload:02x?} behind {tags:04x?}");
    }

    #[test]
    fn tunnelled_protocols_are_recognised_behind_tags() {
        use TunnelledProtocol::{Cdp, Lldp, Stp};
        let bpdu = [0, 38, 0x42, 0x42, 3, 0, 0, 2, 2, 0];
        check(&bpdu, &[], false, Some((Stp, MacAddr::BRIDGE_GROUP)));
        check(&[0, 50, 0xaa, 0xaa, 3, 0, 0, 0x0c, 1, 0x0b], &[], false, Some((Stp, MacAddr::SSTP)));
        check(
            &[0, 50, 0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0],
            &[],
            false,
            Some((Cdp, MacAddr::CISCO_DISCOVERY)),
        );
        check(&[0x88, 0xcc, 2, 7, 4, 0, 0, 0, 0, 0], &[], false, Some((Lldp, MacAddr::LLDP)));
        check(&bpdu, &[0x8100], false, Some((Stp, MacAddr::BRIDGE_GROUP)));
        check(&bpdu, &[0x88a8, 0x8100], false, Some((Stp, MacAddr::BRIDGE_GROUP)));
        check(&bpdu, &[0x8100, 0x8100, 0x8100], false, None);
        check(&bpdu, &[0x8100, 0x8100, 0x8100], true, Some((Stp, MacAddr::BRIDGE_GROUP)));
        // VTP and UDLD; a value above 1500, which is an EtherType and not a length; a frame that is too
        // short.
        check(&[0, 50, 0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 3], &[], false, None);
        check(&[8, 0, 0x42, 0x42, 3, 0, 0, 2, 2, 0], &[], false, None);
        let pvst = [0, 50, 0xaa, 0xaa, 3, 0, 0, 0x0c, 1];
        check(&pvst, &[], false, None);
        // A topology change notification is the shortest BPDU: seven bytes behind the length.
        check(&[0, 7, 0x42, 0x42, 3, 0, 0, 0, 0x80], &[], false, Some((Stp, MacAddr::BRIDGE_GROUP)));
        check(&bpdu[..4], &[], false, None);
        check(&[], &[], false, None);
    }
}
