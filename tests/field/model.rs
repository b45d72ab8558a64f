//! The model of the switch as far as the storm changes it: where frames and packets may go.

/// The number of hosts, and of ports of the switch.
pub const HOSTS: usize = 5;
/// The VLANs of the ports; each has a router interface.
pub const VLANS: [u16; 2] = [10, 20];

/// The state that decides where a frame may go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// The VLAN of each port; `None` while the port forwards nothing.
    pub ports: [Option<u16>; HOSTS],
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
    /// True when a frame of host `from` may be bridged to host `at`.
    pub fn bridges(&self, from: usize, at: usize) -> bool {
        let (a, b) = (self.ports[from - 1], self.ports[at - 1]);
        a.is_some() && a == b
    }
    /// True when a packet of host `from` to the address of host `to` in `vlan` may be routed and arrive at host `at`.
    /// It is flooded in the VLAN while the switch has not learned host `to`.
    pub fn routes(&self, from: usize, to: usize, vlan: u16, at: usize) -> bool {
        let open = |vlan: usize| !self.blackholes[vlan][to - 1];
        let comes_from = self.ports[from - 1];
        comes_from.is_some()
            && comes_from != Some(vlan)
            && self.ports[at - 1] == Some(vlan)
            && !self.filtered
            && index_of(vlan).is_some_and(open)
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
    /// True when some state since the beginning of `epoch` allowed it.
    pub fn allowed(&self, epoch: u32, allows: impl Fn(&State) -> bool) -> bool {
        self.0.get(epoch as usize..).is_some_and(|since| since.iter().flatten().any(allows))
    }
    /// The states since the beginning of `epoch`, for the message of a failure.
    pub fn since(&self, epoch: u32) -> &[Vec<State>] {
        self.0.get(epoch as usize..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(ports: [Option<u16>; HOSTS]) -> State {
        State { ports, ..State::default() }
    }

    #[test]
    fn a_frame_may_go_where_its_vlan_is_and_a_packet_where_its_address_is() {
        let mut state = state([Some(10), Some(10), Some(20), None, None]);
        assert!(state.bridges(1, 2) && !state.bridges(1, 3) && !state.bridges(1, 4) && !state.bridges(4, 5));
        assert!(state.routes(1, 3, 20, 3));
        assert!(!state.routes(1, 3, 10, 2), "a router sends nothing back into the VLAN it came from");
        assert!(!state.routes(1, 3, 20, 2), "a host of the VLAN it came from");
        state.blackholes[1][2] = true;
        assert!(!state.routes(1, 3, 20, 3));
        state.blackholes[1][2] = false;
        state.filtered = true;
        assert!(!state.routes(1, 3, 20, 3));
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
