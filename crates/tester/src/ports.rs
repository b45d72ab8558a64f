//! A tester's ports: network devices, their capabilities, and a watch over their links.

use super::SendMethod;
use super::xsk::XdpSocket;
use crate::os::Netns;
use anyhow::{Context, Result, anyhow, ensure};
use lanyard_netdev::{Netdev, XdpFeatures};

/// A device in a namespace.
pub struct Port {
    netns: Netns,
    netdev: Netdev,
    name: String,
    ifindex: u32,
}

impl Port {
    /// The device `name` of `netns`.
    ///
    /// # Errors
    /// When there is none.
    pub fn new(netns: &Netns, name: &str) -> Result<Self> {
        let ifindex = netns.ifindex(name)?;
        let netdev = {
            let _inside = netns.enter()?;
            Netdev::open().context("netlink")?
        };
        Ok(Self { netns: netns.try_clone()?, netdev, name: name.to_owned(), ifindex })
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device's ifindex, in its namespace.
    #[must_use]
    pub const fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// The device's namespace.
    #[must_use]
    pub const fn netns(&self) -> &Netns {
        &self.netns
    }

    pub(super) fn check_up(&self) -> Result<()> {
        match self.trouble() {
            Some(why) => Err(anyhow!(why)),
            None => Ok(()),
        }
    }

    /// The reason why frames cannot pass, or `None`.
    fn trouble(&self) -> Option<String> {
        match self.netdev.link_by_index(self.ifindex) {
            Ok(link) if !link.admin_up => Some(format!("{} is down: `ip link set {0} up`", self.name)),
            Ok(link) if !link.carrier => Some(format!("{} has no link", self.name)),
            Ok(_) => None,
            Err(why) => Some(format!("{} is gone: {why}", self.name)),
        }
    }

    /// Bits per second of the wire; `None` for a virtual device, even if it reports a speed.
    pub(super) fn bits_per_second(&self) -> Option<f64> {
        let link = self.netdev.link_by_index(self.ifindex).ok()?;
        if link.kind.is_some() {
            return None;
        }
        self.netdev.settings(&self.name).ok()?.speed_mbps.map(|mbps| f64::from(mbps) * 1e6)
    }

    /// The best way to send from this port, and the reason for it; `no_bpf` is the reason why programs are
    /// refused.
    pub(super) fn best_way(&self, no_bpf: Option<&str>) -> (SendMethod, String) {
        let because = |way, why: &str| (way, format!("{}: {why}", describe(way)));
        if no_bpf.is_some() {
            // AF_XDP would work too, but it locks more memory than an unprivileged user usually may.
            return because(SendMethod::Socket, "no right to load BPF");
        }
        match self.netdev.xdp_features(self.ifindex) {
            Ok(features) if !features.has(XdpFeatures::NDO_XMIT) => {
                let why = "what XDP redirects here would be lost (a veth takes it when its other end runs NAPI: GRO on, \
                           or an XDP program)";
                match self.netns.enter().and_then(|_inside| XdpSocket::new(self.ifindex)) {
                    Ok(_) => because(SendMethod::Xsk, why),
                    Err(no) => because(SendMethod::Socket, &format!("{why}, and {no:#}")),
                }
            }
            // Before Linux 6.3 the kernel does not report XDP features. The first trial shows whether live frames can be sent.
            Ok(_) | Err(_) => (SendMethod::Live, describe(SendMethod::Live).to_owned()),
        }
    }
}

/// A description of a way of sending.
pub(super) const fn describe(way: SendMethod) -> &'static str {
    match way {
        SendMethod::Live => "frames made in the kernel (XDP)",
        SendMethod::Xsk => "AF_XDP socket",
        SendMethod::Socket => "packet socket",
    }
}

/// Watches all ports of a tester while a trial runs.
pub struct Watch<'p> {
    ports: &'p [Port],
    carrier_changes: Vec<u32>,
}

impl<'p> Watch<'p> {
    /// Begins to watch `ports`.
    ///
    /// # Errors
    /// When one is gone.
    pub fn over(ports: &'p [Port]) -> Result<Self> {
        let changes = |port: &Port| {
            let link = port.netdev.link_by_index(port.ifindex);
            Ok(link.with_context(|| format!("{} is gone", port.name))?.carrier_changes)
        };
        let carrier_changes = ports.iter().map(changes).collect::<Result<Vec<_>>>()?;
        ensure!(!carrier_changes.is_empty(), "no ports");
        Ok(Self { ports, carrier_changes })
    }

    /// The reason why the trial is invalid: a link that is down, or was down meanwhile.
    pub fn trouble(&self) -> Option<String> {
        self.ports.iter().zip(&self.carrier_changes).find_map(|(port, before)| {
            port.trouble().or_else(|| {
                let now = port.netdev.link_by_index(port.ifindex).ok()?.carrier_changes;
                (now != *before).then(|| format!("{} lost its link for a while", port.name))
            })
        })
    }
}
