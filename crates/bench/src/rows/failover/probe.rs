//! Measures for how long hosts cannot reach each other: numbered frames at a fixed interval, of
//! which some are lost.
//!
//! A frame counts at the time when it was sent, so the figure is the network's and does not contain
//! delays of the receiver or the machine. Resolution: [`INTERVAL`].

use anyhow::{Context, Result, bail};
use lanyard_netdev::PacketSocket;
use lanyard_tester::os::{self, Netns, check_interrupted};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two frames of a stream.
pub const INTERVAL: Duration = Duration::from_micros(500);
/// How many frames of every stream have to arrive in sequence before the cut, and after it.
const CALM: usize = 1000;
/// A path that is not found within this time counts as not found at all.
const LIMIT: Duration = Duration::from_secs(60);
/// How many frames of a stream may be under way: a frame that has not arrived when this many more were sent is lost.
const UNDER_WAY: usize = 200;
/// IEEE 802, local experimental EtherType 1.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// A host: a device in a namespace.
pub struct Host<'a> {
    /// The namespace of the device.
    pub netns: &'a Netns,
    /// The device's name.
    pub device: &'a str,
}

/// The loss that a host saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outage {
    /// From the first lost frame to the first one after the last lost frame, in the direction where this takes longer.
    pub time: Duration,
    /// Frames that arrived more than once, which indicates a loop.
    pub twice: u64,
}

/// A stream from one host to another.
struct Stream {
    from: usize,
    to: usize,
    /// How often each frame arrived.
    arrived: Vec<u8>,
    /// The first frame of the current run of frames without loss.
    whole_since: usize,
    /// All frames before this one have been evaluated.
    seen: usize,
}

