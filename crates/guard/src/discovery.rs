//! Messages of neighbour discovery (RFC 4861): the fields that ND inspection reads, and the solicitation that it sends.
//!
//! Invariant: a message that is read is one that hosts accept (RFC 4861, 6.1.1, 7.1.1 and 7.1.2).

use lanyard_types::MacAddr;
use lanyard_wire::ip::ones_complement_sum;
use lanyard_wire::{Builder, Frame};
use std::net::Ipv6Addr;

const IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
const HOP_LIMIT: u8 = 255;
const ROUTER_SOLICITATION: u8 = 133;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// The kinds of messages that are inspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    RouterSolicitation,
    Solicitation,
    Advertisement,
}

impl Kind {
    /// The name in the log, as IOS has it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RouterSolicitation => "NDP::RS",
            Self::Solicitation => "NDP::NS",
            Self::Advertisement => "NDP::NA",
        }
    }
}

/// A message, and the frame's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) mac: MacAddr,
    pub(crate) src: Ipv6Addr,
    pub(crate) dst: Ipv6Addr,
    /// The address that is solicited or advertised; for a router solicitation, its source.
    pub(crate) target: Ipv6Addr,
    /// The link-layer address of the sender, or for an advertisement that of the target; `None` without such an option.
    pub(crate) link_address: Option<MacAddr>,
}

impl Message {
    /// Reads a frame without a tag; `None` when it is no message that a host would accept.
    pub(crate) fn read(frame: &[u8]) -> Option<Self> {
        let view = Frame::new(frame).ok().filter(|view| view.ethertype() == IPV6)?;
        let ip: &[u8; 40] = view.payload().first_chunk()?;
        let length = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
        let message = view.payload().get(40..40 + length)?;
        if ip[0] >> 4 != 6 || ip[6] != ICMPV6 || ip[7] != HOP_LIMIT || sum(ip, message) != u16::MAX {
            return None;
        }
        let (kind, options, option) = match message.first_chunk::<8>()? {
            [ROUTER_SOLICITATION, 0, ..] => (Kind::RouterSolicitation, 8, 1),
            [NEIGHBOUR_SOLICITATION, 0, ..] => (Kind::Solicitation, 24, 1),
            [NEIGHBOUR_ADVERTISEMENT, 0, ..] => (Kind::Advertisement, 24, 2),
            _ => return None,
        };
        let (src, dst) = (address(ip, 8)?, address(ip, 24)?);
        let target = if options == 8 { src } else { address(message, 8)? };
        let link_address = link_address(message.get(options..)?, option)?;
        let solicited = dst.octets()[..13] == [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff];
        let nobody =
            src.is_unspecified() && (link_address.is_some() || (kind == Kind::Solicitation && !solicited));
        let asked_of_all = kind == Kind::Advertisement && dst.is_multicast() && message[4] & 0x40 != 0;
        if target.is_multicast() || src.is_multicast() || nobody || asked_of_all {
            return None;
        }
        Some(Self { kind, mac: view.src(), src, dst, target, link_address })
    }
}

/// The sum over a message and its pseudo-header (RFC 8200, 8.1): 0xffff if its checksum is right.
fn sum(ip: &[u8; 40], message: &[u8]) -> u16 {
    let length = (message.len() as u32).to_be_bytes();
    ones_complement_sum(&[&ip[8..40], &length, &[0, 0, 0, ICMPV6], message].concat())
}

fn address(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
    Some(octets.into())
}

/// The link-layer address in the options of type `wanted`; the inner `None`: there is no such option; the outer `None`: the
/// options are malformed, or name two different addresses.
fn link_address(mut options: &[u8], wanted: u8) -> Option<Option<MacAddr>> {
    let mut found = None;
    while let [kind, units, ..] = options {
        let length = usize::from(*units) * 8;
        let option = options.get(..length).filter(|option| !option.is_empty())?;
        if *kind == wanted {
            let mac: [u8; 6] = option.get(2..)?.try_into().ok()?;
            if found.replace(MacAddr(mac)).is_some_and(|before| before != MacAddr(mac)) {
                return None;
            }
        }
        options = &options[length..];
    }
    options.is_empty().then_some(found)
}

