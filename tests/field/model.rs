//! The model of the switch as far as the storm changes it: where frames and packets may go.

/// The number of hosts, and of ports of the switch that lead to one.
pub const HOSTS: usize = 5;
/// The VLANs of the ports; each has a router interface.
pub const VLANS: [u16; 2] = [10, 20];

/// The tag of a frame: its VLAN.
pub type Tag = Option<u16>;

/// A port that forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The VLAN of its untagged frames.
    pub vlan: u16,
    /// True for a trunk: the port carries all other VLANs as well, with tags.
    pub trunk: bool,
}

impl Member {
    /// An access port.
    pub const fn access(vlan: u16) -> Self {
        Self { vlan, trunk: false }
    }
    /// The VLAN of a frame that is received with this tag; `None` if the port does not accept the tag.
    pub fn ingress(self, tag: Tag) -> Option<u16> {
        let vlan = tag.unwrap_or(self.vlan);
        (vlan == self.vlan || self.trunk && VLANS.contains(&vlan)).then_some(vlan)
    }
    /// The tag with which a frame of `vlan` leaves; `None` if it does not leave here.
    pub fn egress(self, vlan: u16) -> Option<Tag> {
        (vlan == self.vlan || self.trunk).then_some((vlan != self.vlan).then_some(vlan))
    }
}

/// The state that decides where a frame may go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// The VLANs of each port; `None` while the port forwards nothing.
    pub ports: [Option<Member>; HOSTS],
    /// True while the host's packet filter drops all forwarded packets.
    pub filtered: bool,
    /// Destinations with a blackhole route: for each VLAN the address of each host.
    pub blackholes: [[bool; HOSTS]; VLANS.len()],
}

/// The index of a VLAN in [`VLANS`].
pub fn index_of(vlan: u16) -> Option<usize> {
    VLANS.iter().position(|known| *known == vlan)
}

impl State {
    /// The same ports, with the packet filter and the routes of `other`.
    pub fn routing_as(&self, other: &Self) -> Self {
        Self { ports: self.ports, ..other.clone() }
    }
    /// The tag with which a frame that host `from` sends with `tag` may be bridged to host `at`; `None` if it may not.
    pub fn bridges(&self, (from, tag): (usize, Tag), at: usize) -> Option<Tag> {
        let vlan = self.ports[from - 1]?.ingress(tag)?;
        self.ports[at - 1]?.egress(vlan)
    }
    /// The tag with which a packet that host `from` sends with `tag` to the address of host `to` in `vlan` may be routed and
    /// arrive at host `at`. The packet is flooded in the VLAN while the switch has not learned host `to`.
    pub fn routes(&self, (from, tag): (usize, Tag), to: usize, vlan: u16, at: usize) -> Option<Tag> {
        let open = |vlan: usize| !self.blackholes[vlan][to - 1];
        let comes_from = self.ports[from - 1]?.ingress(tag)?;
        let may = comes_from != vlan && !self.filtered && index_of(vlan).is_some_and(open);
        if may { self.ports[at - 1]?.egress(vlan) } else { None }
    }
}

/// A history: for each epoch, the states in which the switch may have been.
#[derive(Debug, Default)]
pub struct History(Vec<Vec<State>>);

