//! The published figures: beside ours in the plots, and a paragraph on each difference.
//!
//! They come from a switch whose driver was measured with 10,000 routes. The method of that measurement is known in outline only.

use super::{Clock, Cost, WRITE_US, median, push_series};
use crate::report::{Axis, Key, Results, Unit};

/// Strategy, latency of a query in microseconds, *users* and *outage* in milliseconds.
pub(super) const PUBLISHED: [(&str, u32, f64, f64); 4] = [
    ("lockstep", 35, 600.0, 1100.0),
    ("credit", 35, 480.0, 810.0),
    ("lockstep", 350, 600.0, 3980.0),
    ("credit", 350, 480.0, 840.0),
];

/// Adds plots of the strategies that have published figures, with these beside ours.
pub(super) fn beside(results: &mut Results, costs: &[Cost]) {
    for (method, query_us, users, outage) in PUBLISHED {
        for (what, published) in [("users", users), ("outage", outage)] {
            let at = f64::from(query_us);
            let key = |device: &str| Key::new(what, "published and here", device).at(Axis::QueryUs, at);
            push_series(results, key(&format!("{method}, published")), Unit::Milliseconds, vec![published]);
            for cost in costs.iter().filter(|cost| (cost.method, cost.query_us) == (method, query_us)) {
                let rounds = if what == "users" { cost.users() } else { cost.outage() };
                let device = format!("{method}, {}", cost.clock);
                push_series(results, key(&device), Unit::Milliseconds, rounds);
            }
        }
    }
}

/// Adds a note on each difference between the published figures and ours.
pub(super) fn differences(results: &mut Results, costs: &[Cost], routes: u32) {
    let figure = |method: &str, us: u32, clock: Clock, users: bool| {
        let cost =
            costs.iter().find(|cost| (cost.method, cost.query_us, cost.clock) == (method, us, clock))?;
        Some(median(&if users { cost.users() } else { cost.outage() }))
    };
    let both = |method: &str, us: u32, users: bool| {
        let text = |clock| {
            figure(method, us, clock, users).map(|ms| format!("{ms:.0} ms on the {}", clock_name(clock)))
        };
        let found: Vec<String> = [Clock::Real, Clock::Bus].into_iter().filter_map(text).collect();
        (!found.is_empty()).then(|| found.join(", "))
    };
    let bus = |query: u32| f64::from(routes) * f64::from(WRITE_US + query) / 1e3;
    let limit = f64::from(routes) * f64::from(WRITE_US) / 1e3;
    let mut say = |text: Option<String>| text.into_iter().for_each(|text| results.note(text));
    for (us, published) in [(35, 600), (350, 600)] {
        say(both("lockstep", us, true).map(|ours| {
            format!(
                "Lockstep, users, query {us} us: published {published} ms, here {ours}. The published users have waited for \
                 {routes} writes of {WRITE_US} us and not for the queries. Here an asker has its answer when the chip has \
                 been asked and has written, which takes {:.0} ms of the bus.",
                bus(us)
            )
        }));
    }
    for (us, published) in [(35, 1100), (350, 3980)] {
        say(both("lockstep", us, false).map(|ours| {
            format!(
                "Lockstep, outage, query {us} us: published {published} ms, here {ours}. Query and write of each route take \
                 {:.0} ms of the bus; the rest is what each of them takes on its way, here two processes' turns on this \
                 machine, there the driver's work. That at 350 us the published figure is below the sum says that its \
                 queries took a little less than 350 us.",
                bus(us)
            )
        }));
    }
    for (us, published) in [(35, 480), (350, 480)] {
        say(both("credit", us, true).map(|ours| {
            format!(
                "Credit, users, query {us} us: published {published} ms, here {ours}. There 48 us a route, whatever a query \
                 takes: the users' own path. Here an answer from the bucket takes a few microseconds of processor time, and \
                 the asker waits for the bus only at the beginning, until the bucket has grown."
            )
        }));
    }
    for (us, published) in [(35, 810), (350, 840)] {
        say(both("credit", us, false).map(|ours| {
            format!(
                "Credit, outage, query {us} us: published {published} ms, here {ours}. The bus's lower limit is {limit:.0} ms \
                 ({routes} writes); there a route took 21 us more than the write, here writes follow each other without a gap."
            )
        }));
    }
    say(Some(
        "The real clock has everything in it that the machine does besides; a chip that sleeps for 35 us is woken late, and a \
         loaded machine takes longer still to give the next process its turn. So the chip waits for the end of a request that \
         somebody waits for awake, and its bus counts time by deadlines, so that a late turn delays an answer but never \
         the bus. The bus clock is exact: it moves by what the bus takes and by the processor time of the resource manager."
            .to_owned(),
    ));
    say(Some("Prefetch, predict-flat, predict-model and hybrid have no published figures.".to_owned()));
}

const fn clock_name(clock: Clock) -> &'static str {
    clock.name()
}
