//! Answers address requests for the hosts at a tester's ports: a router requests a host's MAC address before it
//! sends any frame to it.
//!
//! Read first: RFC 826 (ARP), RFC 4861 sections 4.3, 4.4 and 7.2 (neighbour discovery). Invariant: requests for
//! every address of `traffic::Hosts` are answered, and no others.

use super::Port;
use super::template::{fold, sum};
use anyhow::{Context, Result};
use lanyard_netdev::PacketSocket;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The longest time from dropping an [`Answers`] to the end of its thread.
const LOOK_MS: u16 = 50;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

/// Answers requests at some ports for as long as it lives.
pub struct Answers {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answers {
    /// Begins to answer at `ports`.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, or for a device that is gone.
    pub fn at(ports: &[Port]) -> Result<Self> {
        let mut sockets = Vec::new();
        for port in ports {
            let _inside = port.netns().enter()?;
            for ether_type in [ARP, IPV6] {
                sockets.push(
                    PacketSocket::of_type(port.ifindex(), ether_type)
                        .with_context(|| port.name().to_owned())?,
                );
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                answer_all(&sockets);
            }
        });
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread returns nothing.
            let _ = thread.join();
        }
    }
}

fn answer_all(sockets: &[PacketSocket]) {
    let mut waiting: Vec<PollFd<'_>> =
        sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
    if !poll(&mut waiting, PollTimeout::from(LOOK_MS)).is_ok_and(|ready| ready > 0) {
        return;
    }
    for socket in sockets {
        // A port that is down or gone gets no answer; the watch over the trial reports it.
        while let Ok(Some(packet)) = socket.receive() {
            if let Some(answer) = answer(&packet.frame).filter(|_| !packet.outgoing) {
                let _ = socket.send(&answer);
            }
        }
    }
}

/// The answer to a request for one of the hosts.
fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    match u16::from_be_bytes([*frame.get(12)?, *frame.get(13)?]) {
        ARP => arp(frame),
        IPV6 => neighbour(frame),
        _ => None,
    }
}

/// The MAC address of the host with these three bytes.
fn mac(host: &[u8]) -> Option<[u8; 6]> {
    match host {
        [high, middle, low] => Some([0x02, 0x4c, 0, *high, *middle, *low]),
        _ => None,
    }
}

fn arp(frame: &[u8]) -> Option<Vec<u8>> {
    let packet = frame.get(14..42)?;
    // Accept Ethernet, IPv4, request, for 10.x.x.x, from another host.
    let asked = packet.get(24..28)?;
    if packet[..8] != [0, 1, 8, 0, 6, 4, 0, 1] || asked[0] != 10 || asked == &packet[14..18] {
        return None;
    }
    let (mine, theirs) = (mac(&asked[1..])?, &packet[8..18]);
    let mut answer = [&theirs[..6], &mine, &ARP.to_be_bytes(), &[0, 1, 8, 0, 6, 4, 0, 2]].concat();
    answer.extend_from_slice(&mine);
    answer.extend_from_slice(asked);
    answer.extend_from_slice(theirs);
    Some(answer)
}

fn neighbour(frame: &[u8]) -> Option<Vec<u8>> {
    let (header, packet) = (frame.get(14..54)?, frame.get(54..)?);
    // Accept ICMPv6, hop limit 255, a neighbour solicitation from a sender with an address.
    let target = packet.get(8..24)?;
    if header[6] != 58 || header[7] != 255 || packet[0] != 135 || header[8..24] == [0; 16] {
        return None;
    }
    let ours = target[..6] == [0x20, 0x01, 0, 2, 0, 0] && target[6] == 0 && target[8..14] == [0; 6];
    if !ours || target == &header[8..24] {
        return None;
    }
    let mine = mac(&[target[7], target[14], target[15]])?;
    let mut answer = [&frame[6..12], &mine, &IPV6.to_be_bytes(), &[0x60, 0, 0, 0, 0, 32, 58, 255]].concat();
    answer.extend_from_slice(target);
    answer.extend_from_slice(&header[8..24]);
    // An advertisement: solicited, overriding, with the host's MAC address as its option.
    let mut body = [&[136, 0, 0, 0, 0x60, 0, 0, 0], target, &[2, 1], &mine].concat();
    let total = sum(&answer[22..54]) + sum(&[0, 32]) + sum(&[0, 58]) + sum(&body);
    body[2..4].copy_from_slice(&(!fold(total.into())).to_ne_bytes());
    answer.extend_from_slice(&body);
    Some(answer)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed step fails the test
mod tests {
    use super::*;

    const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn arp_request(target: [u8; 4]) -> Vec<u8> {
        let mut frame = [&[0xff; 6][..], &ROUTER, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &ROUTER].concat();
        frame.extend_from_slice(&[10, 1, 255, 254, 0, 0, 0, 0, 0, 0]);
        frame.extend_from_slice(&target);
        frame
    }

    #[test]
    fn arp_is_answered_for_hosts_only() {
        let reply = answer(&arp_request([10, 1, 2, 3])).unwrap();
        assert_eq!(reply[..12], [2, 0, 0, 0, 0, 9, 2, 0x4c, 0, 1, 2, 3]);
        assert_eq!(reply[20..], [0, 2, 2, 0x4c, 0, 1, 2, 3, 10, 1, 2, 3, 2, 0, 0, 0, 0, 9, 10, 1, 255, 254]);
        for other in [[192, 0, 2, 1], [10, 1, 255, 254]] {
            assert_eq!(answer(&arp_request(other)), None, "{other:?}");
        }
        for length in 0..42 {
            assert_eq!(answer(&arp_request([10, 1, 2, 3])[..length]), None);
        }
    }

    #[test]
    fn a_solicitation_is_answered_with_a_right_checksum() {
        let router = [0x20, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0xfe];
        let target = [0x20, 1, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 3, 4];
        let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 3, 4];
        let mut frame = [&[0x33, 0x33, 0xff, 0, 3, 4][..], &ROUTER, &[0x86, 0xdd]].concat();
        frame.extend_from_slice(&[0x60, 0, 0, 0, 0, 24, 58, 255]);
        frame.extend_from_slice(&router);
        frame.extend_from_slice(&group);
        frame.extend_from_slice(&[135, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend_from_slice(&target);
        let reply = answer(&frame).unwrap();
        assert_eq!(reply[..12], [2, 0, 0, 0, 0, 9, 2, 0x4c, 0, 2, 3, 4]);
        assert_eq!((&reply[22..38], &reply[38..54]), (&target[..], &router[..]));
        assert_eq!(reply[80..86], [2, 0x4c, 0, 2, 3, 4]);
        let total = sum(&reply[22..54]) + sum(&[0, 32]) + sum(&[0, 58]) + sum(&reply[54..]);
        assert_eq!(fold(total.into()), 0xffff);
        for length in 0..frame.len() {
            assert_eq!(answer(&frame[..length]), None, "{length}");
        }
    }
}
