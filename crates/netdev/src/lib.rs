//! The kernel's network devices over netlink.
