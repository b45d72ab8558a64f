//! The facts that the kernel reports about a port's netdev, and the decisions that follow from them: the hook, the
//! delivery, and whether XDP may send frames to the port.
//!
//! Read first: bpf-helpers(7) on bpf_redirect_peer and the kernel's Documentation/networking/xdp-rx-metadata.rst.
//! bpf_redirect_peer puts a frame directly into the far end's receive path. It bypasses the egress queue of the near
//! end, the programs and filters there, and an XDP program of the far end. By default it is therefore used only where
//! none of these exists.
//!
//! It also presents the frame as addressed to the far end itself: kernels since 2025 set the packet type to
//! PACKET_HOST, whatever the program has set, while the device path compares the destination with the far end's address
//! (eth_type_trans). A stack that takes a frame for another station as its own drops its packet unless it forwards
//! packets. By default frames for other addresses are therefore delivered in this way only where the far end does not
//! forward, and is in no bridge or bond that might.
//!
//! Invariant: [`hook`] and [`peer`] are pure functions. Everything they depend on is in [`Seen`], which `follow` reads
//! again whenever the kernel reports a change.

use crate::tc;
use crate::xdp_probe::XdpProbe;
use lanyard_netdev::{Link, Netdev, XdpAbility, XdpFeatures};
use lanyard_pipeline::state::{Delivery, HookChoice, PortState};
use lanyard_types::MacAddr;
use std::fmt;

/// Receive offloads that keep a VLAN tag out of band, where XDP does not see it: of 802.1Q and of 802.1ad.
pub(crate) const TAG_PARSING: [&str; 2] = ["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"];
/// The receive offload by which the kernel merges segments of a TCP stream so that it can divide them
/// again.
pub(crate) const GRO: &str = "rx-gro";
/// The receive offload that merges frames so that their boundaries are lost.
pub(crate) const MERGING: &str = "rx-lro";

/// The form in which XDP runs on a netdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum XdpForm {
    /// The common program, for a device that keeps no tag out of band.
    Plain,
    /// The program for veths, which finds out-of-band tags itself. Where the kernel refuses it, a program as for
    /// [`Bound`](Self::Bound).
    Veth,
    /// A program loaded for this device, which asks its driver for out-of-band tags.
    Bound,
}

impl XdpForm {
    /// The first part of the name of its pin.
    pub(crate) const fn prefix(self) -> &'static str {
        match self {
            Self::Plain => "xdp",
            Self::Veth => "xdpveth",
            Self::Bound => "xdpbound",
        }
    }
}

/// The kernel's report about a netdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub kind: Kind,
    pub mtu: u32,
    /// `None` if the kernel cannot report it (before Linux 6.3).
    pub xdp: Option<XdpAbility>,
    pub tags: Tags,
    /// True if tag parsing can be turned on and off.
    pub may_parse: bool,
    /// True if `rx-lro` is on.
    pub merges: bool,
    /// Whether [`GRO`] is on; `None` for a port that gains nothing from it: see [`gro_pays`].
    pub gro: Option<bool>,
    /// The programs and queues that frames pass on their way out through the netdev, and neither in a direct delivery to its far
    /// end nor when XDP redirects them.
    pub egress: Option<PassedBy>,
    pub far: Result<Far, NoPeer>,
}

/// The properties of a kind of netdev that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Hardware,
    Veth,
    /// TUN/TAP: the far end is a process, usually a virtual machine.
    Tap,
    Virtual,
}

impl Kind {
    fn of(link: &Link) -> Self {
        match link.kind.as_deref() {
            None => Self::Hardware,
            Some("veth") => Self::Veth,
            Some("tun") => Self::Tap,
            Some(_) => Self::Virtual,
        }
    }
    /// True if received frames may lack their transport checksum and XDP cannot tell which: the
    /// sender's stack left it to a device, and there is none.
    pub(crate) const fn leaves_checksums(self) -> bool {
        matches!(self, Self::Veth | Self::Tap)
    }
}

/// Where the driver keeps VLAN tags of received frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tags {
    InLine,
    /// Out of band, until the offload is switched off.
    Parsed,
    /// Out of band, without a way to change that.
    AlwaysParsed,
}

