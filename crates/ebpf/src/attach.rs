//! Hooks: the programs that run on a netdev, attached so that they stay when the daemon ends.
//!
//! Read first: the kernel's Documentation/bpf/prog_sched_cls (tcx), Documentation/networking/xdp-rx-metadata.rst and,
//! for older kernels, tc-bpf(8). Hooks belong to netdevs, not to ports: two ports that swap numbers keep them.
//!
//! Invariant: [`Hooks::held`] is what is attached and pinned; when [`Hooks::set`] fails, it leaves the netdev as it
//! was.

use crate::bpffs::Pins;
use crate::error::{Doing, Result, check, system, unsupported};
use crate::facts::{self, GRO, Kind, MERGING, Seen, TAG_PARSING, Tags, XdpForm};
use crate::object::{self, Deferred, Programs, XDP_BOUND};
use crate::tables::Tables;
use crate::tc::{self, clsact};
use crate::xdp_probe::XdpProbe;
use lanyard_netdev::{Link, Netdev};
use lanyard_pipeline::state::HookChoice;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The MTU of Ethernet in bytes, which every driver with XDP accepts.
const XDP_MTU: u32 = 1500;

/// The hooks attached to one netdev.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub tc: bool,
    pub xdp: Option<XdpForm>,
}

/// The hooks of an instance.
#[derive(Debug)]
pub(crate) struct Hooks {
    pins: Pins,
    tcx: bool,
    pub held: BTreeMap<u32, Held>,
    /// Offloads that were switched off, by netdev. They are restored when the hook is detached.
    pub switched_off: BTreeMap<u32, Vec<String>>,
    /// Netdevs on which [`GRO`] was off and was switched on here. `false` if an administrator has
    /// switched it off since: then it is left off.
    pub gro: BTreeMap<u32, bool>,
    /// Which veths take frames from XDP.
    pub probe: XdpProbe,
    /// Netdevs on which an administrator has turned tag parsing on again after it was switched off
    /// here. It is left on.
    pub tags_kept: BTreeSet<u32>,
    /// Netdevs that had no clsact qdisc before.
    pub made_qdisc: BTreeSet<u32>,
}

/// The parts of the plane that attaching uses.
pub(crate) struct Attaching<'a> {
    pub tables: &'a Tables,
    pub programs: &'a Programs,
    pub netdev: &'a Netdev,
}

impl Hooks {
    /// Creates an empty set of hooks. `tcx` is true if the kernel has TCX.
    pub(crate) fn new(pins: Pins, tcx: bool) -> Self {
        Self {
            pins,
            tcx,
            held: BTreeMap::new(),
            switched_off: BTreeMap::new(),
            gro: BTreeMap::new(),
            probe: XdpProbe::default(),
            tags_kept: BTreeSet::new(),
            made_qdisc: BTreeSet::new(),
        }
    }

    /// Takes over the pinned links that are still attached, and drops the others. With `update`
    /// they are switched to `programs` in place, without losing a frame.
    pub(crate) fn adopt(&mut self, with: &Attaching<'_>, update: bool) -> Result<()> {
        for name in self.pins.links() {
            let path = self.pins.link(&name);
            let parsed =
                name.split_once('-').and_then(|(kind, n)| Some((kind.to_owned(), n.parse::<u32>().ok()?)));
            let link = object::pinned(&path).ok();
            let (Some((kind, ifindex)), Some(link)) = (parsed, link) else {
                fs::remove_file(&path).doing(|| format!("removing the stale pin {}", path.display()))?;
                continue;
            };
            if !attached_here(&link, ifindex) {
                // The netdev was removed, and the kernel has detached the program; or it was moved to another network namespace
                // and has taken the program along, which would redirect its frames to netdevs of that namespace.
                detach_pinned(&self.pins, &name)?;
                continue;
            }
            let form = [XdpForm::Plain, XdpForm::Veth, XdpForm::Bound]
                .into_iter()
                .find(|form| form.prefix() == kind);
            if update {
                let program = self.program(with, form, ifindex)?;
                let (link, program) = (link.as_raw_fd(), program.as_raw_fd());
                // SAFETY: two live descriptors and no options.
                let answer = unsafe { libbpf_sys::bpf_link_update(link, program, std::ptr::null()) };
                check(answer).doing(|| format!("updating the program of {name}"))?;
            }
            let held = self.held.entry(ifindex).or_default();
            match form {
                None => held.tc = true,
                Some(form) => held.xdp = Some(form),
            }
        }
        Ok(())
    }

