//! Real hosts in namespaces, the real `lanyard`, on both planes: what a frame does, what the switch says about it, what
//! is left when it is gone.
//!
//! Read `harness/bed.rs` first. Every scenario makes its own namespaces and instance, so they run side by side.
//! Without root each says `skipped: reason`.

#![allow(clippy::unwrap_used, clippy::panic)]

mod harness;

mod capture;
mod churn;
mod console;
mod dhcp;
mod fdb;
mod flood;
mod follow;
mod hooks;
mod hosts;
mod layer3;
mod life;
mod oracle;
mod overlay;
mod packet_filter;
mod ports;
mod routes_live;
mod services;
mod static_routes;
mod svi;
mod trace;
mod vlans;