/// Sends between the first host and the second and third in both directions, and runs `cut`
/// meanwhile. Returns the outages of the second and the third host.
///
/// # Errors
/// When frames do not arrive before the cut, or never again after it; when `cut` fails.
pub fn outages(hosts: &[Host<'_>; 3], cut: impl FnOnce() -> Result<()> + Send) -> Result<[Outage; 2]> {
    let sockets = hosts
        .iter()
        .map(|host| {
            let _inside = host.netns.enter()?;
            let index = nix::net::if_::if_nametoindex(host.device)?;
            PacketSocket::open(index).with_context(|| format!("a socket at {}", host.device))
        })
        .collect::<Result<Vec<_>>>()?;
    os::talk_and_cut(INTERVAL, |calm, done| talk(&sockets, calm, done), cut)
}

fn talk(sockets: &[PacketSocket], go: &AtomicBool, done: &AtomicBool) -> Result<[Outage; 2]> {
    let mut streams: Vec<Stream> = [(0, 1), (1, 0), (0, 2), (2, 0)]
        .map(|(from, to)| Stream { from, to, arrived: Vec::new(), whole_since: 0, seen: 0 })
        .into();
    let mut sent_at = Vec::new();
    let start = Instant::now();
    let mut cut_at = None;
    loop {
        let number = sent_at.len();
        sent_at.push(start.elapsed());
        for (id, stream) in streams.iter_mut().enumerate() {
            stream.arrived.push(0);
            // A frame that cannot be sent counts as lost.
            let _ = sockets[stream.from].send(&frame(stream.from, stream.to, id, number));
        }
        receive(sockets, &mut streams);
        streams.iter_mut().for_each(|stream| stream.look(number));
        let calm = streams.iter().all(|stream| number - stream.whole_since >= CALM + UNDER_WAY);
        match cut_at {
            None if calm => {
                go.store(true, Ordering::Release);
                cut_at = Some(number);
            }
            Some(cut_at) if calm && done.load(Ordering::Acquire) && number >= cut_at + 2 * CALM => break,
            _ => {}
        }
        check_interrupted()?;
        if start.elapsed() > LIMIT {
            let what = if cut_at.is_some() {
                "do not flow again after the cut"
            } else {
                "do not flow before the cut"
            };
            bail!("frames {what}: not within {} s", LIMIT.as_secs());
        }
        let next = start + INTERVAL * u32::try_from(sent_at.len()).unwrap_or(u32::MAX);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let cut_at = cut_at.unwrap_or(0);
    let of = |both: &[Stream]| {
        let outages = both.iter().map(|stream| stream.outage(cut_at, &sent_at));
        outages.fold(Outage::default(), |a, b| Outage { time: a.time.max(b.time), twice: a.twice + b.twice })
    };
    Ok([of(&streams[..2]), of(&streams[2..])])
}

fn receive(sockets: &[PacketSocket], streams: &mut [Stream]) {
    for (at, socket) in sockets.iter().enumerate() {
        // The device of a socket is never set down in this bench. If it were, its frames would count as lost.
        while let Ok(Some(packet)) = socket.receive() {
            let Some((id, number)) = read(&packet.frame).filter(|_| !packet.outgoing) else { continue };
            if let Some(stream) = streams.get_mut(id).filter(|stream| stream.to == at)
                && let Some(count) = stream.arrived.get_mut(number)
            {
                *count = count.saturating_add(1);
            }
        }
    }
}

impl Stream {
    /// Evaluates the frames that should have arrived by now.
    fn look(&mut self, sent: usize) {
        while self.seen + UNDER_WAY < sent {
            if self.arrived[self.seen] == 0 {
                self.whole_since = self.seen + 1;
            }
            self.seen += 1;
        }
    }

    /// The outage, computed from the frames with number `from` or a greater one.
    fn outage(&self, from: usize, sent_at: &[Duration]) -> Outage {
        let twice = self.arrived.iter().map(|count| u64::from(count.saturating_sub(1))).sum();
        let end = self.seen;
        let lost = |number: &usize| self.arrived[*number] == 0;
        let first = (from..end).find(lost);
        let last = (from..end).rfind(lost);
        let time = first.zip(last).map_or(Duration::ZERO, |(first, last)| {
            sent_at.get(last + 1).copied().unwrap_or_default().saturating_sub(sent_at[first])
        });
        Outage { time, twice }
    }
}

const fn mac(host: usize) -> [u8; 6] {
    [0x02, 0x4c, 0xfe, 0, 0, host as u8 + 1]
}

fn frame(from: usize, to: usize, stream: usize, number: usize) -> Vec<u8> {
    let mut bytes = [mac(to), mac(from)].concat();
    bytes.extend(ETHERTYPE);
    bytes.push(stream as u8);
    bytes.extend((number as u64).to_be_bytes());
    bytes.resize(60, 0);
    bytes
}

/// The stream and the number of a frame of this probe; `None` for another frame.
fn read(frame: &[u8]) -> Option<(usize, usize)> {
    if frame.get(12..14)? != ETHERTYPE {
        return None;
    }
    let number: [u8; 8] = frame.get(15..23)?.try_into().ok()?;
    Some((usize::from(*frame.get(14)?), usize::try_from(u64::from_be_bytes(number)).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_back() {
        assert_eq!(read(&frame(0, 2, 3, 70_000)), Some((3, 70_000)));
        assert_eq!(read(&[0; 60]), None);
        assert_eq!(read(&frame(0, 1, 0, 1)[..20]), None);
    }

    #[test]
    fn an_outage_is_from_the_first_lost_frame_to_the_next_that_came() {
        let check = |arrived: &[u8], from: usize, ms: u64, twice: u64| {
            let mut arrived = arrived.to_vec();
            let sent_at: Vec<Duration> = (0..arrived.len() as u64 + 1).map(Duration::from_millis).collect();
            let seen = arrived.len();
            arrived.push(0);
            let stream = Stream { from: 0, to: 1, arrived, whole_since: 0, seen };
            let want = Outage { time: Duration::from_millis(ms), twice };
            assert_eq!(stream.outage(from, &sent_at), want);
        };
        check(&[1, 1, 1, 1], 0, 0, 0);
        check(&[1, 0, 0, 1], 0, 2, 0);
        // Frames lost before the cut do not count.
        check(&[0, 1, 0, 1], 1, 1, 0);
        // A single frame that gets through does not end the outage.
        check(&[1, 0, 1, 0, 1], 0, 3, 0);
        check(&[1, 3, 0, 2, 1], 0, 1, 3);
    }
}