    /// True when a pinned link is attached to a netdev that still exists.
    pub(crate) fn any_alive(pins: &Pins) -> bool {
        let alive = |name: &String| {
            let ifindex = object::pinned(&pins.link(name)).and_then(|link| link_ifindex(&link));
            ifindex.is_ok_and(|ifindex| ifindex != 0)
        };
        pins.links().iter().any(alive)
    }

    /// True when a pinned link is attached to a netdev, or exists but may not be inspected by this
    /// process.
    pub(crate) fn may_be_alive(pins: &Pins) -> bool {
        let alive = |name: &String| {
            let found = object::pinned(&pins.link(name)).and_then(|link| link_ifindex(&link));
            found.map_or_else(|error| error.kind() == io::ErrorKind::PermissionDenied, |ifindex| ifindex != 0)
        };
        pins.links().iter().any(alive)
    }

    /// Without TCX: assumes that these netdevs have the hook, because filters cannot be listed as links can.
    pub(crate) fn presume(&mut self, ifindexes: impl Iterator<Item = u32>) {
        if !self.tcx {
            ifindexes.for_each(|ifindex| self.held.entry(ifindex).or_default().tc = true);
        }
    }

    /// Drops the hooks that the kernel has detached, and those that a netdev has taken along to another network namespace: the
    /// netdev with this index is not here any more, even if another one has the index now.
    pub(crate) fn forget_dead(&mut self, ifindex: u32) {
        if !self.tcx {
            if !clsact::present(ifindex) {
                self.held.remove(&ifindex);
                self.made_qdisc.remove(&ifindex);
            }
            return;
        }
        let Some(held) = self.held.get_mut(&ifindex) else { return };
        let pins = &self.pins;
        let alive = |kind: &str| {
            let name = format!("{kind}-{ifindex}");
            let Ok(link) = object::pinned(&pins.link(&name)) else { return false };
            let here = attached_here(&link, ifindex);
            if !here {
                // If that fails, the next daemon detaches the program when it adopts the pins.
                let _ = detach_pinned(pins, &name);
            }
            here
        };
        held.tc &= alive("tc");
        held.xdp = held.xdp.filter(|form| alive(form.prefix()));
    }

    /// Detaches every pinned link, and reports those that could not be detached.
    pub(crate) fn detach_all(pins: &Pins) -> Result<()> {
        let mut result = Ok(());
        for name in pins.links() {
            result = result.and(detach_pinned(pins, &name));
        }
        result
    }

    /// Attaches to `link` the hooks that follow from `choice`. Hooks that are attached already and wanted
    /// stay unchanged. Returns the reason if XDP could have been used and is not; with `strict` that is an
    /// error if the user has chosen XDP.
    pub(crate) fn set(
        &mut self,
        with: &Attaching<'_>,
        link: &Link,
        choice: HookChoice,
        seen: &Seen,
        strict: bool,
    ) -> Result<Option<String>> {
        let before = self.held.get(&link.ifindex).copied().unwrap_or_default();
        if strict && choice == HookChoice::Xdp {
            self.tags_kept.remove(&link.ifindex);
        } else {
            self.note_tags(link.ifindex, before, seen.tags);
        }
        let mut refused = None;
        let wanted = match facts::hook(choice, seen, self.tags_kept.contains(&link.ifindex)) {
            Ok(wanted) => wanted,
            Err(why) if strict && choice == HookChoice::Xdp => {
                return Err(unsupported(format!("run XDP on {}: {why}", link.name)));
            }
            Err(why) => {
                refused = Some(why);
                None
            }
        };
        if !before.tc {
            // A netdev without the plane's hook is not the netdev of this entry, but another one with the
            // same index. Before TCX a restarted daemon does not know the hooks, so it checks the qdisc.
            if self.tcx || !clsact::present(link.ifindex) {
                self.gro.remove(&link.ifindex);
            }
            self.attach_tc(with, link)?;
        } else if seen.kind == Kind::Hardware && seen.merges {
            let doing = || format!("switching {MERGING} of {} off", link.name);
            self.switch_off(with.netdev, link, MERGING).doing(doing)?;
        }
        self.held.entry(link.ifindex).or_default().tc = true;
        self.switch_gro_on(with.netdev, link, seen.gro);
        match self.set_xdp(with, link, before.xdp, wanted) {
            Ok(()) => Ok(refused),
            // An automatic choice falls back to TC, which handles everything.
            Err(error) if choice == HookChoice::Auto || !strict => Ok(Some(error.to_string())),
            Err(error) => {
                if !before.tc {
                    // Report the first error.
                    let _ = self.clear(with.netdev, link.ifindex);
                }
                Err(error)
            }
        }
    }