/// A frame from `mac` with a message of this kind, these addresses and options, and the right checksum.
pub(crate) fn message(
    kind: u8,
    mac: MacAddr,
    [src, dst]: [Ipv6Addr; 2],
    target: Ipv6Addr,
    options: &[u8],
) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    if kind != ROUTER_SOLICITATION {
        message.extend(target.octets());
    }
    message.extend(options);
    let mut ip = [0; 40];
    (ip[0], ip[5], ip[6], ip[7]) = (0x60, message.len() as u8, ICMPV6, HOP_LIMIT);
    ip[8..24].copy_from_slice(&src.octets());
    ip[24..].copy_from_slice(&dst.octets());
    let checksum = !sum(&ip, &message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let [.., a, b, c, d] = dst.octets();
    let builder = Builder::new(MacAddr([0x33, 0x33, a, b, c, d]), mac).ethertype(IPV6);
    builder.payload(&[&ip[..], &message].concat()).build_unpadded()
}

/// A solicitation for duplicate address detection (RFC 4862, 5.4.2) in the name of `mac`. Its sender is unspecified, so a host
/// with the address answers to all nodes.
pub(crate) fn solicitation(mac: MacAddr, target: Ipv6Addr) -> Vec<u8> {
    let [.., a, b, c] = target.octets().map(u16::from);
    let solicited = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | a, b << 8 | c);
    message(NEIGHBOUR_SOLICITATION, mac, [Ipv6Addr::UNSPECIFIED, solicited], target, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn six(last: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last)
    }

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn option(kind: u8, mac: MacAddr) -> Vec<u8> {
        [&[kind, 1][..], &mac.0].concat()
    }

    #[test]
    fn messages_that_hosts_accept_are_read() {
        let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
        let options = [&nonce[..], &option(1, OTHER), &option(2, MAC)].concat();
        let read = Message::read(&message(135, MAC, [six(1), six(2)], six(2), &options)).expect("valid");
        let want = Message {
            kind: Kind::Solicitation,
            mac: MAC,
            src: six(1),
            dst: six(2),
            target: six(2),
            link_address: Some(OTHER),
        };
        assert_eq!(read, want);
        let advertised = message(136, MAC, [six(1), all], six(1), &option(2, MAC));
        assert_eq!(Message::read(&advertised).map(|read| read.kind), Some(Kind::Advertisement));
        let router =
            Message::read(&message(133, MAC, [six(1), all], six(9), &option(1, MAC))).expect("valid");
        assert_eq!((router.target, router.link_address), (six(1), Some(MAC)));
        // A frame of the shortest length is padded behind the packet.
        let mut padded = message(133, MAC, [six(1), all], six(9), &[]);
        padded.resize(70, 9);
        assert!(Message::read(&padded).is_some());
    }

    #[test]
    fn a_sent_solicitation_is_decoded() {
        let sent = solicitation(MAC, six(0xabcd));
        let read = Message::read(&sent).expect("valid");
        assert_eq!(
            (read.kind, read.target, read.src),
            (Kind::Solicitation, six(0xabcd), Ipv6Addr::UNSPECIFIED)
        );
        assert_eq!(sent[..6], [0x33, 0x33, 0xff, 0, 0xab, 0xcd]);
    }

    #[test]
    fn messages_that_no_host_accepts_are_refused() {
        let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let none = Ipv6Addr::UNSPECIFIED;
        let bad = |frame: &[u8], what: &str| assert_eq!(Message::read(frame), None, "{what}");
        let whole = message(135, MAC, [six(1), six(2)], six(2), &option(1, MAC));
        for (at, what) in
            [(14, "version"), (20, "next header"), (21, "hop limit"), (55, "code"), (57, "checksum")]
        {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            bad(&changed, what);
        }
        (0..whole.len()).for_each(|len| bad(&whole[..len], "cut off"));
        bad(&message(134, MAC, [six(1), all], six(1), &[]), "a router advertisement");
        bad(&message(135, MAC, [none, all], six(2), &[]), "a probe that is not for the solicited node");
        bad(&message(133, MAC, [none, all], six(2), &option(1, MAC)), "a link address of nobody");
        bad(&message(135, MAC, [six(1), six(2)], all, &[]), "a target that is a group");
        bad(
            &message(135, MAC, [six(1), six(2)], six(2), &[5, 0, 0, 0, 0, 0, 0, 0]),
            "an option without a length",
        );
        bad(
            &message(135, MAC, [six(1), six(2)], six(2), &[5, 2, 0, 0, 0, 0, 0, 0]),
            "an option that is cut off",
        );
        let two = [option(1, MAC), option(1, OTHER)].concat();
        bad(&message(135, MAC, [six(1), six(2)], six(2), &two), "two link addresses");
        let long = [&[1, 2][..], &[0; 14]].concat();
        bad(&message(135, MAC, [six(1), six(2)], six(2), &long), "a link address of fourteen octets");
    }
}
