//! RADIUS packets (RFC 2865, 3): Access-Requests, their answers, and the authenticators of both.
//!
//! Every request carries a Message-Authenticator (RFC 3579, 3.2), so that every server that can answer with one does. Without it
//! an attacker between switch and server can turn a rejection into an acceptance (CVE-2024-3596); `client` decides in which
//! answers it may be missing.

use hmac::{Hmac, KeyInit, Mac};
use lanyard_types::VlanId;
use md5::{Digest, Md5};

/// The longest packet, in bytes (RFC 2865, 3).
pub const MAX_PACKET: usize = 4096;
/// The length of the header, in bytes.
const HEADER: usize = 20;
/// The longest value of an attribute, in bytes.
const MAX_VALUE: usize = 253;
/// The longest User-Password, in bytes (RFC 2865, 5.2).
const MAX_PASSWORD: usize = 128;
const BLOCK: usize = 16;

const ACCESS_REQUEST: u8 = 1;
const ACCESS_ACCEPT: u8 = 2;
const ACCESS_REJECT: u8 = 3;
const ACCESS_CHALLENGE: u8 = 11;

/// The types of attributes.
pub mod attribute {
    pub const USER_NAME: u8 = 1;
    pub const USER_PASSWORD: u8 = 2;
    pub const NAS_IP_ADDRESS: u8 = 4;
    pub const NAS_PORT: u8 = 5;
    pub const SERVICE_TYPE: u8 = 6;
    pub const FRAMED_MTU: u8 = 12;
    pub const STATE: u8 = 24;
    pub const SESSION_TIMEOUT: u8 = 27;
    pub const TERMINATION_ACTION: u8 = 29;
    pub const CALLED_STATION_ID: u8 = 30;
    pub const CALLING_STATION_ID: u8 = 31;
    pub const NAS_IDENTIFIER: u8 = 32;
    pub const NAS_PORT_TYPE: u8 = 61;
    pub const TUNNEL_TYPE: u8 = 64;
    pub const TUNNEL_MEDIUM_TYPE: u8 = 65;
    pub const EAP_MESSAGE: u8 = 79;
    pub const MESSAGE_AUTHENTICATOR: u8 = 80;
    pub const TUNNEL_PRIVATE_GROUP_ID: u8 = 81;
    pub const NAS_PORT_ID: u8 = 87;
}

/// The attributes of a request, without those that depend on the server's key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds an attribute. A value longer than 253 bytes is truncated.
    pub fn add(&mut self, kind: u8, value: &[u8]) -> &mut Self {
        let value = &value[..value.len().min(MAX_VALUE)];
        self.0.extend([kind, (value.len() + 2) as u8]);
        self.0.extend(value);
        self
    }
    /// Adds an attribute whose value is a number.
    pub fn number(&mut self, kind: u8, value: u32) -> &mut Self {
        self.add(kind, &value.to_be_bytes())
    }
    /// Adds an EAP packet, in as many EAP-Message attributes as it needs (RFC 3579, 3.1).
    pub fn eap(&mut self, eap: &[u8]) -> &mut Self {
        for part in eap.chunks(MAX_VALUE) {
            self.add(attribute::EAP_MESSAGE, part);
        }
        self
    }
}

fn digest(parts: &[&[u8]]) -> [u8; BLOCK] {
    let mut md5 = Md5::new();
    parts.iter().for_each(|part| md5.update(part));
    md5.finalize().into()
}

/// The Message-Authenticator of a packet; `parts` are the bytes that it covers, with zeroes in its own place.
fn message_authenticator(key: &[u8], parts: &[&[u8]]) -> [u8; BLOCK] {
    // A key of any length is valid.
    let Ok(mut mac) = Hmac::<Md5>::new_from_slice(key) else { return [0; BLOCK] };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// A password as User-Password hides it (RFC 2865, 5.2).
fn hidden(key: &[u8], authenticator: &[u8; BLOCK], password: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = password[..password.len().min(MAX_PASSWORD)].to_vec();
    out.resize(out.len().max(1).next_multiple_of(BLOCK), 0);
    let mut before = *authenticator;
    for block in out.chunks_mut(BLOCK) {
        let mask = digest(&[key, &before]);
        block.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        before.copy_from_slice(block);
    }
    out
}

/// A request for access; `None` if it would be too long.
pub fn request(
    id: u8,
    authenticator: &[u8; BLOCK],
    key: &[u8],
    attributes: &Attributes,
    password: Option<&[u8]>,
) -> Option<Vec<u8>> {
    let mut packet = vec![ACCESS_REQUEST, id, 0, 0];
    packet.extend(authenticator);
    // The Message-Authenticator comes first, so that an attacker cannot predict the bytes before the other attributes.
    packet.extend([attribute::MESSAGE_AUTHENTICATOR, 18]);
    let place = packet.len();
    packet.extend([0; BLOCK]);
    packet.extend(&attributes.0);
    if let Some(password) = password {
        let hidden = hidden(key, authenticator, password);
        packet.extend([attribute::USER_PASSWORD, (hidden.len() + 2) as u8]);
        packet.extend(hidden);
    }
    let length = u16::try_from(packet.len()).ok().filter(|length| usize::from(*length) <= MAX_PACKET)?;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    let proof = message_authenticator(key, &[&packet]);
    packet[place..place + BLOCK].copy_from_slice(&proof);
    Some(packet)
}

/// The decision in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Access-Accept.
    Accept,
    /// Access-Reject.
    Reject,
    /// Access-Challenge.
    Challenge,
}

