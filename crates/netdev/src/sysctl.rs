//! Sysctls under /proc/sys/net, of the calling thread's network namespace.

use crate::Result;

/// Reads `net.ipv4.conf.IF.KEY`.
pub fn ipv4_conf(ifname: &str, key: &str) -> Result<String> {
    let _ = (ifname, key);
    todo!()
}
/// Writes `net.ipv4.conf.IF.KEY`.
pub fn set_ipv4_conf(ifname: &str, key: &str, value: &str) -> Result<()> {
    let _ = (ifname, key, value);
    todo!()
}
/// Reads `net.ipv6.conf.IF.KEY`: `disable_ipv6`, `accept_ra`, `addr_gen_mode`, `forwarding`...
pub fn ipv6_conf(ifname: &str, key: &str) -> Result<String> {
    let _ = (ifname, key);
    todo!()
}
/// Writes `net.ipv6.conf.IF.KEY`.
pub fn set_ipv6_conf(ifname: &str, key: &str, value: &str) -> Result<()> {
    let _ = (ifname, key, value);
    todo!()
}
/// `net.ipv6.conf.IF.disable_ipv6`.
pub fn set_disable_ipv6(ifname: &str, on: bool) -> Result<()> {
    set_ipv6_conf(ifname, "disable_ipv6", if on { "1" } else { "0" })
}
/// `net.ipv4.ip_forward`.
pub fn set_ipv4_forwarding(on: bool) -> Result<()> {
    let _ = on;
    todo!()
}
/// `net.ipv6.conf.all.forwarding`.
pub fn set_ipv6_forwarding(on: bool) -> Result<()> {
    set_ipv6_conf("all", "forwarding", if on { "1" } else { "0" })
}
