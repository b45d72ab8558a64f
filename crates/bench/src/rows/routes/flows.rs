//! Traffic of the row `death`: numbered datagrams of flows whose next hop fails. The figure is the time for which they
//! are lost.
//!
//! A datagram counts at the time when it was sent, so delays of the receiver or the machine are not in the figure.
//! Resolution: [`INTERVAL`].

use anyhow::{Context, Result, bail, ensure};
use lanyard_netdev::{Netdev, PacketSocket};
use lanyard_tester::os::{self, Netns, check_interrupted};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two datagrams.
const INTERVAL: Duration = Duration::from_micros(200);
/// The number of datagrams that must arrive without loss before the cut, and after the last lost one.
const CALM: usize = 1000;
/// The number of flows that are examined to find those that take the second gateway.
const FLOWS: usize = 64;
/// The least number of flows that must take the second gateway.
const FEWEST: usize = 8;
const LIMIT: Duration = Duration::from_secs(30);
/// The offset of a datagram's number in the frame: after Ethernet, IPv4 and UDP.
const NUMBER_AT: usize = 42;
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 30, 1);

/// A host that sends, and the two gateways that receive.
pub(super) struct Flows {
    sender: PacketSocket,
    gateways: [PacketSocket; 2],
    /// The destination and the source MAC address.
    ethernet: [u8; 12],
    to: Vec<Ipv4Addr>,
}

impl Flows {
    /// Finds flows from `h3` over the switch's `vlan30` to some of `to` that take the second gateway.
    ///
    /// # Errors
    /// When fewer than [`FEWEST`] flows take it.
    pub fn find(switch: &Netns, host: &Netns, gateways: &Netns, to: &[Ipv4Addr]) -> Result<Self> {
        let open = |netns: &Netns, device: &str| -> Result<(PacketSocket, [u8; 6])> {
            let _inside = netns.enter()?;
            let link = Netdev::open()?.link(device)?;
            let socket = PacketSocket::open(link.ifindex).with_context(|| format!("a socket at {device}"))?;
            Ok((socket, link.mac.0))
        };
        let (sender, own) = open(host, "h3")?;
        let router = open(switch, "vlan30")?.1;
        let mut ethernet = [0; 12];
        ethernet[..6].copy_from_slice(&router);
        ethernet[6..].copy_from_slice(&own);
        let gateways = [open(gateways, "g1")?.0, open(gateways, "g2")?.0];
        let mut flows = Self { sender, gateways, ethernet, to: to.iter().copied().take(FLOWS).collect() };
        for number in 0..flows.to.len() {
            flows.send(number)?;
        }
        let (mut by_second, start) = (vec![false; flows.to.len()], Instant::now());
        let mut received = 0;
        while received < flows.to.len() {
            ensure!(start.elapsed() < LIMIT, "{received} of {} datagrams arrive", flows.to.len());
            received += flows.hear(&mut |gateway, number| {
                if let Some(second) = by_second.get_mut(number) {
                    *second = gateway == 1;
                }
            });
        }
        let mut at = by_second.into_iter();
        flows.to.retain(|_| at.next().unwrap_or(false));
        ensure!(
            flows.to.len() >= FEWEST,
            "only {} of {FLOWS} flows go by the second gateway",
            flows.to.len()
        );
        Ok(flows)
    }

    /// Sends while `cut` runs and until all datagrams arrive again. Returns the time from the first lost datagram to
    /// the first one after the last lost one.
    ///
    /// # Errors
    /// When the datagrams never arrive again, or `cut` fails.
    pub fn outage(&self, cut: impl FnOnce() -> Result<()> + Send) -> Result<Duration> {
        os::talk_and_cut(INTERVAL, |calm, done| self.talk(calm, done), cut)
    }