impl History {
    /// Begins an epoch in which the switch may be in any of these states; returns the epoch's number.
    pub fn any_of(&mut self, mut states: Vec<State>) -> u32 {
        states.dedup();
        self.0.push(states);
        self.0.len() as u32 - 1
    }
    /// True if `allows` holds for some state since the beginning of `epoch`.
    pub fn allowed(&self, epoch: u32, allows: impl Fn(&State) -> bool) -> bool {
        self.0.get(epoch as usize..).is_some_and(|since| since.iter().flatten().any(allows))
    }
    /// True when a frame may have arrived at port `at` with `tag` since the beginning of `epoch`: some state allowed it in the
    /// VLAN that `vlan` returns, and some state gives that VLAN this tag there. These may be two states: a change of several
    /// ports keeps VLANs apart at every moment, but one port may tag as before when another has changed already.
    pub fn arrives(&self, epoch: u32, (at, tag): (usize, Tag), vlan: impl Fn(&State) -> Option<u16>) -> bool {
        let egress = |state: &State, vlan: u16| state.ports[at - 1].and_then(|port| port.egress(vlan));
        self.allowed(epoch, |state| {
            vlan(state).is_some_and(|vlan| {
                egress(state, vlan).is_some() && self.allowed(epoch, |other| egress(other, vlan) == Some(tag))
            })
        })
    }
    /// The states since the beginning of `epoch`, for the message of a failure.
    pub fn since(&self, epoch: u32) -> &[Vec<State>] {
        self.0.get(epoch as usize..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(vlans: [Option<u16>; HOSTS]) -> State {
        State { ports: vlans.map(|vlan| vlan.map(Member::access)), ..State::default() }
    }

    #[test]
    fn a_frame_may_go_where_its_vlan_is_and_a_packet_where_its_address_is() {
        let mut state = state([Some(10), Some(10), Some(20), None, None]);
        let bridges = |from, at| state.bridges((from, None), at).is_some();
        assert!(bridges(1, 2) && !bridges(1, 3) && !bridges(1, 4) && !bridges(4, 5));
        let routes = |state: &State, vlan, at| state.routes((1, None), 3, vlan, at).is_some();
        assert!(routes(&state, 20, 3));
        assert!(!routes(&state, 10, 2), "a router sends nothing back into the VLAN it came from");
        assert!(!routes(&state, 20, 2), "a host of the VLAN it came from");
        state.blackholes[1][2] = true;
        assert!(!routes(&state, 20, 3));
        state.blackholes[1][2] = false;
        state.filtered = true;
        assert!(!routes(&state, 20, 3));
    }

    #[test]
    fn a_trunk_has_both_vlans_and_tags_the_one_that_is_not_native() {
        let mut state = state([Some(10), Some(20), Some(10), None, None]);
        state.ports[2] = Some(Member { vlan: 10, trunk: true });
        let bridges = |from, tag, at| state.bridges((from, tag), at);
        assert_eq!((bridges(1, None, 3), bridges(2, None, 3)), (Some(None), Some(Some(20))));
        assert_eq!((bridges(3, None, 1), bridges(3, None, 2)), (Some(None), None));
        assert_eq!((bridges(3, Some(20), 1), bridges(3, Some(20), 2)), (None, Some(None)));
        assert_eq!((bridges(1, Some(20), 3), bridges(1, Some(10), 2)), (None, None), "an access port");
        assert_eq!(state.routes((1, None), 3, 20, 3), Some(Some(20)));
        assert_eq!(state.routes((3, Some(20)), 1, 10, 1), Some(None));
        assert_eq!(state.routes((3, Some(20)), 2, 20, 2), None);
    }

    #[test]
    fn a_change_of_several_ports_mixes_tags_and_not_vlans() {
        let (mut old, mut new) = (state([Some(10), Some(20), None, None, None]), state([Some(20); HOSTS]));
        (new.ports[0], old.ports[2]) = (Some(Member { vlan: 10, trunk: true }), Some(Member::access(10)));
        let mut history = History::default();
        let during = history.any_of(vec![old, new]);
        let arrives = |from: usize, to| {
            history.arrives(during, to, |state| state.ports[from - 1].and_then(|port| port.ingress(None)))
        };
        assert!(arrives(2, (1, Some(20))) && !arrives(2, (1, None)), "VLAN 20 has a tag at the trunk");
        assert!(arrives(1, (3, None)) && !arrives(1, (2, None)), "hosts 1 and 2 never share a VLAN untagged");
    }

    #[test]
    fn a_change_allows_both_until_it_is_over() {
        let (a, b) = (state([Some(10); HOSTS]), state([Some(20); HOSTS]));
        let mut history = History::default();
        let before = history.any_of(vec![a.clone()]);
        let during = history.any_of(vec![a.clone(), b.clone()]);
        let after = history.any_of(vec![b]);
        let is_a = |state: &State| *state == a;
        assert!(history.allowed(before, is_a) && history.allowed(during, is_a));
        assert!(!history.allowed(after, is_a) && !history.allowed(after + 1, is_a));
    }
}