/// The answer of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The decision.
    pub code: Code,
    /// True if it has a valid Message-Authenticator.
    pub signed: bool,
    /// The EAP packet for the host.
    pub eap: Option<Vec<u8>>,
    /// The value of the State attribute, which the next request of the authentication has to repeat.
    pub state: Option<Vec<u8>>,
    /// The VLAN of the host, as a number or a name (RFC 3580, 3.31); `None` if the answer assigns none.
    pub vlan: Option<String>,
    /// The user's name.
    pub user: Option<Vec<u8>>,
    /// Session-Timeout in seconds.
    pub timeout_s: Option<u32>,
    /// True if the host is authenticated again after `timeout_s` (Termination-Action).
    pub reauthenticates: bool,
}

/// Why a datagram is no answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// Its lengths are wrong, or its code is not that of an answer to an Access-Request.
    Malformed,
    /// The Response Authenticator or the Message-Authenticator is wrong: the keys differ, or the datagram is forged.
    Authenticator,
    /// It has no Message-Authenticator, and needs one.
    Unsigned,
}

/// The identifier of a packet.
pub fn identifier(packet: &[u8]) -> Option<u8> {
    packet.get(1).copied()
}

/// The attributes of a packet: type, offset of the value in `bytes`, and value. `None` if their lengths are wrong.
fn attributes(bytes: &[u8]) -> Option<Vec<(u8, usize, &[u8])>> {
    let (mut list, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let [kind, length] = *bytes.get(at..)?.first_chunk::<2>()?;
        let end = at + usize::from(length);
        let value = bytes.get(at + 2..end)?;
        list.push((kind, at + 2, value));
        at = end;
    }
    Some(list)
}

/// Reads an answer to the request with this authenticator.
///
/// # Errors
/// The reason why the packet is not a valid answer.
pub fn answer(packet: &[u8], key: &[u8], authenticator: &[u8; BLOCK]) -> Result<Answer, Invalid> {
    let head = packet.first_chunk::<HEADER>().ok_or(Invalid::Malformed)?;
    let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if !(HEADER..=MAX_PACKET).contains(&length) {
        return Err(Invalid::Malformed);
    }
    // Bytes behind the length are padding (RFC 2865, 3).
    let packet = packet.get(..length).ok_or(Invalid::Malformed)?;
    let code = match head[0] {
        ACCESS_ACCEPT => Code::Accept,
        ACCESS_REJECT => Code::Reject,
        ACCESS_CHALLENGE => Code::Challenge,
        _ => return Err(Invalid::Malformed),
    };
    let body = &packet[HEADER..];
    let list = attributes(body).ok_or(Invalid::Malformed)?;
    if digest(&[&packet[..4], authenticator, body, key]) != packet[4..HEADER] {
        return Err(Invalid::Authenticator);
    }
    let mut signatures = list.iter().filter(|(kind, ..)| *kind == attribute::MESSAGE_AUTHENTICATOR);
    let Some((_, at, proof)) = signatures.next() else { return Ok(collect(code, &list)) };
    if signatures.next().is_some() || proof.len() != BLOCK {
        return Err(Invalid::Malformed);
    }
    let (before, after) = (&body[..*at], &body[at + BLOCK..]);
    let want = message_authenticator(key, &[&packet[..4], authenticator, before, &[0; BLOCK], after]);
    if want != **proof {
        return Err(Invalid::Authenticator);
    }
    Ok(Answer { signed: true, ..collect(code, &list) })
}

