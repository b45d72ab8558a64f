//! The kernel's network devices: links, addresses, routes, neighbours, events, ethtool, sysctls, and packet
//! sockets ([`PacketSocket`], [`PacketRing`]); network namespaces ([`netns`]) and the programs in them ([`Reaped`]).
//!
//! Read netlink(7) and rtnetlink(7) first. The API is synchronous: a request is one system call and the
//! kernel answers inside it, in microseconds, so nothing here needs a thread or a runtime. A [`Netdev`]
//! belongs to the network namespace of the thread that opened it; so do an [`Events`] and, at each call, the
//! functions of [`sysctl`].
//!
//! Invariants: everything received is bounded and parsed without panic; an unknown or unreadable attribute is
//! ignored; an answer with a sequence number other than the request's is never accepted.

mod decode;
mod error;
mod ethtool;
mod event;
mod filter;
pub mod follow;
mod genl;
mod gre;
mod ioctl;
mod link;
mod link_watch;
mod model;
mod mounts;
pub mod netns;
mod packet;
mod qdisc;
mod queues;
mod reaped;
mod route;
mod socket;
pub mod sysctl;
mod tap;
mod watch;

pub use error::{Error, Result};
pub use ethtool::{Duplex, Feature, Settings, XdpAbility, XdpFeatures};
pub use event::{Event, Events};
pub use filter::{FilterWatch, Hook, HookPoint};
pub use follow::{Follower, Notification};
pub use gre::{GreReceiver, GreSocket};
pub use link::{LinkChange, NAME_MAX, Veth, is_valid_name};
pub use link_watch::{LinkWatch, Report};
pub use model::*;
pub use mounts::in_init as in_init_mounts;
pub use packet::{Arrived, Packet, PacketRing, PacketSocket, RingFrame, RingShape, VNET_HEADER_LEN};
pub use reaped::Reaped;
use socket::Channel;
use std::cell::RefCell;
use std::io;
pub use tap::Tap;
pub use watch::{Changed, Watch};

/// A connection to the kernel's network configuration, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netdev {
    route: RefCell<Channel>,
    /// A socket on which the kernel filters listings (NETLINK_GET_STRICT_CHK).
    strict: RefCell<Channel>,
    generic: RefCell<genl::Generic>,
}

impl Netdev {
    /// Opens the sockets in the calling thread's network namespace. The value may move to another thread
    /// (but is not shared between threads) and stays with its namespace.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        let strict = Channel::open(netlink_sys::protocols::NETLINK_ROUTE)?;
        // A kernel before 4.20 lists everything; results are filtered here as well.
        let _ = strict.socket().set_netlink_get_strict_chk(true);
        Ok(Self {
            route: RefCell::new(Channel::open(netlink_sys::protocols::NETLINK_ROUTE)?),
            strict: RefCell::new(strict),
            generic: RefCell::new(genl::Generic::open()?),
        })
    }
}
