//! The measuring tools: offered load from inside the kernel, receivers that count what arrived, devices under test
//! beside each other in one run.
//!
//! Read first: RFC 2544 and RFC 1242 for the words. [`traffic`] offers and counts, [`bed`] is where it happens,
//! [`dut`] is what it happens to; [`forward`], [`failover`], [`trees`] and [`routes`] are `lanyard bench`'s commands of these names.
//! [`trial`] is what a tester does, [`tester`] and [`testbed`] do it, [`method`] are the RFCs' procedures, which know
//! nothing but trials. [`results`] is what any of them found, in the form that every report and [`compare`] are made
//! from. Invariant: whatever a run makes (namespaces, devices, processes, attached programs) is gone when it ends, also
//! after an error or ctrl-C.

pub mod bed;
#[allow(missing_docs)] // the fields are documented where they are defined, in bpf/traffic.h
pub mod bpf;
pub mod compare;
pub mod dut;
pub mod failover;
pub mod forward;
pub mod histogram;
pub mod method;
pub mod os;
pub mod profile;
pub mod report;
pub mod results;
pub mod routes;
pub mod selftest;
pub mod stats;
pub mod testbed;
pub mod tester;
pub mod traffic;
pub mod trees;
pub mod trial;
