//! The kernel's bridge with its default settings: it learns, and runs no spanning tree. Multicast snooping is off, because
//! most of the other devices have none, except for the rows that compare it.

use super::Device;
use super::PortMode;
use super::filter::rules;
use crate::bed::Bed;
use anyhow::{Context as _, Result};
use std::fmt::Write as _;

/// The group that [`PortMode::Snooped`] sends to the first output port: the one that streams to host 1 have.
pub const GROUP: &str = "239.0.0.1";

/// A bridge over every port. It goes with the namespace it is in.
pub struct Bridge;

impl Bridge {
    /// Makes it. The bridge limits groups only while there is a querier: with [`PortMode::Snooped`] it is one itself, and
    /// counts as present 10 ms later. That delay is fixed when the bridge becomes the querier, so
    /// the response interval has to be there before; with the default one the bridge floods for ten seconds.
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
