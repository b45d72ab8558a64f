//! Frames that the chip receives, and those that leave it: by ports, to the CPU, and to drivers.

use super::super::Effects;
use super::super::segments::{self, NOTHING, Offload};
use super::{Device, wants};
use crate::sdk::cpu::CpuHeader;
use crate::sdk::faults::Fault;
use crate::sdk::message::{Event, Frame, Notice};
use crate::sdk::operation::OperationKind;
use lanyard_pipeline::Timestamp;
use lanyard_types::{PortId, Stage};

/// Sends frames out of the chip during the processing of the frame that caused them, without copying them. Without an `Exit` they
/// are copied and wait for [`Device::leaving`] and [`Device::cpu_frames`].
pub trait Exit {
    /// Sends a frame out of a port of the front panel; false when its wire did not take it.
    fn front(&mut self, port: PortId, frame: &[u8], pending: &Offload) -> bool;
    /// Sends a frame to the netdev of the CPU port.
    fn cpu(&mut self, header: &CpuHeader, frame: &[u8], pending: &Offload);
}

impl Device {
    /// Handles a frame received at a front-panel port.
    pub fn frame(&mut self, now: Timestamp, port: PortId, frame: &[u8]) {
        self.buffer(now, port, &NOTHING, frame, None);
    }
    /// Handles a frame received at a front-panel port, with the work `pending` on it. See [`Exit`] for `exit`.
    pub fn buffer(
        &mut self,
        now: Timestamp,
        port: PortId,
        pending: &Offload,
        frame: &[u8],
        exit: Option<&mut dyn Exit>,
    ) {
        if self.dead || !self.speeds.contains_key(&port) {
            return;
        }
        let mut effects = Effects::default();
        self.chip.segments(now, port, frame, segments::longest(pending, frame), &mut effects);
        self.leave(now, port, effects, (pending, frame.len()), exit);
    }

    /// Handles a frame from the CPU: sends it out of a port, or out of one member of a port-channel, unchanged, or through the
    /// pipeline.
    pub(super) fn packet(&mut self, now: Timestamp, header: CpuHeader, frame: &[u8]) {
        self.cpu_buffer(now, header, &NOTHING, frame, None);
    }
    /// Asks the fault plan about a frame from the CPU; false if it is lost.
    pub(super) fn takes_packet(&mut self) -> bool {
        match self.faults.next(OperationKind::Packet).1 {
            Some(Fault::Die) => self.dead = true,
            // A frame that the chip does not take is lost, as on a wire.
            Some(Fault::Fail | Fault::Cut) => return false,
            Some(Fault::Slow(_)) | None => {}
        }
        !self.dead
    }
    /// Handles a frame from the CPU, with the work `pending` on it. See [`Exit`] for `exit`.
    pub fn cpu_buffer(
        &mut self,
        now: Timestamp,
        header: CpuHeader,
        pending: &Offload,
        frame: &[u8],
        exit: Option<&mut dyn Exit>,
    ) {
        let Some(to) = header.to else { return };
        if !self.takes_packet() {
            return;
        }
        let mut effects = Effects::default();
        if header.pipeline {
            self.chip.segments(now, to, frame, segments::longest(pending, frame), &mut effects);
        } else {
            let by = self.chip.sender(to);
            let known = self.speeds.contains_key(&by);
            self.chip.count_injected(by, frame.len(), known);
            if known {
                effects.sent.push((by, frame.into()));
            }
        }
        self.leave(now, to, effects, (pending, frame.len()), exit);
    }

    /// Passes on the effects of a frame: copies to the ports of the front panel, frames to the CPU, notices. `came` is the work
    /// that was pending on the frame when it arrived, and its length in bytes then.
    pub(super) fn leave(
        &mut self,
        now: Timestamp,
        from: PortId,
        mut effects: Effects<'_>,
        came: (&Offload, usize),
        mut exit: Option<&mut dyn Exit>,
    ) {
        let sent = std::mem::take(&mut effects.sent);
        if let (Some(exit), [(port, frame)]) = (exit.as_deref_mut(), sent.as_slice())
            && self.fabric.pass(now, from, *port, frame.len())
        {
            if !exit.front(*port, frame, &still(came, frame)) {
                self.chip.count_tail_drop(*port, frame.len());
            }
        } else {
            let sent = sent.into_iter().map(|(port, frame)| {
                let pending = still(came, &frame);
                (port, frame.into_owned(), pending)
            });
            for (port, len) in self.fabric.enqueue_pending(now, from, sent.collect()) {
                self.chip.count_tail_drop(port, len);
            }
        }
        self.publish_pending(effects, came, exit);
    }

    /// The frames that leave the front panel until `now`.
    pub fn departures(&mut self, now: Timestamp) -> Vec<(PortId, Vec<u8>)> {
        self.leaving(now).into_iter().map(|(port, frame, _)| (port, frame)).collect()
    }
    /// As [`Device::departures`], with the work that is pending on each frame.
    pub fn leaving(&mut self, now: Timestamp) -> Vec<(PortId, Vec<u8>, Offload)> {
        if self.dead {
            return Vec::new();
        }
        let sent = self.fabric.poll_pending(now).into_iter();
        sent.map(|(_, port, frame, pending)| (port, frame, pending)).collect()
    }

    /// Counts a frame that its wire did not accept.
    pub fn count_refused(&mut self, port: PortId, len: usize) {
        self.chip.count_tail_drop(port, len);
    }

    pub(super) fn publish(&mut self, effects: Effects<'_>) {
        self.publish_pending(effects, (&NOTHING, 0), None);
    }
    fn publish_pending(
        &mut self,
        effects: Effects<'_>,
        came: (&Offload, usize),
        mut exit: Option<&mut dyn Exit>,
    ) {
        for event in effects.events {
            let wanted = if matches!(event, Event::Link(..)) { wants::LINKS } else { wants::LEARNING };
            self.notify(wanted, &Notice::Event(event));
        }
        for (port, questions, bytes) in effects.diverted {
            self.divert(Frame { port, pending: *came.0, bytes }, questions);
        }
        for (header, frame) in effects.cpu {
            let is_for_interface =
                header.to.is_some() || header.reason.is_some_and(|reason| reason.stage() == Stage::Route);
            if self.cpu_netdev && is_for_interface {
                let pending = still(came, &frame);
                match exit.as_deref_mut() {
                    Some(exit) => exit.cpu(&header, &frame, &pending),
                    None => self.cpu_out.push((header, frame.into_owned(), pending)),
                }
                continue;
            }
            // Drivers take whole frames.
            for frame in segments::whole(&still(came, &frame), frame.into_owned()) {
                if frame.len() <= crate::sdk::MAX_FRAME {
                    self.notify(wants::PACKETS, &Notice::Packet(header, frame));
                }
            }
        }
    }

    /// Frames for the netdev of the CPU port.
    pub fn cpu_frames(&mut self) -> Vec<(CpuHeader, Vec<u8>, Offload)> {
        std::mem::take(&mut self.cpu_out)
    }
}

/// The work that is pending on a copy of a frame, from the work and the length in bytes that the frame arrived with: the pipeline
/// may have added or removed tags.
fn still((pending, length): (&Offload, usize), copy: &[u8]) -> Offload {
    segments::moved(pending, copy.len() as isize - length as isize)
}
