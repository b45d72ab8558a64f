//! Updates ports when their netdevs change: offloads, queueing disciplines, programs and XDP features change at any
//! time, and with them the best way of forwarding that is safe.
//!
//! Read `facts` first, which makes the decisions. This module finds the ports whose netdev, or whose far end, may have
//! changed, by the kernel's notifications (`lanyard_netdev::Watch`) and by a timer. Each of these ports is examined
//! again as if it had just become a port.
//!
//! Invariant: after a notification, or after [`AUDIT`] at the latest for programs at TCX, no port is forwarded in a way
//! that its netdev does not allow. While this runs, `global.facts_s` is the present time. The programs rely on facts
//! that may change only while that time is recent, so a daemon that has ended leaves nothing behind that can become
//! wrong.

use crate::abi;
use crate::attach::{self, Attaching};
use crate::clock::now_s;
use crate::error::{Doing, Result, system, unsupported};
use crate::events::Events;
use crate::facts;
use crate::lower::PortFacts;
use crate::plane::{EbpfPlane, Kept};
use lanyard_netdev::{Changed, Watch};
use lanyard_pipeline::state::{Delivery, HookChoice, PortState};
use lanyard_plane::{PlaneError, PlaneEvent};
use lanyard_types::PortId;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The interval of the audit for changes without a notification.
const AUDIT: Duration = Duration::from_millis(500);
/// Ports that an audit examines completely; the following audits examine the next ones.
const PORTS_AN_AUDIT: usize = 8;

/// The notifications and the timer.
#[derive(Debug)]
pub(crate) struct Follower {
    watch: Watch,
    timer: TimerFd,
    /// The port after which the next audit begins.
    last: Option<PortId>,
}

impl Follower {
    /// Subscribes to changes; `events` becomes readable when there are any. Notes what this kernel
    /// does not report.
    pub(crate) fn open(events: &Events, notes: &mut Vec<String>) -> Result<Self> {
        let doing = || "watching the netdevs".to_owned();
        let watch = Watch::open().doing(doing)?;
        notes.extend(watch.missing().iter().map(|what| format!("no {what}")));
        let timer =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)
                .doing(doing)?;
        let every = Expiration::Interval(TimeSpec::from_duration(AUDIT));
        timer.set(every, TimerSetTimeFlags::empty()).doing(doing)?;
        for fd in watch.fds() {
            events.watch(fd)?;
        }
        events.watch(timer.as_fd())?;
        Ok(Self { watch, timer, last: None })
    }
}

impl EbpfPlane {
    /// Attaches a port's netdev and reads its facts. Returns the reason if the port does not run the hook
    /// that it could have. With `strict` that is an error if the port's configuration asks for the hook.
    pub(crate) fn hook(&mut self, id: PortId, port: &PortState, strict: bool) -> Result<Option<String>> {
        let Some(Kept { hooks, netdev, .. }) = &mut self.kept else { return Ok(None) };
        if port.ifindex == 0 {
            self.facts.remove(&id);
            return Ok(None);
        }
        let captured = self.captures.contains_key(&id);
        let mut port = port.clone();
        if captured {
            // A packet socket sees the frames that TC receives and that the device sends.
            (port.hook, port.delivery) = (HookChoice::Tc, Delivery::Device);
        }
        let port = &port;
        let link =
            netdev.link_by_index(port.ifindex).map_err(|e| system(format!("attaching {}", port.name), e))?;
        let mut seen = facts::look(netdev, port, &link);
        if strict
            && port.delivery == Delivery::Peer
            && let Err(why) = &seen.far
        {
            return Err(unsupported(format!("deliver to the peer of {}: {why}", link.name)));
        }
        let held = hooks.held.get(&link.ifindex).copied();
        let with = Attaching { tables: &self.tables, programs: &self.programs, netdev };
        let refused = hooks.set(&with, &link, port.hook, &seen, strict)?;
        let now = hooks.held.get(&link.ifindex).copied().unwrap_or_default();
        if held != Some(now) {
            // Some drivers accept frames from XDP only while they run a program themselves.
            seen.xdp = facts::xdp_ability(netdev, link.ifindex);
        }
        let mut facts = PortFacts::of(port, &seen, now);
        if captured {
            facts.peer = Err("a packet capture runs".into());
            facts.xdp_tx = false;
        }
        self.facts.insert(id, facts);
        Ok(refused)
    }

