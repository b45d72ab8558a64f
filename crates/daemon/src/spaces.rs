//! The network namespaces of VRFs: finds or creates them, watches them, and records which of the switch's
//! netdevs are in them.
//!
//! Read network_namespaces(7) first. Invariants: this thread never leaves its own namespace; work inside
//! another one is done by a new thread. A namespace stays open while it is a VRF, so its contents survive if
//! its name is removed.

use crate::kernel::{KernelError, Result};
use lanyard_netdev::{Event, Events, Link, Netdev, netns, sysctl};
use lanyard_switch::facts::{Knob, Namespace};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::MetadataExt;

/// The namespaces.
#[derive(Debug)]
pub struct Spaces {
    own: File,
    by_vrf: BTreeMap<String, Space>,
    /// The VRF of each netdev of the switch that is in one.
    homes: BTreeMap<String, String>,
    /// Becomes readable when any of the namespaces has events.
    epoll: Epoll,
}

/// One namespace.
#[derive(Debug)]
struct Space {
    file: File,
    netdev: Netdev,
    events: Events,
}

impl Spaces {
    /// Creates an empty set.
    ///
    /// # Errors
    /// When /proc is not mounted.
    pub fn open() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { own: netns::current()?, by_vrf: BTreeMap::new(), homes: BTreeMap::new(), epoll })
    }
    /// The VRFs whose namespaces exist.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_vrf.keys().map(String::as_str)
    }
    /// The netlink connection of a VRF's namespace.
    #[must_use]
    pub fn netdev(&self, vrf: &str) -> Option<&Netdev> {
        self.by_vrf.get(vrf).map(|space| &space.netdev)
    }
    /// The namespace, for moving netdevs or starting processes; `None` is the switch's own.
    ///
    /// # Errors
    /// When the VRF has no namespace.
    pub fn file(&self, vrf: Option<&str>) -> Result<BorrowedFd<'_>> {
        match vrf {
            None => Ok(self.own.as_fd()),
            Some(vrf) => {
                let space = self.by_vrf.get(vrf).ok_or_else(|| KernelError::NoNamespace(vrf.to_owned()))?;
                Ok(space.file.as_fd())
            }
        }
    }
    /// Runs `f` in a VRF's namespace, or directly if that is the switch's own.
    ///
    /// # Errors
    /// When the VRF has no namespace, or it cannot be entered.
    pub fn run<T: Send>(&self, vrf: Option<&str>, f: impl FnOnce() -> T + Send) -> Result<T> {
        let Some(vrf) = vrf else { return Ok(f()) };
        let space = self.by_vrf.get(vrf).ok_or_else(|| KernelError::NoNamespace(vrf.to_owned()))?;
        netns::run_in(&space.file, f).map_err(|error| KernelError::io(format!("entering VRF {vrf}"), error))
    }
    /// The VRF of a netdev of the switch.
    #[must_use]
    pub fn home(&self, name: &str) -> Option<&str> {
        self.homes.get(name).map(String::as_str)
    }
    /// Records that a netdev has been moved.
    pub fn set_home(&mut self, name: &str, vrf: Option<&str>) {
        match vrf {
            Some(vrf) => drop(self.homes.insert(name.to_owned(), vrf.to_owned())),
            None => drop(self.homes.remove(name)),
        }
    }
    /// Takes over the record of an earlier run.
    pub fn adopt(&mut self, homes: &BTreeMap<String, String>) {
        for (name, vrf) in homes {
            self.find(vrf);
            // The record of a run that ended during a change may name moves that were not made.
            if self.by_vrf.get(vrf).is_some_and(|space| space.netdev.link(name).is_ok()) {
                self.homes.insert(name.clone(), vrf.clone());
            }
        }
    }
    /// Opens a VRF's namespace if it exists.
    pub fn find(&mut self, vrf: &str) {
        if self.by_vrf.contains_key(vrf) {
            return;
        }
        let opened = netns::open(vrf).and_then(|file| {
            let (netdev, events) = netns::run_in(&file, || (Netdev::open(), Events::open()))?;
            Ok(Space { file, netdev: netdev?, events: events? })
        });
        if let Ok(space) = opened {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, 0);
            let _ = self.epoll.add(&space.events, event);
            self.by_vrf.insert(vrf.to_owned(), space);
        }
    }
    /// Creates a VRF's namespace as `ip netns add` does, marks its loopback device with `mark`, and brings
    /// the device up.
    ///
    /// # Errors
    /// When it exists already, or without the right to create one.
    pub fn create(&mut self, vrf: &str, mark: &str) -> Result<()> {
        let doing = || format!("making network namespace {vrf}");
        netns::create(vrf).map_err(|error| KernelError::io(doing(), error))?;
        self.find(vrf);
        self.prepare(vrf, mark).map_err(|error| {
            let _ = self.delete(vrf);
            error.during(doing())
        })
    }
    /// Marks the loopback device of a namespace and brings it up.
    fn prepare(&self, vrf: &str, mark: &str) -> Result<()> {
        let space = self.by_vrf.get(vrf).ok_or_else(|| KernelError::NoNamespace(vrf.to_owned()))?;
        let lo = space.netdev.link("lo")?.ifindex;
        space.netdev.set_alias(lo, mark)?;
        Ok(space.netdev.set_up(lo, true)?)
    }
    /// Deletes a VRF's namespace. If it is gone already, that is no error.
    ///
    /// # Errors
    /// Without the right to delete it.
    pub fn delete(&mut self, vrf: &str) -> Result<()> {
        if let Some(space) = self.by_vrf.remove(vrf) {
            let _ = self.epoll.delete(&space.events);
        }
        match netns::delete(vrf) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(KernelError::io(format!("deleting network namespace {vrf}"), error))
            }
            _ => Ok(()),
        }
    }
    /// The switch's netdevs that are in VRFs.
    #[must_use]
    pub fn links(&self) -> Vec<(String, Link)> {
        let mut list = Vec::new();
        for (vrf, space) in &self.by_vrf {
            let links = space.netdev.links().unwrap_or_default().into_iter();
            let ours = links.filter(|link| self.homes.get(&link.name).is_some_and(|home| home == vrf));
            list.extend(ours.map(|link| (vrf.clone(), link)));
        }
        list
    }
    /// The facts about the namespaces.
    #[must_use]
    pub fn facts(&self) -> BTreeMap<String, Namespace> {
        let own = self.own.metadata().map(|meta| meta.ino()).ok();
        let facts = |(vrf, space): (&String, &Space)| {
            let mark = space.netdev.link("lo").ok().and_then(|lo| lo.alias);
            let own = own.is_some() && space.file.metadata().map(|meta| meta.ino()).ok() == own;
            let knobs = self.run(Some(vrf), || {
                let mut knobs = read_knobs();
                let forwards = sysctl::ipv6_forwarding().unwrap_or(false);
                knobs.insert(Knob::Ipv6Forwarding, forwards);
                knobs
            });
            (vrf.clone(), Namespace { mark, own, knobs: knobs.unwrap_or_default() })
        };
        self.by_vrf.iter().map(facts).collect()
    }
    /// The events in the namespaces, by VRF.
    pub fn events(&mut self) -> Vec<(String, Vec<Event>)> {
        let mut list = Vec::new();
        for (vrf, space) in &mut self.by_vrf {
            let mut all = Vec::new();
            loop {
                let batch = space.events.read();
                if batch.is_empty() {
                    break;
                }
                all.extend(batch);
            }
            if !all.is_empty() {
                list.push((vrf.clone(), all));
            }
        }
        list
    }
}

