//! The frame of a DHCP message: an Ethernet header without a tag, IPv4, UDP.
//!
//! Invariant: a frame that is written has valid lengths and checksums. They are always computed anew, because a host on the
//! same machine leaves the checksum of a frame to hardware that the frame never reaches.

use lanyard_dhcp::Message;
use lanyard_types::MacAddr;
use lanyard_wire::ip::{IPV4, ones_complement_sum};
use lanyard_wire::{Frame, HEADER_LEN};

const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
/// The UDP port of servers and relays.
pub(crate) const SERVER: u16 = 67;
/// The UDP port of clients.
pub(crate) const CLIENT: u16 = 68;

/// A DHCP message and the frame that carried it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) dst: MacAddr,
    pub(crate) src: MacAddr,
    /// The UDP port to which it is sent.
    pub(crate) to: u16,
    /// The Ethernet and IPv4 headers.
    headers: Vec<u8>,
    ports: [u8; 4],
    pub(crate) message: Message,
}

impl Packet {
    /// Reads a frame without a tag; `None` when it is no whole DHCP message.
    pub(crate) fn read(frame: &[u8]) -> Option<Self> {
        let view = Frame::new(frame).ok().filter(|view| view.ethertype() == IPV4)?;
        let ip = view.payload();
        let header_len = usize::from(ip.first()? & 15) * 4;
        let fixed: &[u8; 20] = ip.first_chunk()?;
        let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff;
        if fixed[0] >> 4 != 4 || header_len < 20 || fragment != 0 || fixed[9] != UDP {
            return None;
        }
        let udp = ip.get(header_len..total)?;
        let header: &[u8; UDP_HEADER] = udp.first_chunk()?;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let to = u16::from_be_bytes([header[2], header[3]]);
        if to != SERVER && to != CLIENT {
            return None;
        }
        let message = Message::parse(udp.get(UDP_HEADER..len)?).filter(Message::is_sound)?;
        Some(Self {
            dst: view.dst(),
            src: view.src(),
            to,
            headers: frame.get(..HEADER_LEN + header_len)?.to_vec(),
            ports: [header[0], header[1], header[2], header[3]],
            message,
        })
    }

    /// The frame that carries the message as it is now; `None` when it does not fit into an IPv4 packet.
    pub(crate) fn to_bytes(&self) -> Option<Vec<u8>> {
        let message = self.message.to_bytes();
        let udp_len = u16::try_from(UDP_HEADER + message.len()).ok()?;
        let mut frame = self.headers.clone();
        let ip_len = frame.len().checked_sub(HEADER_LEN)?;
        let total = u16::try_from(ip_len).ok()?.checked_add(udp_len)?;
        let ip = frame.get_mut(HEADER_LEN..)?;
        ip.get_mut(2..4)?.copy_from_slice(&total.to_be_bytes());
        ip.get_mut(10..12)?.fill(0);
        let sum = !ones_complement_sum(ip);
        ip.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
        let addresses = ip.get(12..20)?.to_vec();
        let mut udp = [&self.ports[..], &udp_len.to_be_bytes(), &[0, 0], &message].concat();
        let pseudo = [&addresses[..], &[0, UDP], &udp_len.to_be_bytes(), &udp].concat();
        let sum = !ones_complement_sum(&pseudo);
        // 0 stands for "no checksum" (RFC 768).
        udp.get_mut(6..8)?.copy_from_slice(&if sum == 0 { u16::MAX } else { sum }.to_be_bytes());
        frame.extend(udp);
        Some(frame)
    }
}
