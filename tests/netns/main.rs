//! Real hosts in namespaces and the real `lanyard` on both planes: what happens to a frame, what `show` commands
//! report, and what remains after the switch has been removed.
//!
//! Read `harness/bed.rs` first. Every scenario makes its own namespaces and instance, so scenarios can run in parallel.
//! Without root each prints `skipped: reason`.

#![allow(clippy::unwrap_used, clippy::panic)]

mod harness;

mod aaa;
mod access;
mod access_lists;
mod capture;
mod churn;
mod console;
mod control_plane;
mod dhcp;
mod discovery;
mod dot1x;
mod erspan;
mod erspan_destination;
mod etherchannel;
mod fdb;
mod figures;
mod flood;
mod follow;
mod guard;
mod hooks;
mod hosts;
mod layer3;
mod life;
mod log_receiver;
mod logging;
mod monitor;
mod multicast;
mod nd_inspection;
mod oracle;
mod overlay;
mod packet_filter;
mod port_security;
mod ports;
mod private_vlans;
mod qos;
mod routes_live;
mod saving;
mod services;
mod sflow;
mod soft;
mod ssh;
mod static_routes;
mod svi;
mod tacacs;
mod trace;
mod vlans;