/// The far end of a veth pair in another network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Far {
    pub netnsid: i32,
    pub ifindex: u32,
    pub mac: MacAddr,
    /// True if it forwards packets, or passes its frames to a device that may.
    pub forwards: bool,
    /// True if it runs an XDP program, which bpf_redirect_peer would bypass.
    pub runs_xdp: bool,
}

/// The reason why frames cannot be delivered directly to the far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPeer {
    NotVeth,
    SameNamespace,
    /// The kernel gives no information about the far end.
    Hidden,
}

impl fmt::Display for NoPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotVeth => "it is not a veth",
            Self::SameNamespace => "its other end is in the same network namespace",
            Self::Hidden => "the kernel does not show its other end",
        })
    }
}

/// A program, filter or queue at the egress of a port, which bpf_redirect_peer and XDP bypass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PassedBy {
    Qdisc(String),
    EgressFilter,
    EgressProgram,
    /// The kernel did not answer, so there may be one.
    Unknown(String),
}

impl fmt::Display for PassedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Qdisc(kind) => write!(f, "it has the queueing discipline {kind}"),
            Self::EgressFilter => f.write_str("it has a TC egress filter"),
            Self::EgressProgram => f.write_str("it has a TCX egress program"),
            Self::Unknown(why) => write!(f, "its egress hooks cannot be listed: {why}"),
        }
    }
}

/// Reads everything that the decisions about `port` depend on.
pub(crate) fn look(netdev: &Netdev, port: &PortState, link: &Link) -> Seen {
    let kind = Kind::of(link);
    let xdp = xdp_ability(netdev, link.ifindex);
    let (mut tags, mut may_parse, mut merges) = (Tags::InLine, false, false);
    if kind == Kind::Hardware || kind != Kind::Veth && port.hook == HookChoice::Xdp {
        let features = netdev.features(&link.name).unwrap_or_default();
        may_parse = features.iter().any(|one| one.changeable && TAG_PARSING.contains(&one.name.as_str()));
        for feature in features.iter().filter(|feature| feature.on) {
            if TAG_PARSING.contains(&feature.name.as_str()) {
                tags = if feature.changeable && tags != Tags::AlwaysParsed {
                    Tags::Parsed
                } else {
                    Tags::AlwaysParsed
                };
            }
            merges |= feature.name == MERGING;
        }
    }
    let far = look_at_far_end(netdev, link);
    let gro = gro_pays(kind, &far).then(|| netdev.feature(&link.name, GRO).ok().flatten()).flatten();
    // Only direct delivery and XDP bypass the egress; otherwise frames leave through the device in any case.
    let bypassed = far.is_ok() || xdp.is_some_and(|xdp| xdp.features.has(XdpFeatures::NDO_XMIT));
    let egress = bypassed.then(|| at_egress(netdev, link)).flatten();
    Seen { kind, mtu: link.mtu, xdp, tags, may_parse, merges, gro, egress, far }
}

/// Whether [`GRO`] should be on at a port. A new veth has it off. With it on, the kernel polls the
/// port (NAPI) for frames of a far end that does not leave segmentation to its device (TSO), and
/// merges segments of a TCP stream: the plane and the receiver then handle one buffer instead of up
/// to 45 frames (docs/performance.md has the figures). Frames of a far end with TSO are handled as
/// without GRO: the kernel decides for each frame (`veth_skb_is_eligible_for_gro`). A far end in the
/// switch's own namespace is the host's end of an interface of the switch, whose stack has TSO.
fn gro_pays(kind: Kind, far: &Result<Far, NoPeer>) -> bool {
    kind == Kind::Veth && !matches!(far, Err(NoPeer::SameNamespace))
}

/// The XDP features of a driver; `None` if the kernel cannot report them.
pub(crate) fn xdp_ability(netdev: &Netdev, ifindex: u32) -> Option<XdpAbility> {
    match netdev.xdp_ability(ifindex) {
        Err(error) if error.is_unsupported() => None,
        answer => Some(answer.unwrap_or_default()),
    }
}