    fn talk(&self, go: &AtomicBool, done: &AtomicBool) -> Result<Duration> {
        let (mut sent_at, mut arrived) = (Vec::new(), Vec::new());
        let (start, mut cut_at) = (Instant::now(), None);
        // The datagram after the last one that is known to be lost.
        let mut whole_since = 0;
        loop {
            let number = sent_at.len();
            sent_at.push(start.elapsed());
            arrived.push(None);
            self.send(number)?;
            self.hear(&mut |gateway, number| {
                if let Some(at) = arrived.get_mut(number) {
                    *at = Some(gateway);
                }
            });
            if let Some(under_way) = number.checked_sub(CALM / 2).filter(|at| arrived[*at].is_none()) {
                whole_since = under_way + 1;
            }
            match cut_at {
                None if number >= whole_since + 2 * CALM => {
                    go.store(true, Ordering::Release);
                    cut_at = Some(number);
                }
                Some(cut_at)
                    if done.load(Ordering::Acquire)
                        && number >= cut_at.max(whole_since) + 2 * CALM
                        && arrived[number - CALM / 2] == Some(0) =>
                {
                    return Ok(lost_for(&arrived[..number - CALM / 2], &sent_at));
                }
                _ => {}
            }
            check_interrupted()?;
            if start.elapsed() > LIMIT {
                bail!("datagrams do not arrive by the first gateway within {} s", LIMIT.as_secs());
            }
            let next = start + INTERVAL * u32::try_from(sent_at.len()).unwrap_or(u32::MAX);
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    fn send(&self, number: usize) -> Result<()> {
        let mut frame = self.ethernet.to_vec();
        frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend(SOURCE.octets());
        frame.extend(self.to[number % self.to.len()].octets());
        let words = frame[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let sum: u32 = words.sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame.extend([0x13, 0x88, 0, 9, 0, 26, 0, 0]);
        frame.extend((number as u64).to_be_bytes());
        frame.resize(60, 0);
        Ok(self.sender.send(&frame)?)
    }

    /// Passes the gateway and the number of each datagram that has arrived to `each`, and returns how many there were.
    fn hear(&self, each: &mut dyn FnMut(usize, usize)) -> usize {
        let mut count = 0;
        for (gateway, socket) in self.gateways.iter().enumerate() {
            // A device that goes down is reported once as an error, which ends this loop.
            while let Ok(Some(packet)) = socket.receive() {
                let is = packet.frame.get(26..30) == Some(&SOURCE.octets()) && !packet.outgoing;
                let number = packet.frame.get(NUMBER_AT..NUMBER_AT + 8).filter(|_| is);
                let Some(number) = number.and_then(|bytes| bytes.try_into().ok()) else { continue };
                each(gateway, usize::try_from(u64::from_be_bytes(number)).unwrap_or(usize::MAX));
                count += 1;
            }
        }
        count
    }
}

/// The time from the first lost datagram to the first one after the last lost one.
fn lost_for(arrived: &[Option<usize>], sent_at: &[Duration]) -> Duration {
    let lost = |at: &Option<usize>| at.is_none();
    let (first, last) = (arrived.iter().position(lost), arrived.iter().rposition(lost));
    first.zip(last).map_or(Duration::ZERO, |(first, last)| {
        sent_at.get(last + 1).copied().unwrap_or_default().saturating_sub(sent_at[first])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_ends_with_the_first_after_the_last_that_was_lost() {
        let check = |arrived: &[u8], ms: u64| {
            let arrived: Vec<Option<usize>> =
                arrived.iter().map(|at| (*at < 2).then_some(usize::from(*at))).collect();
            let sent_at: Vec<Duration> = (0..=arrived.len() as u64).map(Duration::from_millis).collect();
            assert_eq!(lost_for(&arrived, &sent_at), Duration::from_millis(ms));
        };
        check(&[1, 1, 0, 0], 0);
        check(&[1, 2, 2, 0], 2);
        check(&[1, 2, 1, 2, 0], 3);
        check(&[1, 1, 2], 1);
    }
}
