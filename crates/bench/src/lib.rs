//! The measuring tools: offered load from inside the kernel, receivers that count what arrived, devices under test
//! beside each other in one run.
//!
//! Read first: RFC 2544 and RFC 1242 for the words, docs/performance.md for how to use the commands.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`tester`] | generators and receivers, trials made of them, and the self-test that checks them |
//! | [`bed`], [`testbed`], [`dut`] | namespaces and wires; a device under test between a tester's ports; the devices |
//! | [`method`] | the RFCs' procedures; they know a [`tester::trial::Tester`] and nothing else |
//! | [`rows`] | Lanyard's own measurements: `forward`, `failover`, `trees`, `routes` |
//! | [`profile`] | where the processor time of a frame goes |
//! | [`report`] | the one result model, statistics, comparison, and the reports made from it |
//!
//! There are two frame generators, and a report names the one it used. [`tester::traffic::Generator`] sends one stream from
//! the core that also forwards and receives it (`bench forward`): with everything on one core nothing can be lost, and the
//! rate is the cost of a frame. [`tester::PortTester`] sends many streams from cores of its own, stamps and verifies each
//! frame (`bench rfc2544` and the other RFC procedures): it measures loss, latency and order.
//!
//! Invariant: whatever a run makes (namespaces, devices, processes, attached programs) is gone when it ends, also
//! after an error or ctrl-C.

pub mod bed;
pub mod dut;
pub mod method;
pub mod os;
pub mod profile;
pub mod report;
pub mod rows;
pub mod testbed;
pub mod tester;
