//! The kernel's network configuration as a trait. [`crate::linux`] implements it over netlink and /proc/sys,
//! `crate::testing` in memory, so that every module of the daemon is tested without rights.
//!
//! Invariant: the VRF `None` is the switch's own network namespace, a name is the namespace of that VRF. A read
//! returns the kernel's present state, never a requested one.

use lanyard_netdev::follow::{Notification, Progress, Table};
use lanyard_netdev::{Address, Event, FilterWatch, Follower, Hook, Link, Neighbour, Route, Settings};
use lanyard_switch::links::Netdevs;
use lanyard_switch::{Facts, LinkFacts};
use lanyard_types::{Family, MacAddr, QueueStats, QueueTree, RootQueue};
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

/// The reason why an operation of the kernel failed.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A netlink request or an ioctl failed.
    #[error(transparent)]
    Netdev(#[from] lanyard_netdev::Error),
    /// A named netdev that does not exist.
    #[error("interface {0} is not present")]
    NoInterface(String),
    /// The VRF has no network namespace.
    #[error("VRF {0} has no namespace")]
    NoNamespace(String),
    /// An operation on a network namespace, a process or a socket failed.
    #[error("{doing}: {cause}")]
    Io {
        /// The operation, naming its object.
        doing: String,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// One of several steps failed.
    #[error("{doing}: {cause}")]
    Step {
        /// The operation, naming its object.
        doing: String,
        /// The step that failed.
        #[source]
        cause: Box<KernelError>,
    },
    /// A refusal whose reason Lanyard knows more exactly than the kernel's error number says.
    #[error("{cause}: {why}")]
    Explained {
        /// The limit, and how to avoid it.
        why: String,
        /// The kernel's answer.
        #[source]
        cause: Box<KernelError>,
    },
}

impl KernelError {
    /// An error that occurred while `doing` something ("entering VRF red").
    pub fn io(doing: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self::Io { doing: doing.into(), cause: cause.into() }
    }
    /// Adds the operation during which this error occurred.
    #[must_use]
    pub fn during(self, doing: impl Into<String>) -> Self {
        Self::Step { doing: doing.into(), cause: Box::new(self) }
    }
    /// Adds the reason, `why`, to the error.
    #[must_use]
    pub fn because(self, why: impl Into<String>) -> Self {
        Self::Explained { why: why.into(), cause: Box::new(self) }
    }
    /// The error number, when the kernel answered with one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Netdev(error) => error.errno(),
            Self::NoInterface(_) | Self::NoNamespace(_) => Some(libc::ENODEV),
            Self::Io { cause, .. } => cause.raw_os_error(),
            Self::Step { cause, .. } | Self::Explained { cause, .. } => cause.errno(),
        }
    }
    /// True if the object of the request does not exist (any more).
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Netdev(error) => error.is_gone(),
            Self::NoInterface(_) | Self::NoNamespace(_) => true,
            Self::Io { cause, .. } => cause.kind() == io::ErrorKind::NotFound,
            Self::Step { cause, .. } | Self::Explained { cause, .. } => cause.is_gone(),
        }
    }
}

/// The result of these operations.
pub type Result<T> = std::result::Result<T, KernelError>;

/// The interface to the kernel. [`Netdevs::act`] carries out the switch's actions on netdevs.
pub trait Kernel: Netdevs<Error = KernelError> {
    /// The facts about all netdevs in the switch's own namespace, and about the switch's netdevs in
    /// VRFs.
    fn facts(&mut self) -> Result<Facts>;
    /// One netdev as the switch sees it.
    fn link_facts(&self, vrf: Option<&str>, link: &Link) -> LinkFacts;
    /// Reads the sysctls of these netdevs into `facts`.
    fn learn_hosts(&mut self, names: &[String], facts: &mut Facts);
    /// Reads which of these VRFs have a namespace into `facts`.
    fn learn_namespaces(&mut self, vrfs: &[String], facts: &mut Facts);

    /// True when a netdev of this name exists in the namespace in which the switch has its netdev of this name.
    fn has(&self, name: &str) -> bool;
    /// The VRF that a netdev of the switch is in.
    fn home(&self, name: &str) -> Option<&str>;
    /// The VRFs whose namespaces exist.
    fn vrfs(&self) -> Vec<String>;
    /// The switch's netdevs in VRFs, with the VRF.
    fn vrf_links(&self) -> Vec<(String, Link)>;
    /// A descriptor that is readable when [`Kernel::vrf_events`] has something.
    fn vrf_event_fd(&self) -> Option<RawFd>;
    /// The events in the namespaces of VRFs since the last call, by VRF.
    fn vrf_events(&mut self) -> Vec<(String, Vec<Event>)>;
    /// Runs `work` once in a VRF's namespace. [`within`] returns its result.
    fn enter(&self, vrf: Option<&str>, work: &mut (dyn FnMut() + Send)) -> Result<()>;