    /// Detects that an administrator has turned tag parsing on again after it was switched off
    /// here.
    fn note_tags(&mut self, ifindex: u32, before: Held, tags: Tags) {
        if tags == Tags::InLine {
            self.tags_kept.remove(&ifindex);
            return;
        }
        let off = self.switched_off.get(&ifindex);
        let ours = off.is_some_and(|off| off.iter().any(|name| TAG_PARSING.contains(&name.as_str())));
        if ours || before.xdp == Some(XdpForm::Plain) {
            self.tags_kept.insert(ifindex);
            // The offload is as the administrator wants it, so it will not be restored.
            if let Some(off) = self.switched_off.get_mut(&ifindex) {
                off.retain(|name| !TAG_PARSING.contains(&name.as_str()));
            }
        }
    }

    fn set_xdp(
        &mut self,
        with: &Attaching<'_>,
        link: &Link,
        before: Option<XdpForm>,
        wanted: Option<XdpForm>,
    ) -> Result<()> {
        if before == wanted {
            return Ok(());
        }
        if let Some(form) = before {
            self.detach_link(form.prefix(), link.ifindex)?;
            self.held.entry(link.ifindex).or_default().xdp = None;
            if wanted.is_none() {
                self.restore(with.netdev, link.ifindex, &TAG_PARSING);
            }
        }
        let Some(form) = wanted else { return Ok(()) };
        match self.attach_xdp(with, link, form) {
            Ok(()) => self.held.entry(link.ifindex).or_default().xdp = Some(form),
            Err(error) => {
                self.restore(with.netdev, link.ifindex, &TAG_PARSING);
                return Err(error);
            }
        }
        Ok(())
    }

    fn attach_tc(&mut self, with: &Attaching<'_>, link: &Link) -> Result<()> {
        let doing = || format!("attaching to TC ingress of {}", link.name);
        // Only hardware merges frames in a way that cannot be undone.
        if link.kind.is_none() {
            self.switch_off(with.netdev, link, MERGING).doing(doing)?;
        }
        if !self.tcx {
            if clsact::attach(link.ifindex, &with.programs.tc).doing(doing)? {
                self.made_qdisc.insert(link.ifindex);
            }
            return Ok(());
        }
        self.attach_link("tc", &with.programs.tc, link.ifindex, libbpf_sys::BPF_TCX_INGRESS, 0).doing(doing)
    }

    fn attach_xdp(&mut self, with: &Attaching<'_>, link: &Link, form: XdpForm) -> Result<()> {
        let doing = || format!("attaching to XDP of {}", link.name);
        if form == XdpForm::Plain {
            for offload in TAG_PARSING {
                self.switch_off(with.netdev, link, offload).map_err(|why| {
                    unsupported(format!(
                        "run XDP on {}: its driver takes VLAN tags out of the frames and does not stop doing so ({why})",
                        link.name
                    ))
                })?;
            }
        }
        let program = self.program(with, Some(form), link.ifindex).map_err(|why| match form {
            XdpForm::Plain => why,
            XdpForm::Veth | XdpForm::Bound => unsupported(format!(
                "run XDP on {}: tags its frames carry out of band would be invisible, and this kernel cannot show them ({why})",
                link.name
            )),
        })?;
        let flags = libbpf_sys::XDP_FLAGS_DRV_MODE;
        self.attach_link(form.prefix(), &program, link.ifindex, libbpf_sys::BPF_XDP, flags)
            .map_err(|error| xdp_refusal(link, &program, error))
            .doing(doing)
    }

    /// The program for a hook: one of the plane's, or a new one if it has to be bound to the device.
    fn program(&self, with: &Attaching<'_>, form: Option<XdpForm>, ifindex: u32) -> Result<OwnedFd> {
        let shared = match form {
            None => &with.programs.tc,
            Some(XdpForm::Plain) => with.programs.load(Deferred::Xdp, with.tables, Some(&self.pins))?,
            Some(XdpForm::Veth) => match with.programs.veth(with.tables, Some(&self.pins)) {
                Some(program) => program,
                None => return bound_program(with, ifindex),
            },
            Some(XdpForm::Bound) => return bound_program(with, ifindex),
        };
        shared.try_clone().doing(|| "copying a descriptor".into())
    }

