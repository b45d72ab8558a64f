//! Scenarios in simulated time, in the language of `sim`.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, dead_code)]

mod sim;
use sim::check;

#[test]
fn two_bridges_forward_by_proposal_and_agreement() {
    check(
        "bridge A prio 4096: a b
         bridge B: a b
         link A.a B.a
         run 100ms
         expect A is root
         expect A.a designated forwarding
         expect B.a root forwarding
         expect B cost 20000
         link A.b B.b
         run 100ms
         expect A.b designated
         expect B.b alternate discarding
         run 5s
         expect tree",
    );
}

#[test]
fn failover_to_an_alternate_port_needs_no_timer() {
    check(
        "bridge A prio 4096: a b
         bridge B: a b
         link A.a B.a
         link A.b B.b
         run 5s
         expect B.b alternate discarding
         cut A.a
         run 5ms
         expect B.b root forwarding
         expect A.b designated forwarding
         run 5s
         restore A.a
         run 50ms
         expect B.a root forwarding
         expect B.b alternate discarding
         expect tree",
    );
}