    /// Every netdev of a namespace.
    fn links(&self, vrf: Option<&str>) -> Result<Vec<Link>>;
    /// One netdev of a namespace.
    fn link(&self, vrf: Option<&str>, name: &str) -> Result<Link>;
    /// The addresses of a namespace, or of one of its netdevs.
    fn addresses(&self, vrf: Option<&str>, ifindex: Option<u32>) -> Result<Vec<Address>>;
    /// The routes of one table.
    fn routes(&self, vrf: Option<&str>, family: Family, table: u32) -> Result<Vec<Route>>;
    /// The routes of the main table with one protocol number.
    fn routes_of(&self, vrf: Option<&str>, family: Family, protocol: u8) -> Result<Vec<Route>>;
    /// Adds a route if none with its destination and metric exists.
    fn add_route(&self, vrf: Option<&str>, route: &Route) -> Result<()>;
    /// Adds a route, or replaces the one with its destination and metric.
    fn replace_route(&self, vrf: Option<&str>, route: &Route) -> Result<()>;
    /// Deletes a route.
    fn del_route(&self, vrf: Option<&str>, route: &Route) -> Result<()>;
    /// The neighbours of a namespace.
    fn neighbours(&self, vrf: Option<&str>, family: Family) -> Result<Vec<Neighbour>>;
    /// Sets a permanent neighbour.
    fn set_neighbour(&self, vrf: Option<&str>, ifindex: u32, address: IpAddr, mac: MacAddr) -> Result<()>;
    /// Deletes a neighbour.
    fn del_neighbour(&self, vrf: Option<&str>, ifindex: u32, address: IpAddr) -> Result<()>;
    /// Link settings of a netdev of the switch.
    fn settings(&self, name: &str) -> Result<Settings>;
    /// The queueing discipline at the root of a netdev of the switch.
    fn root_queue(&self, name: &str) -> Result<RootQueue>;
    /// Gives a netdev of the switch these queues, in place of those that the switch has given it.
    fn set_queues(&self, name: &str, tree: &QueueTree) -> Result<()>;
    /// Takes the switch's queues from a netdev; one without them is left alone.
    fn clear_queues(&self, name: &str) -> Result<()>;
    /// The counters of the queues of a netdev, by class.
    fn queue_stats(&self, name: &str) -> Result<Vec<QueueStats>>;
    /// The driver of a netdev of the switch's own namespace.
    fn driver(&self, name: &str) -> Result<String>;
    /// Subscribes to everything that affects routing in a namespace.
    fn follow(&self, vrf: Option<&str>) -> Result<Box<dyn RouteSource>>;
    /// Subscribes to the packet filter, NAT and IPsec of a namespace.
    fn watch_filter(&self, vrf: Option<&str>) -> Result<Box<dyn FilterSource>>;
}

/// The packet filter of one namespace: [`FilterWatch`], or a test's own.
pub trait FilterSource {
    /// Descriptors that become readable when something is announced.
    fn fds(&self) -> Vec<RawFd>;
    /// As [`FilterWatch::events`].
    fn events(&mut self, new: &mut BTreeSet<Hook>) -> bool;
    /// As [`FilterWatch::list`].
    fn list(&mut self) -> lanyard_netdev::Result<BTreeSet<Hook>>;
    /// As [`FilterWatch::unannounced`].
    fn unannounced(&mut self) -> lanyard_netdev::Result<BTreeSet<Hook>>;
}

impl FilterSource for FilterWatch {
    fn fds(&self) -> Vec<RawFd> {
        Self::fds(self).map(|fd| fd.as_raw_fd()).collect()
    }
    fn events(&mut self, new: &mut BTreeSet<Hook>) -> bool {
        Self::events(self, new)
    }
    fn list(&mut self) -> lanyard_netdev::Result<BTreeSet<Hook>> {
        Self::list(self)
    }
    fn unannounced(&mut self) -> lanyard_netdev::Result<BTreeSet<Hook>> {
        Self::unannounced(self)
    }
}

/// The events and listings of one namespace's routing: [`Follower`], or a test's own.
pub trait RouteSource {
    /// Descriptors that become readable when there are events, and when a listing has more entries.
    fn fds(&self) -> Vec<RawFd>;
    /// As [`Follower::read`].
    fn read(&mut self, most: usize, each: &mut dyn FnMut(Notification<'_>)) -> usize;
    /// As [`Follower::list`].
    fn list(&mut self, table: Table) -> io::Result<()>;
    /// As [`Follower::read_listing`].
    fn read_listing(&mut self, most: usize, each: &mut dyn FnMut(Notification<'_>)) -> io::Result<Progress>;
    /// As [`Follower::use_neighbours`].
    fn use_neighbours(&mut self, neighbours: &[(u32, IpAddr)]);
}

impl RouteSource for Follower {
    fn fds(&self) -> Vec<RawFd> {
        vec![self.events_fd(), self.listing_fd()]
    }
    fn read(&mut self, most: usize, each: &mut dyn FnMut(Notification<'_>)) -> usize {
        Self::read(self, most, each)
    }
    fn list(&mut self, table: Table) -> io::Result<()> {
        Self::list(self, table)
    }
    fn read_listing(&mut self, most: usize, each: &mut dyn FnMut(Notification<'_>)) -> io::Result<Progress> {
        Self::read_listing(self, most, each)
    }
    fn use_neighbours(&mut self, neighbours: &[(u32, IpAddr)]) {
        Self::use_neighbours(self, neighbours);
    }
}

/// Runs `work` in a VRF's namespace and returns its result; see [`Kernel::enter`].
///
/// # Errors
/// When the VRF has no namespace, or it cannot be entered.
pub fn within<T: Send>(kernel: &dyn Kernel, vrf: Option<&str>, work: impl FnOnce() -> T + Send) -> Result<T> {
    let (mut work, mut result) = (Some(work), None);
    kernel.enter(vrf, &mut || result = work.take().map(|work| work()))?;
    result.ok_or_else(|| KernelError::NoNamespace(vrf.unwrap_or("default").to_owned()))
}
