//! Hosts that join 10,000 groups while a stream is measured: IGMPv3 reports (RFC 3376, 4.2) of 100 groups each at the second
//! output port, evenly over the measurement, so that they all have joined within its time.

use super::attack::checksum;
use crate::bed::Bed;
use anyhow::{Context, Result};
use lanyard_netdev::PacketSocket;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The groups that are joined in each measurement, from 239.3.0.0 on.
const GROUPS: u16 = 10_000;
/// The number of groups in a report.
const A_REPORT: u16 = 100;
/// CHANGE_TO_INCLUDE_MODE without sources: leaves.
const LEAVES: u8 = 3;
/// CHANGE_TO_EXCLUDE_MODE without sources: joins.
const JOINS: u8 = 4;
/// The device that sends the reports.
const DEVICE: &str = "rx2";
/// The length in bytes of the headers: Ethernet, IPv4 with the router alert option.
const HEADERS: usize = 14 + 24;

/// Sends the reports.
pub(super) struct Joiner {
    socket: Arc<PacketSocket>,
    joins: Arc<Vec<Vec<u8>>>,
    leaves: Vec<Vec<u8>>,
}

impl Joiner {
    /// Prepares the reports of hosts behind the second output port of `bed`.
    ///
    /// # Errors
    /// Without the right to open packet sockets.
    pub(super) fn new(bed: &Bed) -> Result<Self> {
        let ifindex = bed.sink.ifindex(DEVICE)?;
        let socket = {
            let _inside = bed.sink.enter()?;
            PacketSocket::sender(ifindex).with_context(|| format!("a packet socket at {DEVICE}"))?
        };
        let reports = |kind| (0..GROUPS).step_by(A_REPORT.into()).map(|first| report(kind, first)).collect();
        Ok(Self { socket: Arc::new(socket), joins: Arc::new(reports(JOINS)), leaves: reports(LEAVES) })
    }
    /// Begins to join the groups within `window`, on a thread of its own.
    pub(super) fn start(&self, window: Duration) -> JoinHandle<Result<()>> {
        let (socket, joins) = (self.socket.clone(), self.joins.clone());
        std::thread::spawn(move || {
            let begin = Instant::now();
            for (at, report) in (0..).zip(joins.iter()) {
                let due = begin + window * at / joins.len() as u32;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                socket.send(report).context("sending a report")?;
            }
            Ok(())
        })
    }
    /// Leaves the groups, and waits `time` until the switch has forgotten them.
    ///
    /// # Errors
    /// When a report cannot be sent.
    pub(super) fn leave(&self, time: Duration) -> Result<()> {
        for report in &self.leaves {
            self.socket.send(report).context("sending a report")?;
        }
        std::thread::sleep(time);
        Ok(())
    }
}

/// A frame with a report of [`A_REPORT`] groups from number `first` on.
fn report(kind: u8, first: u16) -> Vec<u8> {
    let mut message = vec![0x22, 0, 0, 0, 0, 0];
    message.extend(A_REPORT.to_be_bytes());
    for group in first..first + A_REPORT {
        message.extend([kind, 0, 0, 0, 239, 3]);
        message.extend(group.to_be_bytes());
    }
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum);
    let mut frame = vec![0x01, 0x00, 0x5e, 0, 0, 22, 0x02, 0x4c, 0x01, 0, 0, 2, 0x08, 0x00];
    let length = (HEADERS - 14 + message.len()) as u16;
    frame.extend([0x46, 0xc0]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 1, 2, 224, 0, 0, 22, 0x94, 4, 0, 0]);
    let sum = checksum(&frame[14..]);
    frame[24..26].copy_from_slice(&sum);
    frame.extend(message);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_have_right_lengths_and_checksums() {
        for kind in [JOINS, LEAVES] {
            let frame = report(kind, 9900);
            assert_eq!(frame.len(), HEADERS + 8 + 8 * usize::from(A_REPORT));
            assert_eq!(usize::from(u16::from_be_bytes([frame[16], frame[17]])), frame.len() - 14);
            assert_eq!((checksum(&frame[14..HEADERS]), checksum(&frame[HEADERS..])), ([0, 0], [0, 0]));
            assert_eq!(frame[frame.len() - 8..], [kind, 0, 0, 0, 239, 3, 0x27, 0x0f]);
        }
    }
}
