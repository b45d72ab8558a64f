//! The kernel as a router between its ports: every port has an address, and forwarding is on. Nothing else is
//! configured.

use super::{Device, mac_of, router_address};
use crate::bed::Bed;
use anyhow::{Context, Result};
use std::fmt::Write as _;

/// The router. It is removed together with the namespace it is in.
pub struct Router {
    macs: Vec<[u8; 6]>,
}

impl Router {
    /// Brings the router up.
    pub fn up(bed: &Bed) -> Result<Self> {
        let ports = bed.ports();
        let sysctl = |name: &str, value: &str| bed.switch.sysctl(name, value);
        sysctl("net/ipv4/ip_forward", "1")?;
        // The frames come from connected networks, but their hosts do not exist and answer no ARP.
        sysctl("net/ipv4/conf/all/rp_filter", "0")?;
        // Absent when the kernel has no IPv6.
        let six = sysctl("net/ipv6/conf/all/forwarding", "1").is_ok();
        let mut batch = String::new();
        for (number, port) in ports.iter().enumerate() {
            sysctl(&format!("net/ipv4/conf/{port}/rp_filter"), "0")?;
            let (four, sixth) = router_address(number);
            let _ = writeln!(batch, "addr add {four}/16 dev {port}");
            if six {
                sysctl(&format!("net/ipv6/conf/{port}/disable_ipv6"), "0")?;
                let _ = writeln!(batch, "addr add {sixth}/64 dev {port} nodad");
            }
        }
        bed.switch.ip(&batch).context("addresses of a router")?;
        let macs = ports.iter().map(|port| mac_of(&bed.switch, port)).collect::<Result<_>>()?;
        Ok(Self { macs })
    }
}

impl Device for Router {
    fn router_mac(&self, port: usize) -> Option<[u8; 6]> {
        self.macs.get(port).copied()
    }
}
