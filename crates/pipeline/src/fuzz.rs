//! The entry point of the frame path's fuzz target: arbitrary bytes, through the whole pipeline and its
//! trace.
//!
//! Invariant: no input causes a panic, a trace predicts what `process` then does, and received = forwarded +
//! trapped + dropped.

use crate::generate::{MAX_GENERATED_PORTS, Rng, State};
use crate::trace::Verdict;
use crate::{Output, Pipeline, Timestamp};
use lanyard_types::{DropReason, PortId, Stage, TrapGroup};

/// Runs the input. Its first two bytes select a generated state; records of `port, length, frame` follow.
///
/// # Panics
/// When the invariant is violated, which is what the fuzzer looks for.
pub fn fuzz(data: &[u8]) {
    let [low, high, rest @ ..] = data else { return };
    let mut state = State::new(u64::from(u16::from_le_bytes([*low, *high])));
    for group in TrapGroup::ALL {
        state.plane.global.trap_rate[group.index()].rate_pps = 1_000_000; // a trace does not police
        state.plane.global.trap_rate[group.index()].burst = 1_000_000;
        state.plane.global.trap_port_rate[group.index()] = state.plane.global.trap_rate[group.index()];
    }
    // A trace ignores policers, so it is compared with `process` only in the half of the states whose policers are removed.
    let traced = low % 2 == 0;
    if traced {
        state.remove_policers();
    }
    let mut pipeline = Pipeline::new(Rng::new(1).next_u64());
    let now = Timestamp::from_secs(1);
    pipeline.set_state(&state.plane, now, &mut |_| ());
    for change in &state.routes {
        assert_eq!(pipeline.route(change), Ok(()));
    }
    let (mut rest, mut received) = (rest, [0u64; lanyard_types::MAX_PORTS]);
    while let [port, length, tail @ ..] = rest {
        let (frame, after) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = after;
        let Some(port) = PortId::new(u16::from(*port) % MAX_GENERATED_PORTS + 1) else { continue };
        received[port.index()] += 1;
        // The daemon parses received ERSPAN packets: the frame that the parser returns must be the end of its input.
        if let Some(Ok(copied)) = lanyard_wire::erspan::read(frame) {
            assert!(copied.frame.len() >= 14 && frame.ends_with(copied.frame));
        }
        let _ = lanyard_wire::erspan::is_erspan(frame);
        let trace = pipeline.trace(port, frame);
        let mut output = Output::default();
        let verdict = pipeline.process(now, port, frame, &mut output);
        // No trap group is over its rate here. Other rates may be exceeded, which `trace` cannot predict: it takes no token.
        assert_ne!(verdict, Verdict::Dropped(DropReason::TrapPoliced));
        if traced && !matches!(verdict, Verdict::Dropped(reason) if reason.is_over_rate()) {
            assert_eq!(trace.verdict, verdict);
            assert_eq!((trace.egress, trace.mirrored), (output.sent.clone(), output.mirrored));
        }
        match verdict {
            Verdict::Forwarded => assert!(!output.sent.is_empty()),
            // The frame goes to the host's end of an interface as one copy, or, without a copy, up the
            // netdev's own stack.
            Verdict::Trapped(reason) if reason.stage() == Stage::Route => assert!(output.sent.len() <= 1),
            Verdict::Trapped(_) | Verdict::Dropped(_) => assert!(output.sent.is_empty()),
        }
    }
    for port in PortId::all() {
        let counters = pipeline.counters().port(port);
        let ended = counters.forwarded + counters.trapped + counters.dropped.iter().sum::<u64>();
        assert_eq!(counters.rx.frames, ended, "port {port}");
        // A port-channel counts what its members received, too.
        if pipeline.tables().ports.channel(port).is_none() {
            assert_eq!(ended, received[port.index()], "port {port}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_input_holds() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let data: Vec<u8> = (0..rng.below(2000)).map(|_| rng.next_u64() as u8).collect();
            fuzz(&data);
        }
    }
}