    fn attach_link(
        &self,
        kind: &str,
        program: &OwnedFd,
        ifindex: u32,
        to: u32,
        flags: u32,
    ) -> io::Result<()> {
        let path = self.pins.link(&format!("{kind}-{ifindex}"));
        if path.exists() {
            // The pin belongs to a removed netdev with the same index; its link is dead.
            fs::remove_file(&path)?;
        }
        let opts = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
            flags,
            ..Default::default()
        };
        let target = i32::try_from(ifindex).map_err(io::Error::other)?;
        // SAFETY: a live program, and options of the stated size; the returned descriptor is owned by nobody
        // else.
        let link =
            check(unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), target, to, &raw const opts) })?;
        // SAFETY: as above.
        let link = unsafe { OwnedFd::from_raw_fd(link) };
        // Dropping the link detaches it again when it cannot be pinned.
        object::pin(&link, &path)
    }

    /// Detaches everything from a netdev and restores its offloads.
    pub(crate) fn clear(&mut self, netdev: &Netdev, ifindex: u32) -> Result<()> {
        let Some(held) = self.held.remove(&ifindex) else { return Ok(()) };
        let mut result = Ok(());
        if let Some(form) = held.xdp {
            result = result.and(self.detach_link(form.prefix(), ifindex));
        }
        if held.tc && self.tcx {
            result = result.and(self.detach_link("tc", ifindex));
        } else if held.tc {
            let made = self.made_qdisc.remove(&ifindex);
            result = result
                .and(clsact::detach(ifindex, made).doing(|| format!("detaching from interface {ifindex}")));
        }
        self.restore(netdev, ifindex, &[TAG_PARSING[0], TAG_PARSING[1], MERGING]);
        if let (Some(true), Ok(link)) = (self.gro.remove(&ifindex), netdev.link_by_index(ifindex)) {
            // As above, a failure has no further effect.
            let _ = netdev.set_features(&link.name, &[(GRO, false)]);
        }
        self.tags_kept.remove(&ifindex);
        self.probe.forget(ifindex);
        result
    }

    fn detach_link(&self, kind: &str, ifindex: u32) -> Result<()> {
        detach_pinned(&self.pins, &format!("{kind}-{ifindex}"))
    }

    fn switch_off(&mut self, netdev: &Netdev, link: &Link, offload: &str) -> Result<(), String> {
        let features = netdev.features(&link.name).map_err(|e| e.to_string())?;
        let Some(feature) = features.iter().find(|feature| feature.name == offload && feature.on) else {
            return Ok(());
        };
        if !feature.changeable {
            return Err(format!("{offload} is fixed"));
        }
        netdev.set_features(&link.name, &[(offload, false)]).map_err(|e| e.to_string())?;
        let off = self.switched_off.entry(link.ifindex).or_default();
        if !off.iter().any(|held| held == offload) {
            off.push(offload.to_owned());
        }
        Ok(())
    }

    /// Switches [`GRO`] on where it pays and is off, unless an administrator has switched it off
    /// since it was switched on here.
    fn switch_gro_on(&mut self, netdev: &Netdev, link: &Link, gro: Option<bool>) {
        match (gro, self.gro.get(&link.ifindex)) {
            (Some(false), Some(_)) => drop(self.gro.insert(link.ifindex, false)),
            // The port works without GRO, so it is not refused if GRO cannot be switched on.
            (Some(false), None) if netdev.set_features(&link.name, &[(GRO, true)]).is_ok() => {
                self.gro.insert(link.ifindex, true);
            }
            // An administrator has switched it on again, so the earlier choice no longer counts.
            (Some(true), Some(false)) => drop(self.gro.insert(link.ifindex, true)),
            _ => {}
        }
    }

    /// Switches those of `offloads` on again that were switched off.
    fn restore(&mut self, netdev: &Netdev, ifindex: u32, offloads: &[&str]) {
        let Some(off) = self.switched_off.get_mut(&ifindex) else { return };
        let wanted: Vec<(&str, bool)> = offloads
            .iter()
            .filter(|name| off.iter().any(|held| held == *name))
            .map(|name| (*name, true))
            .collect();
        off.retain(|held| !offloads.contains(&held.as_str()));
        if off.is_empty() {
            self.switched_off.remove(&ifindex);
        }
        if let (false, Ok(link)) = (wanted.is_empty(), netdev.link_by_index(ifindex)) {
            // If the driver does not switch it on again, nothing more can be done.
            let _ = netdev.set_features(&link.name, &wanted);
        }
    }
}

