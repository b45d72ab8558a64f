//! The tester's own test: wires that drop, duplicate, corrupt, delay and reorder known numbers of frames, which the
//! tester must report correctly.

#![allow(clippy::unwrap_used)] // a failed step fails the test

use lanyard_bench::dut::{Impaired, Impairment};
use lanyard_bench::testbed::{Setup, TestBed};
use lanyard_tester::os::{cannot_measure, cores};
use lanyard_tester::traffic::{CountAt, Stream};
use lanyard_tester::trial::{Offer, StreamOutcome, Tester};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a trial waits for lost frames of a relay, which holds a frame for 20 ms at most, but is a thread that may have
/// to wait for a processor.
const SETTLE: Duration = Duration::from_millis(500);
/// How long a trial waits for lost frames of a program, through which frames pass while they are sent.
const SETTLE_PROGRAM: Duration = Duration::from_millis(100);

static ALONE: Mutex<()> = Mutex::new(());

/// Sends `frames` over a wire with this impairment, to receivers at both hooks, and passes the result to `check`.
fn over(impairment: Impairment, frames: u64, rate_pps: u32, check: impl Fn(&StreamOutcome)) {
    if let Some(why) = cannot_measure() {
        println!("skipped: {why}");
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for at in [CountAt::Tc, CountAt::Xdp, CountAt::Socket] {
        let setup = Setup { count_at: Some(at), ..Setup::new().unwrap() };
        let mut bed =
            TestBed::with("impaired", &setup, false, |bed| Ok(Box::new(Impaired::up(bed, impairment)?)))
                .unwrap();
        let stream = Stream { rate_pps: Some(rate_pps), verify: true, stamp: true, ..bed.stream(0, 1, 1) };
        let relayed = matches!(impairment, Impairment::Queue(_) | Impairment::Reorder(_));
        let settle = if relayed { SETTLE } else { SETTLE_PROGRAM };
        let offer = Offer { settle, ..Offer::burst(vec![(0, stream)], frames) };
        let outcome = bed.trial(&offer).unwrap();
        assert_eq!((outcome.unidentified, &outcome.cut_short), (0, &None), "{impairment:?} {at:?}");
        let seen = &outcome.streams[0];
        println!("{impairment:?} {at:?}: {seen:?}");
        assert_eq!(seen.sent, frames);
        assert_eq!(seen.latency.count(), seen.received);
        check(seen);
    }
}

/// The numbers of received, duplicated, reordered and corrupted frames.
fn counts(seen: &StreamOutcome) -> (u64, u64, u64, u64) {
    (seen.received, seen.duplicated, seen.reordered, seen.corrupted)
}

#[test]
fn a_dropper() {
    for (every, lost) in [(10, 500), (7, 714), (4999, 1), (6000, 0)] {
        over(Impairment::Drop(every), 5000, 50_000, |seen| {
            assert_eq!((counts(seen), seen.lost()), ((5000 - lost, 0, 0, 0), lost));
            assert_eq!(seen.last_loss_at.is_some(), lost > 0);
        });
    }
}

#[test]
fn a_duplicator() {
    over(Impairment::Duplicate(9), 5000, 50_000, |seen| assert_eq!(counts(seen), (5000, 555, 0, 0)));
    over(Impairment::Duplicate(1), 5000, 50_000, |seen| assert_eq!(counts(seen), (5000, 5000, 0, 0)));
}

#[test]
fn a_corrupter() {
    over(Impairment::Corrupt(11), 5000, 50_000, |seen| assert_eq!(counts(seen), (5000 - 454, 0, 0, 454)));
    over(Impairment::Corrupt(1), 500, 50_000, |seen| assert_eq!(counts(seen), (0, 0, 0, 500)));
}

#[test]
fn a_reorderer() {
    // A thread relays the frames; the rate is low enough for it on any machine.
    if cores() < 2 {
        println!("skipped: needs a second core");
        return;
    }
    over(Impairment::Reorder(10), 500, 1_000, |seen| {
        // The last frame that was held back waits for two more frames, which never come.
        assert_eq!(counts(seen), (499, 0, 49, 0));
        assert_eq!(seen.lost(), 1);
    });
}

#[test]
fn a_delay_line() {
    for delay in [20, 200].map(Duration::from_micros) {
        over(Impairment::Delay(delay), 200, 1_000, |seen| {
            assert_eq!(counts(seen), (200, 0, 0, 0));
            // Never less. The excess depends on the machine; `lanyard bench selftest` reports it.
            assert!(Duration::from_nanos(seen.latency.min().unwrap()) >= delay);
        });
    }
}

#[test]
fn a_queue() {
    if cores() < 2 {
        println!("skipped: needs a second core");
        return;
    }
    let delay = Duration::from_millis(20);
    over(Impairment::Queue(delay), 200, 1_000, |seen| {
        assert_eq!(counts(seen), (200, 0, 0, 0));
        assert!(Duration::from_nanos(seen.latency.min().unwrap()) >= delay);
        assert!(seen.first_at.unwrap() >= delay);
    });
}