fn look_at_far_end(netdev: &Netdev, link: &Link) -> Result<Far, NoPeer> {
    if Kind::of(link) != Kind::Veth {
        return Err(NoPeer::NotVeth);
    }
    let netnsid = link.peer_netnsid.ok_or(NoPeer::SameNamespace)?;
    let ifindex = link.peer_ifindex.ok_or(NoPeer::Hidden)?;
    let far = netdev.link_in_netns(netnsid, ifindex).map_err(|_| NoPeer::Hidden)?;
    let forwards = far.forwards || far.master.is_some();
    Ok(Far { netnsid, ifindex, mac: far.mac, forwards, runs_xdp: far.xdp.is_some() })
}

/// The queueing discipline, the program or the filter at the egress of a netdev: the first that there is.
fn at_egress(netdev: &Netdev, link: &Link) -> Option<PassedBy> {
    queue(netdev, link).or_else(|| egress_hooks(netdev, link.ifindex))
}

/// The queueing disciplines that the kernel gives to a netdev with a queue, by itself or by a distribution's setting: they
/// neither limit nor drop what the device can send. Others may be the kernel's choice, too.
const HARMLESS: [&str; 4] = ["noop", "mq", "pfifo_fast", "fq_codel"];

/// The queueing discipline that an administrator or another program has set.
fn queue(netdev: &Netdev, link: &Link) -> Option<PassedBy> {
    let kind = link.qdisc.as_str();
    if kind.is_empty() || kind == "noqueue" {
        return None;
    }
    if Kind::of(link) != Kind::Veth {
        if HARMLESS.contains(&kind) {
            // `mq` only divides frames among the device's queues; each has a discipline of its own.
            return (kind == "mq").then(|| below_mq(netdev, link.ifindex)).flatten();
        }
        match netdev.has_default_queue(link.ifindex) {
            Ok(true) => return None,
            Ok(false) => {}
            Err(error) => return Some(PassedBy::Unknown(error.to_string())),
        }
    }
    Some(PassedBy::Qdisc(kind.to_owned()))
}

/// The discipline that an administrator or another program has set for a queue of `mq`.
fn below_mq(netdev: &Netdev, ifindex: u32) -> Option<PassedBy> {
    match netdev.queues_below_root(ifindex) {
        Ok(kinds) => kinds.into_iter().find(|kind| !HARMLESS.contains(&kind.as_str())).map(PassedBy::Qdisc),
        Err(error) => Some(PassedBy::Unknown(error.to_string())),
    }
}

/// Programs and filters at the TC egress hook.
fn egress_hooks(netdev: &Netdev, ifindex: u32) -> Option<PassedBy> {
    match tc::egress_programs(ifindex) {
        Ok(0) => {}
        Ok(_) => return Some(PassedBy::EgressProgram),
        // A kernel without TCX (before Linux 6.6) has no such programs.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
        Err(error) => return Some(PassedBy::Unknown(error.to_string())),
    }
    match netdev.egress_filters(ifindex) {
        Ok(0) => None,
        Ok(_) => Some(PassedBy::EgressFilter),
        Err(error) => Some(PassedBy::Unknown(error.to_string())),
    }
}

/// The XDP program for a port, or `None` for TC alone. `kept` is true if an administrator has turned tag parsing on
/// again after it was switched off for XDP.
///
/// # Errors
/// The reason why XDP cannot be used, if `choice` asks for it or if VLAN tags are the only obstacle.
pub(crate) fn hook(choice: HookChoice, seen: &Seen, kept: bool) -> Result<Option<XdpForm>, String> {
    let needed = XdpFeatures(XdpFeatures::BASIC.0 | XdpFeatures::REDIRECT.0);
    let xdp = seen.xdp.unwrap_or_default();
    let able = xdp.features.has(needed);
    match choice {
        HookChoice::Tc => return Ok(None),
        HookChoice::Auto => {
            // Between veths and TAPs TC is faster: it keeps buffers of many frames whole.
            let pays = seen.kind == Kind::Hardware && able && xdp.features.has(XdpFeatures::NDO_XMIT);
            if !pays {
                return Ok(None);
            }
        }
        HookChoice::Xdp if seen.xdp.is_none() => {
            return Err(
                "this kernel does not tell whether its driver can run XDP and take redirected frames (Linux \
                        6.3 and later do)"
                    .into(),
            );
        }
        HookChoice::Xdp if !able => return Err("its driver has no native XDP that can redirect".into()),
        HookChoice::Xdp => {}
    }
    if seen.kind == Kind::Veth {
        return Ok(Some(XdpForm::Veth));
    }
    match seen.tags {
        Tags::InLine => Ok(Some(XdpForm::Plain)),
        Tags::Parsed if !kept => Ok(Some(XdpForm::Plain)),
        _ if xdp.reports_vlan_tag => Ok(Some(XdpForm::Bound)),
        Tags::Parsed => Err("its VLAN tag parsing (rx-vlan-hw-parse, rx-vlan-stag-hw-parse) was turned on, and XDP would not \
                             see the tags; turn it off with `ethtool -K` to have XDP"
            .into()),
        Tags::AlwaysParsed => Err("its driver takes VLAN tags out of the frames and does not stop doing so".into()),
    }
}