fn collect(code: Code, list: &[(u8, usize, &[u8])]) -> Answer {
    let first = |wanted: u8| list.iter().find(|(kind, ..)| *kind == wanted).map(|(_, _, value)| *value);
    let number =
        |wanted: u8| first(wanted).and_then(|value| Some(u32::from_be_bytes(value.try_into().ok()?)));
    let eap: Vec<u8> = list
        .iter()
        .filter(|(kind, ..)| *kind == attribute::EAP_MESSAGE)
        .flat_map(|(_, _, value)| value.iter().copied())
        .collect();
    Answer {
        code,
        signed: false,
        eap: Some(eap).filter(|eap| !eap.is_empty()),
        state: first(attribute::STATE).map(<[u8]>::to_vec),
        vlan: vlan(list),
        user: first(attribute::USER_NAME).map(<[u8]>::to_vec),
        timeout_s: number(attribute::SESSION_TIMEOUT),
        reauthenticates: number(attribute::TERMINATION_ACTION) == Some(1),
    }
}

/// The VLAN of the first tunnel of type VLAN (13) over IEEE 802 (6). Attributes of one tunnel have the same tag (RFC 2868, 3).
fn vlan(list: &[(u8, usize, &[u8])]) -> Option<String> {
    const VLAN: u32 = 13;
    const IEEE_802: u32 = 6;
    let has = |wanted: u8, tag: u8, number: u32| {
        list.iter().any(|(kind, _, value)| {
            *kind == wanted
                && value.len() == 4
                && value[0] == tag
                && u32::from_be_bytes([0, value[1], value[2], value[3]]) == number
        })
    };
    let groups = list.iter().filter(|(kind, ..)| *kind == attribute::TUNNEL_PRIVATE_GROUP_ID);
    let mut named = groups.filter_map(|(_, _, value)| {
        // In Tunnel-Private-Group-ID the tag is optional (RFC 2868, 3.6).
        let (tag, text) = match value.split_first() {
            Some((tag, text)) if *tag <= 0x1f => (*tag, text),
            _ => (0, *value),
        };
        (has(attribute::TUNNEL_TYPE, tag, VLAN) && has(attribute::TUNNEL_MEDIUM_TYPE, tag, IEEE_802))
            .then(|| String::from_utf8_lossy(text).into_owned())
    });
    named.next()
}

/// The VLAN that a server names by its number or its name; `None` if it is not one of `vlans`.
pub fn known_vlan(text: &str, vlans: &std::collections::BTreeMap<VlanId, String>) -> Option<VlanId> {
    let numbered = text.trim().parse().ok().and_then(VlanId::new).filter(|vlan| vlans.contains_key(vlan));
    numbered.or_else(|| vlans.iter().find(|(_, name)| *name == text).map(|(vlan, _)| *vlan))
}

/// An acceptance without a Message-Authenticator; for tests.
#[cfg(test)]
pub fn unsigned_accept(packet: &[u8], key: &[u8]) -> Vec<u8> {
    let mut out = vec![ACCESS_ACCEPT, packet[1], 0, 20];
    let response = digest(&[&out, &packet[4..HEADER], key]);
    out.extend(response);
    out
}