/// Why the kernel refused to attach `program` at XDP of `link`. For a link the kernel returns an
/// error number only; for a request by rtnetlink its answer has the driver's own words ("MTU too
/// large for XDP, max 3498").
fn xdp_refusal(link: &Link, program: &OwnedFd, error: io::Error) -> io::Error {
    let Ok(ifindex) = i32::try_from(link.ifindex) else { return error };
    let flags = libbpf_sys::XDP_FLAGS_DRV_MODE | libbpf_sys::XDP_FLAGS_UPDATE_IF_NOEXIST;
    let messages = crate::refusal::Messages::listen();
    // SAFETY: a live program and no options.
    let answer = unsafe { libbpf_sys::bpf_xdp_attach(ifindex, program.as_raw_fd(), flags, std::ptr::null()) };
    if answer == 0 {
        // This attachment has no pin, so nothing would detach it later: detach it at once.
        // SAFETY: no options.
        unsafe { libbpf_sys::bpf_xdp_detach(ifindex, flags, std::ptr::null()) };
        return error;
    }
    let words = messages.kernel();
    drop(messages);
    let large = (link.mtu > XDP_MTU).then(|| {
        format!(
            "; its MTU is {}, and drivers limit that of XDP: configure a smaller `mtu`, or `hook tc`",
            link.mtu
        )
    });
    match (words, large) {
        (None, None) => error,
        (words, large) => io::Error::other(format!(
            "{}{}",
            words.unwrap_or_else(|| error.to_string()),
            large.unwrap_or_default()
        )),
    }
}

/// Loads the program that asks the driver of a netdev for out-of-band tags.
fn bound_program(with: &Attaching<'_>, ifindex: u32) -> Result<OwnedFd> {
    let loaded = object::load_over(with.tables, &[XDP_BOUND], Some(ifindex))?.into_iter().next();
    loaded.ok_or_else(|| system(format!("loading the program {XDP_BOUND}"), "there is none"))
}

/// Detaches a pinned link and removes the pin. If both are gone already, that is no error.
fn detach_pinned(pins: &Pins, name: &str) -> Result<()> {
    let path = pins.link(name);
    let doing = || format!("detaching {name}");
    if let Ok(link) = object::pinned(&path) {
        // SAFETY: a live descriptor.
        let answer = unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
        // ENOLINK and ENODEV: the netdev was removed first.
        if answer < 0 && ![-libc::ENOLINK, -libc::ENODEV].contains(&answer) {
            check(answer).doing(doing)?;
        }
    }
    match fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(system(doing(), e)),
        _ => Ok(()),
    }
}

/// The netdev to which a TCX or XDP link is attached, by its index in the namespace where it is; 0 when it is gone.
fn link_ifindex(link: &OwnedFd) -> io::Result<u32> {
    let info = link_info(link)?;
    match info.type_ {
        // SAFETY: the type says which member of the union the kernel filled in.
        libbpf_sys::BPF_LINK_TYPE_TCX => Ok(unsafe { info.__bindgen_anon_1.tcx.ifindex }),
        // SAFETY: as above.
        libbpf_sys::BPF_LINK_TYPE_XDP => Ok(unsafe { info.__bindgen_anon_1.xdp.ifindex }),
        _ => Ok(0),
    }
}

/// True when a link is attached to the netdev with this index in this network namespace. A link stays attached when its netdev is
/// moved to another namespace, where it often keeps its index.
fn attached_here(link: &OwnedFd, ifindex: u32) -> bool {
    let Ok(info) = link_info(link) else { return false };
    if link_ifindex(link).ok() != Some(ifindex) {
        return false;
    }
    let here = if info.type_ == libbpf_sys::BPF_LINK_TYPE_TCX {
        tc::has_ingress_link(ifindex, info.id)
    } else {
        xdp_program(ifindex).map(|program| program == info.prog_id)
    };
    match here {
        Ok(here) => here,
        Err(error) => error.raw_os_error() != Some(libc::ENODEV),
    }
}

/// The number of the program that a driver runs at XDP; 0 for none.
fn xdp_program(ifindex: u32) -> io::Result<u32> {
    let target = i32::try_from(ifindex).map_err(io::Error::other)?;
    let (mut id, flags) = (0, libbpf_sys::XDP_FLAGS_DRV_MODE.cast_signed());
    // SAFETY: `id` is exclusively borrowed for the call.
    check(unsafe { libbpf_sys::bpf_xdp_query_id(target, flags, &raw mut id) })?;
    Ok(id)
}

fn link_info(link: &OwnedFd) -> io::Result<libbpf_sys::bpf_link_info> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = size_of::<libbpf_sys::bpf_link_info>() as u32;
    // SAFETY: `info` has `len` bytes of room.
    check(unsafe { libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut len) })?;
    Ok(info)
}
