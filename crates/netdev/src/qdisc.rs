//! Queueing disciplines, by kind: all that is asked of them is whether they are there.
//!
//! Read tc(8) first. `noqueue` is not among them: it is what a device has that queues nothing.

use crate::decode::attributes;
use crate::error::Error;
use crate::{Netdev, Result};
use netlink_packet_core::parse_string;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::TcMessage;

/// Bytes of struct tcmsg, and where its ifindex lies.
const HEADER: usize = 20;
const IFINDEX: std::ops::Range<usize> = 4..8;
/// TCA_KIND.
const KIND: u16 = 1;

impl Netdev {
    /// The device and kind of every queueing discipline of the namespace; `clsact` is where filters hang.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn qdiscs(&self) -> Result<Vec<(u32, String)>> {
        let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let found = self.route.borrow_mut().dump(request, |_, payload| qdisc(payload));
        found.map_err(|refusal| Error::refused("listing the queueing disciplines", refusal))
    }
}

fn qdisc(payload: &[u8]) -> Option<(u32, String)> {
    let ifindex = u32::from_ne_bytes(payload.get(IFINDEX)?.try_into().ok()?);
    let kind = attributes(payload, HEADER).find(|nla| nla.kind() == KIND)?;
    Some((ifindex, parse_string(kind.value()).ok()?))
}
