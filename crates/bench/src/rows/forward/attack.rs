//! A flood of a million frames a second at the second output port while a stream between other ports is measured: frames that
//! cost a control plane something if they reach it. The flood runs on the other core, as an ordinary thread: the switch's threads
//! have that core, too.

use crate::bed::Bed;
use crate::dut::VICTIM;
use anyhow::{Context, Result, anyhow, ensure};
use lanyard_tester::os::{Pinned, wait_until};
use lanyard_tester::traffic::{Generator, GeneratorProgress};
use lanyard_wire::ip::ones_complement_sum;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The rate of the flood while its generator has the core. The switch's threads run on the same core, which lowers the average:
/// to no less than [`WANTED_PPS`] if the core is fast enough.
const RATE_PPS: u32 = 1_200_000;
/// As [`RATE_PPS`], for [`Attack::Sources`]: while the FDB fills, a core hardly receives more than [`WANTED_PPS`].
const RATE_SOURCES_PPS: u32 = 1_500_000;
/// The rate for which the rows are named.
pub const WANTED_PPS: f64 = 1_000_000.0;
/// The time of a system call before the measurement begins, in which the generator finds its speed. One call has to cover a whole
/// measurement, because the kernel needs tens of milliseconds between two calls.
const LEAD: Duration = Duration::from_millis(500);
/// The device from which the flood is sent.
const DEVICE: &str = "rx2";

/// The kind of a flood's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    /// ARP requests for an address of the switch, by broadcast (RFC 826).
    Arp,
    /// Configuration messages of spanning tree that claim nothing (IEEE 802.1D-2004, 9.3.3).
    Bpdu,
    /// IGMPv2 reports for eight groups (RFC 2236).
    Igmp,
    /// Unicast to a known host at a port of its own ([`VICTIM`]), each frame from another unknown source.
    Sources,
}

impl Attack {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Arp, Self::Bpdu, Self::Igmp, Self::Sources];

    /// The number of output ports that the bed needs.
    #[must_use]
    pub const fn outputs(self) -> u16 {
        match self {
            Self::Sources => 3,
            _ => 2,
        }
    }

    /// The flood's name in the names of rows, and the label of the arm that is flooded.
    #[must_use]
    pub const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Arp => ("arp", "under ARP"),
            Self::Bpdu => ("bpdu", "under BPDUs"),
            Self::Igmp => ("igmp", "under IGMP"),
            Self::Sources => ("sources", "under unknown sources"),
        }
    }

    /// The frames of the flood, 60 bytes each without FCS.
    fn frames(self) -> Vec<Vec<u8>> {
        (0..8).map(|n| self.frame(n)).collect()
    }

    fn frame(self, n: u8) -> Vec<u8> {
        let source = [0x06, 0x4c, 0x01, 0, 0, n];
        let mut frame = match self {
            Self::Arp => {
                let request = [0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1];
                let addresses = [10, 254, 0, 2 + n, 0, 0, 0, 0, 0, 0, 10, 254, 0, 254];
                [&[0xff; 6][..], &source, &request, &source, &addresses].concat()
            }
            Self::Bpdu => {
                let header = [0x01, 0x80, 0xc2, 0, 0, 0];
                let mut message = vec![0x42, 0x42, 3, 0, 0, 2, 2, 0x0c];
                for cost in [&[0, 0, 0, 0][..], &[]] {
                    message.extend([0xf0, 0]);
                    message.extend(source);
                    message.extend(cost);
                }
                message.extend([0x80, 1, 0, 0, 20, 0, 2, 0, 15, 0, 0]);
                [&header[..], &source, &(message.len() as u16).to_be_bytes(), &message].concat()
            }
            Self::Igmp => {
                let mut packet = vec![
                    0x46,
                    0xc0,
                    0,
                    32,
                    0,
                    0,
                    0,
                    0,
                    1,
                    2,
                    0,
                    0,
                    10,
                    254,
                    0,
                    2 + n,
                    239,
                    9,
                    0,
                    n,
                    0x94,
                    4,
                    0,
                    0,
                ];
                let sum = checksum(&packet);
                packet[10..12].copy_from_slice(&sum);
                let mut report = vec![0x16, 0, 0, 0, 239, 9, 0, n];
                let sum = checksum(&report);
                report[2..4].copy_from_slice(&sum);
                [&[0x01, 0x00, 0x5e, 9, 0, n][..], &source, &[0x08, 0x00], &packet, &report].concat()
            }
            Self::Sources => [&VICTIM.0[..], &source, &[0x88, 0xb5]].concat(),
        };
        frame.resize(60, 0);
        frame
    }
}

