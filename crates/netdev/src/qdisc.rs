//! Lists the kinds of queueing disciplines and filters that exist.
//!
//! Read tc(8) first. `noqueue`, the absence of a queue, is left out.

use crate::decode::attributes;
use crate::error::Error;
use crate::{Netdev, Result};
use netlink_packet_core::parse_string;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::TcMessage;

/// Length of struct tcmsg in bytes, and the offsets of its ifindex and its handle.
const HEADER: usize = 20;
const IFINDEX: std::ops::Range<usize> = 4..8;
const HANDLE: std::ops::Range<usize> = 8..12;
/// TCA_KIND.
const KIND: u16 = 1;

impl Netdev {
    /// The device and kind of every queueing discipline of the namespace. Filters are attached to
    /// `clsact`.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn qdiscs(&self) -> Result<Vec<(u32, String)>> {
        let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let found = self.route.borrow_mut().dump(request, |_, payload| qdisc(payload));
        found.map_err(|refusal| Error::refused("listing the queueing disciplines", refusal))
    }
}

/// The hooks of `clsact` as a filter's parent: TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS), and the same of egress.
const CLSACT_INGRESS: u32 = 0xffff_fff2;
const CLSACT_EGRESS: u32 = 0xffff_fff3;

impl Netdev {
    /// The number of filters at the egress hook of a device's `clsact` queueing discipline; 0
    /// without it.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn egress_filters(&self, ifindex: u32) -> Result<usize> {
        self.filters(ifindex, CLSACT_EGRESS)
    }

    /// The number of filters at both hooks of a device's `clsact` queueing discipline.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn clsact_filters(&self, ifindex: u32) -> Result<usize> {
        Ok(self.filters(ifindex, CLSACT_INGRESS)? + self.filters(ifindex, CLSACT_EGRESS)?)
    }

    fn filters(&self, ifindex: u32, parent: u32) -> Result<usize> {
        let doing = || format!("listing the filters of {}", self.label(ifindex));
        let index = i32::try_from(ifindex)
            .map_err(|_| Error::new(doing(), std::io::Error::from_raw_os_error(libc::ENODEV)))?;
        let mut request = TcMessage::with_index(index);
        request.header.parent = parent.into();
        let request = RouteNetlinkMessage::GetTrafficFilter(request);
        let found = self.route.borrow_mut().dump(request, |_, payload| filter(payload));
        found.map(|filters| filters.len()).map_err(|refusal| Error::refused(doing(), refusal))
    }
}

/// Returns `Some` for each message about a filter. Messages about a priority alone have no handle.
fn filter(payload: &[u8]) -> Option<()> {
    let handle = u32::from_ne_bytes(payload.get(HANDLE)?.try_into().ok()?);
    (handle != 0).then_some(())
}

fn qdisc(payload: &[u8]) -> Option<(u32, String)> {
    let ifindex = u32::from_ne_bytes(payload.get(IFINDEX)?.try_into().ok()?);
    let kind = attributes(payload, HEADER).find(|nla| nla.kind() == KIND)?;
    Some((ifindex, parse_string(kind.value()).ok()?))
}
