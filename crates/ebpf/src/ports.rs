//! The netdevs of the ports: attaches hooks, reads facts, and updates both after the changes that [`crate::follow`] finds.
//!
//! Invariant: the rows of a port are written after the facts about its netdev on which they depend.

use crate::abi;
use crate::attach::{self, Attaching};
use crate::error::{Result, system, unsupported};
use crate::facts;
use crate::lower::PortFacts;
use crate::plane::{EbpfPlane, Kept};
use crate::watchdog;
use lanyard_pipeline::state::{Delivery, HookChoice, PortKind, PortState};
use lanyard_plane::{PlaneError, PlaneEvent};
use lanyard_types::PortId;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

impl EbpfPlane {
    /// Attaches a port's netdev and reads its facts. Returns the reason if the port does not run the hook
    /// that it could have. With `strict` that is an error if the port's configuration asks for the hook.
    pub(crate) fn hook(&mut self, id: PortId, port: &PortState, strict: bool) -> Result<Option<String>> {
        let Some(Kept { hooks, netdev, chains, .. }) = &mut self.kept else { return Ok(None) };
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
        seen.ask(&link, &mut hooks.probe);
        let mut facts = PortFacts::of(port, &seen, now);
        if captured {
            facts.peer = Err("a packet capture runs".into());
            facts.xdp_tx = false;
            facts.no_redirect = Some("a packet capture runs".into());
        }
        // Not at router interfaces: where one has a chain, the kernel routes, and packets pass the chain.
        let switched = port.kind == PortKind::Netdev;
        facts.unfiltered = chains.at(&link.name).filter(|_| switched).map(str::to_owned);
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
            (true, false) => {
                let why = facts.no_redirect.as_deref().unwrap_or("its other end runs no NAPI");
                news.push(format!("takes no more frames from XDP: {why}"));
            }
            (false, true) => news.push("takes frames from XDP".into()),
            _ => {}
        }
        match (&before.unfiltered, &facts.unfiltered) {
            (was, Some(chain)) if was.as_ref() != Some(chain) => {
                news.push(format!("forwarded frames do not pass the {chain}"));
            }
            (Some(_), None) => news.push("no nftables chain is at its netdev any more".into()),
            _ => {}
        }
        Ok((!news.is_empty()).then(|| news.join("; ")))
    }

    /// Updates the ports whose netdevs have changed.
    pub(crate) fn follow(&mut self, handle: &mut dyn FnMut(PlaneEvent)) {
        let Some(follower) = &mut self.follower else { return };
        let Some(Kept { chains, .. }) = &mut self.kept else { return };
        let (dirty, due) = follower.dirty(&self.tables, &self.state, &self.facts, chains);
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
            // Only after the changed ports were updated above, because leases that had ended begin again here with the present
            // facts. If the kernel sets no timer they stay ended, and TC forwards.
            let _ = self.renew_leases();
        }
        if let Some(Kept { hooks, .. }) = &mut self.kept {
            hooks.probe.detach();
        }
    }

    /// Confirms the leases: veth ports accept frames from XDP for another [`abi::LEASE_MS`]. Leases
    /// that have ended meanwhile begin again, so the facts about the netdevs must be up to date.
    ///
    /// # Errors
    /// When the kernel does not set its timer. Leases that have ended then stay so.
    pub(crate) fn renew_leases(&mut self) -> Result<()> {
        let after = Duration::from_millis(abi::LEASE_MS);
        watchdog::set(&self.programs.watchdog_set, abi::WATCHDOG_LEASES, Some(after))?;
        if !watchdog::leases_ended(&self.tables) {
            return Ok(());
        }
        watchdog::lease_phase(&self.tables).store(abi::WATCHDOG_WAITS, SeqCst);
        for id in self.state.ports.keys().copied().collect::<Vec<PortId>>() {
            self.write_row(id);
        }
        self.write_xdp_flood();
        Ok(())
    }

    fn gone(&self, port: PortId) -> bool {
        let ifindex = self.state.ports.get(&port).map_or(0, |port| port.ifindex);
        self.kept.as_ref().is_none_or(|kept| kept.netdev.link_by_index(ifindex).is_err())
    }
}