/// The frames that are delivered directly to the far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The address of the far end; frames to it are delivered directly.
    pub mac: MacAddr,
    /// True if known unicast to other addresses is delivered directly, too.
    pub any: bool,
}

impl Seen {
    /// Corrects the kernel's report for a veth that a test shows not to take frames from XDP. While the far end is down the veth
    /// cannot be tested, but no frames are sent there. The interfaces of the switch itself are not tested.
    pub(crate) fn ask(&mut self, link: &Link, probe: &mut XdpProbe) {
        let Some(xdp) = self.xdp.as_mut().filter(|xdp| xdp.features.has(XdpFeatures::NDO_XMIT)) else {
            return;
        };
        if self.kind == Kind::Veth
            && link.carrier
            && !matches!(self.far, Err(NoPeer::SameNamespace))
            && probe.refuses(link, (xdp.features.0, link.carrier_changes))
        {
            xdp.features.0 &= !(XdpFeatures::NDO_XMIT.0 | XdpFeatures::NDO_XMIT_SG.0);
        }
    }
}

/// Decides which frames are delivered directly to the far end, or returns the reason why none are.
pub(crate) fn peer(delivery: Delivery, seen: &Seen) -> Result<Peer, String> {
    if delivery == Delivery::Device {
        return Err("it is configured".into());
    }
    let far = seen.far.as_ref().map_err(ToString::to_string)?;
    match &seen.egress {
        _ if far.mac.is_zero() => Err("its other end has no address".into()),
        Some(passed_by) if delivery == Delivery::Auto => Err(passed_by.to_string()),
        _ if far.runs_xdp && delivery == Delivery::Auto => Err("its other end runs an XDP program".into()),
        _ => Ok(Peer { mac: far.mac, any: delivery == Delivery::Peer || !far.forwards }),
    }
}

