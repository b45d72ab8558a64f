//! EAP over LANs (IEEE 802.1X-2004, clause 7) and the header of EAP (RFC 3748, 4).

use lanyard_types::MacAddr;
use lanyard_wire::Builder;

/// The EtherType of EAPOL.
pub const ETHERTYPE: u16 = 0x888e;
/// The PAE group address (802.1X-2004, table 7-2), which no bridge relays.
pub const GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 3]);

/// The version that the switch sends, that of 802.1X-2004. A receiver accepts a higher one (7.5.3).
const VERSION: u8 = 2;
/// The shortest frame without its frame check sequence, in bytes.
const MIN_FRAME: usize = 60;
/// The longest EAP packet that fits a frame, in bytes.
pub const MAX_EAP: usize = 1496;
/// The length of an EAP header, in bytes.
const EAP_HEADER: usize = 4;

/// The types of EAPOL packets (7.5.4).
const EAP_PACKET: u8 = 0;
const START: u8 = 1;
const LOGOFF: u8 = 2;

/// The codes of EAP packets (RFC 3748, 4).
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const SUCCESS: u8 = 3;
const FAILURE: u8 = 4;
/// The type of a request for an identity, and of its answer (RFC 3748, 5.1).
const IDENTITY: u8 = 1;

/// A message of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received<'a> {
    /// EAPOL-Start: the host asks to be authenticated.
    Start,
    /// EAPOL-Logoff: the host leaves.
    Logoff,
    /// An EAP response: the identifier of the request that it answers, and the whole EAP packet.
    Response(u8, &'a [u8]),
}

/// Parses a frame without a tag: its source and its message. `None` for a frame that is malformed, or that no host sends.
pub fn parse(frame: &[u8]) -> Option<(MacAddr, Received<'_>)> {
    let src = MacAddr(*frame.get(6..)?.first_chunk()?);
    if src.is_group() || src.is_zero() || *frame.get(12..)?.first_chunk()? != ETHERTYPE.to_be_bytes() {
        return None;
    }
    let [_, kind, length @ ..] = *frame.get(14..)?.first_chunk::<4>()?;
    let body = frame.get(18..)?;
    match kind {
        START => Some((src, Received::Start)),
        LOGOFF => Some((src, Received::Logoff)),
        EAP_PACKET => {
            let body = body.get(..usize::from(u16::from_be_bytes(length)))?;
            let [code, id, length @ ..] = *body.first_chunk::<EAP_HEADER>()?;
            let length = usize::from(u16::from_be_bytes(length));
            // A response has at least one byte behind the header, its type.
            let valid = code == RESPONSE && length > EAP_HEADER && length <= MAX_EAP;
            Some((src, Received::Response(id, body.get(..length).filter(|_| valid)?)))
        }
        _ => None,
    }
}

/// The identity in an EAP response; `None` if it is another response.
pub fn identity(eap: &[u8]) -> Option<&[u8]> {
    eap.get(EAP_HEADER..)?.split_first().filter(|(kind, _)| **kind == IDENTITY).map(|(_, rest)| rest)
}

/// The identifier of a server's EAP packet; `None` if the packet is not a request.
pub fn request(eap: &[u8]) -> Option<u8> {
    let [code, id, ..] = *eap.first_chunk::<EAP_HEADER>()?;
    (code == REQUEST).then_some(id)
}

/// A request for an identity.
pub fn identity_request(id: u8) -> Vec<u8> {
    vec![REQUEST, id, 0, 5, IDENTITY]
}

/// The EAP packet that ends an authentication: Success or Failure (RFC 3748, 4.2).
pub fn end(success: bool, id: u8) -> Vec<u8> {
    vec![if success { SUCCESS } else { FAILURE }, id, 0, 4]
}

/// The frame that carries an EAP packet.
pub fn frame(to: MacAddr, from: MacAddr, eap: &[u8]) -> Vec<u8> {
    let length = u16::try_from(eap.len()).unwrap_or(0).to_be_bytes();
    let payload = [&[VERSION, EAP_PACKET], &length[..], eap].concat();
    Builder::new(to, from).ethertype(ETHERTYPE).payload(&payload).pad(MIN_FRAME).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);

    fn made(kind: u8, length: u16, body: &[u8]) -> Vec<u8> {
        let payload = [&[1, kind], &length.to_be_bytes()[..], body].concat();
        Builder::new(GROUP, HOST).ethertype(ETHERTYPE).payload(&payload).pad(MIN_FRAME).build()
    }

    #[test]
    fn frames_of_hosts() {
        let identity = [2, 9, 0, 8, 1, b'b', b'o', b'b'];
        for (kind, length, body, want) in [
            (1, 0, &[][..], Some(Received::Start)),
            (2, 0, &[], Some(Received::Logoff)),
            (0, 8, &identity, Some(Received::Response(9, &identity))),
            // In this order: EAP longer than the EAPOL body; a response without a type; an EAP request; EAPOL-Key; an EAPOL body
            // longer than the frame.
            (0, 7, &identity, None),
            (0, 4, &[2, 9, 0, 4], None),
            (0, 5, &[1, 9, 0, 5, 1], None),
            (3, 0, &[], None),
            (0, 900, &[2, 9, 3, 132, 1], None),
        ] {
            let frame = made(kind, length, body);
            assert_eq!(parse(&frame), want.map(|want| (HOST, want)), "{kind} {length} {body:?}");
        }
        let whole = made(0, 8, &identity);
        for len in 0..26 {
            assert_eq!(parse(&whole[..len]), None, "{len} bytes");
        }
        let mut group = whole.clone();
        group[6] |= 1;
        assert_eq!(parse(&group), None);
        assert_eq!(super::identity(&identity), Some(&b"bob"[..]));
        assert_eq!(super::identity(&[2, 9, 0, 5, 4]), None);
    }

    #[test]
    fn frames_of_the_switch() {
        let made = frame(HOST, MacAddr([2, 0, 0, 0, 0, 1]), &identity_request(7));
        assert_eq!(made.len(), MIN_FRAME);
        assert_eq!(made[12..23], [0x88, 0x8e, 2, 0, 0, 5, 1, 7, 0, 5, 1]);
        assert_eq!((request(&identity_request(7)), request(&end(true, 7))), (Some(7), None));
    }
}