impl AsRawFd for Spaces {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.0.as_raw_fd()
    }
}

const REDIRECTS: &str = "send_redirects";
const BROADCAST: &str = "bc_forwarding";

/// The sysctls of the calling thread's namespace, other than IPv6 forwarding. One that this kernel
/// lacks is reported as off.
#[must_use]
pub fn read_knobs() -> BTreeMap<Knob, bool> {
    let is_on = |key: &str| sysctl::ipv4_conf("all", key).is_ok_and(|value| value.trim() != "0");
    [(Knob::Redirects, is_on(REDIRECTS)), (Knob::DirectedBroadcast, is_on(BROADCAST))].into()
}

/// Sets a sysctl of the calling thread's namespace.
///
/// # Errors
/// The kernel's reason.
pub fn write_knob(knob: Knob, on: bool) -> Result<()> {
    let value = if on { "1" } else { "0" };
    let result = match knob {
        Knob::Ipv6Forwarding => sysctl::set_ipv6_forwarding(on),
        Knob::Redirects => sysctl::set_ipv4_conf("all", REDIRECTS, value),
        Knob::DirectedBroadcast => sysctl::set_ipv4_conf("all", BROADCAST, value),
    };
    Ok(result?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that no namespace on a machine has.
    const ABSENT: &str = "lanyard-test-absent";

    fn spaces() -> Spaces {
        Spaces::open().expect("/proc is there")
    }

    #[test]
    fn a_vrf_without_a_namespace_is_refused_by_name() {
        let mut spaces = spaces();
        spaces.find(ABSENT);
        assert_eq!(spaces.names().count(), 0);
        assert!(spaces.netdev(ABSENT).is_none());
        assert!(spaces.file(None).is_ok(), "the switch's own is there");
        let error = spaces.file(Some(ABSENT)).map(drop).expect_err("no namespace");
        assert_eq!(error.to_string(), format!("VRF {ABSENT} has no namespace"));
        let mut ran = false;
        assert!(spaces.run(Some(ABSENT), || ran = true).is_err_and(|error| error.is_gone()));
        assert!(!ran, "the work must not be done in another namespace");
        assert!(spaces.prepare(ABSENT, "lanyard:test").is_err());
        assert!(spaces.facts().is_empty() && spaces.links().is_empty() && spaces.events().is_empty());
    }

    #[test]
    fn work_for_the_own_namespace_runs_on_this_thread() {
        let here = std::thread::current().id();
        assert_eq!(spaces().run(None, || std::thread::current().id()).expect("run"), here);
    }

    #[test]
    fn only_moves_that_were_made_set_the_home_vrf() {
        let mut spaces = spaces();
        spaces.set_home("eth1", Some("red"));
        assert_eq!((spaces.home("eth1"), spaces.home("eth2")), (Some("red"), None));
        spaces.set_home("eth1", None);
        assert_eq!(spaces.home("eth1"), None);
        // The record of an earlier run names a move that was not made.
        spaces.adopt(&BTreeMap::from([("eth1".to_owned(), ABSENT.to_owned())]));
        assert_eq!(spaces.home("eth1"), None);
    }

    #[test]
    fn deleting_an_absent_vrf_is_no_error() {
        assert!(spaces().delete(ABSENT).is_ok());
    }

    #[test]
    fn sysctls_of_the_own_namespace() {
        let knobs = read_knobs();
        assert_eq!(knobs.keys().collect::<Vec<_>>(), [&Knob::Redirects, &Knob::DirectedBroadcast]);
        let redirects = sysctl::ipv4_conf("all", REDIRECTS).expect("there");
        assert_eq!(knobs[&Knob::Redirects], redirects.trim() != "0");
    }
}
