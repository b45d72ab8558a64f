//! The kernel's bridge with its default settings: it learns, and runs no spanning tree. Multicast snooping is off, because
//! most of the other devices have none, except for the rows that compare it.

use super::Device;
use super::PortMode;
use super::filter::rules;
use crate::bed::Bed;
use anyhow::{Context as _, Result};
use std::fmt::Write as _;

/// The multicast group of which the first output port is a member in [`PortMode::Snooped`]: that of a multicast stream whose
/// `dst` is number 1.
pub const GROUP: &str = "239.0.0.1";

/// A bridge over every port. It is removed together with the namespace it is in.
pub struct Bridge;

impl Bridge {
    /// Makes the bridge. A bridge sends a group to its members alone only while there is a querier. With [`PortMode::Snooped`] it
    /// is the querier itself, and counts as present after the query response interval, which is set to 10 ms here. The bridge
    /// reads the interval when it becomes the querier, so it is set before; with the default the bridge would flood for 10 s.
    pub fn up(bed: &Bed, ports: PortMode) -> Result<Self> {
        let snooping = match ports {
            PortMode::Snooped => "mcast_snooping 1 mcast_query_response_interval 1",
            _ => "mcast_snooping 0",
        };
        let mut batch = format!("link add br0 type bridge stp_state 0 {snooping}\n");
        for port in bed.ports() {
            let _ = writeln!(batch, "link set {port} master br0");
        }
        batch.push_str("link set br0 up\n");
        if ports == PortMode::Snooped {
            batch.push_str("link set br0 type bridge mcast_querier 1\n");
        }
        bed.switch.ip(&batch)?;
        if ports == PortMode::Snooped {
            let entry = ["mdb", "add", "dev", "br0", "port", "p1", "grp", GROUP, "permanent"];
            bed.switch.run("bridge", &entry, "")?;
        }
        if ports == PortMode::Filtered {
            bed.switch.run("nft", &["-f", "-"], &filter()).context("nft, from the package nftables")?;
        }
        Ok(Self)
    }
}

/// The rules of [`PortMode::Filtered`] for nftables' hook of the bridge, one after the other.
fn filter() -> String {
    let mut text = String::from(
        "table bridge bench {\n chain forward {\n  type filter hook forward priority 0; policy accept;\n",
    );
    for source in rules() {
        let _ = writeln!(text, "  ip saddr {source} ip protocol udp accept");
    }
    text.push_str("  accept\n }\n}\n");
    text
}

impl Device for Bridge {}
