//! Tracked objects: up or down, with configured delays between a change of the observed state and of the reported state.
//!
//! Invariants: pure, time is an argument. An object's first state is reported without delay. A running delay ends when
//! the observation changes back.

use lanyard_config::layer3::Track;
use std::collections::BTreeMap;

/// The state of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The reported state.
    pub up: bool,
    /// When the observed state will be reported, if it differs from the reported one.
    pub due_ms: Option<u64>,
    /// The number of changes of the reported state.
    pub changes: u64,
    /// When the reported state last changed, or when the object was created.
    pub since_ms: u64,
}

/// All objects, by number.
#[derive(Debug, Clone, Default)]
pub struct Tracks {
    states: BTreeMap<u16, State>,
}

impl Tracks {
    /// The objects.
    #[must_use]
    pub const fn states(&self) -> &BTreeMap<u16, State> {
        &self.states
    }
    /// True while an object is up; one that does not exist is down.
    #[must_use]
    pub fn is_up(&self, number: u16) -> bool {
        self.states.get(&number).is_some_and(|state| state.up)
    }
    /// When [`Tracks::look`] has to be called next if nothing happens.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        self.states.values().filter_map(|state| state.due_ms).min()
    }
    /// Handles the observed states at `now_ms`. Returns the objects whose reported state has changed, each with its new state.
    pub fn look(
        &mut self,
        now_ms: u64,
        objects: &BTreeMap<u16, Track>,
        seen: &mut dyn FnMut(&Track) -> bool,
    ) -> Vec<(u16, bool)> {
        self.states.retain(|number, _| objects.contains_key(number));
        let mut changed = Vec::new();
        for (number, track) in objects {
            let is = seen(track);
            let Some(state) = self.states.get_mut(number) else {
                self.states.insert(*number, State { up: is, due_ms: None, changes: 0, since_ms: now_ms });
                changed.push((*number, is));
                continue;
            };
            if is == state.up {
                state.due_ms = None;
                continue;
            }
            let delay_s = if is { track.up_s } else { track.down_s };
            let due_ms = *state.due_ms.get_or_insert(now_ms + u64::from(delay_s) * 1000);
            if due_ms <= now_ms {
                *state = State { up: is, due_ms: None, changes: state.changes + 1, since_ms: now_ms };
                changed.push((*number, is));
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanyard_config::InterfaceName;
    use lanyard_config::layer3::TrackObject;

    #[test]
    fn delays() {
        let object = TrackObject::LineProtocol(InterfaceName::Netdev("eth1".into()));
        let objects = BTreeMap::from([(1, Track { object, up_s: 10, down_s: 3 })]);
        let mut tracks = Tracks::default();
        for (now_s, seen, want, next_s) in [
            (0, true, Some(true), None),
            (1, true, None, None),
            (2, false, None, Some(5)),
            // The observation changed back within the delay.
            (4, true, None, None),
            (5, false, None, Some(8)),
            (7, false, None, Some(8)),
            (8, false, Some(false), None),
            (9, true, None, Some(19)),
            (18, true, None, Some(19)),
            (20, true, Some(true), None),
        ] {
            let changed = tracks.look(now_s * 1000, &objects, &mut |_| seen);
            assert_eq!(changed.first().map(|(_, up)| *up), want, "at {now_s} s");
            assert_eq!(tracks.next_ms(), next_s.map(|s: u64| s * 1000), "at {now_s} s");
        }
        assert_eq!(tracks.states()[&1].changes, 2);
        assert!(tracks.is_up(1) && !tracks.is_up(2));
        tracks.look(21_000, &BTreeMap::new(), &mut |_| true);
        assert!(!tracks.is_up(1), "an object that is gone is down");
    }
}