/// An answer, as a server makes it; for tests.
pub fn respond(packet: &[u8], key: &[u8], code: Code, attributes: &Attributes) -> Vec<u8> {
    let code = match code {
        Code::Accept => ACCESS_ACCEPT,
        Code::Reject => ACCESS_REJECT,
        Code::Challenge => ACCESS_CHALLENGE,
    };
    let length = (HEADER + 18 + attributes.0.len()) as u16;
    let mut out = vec![code, packet[1]];
    out.extend(length.to_be_bytes());
    out.extend(&packet[4..HEADER]);
    out.extend([attribute::MESSAGE_AUTHENTICATOR, 18]);
    let place = out.len();
    out.extend([0; BLOCK]);
    out.extend(&attributes.0);
    let proof = message_authenticator(key, &[&out]);
    out[place..place + BLOCK].copy_from_slice(&proof);
    let response = digest(&[&out, key]);
    out[4..HEADER].copy_from_slice(&response);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"xyzzy5461";

    /// The example of RFC 2865, 7.1: user nemo, password arctangent.
    #[test]
    fn the_password_of_the_rfc() {
        let authenticator =
            [0x0f, 0x40, 0x3f, 0x94, 0x73, 0x97, 0x80, 0x57, 0xbd, 0x83, 0xd5, 0xcb, 0x98, 0xf4, 0x22, 0x7a];
        let want =
            [0x0d, 0xbe, 0x70, 0x8d, 0x93, 0xd4, 0x13, 0xce, 0x31, 0x96, 0xe4, 0x3f, 0x78, 0x2a, 0x0a, 0xee];
        assert_eq!(hidden(KEY, &authenticator, b"arctangent"), want);
        assert_eq!(hidden(KEY, &authenticator, b"").len(), 16);
        assert_eq!(hidden(KEY, &authenticator, &[7; 17]).len(), 32);
        assert_eq!(hidden(KEY, &authenticator, &[7; 400]).len(), 128);
    }

    fn accept() -> (Vec<u8>, Vec<u8>) {
        let mut of = Attributes::default();
        of.add(attribute::USER_NAME, b"nemo").eap(&[1; 300]).number(attribute::SESSION_TIMEOUT, 60);
        let request = request(7, &[9; BLOCK], KEY, &of, Some(b"secret")).expect("short");
        let mut of = Attributes::default();
        of.add(attribute::STATE, b"there").eap(&[5; 300]).number(attribute::TERMINATION_ACTION, 1);
        of.number(attribute::SESSION_TIMEOUT, 90);
        (request.clone(), respond(&request, KEY, Code::Accept, &of))
    }

    #[test]
    fn a_request_is_signed() {
        let (request, _) = accept();
        assert_eq!(usize::from(u16::from_be_bytes([request[2], request[3]])), request.len());
        let mut unsigned = request.clone();
        unsigned[22..38].fill(0);
        assert_eq!(request[22..38], message_authenticator(KEY, &[&unsigned]));
        assert_eq!(super::request(1, &[0; BLOCK], KEY, Attributes::default().eap(&[0; 4096]), None), None);
    }

    #[test]
    fn answers() {
        let (_, packet) = accept();
        let good = answer(&packet, KEY, &[9; BLOCK]).expect("valid");
        assert_eq!((good.code, good.eap), (Code::Accept, Some(vec![5; 300])));
        assert_eq!((good.state.as_deref(), good.timeout_s), (Some(&b"there"[..]), Some(90)));
        assert!(good.reauthenticates);
        assert_eq!(
            answer(&[&packet[..], &[1, 2]].concat(), KEY, &[9; BLOCK]).map(|it| it.code),
            Ok(Code::Accept)
        );
        assert_eq!(answer(&packet, b"other", &[9; BLOCK]), Err(Invalid::Authenticator));
        assert_eq!(answer(&packet, KEY, &[8; BLOCK]), Err(Invalid::Authenticator));
        // No single bit may differ.
        for at in 0..packet.len() {
            let mut forged = packet.clone();
            forged[at] ^= 1;
            // The digest also covers the identifier (byte 1), by which the client finds the request.
            assert!(answer(&forged, KEY, &[9; BLOCK]).is_err(), "byte {at}");
        }
        for len in 0..packet.len() {
            assert_eq!(answer(&packet[..len], KEY, &[9; BLOCK]), Err(Invalid::Malformed), "{len} bytes");
        }
    }

    #[test]
    fn an_answer_without_a_signature() {
        let mut packet = vec![ACCESS_ACCEPT, 7, 0, 20];
        let response = digest(&[&packet, &[9; BLOCK], KEY]);
        packet.extend(response);
        assert_eq!(
            answer(&packet, KEY, &[9; BLOCK]).map(|it| (it.code, it.signed)),
            Ok((Code::Accept, false))
        );
        assert_eq!(answer(&packet, KEY, &[8; BLOCK]), Err(Invalid::Authenticator));
    }

    #[test]
    fn vlans() {
        use attribute::{
            TUNNEL_MEDIUM_TYPE as MEDIUM, TUNNEL_PRIVATE_GROUP_ID as GROUP, TUNNEL_TYPE as TYPE,
        };
        let tunnel = |list: &[(u8, &[u8])]| {
            let list: Vec<(u8, usize, &[u8])> = list.iter().map(|(kind, value)| (*kind, 0, *value)).collect();
            vlan(&list)
        };
        let (vlan_type, medium) = ([0, 0, 0, 13], [0, 0, 0, 6]);
        for (list, want) in [
            (&[(TYPE, &vlan_type[..]), (MEDIUM, &medium), (GROUP, b"20")][..], Some("20")),
            (&[(TYPE, &[1, 0, 0, 13]), (MEDIUM, &[1, 0, 0, 6]), (GROUP, b"\x01staff")], Some("staff")),
            (&[(TYPE, &vlan_type), (MEDIUM, &medium), (GROUP, b"\x01staff")], None),
            (&[(TYPE, &[0, 0, 0, 3]), (MEDIUM, &medium), (GROUP, b"20")], None),
            (&[(TYPE, &vlan_type), (GROUP, b"20")], None),
            (&[(GROUP, b"20")], None),
            (&[(TYPE, &vlan_type), (MEDIUM, &medium), (GROUP, b"")], Some("")),
        ] {
            assert_eq!(tunnel(list).as_deref(), want, "{list:?}");
        }
        let ten = VlanId::new(10).expect("a VLAN");
        let known = [(ten, "staff".to_owned())].into();
        for (text, want) in
            [("10", Some(ten)), ("staff", Some(ten)), ("11", None), ("4096", None), ("", None)]
        {
            assert_eq!(known_vlan(text, &known), want, "{text}");
        }
    }
}