/// Why XDP must not redirect frames to a port that could take them; `None` if it may. With [`Delivery::Peer`] XDP may bypass what
/// is at the egress, as direct delivery may.
pub(crate) fn no_redirect(delivery: Delivery, seen: &Seen) -> Option<String> {
    seen.egress.as_ref().filter(|_| delivery != Delivery::Peer).map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NATIVE: u64 = XdpFeatures::BASIC.0 | XdpFeatures::REDIRECT.0;

    fn seen(kind: Kind, features: u64, tags: Tags) -> Seen {
        let xdp = XdpAbility { features: XdpFeatures(features), reports_vlan_tag: false };
        Seen {
            kind,
            mtu: 1500,
            xdp: Some(xdp),
            tags,
            may_parse: false,
            merges: false,
            gro: None,
            egress: None,
            far: Err(NoPeer::NotVeth),
        }
    }

    #[test]
    fn the_hook_follows_from_driver_and_tags() {
        use HookChoice::{Auto, Tc, Xdp};
        let all = NATIVE | XdpFeatures::NDO_XMIT.0;
        let nic = |tags| seen(Kind::Hardware, all, tags);
        let with_tag_report = |mut seen: Seen| {
            seen.xdp.iter_mut().for_each(|xdp| xdp.reports_vlan_tag = true);
            seen
        };
        let plain = Ok(Some(XdpForm::Plain));
        let bound = Ok(Some(XdpForm::Bound));
        let unknown = || Seen { xdp: None, ..nic(Tags::InLine) };
        let cases: [(HookChoice, Seen, bool, Result<_, &str>); 17] = [
            (Auto, unknown(), false, Ok(None)),
            (Xdp, unknown(), false, Err("this kernel does not tell")),
            (Tc, nic(Tags::InLine), false, Ok(None)),
            (Auto, nic(Tags::InLine), false, plain),
            (Auto, nic(Tags::Parsed), false, plain),
            (Auto, nic(Tags::Parsed), true, Err("turned on")),
            (Xdp, nic(Tags::Parsed), true, Err("turned on")),
            (Auto, with_tag_report(nic(Tags::Parsed)), true, bound),
            (Xdp, nic(Tags::AlwaysParsed), false, Err("does not stop")),
            (Xdp, with_tag_report(nic(Tags::AlwaysParsed)), false, bound),
            (Auto, seen(Kind::Hardware, NATIVE, Tags::InLine), false, Ok(None)),
            (Xdp, seen(Kind::Hardware, NATIVE, Tags::InLine), false, plain),
            (Xdp, seen(Kind::Hardware, XdpFeatures::BASIC.0, Tags::InLine), false, Err("no native XDP")),
            (Auto, seen(Kind::Veth, all, Tags::InLine), false, Ok(None)),
            (Xdp, seen(Kind::Veth, all, Tags::InLine), false, Ok(Some(XdpForm::Veth))),
            (Auto, seen(Kind::Tap, all, Tags::InLine), false, Ok(None)),
            (Xdp, seen(Kind::Tap, all, Tags::InLine), false, plain),
        ];
        for (choice, seen, kept, want) in cases {
            match (hook(choice, &seen, kept), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{choice:?} {seen:?}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{choice:?} {seen:?}: {got}"),
                (got, want) => unreachable!("{choice:?} {seen:?}: {got:?} instead of {want:?}"),
            }
        }
    }

    #[test]
    fn the_far_end_gets_frames_where_nothing_is_passed_by() {
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let veth = |far| Seen { far, ..seen(Kind::Veth, 0, Tags::InLine) };
        let with = |forwards, runs_xdp, egress| {
            let far = Ok(Far { netnsid: 0, ifindex: 2, mac, forwards, runs_xdp });
            Seen { egress, ..veth(far) }
        };
        let end = |forwards, egress| with(forwards, false, egress);
        let far = |egress| end(false, egress);
        let tbf = || Some(PassedBy::Qdisc("tbf".into()));
        let cases: [(Delivery, Seen, Result<bool, &str>); 13] = [
            (Delivery::Auto, far(None), Ok(true)),
            (Delivery::Auto, end(true, None), Ok(false)),
            (Delivery::Peer, end(true, None), Ok(true)),
            (Delivery::Peer, far(None), Ok(true)),
            (Delivery::Device, far(None), Err("configured")),
            (Delivery::Auto, far(tbf()), Err("tbf")),
            (Delivery::Peer, far(tbf()), Ok(true)),
            (Delivery::Auto, far(Some(PassedBy::EgressFilter)), Err("egress filter")),
            (Delivery::Auto, far(Some(PassedBy::EgressProgram)), Err("egress program")),
            (Delivery::Auto, with(false, true, None), Err("XDP")),
            (Delivery::Peer, with(false, true, tbf()), Ok(true)),
            (Delivery::Auto, far(Some(PassedBy::Unknown("EPERM".into()))), Err("EPERM")),
            (Delivery::Peer, veth(Err(NoPeer::SameNamespace)), Err("same network namespace")),
        ];
        for (delivery, seen, want) in cases {
            match (peer(delivery, &seen), want) {
                (Ok(got), Ok(any)) => assert_eq!(got, Peer { mac, any }, "{delivery:?} {seen:?}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{delivery:?} {seen:?}: {got}"),
                (got, want) => unreachable!("{delivery:?} {seen:?}: {got:?} instead of {want:?}"),
            }
        }
        assert_eq!(no_redirect(Delivery::Device, &far(None)), None);
        assert!(no_redirect(Delivery::Device, &far(tbf())).is_some_and(|why| why.contains("tbf")));
        assert_eq!(no_redirect(Delivery::Peer, &far(tbf())), None);
        // An XDP program of the far end receives what XDP sends.
        assert_eq!(no_redirect(Delivery::Auto, &with(false, true, None)), None);
    }
}
