//! The state machines, one file each, under the standard's names (IEEE 802.1Q-2018, 13.30 to 13.39).
//!
//! Every file has the same shape: `State`; `next`, which is pure and returns the state to enter, if any; `enter`,
//! which carries out the state's box in the standard's figure; and `step`, which makes one transition. The order
//! of the conditions in `next` is the priority of the transitions.

/// Bridge detection (BDM), 13.33.
pub(crate) mod bridge_detection;
/// Port information (PIM), 13.35.
pub(crate) mod port_information;
/// Port protocol migration (PPM), 13.32.
pub(crate) mod port_migration;
/// Port receive (PRX), 13.31.
pub(crate) mod port_receive;
/// Port transmit (PTX), 13.34.
pub(crate) mod port_transmit;
/// Port role selection (PRS), 13.36.
pub(crate) mod role_selection;
/// Port role transitions (PRT), 13.37.
pub(crate) mod role_transitions;
/// Port state transition (PST), 13.38.
pub(crate) mod state_transition;
/// Topology change (TCM), 13.39.
pub(crate) mod topology_change;
