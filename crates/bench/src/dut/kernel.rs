//! The kernel's bridge with its default settings: it learns, and runs no spanning tree. Multicast snooping is off,
//! because the other devices have none.

use super::Device;
use crate::bed::Bed;
use anyhow::Result;
use std::fmt::Write as _;

/// A bridge over every port. It goes with the namespace it is in.
pub struct Bridge;

impl Bridge {
    /// Makes it.
    pub fn up(bed: &Bed) -> Result<Self> {
        let mut batch = String::from("link add br0 type bridge stp_state 0 mcast_snooping 0\n");
        for port in bed.ports() {
            let _ = writeln!(batch, "link set {port} master br0");
        }
        batch.push_str("link set br0 up\n");
        bed.switch.ip(&batch)?;
        Ok(Self)
    }
}

impl Device for Bridge {}