    /// Reads the facts about a port's netdev again. Returns a description of what has changed in
    /// the way the port forwards.
    ///
    /// # Errors
    /// When the port does not exist, or its hook could not be attached again.
    pub(crate) fn refresh_port(&mut self, id: PortId) -> Result<Option<String>, PlaneError> {
        let port = self.state.ports.get(&id).cloned().ok_or(PlaneError::NoSuchPort(id))?;
        let Some(kept) = &mut self.kept else { return Ok(None) };
        let held = kept.hooks.held.get(&port.ifindex).copied();
        let gro = kept.hooks.gro.get(&port.ifindex).copied();
        kept.hooks.forget_dead(port.ifindex);
        let before = self.facts.get(&id).cloned();
        let refused = self.hook(id, &port, false)?;
        let now = self.kept.as_ref().and_then(|kept| kept.hooks.held.get(&port.ifindex).copied());
        let facts = self.facts.get(&id).cloned();
        if self.kept.as_ref().and_then(|kept| kept.hooks.gro.get(&port.ifindex).copied()) != gro {
            self.save()?;
        }
        if facts == before && held == now {
            return Ok(None);
        }
        self.write_xdp_port(id);
        self.write_row(id);
        if held != now {
            // Save an administrator's decision about an offload for the next daemon.
            self.save()?;
        }
        let (before, facts) = (before.unwrap_or_default(), facts.unwrap_or_default());
        let xdp = |held: Option<attach::Held>| held.is_some_and(|held| held.xdp.is_some());
        let mut news = Vec::new();
        match (xdp(held), xdp(now)) {
            (true, false) => news.push(match refused {
                Some(why) => format!("forwarded by TC instead of XDP: {why}"),
                None => "forwarded by TC instead of XDP".to_owned(),
            }),
            (false, true) => news.push("forwarded by XDP".into()),
            _ => {}
        }
        match (&before.peer, &facts.peer) {
            (Ok(_), Err(why)) => news.push(format!("frames leave through the device: {why}")),
            (Err(_), Ok(_)) => news.push("unicast frames are handed to the other end".into()),
            (Ok(before), Ok(now)) if before.any && !now.any => {
                news.push(
                    "frames for other stations leave through the device: the other end forwards packets"
                        .into(),
                );
            }
            (Ok(before), Ok(now)) if !before.any && now.any => {
                news.push("frames for other stations are handed to the other end, too".into());
            }
            _ => {}
        }
        match (before.xdp_tx, facts.xdp_tx) {
            (true, false) if self.captures.contains_key(&id) => {
                news.push("takes no more frames from XDP: a packet capture runs".into());
            }
            (true, false) => news.push("takes no more frames from XDP: its other end runs no NAPI".into()),
            (false, true) => news.push("takes frames from XDP".into()),
            _ => {}
        }
        Ok((!news.is_empty()).then(|| news.join("; ")))
    }

    /// Updates the ports whose netdevs have changed.
    pub(crate) fn follow(&mut self, handle: &mut dyn FnMut(PlaneEvent)) {
        let Some(mut follower) = self.follower.take() else { return };
        let mut dirty = self.changed_ports(&mut follower.watch);
        // The timer does not block; an error means that the audit is not due.
        let due = follower.timer.wait().is_ok();
        if due {
            self.vouch();
            self.audit(&mut follower.last, &mut dirty);
        }
        self.follower = Some(follower);
        for port in dirty {
            match self.refresh_port(port) {
                Ok(None) => {}
                Ok(Some(what)) => handle(PlaneEvent::PortChanged { port, what }),
                // The netdev is being removed, which the next state reports.
                Err(PlaneError::NoSuchPort(_)) => {}
                Err(error) if self.gone(port) => drop(error),
                Err(error) => handle(PlaneEvent::PortChanged { port, what: error.to_string() }),
            }
        }
        if due {
            // After the ports that have changed: leases that had ended begin again with what holds now. Where the kernel sets
            // no timer they stay ended, and TC forwards.
            let _ = self.renew_leases();
        }
    }

    /// Confirms to the programs that the facts about netdevs in the tables are correct.
    pub(crate) fn vouch(&self) {
        self.tables.global.u32(0, offset_of!(abi::Global, facts_s)).store(now_s(), Relaxed);
    }

    fn gone(&self, port: PortId) -> bool {
        let ifindex = self.state.ports.get(&port).map_or(0, |port| port.ifindex);
        self.kept.as_ref().is_none_or(|kept| kept.netdev.link_by_index(ifindex).is_err())
    }

    /// The ports that the notifications concern.
    fn changed_ports(&self, watch: &mut Watch) -> BTreeSet<PortId> {
        let mut ports: BTreeMap<(Option<i32>, u32), PortId> = BTreeMap::new();
        for (id, port) in &self.state.ports {
            ports.insert((None, port.ifindex), *id);
            if let Some(far) = self.facts.get(id).and_then(|facts| facts.far) {
                ports.insert((Some(far.0), far.1), *id);
            }
        }
        let mut dirty = BTreeSet::new();
        watch.read(|changed| match changed {
            Changed::Device { netnsid, ifindex } => dirty.extend(ports.get(&(netnsid, ifindex))),
            Changed::Any => dirty.extend(self.state.ports.keys()),
        });
        dirty
    }

    /// Finds changes without a notification: programs at TCX egress of every port with peer
    /// delivery, and everything else at a few ports at a time.
    fn audit(&self, last: &mut Option<PortId>, dirty: &mut BTreeSet<PortId>) {
        let present = self.state.ports.iter().filter(|(_, port)| port.ifindex != 0);
        for (id, port) in present.clone() {
            let peer =
                port.delivery == Delivery::Auto && self.facts.get(id).is_some_and(|facts| facts.peer.is_ok());
            if peer && attach::egress_programs(port.ifindex).is_ok_and(|count| count != 0) {
                dirty.insert(*id);
            }
        }
        let ids: Vec<PortId> = present.map(|(id, _)| *id).collect();
        let from = ids.partition_point(|id| last.is_some_and(|last| *id <= last));
        let turn: Vec<PortId> =
            ids[from..].iter().chain(&ids[..from]).copied().take(PORTS_AN_AUDIT).collect();
        *last = turn.last().copied();
        dirty.extend(turn);
    }
}
