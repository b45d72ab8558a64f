//! How frames reach the far end of a port: through its transmit path, straight into a veth's other end, or from XDP.
//!
//! Read first: bpf-helpers(7) on bpf_redirect_peer. It puts a frame straight into the far end's receive path, past this
//! end's egress queue and programs and past packet taps on the way; so by default it is used only where there is nothing
//! to pass by, for frames to the far end's own address.

use crate::attach;
use crate::error::{Result, unsupported};
use crate::lower::{PeerDelivery, PortFacts};
use lanyard_netdev::{Link, Netdev, XdpFeatures};
use lanyard_pipeline::state::{Delivery, PortState};

/// Refuses what a port asks for and its netdev cannot do.
///
/// # Errors
/// When `Delivery::Peer` is asked of a netdev that has no far end in another namespace.
pub(crate) fn check(port: &PortState, link: &Link) -> Result<()> {
    if port.delivery == Delivery::Peer { check_peer(link) } else { Ok(()) }
}

/// What the plane needs to know of a port's netdev, once its hooks are attached: some drivers take frames from XDP only
/// when they run it themselves.
pub(crate) fn facts(netdev: &Netdev, port: &PortState, link: &Link) -> PortFacts {
    let peer = match port.delivery {
        Delivery::Device => PeerDelivery::No,
        Delivery::Peer => PeerDelivery::All,
        Delivery::Auto => auto(netdev, link).map_or(PeerDelivery::No, PeerDelivery::Address),
    };
    let features = netdev.xdp_features(link.ifindex).unwrap_or_default();
    PortFacts { peer, xdp_tx: features.has(XdpFeatures::NDO_XMIT) }
}

fn check_peer(link: &Link) -> Result<()> {
    let cannot = |why: &str| Err(unsupported(format!("deliver to the peer of {}: {why}", link.name)));
    if link.kind.as_deref() != Some("veth") {
        return cannot("it is not a veth");
    }
    if link.peer_netnsid.is_none() {
        return cannot("its other end is in the same network namespace");
    }
    Ok(())
}

/// The far end's address, when nothing would be skipped that somebody put there.
fn auto(netdev: &Netdev, link: &Link) -> Option<lanyard_types::MacAddr> {
    check_peer(link).ok()?;
    let unqueued = link.qdisc == "noqueue" || link.qdisc.is_empty();
    // A query that fails is a kernel that cannot say; then it is not known that nothing is there.
    if !unqueued || attach::egress_programs(link.ifindex).ok()? != 0 {
        return None;
    }
    if netdev.qdiscs().ok()?.iter().any(|(ifindex, kind)| *ifindex == link.ifindex && kind == "clsact") {
        return None;
    }
    let far = netdev.link_in_netns(link.peer_netnsid?, link.peer_ifindex?).ok()?;
    (far.xdp.is_none() && !far.mac.is_zero()).then_some(far.mac)
}