/// The checksum of RFC 1071 over an even number of bytes.
pub(super) fn checksum(bytes: &[u8]) -> [u8; 2] {
    (!ones_complement_sum(bytes)).to_be_bytes()
}

/// Sends the flood.
pub(super) struct Attacker {
    generator: Option<Generator>,
    core: usize,
    /// The length of one system call.
    slice: Duration,
    sent: u64,
    sent_for: Duration,
}

/// A flood under way.
pub(super) struct Flood {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Generator>>,
    progress: GeneratorProgress,
    sent: u64,
    begin: Instant,
}

impl Attacker {
    /// A sender behind the second output port of `bed`, on `core`, for measurements of the length `window`.
    ///
    /// # Errors
    /// If `core` is `shared`, the core of switch and tester; when the kernel refuses the generator.
    pub(super) fn new(
        bed: &Bed,
        attack: Attack,
        core: usize,
        shared: usize,
        window: Duration,
    ) -> Result<Self> {
        let slice = LEAD + window + window / 2;
        ensure!(core != shared, "the flood needs a core of its own; this machine has one core");
        let sources = attack == Attack::Sources;
        let rate = if sources { RATE_SOURCES_PPS } else { RATE_PPS };
        let generator = Generator::of_frames(&bed.sink, DEVICE, &attack.frames(), rate, sources)?;
        Ok(Self {
            generator: Some(generator.with_slice(slice)),
            core,
            slice,
            sent: 0,
            sent_for: Duration::ZERO,
        })
    }

    /// Begins a flood, and returns when it runs at its rate.
    ///
    /// # Errors
    /// When the flood does not start.
    pub(super) fn start(&mut self) -> Result<Flood> {
        let mut generator = self.generator.take().context("the last flood broke")?;
        let progress = generator.progress()?;
        let before = progress.sent()?;
        let (stop, core, slice) = (Arc::new(AtomicBool::new(false)), self.core, self.slice);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let _core = Pinned::ordinary(core)?;
            generator.run_while(|_| (!stopped.load(Ordering::Relaxed)).then_some(slice))?;
            Ok(generator)
        });
        // The first system calls are short, because the generator does not know its speed yet.
        wait_until("the flood", Duration::from_secs(10), || Ok(progress.sent()? > before + 200_000))?;
        let sent = progress.sent()?;
        Ok(Flood { stop, thread, progress, sent, begin: Instant::now() })
    }

    /// Ends a flood.
    ///
    /// # Errors
    /// When the flood broke.
    pub(super) fn end(&mut self, flood: Flood) -> Result<()> {
        flood.stop.store(true, Ordering::Relaxed);
        self.sent += flood.progress.sent()? - flood.sent;
        self.sent_for += flood.begin.elapsed();
        let generator = flood.thread.join().map_err(|_| anyhow!("the thread that floods has panicked"))??;
        self.generator = Some(generator);
        Ok(())
    }

    /// The average rate of all floods so far; NaN before the first one.
    pub(super) fn rate_pps(&self) -> f64 {
        self.sent as f64 / self.sent_for.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_their_size_and_checksums() {
        for attack in Attack::ALL {
            for frame in attack.frames() {
                assert_eq!((frame.len(), frame[6]), (60, 0x06));
            }
        }
        let igmp = Attack::Igmp.frame(3);
        assert_eq!((checksum(&igmp[14..38]), checksum(&igmp[38..46])), ([0, 0], [0, 0]));
        assert_eq!(Attack::Bpdu.frame(0)[12..14], [0, 39]);
    }
}
