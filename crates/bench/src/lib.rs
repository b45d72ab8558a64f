//! The measuring tools: devices under test, measured side by side in one run by the generators and receivers of
//! [`lanyard_tester`].
//!
//! Read first: RFC 2544 and RFC 1242 for the terms, docs/performance.md for the use of the commands.
//!
//! | Module | Contents |
//! |---|---|
//! | [`bed`], [`testbed`], [`dut`] | namespaces and wires; a device under test between a tester's ports; the devices |
//! | [`method`] | the RFCs' procedures; they use only the trait [`lanyard_tester::trial::Tester`] |
//! | [`rows`] | Lanyard's own measurements: `forward`, `failover`, `trees`, `routes` |
//! | [`selftest`] | checks the tester with wires whose faults are known |
//! | [`profile`] | the processor time of a frame, by function |
//! | [`report`] | the one result model, statistics, comparison, and the reports made from it |
//!
//! There are two frame generators, and a report names the one it used. [`lanyard_tester::traffic::Generator`] sends one stream
//! from the core that also forwards and receives it (`bench forward`): with everything on one core no frame can be
//! lost, and the rate gives the cost of a frame. [`lanyard_tester::PortTester`] sends many streams from cores of its own,
//! stamps and verifies each frame (`bench rfc2544` and the other RFC procedures): it measures loss, latency and order.
//!
//! Invariant: everything a run creates (namespaces, devices, processes, attached programs) is removed when the run
//! ends, also after an error or ctrl-C.

pub mod bed;
pub mod dut;
pub mod method;
pub mod profile;
pub mod report;
pub mod rows;
pub mod selftest;
pub mod testbed;
